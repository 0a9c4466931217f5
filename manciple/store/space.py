"""How much room the database has left, and what may still be written when there is little.

The last `DATABASE_RESERVE` bytes are kept for deletions, pruning and the control plane's own work, as etcd's NOSPACE
alarm does: once less is left, creations and updates by anyone else are refused (507) until space is free again. Nodes
may still update what they have (their Leases, the status of their pods).

What limits the database: `DATABASE_BYTES`, and the disk where it can be seen from here (SQLite's file; PostgreSQL
behind a local socket, if its role may read where its data is). PostgreSQL elsewhere has no limit unless one is
configured.

Space that pruning freed counts as free although the files stay as large: SQLite's free pages, and PostgreSQL's TOAST
table of the log after a vacuum. Neither gives anything back to the disk, both write there first.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection

from manciple.per_process import PerProcess
from manciple.store import log_metrics, persistence, sql
from manciple.wire.errors import InsufficientStorage
from manciple.wire.identity import NODES, Identity, is_control_plane

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


def check(identity: Identity, resource: str, *, new: bool) -> None:
    """Whether there is room for a write. new: a creation. Raises: InsufficientStorage."""
    if not _last().full or is_control_plane(identity.name):
        return
    if NODES in identity.groups and (not new or resource == LEASES):
        return
    log_metrics.REFUSED["space"].inc()
    raise InsufficientStorage()


def spare() -> float:
    """Bytes that the log may grow by, as of the last measurement; below 0, so many it should give back.

    As many as the reserve always stay free beside it, so that the log gives way before writes have to be refused.
    """
    return _last().spare


def note_end(end_offset: int) -> None:
    """The log ends there: much that was written since the last measurement makes it old."""
    known = _last()
    if end_offset > known.until_offset:
        known.until, known.until_offset = 0.0, end_offset + settings.DATABASE_RESERVE // 16


def refresh() -> None:
    """Measure again if the last measurement is old. Before each transaction: it costs a look at the clock."""
    known = _last()
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
    if not _directory():
        (told,) = _ask(
            "SELECT CASE WHEN pg_has_role('pg_read_all_settings', 'USAGE') THEN current_setting('data_directory') END"
        )
        _directory().append(Path(told) if told and Path(told).exists() else None)
    return _directory()[0]


def _free_on_disk(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def reclaim() -> None:
    """Make reusable what was deleted, and bound SQLite's write-ahead log. Outside of transactions only."""
    if connection.in_atomic_block:
        return
    try:
        if sql.on_postgresql():
            if measure().nearly_full and time.monotonic() >= _last().vacuum_from:  # else autovacuum is soon enough
                sql.execute("VACUUM store_event")
                _last().vacuum_from = time.monotonic() + VACUUM_EVERY
        elif measure().wal > LONG_WAL:
            with persistence.in_turn():
                patience = connection.settings_dict["OPTIONS"].get("timeout", 5)
                sql.fetch("PRAGMA busy_timeout = 1000")
                sql.fetch("PRAGMA wal_checkpoint(TRUNCATE)")
                sql.fetch(f"PRAGMA busy_timeout = {int(patience * 1000)}")
    finally:
        _last().until = 0.0


def warning(room: DatabaseRoom) -> str:
    """How full the database is, for anyone to read; "" while there is room."""
    if room.full:
        return "the database is full: only deletions and the control plane's own writes are accepted"
    if room.nearly_full:
        return f"{room.fraction:.0%} of the room for the database is used"
    return ""
