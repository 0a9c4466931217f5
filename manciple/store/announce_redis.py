"""Announcements between the processes that use one Redis (see `event_log`).

Of renewed Leases alone (`QUIET`) the other processes are not told at all: they find them when they poll. Publishing
happens in a thread of its own that only ever sends the newest revision, so a slow or absent Redis neither fails nor
delays a write. The listener connects as soon as somebody subscribes, and again after every failure.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import redis

from manciple.store.event_log import Announcer, OnAnnouncement

log = logging.getLogger(__name__)

CHANNEL = "manciple.revisions"
#: Seconds between attempts to reach Redis, and the longest wait for it to answer.
RETRY_AFTER = 0.5
TIMEOUT = 2.0

#: What is written all the time, and what nobody in another process waits for.
QUIET = frozenset({"leases.coordination.k8s.io"})


class _Unpublished(NamedTuple):
    """What the others were not told yet."""

    revision: int
    resources: frozenset[str]


class RedisAnnouncer(Announcer):
    """The announcements of one process. `origin` marks its own messages, which come back through Redis."""

    def __init__(self, redis_url: str) -> None:
        super().__init__()
        self._redis_url = redis_url
        self._origin = uuid.uuid4().hex
        self._news = threading.Condition(self._guard)
        self._unpublished: _Unpublished | None = None
        self._threads: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        #: set while the listener hears Redis
        self.listening = threading.Event()

    def subscribe(self, callback: OnAnnouncement, *, ignoring: Collection[str] = ()) -> Callable[[], None]:
        unsubscribe = super().subscribe(callback, ignoring=ignoring)
        self._listen_from_now_on()
        return unsubscribe

    def announce(self, revision: int, resources: Collection[str] = ()) -> None:
        super().announce(revision, resources)
        if resources and QUIET.issuperset(resources):
            return
        with self._news:
            known = self._unpublished or _Unpublished(0, frozenset())
            self._unpublished = _Unpublished(max(revision, known.revision), known.resources.union(resources))
            self._start("publish", self._publish)
            self._news.notify_all()

    def newest(self, resources: Collection[str]) -> int:
        if "listen" not in self._threads:
            self._listen_from_now_on()
        return super().newest(resources)

    def stop(self) -> None:
        """End the threads; used where a process (or a test) gives its announcer up."""
        self._stopping.set()
        with self._news:
            self._news.notify_all()
            threads = tuple(self._threads.values())
        for thread in threads:
            thread.join(TIMEOUT * 2)

    def _listen_from_now_on(self) -> None:
        with self._guard:
            self._start("listen", self._listen)

    def _start(self, name: str, target: Callable[[], None]) -> None:
        if name not in self._threads:
            self._threads[name] = threading.Thread(target=target, name=f"announce-{name}", daemon=True)
            self._threads[name].start()

    def _connect(self) -> redis.Redis:
        return redis.Redis.from_url(self._redis_url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)

    def _publish(self) -> None:
        client = self._connect()
        while (news := self._next_unpublished()) is not None:
            try:
                client.publish(CHANNEL, f"{self._origin}:{news.revision}:{','.join(sorted(news.resources))}")
            except redis.RedisError as error:
                # Listeners poll: what is lost here costs them at most a poll interval.
                log.warning("could not announce revision %d: %s", news.revision, error)
                self._stopping.wait(RETRY_AFTER)
        client.close()

    def _next_unpublished(self) -> _Unpublished | None:
        with self._news:
            self._news.wait_for(lambda: self._unpublished is not None or self._stopping.is_set())
            news, self._unpublished = self._unpublished, None
            return None if self._stopping.is_set() else news

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._hear()
            except (redis.RedisError, OSError) as error:
                log.warning("lost the announcements of other processes: %s", error)
            self.listening.clear()
            self._stopping.wait(RETRY_AFTER)

    def _hear(self) -> None:
        client = self._connect()
        with client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
            pubsub.subscribe(CHANNEL)
            while not self._stopping.is_set():
                message = pubsub.get_message(timeout=RETRY_AFTER)
                if message is not None:
                    self._receive(message)
        client.close()

    def _receive(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            self.listening.set()
        elif message["type"] == "message":
            origin, _, news = message["data"].decode().partition(":")
            revision, _, resources = news.partition(":")
            if origin != self._origin and revision.isdigit():
                self._tell(int(revision), frozenset(filter(None, resources.split(","))))
