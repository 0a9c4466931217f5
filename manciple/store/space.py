"""What writes may take of the database: its room, the budget of each namespace, and pruning of the log.

**Room.** The last `DATABASE_RESERVE` bytes are kept for deletions, pruning and the control plane's own work, as etcd's
NOSPACE alarm does: once less is left, creations and updates by anyone else are refused (507) until space is free again.
Nodes may still update what they have (their Leases, the status of their pods). The database is limited by
`DATABASE_BYTES`, and by the disk where it can be seen from here (SQLite's file; PostgreSQL behind a local socket, if
its role may read where its data is). PostgreSQL elsewhere has no limit unless one is configured. Space that pruning
freed counts as free although the files stay as large: SQLite's free pages, and PostgreSQL's TOAST table of the log
after a vacuum. Neither gives anything back to the disk, both write there first.

**Write budgets.** A token bucket of `WRITE_RATE` bytes per second, `WRITE_BURST` at most. Every creation and update is
charged with the size of its entry in the log, because that is what it costs: a patch of a few bytes stores the whole
document. Deletions are free, and administrators and the control plane are not limited. The buckets:

- a namespace: for all who write into it, except nodes
- a node: for all that its agent writes, in any namespace; the heartbeat is free
- a user: objects of cluster-wide kinds; a service account on several nodes (a driver) has one bucket on each

The buckets are rows of the database, shared by all API processes. A process takes tokens in portions (`PORTION`) inside
the transaction of the write, which holds the lock of the log: most writes touch no row. A transaction that is rolled
back keeps its portion in memory but not in the database, and a process that ends loses its own: either way the error is
one portion.

**Pruning.** The floor of the log rises, and what only readers below it could need is removed. An event above the floor
is never removed, so a reader at or above it misses nothing. Below it an event stays as long as it is some object's
latest, or was superseded only above the floor (a list that continues at an old revision needs it). Each step moves the
floor and removes what that sets free in one short transaction, so an interrupted step has not happened. The log is
bounded in time and entries by a controller, every few minutes, and in bytes (`LOG_BYTES`) by the writer whose commit
makes it too long (`keep_up`), in steps of its own, after the commit. So the database holds at most the objects as they
were at the floor, and `LOG_BYTES` more. When it runs short of room, the log is cut down first. The floor is one for all
namespaces: a watch that continues from below it is Expired, and no reader can skip an event.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection

from manciple.per_process import PerProcess
from manciple.store import sql
from manciple.telemetry import metrics
from manciple.wire.errors import InsufficientStorage, TooManyRequests
from manciple.wire.identity import CONTROL_PLANE, MASTERS, NODES, Identity

#: reason: "budget" (of bytes per second) or "space" (the database is full)
REFUSED = metrics.counter("manciple_writes_refused_total", "Creations and updates refused, by why.", "reason")

# The database's room --------------------------------------------------------------------------------------------------


#: Seconds for which a measurement is good enough for writes.
FRESH = 2.0
#: The part of the room at which the system warns.
NEARLY_FULL = 0.9
#: Bytes of SQLite's write-ahead log above which it is truncated: readers that follow closely on each other keep
#: SQLite from starting it again by itself.
LONG_WAL = 128 << 20
#: Seconds between two vacuums of a log that needs the room.
VACUUM_EVERY = 10.0
LEASES = "leases.coordination.k8s.io"
#: Bytes that one row of a TOAST table takes: four fit on a page.
_CHUNK = 2048


class DatabaseRoom(NamedTuple):
    """used: bytes of the database that hold something. capacity: how many it may hold; None where nothing limits it."""

    used: int
    capacity: int | None
    wal: int = 0  # bytes of SQLite's write-ahead log

    @property
    def reserve(self) -> int:
        """Bytes that are kept; a small disk keeps a quarter."""
        return min(settings.DATABASE_RESERVE, (self.capacity or 0) // 4)

    @property
    def limit(self) -> int | None:
        """Bytes that may be used before writes are refused."""
        return None if self.capacity is None else self.capacity - self.reserve

    @property
    def left(self) -> float:
        """Bytes until writes are refused; below 0, so much of the reserve is used."""
        return float("inf") if self.limit is None else self.limit - self.used

    @property
    def full(self) -> bool:
        return self.left < 0

    @property
    def nearly_full(self) -> bool:
        return self.fraction >= NEARLY_FULL

    @property
    def fraction(self) -> float:
        """The part of the limit that is used: 1.0 and more when writes are refused."""
        if self.limit is None:
            return 0.0
        return self.used / self.limit if self.limit else 1.0


class _LastMeasured:
    def __init__(self) -> None:
        self.full = False
        self.spare = float("inf")
        self.until = 0.0
        self.until_offset = 0
        self.vacuum_from = 0.0


_last = PerProcess(_LastMeasured)


def spare() -> float:
    """Bytes that the log may grow by, as of the last measurement; below 0, so many it should give back.

    As many as the reserve always stay free beside it, so that the log gives way before writes have to be refused.
    """
    return _last.value.spare


def note_end(end_offset: int) -> None:
    """The log ends there: much that was written since the last measurement makes it old."""
    known = _last.value
    if end_offset > known.until_offset:
        known.until, known.until_offset = 0.0, end_offset + settings.DATABASE_RESERVE // 16


def refresh() -> None:
    """Measure again if the last measurement is old. Before each transaction: it costs a look at the clock."""
    known = _last.value
    now = time.monotonic()
    if now >= known.until:
        known.until = now + FRESH
        if sql.on_postgresql() and not settings.DATABASE_BYTES and _data_directory() is None:
            return  # nothing limits it
        room = measure()
        known.full, known.spare = room.full, room.left - room.reserve


def measure() -> DatabaseRoom:
    if sql.on_postgresql():
        return _measure_postgresql()
    statement = (
        "SELECT page_count, freelist_count, page_size FROM pragma_page_count(), pragma_freelist_count(), "
        "pragma_page_size()"
    )
    pages, free, page = _ask(statement)
    path = Path(connection.settings_dict["NAME"])
    capacities = [settings.DATABASE_BYTES] if settings.DATABASE_BYTES else []
    wal = 0
    if path.exists():
        wal_file = path.with_name(f"{path.name}-wal")
        wal = wal_file.stat().st_size if wal_file.exists() else 0
        capacities.append(pages * page + _free_on_disk(path))
    return DatabaseRoom((pages - free) * page, min(capacities, default=None), wal)


def _ask(statement: str) -> tuple[Any, ...]:
    """By the driver: a measurement that happens to be due is not one of the queries of whatever is measured."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        row: tuple[Any, ...] = connection.connection.execute(statement).fetchone()
    return row


