"""Records of the store: documents as text with labels and fields, a cache of the objects that this process has written
last, the authors of the log's entries, and remarks on the request that is being answered.

**The cache.** What a process has just written, it is likely to read again at once: the next update of an object (a
Lease that is renewed every ten seconds), the follower that comes after a controller. Finding a value by its text
instead of decoding the document again is always right. By its key it may be out of date, because other processes write
too: good for an attempt whose transaction checks the revision. A reader of the log need not fetch what this process has
written itself (`written_after`), so states that have a successor are kept for a while.

**Authors.** Each entry has a note of the identity that wrote it and, where there was one, of its request:

    {"user": {"username": "alice", "groups": [...]}, "verb": "patch", "auditID": "...", "sourceIPs": ["10.0.0.7"], ...}

The note is written with the entry, in its transaction, so no write is without one; a controller's has the name alone.
Its fields are those of `audit.k8s.io/v1 Event`, of which it holds what the entry itself does not tell; that of a copy
from another cluster has the field manager, and whether a history is kept. Whoever answers a request makes its `Origin`
and hands it to `collecting`, by which it reaches the writer, in any thread. Nothing of a request's body is ever in a
note, and its length is bounded.

**Remarks.** Rules and checks of writes say things: warnings for the client (`warn`), annotations for the audit trail
(`annotate`). The answer of a request collects them (`collecting`); a write carries its request's collection into the
thread that commits it. A remark that is made twice counts once, because a work may run twice; without a collection it
is lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import orjson
from django.db import connection
from msgspec import structs

from manciple.per_process import PerProcess
from manciple.store import sealing
from manciple.telemetry import logs
from manciple.wire import codec
from manciple.wire.base import ApiObject, Value
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind

# The cache ------------------------------------------------------------------------------------------------------------


Key = tuple[str, str, str]  # (resource, namespace, name)

#: Characters of all the documents whose values are kept, and of the longest of them. A fleet renews its Leases in turn:
#: those of ten thousand nodes have room.
ROOM = 8_000_000
LONGEST = 16_384
#: Characters of the documents that have a successor: what a process writes between two looks at the log.
ROOM_FOR_EARLIER = 2_000_000
#: Own writes that one read of the log can leave out.
MOST_SPARED = 500


class Committed(msgspec.Struct, frozen=True, gc=False):
    """An object as it was committed; on a deletion, its last state. at: the time of its entry in the log."""

    key: Key
    text: str
    object: ApiObject
    gone: bool
    at: datetime

    @property
    def revision(self) -> int:
        return int(self.object.metadata.resource_version)


class ObjectCache:
    """Of one process. Finding one object takes no lock: each step is one look-up."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        #: the oldest first
        self._by_key: dict[Key, Committed] = {}
        self._earlier: deque[Committed] = deque()
        #: of both
        self._by_text: dict[str, ApiObject] = {}
        self._by_revision: dict[int, Committed] = {}
        self._taken = self._taken_by_earlier = 0

    def add(self, written: Iterable[Committed]) -> None:
        with self._guard:
            for one in written:
                self._supersede(one.key)
                if len(one.text) > LONGEST:
                    continue
                self._by_text[one.text] = one.object
                self._by_revision[one.revision] = one
                if one.gone:
                    self._keep_for_a_while(one)
                else:
                    self._by_key[one.key] = one
                    self._taken += len(one.text)
            while self._taken > ROOM:
                self._supersede(next(iter(self._by_key)))
            while self._taken_by_earlier > ROOM_FOR_EARLIER:
                oldest = self._earlier.popleft()
                self._taken_by_earlier -= len(oldest.text)
                self._by_text.pop(oldest.text, None)
                self._by_revision.pop(oldest.revision, None)

    def by_text(self, text: str) -> ApiObject | None:
        return self._by_text.get(text)

    def by_key(self, key: Key) -> ApiObject | None:
        found = self._by_key.get(key)
        return found.object if found else None

    def written_after(self, revision: int) -> dict[int, Committed]:
        """Own writes above `revision` by revision; at most `MOST_SPARED`, the oldest."""
        found = list[Committed]()
        with self._guard:
            for number in reversed(self._by_revision):  # as they were committed, or nearly so
                if number <= revision:
                    break
                found.append(self._by_revision[number])
        return {one.revision: one for one in found[-MOST_SPARED:]}

    def _supersede(self, key: Key) -> None:
        known = self._by_key.pop(key, None)
        if known is not None:
            self._taken -= len(known.text)
            self._keep_for_a_while(known)

    def _keep_for_a_while(self, one: Committed) -> None:
        self._earlier.append(one)
        self._taken_by_earlier += len(one.text)


