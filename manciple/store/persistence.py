"""How a transaction's writes reach the tables: the counter's lock, then everything in bulk.

Whoever writes holds the counter row's lock from the first statement to the commit, so writers come one after the other
and a revision becomes visible only when all below it are. On SQLite the transaction is immediate, and a first-come
first-served turn within the process stands before it, because SQLite's own busy wait lets some wait for seconds.

The owner links are metadata.ownerReferences of every live object, with what the garbage collector asks of them. A link
is `gone` once no live object has the owner's uid under the kind, name and namespace that the reference names. A uid
never comes back, so gone links stay gone, and finding garbage costs as much as there is garbage.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import QuerySet

from manciple.store import records, sealing, sql
from manciple.store.models import Event, OwnerLink, StoredObject
from manciple.store.records import EventType
from manciple.wire.base import ApiObject, ObjectMeta, OwnerReference
from manciple.wire.registry import Kind, registry
from manciple.wire.validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

# Owner links ----------------------------------------------------------------------------------------------------------


Key = tuple[str, str, str]  # (resource, namespace, name)

_LINK_COLUMNS = ("object_id", "owner_uid", "resolvable", "gone", "controller", "blocking")


def unlink(uids: Iterable[str]) -> None:
    """Forget the owner references of these objects."""
    sql.delete(OwnerLink, ["object_id"], [(uid,) for uid in uids])


def link(dependents: Sequence[tuple[Kind, ApiObject]], *, written: Mapping[str, Key] | None = None) -> None:
    """Write the owner references of `dependents`, none of which has any links yet. Their owners are stored by now.

    written: uid -> key of live objects that the transaction has written itself; they are not asked for.
    """
    pairs = [
        (obj.metadata.uid, owner, owner_key(kind, obj, owner))
        for kind, obj in dependents
        for owner in obj.metadata.owner_references
    ]
    known = written or {}
    owners = {owner.uid for _, owner, _ in pairs}
    living = {**known, **_living(owners - known.keys())}
    found = []
    for uid, owner, key in pairs:
        leads = key is not None and living.get(owner.uid) == key
        # Who names an owner that is another namespace's, or of another kind than it says, holds nobody up.
        blocks = leads and bool(owner.block_owner_deletion)
        found.append((uid, owner.uid, key is not None, key is not None and not leads, bool(owner.controller), blocks))
    sql.insert(OwnerLink, _LINK_COLUMNS, found)


def mark_gone(uids: Iterable[str]) -> None:
    """These objects are deleted: links to them lead nowhere."""
    for chunk in sql.chunks(uids, sql.PARAMETERS):
        places = ", ".join(["%s"] * len(chunk))
        statement = f"UPDATE store_ownerlink SET gone = TRUE WHERE resolvable AND owner_uid IN ({places})"  # noqa: S608
        sql.execute(statement, chunk)


def owner_key(kind: Kind, dependent: ApiObject, owner: OwnerReference) -> Key | None:
    """Where the owner must live; None where that cannot be told, and then it never counts as gone.

    That is so for a kind that nobody registered, and for a namespaced owner of a cluster-wide object.
    """
    owner_kind = _owner_kind(owner)
    if owner_kind is None or (owner_kind.namespaced and not kind.namespaced):
        return None
    namespace = dependent.metadata.namespace if owner_kind.namespaced else ""
    return (owner_kind.resource, namespace, owner.name)


def _owner_kind(owner: OwnerReference) -> Kind | None:
    """The kind of an owner, under whichever of its served versions the reference names it."""
    group, _, version = owner.api_version.rpartition("/")
    return registry.of_kind(group, version, owner.kind)


def _living(uids: Iterable[str]) -> dict[str, Key]:
    columns = ["uid", "resource", "namespace", "name"]
    found = sql.select(StoredObject, columns, ["uid"], [(uid,) for uid in uids])
    return {uid: (resource, namespace, name) for uid, resource, namespace, name in found}


def any_being_deleted(resource: str) -> sql.Query:
    """The query whether any object of `resource` has a deletionTimestamp. Reads each of them: for kinds with few."""
    return (
        "SELECT EXISTS (SELECT 1 FROM store_storedobject o JOIN store_event e ON e.revision = o.event_id "
        "WHERE o.resource = %s AND e.deleting)",
        (resource,),
    )


def controlled_by(owner_uids: QuerySet[Any, Any], kind: Kind) -> list[tuple[str, str]]:
    """(namespace, name) of the live objects of `kind` that one of these owners controls. One query."""
    links = OwnerLink.objects.filter(owner_uid__in=owner_uids, controller=True)
    owned = StoredObject.objects.filter(uid__in=links.values("object_id"), resource=kind.resource)
    return list(owned.values_list("namespace", "name"))


def dependents(owner_uids: Collection[str], kind: Kind) -> dict[str, list[tuple[str, str]]]:
    """owner uid -> (namespace, name) of the live objects of `kind` that name it, oldest first; committed ones only. Two
    queries."""
    links = sql.select(OwnerLink, ["object_id", "owner_uid"], ["owner_uid"], [(uid,) for uid in owner_uids])
    columns = ["uid", "resource", "event_id", "namespace", "name"]
    objects = {uid: rest for uid, *rest in sql.select(StoredObject, columns, ["uid"], [link[:1] for link in links])}
    rows = sorted((*objects[uid], owner) for uid, owner in links if objects.get(uid, ("",))[0] == kind.resource)
    found: dict[str, list[tuple[str, str]]] = {}
    for _, _, namespace, name, owner_uid in rows:
        found.setdefault(owner_uid, []).append((namespace, name))
    return found


# Transactions ---------------------------------------------------------------------------------------------------------


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
    """An event that the transaction will append; `previous` is what it supersedes. actor: see `origins`.

    size: bytes of its row.
    """

    revision: int
    type: EventType
    kind: Kind
    current: Current
    text: str
    previous: Current | None
    actor: str
    size: int


#: Bytes of a row beside its texts: numbers, key columns and the index.
ROW_BYTES = 256


def row_size(kind: Kind, current: Current, text: str, previous: Current | None) -> int:
    """How many bytes an event takes in the log, but for the note on its author."""
    document = len(text) if text.isascii() else len(text.encode())
    if kind.confidential:
        document = document * 4 // 3  # base64
    beside = len(current.labels) + len(current.fields)
    if previous is not None:
        beside += len(previous.labels) + len(previous.fields)
    return ROW_BYTES + document + beside


@dataclass(frozen=True, slots=True, kw_only=True)
class NetChange:
    """What the transaction did to one object altogether."""

    type: EventType
    kind: Kind
    current: Current
    previous: Current | None


class Locked(NamedTuple):
    """What a transaction knows once it holds the counter's lock."""

    counter: sql.RevisionCounter
    #: of the objects that were asked for, those that exist
    found: dict[sql.Key, sql.LatestRow]


