"""The front of the store: read objects as text, list them, and write them in transactions. All writes go through here.

**Reading** outside of `writing()` returns documents verbatim (`Stored.text`); `decode` makes the typed value of one.
Lists are as the API serves them: one revision for all pages, `continue` tokens, selectors on stored labels and fields.
The first page is the current state. Its token names the revision and the last key; later pages show the state as of
that revision from the log, as long as pruning has not passed it (else: Expired, list again).

**`writing()`** opens a transaction. The counter's lock is taken first, so every read in it is current and stays so
until the commit, after which the newest revision is announced. A dry run takes no lock and opens no transaction: it
checks its writes against what is committed at the moment, and forgets them. `writing()` inside `writing()` joins the
outer transaction as a savepoint: if it ends with an exception, what it wrote is forgotten (in memory: nothing had been
sent), and the outer one may continue.

**Group commit**: `write(work)` runs `work(writer)` in a shared transaction and returns its result once that is
committed. One thread with one database connection serves all writes of the process: it takes every work that waits by
then, opens one transaction, reads what they announced in one query, runs them one after the other, each in a savepoint,
stores everything in one flush, commits, and sets the outcome of each. What arrives meanwhile is the next group. So a
lone write starts at once, and the busier the process, the larger the groups.

A caller with many works queues them together (`PendingWrite`, `settle`), and they share a commit. Those of a request on
a whole collection (`portions`) wait in a line of their own: each portion has a commit to itself, and between two of
them everybody else who waits has theirs.

An exception of one work undoes that work alone. If the database refuses the group as a whole (an index row that
violates a constraint), its works are run again one by one, so that each gets its own outcome: a work may run twice and
must therefore change nothing but through the writer. If the database is away, every work of the group fails.
"""

from __future__ import annotations

import base64
import binascii
import builtins
import copy
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
from django.db import Error, InterfaceError, OperationalError, connection, transaction
from django.db.models import QuerySet

from manciple.per_process import PerProcess
from manciple.store import event_log, hooks, records, space, sql
from manciple.store.models import OwnerLink, StoredObject
from manciple.store.records import (
    Change,
    DeletionAnswer,
    EventRecord,
    FieldsSelector,
    Page,
    Stored,
    StoreSelector,
    decode,
)
from manciple.store.writer import NOTHING, WORLD, Current, Key, Sources, Wanted, Writer, link, references_to, to_read
from manciple.telemetry import metrics
from manciple.wire.base import ApiObject, Int64
from manciple.wire.errors import ApiError, BadRequest, Expired
from manciple.wire.identity import SYSTEM, Identity
from manciple.wire.limits import check_time
from manciple.wire.registry import Kind, registry

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

# Transactions ---------------------------------------------------------------------------------------------------------


COMMITS = metrics.histogram(
    "manciple_commit_duration_seconds",
    "From asking for the log's lock to the end of the transaction, by whether something was committed.",
    "result",
    buckets=metrics.exponential(0.001, 2.0, 14),
)
EVENTS = metrics.one_histogram(
    "manciple_commit_events", "Entries of the log that one commit wrote.", buckets=metrics.exponential(1, 2.0, 13)
)
SHARED = metrics.one_histogram(
    "manciple_commit_requests", "Requests that shared one commit.", buckets=metrics.exponential(1, 2.0, 8)
)


class _Open(threading.local):
    """The writer of each thread's open transaction."""

    writer: Writer | None = None


_open = _Open()


def is_open() -> bool:
    """Whether this thread is inside of `writing()`."""
    return _open.writer is not None


def current() -> Writer | None:
    """The writer of this thread's open transaction."""
    return _open.writer


