"""The one writer: it collects the writes of a transaction in memory and stores them at the transaction's end.

Writes take their revisions from memory; reads see them. Before each, the rules are asked (`manciple.store.hooks`). At
the end, in one pass: events, objects, owner links, index rows (projectors), the counter. Who opens the transaction,
and whose writes share one, is `manciple.store.objects`' business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import orjson
from msgspec import structs

from manciple.store import hooks, records, sealing, space, sql
from manciple.store.models import Event, OwnerLink, StoredObject
from manciple.store.records import (
    Change,
    Committed,
    DeletionAnswer,
    EventRecord,
    EventType,
    Propagation,
    Sketch,
    StoreSelector,
    Written,
)
from manciple.wire import codec, managed_fields
from manciple.wire.base import RANDOM, ApiObject, ObjectMeta, OwnerReference, new_uid, timestamp
from manciple.wire.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound, TooLarge, forbidden, required
from manciple.wire.identity import SYSTEM, Identity, manager_of
from manciple.wire.registry import Kind, no_grace, registry
from manciple.wire.validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, generate_name

Key = sql.Key

# What is written ------------------------------------------------------------------------------------------------------


class Current(msgspec.Struct, frozen=True, gc=False):
    """An object as the transaction sees it: committed, or written by the transaction itself."""

    object: ApiObject
    revision: int
    labels: str
    fields: str

    @classmethod
    def of(cls, kind: Kind, obj: ApiObject) -> Current:
        """The state of an object that has its revision. Field selectors see name, namespace and selectable fields."""
        meta = obj.metadata
        fields = {"metadata.name": meta.name, "metadata.namespace": meta.namespace, **kind.selectable(obj)}
        labels = orjson.dumps(meta.labels).decode()
        return cls(obj, int(meta.resource_version), labels, orjson.dumps(fields).decode())

    @property
    def uid(self) -> str:
        return self.object.metadata.uid


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that the transaction will append; `previous` is what it supersedes. actor: see `records`.

    size: bytes of its row. copied: it happened in another cluster.
    """

    revision: int
    type: EventType
    kind: Kind
    current: Current
    text: str
    previous: Current | None
    actor: str
    size: int
    copied: bool = False


class Copy(NamedTuple):
    """An object of another cluster as it was received; the rest is of `records.Note`."""

    document: Mapping[str, Any]
    author: str
    recorded: bool
    found: bool

    def numbered(self, revision: int) -> Mapping[str, Any]:
        """The document with our resourceVersion."""
        return {**self.document, "metadata": {**self.document["metadata"], "resourceVersion": str(revision)}}


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


class NetChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the transaction did to one object altogether. copied: what it wrote last happened in another cluster."""

    type: EventType
    kind: Kind
    current: Current
    previous: Current | None
    copied: bool = False

    @property
    def key(self) -> Key:
        meta = self.current.object.metadata
        return (self.kind.resource, meta.namespace, meta.name)


def as_current(kind: Kind, row: sql.LatestRow) -> Current:
    """A row that was read with its document."""
    document = records.decode_stored(kind, row.document or "", row.revision)
    return Current(document, row.revision, row.labels, row.fields)


# The writer -----------------------------------------------------------------------------------------------------------


#: Objects to be read: for each its kind, and what the caller has read of it before.
Wanted = Mapping[Key, tuple[Kind, Current | None]]
NOTHING: Wanted = {}

#: How often a generated name is drawn before giving up (upstream: 7 attempts more than one).
NAME_ATTEMPTS = 8

#: Characters of a stored document, metadata and managedFields included (etcd's limit on a request, in bytes).
LARGEST = 1536 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a writer takes from the world: the time, new uids, new names."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    new_uid: Callable[[], str] = new_uid
    name_from: Callable[[str], str] = lambda base: generate_name(base, RANDOM.value)


WORLD = Sources()


class Mark(NamedTuple):
    """How far a writer has come: its revision, the numbers of its events and changes, what its rules have noted."""

    revision: int
    events: int
    journal: int
    notes: Mapping[str, Any]


class Writer:
    """The reads and writes of one transaction. `writing()` makes it; it may not leave its thread or the block.

    A dry run's writer does everything but `flush`.
    """

    def __init__(
        self, counter: sql.RevisionCounter, sources: Sources, *, identity: Identity = SYSTEM, dry_run: bool = False
    ) -> None:
        self._sources = sources
        self._dry_run = dry_run
        #: who writes: what the rules are told
        self.identity = identity
        #: what each of the statements found that were executed with the lock (`writing`)
        self.beside: Sequence[Sequence[tuple[Any, ...]]] = ()
        #: the newest revision, this transaction's own writes included
        self.revision = counter.current
        #: when its events happened, as the log has it; before `flush`, when it began
        self._flushed_at = sources.now()
        #: where the log ends: before `flush` without this transaction's own writes
        self.end_offset = counter.end_offset
        #: the newest revision that changed what rules go by; None where this transaction changes it itself
        self.policy: int | None = counter.policy
        self._policy_before = counter.policy
        #: the revisions of this transaction that changed a policy
        self._policy_changes: list[int] = []
        #: what is known of a key: None means that no such object exists
        self._known: dict[Key, Current | None] = {}
        self._kinds: dict[Key, Kind] = {}
        self._events: list[NewEvent] = []
        #: (key, what was known before) of every write, oldest first
        self._journal: list[tuple[Key, Current | None]] = []
        #: names drawn beforehand, by (resource, namespace, generateName)
        self._drawn: dict[Key, list[str]] = {}
        #: what rules note from write to write; replaced, never changed
        self._notes: Mapping[str, Any] = {}

    @property
    def written(self) -> tuple[Written, ...]:
        """Every write so far, oldest first: what the log will say of this transaction once it is committed."""
        return tuple(
            Written(event.revision, event.type, event.kind.resource, event.current.object) for event in self._events
        )

    def sketches(self) -> tuple[Sketch, ...]:
        """Every write so far, oldest first, without documents."""
        return tuple(
            Sketch(
                event.revision,
                event.kind.resource,
                event.type,
                event.current.object.metadata.deletion_timestamp is not None,
                event.current.object.metadata.namespace,
                event.current.fields,
            )
            for event in self._events
        )

    def entries(self, longest: int) -> Sequence[EventRecord]:
        """Every write so far, oldest first, as the log will show it; none where the documents have more characters than
        `longest` together, or are confidential.
        """
        if sum(len(event.text) for event in self._events) > longest or any(
            event.kind.confidential for event in self._events
        ):
            return ()
        return [
            EventRecord(
                revision=event.revision,
                type=event.type,
                resource=event.kind.resource,
                namespace=(meta := event.current.object.metadata).namespace,
                name=meta.name,
                uid=meta.uid,
                document=event.text,
                stored_labels=event.current.labels,
                stored_fields=event.current.fields,
                stored_previous_labels=event.previous.labels if event.previous else None,
                stored_previous_fields=event.previous.fields if event.previous else None,
                deleting=meta.deletion_timestamp is not None,
            )
            for event in self._events
        ]

    @property
    def resources(self) -> frozenset[str]:
        """Of which anything was written so far."""
        return frozenset(event.kind.resource for event in self._events)

    def committed(self) -> Sequence[Committed]:
        """Every write so far, once the transaction is committed."""
        return [
            Committed(
                (event.kind.resource, event.current.object.metadata.namespace, event.current.object.metadata.name),
                event.text,
                event.current.object,
                event.type == "DELETED",
                self._flushed_at,
            )
            for event in self._events
        ]

    # Savepoints ------------------------------------------------------------------------------------------------------

    @contextmanager
    def savepoint(self, *, identity: Identity | None = None, forget: bool = False) -> Iterator[Writer]:
        """Undo what is written within when that ends with an exception (or in any case: `forget`).

        identity: who writes within; None for whoever writes already.
        """
        mark, author, dry_run = self.mark(), self.identity, self._dry_run
        self.identity, self._dry_run = identity or author, dry_run or forget
        try:
            yield self
        except BaseException:
            self.rewind(mark)
            raise
        finally:
            self.identity, self._dry_run = author, dry_run
        if forget:
            self.rewind(mark)

    # Reading ---------------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> ApiObject | None:
        current = self._current(kind, namespace, name)
        return None if current is None else current.object

    def get_by_uid(self, kind: Kind, uid: str) -> ApiObject | None:
        for key, _ in self._journal:
            current = self._known[key]
            if current is not None and key[0] == kind.resource and current.uid == uid:
                return current.object
        row = sql.by_uid(kind.resource, uid)
        if row is None:
            return None
        found = self._remember(kind, row)
        return found.object if found is not None and found.uid == uid else None

    def load(self, kind: Kind, keys: Iterable[tuple[str, str]]) -> None:
        """Read many (namespace, name) in one query, so that the `get`s that follow cost none."""
        self.preload(to_read((kind, keys)))

    def preload(self, wanted: Wanted) -> None:
        """Read all of these in one query; a document that the caller has read is not, where it is current still."""
        missing = {key: entry for key, entry in wanted.items() if key not in self._known}
        queries = sql.references_queries(references_to(missing))
        self.adopt(missing, sql.references_found(sql.fetch_together(queries)) if queries else {})

    def adopt(self, wanted: Wanted, found: Mapping[Key, sql.LatestRow]) -> None:
        """Take over what was found of `wanted` in this transaction."""
        for key, (kind, current) in wanted.items():
            row = found.get(key)
            if row is None:
                self._known[key] = None
            else:
                self._known[key] = current if row.document is None else as_current(kind, row)

    def draw_names(self, kind: Kind, wanted: Iterable[tuple[str, str]], *, beside: Wanted = NOTHING) -> None:
        """Draw a name for each (namespace, generateName), and see in one query which are free; `create` takes these.

        beside: what is read in the same query.
        """
        drawn = [(namespace, base, self._sources.name_from(base)) for namespace, base in wanted]
        self.preload({**to_read((kind, [(namespace, name) for namespace, _, name in drawn])), **beside})
        for namespace, base, name in drawn:
            self._drawn.setdefault((kind.resource, namespace, base), []).append(name)

    def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: StoreSelector | None = None,
        fields: StoreSelector | None = None,
    ) -> tuple[ApiObject, ...]:
        """The matching objects as this transaction sees them, ordered by (namespace, name)."""
        _, found = sql.live(kind.resource, namespace=namespace, limit=0, with_text=False)
        matching = [row.key for row in found if _matches(row.labels, row.fields, labels, fields)]
        self.load(kind, matching)
        written = {key[1:] for key, _ in self._journal if key[0] == kind.resource and namespace in ("", key[1])}
        candidates = (self._known[(kind.resource, *key)] for key in sorted({*matching, *written}))
        return tuple(
            current.object
            for current in candidates
            if current is not None and _matches(current.labels, current.fields, labels, fields)
        )

    # Writing ---------------------------------------------------------------------------------------------------------

    def create(
        self, kind: Kind, obj: ApiObject, *, uid: str = "", rules_first: bool = False, owned: bool = False
    ) -> ApiObject:
        """Store a new object; returns it with name, uid, creationTimestamp, generation and resourceVersion.

        uid: one that was drawn for it already. rules_first: a rule's refusal comes before AlreadyExists.
        owned: its managedFields say who owns its fields; otherwise whoever writes does.
        Raises: AlreadyExists, also when no free name was found for its generateName; BadRequest for a namespace that
        does not fit the kind, or a resourceVersion; Invalid without name and generateName.
        """
        check_scope(kind, obj.metadata)
        name = obj.metadata.name or self._free_name(kind, obj)
        sources = self._sources
        if self._current(kind, obj.metadata.namespace, name) is not None:
            taken = AlreadyExists.of(kind.resource, name)
            if rules_first and hooks.rules_for["CREATE", kind.resource]:
                fresh = initialise(kind, obj, name=name, uid=uid or sources.new_uid(), now=sources.now())
                with self.savepoint(identity=self.identity):
                    self._checked("CREATE", kind, new=fresh)
                    raise taken
            raise taken
        now = sources.now()
        fresh = initialise(kind, obj, name=name, uid=uid or sources.new_uid(), now=now)
        if not owned:
            manager = manager_of(self.identity)
            fresh = managed_fields.track_create(kind, fresh, manager=manager, now=timestamp(now))
        return self._append(kind, "ADDED", self._checked("CREATE", kind, new=fresh), None, growth=True)

    def update(self, kind: Kind, obj: ApiObject, *, subresource: str = "", owned: bool = False) -> ApiObject:
        """Store the successor of an object; returns it as stored. One that changes nothing is not written.

        subresource: the part of the object that is written ("status"); "" for the object itself.
        owned: its managedFields say who owns its fields; otherwise whoever writes owns what changes.
        A deleting object that nothing holds any more (finalizers, grace) is removed by it.
        Raises: NotFound; Conflict for another uid or a stale resourceVersion, where these are given; Invalid when
        finalizers are added to a deleting object.
        """
        current = self._existing(kind, obj.metadata.namespace, obj.metadata.name)
        old = current.object
        check_update(kind, obj.metadata, old.metadata)
        following = succeeded(kind, obj if owned else managed_fields.with_owners_of(old, obj), old)
        ends = following.metadata.deletion_timestamp is not None and not held(following.metadata)
        if following == old and not ends:
            return old
        following = self._checked("UPDATE", kind, new=following, old=old, subresource=subresource)
        if not owned:
            following = self._tracked(kind, following, old, subresource)
        if following.metadata.deletion_timestamp is not None and not held(following.metadata):
            return self._append(kind, "DELETED", following, current)
        # Removing a finalizer is part of a deletion.
        deletes = len(following.metadata.finalizers) < len(old.metadata.finalizers)
        growth = not (deletes and old.metadata.deletion_timestamp is not None)
        return self._append(kind, "MODIFIED", following, current, growth=growth)

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: Propagation = "Background",
        last_status: ApiObject | None = None,
    ) -> DeletionAnswer:
        """Delete an object, or mark it as deleting while finalizers or seconds of grace hold it.

        `grace_seconds` counts only for kinds that grant some; deleting again may only shorten it.
        last_status: the object with a status that says why it is deleted; both are one change, and one event.
        Raises: NotFound; Conflict when `uid` or `resource_version` is given and is not the object's.
        """
        current = self._existing(kind, namespace, name)
        old = current.object
        check_preconditions(kind, old.metadata, uid=uid, resource_version=resource_version)
        if last_status is not None:
            check_update(kind, last_status.metadata, old.metadata)
            updated = succeeded(kind, managed_fields.with_owners_of(old, last_status), old)
            updated = self._checked("UPDATE", kind, new=updated, old=old, subresource="status")
            old = self._tracked(kind, updated, old, "status")
        if old.metadata.deletion_timestamp is not None:
            following = shorten_grace(old, grace_seconds=grace_seconds)
        else:
            following = mark_deleting(
                kind, old, grace_seconds=grace_seconds, propagation=propagation, now=self._sources.now()
            )
        if following == current.object:
            return DeletionAnswer(current.object, gone=False)
        self._checked("DELETE", kind, old=current.object)
        if held(following.metadata):
            return DeletionAnswer(self._append(kind, "MODIFIED", following, current), gone=False)
        # What goes at once keeps its last document, as upstream: watchers of such kinds never see it "deleting".
        last = following if old.metadata.deletion_timestamp is not None else old
        removed = self._append(kind, "DELETED", last, current)
        return DeletionAnswer(answered_deletion(kind, removed, following), gone=True)

    def replicate(
        self,
        kind: Kind,
        obj: ApiObject,
        document: Mapping[str, Any],
        *,
        author: str = "",
        gone: bool = False,
        recorded: bool = False,
        found: bool = False,
    ) -> ApiObject:
        """Take over an object of another cluster as it is there, its uid, times and generation included: nobody here
        may refuse it. `manciple.mirror` alone calls this.

        document: the text that was received, of which `obj` is the typed value; only its resourceVersion becomes ours.
        author: its last field manager. gone: it was deleted there, and this is its last state. recorded: its history
        has this. found: by a listing, which does not say when it happened.
        """
        meta = obj.metadata
        current = self._current(kind, meta.namespace, meta.name)
        if current is not None and current.uid != meta.uid:  # its deletion was not seen
            last = current.object
            unseen = Copy(codec.to_builtins(last), "", recorded=recorded, found=True)
            self._append(kind, "DELETED", last, current, copy=unseen)
            current = None
        type_: EventType = "DELETED" if gone else "ADDED" if current is None else "MODIFIED"
        return self._append(kind, type_, obj, current, copy=Copy(document, author, recorded, found))

    # The state in memory ---------------------------------------------------------------------------------------------

    def note(self, key: str, value: Any) -> None:
        """Remember `value`, which nobody may change, until the transaction ends or what it comes with is undone."""
        self._notes = {**self._notes, key: value}

    def noted(self, key: str, default: Any = None) -> Any:
        return self._notes.get(key, default)

    def mark(self) -> Mark:
        """A savepoint for `rewind`."""
        return Mark(self.revision, len(self._events), len(self._journal), self._notes)

    def rewind(self, mark: Mark) -> None:
        """Forget every write since `mark`."""
        self.revision, events, journal, self._notes = mark
        while self._policy_changes and self._policy_changes[-1] > self.revision:
            self._policy_changes.pop()
            self.policy = None if self._policy_changes else self._policy_before
        del self._events[events:]
        while len(self._journal) > journal:
            key, before = self._journal.pop()
            self._known[key] = before

    def flush(self, *, commit: bool = False) -> bool:
        """Send everything to the database; returns whether there was anything.

        commit: and COMMIT with it, where that saves a round trip; nothing may be sent after it.
        """
        if not self._events:
            return False
        for finish in hooks.FINISHERS:
            finish(self)
        changes = self.net_changes()
        # Very many rows go faster by COPY, which a pipeline cannot carry; fewer cost little but the round trip.
        together = sql.commit_pipelined if commit else sql.pipelined
        few = len(self._events) < sql.COPY_FROM
        with together() if few else nullcontext(), sql.gathered() if few else nullcontext():
            self._flushed_at = at = self._sources.now()
            self.end_offset = append_events(self._events, at, after=self.end_offset)
            store_objects(changes, first=self._events[0].revision == 1)
            _project(changes, at)
            sql.move_counter(self.revision, end_offset=self.end_offset, policy=max(self._policy_changes, default=None))
        return True

    def _checked(
        self, operation: hooks.Operation, kind: Kind, *, new: Any = None, old: Any = None, subresource: str = ""
    ) -> Any:
        """`new` as the rules leave it, each seeing the changes of those before it.

        Raises: ApiError, from the first rule that refuses.
        """
        if rules := hooks.rules_for[operation, kind.resource]:
            write = hooks.Write(
                operation=operation,
                kind=kind,
                new=new,
                old=old,
                subresource=subresource,
                identity=self.identity,
                dry_run=self._dry_run,
            )
            for rule in rules:
                changed = rule(self, write)
                if changed is not None:
                    write = structs.replace(write, new=changed)
            return write.new
        return new

    def _tracked(self, kind: Kind, new: Any, old: Any, subresource: str) -> Any:
        now, manager = timestamp(self._sources.now()), manager_of(self.identity)
        return managed_fields.track_in_process(kind, new, old, manager=manager, subresource=subresource, now=now)

    def _existing(self, kind: Kind, namespace: str, name: str) -> Current:
        current = self._current(kind, namespace, name)
        if current is None:
            raise NotFound.of(kind.resource, name)
        return current

    def _current(self, kind: Kind, namespace: str, name: str) -> Current | None:
        key = (kind.resource, namespace, name)
        if key not in self._known:
            row = sql.by_key(*key)
            self._known[key] = None if row is None else as_current(kind, row)
        return self._known[key]

    def _remember(self, kind: Kind, row: sql.LatestRow) -> Current | None:
        """What is known of the row's key; the row, unless this transaction knows better."""
        key = (kind.resource, *row.key)
        if key not in self._known:
            self._known[key] = as_current(kind, row)
        return self._known[key]

    def _free_name(self, kind: Kind, obj: ApiObject) -> str:
        base, namespace = obj.metadata.generate_name, obj.metadata.namespace
        if not base:
            raise name_required(kind)
        name, drawn = "", self._drawn.get((kind.resource, namespace, base), [])
        for _ in range(NAME_ATTEMPTS):
            name = drawn.pop() if drawn else self._sources.name_from(base)
            if self._current(kind, namespace, name) is None:
                return name
        why = "the server was not able to generate a unique name for the object"
        raise AlreadyExists(f"{AlreadyExists.of(kind.resource, name).message}, {why}")

    def _append(
        self,
        kind: Kind,
        type_: EventType,
        obj: ApiObject,
        previous: Current | None,
        *,
        growth: bool = False,
        copy: Copy | None = None,
    ) -> ApiObject:
        """growth: the write needs room and counts against its namespace's budget; deletions never do. copy: what was
        received of another cluster, which allowed it.

        Raises: TooManyRequests, InsufficientStorage.
        """
        revision = self.revision + 1
        if kind.refitted is not None and previous is not None:
            obj = kind.refitted(obj, previous.revision)
        numbered = with_meta(obj, resource_version=str(revision))
        meta = numbered.metadata
        current = Current.of(kind, numbered)
        key = (kind.resource, meta.namespace, meta.name)
        text = codec.encode(numbered if copy is None else copy.numbered(revision)).decode()
        if type_ != "DELETED" and len(text) > LARGEST and copy is None:
            _check_growth(kind, meta.name, text, previous)
        size = row_size(kind, current, text, previous)
        remarks = records.collecting_in.get()
        origin = None if remarks is None else remarks.origin
        if growth and not self._dry_run:
            charged = size + (origin.chosen_bytes if origin is not None else 0)
            space.charge(
                self.identity, kind.resource, meta.namespace, charged, new=previous is None, now=self._sources.now()
            )
        if copy is not None:
            actor = records.by_manager(copy.author, copy.recorded, copy.found)
        elif self._dry_run and origin is not None:
            origin.dry_run, actor = True, ""
        else:  # the request counts as having written from here on
            actor = records.noted(origin, self.identity, kind.resource)
        self.revision = revision
        if _changes_policy(kind, type_, obj, previous):
            self._policy_changes.append(revision)
            self.policy = None
        event = NewEvent(
            revision=revision,
            type=type_,
            kind=kind,
            current=current,
            text=text,
            previous=previous,
            actor=actor,
            size=size + len(actor),
            copied=copy is not None,
        )
        self._events.append(event)
        self._journal.append((key, previous))
        self._kinds[key] = kind
        self._known[key] = None if type_ == "DELETED" else current
        return numbered

    def net_changes(self) -> Sequence[NetChange]:
        """What the transaction has done to each object so far; deletions first."""
        before: dict[Key, Current | None] = {}
        for key, known in self._journal:
            before.setdefault(key, known)
        last = {event.current.uid: event for event in self._events}
        gone: list[NetChange] = []
        stay: list[NetChange] = []
        for key, old in before.items():
            kind, new = self._kinds[key], self._known[key]
            same = old is not None and new is not None and old.uid == new.uid
            if old is not None and not same:
                event = last[old.uid]
                gone.append(
                    NetChange(type="DELETED", kind=kind, current=event.current, previous=old, copied=event.copied)
                )
            if new is not None:
                type_: EventType = "MODIFIED" if same else "ADDED"
                copied = last[new.uid].copied
                stay.append(
                    NetChange(type=type_, kind=kind, current=new, previous=old if same else None, copied=copied)
                )
        return gone + stay


