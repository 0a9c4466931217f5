"""The values that the store hands out: frozen, documents as text, labels and fields as plain dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

from manciple.store import documents
from manciple.wire.base import ApiObject

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Propagation = Literal["Background", "Foreground", "Orphan"]


class Selector(Protocol):
    """A label or field selector, as manciple.wire.selectors parses it."""

    def matches(self, values: Mapping[str, str], /) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One live object (or, on later pages of a list, the object as it was at the page's revision)."""

    resource: str  # "pods", "resourceclaims.resource.k8s.io"
    namespace: str  # "" for cluster kinds
    name: str
    uid: str
    revision: int  # of the document: its metadata.resourceVersion
    text: str  # the document exactly as the API serves it
    labels: dict[str, str]
    fields: dict[str, str]  # metadata.name, metadata.namespace and the kind's selectable fields
    deleting: bool


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

    Labels and fields come as they are stored (JSON text), because most who read the log never look at them.
    """

    revision: int
    type: EventType
    resource: str
    namespace: str
    name: str
    uid: str
    text: str
    stored_labels: str = "{}"
    stored_fields: str = "{}"
    stored_previous_labels: str | None = None
    stored_previous_fields: str | None = None

    @cached_property
    def labels(self) -> dict[str, str]:
        return documents.load(self.stored_labels)

    @cached_property
    def fields(self) -> dict[str, str]:
        return documents.load(self.stored_fields)

    @cached_property
    def previous_labels(self) -> dict[str, str] | None:
        """None on ADDED."""
        return documents.load_optional(self.stored_previous_labels)

    @cached_property
    def previous_fields(self) -> dict[str, str] | None:
        """None on ADDED."""
        return documents.load_optional(self.stored_previous_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one transaction did to one object, however many times it wrote it. `object` is the last document."""

    type: EventType
    object: ApiObject
    previous: ApiObject | None  # as committed before the transaction; None on ADDED


class Written(NamedTuple):
    """One write of a transaction, as the log will tell it."""

    revision: int
    type: EventType
    resource: str
    object: ApiObject  # as stored, with its revision; on DELETED the last one


class Deletion(NamedTuple):
    """The answer to a delete: the object as it is now, and whether it is gone (else finalizers or grace hold it)."""

    object: ApiObject
    gone: bool