@contextmanager
def writing(
    *,
    identity: Identity | None = None,
    reads: Wanted = NOTHING,
    beside: Sequence[sql.Query] = (),
    sources: Sources = WORLD,
    dry_run: bool = False,
    committed: Callable[[], None] = lambda: None,
) -> Iterator[Writer]:
    """One transaction of the store; see the module's docstring.

    identity: who writes, for the rules; of the outer `writing()` where there is one, else the installation itself.
    reads: what is going to be read, which is then read together with the counter.
    beside: statements of the caller's, executed with that unless dry; `Writer.beside` has what each found.
    `dry_run` does everything but store. committed: called once something is committed, before that is announced.
    Inside another `writing()`, `sources` and `committed` are the outer one's.
    """
    if _open.writer is not None:
        with _open.writer.savepoint(identity=identity, forget=dry_run) as writer:
            writer.preload(reads)
            writer.beside = sql.fetch_together(beside) if beside else ()
            yield writer
    elif dry_run:
        with _opened(Writer(sql.counter(), sources, identity=identity or SYSTEM, dry_run=True)) as writer:
            writer.preload(reads)
            yield writer
    else:
        space.refresh()
        began, result = time.perf_counter(), "failed"
        try:
            with sql.locked_counter(references_to(reads) if reads else (), beside) as locked:
                with _opened(Writer(locked.counter, sources, identity=identity or SYSTEM)) as writer:
                    writer.beside = locked.beside
                    if reads:
                        writer.adopt(reads, locked.found)
                    yield writer
                    flushed = writer.flush(commit=locked.is_outermost)
                if flushed:
                    transaction.on_commit(partial(_finish, writer, committed), robust=True)
            result = "committed" if flushed else "nothing"
        finally:
            COMMITS[result].observe(time.perf_counter() - began)
        if flushed:
            EVENTS.observe(writer.revision - locked.counter.current)
        space.keep_up(locked.counter._replace(end_offset=writer.end_offset))


@contextmanager
def _opened(writer: Writer) -> Iterator[Writer]:
    _open.writer = writer
    try:
        yield writer
    finally:
        _open.writer = None


def _finish(writer: Writer, committed: Callable[[], None]) -> None:
    written = writer.committed()
    records.cache.value.add(written)
    committed()
    sketches = writer.sketches()
    entries = writer.entries(event_log.LONGEST_TOLD)
    event_log.announce(event_log.Announcement(sketches[0].revision, writer.revision, sketches, entries))


# Group commit ---------------------------------------------------------------------------------------------------------


#: Works in one transaction: everybody in it waits for all of them.
LARGEST_GROUP = 128
#: Objects, and bytes of their documents, in one transaction of what works through a whole collection: other writers
#: wait for it. On a full disk the log's copies of these have to fit into what is kept for deletions.
PORTION, PORTION_BYTES = 32, 2 << 20
#: Keys that are read at once for such work.
PAGE = 1000
#: Seconds without a write after which the thread and its connection go.
IDLE = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read:
    """An object that a work will read: announced, it is read together with those of the others.

    known: what the caller read of it before; not read again where it is current still.
    """

    kind: Kind
    namespace: str
    name: str
    known: Current | None = None

    @property
    def key(self) -> Key:
        return (self.kind.resource, self.namespace, self.name)


