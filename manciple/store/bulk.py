"""Many rows at a time into, out of and from a table: what the store and the projectors write index rows with.

Plain `executemany` beats the ORM several times over on both engines; on PostgreSQL, COPY beats it again from a few
dozen rows on. Values are what the database takes: JSON columns get JSON text, and moments are `datetime`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from django.db import connection, models

#: Below this many rows COPY costs more than it saves.
COPY_FROM = 20
#: Parameters in one statement; SQLite takes at most 32,766.
PARAMETERS = 1000

T = TypeVar("T")
Row = Sequence[Any]
ModelClass = type[models.Model]


def chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(values)
    while chunk := list(islice(iterator, size)):
        yield chunk


def fetch(statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def execute(statement: str, parameters: Sequence[Any] = ()) -> int:
    """Returns the number of rows that the statement touched."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def execute_many(statement: str, rows: Sequence[Row]) -> None:
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(statement, rows)


def insert(model: ModelClass, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Insert `rows`, whose values stand in the order of `columns`."""
    table, listed = model._meta.db_table, ", ".join(columns)
    if connection.vendor == "postgresql":
        if len(rows) >= COPY_FROM:
            with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({listed}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            return
    else:
        rows = [tuple(map(_adapted, row)) for row in rows]
    places = ", ".join(["%s"] * len(columns))
    execute_many(f"INSERT INTO {table} ({listed}) VALUES ({places})", rows)  # noqa: S608 - names of our models


def _adapted(value: Any) -> Any:
    return connection.ops.adapt_datetimefield_value(value) if isinstance(value, datetime) else value


def update(model: ModelClass, key: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Set `columns` of the rows named by `key`; each of `rows` is the key's value, then those of `columns`."""
    table = model._meta.db_table
    if connection.vendor != "postgresql":
        changes = ", ".join(f"{column} = %s" for column in columns)
        statement = f"UPDATE {table} SET {changes} WHERE {key} = %s"  # noqa: S608 - names of our models
        execute_many(statement, [(*row[1:], row[0]) for row in rows])
        return
    changes = ", ".join(f"{column} = given.{column}" for column in columns)
    place = f"({', '.join(['%s'] * (len(columns) + 1))})"
    for chunk in chunks(rows, PARAMETERS // (len(columns) + 1)):
        given = f"(VALUES {', '.join([place] * len(chunk))}) AS given ({', '.join([key, *columns])})"
        statement = f"UPDATE {table} SET {changes} FROM {given} WHERE {table}.{key} = given.{key}"  # noqa: S608 - as above
        execute(statement, [value for row in chunk for value in row])


def delete(model: ModelClass, by: Sequence[str], keys: Iterable[Row]) -> None:
    """Delete the rows whose columns `by` are one of `keys`."""
    table, key = model._meta.db_table, model._meta.pk.column
    for given, matching, parameters in _among(model, by, keys):
        statement = f"{given} DELETE FROM {table} WHERE {key} IN (SELECT t.{key} {matching})"  # noqa: S608 - our names
        execute(statement, parameters)


def select(model: ModelClass, columns: Sequence[str], by: Sequence[str], keys: Iterable[Row]) -> list[tuple[Any, ...]]:
    """The `columns` of the rows whose columns `by` are one of `keys`, in no order."""
    listed = ", ".join(f"t.{column}" for column in columns)
    found: list[tuple[Any, ...]] = []
    for given, matching, parameters in _among(model, by, keys):
        found.extend(fetch(f"{given} SELECT {listed} {matching}", parameters))
    return found


def clear(model: ModelClass) -> None:
    execute(f"DELETE FROM {model._meta.db_table}")  # noqa: S608 - the name of our model


def values_table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """A WITH clause that makes `rows` the table `given`. Its parameters are the rows' values, one after the other."""
    place = f"({', '.join(['%s'] * len(columns))})"
    return f"WITH given ({', '.join(columns)}) AS (VALUES {', '.join([place] * len(rows))})"


def _among(model: ModelClass, by: Sequence[str], keys: Iterable[Row]) -> Iterator[tuple[str, str, list[Any]]]:
    """(WITH clause, FROM clause with the rows as `t`, parameters) triples that together cover `keys`.

    SQLite would use only the first column of an index for `(a, b) IN (...)`, and of a CROSS JOIN it takes the left
    side first: so each key is one look-up in the index.
    """
    table, match = model._meta.db_table, " AND ".join(f"t.{column} = given.{column}" for column in by)
    for chunk in chunks(dict.fromkeys(map(tuple, keys)), PARAMETERS // len(by)):
        matching = f"FROM given CROSS JOIN {table} t WHERE {match}"
        yield values_table(by, chunk), matching, [value for key in chunk for value in key]
