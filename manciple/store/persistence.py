"""How a transaction's writes reach the tables: the counter's lock, and everything else in bulk.

Whoever writes holds the counter row's lock from the first statement to the commit, so writers come one after the other
and a revision becomes visible only when all below it are. On SQLite the transaction is immediate, and a first-come
first-served turn within the process stands before it, because SQLite's own busy wait lets some wait for seconds.

Rows go out as one `executemany` a table (which psycopg pipelines); many events at once go to PostgreSQL by COPY.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from manciple.store import documents, rows
from manciple.store.metadata import collector_duty
from manciple.store.records import EventType
from manciple.wire.base import ApiObject, OwnerReference
from manciple.wire.registry import Kind, registry

#: Below this many rows COPY costs more than it saves.
COPY_FROM = 20


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
        mine.wait()

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


@contextmanager
def locked_counter() -> Iterator[tuple[int, int]]:
    """A transaction that holds the counter's lock: yields (current revision, floor)."""
    # Inside somebody's transaction the database lock is held already: waiting for a turn could only deadlock.
    in_turn = connection.vendor == "sqlite" and not connection.in_atomic_block
    with _turn if in_turn else nullcontext(), transaction.atomic():
        yield _lock()


def _lock() -> tuple[int, int]:
    locking = " FOR UPDATE" if connection.features.has_select_for_update else ""
    statement = "SELECT current, floor FROM store_revision WHERE id = 1" + locking
    found = rows.fetch(statement)
    if not found:
        with connection.cursor() as cursor:
            insert = "INSERT INTO store_revision (id, current, floor) VALUES (1, %s, 0) ON CONFLICT DO NOTHING"
            cursor.execute(insert, [rows.FIRST_REVISION])
        found = rows.fetch(statement)
    return found[0][0], found[0][1]


def _many(statement: str, parameters: Sequence[Sequence[Any]]) -> None:
    if parameters:
        with connection.cursor() as cursor:
            cursor.executemany(statement, parameters)


def _among(statement: str, values: Iterable[str]) -> None:
    """Run `statement` with IN lists in place of {}."""
    for chunk in rows.chunks(values):
        with connection.cursor() as cursor:
            cursor.execute(statement.format(", ".join(["%s"] * len(chunk))), chunk)


def move_counter(revision: int) -> None:
    _many("UPDATE store_revision SET current = %s WHERE id = 1", [(revision,)])


def move_floor(revision: int) -> None:
    _many("UPDATE store_revision SET floor = %s WHERE id = 1", [(revision,)])


_EVENT_COLUMNS = (
    "revision, type, resource, namespace, name, uid, deleting, previous_revision, created_at, "
    "labels, fields, previous_labels, previous_fields, document"
)
_INSERT_EVENT = f"INSERT INTO store_event ({_EVENT_COLUMNS}) VALUES ({', '.join(['%s'] * 14)})"  # noqa: S608


def append_events(events: Sequence[NewEvent], now: datetime) -> None:
    created_at: Any = now
    if connection.vendor == "postgresql" and len(events) >= COPY_FROM:
        with connection.cursor() as cursor, cursor.copy(f"COPY store_event ({_EVENT_COLUMNS}) FROM STDIN") as copy:
            for event in events:
                copy.write_row(_event_row(event, created_at))
        return
    created_at = connection.ops.adapt_datetimefield_value(now)
    _many(_INSERT_EVENT, [_event_row(event, created_at) for event in events])


def _event_row(event: NewEvent, created_at: Any) -> tuple[Any, ...]:
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
    _among("DELETE FROM store_storedobject WHERE uid IN ({})", [change.current.uid for change in deleted])
    _many(
        "INSERT INTO store_storedobject (uid, resource, namespace, name, event_id, propagation) "
        "VALUES (%s, %s, %s, %s, %s, %s)",
        [_object_row(change) for change in added],
    )
    _many(
        "UPDATE store_storedobject SET event_id = %s, propagation = %s WHERE uid = %s",
        [(c.current.revision, collector_duty(c.current.object.metadata), c.current.uid) for c in modified],
    )
    relinked = [change for change in modified if change.previous is not None and _owners_differ(change)]
    unlink([change.current.uid for change in (*deleted, *relinked) if change.previous and _owners(change.previous)])
    link([(change.kind, change.current.object) for change in (*added, *relinked)])
    _among("UPDATE store_ownerlink SET gone = TRUE WHERE owner_uid IN ({})", [change.current.uid for change in deleted])


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


def _owners(current: Current) -> tuple[OwnerReference, ...]:
    return current.object.metadata.owner_references


def _owners_differ(change: NetChange) -> bool:
    return change.previous is None or _owners(change.current) != _owners(change.previous)


def unlink(uids: Iterable[str]) -> None:
    """Forget the owner references of these objects."""
    _among("DELETE FROM store_ownerlink WHERE object_id IN ({})", uids)


def link(dependents: Sequence[tuple[Kind, ApiObject]]) -> None:
    """Write the owner references of `dependents`, none of which has any yet."""
    pairs = [
        (obj.metadata, owner, owner_key(kind, obj, owner))
        for kind, obj in dependents
        for owner in obj.metadata.owner_references
    ]
    living = _living({owner.uid for _, owner, _ in pairs})
    _many(
        "INSERT INTO store_ownerlink (object_id, owner_uid, gone, controller, blocking) VALUES (%s, %s, %s, %s, %s)",
        [
            (
                meta.uid,
                owner.uid,
                key is not None and living.get(owner.uid) != key,
                bool(owner.controller),
                bool(owner.block_owner_deletion),
            )
            for meta, owner, key in pairs
        ],
    )


def owner_key(kind: Kind, dependent: ApiObject, owner: OwnerReference) -> tuple[str, str, str] | None:
    """(resource, namespace, name) where the owner must live; None where that cannot be told: then it never counts as gone.

    That is so for a kind nobody registered, and for a namespaced owner of a cluster-wide object.
    """
    owner_kind = registry.find_kind(owner.api_version, owner.kind)
    if owner_kind is None or (owner_kind.namespaced and not kind.namespaced):
        return None
    namespace = dependent.metadata.namespace if owner_kind.namespaced else ""
    return (owner_kind.resource, namespace, owner.name)


def _living(uids: Iterable[str]) -> dict[str, tuple[str, str, str]]:
    found: dict[str, tuple[str, str, str]] = {}
    for chunk in rows.chunks(uids):
        places = ", ".join(["%s"] * len(chunk))
        statement = f"SELECT uid, resource, namespace, name FROM store_storedobject WHERE uid IN ({places})"  # noqa: S608
        found.update(
            (uid, (resource, namespace, name)) for uid, resource, namespace, name in rows.fetch(statement, chunk)
        )
    return found


def as_current(kind: Kind, row: rows.Row) -> Current:
    return Current(documents.decode(kind, row.text or "{}"), row.revision, row.labels, row.fields)
