"""Bearer tokens for the REST API.

Sessions are for the pages and mean nothing here, so no request to the API needs CSRF protection. Nobody without a
token gets in, discovery included; only health and version answer anybody.

`kubectl --as` acts as somebody else: the request names that identity in its headers, and everything after
authentication takes place in its name. Only members of `system:masters` may.
Source: apiserver/pkg/endpoints/filters/impersonation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from manciple.api import tokens
from manciple.wire.errors import BadRequest, Forbidden, Unauthorized
from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity

# Acting as somebody else ----------------------------------------------------------------------------------------------


USER, GROUP = "impersonate-user", "impersonate-group"


def acting(identity: Identity, headers: Mapping[str, str]) -> Identity:
    """In whose name `identity` makes a request. headers: names in lower case or in any; repeated ones joined by commas.

    Raises: Forbidden for whoever may not act as others; BadRequest for groups without a user.
    """
    user = headers.get(USER, "")
    groups = tuple(group for text in headers.get(GROUP, "").split(",") if (group := text.strip()))
    if not user:
        if groups:
            raise BadRequest(f"requested groups {', '.join(groups)} without impersonating a user")
        return identity
    if MASTERS not in identity.groups:
        raise Forbidden(
            f'users "{user}" is forbidden: User "{identity.name}" cannot impersonate resource "users" in API group '
            f'"" at the cluster scope',
            details={"name": user, "kind": "users"},
        )
    return Identity(user, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


# Bearer tokens --------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:  # DRF's views load the authentication classes of the settings: this module
    from rest_framework.views import APIView

#: Where scope and environ carry the identity of a request whose token was recognised before its body was read.
IDENTITY = "manciple.identity"
CHALLENGE = 'Bearer realm="manciple"'


def bearer(authorization: str) -> str:
    """The token of an Authorization header; "" where it has none, or is of another scheme."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def identify_headers(headers: Mapping[str, str], *, known: Identity | None = None) -> Identity | None:
    """In whose name this request is made; None where there is no Authorization header, or one of another scheme.

    headers: by names in lower case, or a mapping that does not mind. known: whose token it is, where that was asked
    before the request got here.
    Raises: Unauthorized for a bearer token that nobody holds; Forbidden, BadRequest (see `impersonation`).
    """
    token = bearer(headers.get("authorization", ""))
    if not token:
        return None
    identity = known or tokens.identify(token)
    if identity is None:
        raise Unauthorized("Unauthorized")
    return acting(identity, headers)


class BearerToken(BaseAuthentication):
    """`Authorization: Bearer TOKEN` -> `request.user` is an Identity."""

    def authenticate(self, request: Request) -> tuple[Identity, None] | None:
        identity = identify_headers(request.headers, known=request.META.get(IDENTITY))
        return (identity, None) if identity else None

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        return CHALLENGE


class KnownIdentity(BasePermission):
    """Lets in whoever showed a token."""

    def has_permission(self, request: Request, view: APIView) -> bool:  # noqa: ARG002 - DRF's signature
        identity_of(request)
        return True


def identity_of(request: Request) -> Identity:
    """Raises: Unauthorized where the request showed no token."""
    user: object = request.user
    if not isinstance(user, Identity):
        raise Unauthorized("Unauthorized")
    return user