def _changes_policy(kind: Kind, type_: EventType, obj: ApiObject, previous: Current | None) -> bool:
    if kind.policy_of is None:
        return False
    return type_ == "DELETED" or previous is None or kind.policy_of(obj) != kind.policy_of(previous.object)


def to_read(*keys: tuple[Kind, Iterable[tuple[str, str]]]) -> dict[Key, tuple[Kind, Current | None]]:
    """The objects with these (namespace, name), of which the caller has read nothing before."""
    return {(kind.resource, *key): (kind, None) for kind, those in keys for key in those}


def references_to(wanted: Wanted) -> list[sql.Reference]:
    return [(*key, _version(current)) for key, (_, current) in wanted.items()]


def _version(current: Current | None) -> str:
    """What tells one state of an object from every other; "" where none is known."""
    return f"{current.uid}/{current.revision}" if current else ""


def _check_growth(kind: Kind, name: str, text: str, previous: Current | None) -> None:
    """Raises: TooLarge, unless the object was as large before: what is there can still be made smaller and released."""
    if previous is None or len(text) > len(codec.encode(previous.object)):
        size = f"it would have {len(text)} characters, at most {LARGEST} are stored"
        raise TooLarge(f'{kind.resource} "{name}" is too large: {size}', details={"name": name, "kind": kind.plural})


