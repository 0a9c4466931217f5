"""Telling that a revision exists, after its commit: in this process at once, in the others through Redis.

A message carries a revision and never an object, and may be lost: whoever listens reads the log and polls it as well.
It names the resources that were written, so that who does not care for any of them need not look. Of renewed Leases
alone (`QUIET`) the other processes are not told at all: they find them when they poll.
Publishing happens in a thread of its own that only ever sends the newest revision, so a slow or absent Redis neither
fails nor delays a write. The listener connects as soon as somebody subscribes, and again after every failure.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import redis
from django.conf import settings

from manciple.store.per_process import PerProcess

log = logging.getLogger(__name__)

CHANNEL = "manciple.revisions"
#: Seconds between attempts to reach Redis, and the longest wait for it to answer.
RETRY_AFTER = 0.5
TIMEOUT = 2.0

#: What is written all the time, and what nobody in another process waits for.
QUIET = frozenset({"leases.coordination.k8s.io"})

Callback = Callable[[int], None]


class _Unpublished(NamedTuple):
    """What the others were not told yet."""

    revision: int
    resources: frozenset[str]


class Announcer:
    """The announcements of one process. `origin` marks its own messages, which come back through Redis."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._origin = uuid.uuid4().hex
        #: token -> (callback, resources that it does not care for)
        self._callbacks: dict[object, tuple[Callback, frozenset[str]]] = {}
        self._guard = threading.Lock()
        self._news = threading.Condition(self._guard)
        self._unpublished: _Unpublished | None = None
        #: resource -> the newest revision that was announced of it; of "", where the resources were not told
        self._newest: dict[str, int] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        #: set while the listener hears Redis
        self.listening = threading.Event()

    def subscribe(self, callback: Callback, *, ignoring: Collection[str] = ()) -> Callable[[], None]:
        """Call `callback(revision)` after each commit of any process. Returns the function that ends it."""
        token = object()
        with self._guard:
            self._callbacks[token] = (callback, frozenset(ignoring))
            if self._redis_url:
                self._start("listen", self._listen)

        def unsubscribe() -> None:
            with self._guard:
                self._callbacks.pop(token, None)

        return unsubscribe

    def announce(self, revision: int, resources: Collection[str] = ()) -> None:
        self._tell(revision, frozenset(resources))
        if not self._redis_url or (resources and QUIET.issuperset(resources)):
            return
        with self._news:
            known = self._unpublished or _Unpublished(0, frozenset())
            self._unpublished = _Unpublished(max(revision, known.revision), known.resources.union(resources))
            self._start("publish", self._publish)
            self._news.notify_all()

    def newest(self, resources: Collection[str]) -> int:
        """The newest revision that was announced of any of `resources`; 0 for none."""
        if self._redis_url and "listen" not in self._threads:
            with self._guard:
                self._start("listen", self._listen)
        newest = self._newest
        return max([newest.get("", 0), *(newest.get(resource, 0) for resource in resources)])

    def forget(self) -> None:
        """Nothing was announced yet."""
        self._newest = {}

    def stop(self) -> None:
        """End the threads; used where a process (or a test) gives its announcer up."""
        self._stopping.set()
        with self._news:
            self._news.notify_all()
            threads = tuple(self._threads.values())
        for thread in threads:
            thread.join(TIMEOUT * 2)

    def _start(self, name: str, target: Callable[[], None]) -> None:
        if name not in self._threads:
            self._threads[name] = threading.Thread(target=target, name=f"announce-{name}", daemon=True)
            self._threads[name].start()

    def _tell(self, revision: int, resources: frozenset[str]) -> None:
        """resources: those that were written; none where that is not known."""
        with self._guard:
            callbacks = tuple(self._callbacks.values())
            for resource in resources or ("",):
                self._newest[resource] = max(self._newest.get(resource, 0), revision)
        for callback, ignoring in callbacks:
            if resources and resources <= ignoring:
                continue
            try:
                callback(revision)
            except Exception:
                log.exception("a listener failed on revision %d", revision)

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


_announcer = PerProcess(lambda: Announcer(settings.REDIS_URL))


def subscribe(callback: Callback, *, ignoring: Collection[str] = ()) -> Callable[[], None]:
    """Call `callback(revision)` after each commit of any process, in a thread of the store's. Returns the end of it.

    ignoring: resources; a commit that wrote nothing else is not told.
    Callbacks must be quick. A call may be missing (Redis was away) and never is the only way to learn of a revision.
    """
    return _announcer().subscribe(callback, ignoring=ignoring)


def newest(resources: Collection[str]) -> int:
    """The newest revision that this process was told of any of `resources`; 0 for none. Costs no query.

    An announcement may be late or lost: who relies on them must look at the log now and then (`tail.POLL_INTERVAL`).
    """
    return _announcer().newest(resources)


def forget() -> None:
    """Forget what was announced: the process's database is another one from now on."""
    _announcer().forget()


def announce(revision: int, resources: Collection[str] = ()) -> None:
    """Tell everybody that `revision` is committed. Never fails and never waits for the network.

    resources: those that the commit wrote; none means any.
    """
    _announcer().announce(revision, resources)
