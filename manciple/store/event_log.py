"""Reading the event log: once, as it grows, or as a view that is kept up to date.

| to | use |
| --- | --- |
| read what happened after a revision | `read_after`, `stretch_after`, `sketches_after` (without documents) |
| keep a position in the log and read on from it | `since`: None when everything has to be read again |
| get every event pushed, in order | `Tail`: watches and pages |
| keep part of the cluster in memory | `Follower` with a `View`: controllers, the scheduler, authorization |

**The tail.** A process has one `Tail`: a thread that is woken by announcements, polls as a backstop, reads new events
once (most are announced whole, and need not be read), and hands them to every subscriber in order. A subscriber that
starts behind gets what is missing before it goes live, so it sees every event after its starting point exactly once. An
error of one is logged; it continues with the next events.

**Views.** A `Source` lists a resource as of a revision and returns what happened after one: the log of this database
(`LocalLog`), or an API server with its list and watch. A `View` is what a reader makes of the objects. A `Follower`
keeps one view for a process and brings it up to date on use (`with follower.view() as ...`): one query if nothing
happened. The races, all of them:

- What changes while the resources are listed, one after the other, is applied from the revision of the first listing
  on, except what a resource's own listing already has, so no object ever goes back.
- The log was pruned past the view, or an older database was restored and the log ends before it: `Expired`, and a new
  view is made from new listings, also when that happens during the listings.
- An error, while the view is brought up to date or used, discards the view.
- One thread at a time has the view.
- A view that nobody has used while `MOST_MISSED` changes of its resources were announced is dropped by the process's
  housekeeping (`drop_outdated`): most of what it keeps may be long gone, and listing costs no more than catching up.
- `view(within=...)` trusts the announcements: no query if none of its resources was announced since the view was
  brought up to date. An announcement comes just after its commit and can be lost, so such a view may miss what was
  written that many seconds ago. Inside a transaction, which announces nothing before its commit, it is always brought
  up to date.

However many views a process keeps of the local log, it holds each object's decoded form once, for as long as one of
them does. What repeats from object to object (the attributes of devices) may be shared beyond that: an app registers
how (`LocalLog.share`).

**Announcements** say what a commit did, after it: in this process at once, in the others through Redis
(`announce_redis`, where there is one). They carry the commit's revisions and its entries, or a sketch of each where the
documents are large or confidential, and may be lost or come out of order: listeners read the log where they miss
something, and poll it as well.

**Metrics.** The tail's are upstream's of the watch cache, whose part it plays.
Source of the names: apiserver/pkg/storage/cacher/metrics/metrics.go.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.utils.module_loading import import_string
from prometheus_client.core import Metric

from manciple import memory
from manciple.per_process import PerProcess
from manciple.store import records, sql
from manciple.store.records import Committed, EventRecord, Sketch, Written
from manciple.telemetry import metrics
from manciple.wire.base import ApiObject
from manciple.wire.errors import Expired
from manciple.wire.limits import for_everybody
from manciple.wire.registry import Kind, registry

# Reading the log once -------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

#: Seconds: how long a lost announcement can delay events.
POLL_INTERVAL = 0.5
#: Events read at a time.
BATCH = 1000
#: Seconds of waiting after database errors: the first, doubled each time up to the last.
BACKOFF = (0.1, 5.0)

Callback = Callable[[Sequence[EventRecord]], None]
OnExpired = Callable[[Expired], None]

Item = TypeVar("Item")

_HEAD = "revision, type, resource, namespace, name, uid, labels, fields, previous_labels, previous_fields, deleting"
_SKETCHED = "revision, resource, type, deleting, namespace, fields"
#: the counter's row beside every event, or alone where there is none
_READ = (
    "SELECT r.current, r.floor, e.* FROM store_revision r LEFT JOIN (SELECT {columns} FROM store_event "
    "WHERE {above}{conditions} ORDER BY revision LIMIT {limit}) e ON 1 = 1 WHERE r.id = 1 ORDER BY e.revision"
)
#: PostgreSQL plans a prepared statement again for each set of values as long as that seems cheaper than its general
#: plan, as it does for the end of a long log; yet planning takes three times as long as reading. Values in a subquery
#: make no difference to the plan. Between two bounds that it cannot see it expects few rows, and so uses the index,
#: however long the log is.
_ABOVE = "revision > (SELECT %s::bigint) AND revision <= (SELECT current FROM store_revision WHERE id = 1)"
_LIMIT = "(SELECT %s::bigint)"


@dataclass(frozen=True, slots=True)
class Stretch(Generic[Item]):
    """What happened after some revision, oldest first."""

    changes: Sequence[Item]
    revision: int  # all that happened up to here is told
    more: bool = False  # there may be something after it already


def latest_revision() -> int:
    return sql.counter()[0]


def floor() -> int:
    """The revision below which the log is pruned."""
    return sql.counter()[1]


def expired(revision: int, lowest: int) -> Expired:
    return Expired(f"too old resource version: {revision} ({lowest})")


def read_after(revision: int, *, resources: Collection[str] | None = None, limit: int = BATCH) -> list[EventRecord]:
    """The events above `revision`, oldest first, at most `limit`; of `resources` alone where they are given.

    Raises: Expired when events above `revision` may have been pruned, or the log does not reach `revision` (an older
    database was put back).
    """
    return list(stretch_after(revision, resources=resources, limit=limit).changes)


def stretch_after(
    revision: int, *, resources: Collection[str] | None = None, limit: int = BATCH, lean: bool = False
) -> Stretch[EventRecord]:
    """What `read_after` says, and how far that goes: one query, so both are of one moment.

    lean: without the documents of modifications, except those that this process has written. Controllers need few of
    them, and read these by `with_documents`.
    Raises: Expired, as `read_after`.
    """
    conditions = ""
    wanted: list[Any] = []
    if resources is not None:
        is_wanted, wanted = sql.is_one_of("resource", resources)
        conditions = f" AND {is_wanted}"
    own = records.cache.value.written_after(revision)
    is_own, numbers = sql.among("revision", own)
    left_out = f"{is_own} OR type = 'MODIFIED'" if lean else is_own
    columns = f"{_HEAD}, CASE WHEN {left_out} THEN NULL ELSE document END, CASE WHEN {is_own} THEN created_at END"
    found = _read(columns, conditions, revision, wanted, limit, of_columns=[*numbers, *numbers])
    changes = [_record(values, own) for values in found.changes]
    unknown = [] if lean else [one for one in changes if one.document is None]
    if unknown:
        read = {one.revision: one for one in with_documents(unknown)}
        if len(read) < len(unknown):
            raise expired(revision, floor())
        changes = [read.get(one.revision, one) for one in changes]
    return Stretch(changes, found.revision, found.more)


def with_documents(events: Iterable[EventRecord]) -> list[EventRecord]:
    """The same events, each with its document; those that have been pruned since are missing."""
    wanted = list(events)
    texts = sql.texts(one.revision for one in wanted if one.document is None)
    read = (one if one.document is not None else replace(one, document=texts.get(one.revision)) for one in wanted)
    return [one for one in read if one.document is not None]


def portion_after(
    revision: int, *, upto: int, resource: str, namespace: str, most: int, most_bytes: int
) -> Stretch[EventRecord]:
    """The first events above `revision` and up to `upto`, of one resource, and of one namespace unless that is "".

    At most `most` of them, and as many as fit into `most_bytes`, but at least one.
    Raises: Expired, as `read_after`.
    """
    conditions, values = " AND revision <= %s AND resource = %s", [upto, resource]
    if namespace:
        conditions, values = f"{conditions} AND namespace = %s", [*values, namespace]
    sized = _read(f"revision, {sql.size_function()}(document)", conditions, revision, values, most)
    count = total = 0
    for _, size in sized.changes:
        total += size
        if count and total > most_bytes:
            break
        count += 1
    more = sized.more or count < len(sized.changes)
    if not count:
        return Stretch([], upto)
    found = _read(f"{_HEAD}, document, NULL", conditions, revision, values, count)
    events = [_record(row, {}) for row in found.changes]
    return Stretch(events, events[-1].revision if more else upto, more)


def sketches_after(revision: int, *, resources: Collection[str], limit: int) -> Stretch[Sketch]:
    """What happened above `revision` to `resources` (at least one), and any deletion.

    Raises: Expired, as `read_after`.
    """
    is_wanted, wanted = sql.is_one_of("resource", resources)
    found = _read(_SKETCHED, f" AND ({is_wanted} OR type = 'DELETED')", revision, wanted, limit)
    sketches = [
        Sketch(number, resource, type_, bool(deleting), namespace, fields)
        for number, resource, type_, deleting, namespace, fields in found.changes
    ]
    return Stretch(sketches, found.revision, found.more)


def _read(
    columns: str,
    conditions: str,
    revision: int,
    values: Collection[object],
    limit: int,
    *,
    of_columns: Sequence[object] = (),
) -> Stretch[tuple[Any, ...]]:
    """values, of_columns: of the placeholders in `conditions` and in `columns`."""
    above, last = (_ABOVE, _LIMIT) if sql.on_postgresql() else ("revision > %s", "%s")
    statement = _READ.format(columns=columns, above=above, conditions=conditions, limit=last)
    found = sql.fetch(statement, [*of_columns, revision, *values, limit])
    latest, lowest = found[0][:2] if found else (sql.FIRST_REVISION, 0)
    # Pruning moves the floor before it removes anything, and a statement sees one state: the floor vouches for it.
    if revision < lowest:
        raise expired(revision, lowest)
    if revision > latest:
        _announcer.value.forget_entries()  # they may be of what this database has never seen
        raise Expired(f"too large resource version: {revision}, current: {latest}")
    events = [values[2:] for values in found if values[2] is not None]
    more = len(events) == limit
    return Stretch(events, events[-1][0] if more else latest, more)


def _record(values: tuple[Any, ...], own: Mapping[int, Committed]) -> EventRecord:
    """own: what this process has written. Object and moment vouch for it: where an older database was put back, a
    revision names something else."""
    revision, type_, resource, namespace, name, uid, labels, fields, old_labels, old_fields, *rest = values
    deleting, document, at = rest
    if at is not None and (uid, at) == (
        own[revision].object.metadata.uid,
        connection.ops.adapt_datetimefield_value(own[revision].at),
    ):
        document = own[revision].text
    return EventRecord(
        revision=revision,
        type=type_,
        resource=resource,
        namespace=namespace,
        name=name,
        uid=uid,
        document=document,
        stored_labels=labels,
        stored_fields=fields,
        stored_previous_labels=old_labels,
        stored_previous_fields=old_fields,
        deleting=bool(deleting),
    )


# Announcements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a commit did: the revisions from `first` to `last`, as the log has them.

    changes: as the log will show them; None where they are too many to carry, or unknown: then the log has to be read.
    entries: the same with their documents; () where these are long, or confidential.
    """

    first: int
    last: int
    changes: tuple[Sketch, ...] | None
    entries: Sequence[EventRecord] = field(default=(), compare=False)