def _matches(labels: str, fields: str, by_labels: StoreSelector | None, by_fields: StoreSelector | None) -> bool:
    """Whether the stored labels and fields (JSON text) satisfy the selectors."""
    if by_labels is not None and not by_labels.matches(records.load(labels)):
        return False
    return by_fields is None or by_fields.matches(records.load(fields))


def _project(changes: Iterable[NetChange], at: datetime) -> None:
    by_resource: dict[str, list[Change]] = {}
    for change in changes:
        previous = None if change.previous is None else change.previous.object
        told = Change(type=change.type, object=change.current.object, previous=previous, at=at, copied=change.copied)
        by_resource.setdefault(change.kind.resource, []).append(told)
    for resource, of_resource in by_resource.items():
        if projector := hooks.PROJECTORS.get(resource):
            projector.project(of_resource)


# Rows -----------------------------------------------------------------------------------------------------------------


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


def store_objects(changes: Sequence[NetChange], *, first: bool = False) -> None:
    """Bring the live objects and their owner links up to what `changes` say. Deletions first: names may be reused.

    first: the store was empty.
    """
    deleted = [change for change in changes if change.type == "DELETED"]
    added = [change for change in changes if change.type == "ADDED"]
    modified = [change for change in changes if change.type == "MODIFIED"]
    adopted = [change for change in modified if _owners(change.current) != _owners(change.previous)]
    if deleted:
        sql.delete(StoredObject, ["uid"], [(change.current.uid,) for change in deleted])
    if added:
        sql.insert(StoredObject, _OBJECT_COLUMNS, [_object_row(change) for change in added])
    if modified:
        moved = [(c.current.uid, c.current.revision, collector_duty(c.current.object.metadata)) for c in modified]
        sql.update(StoredObject, "uid", ["event_id", "propagation"], moved)
    if unlinked := [change.current.uid for change in (*deleted, *adopted) if _owners(change.previous)]:
        unlink(unlinked)
    if added or adopted:
        living = {change.current.uid: change.key for change in (*added, *modified)}
        link([(change.kind, change.current.object) for change in (*added, *adopted)], written=living)
    if not first and (copied := [change.current.uid for change in added if change.copied]):
        relink(copied)
    if deleted:
        mark_gone([change.current.uid for change in deleted])


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


