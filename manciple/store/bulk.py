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
    for condition, parameters in _among(by, keys):
        execute(f"DELETE FROM {model._meta.db_table} WHERE {condition}", parameters)  # noqa: S608 - names of our models


def select(model: ModelClass, columns: Sequence[str], by: Sequence[str], keys: Iterable[Row]) -> list[tuple[Any, ...]]:
    """The `columns` of the rows whose columns `by` are one of `keys`, in no order."""
    found: list[tuple[Any, ...]] = []
    for condition, parameters in _among(by, keys):
        statement = f"SELECT {', '.join(columns)} FROM {model._meta.db_table} WHERE {condition}"  # noqa: S608 - as above
        found.extend(fetch(statement, parameters))
    return found


def clear(model: ModelClass) -> None:
    execute(f"DELETE FROM {model._meta.db_table}")  # noqa: S608 - the name of our model


def _among(by: Sequence[str], keys: Iterable[Row]) -> Iterator[tuple[str, list[Any]]]:
    """(condition, parameters) pairs that together cover `keys`."""
    place = f"({', '.join(['%s'] * len(by))})"
    for chunk in chunks(keys, PARAMETERS // len(by)):
        places = ", ".join([place] * len(chunk))
        yield f"({', '.join(by)}) IN (VALUES {places})", [value for key in chunk for value in key]
