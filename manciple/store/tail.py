"""Reading the event log: once (`read_after`, `stretch_after`), or as it grows (`Tail`).

A process has one `Tail`: a thread that is woken by announcements, polls as a backstop, reads new events once, and hands
them to every subscriber in order. A subscriber that starts behind gets what is missing before it goes live, so it sees
every event after its starting point exactly once. One that raises is logged and goes on with the next events.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from django.db import DatabaseError, InterfaceError, connection

from manciple.per_process import PerProcess
from manciple.store import announce, records, sql
from manciple.store.log_metrics import TAIL
from manciple.store.records import Committed, EventRecord, EventType
from manciple.wire.errors import Expired

__all__ = [
    "EventRecord",
    "Stretch",
    "Tail",
    "expired",
    "floor",
    "latest_revision",
    "portion_after",
    "read_after",
    "sketches_after",
    "stretch_after",
    "with_documents",
]

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
    "WHERE revision > %s{conditions} ORDER BY revision LIMIT %s) e ON 1 = 1 WHERE r.id = 1 ORDER BY e.revision"
)


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
    if resources is not None:
        conditions = f" AND resource IN ({_places(resources)})" if resources else " AND 1 = 0"
    own = records.cache().written_after(revision)
    is_own, numbers = sql.among("revision", own)
    left_out = f"{is_own} OR type = 'MODIFIED'" if lean else is_own
    columns = f"{_HEAD}, CASE WHEN {left_out} THEN NULL ELSE document END, CASE WHEN {is_own} THEN created_at END"
    found = _read(columns, conditions, revision, resources or (), limit, of_columns=[*numbers, *numbers])
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


class Sketch(NamedTuple):
    """An event as far as it can be told without its document."""

    revision: int
    resource: str
    type: EventType
    deleting: bool  # metadata.deletionTimestamp is set
    namespace: str = ""
    stored_fields: str = "{}"

    @property
    def fields(self) -> dict[str, str]:
        """The selectable ones. Read where somebody asks: most of what dispatchers see concerns nobody's fields."""
        return records.load(self.stored_fields)


def sketches_after(revision: int, *, resources: Collection[str], limit: int) -> Stretch[Sketch]:
    """What happened above `revision` to `resources` (at least one), and any deletion.

    Raises: Expired, as `read_after`.
    """
    conditions = f" AND (resource IN ({_places(resources)}) OR type = 'DELETED')"
    found = _read(_SKETCHED, conditions, revision, resources, limit)
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
    statement = _READ.format(columns=columns, conditions=conditions)
    found = sql.fetch(statement, [*of_columns, revision, *values, limit])
    latest, lowest = found[0][:2] if found else (sql.FIRST_REVISION, 0)
    # Pruning moves the floor before it removes anything, and a statement sees one state: the floor vouches for it.
    if revision < lowest:
        raise expired(revision, lowest)
    if revision > latest:
        raise Expired(f"too large resource version: {revision}, current: {latest}")
    events = [values[2:] for values in found if values[2] is not None]
    more = len(events) == limit
    return Stretch(events, events[-1][0] if more else latest, more)


def _places(resources: Collection[str]) -> str:
    return ", ".join(["%s"] * len(resources))


def _record(values: tuple[Any, ...], own: Mapping[int, Committed]) -> EventRecord:
    """own: what this process has written. Object and moment vouch for it: where an older database was put back, a
    revision names something else."""
    revision, type_, resource, namespace, name, uid, labels, fields, old_labels, old_fields, *rest = values
    deleting, document, at = rest
    if at is not None and (uid, at) == (own[revision].object.metadata.uid, sql.adapted(own[revision].at)):
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


@dataclass(slots=True, eq=False)
class _Subscriber:
    callback: Callback
    on_expired: OnExpired
    position: int  # the newest revision it has been given
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
        self._woken = False
        self._stopping = False
        self._subscribers: list[_Subscriber] = []
        self._current_at = time.monotonic()
        self._thread: threading.Thread | None = None

    @staticmethod
    def instance() -> Tail:
        return _tail()

    def subscribe(self, callback: Callback, *, after: int, on_expired: OnExpired) -> Callable[[], None]:
        """Call `callback(events)` in the tail's thread with every event above `after`, in order, without a gap.

        Returns the function that ends it; once that has returned no new call begins. `on_expired` is called, in the
        tail's thread, when the log no longer leads on from the subscriber's position: it was pruned past it while the
        database could not be read, or an older database was restored. That ends the subscription; the subscriber may
        start another one. A database error in `on_expired` makes the tail call it again.
        Raises: Expired when `after` is below the pruned floor.
        """
        lowest = floor()
        if after < lowest:
            raise expired(after, lowest)
        subscriber = _Subscriber(callback, on_expired, after)
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

    def _on_announcement(self, _revision: int) -> None:
        with self._wake:
            self._notify()

    def _run(self) -> None:
        unsubscribe = announce.subscribe(self._on_announcement)
        TAIL().revision = 0  # the log may be another one
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
        began, moved = time.monotonic(), 1
        while moved and not self._stopping:
            began = time.monotonic()
            moved = sum(self._advance(position, group) for position, group in self._by_position().items())
        self._current_at = began

    def _by_position(self) -> dict[int, list[_Subscriber]]:
        """Subscribers at the same position share one read: at the end of the log, all of them do."""
        groups: dict[int, list[_Subscriber]] = {}
        with self._guard:
            for subscriber in self._subscribers:
                groups.setdefault(subscriber.position, []).append(subscriber)
        return groups

    def _advance(self, position: int, group: Sequence[_Subscriber]) -> bool:
        try:
            records = read_after(position)
        except Expired as error:
            self._lose(group, error)
            return False
        if records:
            TAIL().read(records)
        for subscriber in group:
            if records and subscriber.active:
                subscriber.give(records)
        return bool(records)

    def _lose(self, subscribers: Sequence[_Subscriber], error: Expired) -> None:
        for subscriber in subscribers:
            subscriber.lose(error)
            with self._guard:
                if subscriber in self._subscribers:
                    self._subscribers.remove(subscriber)


_tail = PerProcess(Tail, stop=Tail.stop)
