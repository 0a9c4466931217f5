"""Bearer tokens: issue, recognise, revoke.

A token is 256 random bits as text. Only its SHA-256 is stored: with that much entropy a slow hash would protect
nothing and cost every request. `identify` runs once a request, so what it learns is remembered for a few seconds
(`REMEMBERED`); a revocation is felt at once in its own process and within that time in the others.

The tokens with which this API server calls the agents of nodes are signed instead, for one node, good for a minute.
Every process of an installation has the same signing key, so any of them can tell the agent (by TokenReview) that
another one's token is good. Nothing is stored, and a token opens nothing but the agent of the node that it names, with
the certificate that it was shown behind: whoever got it in the agent's place cannot use it.

Sessions are for the pages and mean nothing to the API, so no request to it needs CSRF protection. Nobody without a
token gets in, discovery included; only health and version answer anybody.

`kubectl --as` acts as somebody else: the request names that identity in its headers, and everything after
authentication takes place in its name. Only members of `system:masters` may.
Source: apiserver/pkg/endpoints/filters/impersonation.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.core import signing
from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from manciple.api.models import Token
from manciple.wire.errors import BadRequest, Forbidden, Unauthorized
from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity

#: `last_used` is written at most this often: a row written on every request would serialize all readers.
USE_RESOLUTION = timedelta(minutes=1)
#: Seconds for which a recognised token is not looked up again.
REMEMBERED = 5.0
#: Recognised tokens held in memory; beyond it the memory starts afresh.
MEMORY_LIMIT = 4096

_memory: dict[str, tuple[Identity, float]] = {}
_memory_lock = threading.Lock()


def issue(name: str, groups: Sequence[str], *, lifetime: timedelta | None = None) -> str:
    """A new token for `name`, shown once. `lifetime` None means until it is revoked."""
    token = secrets.token_urlsafe(32)
    now = timezone.now()
    Token.objects.create(
        name=name,
        groups=list(groups),
        digest=_digest(token),
        created=now,
        expires=now + lifetime if lifetime else None,
    )
    return token


def identify(token: str) -> Identity | None:
    """Whose token this is; None for one that is unknown, expired or revoked."""
    digest = _digest(token)
    return _remembered(digest) or _look_up(digest)


def remembered(token: str) -> Identity | None:
    """Whose token this is, as far as that is known without asking the database."""
    return _remembered(_digest(token))


def revoke(name: str, *, digest_prefix: str = "") -> int:
    """End `name`'s tokens (or the ones whose digest starts so); returns how many ended."""
    ended, _ = Token.objects.filter(name=name, digest__startswith=digest_prefix).delete()
    forget()
    return ended


def forget() -> None:
    """Look every token up again at its next use."""
    with _memory_lock:
        _memory.clear()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _remembered(digest: str) -> Identity | None:
    found = _memory.get(digest)
    return found[0] if found and found[1] > time.monotonic() else None


def _look_up(digest: str) -> Identity | None:
    now = timezone.now()
    row = Token.objects.filter(Q(expires=None) | Q(expires__gt=now), digest=digest).first()
    if row is None:
        return None
    _note_use(row, now)
    identity = Identity(row.name, tuple(dict.fromkeys((*row.groups, AUTHENTICATED))))
    if row.expires is None:
        _remember(digest, identity)
    return identity


def _remember(digest: str, identity: Identity) -> None:
    with _memory_lock:
        if len(_memory) >= MEMORY_LIMIT:
            _memory.clear()
        _memory[digest] = (identity, time.monotonic() + REMEMBERED)


def _note_use(row: Token, now: datetime) -> None:
    if row.last_used is None or now - row.last_used >= USE_RESOLUTION:
        Token.objects.filter(pk=row.pk).update(last_used=now)


# Tokens for the agents of nodes ---------------------------------------------------------------------------------------


#: Seconds for which a token is good, and may be remembered as good.
NODE_LIFETIME = 60
#: In whose name the API server comes.
API_SERVER = Identity("system:kube-apiserver", (AUTHENTICATED,))

_SALT = "manciple.api.tokens"


def audience_of(node: str, *, certificate: str) -> str:
    """The name under which the agent of `node` asks about tokens. certificate: the SHA-256 of its own."""
    return f"system:node:{node}:{certificate}"


def issue_for_node(node: str, *, certificate: str) -> str:
    """A token to show to the agent of `node` after it has shown `certificate` (its SHA-256)."""
    return signing.dumps(audience_of(node, certificate=certificate), salt=_SALT)


def audience(token: str) -> str | None:
    """For whom a token of ours is good; None for a token that is none, was changed, or is too old."""
    try:
        found: object = signing.loads(token, salt=_SALT, max_age=NODE_LIFETIME)
    except signing.BadSignature:
        return None
    return found if isinstance(found, str) else None


# Authentication -------------------------------------------------------------------------------------------------------


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
    identity = known or identify(token)
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
