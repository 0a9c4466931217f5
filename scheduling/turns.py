"""Locks among workers that share a PostgreSQL, for work that is better done by one of them at a time.

Advisory locks of the database's session: they end with the connection, so a worker that dies hands on what it held.
They are a courtesy, not a safeguard: what may be written is decided by each commit. Nobody waits without limit, and who
does not get a lock loses nothing: the holder is asked again, or the next periodic wake-up comes.

`turn` is for scheduling: two workers that decide at once would choose the same devices. On SQLite all workers are
threads of one process, which runs one scheduling worker, so everybody has it. `alone` is for singletons.
"""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import InterfaceError, OperationalError, transaction

from manciple.store import bulk

#: Any number that nobody else locks in this database.
KEY = 0x6D616E63
#: Seconds to wait for the scheduling turn; who does not get it in that time leaves it to the periodic run, which comes
#: every second.
PATIENCE = 1.0

_local: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


@contextmanager
def turn(*, patience: float = PATIENCE) -> Iterator[bool]:
    """Wait up to `patience` seconds until no other worker schedules. Yields whether that is so."""
    if not bulk.on_postgresql():
        yield True
        return
    with _advisory("turn", patience=patience) as ours:
        yield ours


@contextmanager
def alone(name: str) -> Iterator[bool]:
    """Yields whether nobody else is within `alone(name)` now; never waits."""
    if bulk.on_postgresql():
        with _advisory(name) as ours:
            yield ours
        return
    lock = _local[name]
    ours = lock.acquire(blocking=False)
    try:
        yield ours
    finally:
        if ours:
            lock.release()


@contextmanager
def _advisory(name: str, *, patience: float = 0.0) -> Iterator[bool]:
    key = [KEY, zlib.crc32(name.encode()) - 2**31]
    ours = bulk.fetch("SELECT pg_try_advisory_lock(%s, %s)", key)[0][0] or (patience > 0 and _wait(key, patience))
    try:
        yield ours
    finally:
        if ours:
            # A connection that is gone has handed it on already.
            with suppress(InterfaceError, OperationalError):
                bulk.execute("SELECT pg_advisory_unlock(%s, %s)", key)


def _wait(key: list[int], patience: float) -> bool:
    """The lock outlives the transaction, which is there for the time limit."""
    try:
        with transaction.atomic():
            bulk.execute("SELECT set_config('lock_timeout', %s, true)", [f"{patience * 1000:.0f}ms"])
            bulk.execute("SELECT pg_advisory_lock(%s, %s)", key)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") == "55P03":  # lock_not_available: the time is over
            return False
        raise
    return True
