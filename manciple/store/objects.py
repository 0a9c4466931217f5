"""The store's front: read objects as text, list them, and write them in transactions.

Reading outside of `writing()` returns documents verbatim (`Stored.text`); `decode` makes the typed value of one. All
writes of the whole system go through `writing()`, which opens a transaction, or `write()`, which does a short piece of
work in a transaction that is shared with whoever writes at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from manciple.store import documents, object_cache, rows
from manciple.store.documents import decode
from manciple.store.group_commit import Read, write
from manciple.store.listing import list_objects
from manciple.store.persistence import Current
from manciple.store.records import Change, Deletion, Page, Propagation, Selector, Stored, Written
from manciple.store.transactions import writing
from manciple.store.writer import Sources, Wanted, Writer, to_read
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind

__all__ = [
    "Change",
    "Deletion",
    "Page",
    "Propagation",
    "Read",
    "Selector",
    "Sources",
    "Stored",
    "Wanted",
    "Writer",
    "Written",
    "cached",
    "decode",
    "get",
    "get_by_uid",
    "get_many",
    "known",
    "list",
    "to_read",
    "write",
    "writing",
]


def get(kind: Kind, namespace: str, name: str) -> Stored | None:
    """The live object of that key; `namespace` is "" for cluster kinds."""
    row = rows.by_key(kind.resource, namespace, name)
    return None if row is None else row.stored(kind.resource, row.text or "")


def get_by_uid(kind: Kind, uid: str) -> Stored | None:
    row = rows.by_uid(kind.resource, uid)
    return None if row is None else row.stored(kind.resource, row.text or "")


def get_many(kind: Kind, keys: Iterable[tuple[str, str]]) -> tuple[Stored, ...]:
    """Those of `keys` (namespace, name) that live, in no order; one query for hundreds."""
    return tuple(row.stored(kind.resource, row.text or "") for row in rows.by_keys(kind.resource, keys))


def cached(kind: Kind, namespace: str, name: str) -> ApiObject | None:
    """The object as this process wrote it last, if it remembers that: no query, and others may have written since."""
    return object_cache.by_key((kind.resource, namespace, name))


def known(kind: Kind, obj: ApiObject) -> Current:
    """An object that was read before, as `Read` takes it."""
    fields = documents.dump(documents.selectable_fields(kind, obj))
    return Current(obj, int(obj.metadata.resource_version), documents.dump(obj.metadata.labels), fields)


#: See manciple.store.listing; `objects.list(kind, ...)` reads as the verb it is.
list = list_objects
