"""Pruning the event log: the floor rises, and what only readers below it could need is removed.

An event above the floor is never removed, so whoever reads from the floor or above misses nothing. Below it an event
stays as long as it is some object's latest, or was superseded only above the floor (a list that continues at an old
revision needs it). Each step moves the floor and removes what that sets free in one short transaction, so a step that
was interrupted has not happened.

The log is bounded in time, in entries and in bytes (`LOG_BYTES`). Time and entries are a controller's business, every
few minutes. Bytes cannot wait for it: whoever commits a write that makes the log too long prunes it at once
(`keep_up`), in steps of its own, after the commit. So what the database holds is at most the objects as they were at
the floor, and `LOG_BYTES` more. When the database runs short of room, the log is cut down first.

The floor is one for all namespaces: a watch that goes on from below it is Expired, and nobody can skip an event. That
one namespace does not cost the others their hour is what `write_budgets` are for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection

from manciple.store import persistence, space, sql

log = logging.getLogger(__name__)

#: How long events stay readable, and how many at most.
RETENTION = timedelta(hours=1)
KEEP = 1_000_000
#: Revisions in one transaction, and bytes of log.
STEP = 1000
STEP_BYTES = 8 << 20
#: Bytes of log that stay however little room there is: thousands of small entries.
SHORTEST = 4 << 20

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


def prune(
    *,
    older_than: timedelta = RETENTION,
    keep: int = KEEP,
    keep_bytes: int | None = None,
    now: datetime | None = None,
) -> int:
    """Raise the floor above events older than `older_than`, above all but the newest `keep`, and above all but the
    newest `keep_bytes` bytes (None: what the settings and the room allow).

    Returns the number of events removed. Readers that had not come past the new floor get Expired.
    """
    counter = sql.counter()
    most = byte_limit(counter) if keep_bytes is None else keep_bytes
    by_age = _newest_before((now or datetime.now(UTC)) - older_than, counter)
    by_bytes = _first_ending_at(counter.end_offset - most, counter) if counter.log_bytes > most else 0
    return _raise_floor(max(by_age, counter.current - keep, by_bytes))


def byte_limit(counter: sql.RevisionCounter) -> int:
    """How many bytes of log may stay: it shrinks before writes have to be refused because the disk is full."""
    return int(min(settings.LOG_BYTES, max(SHORTEST, counter.log_bytes + space.spare())))


_keeping_up = threading.Lock()


def keep_up(counter: sql.RevisionCounter) -> None:
    """Prune if the log is too long. After each commit, with the counter as it is then.

    One step below the limit, so that it is not due after every commit, and short when it is: writers of this process
    wait for it.
    """
    space.note_end(counter.end_offset)
    if counter.log_bytes <= settings.LOG_BYTES and space.spare() >= 0:
        return
    most = byte_limit(counter)
    if counter.log_bytes <= most or connection.in_atomic_block or not _keeping_up.acquire(blocking=False):
        return
    try:
        counter = sql.counter()
        kept = most - min(most // 8, STEP_BYTES)
        _raise_floor(_first_ending_at(counter.end_offset - kept, counter))
    except Exception:  # the write that came before is done, and must not seem to have failed
        log.exception("could not prune the log, which has %d bytes", counter.log_bytes)
    finally:
        _keeping_up.release()


def _raise_floor(target: int) -> int:
    """Returns the number of events removed."""
    target = min([target, *(read() for read in _readers)])
    removed = 0
    while (step := _prune_step(target)) is not None:
        removed += step
    space.reclaim()
    return removed


def _newest_before(cutoff: datetime, counter: sql.RevisionCounter) -> int:
    """The newest revision above the floor that was written before `cutoff`."""
    statement = "SELECT revision FROM store_event WHERE revision > %s AND created_at >= %s ORDER BY revision LIMIT 1"
    found = sql.fetch(statement, [counter.floor, connection.ops.adapt_datetimefield_value(cutoff)])
    return found[0][0] - 1 if found else counter.current


def _first_ending_at(offset: int, counter: sql.RevisionCounter) -> int:
    """The first revision above the floor that ends at `offset` or behind. By bisection: offsets have no index."""
    low, high = counter.floor, counter.current
    first = high
    while low + 1 < high:
        middle = (low + high) // 2
        # Entries without an offset come from a process of an earlier version, during an upgrade.
        found = sql.fetch(
            "SELECT revision, end_offset FROM store_event WHERE revision >= %s AND revision <= %s AND end_offset > 0 "
            "ORDER BY revision LIMIT 1",
            [middle, high],
        )
        if found and found[0][1] < offset:
            low = found[0][0]
        else:
            first, high = found[0][0] if found else first, middle
    return int(first)


def _prune_step(target: int) -> int | None:
    """Returns the number of events removed, or None when the floor stands at `target` already."""
    with persistence.locked_counter() as locked:
        counter = locked.counter
        if counter.floor >= target:
            return None
        following = min(counter.floor + STEP, target)
        end = _offset_at(counter, following)
        if end - counter.floor_offset > STEP_BYTES:
            following = min(following, _first_ending_at(counter.floor_offset + STEP_BYTES, counter))
            end = _offset_at(counter, following)
        persistence.move_floor(following, offset=end)
        step = [counter.floor, following]
        return sql.execute(_SUPERSEDED, step) + sql.execute(_DELETIONS, step)


def _offset_at(counter: sql.RevisionCounter, revision: int) -> int:
    """Where the entry at a revision above the floor ends, or the last entry before it."""
    found = sql.fetch(
        "SELECT end_offset FROM store_event WHERE revision > %s AND revision <= %s AND end_offset > 0 "
        "ORDER BY revision DESC LIMIT 1",
        [counter.floor, revision],
    )
    return int(found[0][0]) if found else counter.floor_offset
