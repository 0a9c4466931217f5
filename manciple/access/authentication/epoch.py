"""The credential epoch: how every process learns of a revocation, without a query at each request.

The database has one counter. Whatever revokes a credential, ends a session or changes an account increments it in its
own transaction (`advance`). A process relies on what it read for `WINDOW` seconds, and whoever revokes waits as long
(`settle`). So when a revocation returns, no process accepts the credential, whether or not any message reached it; and
a process reads the counter at most 20 times a second, however many requests it serves, and never without requests.

What a process remembers of a credential is valid for the epoch in which it was looked up.

Streams and sockets stay open, so nothing of theirs reads the counter at a request:

    with Rounds.of_running_loop().asking(ask):      # ask() is called in this event loop, and must not block
        ...

One look at the epoch each second, while anything is open, serves everything that is open in one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

from django.db import Error, close_old_connections, connection
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
    last = _last.value
    return last.epoch if time.monotonic() - last.asked < WINDOW else None


def current() -> int:
    """The current count."""
    count = known()
    if count is not None:
        return count
    asked = time.monotonic()
    count = _read()
    if asked > _last.value.asked:
        _last.value = _LastRead(count, asked)
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


# Open streams and sockets ---------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

#: Seconds between two looks at the count.
LOOK = 1.0
_reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rounds")

Ask = Callable[[], None]


class Rounds:
    """Of one event loop, and used from it alone."""

    _of_loops: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds]] = weakref.WeakKeyDictionary()
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._open: set[Ask] = set()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of_running_loop(cls) -> Rounds:
        loop = asyncio.get_running_loop()
        with cls._guard:
            return cls._of_loops.setdefault(loop, cls())

    @contextmanager
    def asking(self, ask: Ask) -> Iterator[None]:
        """Have `ask` called whenever something has changed, and once soon after the first has begun."""
        self.join(ask)
        try:
            yield
        finally:
            self.leave(ask)

    def join(self, ask: Ask) -> None:
        self._open.add(ask)
        if self._task is None:
            self._task = asyncio.create_task(self._go())

    def leave(self, ask: Ask) -> None:
        self._open.discard(ask)
        if not self._open and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _go(self) -> None:
        known = -1
        while True:
            try:
                count = await asyncio.get_running_loop().run_in_executor(_reader, _read_count)
            except Error as error:
                log.warning("cannot check sessions and credentials for changes: %s", error)
                count = known
            if count != known:
                known = count
                for ask in tuple(self._open):
                    ask()
            await asyncio.sleep(LOOK)


def _read_count() -> int:
    close_old_connections()
    return current()
