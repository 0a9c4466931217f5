"""Copies a cluster into the store and keeps the copy current, until it is told to stop.

    replicator = Replicator(remote, sources=COPIED, context="prod", namespace="default")
    threading.Thread(target=replicator.run, args=(stopping,)).start()
    replicator.listed.wait()      # every kind that may be read was listed once

A thread for each resource reads (`following`), two follow Leases (`leases`), one asks now and then what the server is
and serves, and one whether it answers. `run` itself writes what they read (`stored_copy`), and is the only one that
touches the database. Between them is a queue of bounded size: while the database is slow, or away, the readers wait,
and the server keeps what they have not read.

What is known of the cluster and of each kind is written with it (`standing` reads it), in the order in which it came:
a kind counts as listed once its objects are stored. The cluster is away while nothing can be read of any kind, or it
answers nothing at all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from django.db import InterfaceError, OperationalError, connection, transaction

from inventory.kinds import gates
from manciple.mirror import copying, listing, standing
from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.following import FIRST_PAUSE, LONGEST_PAUSE, SILENCE, KindFollower
from manciple.mirror.leases import NAMESPACES, LeaseSink
from manciple.mirror.listing import Served
from manciple.mirror.models import KindStatus, RemoteStatus
from manciple.mirror.sources import LEASE, KindState, Reach, Source
from manciple.mirror.standing import KindStanding
from manciple.mirror.stored_copy import Change, Known, StoredCopy
from manciple.store import sql

logger = logging.getLogger(__name__)

#: Changes in one transaction, and bytes of what was received. Each transaction writes the pages of the indexes that it
#: touches, which are nearly all: for 256 objects these were six times as much as the objects.
BATCH, BATCH_BYTES = 2048, 16 << 20
#: Changes, and bytes, that wait to be stored.
MOST_WAITING, MOST_WAITING_BYTES = 4096, 32 << 20
#: Seconds between two looks at whether to stop.
TICK: Final = 0.25
#: Seconds between two notes of how far kinds are known that have not changed in anything else.
NOTED_EVERY: Final = 10.0
#: Seconds that somebody waits until what the cluster answered is stored.
KEPT_WITHIN: Final = 5.0
#: Seconds until the server is asked again what it is and serves, and at least between two questions.
ASKED_AGAIN_AFTER, ASKED_AT_MOST_EVERY = 600.0, 10.0
#: Seconds between two looks at whether the server answers at all, and for its answer: a connection through which
#: nothing comes any more looks like one through which nothing has to come.
PROBED_EVERY, PROBE_PATIENCE = 10.0, 10.0
#: Seconds until the database is tried again.
DATABASE_PAUSE: Final = 1.0
#: The name under which failures of discovery count beside those of the kinds.
_DISCOVERY = ""


class _Stopped(Exception):
    """Of a reader's thread."""


@dataclass(slots=True)
class _Question:
    """What is stored of a resource, once everything before it in the queue is stored as well."""

    source: Source
    answer: Mapping[str, Known] = field(default_factory=dict)
    answered: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class _Note:
    standing: KindStanding
    failing: str


@dataclass(frozen=True, slots=True)
class _About:
    """What the server is, and which resources it has. failing: why it does not say."""

    version: str = ""
    gates: Mapping[str, bool] = field(default_factory=dict)
    states: tuple[KindState, ...] = ()
    failing: str = ""


@dataclass(frozen=True, slots=True)
class _Probe:
    """silent: why the server does not answer; "" where it does."""

    silent: str


@dataclass(slots=True)
class _Kept:
    """What the cluster has answered to a write of the mirror's own."""

    change: Change
    stored: threading.Event = field(default_factory=threading.Event)


_Item = Change | _Question | _Note | _About | _Probe | _Kept


