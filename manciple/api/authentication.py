"""Bearer tokens for the REST API.

Sessions are for the pages and mean nothing here, so no request to the API needs CSRF protection. Nobody without a
token gets in, discovery included; only health and version answer anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from manciple.api import impersonation, tokens
from manciple.api.threads import IDENTITY
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import Identity

if TYPE_CHECKING:  # DRF's views load the authentication classes of the settings: this module
    from rest_framework.views import APIView

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
    return impersonation.acting(identity, headers)


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
