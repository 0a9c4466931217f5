"""The event log, fanned out to the watches of one event loop.

The process's one `Tail` reads the log in its own thread. The `Hub` of a loop subscribes to it once, carries each batch
into the loop (`call_soon_threadsafe`), and there puts every event into the queues of the watches of its resource. An
event is shaped once per form, however many watches want it (`SharedEvent`).

A watch that joins is told the hub's position: events above it will arrive in its queue, those up to it must be read
from the log. So nothing is skipped and nothing needs a lock. A watch whose client does not keep up is closed when its
queue is full; the client comes back with the revision that it has seen last.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from manciple.store import tail
from manciple.store.records import EventRecord
from manciple.store.tail import Tail

#: Events that a watch may lie behind the log before it is closed.
QUEUE_LIMIT = 10_000

#: Threads in which watches read the database: few, because every thread keeps a connection.
readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="watch-reader")


class SharedEvent:
    """An event of the log with the texts it was already shaped into; used from one event loop only."""

    __slots__ = ("_texts", "record")

    def __init__(self, record: EventRecord) -> None:
        self.record = record
        self._texts: dict[object, bytes] = {}

    def shaped(self, key: object, shape: Callable[[EventRecord], bytes]) -> bytes:
        """What `shape` makes of the record; made once per `key`."""
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = shape(self.record)
        return text


class Watcher:
    """One watch's place in the hub: a bounded queue of events of one resource."""

    def __init__(self, resource: str, limit: int) -> None:
        self.resource = resource
        self.closed = False
        self._limit = limit
        self._queue: list[SharedEvent] = []
        self._ready = asyncio.Event()

    def offer(self, event: SharedEvent) -> None:
        """Called by the hub. A full queue closes the watch: its client has lost touch."""
        if self.closed:
            return
        if len(self._queue) >= self._limit:
            self._queue = []
            self.close()
            return
        self._queue.append(event)
        self._ready.set()

    @property
    def waiting(self) -> int:
        """Events that were offered and not taken yet."""
        return len(self._queue)

    def close(self) -> None:
        self.closed = True
        self._ready.set()

    async def take(self, *, seconds: float) -> list[SharedEvent]:
        """All waiting events, after waiting up to `seconds` for the first one; empty after that time."""
        if not self._queue and not self.closed:
            try:
                await asyncio.wait_for(self._ready.wait(), seconds)
            except TimeoutError:
                return []
        taken, self._queue = self._queue, []
        if not self.closed:
            self._ready.clear()
        return taken


class Hub:
    """The fan-out of one event loop. Everything but `_receive` and `_lose` runs in that loop."""

    _hubs: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub]] = weakref.WeakKeyDictionary()
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._started: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        #: every event up to this revision was offered to the watchers
        self.position = 0
        #: the server stops: whatever is streamed ends
        self.stopping = asyncio.Event()

    @classmethod
    def of_running_loop(cls) -> Hub:
        loop = asyncio.get_running_loop()
        with cls._guard:
            if loop not in cls._hubs:
                cls._hubs[loop] = cls(loop)
            return cls._hubs[loop]

    async def join(self, resource: str, *, limit: int = QUEUE_LIMIT) -> tuple[Watcher, int]:
        """A new watcher, and the hub's position when it joined: events above that will be in its queue."""
        if self._started is None:
            self._started = self._loop.create_task(self._start())
        await asyncio.shield(self._started)
        watcher = Watcher(resource, limit)
        self._watchers[resource].add(watcher)
        return watcher, self.position

    def leave(self, watcher: Watcher) -> None:
        self._watchers[watcher.resource].discard(watcher)

    def close(self) -> None:
        """End all watches and the subscription; the next watch starts anew."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.close()
        self._watchers.clear()
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._unsubscribe, self._started = None, None

    async def _start(self) -> None:
        try:
            self.position = await self._loop.run_in_executor(readers, tail.latest_revision)
            self._unsubscribe = await self._loop.run_in_executor(readers, self._subscribe, self.position)
        except BaseException:
            self._started = None
            raise

    def _subscribe(self, after: int) -> Callable[[], None]:
        return Tail.instance().subscribe(self._receive, after=after, on_expired=self._lose)

    def _receive(self, records: Sequence[EventRecord]) -> None:
        """Called in the tail's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._dispatch, records)

    def _lose(self, _error: Exception) -> None:
        """Called in the tail's thread when the log was pruned past this hub: every watch has to start over."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close)

    def _dispatch(self, records: Sequence[EventRecord]) -> None:
        for record in records:
            watchers = self._watchers.get(record.resource)
            if watchers:
                event = SharedEvent(record)
                for watcher in watchers:
                    watcher.offer(event)
            self.position = record.revision


async def close_streams() -> None:
    """End what is streamed on this event loop, so that a server can stop without waiting for its clients."""
    hub = Hub.of_running_loop()
    hub.close()
    hub.stopping.set()
