"""The demo's laboratory, written once and copied into the database of each test that wants it.

Writing it takes two seconds of CPU, object by object as it came about; its rows are copied in a few hundredths. The
parts of `make test` share them (tests/parts.py).
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.color import no_style
from django.db import connection, models
from django.test import override_settings

from manciple.processes.demolab import filling
from manciple.store import sql
from manciple.wire.resources import LEASES
from tests.examples import MIGRATED

#: When it is. Parts that share it are forked from a process that has imported this module.
NOW = datetime.now(UTC)
#: Whose tables the laboratory has nothing in.
OTHERS = {"auth", "contenttypes", "sessions"}

#: table -> its rows, as the engine's own way of copying them has them
_kept: dict[str, Any] = {}


@cache
def plan() -> filling.Lab:
    return filling.plan(size="lab", seed=1, now=NOW)


def furnish() -> filling.Lab:
    """Make the test's empty database the laboratory's."""
    shared = _shared()
    if not _kept and shared is not None and shared.exists():
        _kept.update(pickle.loads(shared.read_bytes()))
    if _kept:
        _restore(_kept)
    else:
        with override_settings(SCHEDULER_FILTER_TIMEOUT=600.0, SCHEDULER_SEARCH_SLICE=600.0):  # on a busy machine
            filling.fill(plan())
        _kept.update(_rows())
        if shared is not None:
            draft = shared.with_name(f"{shared.name}-{os.getpid()}")
            draft.write_bytes(pickle.dumps(_kept))
            draft.rename(shared)
    _let_leases_last()
    return plan()


def _let_leases_last() -> None:
    """Nobody renews them here, and the rows may be minutes old: the nodes are heard of for as long as a test takes."""
    until = sql.adapted(datetime.now(UTC) + timedelta(minutes=10))
    sql.execute("UPDATE store_event SET created_at = %s WHERE resource = %s", [until, LEASES])


def _shared() -> Path | None:
    """Where the first part of `make test` leaves the rows for the others."""
    name = f"laboratory-{connection.vendor}-{NOW.timestamp()}"
    return Path(os.environ[MIGRATED]).with_name(name) if MIGRATED in os.environ else None


def _models() -> list[type[models.Model]]:
    return [model for model in apps.get_models() if model._meta.app_label not in OTHERS]


def _rows() -> Mapping[str, Any]:
    read: Callable[[str], Any] = _read_postgresql if connection.vendor == "postgresql" else _read_sqlite
    return {model._meta.db_table: read(model._meta.db_table) for model in _models()}


def _restore(rows: Mapping[str, Any]) -> None:
    write: Callable[[str, Any], None] = _write_postgresql if connection.vendor == "postgresql" else _write_sqlite
    with connection.cursor() as cursor:
        for table in rows:
            cursor.execute(f"DELETE FROM {table}")
    for table, kept in rows.items():
        write(table, kept)
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), _models()):
            cursor.execute(statement)


def _read_sqlite(table: str) -> list[tuple[Any, ...]]:
    return list(connection.connection.execute(f"SELECT * FROM {table}"))


def _write_sqlite(table: str, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        places = ", ".join("?" * len(rows[0]))
        connection.connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


def _read_postgresql(table: str) -> bytes:
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} TO STDOUT") as copy:
        return b"".join(bytes(piece) for piece in copy)


def _write_postgresql(table: str, rows: bytes) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
        copy.write(rows)