def _owners(current: Current | None) -> tuple[OwnerReference, ...]:
    return () if current is None else current.object.metadata.owner_references


# Owner links ----------------------------------------------------------------------------------------------------------

# metadata.ownerReferences of every live object, with what the garbage collector asks of them. A link is `gone` once no
# live object has the owner's uid under the kind, name and namespace that the reference names. A uid never comes back,
# so gone links stay gone, and finding garbage costs as much as there is garbage.


_LINK_COLUMNS = ("object_id", "owner_uid", "resolvable", "gone", "controller", "blocking")


def unlink(uids: Iterable[str]) -> None:
    """Forget the owner references of these objects."""
    sql.delete(OwnerLink, ["object_id"], [(uid,) for uid in uids])


def link(dependents: Sequence[tuple[Kind, ApiObject]], *, written: Mapping[str, Key] | None = None) -> None:
    """Write the owner references of `dependents`, none of which has any links yet. Their owners are stored by now.

    written: uid -> key of live objects that the transaction has written itself; they are not asked for.
    """
    kinds: dict[tuple[str, str], Kind | None] = {}
    pairs = []
    for kind, obj in dependents:
        for owner in obj.metadata.owner_references:
            named = (owner.api_version, owner.kind)
            if named not in kinds:
                kinds[named] = _owner_kind(owner)
            pairs.append((obj.metadata.uid, owner, owner_key(kind, obj, owner, kinds[named])))
    known = written or {}
    owners = {owner.uid for _, owner, _ in pairs}
    living = {**known, **_living(owners - known.keys())}
    found = []
    for uid, owner, key in pairs:
        leads = key is not None and living.get(owner.uid) == key
        # A reference with the wrong namespace or kind does not block the owner's deletion.
        blocks = leads and bool(owner.block_owner_deletion)
        found.append((uid, owner.uid, key is not None, key is not None and not leads, bool(owner.controller), blocks))
    sql.insert(OwnerLink, _LINK_COLUMNS, found)


