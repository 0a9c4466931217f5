"""Authentication as the API's views use it: what of a request is shown to the chain, and in whose name it is made.

Sessions are for the pages and mean nothing to the API, so no request to it needs CSRF protection. Nobody without a
credential gets in, discovery included; only health and version answer anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from manciple.access.authentication import chain
from manciple.access.authentication.chain import Credentials
from manciple.access.impersonation import acting
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import Identity

if TYPE_CHECKING:  # DRF's views load the authentication classes of the settings: this module
    from rest_framework.views import APIView

#: Where scope and environ carry the identity of a request whose credential was recognised before its body was read.
IDENTITY = "manciple.identity"
CERTIFICATE = chain.CERTIFICATE
#: Where they carry its origin (manciple.store.origins), for the audit trail.
ORIGIN = "manciple.origin"
CHALLENGE = 'Bearer realm="manciple"'


def identify(shown: Credentials, *, known: Identity | None = None) -> Identity | None:
    """In whose name this request is made; None where it shows no credential.

    known: whose request it is, where that was asked before it got here.
    Raises: Unauthorized for a credential that nobody recognises; Forbidden, BadRequest (see `impersonation`).
    """
    identity = known or chain.identify(shown)
    if identity is None:
        return None
    if shown.origin is None:
        return acting(identity, shown.headers)
    shown.origin.asked_by(identity)  # who is refused to act as another is told by their own name
    acted = acting(identity, shown.headers)
    shown.origin.asked_by(identity, acting_as=acted)
    return acted


class ShownCredentials(BaseAuthentication):
    """Whatever the chain recognises -> `request.user` is an Identity."""

    def authenticate(self, request: Request) -> tuple[Identity, None] | None:
        shown = Credentials(
            headers=request.headers,
            certificate=request.META.get(CERTIFICATE),
            address=request.META.get("REMOTE_ADDR", ""),
            origin=request.META.get(ORIGIN),
        )
        identity = identify(shown, known=request.META.get(IDENTITY))
        return (identity, None) if identity else None

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        return CHALLENGE


class KnownIdentity(BasePermission):
    """Lets in whoever showed a credential."""

    def has_permission(self, request: Request, view: APIView) -> bool:  # noqa: ARG002 - DRF's signature
        identity_of(request)
        return True


def identity_of(request: Request) -> Identity:
    """Raises: Unauthorized where the request showed no credential."""
    user: object = request.user
    if not isinstance(user, Identity):
        raise Unauthorized("Unauthorized")
    return user
