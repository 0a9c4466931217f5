"""What an event is about, as a page would ask for it.

A topic is a short text such as `pool:gpu.example.com/node-1` or `class:gpu`. The apps say which topics an event
touches; pages name the topics they show and fetch those parts again when one is touched. No document travels this way,
so a page never shows a browser more than the page itself would.

The relay is the one reader of the log for all browsers of this process. It turns each batch of events into (revision,
topics) and hands that to every open page. The last changes are kept, so that a page whose socket broke tells its
revision and gets what it missed; one that was away for longer is told to fetch everything again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from manciple.access import rbac
from manciple.access.authentication.chain import Credentials
from manciple.per_process import PerProcess
from manciple.store.event_log import Tail, latest_revision
from manciple.store.records import EventRecord
from manciple.wire.errors import Expired

#: event -> the topics it touches. Called in the order of the log, by one thread.
TopicsOf = Callable[[EventRecord], Iterable[str]]


class HeardTopics(Protocol):
    """What somebody may hear. Two are equal where they are the same person, who may hear the same."""

    @property
    def name(self) -> str:
        """Whose it is."""

    def __call__(self, topics: Iterable[str]) -> Iterable[str]:
        """Those of `topics` that they may hear."""


#: The key of a browser's session, and what else its socket shows -> what its person may hear; None where nobody is
#: signed in. Asked when a socket is opened, and again for as long as it is open; reads the database.
Sight = Callable[[str, Credentials], HeardTopics | None]

_registered: dict[str, list[TopicsOf]] = {}
_sight: list[Sight] = []


def register(resource: str, topics_of: TopicsOf) -> None:
    """Ask `topics_of` about every event of `resource` ("pods", "resourceclaims.resource.k8s.io")."""
    _registered.setdefault(resource, []).append(topics_of)


def touched_by(record: EventRecord) -> frozenset[str]:
    """Every topic that `record` touches."""
    return frozenset(topic for topics_of in _registered.get(record.resource, ()) for topic in topics_of(record))


def show_only(sight: Sight) -> None:
    """Ask `sight` who listens and which topics they may hear: topics name objects."""
    _sight[:] = [sight]


def heard_in(session: str, shown: Credentials) -> HeardTopics | None:
    """What the person of this session may hear; None where nobody is signed in."""
    return _sight[0](session, shown) if _sight else None


# The relay ------------------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

#: Batches kept for pages that reconnect, at 50 changes/s some minutes; and the topics of all of them, of which a batch
#: of a flood of pods has thousands.
KEPT_CHANGES, KEPT_TOPICS = 10_000, 100_000
#: Seconds for which a page that opens also gets changes that are not in the log: it may have been drawn before them.
RETOLD = 20.0


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What pages must fetch again to show `revision`. `everything`: the page was away too long to say what changed.

    rights: a role or binding was written, so that somebody may hear less from now on.
    """

    revision: int
    topics: frozenset[str]
    everything: bool = False
    rights: bool = False


Listener = Callable[[TopicChange], None]


class Relay:
    """Fans the log's topics out to listeners; they are called in the tail's thread and must not block."""

    def __init__(self, revision: int) -> None:
        self._lock = threading.Lock()
        self._revision = revision
        self._floor = revision
        self._kept: deque[TopicChange] = deque()
        self._topics = 0  # of all that are kept
        self._retold: tuple[float, frozenset[str]] = 0.0, frozenset()  # until when
        self._listeners: set[Listener] = set()

    def receive(self, records: Sequence[EventRecord]) -> None:
        """Take the next events of the log (the tail's callback)."""
        topics = frozenset(topic for record in records for topic in _topics(record))
        rights = [record.revision for record in records if record.resource in rbac.RESOURCES]
        if rights:
            rbac.expect(rights[-1])
        change = TopicChange(records[-1].revision, topics, rights=bool(rights))
        with self._lock:
            self._revision = change.revision
            self._kept.append(change)
            self._topics += len(topics)
            while len(self._kept) > KEPT_CHANGES or self._topics > KEPT_TOPICS:
                oldest = self._kept.popleft()
                self._floor, self._topics = oldest.revision, self._topics - len(oldest.topics)
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(change)

    def tell(self, *topics: str) -> None:
        """Have pages fetch parts that show something besides the objects of the log."""
        with self._lock:
            self._retold = time.monotonic() + RETOLD, frozenset(topics)
            change = TopicChange(self._revision, frozenset(topics))
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(change)

    def start(self) -> None:
        """Follow the log from `revision`. Raises: Expired."""
        Tail.instance().subscribe(self.receive, after=self._revision, on_expired=self.start_over)

    def start_over(self, error: Expired) -> None:
        """The log does not lead on from here: go on from its end, and have every page fetch everything again."""
        revision = latest_revision()
        Tail.instance().subscribe(self.receive, after=revision, on_expired=self.start_over)
        log.warning("every open page is fetched again: %s", error.message)
        with self._lock:
            self._revision = self._floor = revision
            self._kept.clear()
            self._topics = 0
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(TopicChange(revision, frozenset(), everything=True, rights=True))

    def join(self, listener: Listener, *, after: int) -> TopicChange:
        """Add `listener`; returns what it missed since revision `after` (an empty change where that is nothing)."""
        with self._lock:
            self._listeners.add(listener)
            if not self._floor <= after <= self._revision:
                return TopicChange(self._revision, frozenset(), everything=True)
            missed = [kept.topics for kept in self._kept if kept.revision > after]
            until, retold = self._retold
            return TopicChange(self._revision, frozenset().union(*missed, retold if time.monotonic() < until else ()))

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


def _started() -> Relay:
    started = Relay(latest_revision())
    started.start()
    return started


#: The relay of this process; the first call starts it (and reads the database: call it outside the event loop).
relay = PerProcess(_started)