class PendingWrite(Generic[T]):
    """One work in line, and how it ended. `settle` puts it there."""

    def __init__(self, work: Callable[[Writer], T], identity: Identity, reads: Sequence[Read]) -> None:
        self.work = work
        self.identity = identity
        self.reads = reads
        #: of the request that it is for: rules have something to say to its client
        self.remarks = records.collector()
        self._ended = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self, writer: Writer) -> None:
        try:
            with records.using(self.remarks), writer.savepoint(identity=self.identity):
                self._result = self.work(writer)
            self._error = None
        except Error:
            raise  # the transaction is broken, for everybody
        except Exception as error:
            self._error = error

    def end(self, error: BaseException | None = None) -> None:
        self._error = error or self._error
        self._ended.set()

    def outcome(self) -> T:
        """Waits for it. Raises: what the work raised; django.db.Error."""
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class GroupCommit:
    """The line of one process, and the thread that serves it: begun by the first work, ended after `IDLE` seconds."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._news = threading.Condition(self._guard)
        self._line: deque[PendingWrite[object]] = deque()
        #: portions, each of which has a commit of its own
        self._portions: deque[Sequence[PendingWrite[object]]] = deque()
        self._had_portion = False
        self._thread: threading.Thread | None = None
        self._stopping = False

    def add(self, works: Sequence[PendingWrite[T]], *, portion: bool = False) -> None:
        with self._news:
            added = cast("Sequence[PendingWrite[object]]", works)
            if portion:
                self._portions.append(added)
            else:
                self._line.extend(added)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
                self._thread.start()
            self._news.notify()

    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line) + sum(map(len, self._portions))

    def stop(self) -> None:
        """End the thread once nobody waits; the next work begins another."""
        with self._news:
            self._stopping = True
            thread = self._thread
            self._news.notify()
        if thread is not None:
            thread.join()
        self._stopping = False

    def _run(self) -> None:
        try:
            while group := self._next_group():
                _commit(group)
        finally:
            connection.close()

    def _next_group(self) -> Sequence[PendingWrite[object]]:
        """Those who wait, by turns with a portion; nobody when the thread is to end."""
        with self._news:
            self._news.wait_for(lambda: self._line or self._portions or self._stopping, timeout=IDLE)
            self._had_portion = bool(self._portions) and not (self._line and self._had_portion)
            if self._had_portion:
                return self._portions.popleft()
            if not self._line:
                self._thread = None
            return [self._line.popleft() for _ in range(min(len(self._line), LARGEST_GROUP))]


def _commit(group: Sequence[PendingWrite[object]]) -> None:
    """Every work of `group` has ended when this returns."""
    error: BaseException | None = None
    try:
        # Where the server has closed the connection meanwhile, another one is opened.
        connection.close_if_unusable_or_obsolete()
        SHARED.observe(len(group))
        _commit_together(group)
    except (Error, ApiError) as fault:
        away = isinstance(fault, OperationalError | InterfaceError) and not sql.disk_is_full(fault)
        if away:
            connection.close()
        elif len(group) > 1:
            # On a full disk a few of many deletions go through, and the pruning after each makes room for the next.
            for waiting in group:
                _commit([waiting])
            return
        error = fault
    except BaseException as fault:
        error = fault
    _end(group, error)


def _end(group: Sequence[PendingWrite[object]], error: BaseException | None) -> None:
    for waiting in group:
        waiting.end(_copied(error))


def _copied(error: BaseException | None) -> BaseException | None:
    """Each thread raises one of its own: raising writes to it."""
    if error is None:
        return None
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied


def _commit_together(group: Sequence[PendingWrite[object]]) -> None:
    # Everybody hears of the outcome before an announcement wakes other threads, which would compete with the answer.
    with writing(
        reads=_announced(read for waiting in group for read in waiting.reads), committed=partial(_end, group, None)
    ) as writer:
        for waiting in group:
            waiting.run(writer)


def _announced(reads: Iterable[Read]) -> Wanted:
    return {read.key: (read.kind, read.known) for read in reads}


commits = PerProcess(GroupCommit, stop=GroupCommit.stop)


def write(
    work: Callable[[Writer], T],
    *,
    identity: Identity = SYSTEM,
    reads: Sequence[Read] = (),
    dry_run: bool = False,
) -> T:
    """Run `work` in a transaction and return what it returns, once committed; see the module's docstring.

    identity: who writes. reads: what `work` is going to read.
    A dry run, and a work inside of a transaction of the
    caller's, is run where it stands.
    Raises: what `work` raises; django.db.Error when the database refuses or is away.
    """
    if dry_run or is_open() or connection.in_atomic_block:
        with writing(identity=identity, reads=_announced(reads), dry_run=dry_run) as writer:
            return work(writer)
    waiting = PendingWrite(work, identity, reads)
    commits.value.add([waiting])
    return waiting.outcome()


def portions(
    items: Iterable[T], size: Callable[[T], int], *, most: int | None = None, most_bytes: int | None = None
) -> Iterator[Sequence[T]]:
    """`items` in parts of at most `most` of them and `most_bytes`, or else small enough for one transaction.

    size: bytes of the document of one item, which may be a part by itself.
    """
    most, most_bytes = most or PORTION, most_bytes or PORTION_BYTES
    portion: builtins.list[T] = []  # here `list` lists objects
    total = 0
    for item in items:
        if portion and (len(portion) == most or total + size(item) > most_bytes):
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += size(item)
    if portion:
        yield portion


def settle(works: Sequence[PendingWrite[T]], *, dry_run: bool = False, portion: bool = False) -> None:
    """Put them in line together; or, as `write` does, run them where they stand. Each tells its outcome itself.

    portion: they are part of the work on a whole collection.
    Raises: django.db.Error of those that are run where they stand.
    """
    if dry_run or is_open() or connection.in_atomic_block:
        with writing(reads=_announced(read for one in works for read in one.reads), dry_run=dry_run) as writer:
            for one in works:
                one.run(writer)
        _end(cast("Sequence[PendingWrite[object]]", works), None)
    elif works:
        commits.value.add(works, portion=portion)


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


#: Rows that are compared with selectors between two looks at the request's time.
SEARCHED_AT_ONCE = 256


class Query(NamedTuple):
    """What a list asks for."""

    kind: Kind
    namespace: str
    labels: StoreSelector | None
    fields: FieldsSelector | None
    limit: int

    @property
    def selective(self) -> bool:
        return self.labels is not None or self.fields is not None

    def select(self, rows: Sequence[sql.LatestRow]) -> Sequence[sql.LatestRow]:
        """The rows that match. It gives way to other requests, since a namespace may hold any number of objects."""
        if not self.selective:
            return rows
        matching: builtins.list[sql.LatestRow] = []
        for chunk in sql.chunks(rows, SEARCHED_AT_ONCE):
            check_time()
            matching += (row for row in chunk if self._matches(row))
        return matching

    def _matches(self, row: sql.LatestRow) -> bool:
        if self.labels is not None and not self.labels.matches(records.load(row.labels)):
            return False
        return self.fields is None or self.fields.matches(records.load(row.fields))


def list(
    kind: Kind,
    *,
    namespace: str = "",
    labels: StoreSelector | None = None,
    fields: FieldsSelector | None = None,
    limit: int = 0,
    continue_token: str = "",
    exactly: int = 0,
) -> Page:
    """One page; `limit` 0 means everything. Ordered by (namespace, name), bytewise.

    exactly: the revision at which the first page is wanted; 0: the newest.
    Raises: BadRequest for a strange token; Expired when the wanted revision, or the token's, is pruned.
    """
    query = Query(kind, namespace, labels, fields, limit)
    if continue_token:
        return _later_page(query, decode_token(continue_token))
    if exactly:
        too_old = Expired(f"The resourceVersion for the provided list is too old: {exactly}.")
        return _later_page(query, Continue(exactly, "", "", remaining=0), too_old)
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
    mentions = query.fields.mentions if query.fields is not None else ()
    resource, namespace = query.kind.resource, query.namespace
    revision, found = sql.live(resource, namespace=namespace, limit=0, with_text=False, mentions=mentions)
    matching = query.select(found)
    items = _read(query, matching)
    if len(items) == len(matching):
        return Page(items=items, revision=revision, continue_token="", remaining=None)
    return _unfinished(revision, items, remaining=0)


def _later_page(query: Query, token: Continue, expired: Expired | None = None) -> Page:
    """The page behind the token's key. Raises: `expired`, by default that the token is too old."""
    enough = query.limit + 1 if query.limit and not query.selective else 0
    resource, namespace = query.kind.resource, query.namespace
    found = sql.as_of(resource, token.revision, namespace=namespace, after=token.key, limit=enough)
    matching = query.select(found)
    items = _read(query, matching, expired)
    # Pruning moves the floor before it removes anything: asked after reading, the floor vouches for what was read.
    if token.revision < sql.counter()[1]:
        raise expired or _expired()
    if len(items) == len(matching):
        return Page(items=items, revision=token.revision, continue_token="", remaining=None)
    remaining = max(token.remaining - len(items), 1) if token.remaining else 0
    return _unfinished(token.revision, items, remaining=remaining)


