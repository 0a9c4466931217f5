"""The one reader of the log for all browsers of this process.

It turns each batch of events into (revision, topics) and hands that to every open page. The last changes are kept, so
that a page whose socket broke tells its revision and gets what it missed; one that was away for longer is told to
fetch everything again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from manciple.live.topics import touched_by
from manciple.store.tail import EventRecord, Tail, latest_revision

log = logging.getLogger(__name__)

#: Batches kept for pages that reconnect: at 50 changes/s some minutes.
KEPT_CHANGES = 10_000


@dataclass(frozen=True, slots=True)
class Change:
    """What pages must fetch again to show `revision`. `everything`: the page was away too long to say what changed."""

    revision: int
    topics: frozenset[str]
    everything: bool = False


Listener = Callable[[Change], None]


class Relay:
    """Fans the log's topics out to listeners; they are called in the tail's thread and must not block."""

    def __init__(self, revision: int) -> None:
        self._lock = threading.Lock()
        self._revision = revision
        self._floor = revision
        self._kept: deque[Change] = deque()
        self._listeners: set[Listener] = set()

    def receive(self, records: Sequence[EventRecord]) -> None:
        """Take the next events of the log (the tail's callback)."""
        topics = frozenset(topic for record in records for topic in _topics(record))
        change = Change(records[-1].revision, topics)
        with self._lock:
            self._revision = change.revision
            self._kept.append(change)
            while len(self._kept) > KEPT_CHANGES:
                self._floor = self._kept.popleft().revision
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(change)

    def join(self, listener: Listener, *, after: int) -> Change:
        """Add `listener`; returns what it missed since revision `after` (an empty change where that is nothing)."""
        with self._lock:
            self._listeners.add(listener)
            if not self._floor <= after <= self._revision:
                return Change(self._revision, frozenset(), everything=True)
            missed = [kept.topics for kept in self._kept if kept.revision > after]
            return Change(self._revision, frozenset().union(*missed))

    def leave(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.discard(listener)


def _topics(record: EventRecord) -> frozenset[str]:
    """A topic function that fails costs its page an update, never the other pages theirs."""
    try:
        return touched_by(record)
    except Exception:
        log.exception("cannot tell what event %d of %s touches", record.revision, record.resource)
        return frozenset()


_starting = threading.Lock()
_relay: Relay | None = None


def relay() -> Relay:
    """The relay of this process; the first call starts it (and reads the database: call it outside the event loop)."""
    global _relay  # noqa: PLW0603 - one reader of the log for all pages of the process
    with _starting:
        if _relay is None:
            revision = latest_revision()
            started = Relay(revision)
            Tail.instance().subscribe(started.receive, after=revision)
            _relay = started
        return _relay
