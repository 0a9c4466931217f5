"""How a transaction's writes reach the tables: the counter's lock, then everything in bulk.

Whoever writes holds the counter row's lock from the first statement to the commit, so writers come one after the other
and a revision becomes visible only when all below it are. On SQLite the transaction is immediate, and a first-come
first-served turn within the process stands before it, because SQLite's own busy wait lets some wait for seconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection, transaction

from manciple.store import bulk, documents, owners, rows
from manciple.store.metadata import collector_duty
from manciple.store.models import Event, StoredObject
from manciple.store.records import EventType
from manciple.wire.base import ApiObject, OwnerReference
from manciple.wire.registry import Kind


class Turn:
    """A lock that is granted in the order of asking. Not reentrant."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        try:
            mine.wait()
        except BaseException:  # Ctrl-C: whoever goes away must not be given the turn
            self._leave_line(mine)
            raise

    def _leave_line(self, mine: threading.Event) -> None:
        with self._guard:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return
        self.__exit__()  # it was given meanwhile

    def __exit__(self, *_exception: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False


_turn = Turn()


@dataclass(frozen=True, slots=True)
class Current:
    """An object as the transaction sees it: committed, or written by the transaction itself."""

    object: ApiObject
    revision: int
    labels: str
    fields: str

    @property
    def uid(self) -> str:
        return self.object.metadata.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event that the transaction will append; `previous` is what it supersedes."""

    revision: int
    type: EventType
    kind: Kind
    current: Current
    text: str
    previous: Current | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetChange:
    """What the transaction did to one object altogether."""

    type: EventType
    kind: Kind
    current: Current
    previous: Current | None


class Locked(NamedTuple):
    """What a transaction knows once it holds the counter's lock."""

    revision: int
    floor: int
    #: of the objects that were asked for, those that exist
    found: dict[rows.Key, rows.Row]


@contextmanager
def locked_counter(references: Sequence[rows.Reference] = ()) -> Iterator[Locked]:
    """A transaction that holds the counter's lock, and has read `references` since."""
    # Inside somebody's transaction the database lock is held already: waiting for a turn could only deadlock.
    in_turn = connection.vendor == "sqlite" and not connection.in_atomic_block
    with _turn if in_turn else nullcontext(), transaction.atomic():
        yield _lock(references)


def _lock(references: Sequence[rows.Reference]) -> Locked:
    statement = "SELECT current, floor FROM store_revision WHERE id = 1"
    if connection.features.has_select_for_update:
        statement += " FOR UPDATE"
    # Each statement sees what is committed when it begins: the second begins once the first has the lock.
    queries = [(statement, ()), *rows.references_queries(references)]
    counter, *answers = bulk.fetch_together(queries)
    if not counter:
        # The first write of all. Two may get here at once: the second waits for the first's row, then reads it.
        insert = "INSERT INTO store_revision (id, current, floor) VALUES (1, %s, 0) ON CONFLICT DO NOTHING"
        bulk.execute(insert, [rows.FIRST_REVISION])
        counter, *answers = bulk.fetch_together(queries)
    ((revision, floor),) = counter
    return Locked(revision, floor, rows.references_found(answers))


def move_counter(revision: int) -> None:
    bulk.execute("UPDATE store_revision SET current = %s WHERE id = 1", [revision])


def move_floor(revision: int) -> None:
    bulk.execute("UPDATE store_revision SET floor = %s WHERE id = 1", [revision])


_EVENT_COLUMNS = (
    "revision",
    "type",
    "resource",
    "namespace",
    "name",
    "uid",
    "deleting",
    "previous_revision",
    "created_at",
    "labels",
    "fields",
    "previous_labels",
    "previous_fields",
    "document",
)
_OBJECT_COLUMNS = ("uid", "resource", "namespace", "name", "event_id", "propagation")


def append_events(events: Sequence[NewEvent], now: datetime) -> None:
    bulk.insert(Event, _EVENT_COLUMNS, [_event_row(event, now) for event in events])


def _event_row(event: NewEvent, created_at: datetime) -> tuple[Any, ...]:
    meta, previous = event.current.object.metadata, event.previous
    return (
        event.revision,
        event.type,
        event.kind.resource,
        meta.namespace,
        meta.name,
        meta.uid,
        meta.deletion_timestamp is not None,
        previous.revision if previous else None,
        created_at,
        event.current.labels,
        event.current.fields,
        previous.labels if previous else None,
        previous.fields if previous else None,
        event.text,
    )


def store_objects(changes: Sequence[NetChange]) -> None:
    """Bring the live objects and their owner links up to what `changes` say. Deletions first: names may be reused."""
    deleted = [change for change in changes if change.type == "DELETED"]
    added = [change for change in changes if change.type == "ADDED"]
    modified = [change for change in changes if change.type == "MODIFIED"]
    bulk.delete(StoredObject, ["uid"], [(change.current.uid,) for change in deleted])
    bulk.insert(StoredObject, _OBJECT_COLUMNS, [_object_row(change) for change in added])
    moved = [(c.current.uid, c.current.revision, collector_duty(c.current.object.metadata)) for c in modified]
    bulk.update(StoredObject, "uid", ["event_id", "propagation"], moved)
    _relink(added=added, modified=modified, deleted=deleted)


def _object_row(change: NetChange) -> tuple[Any, ...]:
    meta = change.current.object.metadata
    return (
        meta.uid,
        change.kind.resource,
        meta.namespace,
        meta.name,
        change.current.revision,
        collector_duty(meta),
    )


def _relink(*, added: Sequence[NetChange], modified: Sequence[NetChange], deleted: Sequence[NetChange]) -> None:
    adopted = [change for change in modified if _owners(change.current) != _owners(change.previous)]
    owners.unlink(change.current.uid for change in (*deleted, *adopted) if _owners(change.previous))
    owners.link([(change.kind, change.current.object) for change in (*added, *adopted)])
    owners.mark_gone(change.current.uid for change in deleted)


def _owners(current: Current | None) -> tuple[OwnerReference, ...]:
    return () if current is None else current.object.metadata.owner_references


def as_current(kind: Kind, row: rows.Row) -> Current:
    """A row that was read with its document."""
    return Current(documents.decode(kind, row.text or ""), row.revision, row.labels, row.fields)
