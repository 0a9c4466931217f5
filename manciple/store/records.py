"""What the store hands out: documents as text, frozen records with labels and fields as plain dictionaries, and a cache
of the objects that this process has written last, as committed.

What a process has just written, it is likely to read again at once: the next update of an object (a Lease that is
renewed every ten seconds), the follower that comes after a controller. By its text a value is found in place of
decoding the document again, which is always right. By its key it may be out of date, because other processes write
too: good for an attempt whose transaction checks the revision. A reader of the log need not fetch what this process has
written itself (`written_after`), so states that have a successor are kept for a while.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import orjson

from manciple.per_process import PerProcess
from manciple.store import sealing
from manciple.wire import codec
from manciple.wire.base import ApiObject
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


@dataclass(frozen=True, slots=True)
class Committed:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one transaction did to one object, however many times it wrote it. `object` is the last document."""

    type: EventType
    object: ApiObject
    previous: ApiObject | None  # as committed before the transaction; None on ADDED
    at: datetime  # when, as the log has it


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
