"""How every process learns at once that a credential is worth nothing any more, without asking at each request.

The database has one counter. Whatever revokes, ends a session or changes an account counts it up in its own transaction
(`advance`). A process relies on what it read of the counter for `WINDOW` seconds, from the moment at which it asked,
and whoever has revoked waits as long (`settle`). So when a revocation returns, no process lets the credential in,
whether or not any message reached it; and a process asks at most 20 times a second, however many requests it serves,
and not at all where none comes.

What is remembered of a credential is remembered with the count at which it was looked up, and holds as long as that is
the current one.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from django.db import connection
from django.db.models import F

from manciple.access.models import CredentialEpoch
from manciple.per_process import PerProcess

#: Seconds for which a process relies on what it read.
WINDOW = 0.05

_READ = f'SELECT "current" FROM "{CredentialEpoch._meta.db_table}" WHERE "id" = 1'  # noqa: S608 - no word of others


class _LastRead(NamedTuple):
    """asked: when, by the monotonic clock."""

    epoch: int = -1
    asked: float = float("-inf")


_last = PerProcess(_LastRead)


def known() -> int | None:
    """The current count, as far as that is known without the database."""
    last = _last()
    return last.epoch if time.monotonic() - last.asked < WINDOW else None


def current() -> int:
    """The current count."""
    count = known()
    if count is not None:
        return count
    asked = time.monotonic()
    count = _read()
    if asked > _last().asked:
        _last.set(_LastRead(count, asked))
    return count


def _read() -> int:
    """Asked at every lone request, so without the ORM: building the query takes longer than answering it."""
    with connection.cursor() as cursor:
        cursor.execute(_READ)
        row = cursor.fetchone()
    return int(row[0]) if row is not None else 0


def advance() -> None:
    """Count up, in the transaction of the revocation where there is one. After its commit: `settle`."""
    row = CredentialEpoch.objects.filter(pk=1)
    if not row.update(current=F("current") + 1):
        CredentialEpoch.objects.get_or_create(pk=1)
        row.update(current=F("current") + 1)
    _last.reset()


def settle() -> None:
    """Wait until no process relies on what was so before the commit."""
    _last.reset()
    time.sleep(WINDOW)