def _measure_postgresql() -> DatabaseRoom:
    # Rows of the TOAST table that are neither alive nor dead have left space behind. Without a vacuum since the
    # statistics began, nobody knows how many there are.
    statement = (
        "SELECT pg_database_size(current_database()), COALESCE((SELECT "  # noqa: S608 - constants only
        f"pg_relation_size(c.reltoastrelid) - (s.n_live_tup + s.n_dead_tup) * {_CHUNK} FROM pg_class c "
        "JOIN pg_stat_all_tables s ON s.relid = c.reltoastrelid WHERE c.oid = 'store_event'::regclass "
        "AND COALESCE(s.last_vacuum, s.last_autovacuum) IS NOT NULL), 0)"
    )
    size, free = _ask(statement)
    capacities = [settings.DATABASE_BYTES] if settings.DATABASE_BYTES else []
    directory = _data_directory()
    if directory is not None:
        capacities.append(int(size) + _free_on_disk(directory))
    return DatabaseRoom(int(size) - max(0, int(free)), min(capacities, default=None))


_directory = PerProcess[list[Path | None]](list)


def _data_directory() -> Path | None:
    """PostgreSQL's, where the server runs on this machine and says so."""
    host = connection.settings_dict["HOST"]
    if host and not host.startswith("/"):
        return None
    if not _directory.value:
        (told,) = _ask(
            "SELECT CASE WHEN pg_has_role('pg_read_all_settings', 'USAGE') THEN current_setting('data_directory') END"
        )
        _directory.value.append(Path(told) if told and Path(told).exists() else None)
    return _directory.value[0]


