"""The store's SQL: many rows at a time, every read of its own tables that is hot, and transactions.

Plain `executemany` beats the ORM several times over on both engines; on PostgreSQL rows, and keys that are looked for,
travel as one array a column, which costs neither side the parsing of hundreds of placeholders, and COPY where there are
very many. Values are what the database takes: JSON columns get JSON text, and moments are `datetime`s.
The projectors write their index rows with it too.

A read on a hot path is one statement. It sees one snapshot on SQLite and on PostgreSQL alike, without a transaction
around it (which on SQLite would queue up behind the writers). Documents are immutable under their revision, so reading
them in a second statement is as consistent as the first was.

**Transactions.** A transaction that writes holds the lock of the counter's row from its first statement to the commit,
so writers follow each other and a revision becomes visible only when all below it are. On SQLite the transaction is
immediate, and a first-come first-served turn within the process precedes it, because SQLite's own busy wait lets some
wait for seconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import datetime
from functools import cache, lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec
from django.db import Error, connection, models, transaction

from manciple.store import records
from manciple.store.records import Stored

# Many rows at a time --------------------------------------------------------------------------------------------------


#: Below this many rows COPY costs more than it saves: arrays are as cheap, and share one round trip with all else.
COPY_FROM = 1000
#: Parameters in one statement; SQLite takes at most 32,766.
PARAMETERS = 1000
#: Rows of one array, which is one parameter a column on PostgreSQL.
ARRAY = 5000

T = TypeVar("T")
Row = Sequence[Any]
Query = tuple[str, Sequence[Any]]  # (statement, parameters)
ModelClass = type[models.Model]

_encoder = msgspec.json.Encoder()


def chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(values)
    while chunk := list(islice(iterator, size)):
        yield chunk


def fetch(statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def fetch_together(queries: Sequence[Query]) -> list[list[tuple[Any, ...]]]:
    """What each of `queries` finds, asked one after the other; on PostgreSQL in one round trip."""
    with pipelined(), ExitStack() as stack:
        cursors = [stack.enter_context(connection.cursor()) for _ in queries]
        for cursor, (statement, parameters) in zip(cursors, queries, strict=True):
            cursor.execute(statement, parameters)
        return [cursor.fetchall() for cursor in cursors]


def pipelined() -> AbstractContextManager[None]:
    """On PostgreSQL, send what is executed within without waiting for each answer: together it is one round trip.

    What the database refuses is then raised by the next read, or at the end; `execute` cannot tell how many rows a
    statement touched.
    """
    return _pipeline() if on_postgresql() and not _is_pipelined() else nullcontext()


def commit_pipelined() -> AbstractContextManager[None]:
    """On PostgreSQL, the same for the last statements of an outermost transaction, with COMMIT behind them. Within
    `pipelined`, what fails is raised at its end.
    """
    if not on_postgresql():
        return nullcontext()
    if _is_pipelined():
        return _commit_behind()
    committing: Any = connection  # of `manciple.postgresql`
    pipeline: AbstractContextManager[None] = committing.commit_pipelined()
    return pipeline


@contextmanager
def _pipeline() -> Iterator[None]:
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield


@contextmanager
def _commit_behind() -> Iterator[None]:
    yield
    execute("COMMIT")


#: Parameters of one statement whose text psycopg parses once, and keeps (MAX_CACHED_STATEMENT_PARAMS).
GATHERED = 50


class _Gathering(threading.local):
    """Writes of this thread that are not sent yet, each of a table of its own."""

    is_open = False

    def __init__(self) -> None:
        self._tables: set[str] = set()
        self._statements: list[str] = []
        self._parameters: list[Any] = []

    def add(self, table: str, statement: str, parameters: Sequence[Any]) -> None:
        if table in self._tables or len(self._parameters) + len(parameters) > GATHERED:
            self.send()
        self._tables.add(table)
        self._statements.append(statement)
        self._parameters.extend(parameters)

    def take(self) -> Query:
        """What is gathered, as one statement; "" where nothing is."""
        statements, parameters = self._statements, self._parameters
        self._tables, self._statements, self._parameters = set(), [], []
        if not statements[1:]:
            return "".join(statements), parameters
        written = ", ".join(f"write_{number} AS ({one})" for number, one in enumerate(statements))
        return f"WITH {written} SELECT 1", parameters

    def send(self) -> None:
        statement, parameters = self.take()
        if statement:
            execute(statement, parameters)


_gathering = _Gathering()


@contextmanager
def gathered() -> Iterator[None]:
    """On PostgreSQL, send inserts, updates and deletes within as few statements as can be.

    Such writes see the database as it was before their statement, and are done in no order. So each is of a table of
    its own, and any other statement is executed after what was gathered before it.
    """
    if not on_postgresql():
        yield
        return

    def in_order(execute: Any, *arguments: Any) -> Any:
        _gathering.send()
        return execute(*arguments)

    _gathering.is_open = True
    try:
        with connection.execute_wrapper(in_order):
            yield
            _gathering.send()
    finally:
        _gathering.is_open = False
        _gathering.take()  # an exception leaves nothing to the next


def write(table: str, statement: str, parameters: Sequence[Any]) -> None:
    """Execute what changes rows of this table and reads no other."""
    if _gathering.is_open:
        _gathering.add(table, statement, parameters)
    else:
        execute(statement, parameters)


def _is_pipelined() -> bool:
    driver = connection.connection
    return driver is not None and bool(driver.pgconn.pipeline_status)


def execute(statement: str, parameters: Sequence[Any] = ()) -> int:
    """Returns the number of rows that the statement touched."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def execute_many(statement: str, rows: Sequence[Row]) -> None:
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(statement, rows)


