"""Announcements between the processes that use one Redis (see `event_log`).

A commit that only renewed Leases (`QUIET`) is not published by itself: that it happened goes along with the next one
that is, so that listeners know that they missed nothing.

Whoever commits hands the message to the kernel, and waits for no answer: waking a thread for it, and again for the
answer, takes several times as long. What the kernel does not take at once, because Redis is slow or away, is left to a
thread, in which commits that come meanwhile share a message. So a slow or absent Redis neither fails nor delays a
write. The listener connects as soon as somebody subscribes, and again after every failure.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

import orjson
import redis

from manciple.store.event_log import LONGEST_TOLD, QUIET, Announcement, Announcer, OnAnnouncement
from manciple.store.records import EventRecord, Sketch

log = logging.getLogger(__name__)

CHANNEL = "manciple.commits"
#: Seconds between attempts to reach Redis, and the longest wait for it to answer.
RETRY_AFTER = 0.5
TIMEOUT = 2.0

#: Changes in one message: of more, only the revisions are announced.
MOST_CHANGES = 200
#: Stretches of quiet commits that go along with a message.
MOST_STRETCHES = 50
#: Bytes of messages that Redis has not answered: so many the kernel takes at once, whatever Redis does.
MOST_AWAITED = 1 << 16

_ENTRY = tuple(one.name for one in fields(EventRecord))
_row = attrgetter(*_ENTRY)


def encode(announcements: Iterable[Announcement]) -> bytes:
    """(first, last, entries) of one with its entries, else (first, last, None, sketches)."""
    return orjson.dumps(
        [
            (one.first, one.last, list(map(_row, one.entries)))
            if one.entries
            else (one.first, one.last, None, None if one.changes is None else list(map(tuple, one.changes)))
            for one in announcements
        ]
    )


def decode(message: bytes) -> Sequence[Announcement]:
    """Raises: ValueError, TypeError for a text that `encode` did not make."""
    return [_announcement(*one) for one in orjson.loads(message)]


def _announcement(first: int, last: int, rows: Any, sketches: Any = None) -> Announcement:
    if rows is None:
        return Announcement(first, last, None if sketches is None else tuple(Sketch(*one) for one in sketches))
    entries = [EventRecord(**dict(zip(_ENTRY, row, strict=True))) for row in rows]
    return Announcement(first, last, tuple(one.sketch for one in entries), entries)


def joined(before: Sequence[Announcement], new: Announcement) -> list[Announcement]:
    """`before`, ascending, and `new`, with as few stretches as say the same; without changes where they are too many.

    What is left out, listeners read in the log.
    """
    *others, last = before or [new]
    if not before:
        stretches = [new]
    elif _continues(last, new):
        changes, entries = (*(last.changes or ()), *(new.changes or ())), (*last.entries, *new.entries)
        if sum(len(one.document or "") for one in entries) > LONGEST_TOLD:
            entries = ()
        stretches = [*others, Announcement(last.first, new.last, changes, entries)]
    else:
        stretches = [*before, new]
    if sum(len(one.changes or ()) for one in stretches) > MOST_CHANGES:
        return [Announcement(new.first, new.last, None)]
    return stretches[-MOST_STRETCHES:]


def _continues(last: Announcement, new: Announcement) -> bool:
    """Whether both can be told as one that tells as much."""
    if last.last + 1 != new.first or last.changes is None or new.changes is None:
        return False
    return bool(last.entries) == bool(new.entries)


class Line:
    """A connection for publishing. One thread at a time.

    Raises, everywhere: RedisError; then it is of no more use.
    """

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
        self._connection: Any = self._client.connection_pool.get_connection()
        #: the sizes of the messages that are not answered
        self._awaited: deque[int] = deque()

    def send(self, message: bytes) -> bool:
        """Send it without waiting. Returns whether that was possible: not where Redis is slow."""
        while self._awaited and self._connection.can_read(timeout=0):
            self._read_answer()
        if sum(self._awaited) + len(message) > MOST_AWAITED:
            return False
        self._send(message)
        return True

    def send_and_wait(self, message: bytes) -> None:
        """Returns when all that was sent is answered."""
        self._send(message)
        while self._awaited:
            self._read_answer()

    def close(self) -> None:
        self._client.connection_pool.disconnect()

    def _send(self, message: bytes) -> None:
        self._connection.send_command("PUBLISH", CHANNEL, message)
        self._awaited.append(len(message))

    def _read_answer(self) -> None:
        self._connection.read_response()
        self._awaited.popleft()


class RedisAnnouncer(Announcer):
    """The announcements of one process. `origin` marks its own messages, which come back through Redis."""

    def __init__(self, redis_url: str) -> None:
        super().__init__()
        self._redis_url = redis_url
        self._origin = uuid.uuid4().hex.encode()
        self._news = threading.Condition(self._guard)
        self._unpublished: list[Announcement] = []
        #: whether any of them is worth a message of its own, and left to the thread
        self._due = False
        #: what is held while something is published, and with what; None until the thread has connected
        self._publishing = threading.Lock()
        self._line: Line | None = None
        self._threads: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        #: the threads to which Redis does not answer
        self._unanswered = set[str]()
        #: set while the listener hears Redis
        self.listening = threading.Event()

    def subscribe(self, callback: OnAnnouncement) -> Callable[[], None]:
        unsubscribe = super().subscribe(callback)
        self._listen_from_now_on()
        return unsubscribe

    def announce(self, announcement: Announcement) -> None:
        super().announce(announcement)
        quiet = announcement.changes is not None and all(change.resource in QUIET for change in announcement.changes)
        if quiet:
            announcement = Announcement(announcement.first, announcement.last, ())
        with self._news:
            self._unpublished = joined(self._unpublished, announcement)
        if quiet or self._publish_at_once():
            return
        with self._news:
            self._due = True
            self._start("publish", self._publish)
            self._news.notify_all()

    def newest(self, resources: Collection[str]) -> int:
        if "listen" not in self._threads:
            self._listen_from_now_on()
        return super().newest(resources)

    @property
    def is_connected(self) -> bool:
        return self.listening.is_set()

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

    def _publish_at_once(self) -> bool:
        """Returns whether that was possible; else the thread is to do it."""
        if not self._publishing.acquire(blocking=False):
            return False
        try:
            if self._line is None:
                return False
            with self._guard:
                announcements, self._unpublished = self._unpublished, []
            try:
                sent = not announcements or self._line.send(self._origin + encode(announcements))
            except (redis.RedisError, OSError):
                self._hang_up()  # the thread connects again, or says that it cannot
                sent = False
            if not sent:
                with self._guard:
                    self._unpublished = [*announcements, *self._unpublished]
            return sent
        finally:
            self._publishing.release()

    def _publish(self) -> None:
        while announcements := self._next_unpublished():
            try:
                with self._publishing:
                    self._line = self._line or Line(self._redis_url)
                    self._line.send_and_wait(self._origin + encode(announcements))
            except (redis.RedisError, OSError) as error:
                # Listeners poll: what is lost here costs them at most a poll interval.
                self._hang_up()
                self._note_failure("publish", error)
                self._stopping.wait(RETRY_AFTER)
            else:
                self._note_success("publish")
        self._hang_up()

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _note_failure(self, thread: str, error: Exception) -> None:
        """Log an outage once, not at each attempt of each thread."""
        with self._guard:
            is_first = not self._unanswered
            self._unanswered.add(thread)
        if is_first:
            log.warning("Redis is away; until it is back, processes hear of each other's commits by polling: %s", error)

    def _note_success(self, thread: str) -> None:
        """The outage is over when Redis answers all threads again."""
        with self._guard:
            is_last = self._unanswered == {thread}
            self._unanswered.discard(thread)
        if is_last:
            log.warning("Redis is back")

    def _next_unpublished(self) -> Sequence[Announcement]:
        """Waits for what is worth a message; nothing when the thread is to end."""
        with self._news:
            self._news.wait_for(lambda: (self._due and self._unpublished) or self._stopping.is_set())
            announcements, self._unpublished, self._due = self._unpublished, [], False
            return [] if self._stopping.is_set() else announcements

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._hear()
            except (redis.RedisError, OSError) as error:
                self._note_failure("listen", error)
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
            self._note_success("listen")
        elif message["type"] == "message" and not message["data"].startswith(self._origin):
            try:
                announcements = decode(message["data"][len(self._origin) :])
            except (ValueError, TypeError):
                log.warning("an announcement cannot be read: %.100r", message["data"])
                return
            for announcement in announcements:
                self._deliver(announcement)
