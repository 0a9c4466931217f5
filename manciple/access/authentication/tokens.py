"""Bearer tokens of people, nodes and drivers: issue, recognise, revoke.

    mcp_ + 40 random characters + 6 of a checksum

The beginning is what scanners of repositories and logs look for, and the checksum tells them (and us, without asking
the database) a token from what only looks like one. Only the SHA-256 is stored: with 238 random bits a slow hash would
protect nothing and cost every request. A person's token opens what the person may do at that moment; that of a machine
has groups of its own.

`identify` runs once a request, so what it learns is remembered while no credential is revoked (see `epoch`) and the
token lasts. A revocation holds in every process once `revoke` returns. When a token was used last, and from where, is
written for all of them together, once a minute: a row written at each request would serialize all readers.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import string
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import Error, connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from manciple.access.authentication import epoch
from manciple.access.authentication.chain import API_AUDIENCE, Authenticated
from manciple.access.models import Token
from manciple.access.people import groups_of_user, is_closed, refuse_closed
from manciple.per_process import PerProcess
from manciple.wire.identity import AUTHENTICATED, Identity

log = logging.getLogger(__name__)

# The text of a token --------------------------------------------------------------------------------------------------


PREFIX = "mcp_"
_RANDOM, _CHECK, _SHOWN = 40, 6, 8
_ALPHABET = string.digits + string.ascii_letters


def _new_text() -> str:
    drawn = PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    return drawn + _checksum(drawn)


def _checksum(drawn: str) -> str:
    number, digits = zlib.crc32(drawn.encode()), ""
    while len(digits) < _CHECK:
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def may_be_ours(token: str) -> bool:
    """Whether this can be one of these tokens: without the prefix it may be from before there was one."""
    if token.startswith(PREFIX):
        return secrets.compare_digest(_checksum(token[:-_CHECK]).encode(), token[-_CHECK:].encode())
    return "." not in token and ":" not in token


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


# Issuing and revoking -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What a token is for, in its owner's words."""

    title: str = ""
    description: str = ""


def issue(
    name: str,
    groups: Sequence[str],
    *,
    lifetime: timedelta | None = None,
    purpose: Purpose | None = None,
    creator: str = "",
) -> str:
    """A new token for a machine called `name`, shown once. `lifetime` None means until it is revoked.

    Raises: AccountClosed where a closed account has that name.
    """
    text, _row = _make(name, lifetime=lifetime, purpose=purpose, creator=creator, groups=list(groups))
    return text


def issue_for_person(
    person: Any, *, lifetime: timedelta | None, purpose: Purpose | None = None, creator: str = ""
) -> tuple[str, Token]:
    """A new token for a person (a user of Django's): its text, shown once, and what is kept of it.

    Raises: AccountClosed.
    """
    return _make(person.get_username(), lifetime=lifetime, purpose=purpose, creator=creator, person=person)


def _make(
    name: str, *, lifetime: timedelta | None, purpose: Purpose | None, creator: str, **whose: Any
) -> tuple[str, Token]:
    refuse_closed(name)
    text, now, purpose = _new_text(), timezone.now(), purpose or Purpose()
    row = Token.objects.create(
        name=name,
        title=purpose.title,
        description=purpose.description,
        hint=text[: len(PREFIX) + _SHOWN],
        digest=digest_of(text),
        created=now,
        creator=creator or name,
        expires=now + lifetime if lifetime else None,
        **whose,
    )
    return text, row


class LifetimeRefused(Exception):
    """What was asked for is no lifetime, or longer than tokens may live here. Its text is for who asked."""


def lifetime_of(days: float | None) -> timedelta | None:
    """How long a token may live that is asked for so many days; None: one without an end. Raises: LifetimeRefused."""
    longest = settings.TOKEN_MAX_DAYS
    if days is None:
        if longest:
            raise LifetimeRefused(f"Tokens must expire here, after at most {longest:g} days.")
        return None
    if not 0 < days <= (longest or days):
        raise LifetimeRefused(f"The lifetime of a token must be more than 0 and at most {longest:g} days.")
    return timedelta(days=days)


def revoke(name: str, *, digest_prefix: str = "") -> int:
    """End `name`'s tokens (or the ones whose digest starts so); returns how many ended, in every process."""
    return revoke_all(Token.objects.filter(name=name, digest__startswith=digest_prefix))