def relink(owners: Iterable[str]) -> None:
    """Owners that came after their dependents, as copies of another cluster's objects may: they are there after all."""
    links = sql.select(OwnerLink, ["object_id", "gone"], ["owner_uid"], [(uid,) for uid in owners])
    if not (dependents := {uid for uid, gone in links if gone}):
        return
    rows = sql.select(StoredObject, ["resource", "event_id"], ["uid"], [(uid,) for uid in dependents])
    texts = sql.texts(revision for _, revision in rows)
    unlink(dependents)
    kinds = {resource: registry.by_resource(resource) for resource, _ in rows}
    link([(kinds[resource], records.decode(kinds[resource], texts[revision])) for resource, revision in rows])


def mark_gone(uids: Iterable[str]) -> None:
    """These objects are deleted: links to them lead nowhere."""
    for chunk in sql.chunks(uids, sql.PARAMETERS):
        deleted, parameters = sql.is_one_of("owner_uid", chunk)
        statement = f"UPDATE store_ownerlink SET gone = TRUE WHERE resolvable AND {deleted}"  # noqa: S608
        sql.write("store_ownerlink", statement, parameters)


def owner_key(kind: Kind, dependent: ApiObject, owner: OwnerReference, owner_kind: Kind | None) -> Key | None:
    """Where the owner (of this kind) must live; None where that cannot be told, and then it never counts as gone.

    That is so for a kind that nobody registered, and for a namespaced owner of a cluster-wide object.
    """
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