@cache
def on_postgresql() -> bool:
    """Asked several times for each statement: Django's `connection` looks itself up each time."""
    return connection.vendor == "postgresql"


#: Pages of the write-ahead log that SQLite puts into the file at once, and of its cache, of a thread that writes much:
#: 64 MB each.
_PAGES_OF_MUCH = 16_000


def write_much() -> None:
    """For a thread that copies many objects: on SQLite, pages that change again and again stay in memory for a
    transaction, and go into the file once, instead of after each megabyte or two.
    """
    if not on_postgresql():
        execute(f"PRAGMA wal_autocheckpoint={_PAGES_OF_MUCH}")
        execute(f"PRAGMA cache_size={_PAGES_OF_MUCH}")


#: What PostgreSQL says of a full disk (SQLSTATE).
_DISK_FULL = "53100"


def disk_is_full(error: BaseException) -> bool:
    """Whether this is what the database raises when its disk is full."""
    driver = error.__cause__ if isinstance(error, Error) else error
    return getattr(driver, "sqlite_errorname", "") == "SQLITE_FULL" or getattr(driver, "sqlstate", "") == _DISK_FULL


def insert(model: ModelClass, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert `rows`, whose values stand in the order of `columns`."""
    table, listed = model._meta.db_table, ", ".join(columns)
    if not rows:
        return
    if not on_postgresql():
        places = ", ".join(["%s"] * len(columns))
        statement = f"INSERT INTO {table} ({listed}) VALUES ({places})"  # noqa: S608 - names of our models
        execute_many(statement, _adapted(model, columns, rows))
    elif len(rows) < COPY_FROM or _is_pipelined():  # the protocol knows no COPY in a pipeline
        given, parameters = _given_array(columns, rows, types=_types(model, tuple(columns)))
        write(table, f"{given} INSERT INTO {table} ({listed}) SELECT * FROM given", parameters)  # noqa: S608 - as above
    else:
        _copy(f"COPY {table} ({listed}) FROM STDIN", rows)


def _copy(statement: str, rows: Sequence[Row]) -> None:
    if any("\0" in value for row in rows for value in row if isinstance(value, str)):
        rows = [_without_nul(list(row)) for row in rows]
    writing: Any = connection  # of `manciple.postgresql`
    writing.copy_rows(statement, rows)


def _adapted(model: ModelClass, columns: Sequence[str], rows: Sequence[Row]) -> Sequence[Row]:
    """Rows as the driver takes them. Most columns are no moments, so only those that are get looked at."""
    places = _moments(model, tuple(columns))
    if not places:
        return rows
    made = []
    for row in rows:
        values = list(row)
        for place in places:
            values[place] = adapted(values[place])
        made.append(values)
    return made


@cache
def _moments(model: ModelClass, columns: tuple[str, ...]) -> tuple[int, ...]:
    """Where the columns of moments stand."""
    kept = {field.column for field in model._meta.concrete_fields if isinstance(field, models.DateTimeField)}
    return tuple(place for place, column in enumerate(columns) if column in kept)


def adapted(value: Any) -> Any:
    """As the driver takes it: on SQLite moments are text."""
    return _moment(value) if isinstance(value, datetime) else value


@lru_cache(maxsize=256)
def _moment(value: datetime) -> Any:
    """Rows that are written together have a few moments in common."""
    return connection.ops.adapt_datetimefield_value(value)


def update(model: ModelClass, key: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Set `columns` of the rows named by `key`; each of `rows` is the key's value, then those of `columns`."""
    if not rows:
        return
    table = model._meta.db_table
    if not on_postgresql():
        changes = ", ".join(f"{column} = %s" for column in columns)
        statement = f"UPDATE {table} SET {changes} WHERE {key} = %s"  # noqa: S608 - names of our models
        execute_many(statement, [(*row[1:], row[0]) for row in _adapted(model, (key, *columns), rows)])
        return
    changes = ", ".join(f"{column} = given.{column}" for column in columns)
    given, parameters = _given_array((key, *columns), rows, types=_types(model, (key, *columns)))
    statement = f"{given} UPDATE {table} SET {changes} FROM given WHERE {table}.{key} = given.{key}"  # noqa: S608 - as above
    write(table, statement, parameters)


def delete(model: ModelClass, by: Sequence[str], keys: Iterable[Row]) -> None:
    """Delete the rows whose columns `by` (of text) are one of `keys`."""
    table, key = model._meta.db_table, str(model._meta.pk.column)
    for given, found, parameters in _among(model, (key,), by, keys):
        # As an array, so that PostgreSQL deletes by key and does not join with the whole table.
        among = f"= ANY(ARRAY({found}))" if on_postgresql() else f"IN ({found})"
        write(table, f"{given} DELETE FROM {table} WHERE {key} {among}", parameters)  # noqa: S608 - names of our models


def select(model: ModelClass, columns: Sequence[str], by: Sequence[str], keys: Iterable[Row]) -> list[tuple[Any, ...]]:
    """The `columns` of the rows whose columns `by` (of text) are one of `keys`, in no order."""
    found: list[tuple[Any, ...]] = []
    for statement, parameters in selecting(model, columns, by, keys):
        found.extend(fetch(statement, parameters))
    return found


def selecting(model: ModelClass, columns: Sequence[str], by: Sequence[str], keys: Iterable[Row]) -> Iterator[Query]:
    """What `select` asks."""
    for given, found, parameters in _among(model, columns, by, keys):
        yield f"{given} {found}", parameters


def clear(model: ModelClass) -> None:
    execute(f"DELETE FROM {model._meta.db_table}")  # noqa: S608 - the name of our model


def given_table(columns: Sequence[str], rows: Sequence[Row]) -> tuple[str, list[Any]]:
    """A WITH clause that makes `rows` (of text, at least one) the table `given`, and its parameters."""
    if on_postgresql():
        return _given_array(columns, rows, types=["text"] * len(columns))
    place = f"({', '.join(['%s'] * len(columns))})"
    clause = f"WITH given ({', '.join(columns)}) AS (VALUES {', '.join([place] * len(rows))})"
    return clause, [value for row in rows for value in row]


def given_tables(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[tuple[str, list[Any]]]:
    """The same for any number of rows, as few at a time as the database takes; each row once."""
    most = ARRAY if on_postgresql() else PARAMETERS // len(columns)
    for chunk in chunks(dict.fromkeys(map(tuple, rows)), most):
        yield given_table(columns, chunk)


def _given_array(columns: Sequence[str], rows: Sequence[Row], *, types: Sequence[str]) -> tuple[str, list[Any]]:
    arrays = [_array(values) for values in zip(*rows, strict=True)]
    # %b: as text the driver would escape each quote of each document of a list, in Python.
    places = (
        f"{'%s' if isinstance(array, str) else '%b'}::{type_}[]" for array, type_ in zip(arrays, types, strict=True)
    )
    clause = f"WITH given ({', '.join(columns)}) AS (SELECT * FROM unnest({', '.join(places)}))"  # noqa: S608 - types of our columns
    return clause, arrays


#: Characters from which a text is long: then escaping its quotes takes longer than what the driver does in Python.
_LONG = 256


def _array(values: Sequence[Any]) -> str | list[Any]:
    """An array as PostgreSQL reads it, made in one step; the list itself, for the driver, where that cannot be, and
    where it is faster.

    JSON differs from it in the brackets, and in what a backslash means before all but quotes and backslashes.
    """
    if isinstance(values[0], str) and len(values[0]) >= _LONG:
        return [_without_nul(value) for value in values]
    text = _encoder.encode(values).decode()
    if "\\" in text and "\\" in text.replace("\\\\", "").replace('\\"', ""):
        return [_without_nul(value) for value in values]
    return f"{{{text[1:-1]}}}"


@cache
def _types(model: ModelClass, columns: tuple[str, ...]) -> tuple[str, ...]:
    types = {field.column: field.db_type(connection) or "text" for field in model._meta.concrete_fields}
    # Without its length: a cast to varchar(8) cuts what is too long, where the column itself refuses it.
    return tuple(types[column].partition("(")[0] for column in columns)


def for_each_given(columns: str, tables: str, where: str) -> str:
    """A SELECT of `columns` of the rows of `tables` that match each row of `given`: one index lookup a row of `given`.

    An index must begin with the columns that `where` compares with `given`. tables: joined with CROSS JOIN, in the
    order in which to read them.

    SQLite would use only the first column of an index for `(a, b) IN (...)`, and reads the left side of a CROSS JOIN
    first. PostgreSQL, until it has statistics of a table (which take minutes after a burst), reads all of it for a few
    rows of `given`, unless a lateral subquery that it must not flatten (OFFSET) leaves no choice.
    """
    if on_postgresql():
        found = f"SELECT {columns} FROM {tables} WHERE {where} OFFSET 0"  # noqa: S608 - the callers' names
        return f"SELECT found.* FROM given CROSS JOIN LATERAL ({found}) found"  # noqa: S608
    return f"SELECT {columns} FROM given CROSS JOIN {tables} WHERE {where}"  # noqa: S608


def _among(
    model: ModelClass, columns: Sequence[str], by: Sequence[str], keys: Iterable[Row]
) -> Iterator[tuple[str, str, list[Any]]]:
    """(WITH clause, SELECT of `columns`, parameters) triples that together cover `keys`."""
    found = ""
    for given, parameters in given_tables(by, keys):
        if not found:
            listed = ", ".join(f"t.{column}" for column in columns)
            match = " AND ".join(f"t.{column} = given.{column}" for column in by)
            found = for_each_given(listed, f"{model._meta.db_table} t", match)
        yield given, found, parameters


def as_json(value: Any) -> str:
    """JSON for a column that the database can look into. PostgreSQL's cannot hold NUL: it shows as U+FFFD there."""
    text = _encoder.encode(value).decode()
    return text if "\\u0000" not in text else _encoder.encode(_without_nul(msgspec.json.decode(text))).decode()


def _without_nul(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


# Reads of the store's tables ------------------------------------------------------------------------------------------


Key = tuple[str, str, str]  # (resource, namespace, name)
Reference = tuple[str, str, str, str]  # (resource, namespace, name, UID/REVISION of what is known of it, or "")

#: A store nobody has written to: revision 0 means "any" to clients, so the first list answers 1.
FIRST_REVISION = 1
#: Values in one IN list; SQLite takes at most 32,766 parameters.
CHUNK = 500


class LatestRow(msgspec.Struct, frozen=True, gc=False):
    """An object as its latest event tells it; `document` is None where documents were not asked for."""

    namespace: str
    name: str
    uid: str
    revision: int
    deleting: bool
    labels: str
    fields: str
    document: str | None = None  # as the database has it

    @property
    def text(self) -> str:
        """The document as the API serves it; "" where it was not asked for."""
        return records.plain(self.document, self.revision) if self.document else ""

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    def stored(self, resource: str, text: str) -> Stored:
        return Stored(
            resource=resource,
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            revision=self.revision,
            text=text,
            labels_text=self.labels,
            deleting=self.deleting,
        )


_ROW = "o.namespace, o.name, o.uid, e.revision, e.deleting, e.labels, e.fields"
_LIVE = "store_storedobject o JOIN store_event e ON e.revision = o.event_id"
_ONE = f"SELECT {_ROW}, e.document FROM {_LIVE} WHERE o.resource = %s"  # noqa: S608 - constants only
_NAMED = "o.namespace = given.namespace AND o.name = given.name"
_UNLESS_KNOWN = "CASE WHEN o.uid || '/' || CAST(e.revision AS TEXT) = given.known THEN NULL ELSE e.document END"
#: the counter's row beside every object, or alone where there is none
_ALL = (
    "SELECT r.current, {row} FROM store_revision r LEFT JOIN store_storedobject o ON o.resource = %s {where} "
    "LEFT JOIN store_event e ON e.revision = o.event_id WHERE r.id = 1 ORDER BY o.namespace, o.name"
)
#: the same, of which only the revisions are asked for
_LATEST = (
    "SELECT r.current, o.event_id FROM store_revision r LEFT JOIN store_storedobject o ON o.resource = %s "
    "WHERE r.id = 1 ORDER BY o.namespace, o.name"
)
#: the same for the first few: cut before it is joined, so that an index gives order and end
_FIRST = (
    f"SELECT r.current, o.* FROM store_revision r LEFT JOIN (SELECT {{row}} FROM {_LIVE} "  # noqa: S608
    "WHERE o.resource = %s {where} ORDER BY o.namespace, o.name LIMIT %s) o ON 1 = 1 "
    "WHERE r.id = 1 ORDER BY o.namespace, o.name"
)
#: More rows than a list can have.
EVERY_ROW = 2**31 - 1
_SUPERSEDED = "store_event n JOIN store_event o ON o.revision = n.previous_revision"
_AS_OF = (
    f"SELECT {_ROW} FROM {_LIVE} WHERE o.resource = %s AND o.event_id <= %s {{where}} UNION ALL "  # noqa: S608
    f"SELECT {_ROW.replace('e.', 'o.')} FROM {_SUPERSEDED} WHERE n.resource = %s AND n.revision > %s "
    "AND n.previous_revision <= %s {where} ORDER BY 1, 2"
)


def _row(values: Sequence[Any]) -> LatestRow:
    namespace, name, uid, revision, deleting, *rest = values
    return LatestRow(namespace, name, uid, revision, bool(deleting), *rest)


def by_key(resource: str, namespace: str, name: str) -> LatestRow | None:
    found = fetch(f"{_ONE} AND o.namespace = %s AND o.name = %s", (resource, namespace, name))
    return _row(found[0]) if found else None


def by_uid(resource: str, uid: str) -> LatestRow | None:
    found = fetch(f"{_ONE} AND o.uid = %s", (resource, uid))
    return _row(found[0]) if found else None


def by_keys(resource: str, keys: Iterable[tuple[str, str]]) -> Iterator[LatestRow]:
    """The live objects among `keys` (namespace, name)."""
    found = for_each_given(f"{_ROW}, e.document", _LIVE, f"o.resource = %s AND {_NAMED}")
    for chunk in chunks(keys, CHUNK):
        given, parameters = given_table(("namespace", "name"), chunk)
        yield from map(_row, fetch(f"{given} {found}", (*parameters, resource)))


def references_queries(references: Iterable[Reference]) -> list[Query]:
    """What finds the live objects among `references`; `references_found` reads the answers."""
    queries: list[Query] = []
    found = for_each_given(f"o.resource, {_ROW}, {_UNLESS_KNOWN}", _LIVE, f"o.resource = given.resource AND {_NAMED}")
    for chunk in chunks(references, CHUNK):
        given, parameters = given_table(("resource", "namespace", "name", "known"), chunk)
        queries.append((f"{given} {found}", parameters))
    return queries


def references_found(answers: Iterable[Iterable[Sequence[Any]]]) -> dict[Key, LatestRow]:
    """By key; `row.document` is None where what is known is current."""
    found: dict[Key, LatestRow] = {}
    for answer in answers:
        for resource, *values in answer:
            row = _row(values)
            found[(resource, *row.key)] = row
    return found


def _where(namespace: str, after: tuple[str, str] | None) -> tuple[str, list[str]]:
    conditions, parameters = "", []
    if namespace:
        conditions += " AND o.namespace = %s"
        parameters.append(namespace)
    if after is not None:
        conditions += " AND (o.namespace, o.name) > (%s, %s)"
        parameters.extend(after)
    return conditions, parameters


def live(
    resource: str, *, namespace: str, limit: int, with_text: bool, mentions: Collection[str] = ()
) -> tuple[int, list[LatestRow]]:
    """The current revision and the objects at it, in order of (namespace, name); `limit` 0 means all. mentions: only
    those whose fields contain one of these texts.
    """
    conditions, parameters = _where(namespace, None)
    if mentions:
        contains = "strpos(e.fields, %s) > 0" if on_postgresql() else "instr(e.fields, %s) > 0"
        conditions += f" AND ({' OR '.join([contains] * len(mentions))})"
        parameters += mentions
    row = f"{_ROW}, e.document" if with_text else _ROW
    is_cut = bool(limit or mentions)
    statement = (_FIRST if is_cut else _ALL).format(row=row, where=conditions)
    found = fetch(statement, [resource, *parameters, *([limit or EVERY_ROW] if is_cut else [])])
    if not found:
        return FIRST_REVISION, []
    return found[0][0], [_row(values[1:]) for values in found if values[3] is not None]


def latest_writes(resource: str) -> tuple[int, list[int]]:
    """The current revision, and the revision of the latest write of each object, in order of (namespace, name)."""
    found = fetch(_LATEST, [resource])
    if not found:
        return FIRST_REVISION, []
    return found[0][0], [written for _, written in found if written is not None]


def as_of(resource: str, revision: int, *, namespace: str, after: tuple[str, str], limit: int) -> list[LatestRow]:
    """The objects behind key `after` as they were at `revision`, without documents; `limit` 0 means all.

    Only true while `revision` is not below the pruned floor: the caller checks that after reading.
    """
    conditions, parameters = _where(namespace, after)
    statement = _AS_OF.format(where=conditions)
    arguments: list[Any] = [resource, revision, *parameters, resource, revision, revision, *parameters]
    if limit:
        statement += " LIMIT %s"
        arguments.append(limit)
    return [_row(values) for values in fetch(statement, arguments)]


def object_at(revision: int) -> tuple[str, str, str] | None:
    """(resource, namespace, name) of what was written at a revision; None where it is pruned."""
    found = fetch("SELECT resource, namespace, name FROM store_event WHERE revision = %s", [revision])
    return found[0] if found else None


def among(column: str, numbers: Collection[int]) -> Query:
    """The condition that the column is one of these, with its parameters."""
    if not numbers:
        return "1 = 0", ()
    listed = ",".join(map(str, numbers))
    if on_postgresql():
        return f"{column} = ANY(%s::bigint[])", (f"{{{listed}}}",)
    return f"{column} IN (SELECT value FROM json_each(%s))", (f"[{listed}]",)  # noqa: S608 - names of our columns


def is_one_of(column: str, values: Collection[str]) -> tuple[str, list[Any]]:
    """The condition that the column (of text) is one of these, with its parameters. On PostgreSQL neither the text of
    the statement nor its plan depends on the values.
    """
    if not values:
        return "1 = 0", []
    if on_postgresql():
        return f"{column} = ANY((SELECT %s::text[])::text[])", [_array([*values])]
    return f"{column} IN ({', '.join(['%s'] * len(values))})", [*values]


def texts(revisions: Iterable[int]) -> dict[int, str]:
    """Documents by revision; what is pruned is absent."""
    found: dict[int, str] = {}
    for chunk in chunks(revisions, CHUNK):
        places = ", ".join(["%s"] * len(chunk))
        statement = f"SELECT revision, document FROM store_event WHERE revision IN ({places})"  # noqa: S608
        found.update((revision, records.plain(text, revision)) for revision, text in fetch(statement, chunk))
    return found


def notes(revisions: Iterable[int]) -> dict[int, str]:
    """The notes on the authors by revision; what is pruned is absent."""
    found: dict[int, str] = {}
    for chunk in chunks(revisions, CHUNK):
        places = ", ".join(["%s"] * len(chunk))
        found.update(fetch(f"SELECT revision, actor FROM store_event WHERE revision IN ({places})", chunk))  # noqa: S608
    return found


def size_function() -> str:
    """Of a text: PostgreSQL counts bytes without reading it, SQLite counts characters."""
    return "octet_length" if on_postgresql() else "length"


def sizes(revisions: Iterable[int]) -> dict[int, int]:
    """Sizes of documents by revision; what is pruned is absent."""
    found: dict[int, int] = {}
    for chunk in chunks(revisions, CHUNK):
        places = ", ".join(["%s"] * len(chunk))
        statement = f"SELECT revision, {size_function()}(document) FROM store_event WHERE revision IN ({places})"  # noqa: S608
        found.update(fetch(statement, chunk))
    return found


def undeleted(
    resource: str, limit: int, *, namespace: str = "", after: tuple[str, str] | None = None
) -> list[tuple[str, str, int]]:
    """(namespace, name, size of the document) of the first objects, `after` one, that nobody has deleted yet."""
    conditions, parameters = _where(namespace, after)
    statement = (
        f"SELECT o.namespace, o.name, {size_function()}(e.document) FROM {_LIVE} "  # noqa: S608
        f"WHERE o.resource = %s{conditions} AND NOT e.deleting ORDER BY 1, 2 LIMIT %s"
    )
    return [(namespace, name, size) for namespace, name, size in fetch(statement, [resource, *parameters, limit])]


def kinds_in(namespace: str, resources: Iterable[str]) -> list[str]:
    """Those of the resources of which the namespace has objects."""
    statement = (
        "SELECT resource FROM given WHERE EXISTS "
        "(SELECT 1 FROM store_storedobject o WHERE o.resource = given.resource AND o.namespace = %s)"
    )
    present: list[str] = []
    for given, parameters in given_tables(("resource",), [(resource,) for resource in resources]):
        present.extend(resource for (resource,) in fetch(f"{given} {statement}", [*parameters, namespace]))
    return present


def exists(resource: str) -> bool:
    """Whether there is any object of the kind."""
    condition, parameters = any_of((resource,))
    return bool(fetch(f"SELECT {condition}", parameters)[0][0])


def any_of(resources: Iterable[str], *, but: tuple[str, str] = ("", "")) -> Query:
    """(a condition, its parameters): whether there is any object of these resources, except the one with that key.

    Asked for the first by name, PostgreSQL looks into the index; asked whether one exists, it may read the table up to
    the first that it finds, past all pods.
    """
    first = (
        "(SELECT o.name FROM store_storedobject o WHERE o.resource = %s AND NOT (o.namespace = %s AND o.name = %s) "
        "ORDER BY o.namespace, o.name LIMIT 1) IS NOT NULL"
    )
    named = tuple(resources)
    return " OR ".join([first] * len(named)), tuple(value for resource in named for value in (resource, *but))


def count(resource: str, *, namespace: str) -> int:
    statement = "SELECT COUNT(*) FROM store_storedobject o WHERE o.resource = %s"
    conditions, parameters = _where(namespace, None)
    total: int = fetch(statement + conditions, [resource, *parameters])[0][0]
    return total


#: Whether any namespace has a deletionTimestamp. The words are those of the index of such entries of the log.
ANY_NAMESPACE_LEAVES: Query = (
    "SELECT EXISTS (SELECT 1 FROM store_event e JOIN store_storedobject o ON o.uid = e.uid AND o.event_id = e.revision "
    "WHERE e.resource = 'namespaces' AND e.deleting)",
    (),
)


class RevisionCounter(NamedTuple):
    """The counter's row; see `models.Revision`."""

    current: int
    floor: int
    policy: int
    end_offset: int = 0
    floor_offset: int = 0

    @property
    def log_bytes(self) -> int:
        """Bytes of the log above the floor."""
        return self.end_offset - self.floor_offset


#: Finds the counter's row.
COUNTER = "SELECT current, floor, policy, end_offset, floor_offset FROM store_revision WHERE id = 1"


def counter() -> RevisionCounter:
    found = fetch(COUNTER)
    return RevisionCounter(*found[0]) if found else RevisionCounter(FIRST_REVISION, 0, 0)


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


class Locked(NamedTuple):
    """What a transaction knows once it holds the counter's lock."""

    counter: RevisionCounter
    #: of the objects that were asked for, those that exist
    found: dict[Key, LatestRow]
    #: what each of the statements beside found
    beside: Sequence[list[tuple[Any, ...]]] = ()
    #: whether its end commits, and is not the end of a savepoint in somebody's transaction
    is_outermost: bool = False


@contextmanager
def locked_counter(references: Sequence[Reference] = (), beside: Sequence[Query] = ()) -> Iterator[Locked]:
    """A transaction that holds the counter's lock, and has read `references` and executed `beside` since."""
    is_outermost = not connection.in_atomic_block
    with in_turn(), transaction.atomic():
        yield _lock(references, beside)._replace(is_outermost=is_outermost)


def in_turn() -> AbstractContextManager[None]:
    """What stands before a transaction that writes: on SQLite the process's turn."""
    # Inside somebody's transaction the database lock is held already: waiting for a turn could only deadlock.
    needed = not on_postgresql() and not connection.in_atomic_block
    return _turn if needed else nullcontext()


def _lock(references: Sequence[Reference], beside: Sequence[Query]) -> Locked:
    statement = COUNTER
    if on_postgresql():
        statement += " FOR UPDATE"
    # Each statement sees what is committed when it begins: the second begins once the first has the lock.
    reads = references_queries(references)
    counter, *answers = fetch_together([(statement, ()), *reads, *beside])
    if not counter:
        # The first write of all. Two may get here at once: the second waits for the first's row, then reads it.
        insert = "INSERT INTO store_revision (id, current, floor, policy) VALUES (1, %s, 0, 0) ON CONFLICT DO NOTHING"
        execute(insert, [FIRST_REVISION])
        counter, *answers = fetch_together([(statement, ()), *reads, *beside])
    found = references_found(answers[: len(reads)])
    return Locked(RevisionCounter(*counter[0]), found, answers[len(reads) :])


def move_counter(revision: int, *, end_offset: int, policy: int | None = None) -> None:
    """policy: the revision that changed a policy last; None where none did."""
    changes = "current = %s, end_offset = %s" + ("" if policy is None else ", policy = %s")
    moved = [revision, end_offset] if policy is None else [revision, end_offset, policy]
    write("store_revision", f"UPDATE store_revision SET {changes} WHERE id = 1", moved)  # noqa: S608 - constants only


def move_floor(revision: int, *, offset: int) -> None:
    """offset: the end of the entry at the floor."""
    execute("UPDATE store_revision SET floor = %s, floor_offset = %s WHERE id = 1", [revision, offset])