#: Of this process.
cache = PerProcess(ObjectCache)


# Documents ------------------------------------------------------------------------------------------------------------


def plain(document: str, revision: int) -> str:
    """A document out of the database as the API serves it. Raises: Undecipherable."""
    return sealing.opened(document, revision) if document.startswith(sealing.MARK) else document


def decode_stored(kind: Kind, document: str, revision: int) -> ApiObject:
    """A document out of the database as its typed value. Raises: Undecipherable."""
    return decode(kind, plain(document, revision))


def decode(kind: Kind, text: str) -> ApiObject:
    """A document of ours back as its typed value."""
    known = cache.value.by_text(text)
    return known if isinstance(known, kind.type) else codec.decode_text(kind.type, text)


def dump(values: Mapping[str, str]) -> str:
    return orjson.dumps(values).decode()


def load(text: str) -> dict[str, str]:
    loaded: dict[str, Any] = orjson.loads(text)
    return loaded


def load_optional(text: str | None) -> dict[str, str] | None:
    return None if text is None else load(text)


# Records --------------------------------------------------------------------------------------------------------------


EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Propagation = Literal["Background", "Foreground", "Orphan"]


class StoreSelector(Protocol):
    """A label or field selector, as manciple.wire.selectors parses it."""

    def matches(self, values: Mapping[str, str], /) -> bool: ...


