"""Pruning the event log: the floor rises, and what only readers below it could need is removed.

An event above the floor is never removed, so whoever reads from the floor or above misses nothing. Below it an event
stays as long as it is some object's latest, or was superseded only above the floor (a list that continues at an old
revision needs it). Each step moves the floor and removes what that sets free in one short transaction, so a step that
was interrupted has not happened.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.db import connection

from manciple.store import persistence, sql

#: How long events stay readable, and how many at most.
RETENTION = timedelta(hours=1)
KEEP = 1_000_000
#: Revisions in one transaction.
STEP = 1000

#: What somebody else makes of the log must be made before its entries go: returns the revision up to which it is.
Reader = Callable[[], int]

_readers: dict[Reader, None] = {}


def register_reader(read: Reader) -> None:
    """Prune nothing that `read`, which is asked before, has not read."""
    _readers[read] = None


_SUPERSEDED = (
    "DELETE FROM store_event WHERE revision IN (SELECT n.previous_revision FROM store_event n "
    "WHERE n.revision > %s AND n.revision <= %s AND n.previous_revision IS NOT NULL)"
)
_DELETIONS = "DELETE FROM store_event WHERE revision > %s AND revision <= %s AND type = 'DELETED'"


def prune(*, older_than: timedelta = RETENTION, keep: int = KEEP, now: datetime | None = None) -> int:
    """Raise the floor above events older than `older_than`, and above all but the newest `keep`.

    Returns the number of events removed. Readers that had not come past the new floor get Expired.
    """
    target = _target(cutoff=(now or datetime.now(UTC)) - older_than, keep=keep)
    removed = 0
    while (step := _prune_step(target)) is not None:
        removed += step
    return removed


def _target(*, cutoff: datetime, keep: int) -> int:
    """The newest revision that may fall below the floor."""
    current, floor, _ = sql.counter()
    statement = "SELECT revision FROM store_event WHERE revision > %s AND created_at >= %s ORDER BY revision LIMIT 1"
    found = sql.fetch(statement, [floor, connection.ops.adapt_datetimefield_value(cutoff)])
    by_age = found[0][0] - 1 if found else current
    return min([max(by_age, current - keep), *(read() for read in _readers)])


def _prune_step(target: int) -> int | None:
    """Returns the number of events removed, or None when the floor stands at `target` already."""
    with persistence.locked_counter() as locked:
        if locked.counter.floor >= target:
            return None
        following = min(locked.counter.floor + STEP, target)
        persistence.move_floor(following)
        step = [locked.counter.floor, following]
        return sql.execute(_SUPERSEDED, step) + sql.execute(_DELETIONS, step)