def _unfinished(revision: int, items: tuple[Stored, ...], *, remaining: int) -> Page:
    """A page with more behind it. remaining: 0 where it is not known."""
    token = encode_token(Continue(revision, items[-1].namespace, items[-1].name, remaining))
    return Page(items=items, revision=revision, continue_token=token, remaining=remaining or None)


def _read(query: Query, found: Sequence[sql.LatestRow], expired: Expired | None = None) -> tuple[Stored, ...]:
    """As many of `found` as fit on the page, with their documents. Raises: `expired`, by default that of a token."""
    shown = found[: query.limit] if query.limit else found
    texts = sql.texts(row.revision for row in shown)
    # A document can only be missing when pruning has overtaken this list.
    if len(texts) < len(shown):
        raise expired or _expired()
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
    fields: FieldsSelector | None = None,
) -> tuple[int, Iterator[tuple[Stored, ...]]]:
    """(revision, the objects at it) for slow readers: each portion is read on demand.

    Raises: Expired, from the portions, when pruning has overtaken this list.
    """
    query = Query(kind, namespace, labels, fields, limit=0)
    revision, found = sql.live(kind.resource, namespace=namespace, limit=0, with_text=False)
    matching = query.select(found)
    return revision, _portions_of(query, matching, revision)


def _portions_of(query: Query, rows: Sequence[sql.LatestRow], revision: int) -> Iterator[tuple[Stored, ...]]:
    for chunk in sql.chunks(rows, sql.CHUNK):
        sizes = sql.sizes(row.revision for row in chunk)
        for portion in portions(chunk, lambda row: sizes.get(row.revision, 0), most=sql.CHUNK, most_bytes=READ_BYTES):  # noqa: B023
            texts = sql.texts(row.revision for row in portion)
            if len(texts) < len(portion):
                raise Expired(f"too old resource version: {revision}")
            yield tuple(row.stored(query.kind.resource, texts[row.revision]) for row in portion)