OnAnnouncement = Callable[[Announcement], None]

#: What is written all the time, and what nobody in another process waits for.
QUIET = frozenset({"leases.coordination.k8s.io"})
#: Announcements whose entries are kept; and characters of the documents of one, or of several in a message.
MOST_TOLD, LONGEST_TOLD = 50, 1 << 16


class Announcer:
    """The announcements within one process."""

    def __init__(self) -> None:
        self._callbacks: dict[object, OnAnnouncement] = {}
        self._guard = threading.Lock()
        #: resource -> the newest revision that was announced of it; of "", where the resources were unknown
        self._newest: dict[str, int] = {}
        #: resource -> how many changes were announced of it; of "", as before
        self._changes: Counter[str] = Counter()
        #: first revision -> announcement, of those that leave nothing to be read; and how far all of them go
        self._told: dict[int, Announcement] = {}
        self._told_upto = 0

    def subscribe(self, callback: OnAnnouncement) -> Callable[[], None]:
        """Call `callback` after each commit of any process. Returns the function that ends it."""
        token = object()
        with self._guard:
            self._callbacks[token] = callback

        def unsubscribe() -> None:
            with self._guard:
                self._callbacks.pop(token, None)

        return unsubscribe

    def announce(self, announcement: Announcement) -> None:
        self._deliver(announcement)

    def newest(self, resources: Collection[str]) -> int:
        """The newest revision that was announced of any of `resources`; 0 for none."""
        announced = self._newest
        newest = announced.get("", 0)
        for resource in resources:  # asked at every decision: no list, no generator
            newest = max(newest, announced.get(resource, 0))
        return newest

    def changes(self, resources: Collection[str]) -> int:
        """How many changes of `resources` were announced so far."""
        return self._changes[""] + sum(self._changes[resource] for resource in resources)

    def entries_after(self, revision: int, *, but_quiet: bool) -> Stretch[EventRecord] | None:
        """See the function of that name."""
        entries, reached = list[EventRecord](), revision
        with self._guard:
            while (one := self._told.get(reached + 1)) is not None and (one.entries or but_quiet):
                entries += one.entries
                reached = one.last
            return Stretch(entries, reached, self._told_upto > reached) if reached > revision else None

    def forget_entries(self) -> None:
        with self._guard:
            self._told.clear()
            self._told_upto = 0

    @property
    def is_connected(self) -> bool:
        """Whether the commits of other processes, if there are any, are announced here."""
        return True

    def stop(self) -> None:
        """End the threads, if there are any."""

    def _deliver(self, announcement: Announcement) -> None:
        first, last, changes = announcement.first, announcement.last, announcement.changes
        counts = {"": last - first + 1} if changes is None else Counter(change.resource for change in changes)
        with self._guard:
            callbacks = tuple(self._callbacks.values())
            for resource, count in counts.items():
                self._newest[resource] = max(self._newest.get(resource, 0), last)
                self._changes[resource] += count
            self._told_upto = max(self._told_upto, last)
            if announcement.entries or changes == ():
                self._told[first] = announcement
                while len(self._told) > MOST_TOLD:
                    del self._told[next(iter(self._told))]
        for callback in callbacks:
            try:
                callback(announcement)
            except Exception:
                log.exception("a listener failed on revision %d", announcement.last)


