"""The store's front: read objects as text, list them, and write them in transactions.

Reading outside of `writing()` returns documents verbatim (`Stored.text`); `decode` makes the typed value of one. All
writes of the whole system go through `writing()`, which opens a transaction, or `write()`, which does a short piece of
work in a transaction that is shared with whoever writes at the same moment.

Lists are as the API serves them: one revision for all pages, `continue` tokens, selectors on stored labels and fields.
The first page is the current state. Its token names the revision and the last key; later pages tell the state as of
that revision from the log, as long as pruning has not passed it (else: Expired, list again).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from manciple.store import records, sql
from manciple.store.persistence import Current
from manciple.store.records import DeletionAnswer, EventRecord, Page, Stored, StoreSelector, decode
from manciple.store.transactions import PendingWrite, Read, portions, settle, write, writing
from manciple.store.writer import Sources, Wanted, Writer, to_read
from manciple.wire.base import ApiObject, Int64
from manciple.wire.errors import BadRequest, Expired
from manciple.wire.registry import Kind, registry

ObjectT = TypeVar("ObjectT", bound=ApiObject)

# Lists ----------------------------------------------------------------------------------------------------------------


#: Bytes of documents that are in memory at once where they are read in portions; one document may be larger.
READ_BYTES = 1 << 20


class Continue(NamedTuple):
    """What a continue token says: the list's revision, and the last key (namespace, name) given out."""

    revision: Int64
    namespace: str
    name: str
    remaining: Int64  # objects behind that key; 0 where selectors filter

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)


_token_decoder = msgspec.json.Decoder(Continue)


def encode_token(token: Continue) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def decode_token(text: str) -> Continue:
    """Raises: BadRequest for a text that we did not make."""
    try:
        return _token_decoder.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise BadRequest("continue key is not valid: it is not one that a list has returned") from error


class Query(NamedTuple):
    """What a list asks for."""

    kind: Kind
    namespace: str
    labels: StoreSelector | None
    fields: StoreSelector | None
    limit: int

    @property
    def selective(self) -> bool:
        return self.labels is not None or self.fields is not None

    def matches(self, row: sql.LatestRow) -> bool:
        if self.labels is not None and not self.labels.matches(records.load(row.labels)):
            return False
        return self.fields is None or self.fields.matches(records.load(row.fields))


def list(
    kind: Kind,
    *,
    namespace: str = "",
    labels: StoreSelector | None = None,
    fields: StoreSelector | None = None,
    limit: int = 0,
    continue_token: str = "",
) -> Page:
    """One page; `limit` 0 means everything. Ordered by (namespace, name), bytewise.

    Raises: BadRequest for a strange token; Expired when the token's revision is pruned.
    """
    query = Query(kind, namespace, labels, fields, limit)
    if continue_token:
        return _later_page(query, decode_token(continue_token))
    if query.selective:
        return _selected_page(query)
    return _first_page(query)


def _first_page(query: Query) -> Page:
    resource, limit = query.kind.resource, query.limit
    revision, found = sql.live(resource, namespace=query.namespace, limit=limit + 1 if limit else 0, with_text=True)
    shown = found[:limit] if limit else found
    items = tuple(row.stored(resource, row.text) for row in shown)
    if len(shown) == len(found):
        return Page(items=items, revision=revision, continue_token="", remaining=None)
    # Counted a moment later than the page was read, so an estimate, as upstream's is.
    remaining = sql.count(resource, namespace=query.namespace) - len(items)
    return _unfinished(revision, items, remaining=max(remaining, 1))


def _selected_page(query: Query) -> Page:
    revision, found = sql.live(query.kind.resource, namespace=query.namespace, limit=0, with_text=False)
    matching = [row for row in found if query.matches(row)]
    items = _read(query, matching)
    if len(items) == len(matching):
        return Page(items=items, revision=revision, continue_token="", remaining=None)
    return _unfinished(revision, items, remaining=0)


def _later_page(query: Query, token: Continue) -> Page:
    enough = query.limit + 1 if query.limit and not query.selective else 0
    resource, namespace = query.kind.resource, query.namespace
    found = sql.as_of(resource, token.revision, namespace=namespace, after=token.key, limit=enough)
    matching = [row for row in found if query.matches(row)] if query.selective else found
    items = _read(query, matching)
    # Pruning moves the floor before it removes anything: asked after reading, the floor vouches for what was read.
    if token.revision < sql.counter()[1]:
        raise _expired()
    if len(items) == len(matching):
        return Page(items=items, revision=token.revision, continue_token="", remaining=None)
    remaining = 0 if query.selective else max(token.remaining - len(items), 1)
    return _unfinished(token.revision, items, remaining=remaining)


