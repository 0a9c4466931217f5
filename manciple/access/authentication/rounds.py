"""Tells what stays open (a page's socket, a watch) that credentials, sessions or accounts have changed since.

    with Rounds.of_running_loop().asking(ask):      # ask() is called in this event loop, and must not block
        ...

They stand in tables that no log tells of; whatever ends or changes one counts the epoch up (see `epoch`). One look at
that count each second, while anything is open, serves everything that is open in one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ClassVar

from django.db import Error, close_old_connections

from manciple.access.authentication import epoch

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
                count = await asyncio.get_running_loop().run_in_executor(_reader, _read)
            except Error as error:
                log.warning("cannot check sessions and credentials for changes: %s", error)
                count = known
            if count != known:
                known = count
                for ask in tuple(self._open):
                    ask()
            await asyncio.sleep(LOOK)


def _read() -> int:
    close_old_connections()
    return epoch.current()