# Metadata of new, updated and deleting objects ------------------------------------------------------------------------

# Pure functions from an object to the next. Sources in Kubernetes 1.36: apiserver/pkg/registry/rest (create.go,
# update.go, delete.go, meta.go), registry/generic/registry/store.go and apimachinery/pkg/api/validation/objectmeta.go.


def with_meta(obj: ApiObject, **changes: Any) -> ApiObject:
    return structs.replace(obj, metadata=structs.replace(obj.metadata, **changes))


def check_scope(kind: Kind, meta: ObjectMeta) -> None:
    """Raises: BadRequest when the namespace does not fit the kind, or a resourceVersion is given on create."""
    if kind.namespaced and not meta.namespace:
        raise BadRequest(f"an empty namespace may not be set when a {kind.kind} is created")
    if not kind.namespaced and meta.namespace:
        raise BadRequest(f"namespace is not allowed on {kind.kind}, which belongs to the cluster")
    if meta.resource_version:
        raise BadRequest("resourceVersion should not be set on objects to be created")


def name_required(kind: Kind) -> Invalid:
    error = required("metadata.name", "name or generateName is required")
    return Invalid.of(kind=kind.kind, group=kind.group, name="", errors=[error])


def initialise(kind: Kind, obj: ApiObject, *, name: str, uid: str, now: datetime) -> ApiObject:
    """A new object with the fields that only the server sets."""
    meta = structs.replace(
        obj.metadata,
        name=name,
        uid=uid,
        self_link="",
        generation=1 if kind.generation_of is not None else 0,
        creation_timestamp=timestamp(now),
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
    )
    made: ApiObject = kind.identified(structs.replace(obj, api_version=kind.api_version, kind=kind.kind, metadata=meta))
    return made


