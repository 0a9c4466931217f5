"""Bearer tokens of users, nodes and drivers: issue, recognise, revoke.

A token is 256 random bits as text. Only its SHA-256 is stored: with that much entropy a slow hash would protect
nothing and cost every request. `identify` runs once a request, so what it learns is remembered for a few seconds
(`REMEMBERED`); a revocation is felt at once in its own process and within that time in the others.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from manciple.access.authentication.chain import API_AUDIENCE, Authenticated
from manciple.access.models import Token
from manciple.wire.identity import AUTHENTICATED, Identity

#: `last_used` is written at most this often: a row written on every request would serialize all readers.
USE_RESOLUTION = timedelta(minutes=1)
#: Seconds for which a recognised token is not looked up again.
REMEMBERED = 5.0
#: Recognised tokens held in memory; beyond it the memory starts afresh.
MEMORY_LIMIT = 4096

_memory: dict[str, tuple[Identity, float]] = {}
_memory_lock = threading.Lock()


class IssuedTokens:
    """The authenticator of these tokens."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:  # noqa: ARG002
        identity = identify(token) if API_AUDIENCE in audiences else None
        return Authenticated(identity) if identity else None

    def remembered(self, token: str) -> Identity | None:
        return _remembered(_digest(token))


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