def _of_settings() -> Announcer:
    """A process without Redis need not hold its library, which takes 6 MiB."""
    url: str = settings.REDIS_URL
    made: Announcer = import_string("manciple.store.announce_redis.RedisAnnouncer")(url) if url else Announcer()
    return made


_announcer = PerProcess(_of_settings, stop=lambda announcer: announcer.stop())


def subscribe(callback: OnAnnouncement) -> Callable[[], None]:
    """Call `callback` after each commit of any process, in a thread of the store's. Returns the function that ends it.

    Callbacks must be quick. A call may be missing (Redis was away) and never is the only way to learn of a revision.
    """
    return _announcer.value.subscribe(callback)


def newest(resources: Collection[str]) -> int:
    """The newest revision that was announced to this process of any of `resources`; 0 for none. Costs no query.

    An announcement may be late or lost: look at the log now and then as well (`POLL_INTERVAL`).
    """
    return _announcer.value.newest(resources)


def entries_after(revision: int, *, but_quiet: bool = False) -> Stretch[EventRecord] | None:
    """What was announced with its entries and follows `revision`; None where that is nothing. `more` tells whether more
    was announced, which is to be read in the log; and something may be on its way here.

    Revisions of commits follow each other without a gap, so what follows is all that there was until then.
    but_quiet: without what is `QUIET`.
    """
    return _announcer.value.entries_after(revision, but_quiet=but_quiet)