def undeleted(kind: Kind, *, namespace: str = "", most: float = math.inf) -> Iterator[Sequence[tuple[str, str]]]:
    """The keys of objects that nobody has deleted yet, in portions for one transaction each; each key once."""
    after: tuple[str, str] | None = None
    while most > 0 and (rows := sql.undeleted(kind.resource, int(min(most, PAGE)), namespace=namespace, after=after)):
        for portion in portions(rows, lambda row: row[2]):
            yield [(namespace, name) for namespace, name, _ in portion]
        most, after = most - len(rows), rows[-1][:2]


# Single objects -------------------------------------------------------------------------------------------------------


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
    return records.cache.value.by_key((kind.resource, namespace, name))


def known(kind: Kind, obj: ApiObject) -> Current:
    """An object that was read before, as `Read` takes it."""
    return Current.of(kind, obj)


# Owners ---------------------------------------------------------------------------------------------------------------


def controlled_by(owner_uids: QuerySet[Any, Any], kind: Kind) -> builtins.list[tuple[str, str]]:
    """(namespace, name) of the live objects of `kind` that one of these owners controls. One query."""
    links = OwnerLink.objects.filter(owner_uid__in=owner_uids, controller=True)
    owned = StoredObject.objects.filter(uid__in=links.values("object_id"), resource=kind.resource)
    return [*owned.values_list("namespace", "name")]


def dependents(owner_uids: Collection[str], kind: Kind) -> dict[str, builtins.list[tuple[str, str]]]:
    """owner uid -> (namespace, name) of the live objects of `kind` that name it, oldest first; committed ones only. Two
    queries."""
    links = sql.select(OwnerLink, ["object_id", "owner_uid"], ["owner_uid"], [(uid,) for uid in owner_uids])
    columns = ["uid", "resource", "event_id", "namespace", "name"]
    objects = {uid: rest for uid, *rest in sql.select(StoredObject, columns, ["uid"], [link[:1] for link in links])}
    rows = sorted((*objects[uid], owner) for uid, owner in links if objects.get(uid, ("",))[0] == kind.resource)
    found: dict[str, builtins.list[tuple[str, str]]] = {}
    for _, _, namespace, name, owner_uid in rows:
        found.setdefault(owner_uid, []).append((namespace, name))
    return found


# Index rows -----------------------------------------------------------------------------------------------------------


#: Objects decoded at a time.
DECODED = 500


def reindex() -> dict[str, int]:
    """Rebuild everything that is derived from documents: index rows and owner links.

    It runs in one transaction under the counter's lock: nobody writes meanwhile, and readers see the old rows until the
    new ones are complete. Returns how many objects of each resource were read.
    """
    with sql.locked_counter():
        sql.clear(OwnerLink)
        for projector in hooks.PROJECTORS.values():
            projector.clear()
        return {kind.resource: _reindex_kind(kind) for kind in registry}


def _reindex_kind(kind: Kind) -> int:
    total, now = 0, datetime.now(UTC)
    _, found = sql.live(kind.resource, namespace="", limit=0, with_text=False)
    for rows in sql.chunks(found, DECODED):
        batch = [
            Change(type="ADDED", object=obj, previous=None, at=now, copied=copied)
            for obj, copied in _read_again(kind, rows)
        ]
        link([(kind, change.object) for change in batch])
        if projector := hooks.PROJECTORS.get(kind.resource):
            projector.project(batch)
        total += len(batch)
    return total


def _read_again(kind: Kind, rows: Sequence[sql.LatestRow]) -> Iterator[tuple[ApiObject, bool]]:
    """Each object, and whether it was copied from another cluster."""
    texts, notes = sql.texts(row.revision for row in rows), sql.notes(row.revision for row in rows)
    for row in rows:
        yield decode(kind, texts[row.revision]), records.is_of_copy(notes[row.revision])