def revoke_all(tokens: QuerySet[Token]) -> int:
    """End these tokens; returns how many ended, in every process."""
    with transaction.atomic():
        ended, _ = tokens.delete()
        if ended:
            epoch.advance()
    if ended:
        epoch.settle()
    return ended


def of_person(person: Any) -> QuerySet[Token]:
    """A person's tokens, and those that were issued to their name with groups of their own."""
    return Token.objects.filter(Q(person=person) | Q(person=None, name=person.get_username()))


def named(name: str) -> QuerySet[Token]:
    """Those that were issued to a name with groups of their own, and have not expired."""
    return live().filter(person=None, name=name)


def live() -> QuerySet[Token]:
    """The tokens that have not expired."""
    return Token.objects.filter(Q(expires=None) | Q(expires__gt=timezone.now()))


# Recognising ----------------------------------------------------------------------------------------------------------


#: Recognised tokens held in memory; beyond it the memory starts afresh.
MEMORY_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class _Recognised:
    """epoch: at which it was looked up; expires: in seconds since 1970."""

    identity: Identity
    epoch: int
    expires: float
    row: int

    def holds(self, current: int | None) -> bool:
        return self.epoch == current and time.time() < self.expires


_cache = PerProcess(dict[str, _Recognised])


class IssuedTokens:
    """The authenticator of these tokens."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:
        identity = identify(token, address=address) if API_AUDIENCE in audiences else None
        return Authenticated(identity) if identity else None

    def remembered(self, token: str) -> Identity | None:
        found = _cache().get(digest_of(token))
        return found.identity if found and found.holds(epoch.known()) else None


def identify(token: str, *, address: str = "") -> Identity | None:
    """Whose token this is; None for one that is unknown, expired or revoked. address: from where it is shown."""
    if not may_be_ours(token):
        return None
    digest, current = digest_of(token), epoch.current()
    found = _cache().get(digest)
    if found is None or not found.holds(current):
        found = _look_up(digest, current)
    if found is None:
        return None
    _uses().note(found.row, address)
    return found.identity


def _look_up(digest: str, current: int) -> _Recognised | None:
    row = live().select_related("person").filter(digest=digest).first()
    groups = _groups(row) if row else None
    if row is None or groups is None:
        return None
    expires = row.expires.timestamp() if row.expires else float("inf")
    name = row.person.get_username() if row.person else row.name  # an account may have been renamed
    found = _Recognised(Identity(name, groups), current, expires, row.pk)
    cache = _cache()
    if len(cache) >= MEMORY_LIMIT:
        cache.clear()
    cache[digest] = found
    return found


def _groups(row: Token) -> tuple[str, ...] | None:
    """None where the person may no longer sign in, or the account of that name is closed."""
    if row.person is None:
        return None if is_closed(row.name) else tuple(dict.fromkeys((*row.groups, AUTHENTICATED)))
    return groups_of_user(row.person) if row.person.is_active else None


# Who was last here, and from where ------------------------------------------------------------------------------------


#: How old `last_used` may be.
USE_RESOLUTION = timedelta(minutes=1)


class _Uses:
    """Uses that are not written yet: the row of a token -> (when, from where)."""

    def __init__(self) -> None:
        self._noted: dict[int, tuple[datetime, str]] = {}
        self._written: dict[int, float] = {}
        self._guard = threading.Lock()

    def note(self, row: int, address: str) -> None:
        """Also writes, where this token's use is older than what is told of it may be."""
        clock, resolution = time.monotonic(), USE_RESOLUTION.total_seconds()
        with self._guard:
            self._noted[row] = timezone.now(), address
            if clock - self._written.get(row, float("-inf")) < resolution:
                return
            noted, self._noted = self._noted, {}
            self._written = {one: at for one, at in self._written.items() if clock - at < resolution}
            self._written.update(dict.fromkeys(noted, clock))
        _write_uses(noted)


_uses = PerProcess(_Uses)


def _write_uses(noted: Mapping[int, tuple[datetime, str]]) -> None:
    """What is lost here costs nobody more than a date."""
    table = connection.ops.quote_name(Token._meta.db_table)
    statement = f"UPDATE {table} SET last_used = %s, last_address = %s WHERE id = %s"  # noqa: S608 - our own table
    adapted = connection.ops.adapt_datetimefield_value
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(statement, [(adapted(at), address, row) for row, (at, address) in noted.items()])
    except Error as error:
        log.warning("could not record the last use of tokens: %s", error)
