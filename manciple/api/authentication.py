"""Authentication as the API's views use it: what of a request is shown to the chain, and in whose name it is made.

Sessions are for the pages and mean nothing to the API, so no request to it needs CSRF protection. Who shows no
credential is `system:anonymous`; one that nobody recognises is refused. What anybody may do is `manciple.api.door`'s.
"""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from manciple.access.authentication import chain
from manciple.access.authentication.chain import Credentials
from manciple.access.impersonation import acting
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import ANONYMOUS, Identity

#: Where scope and environ carry the identity of a request whose credential was recognised before its body was read.
IDENTITY = "manciple.identity"
CERTIFICATE, PEER = chain.CERTIFICATE, chain.PEER
#: Where they carry its origin (manciple.store.origins), for the audit trail.
ORIGIN = "manciple.origin"
CHALLENGE = 'Bearer realm="manciple"'


def identify(shown: Credentials, *, known: Identity | None = None) -> Identity:
    """In whose name this request is made.

    known: whose request it is, where that was asked before it got here.
    Raises: Unauthorized for a credential that nobody recognises; Forbidden, BadRequest (see `impersonation`).
    """
    identity = known or chain.identify(shown) or ANONYMOUS
    if shown.origin is None:
        return acting(identity, shown.headers)
    shown.origin.asked_by(identity)  # who is refused to act as another is told by their own name
    acted = acting(identity, shown.headers)
    shown.origin.asked_by(identity, acting_as=acted)
    return acted


class ShownCredentials(BaseAuthentication):
    """Whatever the chain recognises -> `request.user` is an Identity."""

    def authenticate(self, request: Request) -> tuple[Identity, None]:
        shown = Credentials(
            headers=request.headers,
            certificate=request.META.get(CERTIFICATE),
            address=request.META.get("REMOTE_ADDR", ""),
            peer=request.META.get(PEER, ""),
            origin=request.META.get(ORIGIN),
        )
        return identify(shown, known=request.META.get(IDENTITY)), None

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        return CHALLENGE


def identity_of(request: Request) -> Identity:
    """In whose name the request is made; that they may make it was asked at the door."""
    user: object = request.user
    if not isinstance(user, Identity):
        raise Unauthorized("Unauthorized")
    return user.let_in()