class FieldsSelector(StoreSelector, Protocol):
    """One that tells the database what to look for. mentions: texts of which the fields of whatever it matches contain
    one, as JSON has it; () where they may contain anything.
    """

    @property
    def mentions(self) -> Collection[str]: ...


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One live object (or, on later pages of a list, the object as it was at the page's revision).

    A Struct, which costs a fifth of a frozen dataclass to make: a list makes ten thousand.
    """

    resource: str  # "pods", "resourceclaims.resource.k8s.io"
    namespace: str  # "" for cluster kinds
    name: str
    uid: str
    revision: int  # of the document: its metadata.resourceVersion
    text: str  # the document exactly as the API serves it
    labels_text: str  # as the database has them
    deleting: bool

    @property
    def labels(self) -> dict[str, str]:
        return load(self.labels_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer to a list: all of its items are the state at `revision`."""

    items: tuple[Stored, ...]
    revision: int
    continue_token: str  # "" on the last page
    remaining: int | None  # objects after this page; None on the last page and where selectors filter


@dataclass(frozen=True, kw_only=True)  # no slots: what is parsed when it is asked for needs a place
class EventRecord:
    """One event of the log. On DELETED `text` is the last document, with the deletion's revision in it.

    Document, labels and fields come as they are stored, because most who read the log never look at them.
    """

    revision: int
    type: EventType
    resource: str
    namespace: str
    name: str
    uid: str
    document: str | None  # as the database has it; None where it was not asked for
    stored_labels: str = "{}"
    stored_fields: str = "{}"
    stored_previous_labels: str | None = None
    stored_previous_fields: str | None = None
    deleting: bool = False  # metadata.deletionTimestamp is set

    @property
    def sketch(self) -> Sketch:
        return Sketch(self.revision, self.resource, self.type, self.deleting, self.namespace, self.stored_fields)

    @cached_property
    def text(self) -> str:
        """The document as the API serves it. Raises: Undecipherable; LookupError where it was not asked for."""
        if self.document is None:
            raise LookupError(f"the document of revision {self.revision} was not read")
        return plain(self.document, self.revision)

    @cached_property
    def labels(self) -> dict[str, str]:
        return load(self.stored_labels)

    @cached_property
    def fields(self) -> dict[str, str]:
        return load(self.stored_fields)

    @cached_property
    def previous_labels(self) -> dict[str, str] | None:
        """None on ADDED."""
        return load_optional(self.stored_previous_labels)

    @cached_property
    def previous_fields(self) -> dict[str, str] | None:
        """None on ADDED."""
        return load_optional(self.stored_previous_fields)


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one transaction did to one object, however many times it wrote it. `object` is the last document."""

    type: EventType
    object: ApiObject
    previous: ApiObject | None  # as committed before the transaction; None on ADDED
    at: datetime  # when, as the log has it
    copied: bool = False  # it happened in another cluster, so it is true whatever speaks against it


class Sketch(NamedTuple):
    """An entry of the log without its document."""

    revision: int
    resource: str
    type: EventType
    deleting: bool  # metadata.deletionTimestamp is set
    namespace: str = ""
    stored_fields: str = "{}"

    @property
    def fields(self) -> dict[str, str]:
        """The selectable ones. Decoded on use: most of the changes that a dispatcher sees concern nobody's fields."""
        fields: dict[str, str] = orjson.loads(self.stored_fields)
        return fields


class Written(NamedTuple):
    """One write of a transaction, as the log will tell it."""

    revision: int
    type: EventType
    resource: str
    object: ApiObject  # as stored, with its revision; on DELETED the last one


class DeletionAnswer(NamedTuple):
    """The answer to a delete: the object as it is now, and whether it is gone (else finalizers or grace hold it)."""

    object: ApiObject
    gone: bool


# Authors --------------------------------------------------------------------------------------------------------------


#: What is kept of a text that a client chose, in characters, of a list of such texts, and of an identity's groups and
#: extra together: a note is kept for months.
LONGEST_TEXT, LONGEST_LIST, LONGEST_ACTOR = 512, 64, 4096

_encoder = msgspec.json.Encoder()
_encode = _encoder.encode
#: The beginnings of the names of the system's own parts: agents, the control plane and its controllers.
SYSTEM = ("system:node:", "system:kube-", "system:manciple", "system:serviceaccount:kube-system:")


def is_system(name: str) -> bool:
    """Whether a part of the system has this name."""
    return name.startswith(SYSTEM)


class Actor(Value):
    """An identity as the trail keeps it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}

    @property
    def outsider(self) -> str:
        """The name of an author that is no part of the system."""
        return "" if is_system(self.username) else self.username


class Note(Value):
    """What is known of a request beside what it did. `user`: who showed the credential."""

    user: Actor = Actor()
    impersonated_user: Actor | None = None
    verb: str = ""
    subresource: str = ""
    audit_id: str = msgspec.field(default="", name="auditID")
    source_ips: tuple[str, ...] = msgspec.field(default=(), name="sourceIPs")
    user_agent: str = ""
    request_uri: str = msgspec.field(default="", name="requestURI")
    request_received_timestamp: str = ""
    annotations: dict[str, str] = {}
    #: the field manager, of what was copied from another cluster: who it was there is not known
    manager: str | None = None
    #: of a copy: the history of its object has it
    recorded: bool = False
    #: of a copy: a listing found it so; when that came about, and in how many steps, is not known
    found: bool = False


@dataclass(slots=True, kw_only=True)
class Origin:
    """One request, filled in as more of it is known.

    resource: the kind of object that the request is about; "" for a page, which may write any. verb, subresource: what
    it does to such objects. impersonator: who made it in the name of `identity`; None where that is the same. wrote: an
    entry of the log has its note. closed: its outcome is in the trail. traceparent: of the client's own trace
    (W3C Trace Context), if it has one.
    """

    audit_id: str
    received: datetime
    method: str = ""
    uri: str = ""
    addresses: tuple[str, ...] = ()
    agent: str = ""
    traceparent: str = ""
    verb: str = ""
    resource: str = ""
    subresource: str = ""
    identity: Identity | None = None
    impersonator: Identity | None = None
    dry_run: bool = False
    wrote: bool = False
    closed: bool = False
    annotations: dict[str, str] = field(default_factory=dict)

    def asked_by(self, identity: Identity, *, acting_as: Identity | None = None) -> None:
        """Note whose request it is, and in whose name it is made."""
        if acting_as is None or acting_as is identity:
            self.identity, self.impersonator = identity, None
        else:
            self.identity, self.impersonator = acting_as, identity

    @property
    def chosen_bytes(self) -> int:
        """How many bytes of the note the client chose."""
        return min(len(self.agent), LONGEST_TEXT) + min(len(self.uri), LONGEST_TEXT)

    def note(self) -> Note:
        acting, asking = self.identity or Identity(""), self.impersonator
        return Note(
            user=_actor(asking or acting),
            impersonated_user=_actor(acting) if asking else None,
            verb=self.verb,
            subresource=self.subresource,
            audit_id=self.audit_id,
            source_ips=tuple(clean(one) for one in self.addresses[:LONGEST_LIST]),
            user_agent=clean(self.agent),
            request_uri=clean(self.uri),
            request_received_timestamp=moment(self.received),
            annotations={clean(key): clean(text) for key, text in islice(self.annotations.items(), LONGEST_LIST)},
        )


def noted(origin: Origin | None, identity: Identity, resource: str) -> str:
    """The note of an entry of this resource that `identity` writes, as JSON.

    What a request sets off in another's name (a controller's work that is done at once) is that other's doing. The verb
    of a request says nothing about objects of another kind: their note has none, and the log's entry says what was done
    to them.
    """
    if origin is None:
        return _of_identity(identity.name)
    if origin.identity is None:
        origin.identity = identity
    if origin.identity.name != identity.name:
        return dumped(Note(user=Actor(username=clean(identity.name)), audit_id=origin.audit_id))
    origin.wrote = True
    note = origin.note()
    return dumped(note if origin.resource == resource else structs.replace(note, verb="", subresource=""))


@lru_cache(maxsize=1024)
def by_manager(name: str, recorded: bool = False, found: bool = False) -> str:
    """The note of an entry that was copied from another cluster; see `Note`. name: "" where it is unknown."""
    return dumped(Note(manager=clean(name), recorded=recorded, found=found))


#: What stands in the notes of entries whose time is that of a listing; strings in JSON cannot have it.
OF_LISTING = '"found":true'


def is_of_copy(note: str) -> bool:
    """Whether the entry with this note was copied from another cluster."""
    return note.startswith('{"manager":')


def dumped(note: Note) -> str:
    return _encode(note).decode()


def moment(at: datetime) -> str:
    """As metav1.MicroTime."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