@contextmanager
def locked_counter(references: Sequence[sql.Reference] = ()) -> Iterator[Locked]:
    """A transaction that holds the counter's lock, and has read `references` since."""
    with in_turn(), transaction.atomic():
        yield _lock(references)


def in_turn() -> AbstractContextManager[None]:
    """What stands before a transaction that writes: on SQLite the process's turn."""
    # Inside somebody's transaction the database lock is held already: waiting for a turn could only deadlock.
    needed = not sql.on_postgresql() and not connection.in_atomic_block
    return _turn if needed else nullcontext()


def _lock(references: Sequence[sql.Reference]) -> Locked:
    statement = sql.COUNTER
    if sql.on_postgresql():
        statement += " FOR UPDATE"
    # Each statement sees what is committed when it begins: the second begins once the first has the lock.
    queries = [(statement, ()), *sql.references_queries(references)]
    counter, *answers = sql.fetch_together(queries)
    if not counter:
        # The first write of all. Two may get here at once: the second waits for the first's row, then reads it.
        insert = "INSERT INTO store_revision (id, current, floor, policy) VALUES (1, %s, 0, 0) ON CONFLICT DO NOTHING"
        sql.execute(insert, [sql.FIRST_REVISION])
        counter, *answers = sql.fetch_together(queries)
    return Locked(sql.RevisionCounter(*counter[0]), sql.references_found(answers))