def announce(announcement: Announcement) -> None:
    """Announce a commit. Never fails and never waits for the network."""
    _announcer.value.announce(announcement)


def is_connected() -> bool:
    """Whether other processes' commits are announced to this one; false while Redis is away. True without Redis."""
    return _announcer.value.is_connected


# The tail -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Subscriber:
    callback: Callback
    on_expired: OnExpired
    position: int  # the newest revision it has been given
    quick: bool = False
    active: bool = True

    def give(self, records: Sequence[EventRecord]) -> None:
        self.position = records[-1].revision
        try:
            self.callback(records)
        except Exception:
            log.exception("a subscriber failed on events up to revision %d", self.position)

    def lose(self, error: Expired) -> None:
        """Raises: DatabaseError, InterfaceError, where the subscriber needs the database to start over."""
        self.active = False
        try:
            self.on_expired(error)
        except (DatabaseError, InterfaceError):
            raise
        except Exception:
            log.exception("a subscriber failed to give up")


class Tail:
    """The thread that follows the log. `Tail.instance()` is the process's; tests may make their own."""

    def __init__(self, *, poll_interval: float = POLL_INTERVAL) -> None:
        self._poll_interval = poll_interval
        self._guard = threading.Lock()
        self._wake = threading.Condition(self._guard)
        #: held by who calls the subscribers
        self._calling = threading.Lock()
        self._woken = False
        self._stopping = False
        self._subscribers: list[_Subscriber] = []
        self._current_at = time.monotonic()
        self._thread: threading.Thread | None = None

    @staticmethod
    def instance() -> Tail:
        return _tail.value

    def subscribe(
        self, callback: Callback, *, after: int, on_expired: OnExpired, quick: bool = False
    ) -> Callable[[], None]:
        """Call `callback(events)` in the tail's thread with every event above `after`, in order, without a gap.

        Returns the function that ends it; once that has returned no new call begins. `on_expired` is called, in the
        tail's thread, when the log no longer leads on from the subscriber's position: it was pruned past it while the
        database could not be read, or an older database was restored. That ends the subscription; the subscriber may
        start another one. A database error in `on_expired` makes the tail call it again.
        quick: the callback only hands on, and may be called by whoever announces, in the same order: no thread is woken
        where all subscribers are so.
        Raises: Expired when `after` is below the pruned floor.
        """
        lowest = floor()
        if after < lowest:
            raise expired(after, lowest)
        subscriber = _Subscriber(callback, on_expired, after, quick)
        with self._wake:
            self._subscribers.append(subscriber)
            self._start()
            self._notify()

        def unsubscribe() -> None:
            with self._guard:
                subscriber.active = False
                if subscriber in self._subscribers:
                    self._subscribers.remove(subscriber)

        return unsubscribe

    def stop(self) -> None:
        """End the thread, after the calls that are under way."""
        with self._wake:
            self._stopping = True
            self._notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @property
    def behind(self) -> float:
        """How many seconds old, beyond what polls take, its subscribers' knowledge may be; 0 while the log is read."""
        return max(0.0, time.monotonic() - self._current_at - 2 * self._poll_interval)

    def _start(self) -> None:
        if self._thread is None:
            self._current_at = time.monotonic()
            self._stopping = False
            self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
            self._thread.start()

    def _notify(self) -> None:
        self._woken = True
        self._wake.notify_all()

    def _on_announcement(self, _announcement: Announcement) -> None:
        if self._calling.acquire(blocking=False):
            try:
                if self._hand_on():
                    return
            finally:
                self._calling.release()
        with self._wake:
            self._notify()

    def _hand_on(self) -> bool:
        """Give what was announced whole to subscribers that are quick. Returns whether nothing is left to be done."""
        began = time.monotonic()
        for position, group in self._by_position().items():
            told = entries_after(position)
            if told is None or told.more or not all(one.quick for one in group):
                return False
            self._give(group, told.changes)
        self._current_at = began
        return True

    def _run(self) -> None:
        unsubscribe = subscribe(self._on_announcement)
        TAIL.value.revision = 0  # the log may be another one
        failures = count()
        try:
            while not self._stopping:
                try:
                    self._deliver()
                    failures = count()
                except (DatabaseError, InterfaceError):
                    log.exception("could not read the event log")
                    connection.close()
                    self._pause(next(failures))
                    continue
                self._sleep(self._poll_interval)
        finally:
            unsubscribe()
            connection.close()
            with self._guard:
                self._thread = None

    def _pause(self, failures: int) -> None:
        first, last = BACKOFF
        self._sleep(min(first * 2**failures, last))

    def _sleep(self, seconds: float) -> None:
        with self._wake:
            self._wake.wait_for(lambda: self._woken or self._stopping, timeout=seconds)
            self._woken = False

    def _deliver(self) -> None:
        """Bring every subscriber to the end of the log, a batch each in turn: no latecomer holds up the others."""
        began, more = time.monotonic(), 1
        while more and not self._stopping:
            began = time.monotonic()
            with self._calling:
                more = sum(self._advance(position, group) for position, group in self._by_position().items())
        self._current_at = began

    def _by_position(self) -> dict[int, list[_Subscriber]]:
        """Subscribers at the same position share one read: at the end of the log, all of them do."""
        groups: dict[int, list[_Subscriber]] = {}
        with self._guard:
            for subscriber in self._subscribers:
                groups.setdefault(subscriber.position, []).append(subscriber)
        return groups

    def _advance(self, position: int, group: Sequence[_Subscriber]) -> bool:
        """Returns whether there may be more for them."""
        try:
            stretch = entries_after(position) or stretch_after(position)
        except Expired as error:
            self._lose(group, error)
            return False
        if stretch.changes:
            self._give(group, stretch.changes)
        return stretch.more

    def _give(self, group: Sequence[_Subscriber], records: Sequence[EventRecord]) -> None:
        TAIL.value.read(records)
        for subscriber in group:
            if subscriber.active:
                subscriber.give(records)

    def _lose(self, subscribers: Sequence[_Subscriber], error: Expired) -> None:
        for subscriber in subscribers:
            subscriber.lose(error)
            with self._guard:
                if subscriber in self._subscribers:
                    self._subscribers.remove(subscriber)