@lru_cache(maxsize=1024)
def _of_identity(name: str) -> str:
    return dumped(Note(user=Actor(username=clean(name))))


@lru_cache(maxsize=1024)
def _actor(identity: Identity) -> Actor:
    groups, left = _fitting(identity.groups, LONGEST_ACTOR)
    extra: dict[str, tuple[str, ...]] = {}
    for key, values in identity.extra[:LONGEST_LIST]:
        if left > len(key):
            extra[clean(key)], left = _fitting(values, left - len(key))
    return Actor(username=clean(identity.name), uid=clean(identity.uid), groups=groups, extra=extra)


def _fitting(texts: Sequence[str], left: int) -> tuple[tuple[str, ...], int]:
    """The first of `texts` that fit into `left` characters, and what is left then."""
    kept = []
    for text in map(clean, texts[:LONGEST_LIST]):
        if len(text) > left:
            break
        kept.append(text)
        left -= len(text)
    return tuple(kept), left


def clean(text: str, length: int = LONGEST_TEXT) -> str:
    """`text` as every database takes it (no NUL, no half of a surrogate pair), cut to `length` characters."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        text = text.encode(errors="replace").decode()
    return text if len(text) <= length else text[: length - 1] + "…"


_decoder = msgspec.json.Decoder(Note)


def author_of(note: str) -> Actor:
    """In whose name an entry with this note was written; nobody for "" (entries from before there were notes)."""
    if not note:
        return Actor()
    found = _decoder.decode(note)
    return found.impersonated_user or found.user


# Remarks --------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Remarks:
    """warnings: in the order in which they were said first. annotations: by key, the last word.

    origin: the request that they are collected for, which writes are noted as coming from.
    """

    origin: Origin | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    _warnings: dict[str, None] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._warnings)

    def warn(self, text: str) -> None:
        self._warnings[text] = None


collecting_in: ContextVar[Remarks | None] = ContextVar("remarks", default=None)


def collector() -> Remarks | None:
    """What is said here goes there; None where nobody collects."""
    return collecting_in.get()


@contextmanager
def using(remarks: Remarks | None) -> Iterator[None]:
    """Collect what is said within in `remarks`."""
    before = collecting_in.set(remarks)
    try:
        yield
    finally:
        collecting_in.reset(before)


def origin() -> Origin | None:
    """The request that is being answered; None in the work of controllers."""
    told = collecting_in.get()
    return None if told is None else told.origin


def _of_request() -> Mapping[str, str]:
    """What lines of the log say of the request in which they are written."""
    request = origin()
    if request is None:
        return {}
    user = request.identity.name if request.identity is not None else ""
    trace = request.traceparent[3:35]
    return {"requestId": request.audit_id, "traceId": trace, "user": user, "verb": request.verb}


logs.describe(_of_request)


@contextmanager
def collecting(request: Origin | None = None) -> Iterator[Remarks]:
    """Collect what is said within. request: the one that begins here; None where it began before."""
    told = Remarks(request or origin())
    before = collecting_in.set(told)
    try:
        yield told
    finally:
        collecting_in.reset(before)


@contextmanager
def noting(request: Origin) -> Iterator[None]:
    """Note the writes within as made by `request`, a part of the request that is being answered."""
    with using(replace(collecting_in.get() or Remarks(), origin=request)):
        yield


def warn(text: str) -> None:
    """Tell the client, who gets it in a Warning header."""
    told = collecting_in.get()
    if told is not None:
        told.warn(text)


def annotate(key: str, text: str) -> None:
    """Note `text` under `key` in the audit event of the request."""
    told = collecting_in.get()
    if told is not None:
        told.annotations[key] = text
        if told.origin is not None:
            told.origin.annotations[key] = text


# Authors in SQL ------------------------------------------------------------------------------------------------------


def written_between(columns: str, *, after: int, upto: int, unless: str) -> tuple[str, list[object]]:
    """A SELECT of `columns` of the log's entries that have a note, oldest first, and its parameters.

    The entry is `e`; what its note says is read with `said`. unless: SQL, of entries that are left out.
    """
    note = (
        " CROSS JOIN LATERAL (SELECT NULLIF(e.actor, '')::jsonb AS said) n" if connection.vendor == "postgresql" else ""
    )
    statement = (
        f"SELECT {columns} FROM store_event e{note} "  # noqa: S608 - constants only
        f"WHERE e.revision > %s AND e.revision <= %s AND e.actor <> '' AND NOT ({unless}) "
        "ORDER BY e.revision"
    )
    return statement, [after, upto]


#: SQL: whether the entry began a deletion that finalizers or grace hold up.
BEGINS_DELETION = (
    "e.deleting AND EXISTS (SELECT 1 FROM store_event p WHERE p.revision = e.previous_revision AND NOT p.deleting)"
)


def said(*path: str) -> str:
    """SQL: the text at this path of an entry's note; NULL where it says nothing of it."""
    if connection.vendor == "postgresql":
        return f"n.said #>> '{{{','.join(path)}}}'"
    return f"json_extract(NULLIF(e.actor, ''), '$.{'.'.join(path)}')"


def goes_on() -> str:
    """SQL: whether the entry changes what the same user wrote before, as far as the log still has that."""
    if connection.vendor == "postgresql":
        before = "NULLIF(p.actor, '')::jsonb #>> '{user,username}'"
    else:
        before = "json_extract(NULLIF(p.actor, ''), '$.user.username')"
    return (
        "EXISTS (SELECT 1 FROM store_event p WHERE p.revision = e.previous_revision "  # noqa: S608 - constants only
        f"AND {before} = {said('user', 'username')})"
    )