def move_counter(revision: int, *, end_offset: int, policy: int | None = None) -> None:
    """policy: the revision that changed a policy last; None where none did."""
    changes = "current = %s, end_offset = %s" + ("" if policy is None else ", policy = %s")
    moved = [revision, end_offset] if policy is None else [revision, end_offset, policy]
    sql.execute(f"UPDATE store_revision SET {changes} WHERE id = 1", moved)  # noqa: S608 - constants only


def move_floor(revision: int, *, offset: int) -> None:
    """offset: the end of the entry at the floor."""
    sql.execute("UPDATE store_revision SET floor = %s, floor_offset = %s WHERE id = 1", [revision, offset])


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
    "actor",
    "document",
    "end_offset",
)
_OBJECT_COLUMNS = ("uid", "resource", "namespace", "name", "event_id", "propagation")


def append_events(events: Sequence[NewEvent], now: datetime, *, after: int) -> int:
    """Append behind the offset `after`; returns the log's new end."""
    ends = list(accumulate((event.size for event in events), initial=after))[1:]
    rows = [_event_row(event, now, end) for event, end in zip(events, ends, strict=True)]
    sql.insert(Event, _EVENT_COLUMNS, rows)
    return ends[-1]


def _event_row(event: NewEvent, created_at: datetime, end_offset: int) -> tuple[Any, ...]:
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
        event.actor,
        sealing.sealed(event.text, event.revision) if event.kind.confidential else event.text,
        end_offset,
    )


def store_objects(changes: Sequence[NetChange]) -> None:
    """Bring the live objects and their owner links up to what `changes` say. Deletions first: names may be reused."""
    deleted = [change for change in changes if change.type == "DELETED"]
    added = [change for change in changes if change.type == "ADDED"]
    modified = [change for change in changes if change.type == "MODIFIED"]
    sql.delete(StoredObject, ["uid"], [(change.current.uid,) for change in deleted])
    sql.insert(StoredObject, _OBJECT_COLUMNS, [_object_row(change) for change in added])
    moved = [(c.current.uid, c.current.revision, collector_duty(c.current.object.metadata)) for c in modified]
    sql.update(StoredObject, "uid", ["event_id", "propagation"], moved)
    _relink(added=added, modified=modified, deleted=deleted)


#: Duties of the garbage collector, and the finalizers by which it knows them.
COLLECTOR_FINALIZERS = {"Foreground": FOREGROUND_FINALIZER, "Orphan": ORPHAN_FINALIZER}


def collector_duty(meta: ObjectMeta) -> str:
    """What the garbage collector must do before this object may go: "Orphan", "Foreground" or ""."""
    if meta.deletion_timestamp is None:
        return ""
    return next((duty for duty, finalizer in COLLECTOR_FINALIZERS.items() if finalizer in meta.finalizers), "")


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
    unlink(change.current.uid for change in (*deleted, *adopted) if _owners(change.previous))
    living = {change.current.uid: _key(change) for change in (*added, *modified)}
    link([(change.kind, change.current.object) for change in (*added, *adopted)], written=living)
    mark_gone(change.current.uid for change in deleted)


def _key(change: NetChange) -> Key:
    meta = change.current.object.metadata
    return (change.kind.resource, meta.namespace, meta.name)


def _owners(current: Current | None) -> tuple[OwnerReference, ...]:
    return () if current is None else current.object.metadata.owner_references


def as_current(kind: Kind, row: sql.LatestRow) -> Current:
    """A row that was read with its document."""
    return Current(records.decode(kind, row.text), row.revision, row.labels, row.fields)