def _free_on_disk(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def reclaim() -> None:
    """Make reusable what was deleted, and bound SQLite's write-ahead log. Outside of transactions only."""
    if connection.in_atomic_block:
        return
    try:
        if sql.on_postgresql():
            if measure().nearly_full and time.monotonic() >= _last.value.vacuum_from:  # else autovacuum is soon enough
                sql.execute("VACUUM store_event")
                _last.value.vacuum_from = time.monotonic() + VACUUM_EVERY
        elif measure().wal > LONG_WAL:
            with sql.in_turn():
                patience = connection.settings_dict["OPTIONS"].get("timeout", 5)
                sql.fetch("PRAGMA busy_timeout = 1000")
                sql.fetch("PRAGMA wal_checkpoint(TRUNCATE)")
                sql.fetch(f"PRAGMA busy_timeout = {int(patience * 1000)}")
    finally:
        _last.value.until = 0.0


def warning(room: DatabaseRoom) -> str:
    """How full the database is, for anyone to read; "" while there is room."""
    if room.full:
        return "the database is full: only deletions and the control plane's own writes are accepted"
    if room.nearly_full:
        return f"{room.fraction:.0%} of the room for the database is used"
    return ""


# Write budgets --------------------------------------------------------------------------------------------------------


#: Bytes that a process takes from a bucket at once, but never more than a sixteenth of it.
PORTION = 1 << 20
#: A node's Lease of at most this many bytes is free: heartbeats must never fail.
HEARTBEAT = 8192
#: What a token bound to a node says of it.
_BOUND_TO = "authentication.kubernetes.io/node-name"
#: Characters of a user's name in a key; longer ones are hashed.
LONGEST_NAME = 253
#: Portions that this process holds: after so many buckets it lets go of all.
MOST_BUCKETS = 10_000

#: bucket -> bytes that this process has taken and not yet written. Changed only under the lock of the log.
_taken = PerProcess(dict[str, int])


def charge(identity: Identity, resource: str, namespace: str, size: int, *, new: bool, now: datetime) -> None:
    """Charge a write of `size` bytes, for which there must be room. namespace: "" for cluster-wide kinds. new: it
    creates an object.

    Raises: InsufficientStorage, TooManyRequests.
    """
    if identity.name.startswith(CONTROL_PLANE):
        return
    is_node = NODES in identity.groups
    if _last.value.full and not (is_node and (not new or resource == LEASES)):
        REFUSED["space"].inc()
        raise InsufficientStorage()
    if MASTERS in identity.groups or not settings.WRITE_RATE:
        return
    bucket = _bucket(identity, namespace)
    if resource == LEASES and is_node and size <= HEARTBEAT:
        return
    taken = _taken.value
    held = taken.get(bucket, 0)
    if held < size:
        if len(taken) >= MOST_BUCKETS:
            taken.clear()
            held = 0
        held += _take(bucket, size - held, now.timestamp())
    taken[bucket] = held - size


def _bucket(identity: Identity, namespace: str) -> str:
    if NODES not in identity.groups:
        if namespace:
            return f"namespace {namespace}"
        node = "".join(f" on node {name}" for name in identity.extras(_BOUND_TO))
        name = f"{identity.name}{node}"
    else:
        name = identity.name
    if len(name) > LONGEST_NAME:
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"user {name}"


def _take(bucket: str, needed: int, now: float) -> int:
    """Take at least `needed` bytes out of a bucket; returns how many. Raises: TooManyRequests."""
    rate, burst = settings.WRITE_RATE, settings.WRITE_BURST
    found = sql.fetch("SELECT tokens, refilled_at FROM store_writebudget WHERE key = %s", [bucket])
    tokens = burst
    if found:
        before, since = found[0]
        tokens = min(burst, before + int(max(0.0, now - since) * rate))
        now = max(now, since)  # the clock of another process may be ahead
    missing = min(needed, burst) - tokens  # a write that is larger than the bucket goes once the bucket is full
    if missing > 0:
        REFUSED["budget"].inc()
        seconds = max(1, math.ceil(missing / rate))
        raise TooManyRequests(
            f"{bucket} writes more bytes than its budget allows ({rate:,} bytes per second after {burst:,} at once; "
            f"every update counts with the whole object): retry after {seconds} s",
            details={"retryAfterSeconds": seconds},
        )
    taken = max(needed, min(PORTION, burst // 16, tokens))
    sql.execute(
        "INSERT INTO store_writebudget (key, tokens, refilled_at) VALUES (%s, %s, %s) "
        "ON CONFLICT (key) DO UPDATE SET tokens = excluded.tokens, refilled_at = excluded.refilled_at",
        [bucket, tokens - taken, now],
    )
    return taken


def drop_full(now: datetime) -> int:
    """Delete the rows of buckets that are full again; returns how many."""
    if not settings.WRITE_RATE:
        return sql.execute("DELETE FROM store_writebudget")
    statement = "DELETE FROM store_writebudget WHERE tokens + (%s - refilled_at) * %s >= %s"
    return sql.execute(statement, [now.timestamp(), settings.WRITE_RATE, settings.WRITE_BURST])


# Pruning --------------------------------------------------------------------------------------------------------------


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
    return int(min(settings.LOG_BYTES, max(SHORTEST, counter.log_bytes + spare())))


_keeping_up = threading.Lock()


def keep_up(counter: sql.RevisionCounter) -> None:
    """Prune if the log is too long. After each commit, with the counter as it is then.

    One step below the limit, so that it is not due after every commit, and short when it is: writers of this process
    wait for it.
    """
    note_end(counter.end_offset)
    if counter.log_bytes <= settings.LOG_BYTES and spare() >= 0:
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
    reclaim()
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
    with sql.locked_counter() as locked:
        counter = locked.counter
        if counter.floor >= target:
            return None
        following = min(counter.floor + STEP, target)
        end = _offset_at(counter, following)
        if end - counter.floor_offset > STEP_BYTES:
            following = min(following, _first_ending_at(counter.floor_offset + STEP_BYTES, counter))
            end = _offset_at(counter, following)
        sql.move_floor(following, offset=end)
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