_tail = PerProcess(Tail, stop=Tail.stop)


# This database's log as a source --------------------------------------------------------------------------------------


#: Events read at a time.
VIEW_BATCH = 2000
#: Documents in memory at a time, of a listing.
CHUNK = 200

#: of a kind's own type
Share = Callable[[Any], ApiObject]


class LocalLog:
    """The log of this database as a source, for one process."""

    def __init__(self) -> None:
        self._sharing: dict[str, Share] = {}
        #: the document's hash -> its value; the revision in it vouches that it is the one
        self._decoded: WeakValueDictionary[int, ApiObject] = WeakValueDictionary()
        #: resource -> its listing, where `keep` was called
        self._kept: dict[str, tuple[int, Sequence[ApiObject]]] = {}

    def share(self, resource: str, share: Share) -> None:
        """`share` gives an equal object, made of parts that others have too; called for each that is decoded."""
        self._sharing[resource] = share

    def keep(self, written: Mapping[str, Iterable[ApiObject]]) -> None:
        """All objects of these resources, as they were just written: for a process that writes once and ends."""
        revision = latest_revision()
        for resource, objects in written.items():
            self._kept[resource] = revision, sorted(objects, key=lambda one: one.key)

    def list(self, resource: str) -> tuple[int, Iterator[ApiObject]]:
        if (kept := self._kept.get(resource)) is not None:
            return kept[0], iter(kept[1])
        revision, latest = sql.latest_writes(resource)
        return revision, self._read(registry.by_resource(resource), revision, latest)

    def changes(self, resources: Sequence[str], after: int) -> Stretch[Written]:
        stretch = stretch_after(after, resources=resources, limit=VIEW_BATCH)
        return Stretch(list(map(self.written, stretch.changes)), stretch.revision, stretch.more)

    def written(self, record: EventRecord) -> Written:
        value = self._value(registry.by_resource(record.resource), record.revision, record.text)
        return Written(record.revision, record.type, record.resource, value)

    def _read(self, kind: Kind, revision: int, latest: Sequence[int]) -> Iterator[ApiObject]:
        """Documents never change under their revision; one that is missing was superseded, and pruned since."""
        for chunk in sql.chunks(latest, CHUNK):
            texts = sql.texts(chunk)
            if len(texts) < len(chunk):
                raise expired(revision, floor())
            for number in chunk:
                yield self._value(kind, number, texts.pop(number))

    def _value(self, kind: Kind, revision: int, text: str) -> ApiObject:
        known = self._decoded.get(hash(text))
        if known is not None and known.metadata.resource_version == str(revision) and isinstance(known, kind.type):
            return known
        found = records.decode(kind, text)
        if (share := self._sharing.get(kind.resource)) is not None:
            found = share(found)
        self._decoded[hash(text)] = found
        return found