def _unfinished(revision: int, items: tuple[Stored, ...], *, remaining: int) -> Page:
    """A page with more behind it. remaining: 0 where it is not known."""
    token = encode_token(Continue(revision, items[-1].namespace, items[-1].name, remaining))
    return Page(items=items, revision=revision, continue_token=token, remaining=remaining or None)


def _read(query: Query, found: Sequence[sql.LatestRow]) -> tuple[Stored, ...]:
    """As many of `found` as fit on the page, with their documents."""
    shown = found[: query.limit] if query.limit else found
    texts = sql.texts(row.revision for row in shown)
    # A document can only be missing when pruning has overtaken this list.
    if len(texts) < len(shown):
        raise _expired()
    return tuple(row.stored(query.kind.resource, texts[row.revision]) for row in shown)


def _expired() -> Expired:
    return Expired(
        "The provided continue parameter is too old to display a consistent list result. "
        "You can start a new list without the continue parameter."
    )


def list_in_portions(
    kind: Kind,
    *,
    namespace: str = "",
    labels: StoreSelector | None = None,
    fields: StoreSelector | None = None,
) -> tuple[int, Iterator[tuple[Stored, ...]]]:
    """(revision, the objects at it) for slow readers: each portion is read on demand.

    Raises: Expired, from the portions, when pruning has overtaken this list.
    """
    query = Query(kind, namespace, labels, fields, limit=0)
    revision, found = sql.live(kind.resource, namespace=namespace, limit=0, with_text=False)
    matching = [row for row in found if query.matches(row)] if query.selective else found
    return revision, _portions_of(query, matching, revision)


def _portions_of(query: Query, rows: Sequence[sql.LatestRow], revision: int) -> Iterator[tuple[Stored, ...]]:
    for chunk in sql.chunks(rows, sql.CHUNK):
        sizes = sql.sizes(row.revision for row in chunk)
        for portion in portions(chunk, lambda row: sizes.get(row.revision, 0), most=sql.CHUNK, most_bytes=READ_BYTES):  # noqa: B023
            texts = sql.texts(row.revision for row in portion)
            if len(texts) < len(portion):
                raise Expired(f"too old resource version: {revision}")
            yield tuple(row.stored(query.kind.resource, texts[row.revision]) for row in portion)


# Single objects -------------------------------------------------------------------------------------------------------


__all__ = [
    "DeletionAnswer",
    "ObjectT",
    "PendingWrite",
    "Read",
    "Sources",
    "Wanted",
    "Writer",
    "cached",
    "decode",
    "decoded",
    "get",
    "get_by_uid",
    "get_many",
    "known",
    "list",
    "list_in_portions",
    "listed",
    "portions",
    "settle",
    "to_read",
    "write",
    "writing",
]


def get(kind: Kind, namespace: str, name: str) -> Stored | None:
    """The live object of that key; `namespace` is "" for cluster kinds."""
    row = sql.by_key(kind.resource, namespace, name)
    return None if row is None else row.stored(kind.resource, row.text)


def decoded(source: Stored | EventRecord, type_: type[ObjectT]) -> ObjectT:
    """The typed value of what was read. Raises: TypeError when its kind has another type."""
    obj = decode(registry.by_resource(source.resource), source.text)
    if not isinstance(obj, type_):
        raise TypeError(f"{source.resource} are not of type {type_.__name__}")
    return obj


def listed(resource: str, type_: type[ObjectT], *, namespace: str = "") -> tuple[int, Sequence[ObjectT]]:
    """All objects of a resource and the revision at which they were so."""
    page = list(registry.by_resource(resource), namespace=namespace)
    return page.revision, [decoded(stored, type_) for stored in page.items]


def get_by_uid(kind: Kind, uid: str) -> Stored | None:
    row = sql.by_uid(kind.resource, uid)
    return None if row is None else row.stored(kind.resource, row.text)


def get_many(kind: Kind, keys: Iterable[tuple[str, str]]) -> tuple[Stored, ...]:
    """Those of `keys` (namespace, name) that live, in no order; one query for hundreds."""
    return tuple(row.stored(kind.resource, row.text) for row in sql.by_keys(kind.resource, keys))


def cached(kind: Kind, namespace: str, name: str) -> ApiObject | None:
    """The object as this process wrote it last, if it remembers that: no query, and others may have written since."""
    return records.cache().by_key((kind.resource, namespace, name))


def known(kind: Kind, obj: ApiObject) -> Current:
    """An object that was read before, as `Read` takes it."""
    fields = records.dump(records.selectable_fields(kind, obj))
    return Current(obj, int(obj.metadata.resource_version), records.dump(obj.metadata.labels), fields)