def answered_deletion(kind: Kind, removed: ApiObject, following: ApiObject) -> ApiObject:
    """What answers a DELETE that removed the object: upstream only the answer shows when, of kinds with a grace period.

    following: as it would have been stored, had it stayed.
    """
    if kind.grace_seconds is no_grace:
        return removed
    meta = following.metadata
    return with_meta(
        removed,
        deletion_timestamp=meta.deletion_timestamp,
        deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
        generation=meta.generation,
    )


def check_update(kind: Kind, new: ObjectMeta, old: ObjectMeta) -> None:
    """Raises: Conflict for another object's uid or a stale resourceVersion; Invalid for new finalizers too late."""
    check_preconditions(kind, old, uid=new.uid, resource_version=new.resource_version)
    if old.deletion_timestamp is None:
        return
    before = set(old.finalizers)  # an object may have tens of thousands
    if late := [finalizer for finalizer in new.finalizers if finalizer not in before]:
        listed = ", ".join(f'"{finalizer}"' for finalizer in late)
        error = forbidden(
            "metadata.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}",
        )
        raise Invalid.of(kind=kind.kind, group=kind.group, name=old.name, errors=[error])


def check_preconditions(kind: Kind, meta: ObjectMeta, *, uid: str, resource_version: str) -> None:
    """Raises: Conflict where `uid` or `resource_version` is given and is not the stored object's."""
    if uid and uid != meta.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta.uid}"
        raise Conflict.of(kind.resource, meta.name, why)
    if resource_version and resource_version != meta.resource_version:
        raise Conflict.of(kind.resource, meta.name)


def succeeded(kind: Kind, new: ApiObject, old: ApiObject) -> ApiObject:
    """`new` as the successor of `old`: what clients may not change is kept (the revision too), generation counts."""
    kept = old.metadata
    meta = structs.replace(
        new.metadata,
        name=kept.name,
        namespace=kept.namespace,
        uid=kept.uid,
        resource_version=kept.resource_version,
        self_link="",
        generation=kept.generation,
        creation_timestamp=kept.creation_timestamp,
        deletion_timestamp=kept.deletion_timestamp,
        deletion_grace_period_seconds=kept.deletion_grace_period_seconds,
    )
    following = structs.replace(new, api_version=kind.api_version, kind=kind.kind, metadata=meta)
    if kind.generation_of is not None and kind.generation_of(following) != kind.generation_of(old):
        return with_meta(following, generation=kept.generation + 1)
    return following


def held(meta: ObjectMeta) -> bool:
    """Whether something keeps a deleting object alive: a finalizer, or seconds of grace."""
    return bool(meta.finalizers) or bool(meta.deletion_grace_period_seconds)


def grace_for(kind: Kind, obj: ApiObject, wanted: int | None) -> int:
    """Seconds of grace: the client's choice, where the object may have some; a negative number means 1."""
    granted = kind.grace_seconds(obj)
    if granted is None:
        return 0
    grace = granted if wanted is None else wanted
    return grace if grace >= 0 else 1


def mark_deleting(
    kind: Kind, obj: ApiObject, *, grace_seconds: int | None, propagation: Propagation, now: datetime
) -> ApiObject:
    """`obj` as a first delete leaves it: deletion fields set, and the collector's finalizers by `propagation`."""
    meta = obj.metadata
    finalizers = tuple(f for f in meta.finalizers if f not in COLLECTOR_FINALIZERS.values())
    if wanted := COLLECTOR_FINALIZERS.get(propagation):
        finalizers += (wanted,)
    grace = grace_for(kind, obj, grace_seconds)
    return with_meta(
        obj,
        finalizers=finalizers,
        deletion_timestamp=timestamp(now + timedelta(seconds=grace)),
        deletion_grace_period_seconds=grace,
        generation=meta.generation + 1 if meta.generation else 0,
    )


def shorten_grace(obj: ApiObject, *, grace_seconds: int | None) -> ApiObject:
    """A deleting object after another delete: the grace may only become shorter, counted from the first delete."""
    meta = obj.metadata
    old_grace = meta.deletion_grace_period_seconds or 0
    if grace_seconds is None or meta.deletion_timestamp is None:
        return obj
    grace = grace_seconds if grace_seconds >= 0 else 1
    if grace >= old_grace:
        return obj
    moment = datetime.fromisoformat(meta.deletion_timestamp) - timedelta(seconds=old_grace - grace)
    return with_meta(obj, deletion_timestamp=timestamp(moment), deletion_grace_period_seconds=grace)