#: of this process
LOG = LocalLog()


class AnnouncedLog:
    """The same as announcements tell it, for a view that is brought up to date again before anything rests on it: what
    was announced whole is not read, and what is on its way is missed.
    """

    def list(self, resource: str) -> tuple[int, Iterator[ApiObject]]:
        return LOG.list(resource)

    def changes(self, resources: Sequence[str], after: int) -> Stretch[Written]:
        told = entries_after(after, but_quiet=QUIET.isdisjoint(resources))
        if told is None or told.more:
            return LOG.changes(resources, after)
        return Stretch([LOG.written(one) for one in told.changes if one.resource in resources], told.revision)


# Views and followers --------------------------------------------------------------------------------------------------


#: Changes announced of a view's resources since it was last used, from which on it is dropped.
MOST_MISSED = 20_000
#: Listings that may come to nothing in a row, because the log is pruned faster than they are made.
ATTEMPTS = 5

ObjectT = TypeVar("ObjectT", bound=ApiObject)


class Source(Protocol):
    """Where objects are, and what happens to them. Revisions are of the whole source and grow."""

    def list(self, resource: str) -> tuple[int, Iterable[ApiObject]]:
        """(a revision, the objects as they were then). Raises: Expired, while they are read too."""
        ...

    def changes(self, resources: Sequence[str], after: int) -> Stretch[Written]:
        """What happened to `resources` after that revision, a bounded number of changes at a time.

        Raises: Expired where that is no longer known, or that revision is not reached.
        """
        ...