class _Queue:
    """A `Sink` whose items `run` takes."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._changed = threading.Condition()
        self._items: deque[_Item] = deque()
        self._bytes = 0

    def known(self, source: Source) -> Mapping[str, Known]:
        question = _Question(source)
        self._put([question])
        while not question.answered.wait(TICK):
            self._check()
        return question.answer

    def apply(self, changes: Sequence[Change]) -> None:
        self._put(changes)

    def note(self, standing: KindStanding, *, failing: str = "") -> None:
        self._put([_Note(standing, failing)])

    def tell(self, about: _About | _Probe) -> None:
        self._put([about])

    def hand_in(self, kept: _Kept) -> None:
        """Somebody waits for it, so it never waits for room; there are few."""
        with self._changed:
            self._items.append(kept)
            self._bytes += _size(kept)
            self._changed.notify_all()

    def take(self, seconds: float) -> list[_Item]:
        """As many as one transaction takes; none where nothing comes for so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._items, timeout=seconds)
            taken, size = list[_Item](), 0
            while self._items and len(taken) < BATCH and size < BATCH_BYTES:
                taken.append(item := self._items.popleft())
                size += _size(item)
            self._bytes -= size
            self._changed.notify_all()
        return taken

    def _put(self, items: Sequence[_Item]) -> None:
        """Raises: _Stopped."""
        with self._changed:
            while len(self._items) >= MOST_WAITING or self._bytes >= MOST_WAITING_BYTES:
                self._check()
                self._changed.wait(TICK)
            self._check()
            self._items.extend(items)
            self._bytes += sum(map(_size, items))
            self._changed.notify_all()

    def _check(self) -> None:
        if self._stopping.is_set():
            raise _Stopped


def _size(item: _Item) -> int:
    return len(item.text or b"") if isinstance(item, Change) else 0


