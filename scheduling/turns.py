"""Scheduling workers take turns where they share a PostgreSQL: two that decide at once would choose the same devices.

An advisory lock of the database's session: it ends with the connection, so a worker that dies hands the turn on. It is
a courtesy, not a safeguard: what a commit may write is decided by the commit. On SQLite all workers are threads of one
process, which runs one scheduling worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import InterfaceError, OperationalError

from manciple.store import bulk

#: Any number that nobody else locks in this database.
KEY = 0x6D616E63


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other worker schedules."""
    if not bulk.on_postgresql():
        yield
        return
    bulk.execute("SELECT pg_advisory_lock(%s)", [KEY])
    try:
        yield
    finally:
        # A connection that is gone has handed the turn on already.
        with suppress(InterfaceError, OperationalError):
            bulk.execute("SELECT pg_advisory_unlock(%s)", [KEY])