class View(ABC):
    """What somebody makes of the objects of `resources`."""

    resources: ClassVar[Sequence[str]]
    #: everything up to here is in the view
    revision: int = 0

    @abstractmethod
    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        """Take in all objects of a resource; once each, in the order of `resources`, before anything else."""

    @abstractmethod
    def apply(self, changes: Sequence[Written]) -> None:
        """Take in what happened, in order. `revision` is still the one before."""

    def ready(self) -> None:  # noqa: B027 - most have nothing to do
        """Called once, when everything is listed: what is applied from now on is news."""


class ObjectsView(View):
    """The objects themselves, those that it `keeps`."""

    def __init__(self) -> None:
        #: resource -> (namespace, name) -> as it is
        self._objects: dict[str, dict[tuple[str, str], ApiObject]] = {one: {} for one in self.resources}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        self._objects[resource] = {one.key: one for one in objects if self.keeps(one)}

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            known = self._objects[change.resource]
            if change.type != "DELETED" and self.keeps(change.object):
                known[change.object.key] = change.object
            else:
                known.pop(change.object.key, None)

    def keeps(self, obj: ApiObject) -> bool:  # noqa: ARG002 - unless somebody is choosy
        return True

    def all(self, type_: type[ObjectT]) -> list[ObjectT]:
        return [one for known in self._objects.values() for one in known.values() if isinstance(one, type_)]


ViewT = TypeVar("ViewT", bound=View)


def advance(view: View, source: Source = LOG, *, listed: Mapping[str, int] | None = None) -> None:
    """Apply what happened beyond `view.revision`. listed: up to where the view has each resource, if that is further.

    Raises: Expired; the view is then as it was, or on its way.
    """
    more = True
    while more:
        stretch = source.changes(view.resources, view.revision)
        changes = stretch.changes
        if listed:
            changes = [change for change in changes if change.revision > listed.get(change.resource, 0)]
        if changes:
            view.apply(changes)
        view.revision, more = max(stretch.revision, view.revision), stretch.more