class Replicator:
    """One cluster's copy; one of it writes to a store at a time.

    context: the cluster's name in the kubeconfig. namespace: where kinds are listed that may not be listed everywhere.
    silence: seconds without a line after which a watch counts as dead.
    """

    def __init__(
        self,
        remote: Remote,
        *,
        sources: Sequence[Source],
        context: str,
        namespace: str = "",
        silence: float = SILENCE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._remote = remote
        self._sources = tuple(sources)
        self._namespace, self._silence, self._clock = namespace, silence, clock
        #: every kind that may be read was listed once
        self.listed = threading.Event()
        self._copy = StoredCopy()
        self._queue: _Queue | None = None
        self._about = _About()
        self._kinds: dict[str, KindStanding] = {}
        self._settled = set[str]()
        #: the readers that hear something, and why others do not
        self._alive = set[str]()
        self._failing: dict[str, str] = {}
        self._status = RemoteStatus(id=1, context=context, server=remote.server, namespace=namespace, gates={})
        #: when the server last answered at all; whether it is away because it does not
        self._answered_at: datetime | None = None
        self._is_silent = False
        #: whether a row says something that is wrong by now, or only how far kinds are known; when they were written
        self._is_urgent, self._is_stale, self._noted_at = True, False, 0.0

    def run(self, stopping: threading.Event, *, may_write: Callable[[], bool] = lambda: True) -> None:
        """List, then watch; returns once `stopping` is set. What fails is told by `standing`, and tried again.

        may_write: ends it, too, once it says no.
        """

        def do(work: Callable[[], None]) -> None:
            _until_done(work, stopping, may_write)

        # 1. What was known before, which pages show until the cluster answers.
        do(sql.write_much)
        do(self._remember)
        # 2. The readers.
        queue = self._queue = _Queue(stopping)
        discovery = _Discovery(self._remote, self._sources, queue, stopping)
        followers = [self._follower(source, queue, discovery) for source in self._sources]
        followers += [self._lease_follower(namespace, discovery) for namespace in NAMESPACES]
        readers = [
            _reader("discovery", discovery.run, stopping),
            _reader("probe", partial(_probe, self._remote, queue, stopping), stopping),
        ]
        readers += [_reader(one.source.plural, partial(one.run, stopping), stopping) for one in followers]
        try:
            # 3. What they read is written.
            while not stopping.is_set() and may_write():
                if items := queue.take(TICK):
                    do(partial(self._write, items))
                do(self._note)
        finally:
            # 4. Those that wait for the server are woken.
            stopping.set()
            discovery.ask()
            for follower in followers:
                follower.stop()
            for reader in readers:
                reader.join(timeout=1.0)
            if self._is_stale:
                do(self._save)

    def _follower(self, source: Source, queue: _Queue, discovery: _Discovery) -> KindFollower:
        return KindFollower(
            self._remote,
            source,
            queue,
            served=discovery.served,
            rediscover=discovery.ask,
            namespace=self._namespace,
            standing=self._kinds.get(source.resource),
            silence=self._silence,
            clock=self._clock,
        )

    def _lease_follower(self, namespace: str, discovery: _Discovery) -> KindFollower:
        """What it hears says nothing of whether the cluster is away."""
        return KindFollower(
            self._remote,
            LEASE,
            LeaseSink(namespace, self._clock),
            served=discovery.served,
            only=namespace,
            silence=self._silence,
            clock=self._clock,
        )

    def keep(self, change: Change) -> bool:
        """From any thread: store what the cluster has just answered. Whether it is stored, or something newer."""
        if self._queue is None:
            return False
        self._queue.hand_in(kept := _Kept(change))
        return kept.stored.wait(KEPT_WITHIN)

    # What is written -------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        standing.forget()
        before, self._kinds = standing.remote(), dict(standing.kinds())
        if before is not None:
            self._status.version, self._status.gates = before.version, dict(before.gates)
            gates.use(before.gates)
        self._status.away_since, self._status.why = self._last_heard(), "it has not answered yet"
        self._save()

    def _write(self, items: Sequence[_Item]) -> None:
        """Changes first: whatever was read before the rest is stored then."""
        if changes := [item for item in items if isinstance(item, Change)]:
            self._copy.apply(changes)
        for item in items:
            match item:
                case _Question():
                    item.answer = self._copy.known(item.source)
                    item.answered.set()
                case _Kept():
                    self._copy.keep(item.change)
                    item.stored.set()
                case _About():
                    self._learn(item)
                case _Note():
                    self._hear(item)
                case _Probe():
                    self._probed(item.silent)

    def _learn(self, about: _About) -> None:
        if about.failing:
            self._fails(_DISCOVERY, about.failing)
            return
        self._about, self._status.version = about, about.version
        self._answers(_DISCOVERY)

    def _hear(self, note: _Note) -> None:
        resource, before = note.standing.source.resource, self._kinds.get(note.standing.source.resource)
        self._kinds[resource] = note.standing
        if before is None or (before.reach, before.detail) != (note.standing.reach, note.standing.detail):
            self._is_urgent = True
        self._is_stale = True
        if note.failing:
            self._fails(resource, note.failing)
            return
        self._settled.add(resource)
        self._answers(resource)
        if note.standing.reach not in (Reach.FORBIDDEN, Reach.ABSENT):  # these are asked again in minutes
            self._alive.add(resource)

    def _fails(self, reader: str, why: str) -> None:
        self._alive.discard(reader)
        self._failing[reader] = why
        if not self._alive and (self._status.away_since is None or self._status.why != why):
            self._status.away_since = self._status.away_since or self._last_heard()
            self._status.why, self._is_urgent = why, True

    def _answers(self, reader: str) -> None:
        self._alive.discard(reader)
        self._failing.pop(reader, None)
        self._is_silent = False
        if self._status.away_since is not None:
            self._status.away_since, self._status.why, self._is_urgent = None, "", True

    def _probed(self, silent: str) -> None:
        now = self._clock()
        if not silent:
            self._answered_at = now
            if self._is_silent:
                self._answers(_DISCOVERY)
        elif (now - self._last_heard()).total_seconds() > PROBE_PATIENCE and self._status.away_since is None:
            self._status.away_since, self._status.why = self._last_heard(), silent
            self._is_silent = self._is_urgent = True

    def _last_heard(self) -> datetime:
        heard = [one.heard_at for one in self._kinds.values() if one.heard_at]
        return max([*heard, self._answered_at] if self._answered_at else heard, default=self._clock())

    def _note(self) -> None:
        """Bring the rows up to date that `standing` reads."""
        ours = copying.gates_of(
            self._about.version, self._about.gates, self._about.states, extended=self._copy.extended
        )
        if self._about.states and ours != self._status.gates:
            gates.use(ours)
            self._status.gates, self._is_urgent = dict(ours), True
        for resource, kind in self._kinds.items():
            unread = len(self._copy.unread.get(resource, ()))
            if unread != kind.unread:
                self._kinds[resource], self._is_urgent = replace(kind, unread=unread), True
        is_due = self._is_stale and time.monotonic() - self._noted_at >= NOTED_EVERY
        if self._is_urgent or is_due:
            self._save()
        if self._settled.issuperset(source.resource for source in self._sources):
            self.listed.set()

    def _save(self) -> None:
        rows = [
            KindStatus(
                resource=resource,
                version=kind.version,
                reach=kind.reach.value,
                detail=kind.detail,
                listed_at=kind.listed_at,
                heard_at=kind.heard_at,
                unread=kind.unread,
            )
            for resource, kind in self._kinds.items()
        ]
        columns = [field.name for field in KindStatus._meta.concrete_fields if not field.primary_key]
        with sql.in_turn(), transaction.atomic():
            self._status.save()
            KindStatus.objects.bulk_create(
                rows, update_conflicts=True, unique_fields=["resource"], update_fields=columns
            )
        self._is_urgent, self._is_stale, self._noted_at = False, False, time.monotonic()


class _Discovery:
    """Asks what the server is and serves: at the start, now and then, and when a follower meets something new."""

    def __init__(self, remote: Remote, sources: Sequence[Source], queue: _Queue, stopping: threading.Event) -> None:
        self._remote, self._sources, self._queue, self._stopping = remote, sources, queue, stopping
        self._served: Served | None = None
        self._is_known, self._is_wanted = threading.Event(), threading.Event()
        self._version, self._gates = "", dict[str, bool]()

    def ask(self) -> None:
        self._is_wanted.set()

    def served(self, source: Source) -> Sequence[str]:
        """Waits for the first answer. Raises: _Stopped."""
        while self._served is None:
            self._is_known.wait(TICK)
            if self._stopping.is_set():
                raise _Stopped
        return self._served(source)

    def run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._is_wanted.clear()
            try:
                self._discover()
                failures = 0
            except RemoteFailure as failure:
                self._queue.tell(_About(failing=str(failure)))
                failures += 1
            pause = min(FIRST_PAUSE * 2.0 ** min(failures, 10), LONGEST_PAUSE) if failures else ASKED_AGAIN_AFTER
            if self._is_wanted.wait(pause) and not failures:
                self._stopping.wait(ASKED_AT_MOST_EVERY)

    def _discover(self) -> None:
        """Raises: RemoteFailure."""
        served, version = listing.discovered(self._remote), listing.software_version(self._remote)
        if version != self._version:
            self._version, self._gates = version, dict(listing.reported_gates(self._remote))
        states = tuple(
            KindState(source, Reach.EVERYWHERE if served(source) else Reach.ABSENT) for source in self._sources
        )
        self._queue.tell(_About(version, self._gates, states))
        self._served = served
        self._is_known.set()


def _probe(remote: Remote, queue: _Queue, stopping: threading.Event) -> None:
    while not stopping.wait(PROBED_EVERY):
        try:
            remote.get("/version", timeout=PROBE_PATIENCE)
            silent = ""
        except RemoteFailure as failure:
            silent = "" if failure.code else str(failure)
        queue.tell(_Probe(silent))


def _reader(name: str, work: Callable[[], None], stopping: threading.Event) -> threading.Thread:
    """A thread that works until it is stopped."""

    def read() -> None:
        with suppress(_Stopped):
            while not stopping.is_set():
                try:
                    work()
                except _Stopped:
                    raise
                except Exception:
                    logger.exception("Reading %s of the remote failed; it is tried again", name)
                    stopping.wait(LONGEST_PAUSE)

    thread = threading.Thread(target=read, name=f"mirror-{name}", daemon=True)
    thread.start()
    return thread


def _until_done(work: Callable[[], None], stopping: threading.Event, may_write: Callable[[], bool]) -> None:
    """While the database is away, it is tried again; the log says so once."""
    told = False
    while may_write():
        try:
            work()
        except (OperationalError, InterfaceError) as error:
            if not told:
                logger.warning("The copy of the remote cannot be written, and is tried again: %s", error)
            told = True
            connection.close_if_unusable_or_obsolete()  # one that works may hold the lock of who writes
            if stopping.wait(DATABASE_PAUSE):
                return
        else:
            return