def listed(make: Callable[[], ViewT], source: Source = LOG) -> ViewT:
    """A new view, up to date. Raises: Expired, when the log is pruned again and again while the listings are read."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _listed(make(), source)
        except Expired as error:
            log.warning("the list is already out of date: %s", error.message)
    return _listed(make(), source)


def _listed(view: ViewT, source: Source) -> ViewT:
    revisions = {}
    for resource in view.resources:
        _LISTINGS[_group_and_plural(resource)].inc()
        revisions[resource], objects = source.list(resource)
        view.fill(resource, objects)
    view.revision = min(revisions.values())
    advance(view, source, listed=revisions)
    view.ready()
    return view


def since(after: int | None, read: Callable[[int], Stretch[Item]]) -> Stretch[Item] | None:
    """What `read` tells after a place in the log that somebody keeps who has no view.

    None where they look at everything anew: they have no place yet, or the log does not lead on from there.
    """
    if after is None:
        return None
    try:
        return read(after)
    except Expired as error:
        log.info("starting over: %s", error.message)
        return None


@dataclass(slots=True)
class _Followed(Generic[ViewT]):
    """looked: when the view was brought up to date, by the monotonic clock. place: see `Follower.place`. announced: how
    many changes of its resources had been announced when it was last used.
    """

    view: ViewT | None = None
    looked: float = 0.0
    announced: int = 0
    place: tuple[str, int] = ("", 0)


class Follower(Generic[ViewT]):
    """One view of the process, for whoever asks."""

    #: of this process
    every: ClassVar[weakref.WeakSet[Follower[View]]] = weakref.WeakSet()

    def __init__(
        self, make: Callable[[], ViewT], *, source: Source = LOG, turn: AbstractContextManager[object] | None = None
    ) -> None:
        """turn: what one thread at a time holds; a lock of its own unless given."""
        self._make, self._source = make, source
        self._turn = turn or threading.Lock()
        self._followed = PerProcess(_Followed[ViewT])
        Follower.every.add(self)  # type: ignore[arg-type]  # of whatever view

    @contextmanager
    def view(self, *, within: float = 0.0) -> Iterator[ViewT]:
        """The view, up to date, for this thread alone.

        within: seconds for which the announcements are trusted to tell whether anything happened; 0 asks the database.
        """
        with self._turn:
            followed = self._followed.value
            last, followed.view = followed.view, None
            if last is not None and self._is_recent(last, followed.looked, within):
                view = last
            else:
                looked = time.monotonic()
                with for_everybody():
                    view = self._advanced(last) or listed(self._make, self._source)
                followed.looked = looked
            followed.place = (type(view).__name__, view.revision)
            followed.announced = _announcer.value.changes(view.resources)
            yield view
            followed.view = view

    @property
    def place(self) -> tuple[str, int]:
        """The name of the view, and its revision when it was last used; ("", 0) before."""
        return self._followed.value.place

    def _is_recent(self, view: ViewT, looked: float, within: float) -> bool:
        return (
            time.monotonic() - looked < within
            and newest(view.resources) <= view.revision
            and not connection.in_atomic_block
        )

    def reset(self) -> None:
        """List everything again at the next use."""
        with self._turn:
            self._followed.reset()

    def drop_outdated(self) -> None:
        """See the module."""
        if self._is_outdated():
            with self._turn:
                if self._is_outdated():
                    self._followed.reset()

    def _is_outdated(self) -> bool:
        view = self._followed.value.view if self._followed.is_made else None
        missed = 0 if view is None else _announcer.value.changes(view.resources) - self._followed.value.announced
        return missed > MOST_MISSED

    def _advanced(self, view: ViewT | None) -> ViewT | None:
        """None where the source does not lead from there to now."""
        if view is None:
            return None
        try:
            advance(view, self._source)
        except Expired as error:
            log.info("listing again: %s", error.message)
            return None
        return view


@memory.each_minute
def drop_outdated() -> None:
    """The views of this process that nobody has used for long."""
    for follower in tuple(Follower.every):
        follower.drop_outdated()


def _of_views() -> Iterable[Metric]:
    places = dict(one.place for one in tuple(Follower.every) if one.place[0])
    yield metrics.gauges(
        "manciple_view_revision",
        "Revision of a view of this process when it was last used.",
        ("view",),
        metrics.by_one(dict(sorted(places.items()))),
    )


metrics.OnDemand(_of_views)


# Metrics --------------------------------------------------------------------------------------------------------------


_LISTINGS = metrics.counter(
    "apiserver_watch_cache_initializations_total", "Listings by which a view of the log began.", "group", "resource"
)


def _group_and_plural(resource: str) -> tuple[str, str]:
    """(group, resource) of "pods" or "resourceclaims.resource.k8s.io"."""
    plural, _, group = resource.partition(".")
    return group, plural


@dataclass(slots=True)
class TailTold:
    """What the tail of the log read and handed on. Written by its thread, read by whoever tells it."""

    revision: int = 0
    received: Counter[str] = field(default_factory=Counter)
    dispatched: Counter[str] = field(default_factory=Counter)
    #: resource -> the newest revision of it that was read
    newest: dict[str, int] = field(default_factory=dict)

    def read(self, records: Sequence[EventRecord]) -> None:
        """These were read and are handed on; some once more, to who came late."""
        for record in records:
            self.dispatched[record.resource] += 1
            if record.revision > self.revision:
                self.received[record.resource] += 1
                self.newest[record.resource] = record.revision
        self.revision = max(self.revision, records[-1].revision)


TAIL = PerProcess(TailTold)


def _of_tail() -> Iterable[Metric]:
    tail = TAIL.value
    labels, prefix = ("group", "resource"), "apiserver_watch_cache_"
    yield metrics.counters(
        f"{prefix}events_received", "Entries of the log that this process read.", labels, _by_resource(tail.received)
    )
    yield metrics.counters(
        f"{prefix}events_dispatched",
        "Entries of the log that were handed to watches and pages.",
        labels,
        _by_resource(tail.dispatched),
    )
    yield metrics.gauges(
        f"{prefix}resource_version",
        "The newest entry of a resource that was read.",
        labels,
        _by_resource(tail.newest),
    )
    yield metrics.gauges("manciple_tail_revision", "How far this process has read the log.", (), [((), tail.revision)])


def _by_resource(numbers: Mapping[str, int]) -> Iterator[metrics.Sample]:
    return ((_group_and_plural(resource), number) for resource, number in dict(numbers).items())


metrics.OnDemand(_of_tail)
