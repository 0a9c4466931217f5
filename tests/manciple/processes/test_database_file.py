"""A database that cannot be used: a sentence says which file, why, and what to do; nobody sees a traceback."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder

from manciple.processes import command_line, database_file
from manciple.processes.database_file import DatabaseRefused
from tests.e2e.nursery import NURSERY

Harm = Callable[[Path], None]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A sound one of some hundred pages."""
    path = tmp_path / "home" / "manciple.sqlite3"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
        connection.execute("CREATE INDEX i ON t (text)")
        connection.executemany("INSERT INTO t (text) VALUES (?)", ((f"{number:0200}",) for number in range(2000)))
        connection.commit()
    return path


def overwrite(start: float, length: int, *, zeros: bool = False) -> Harm:
    def harm(path: Path) -> None:
        content = bytearray(path.read_bytes())
        at = int(len(content) * start)
        content[at : at + length] = bytes(length) if zeros else random.Random(1).randbytes(length)
        path.write_bytes(content)

    return harm


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_text(path: Path) -> None:
    path.write_text("hello" * 1000)


#: The command that every damaged database calls for.
RESTORE = "`manciple restored`"

HARM: dict[str, tuple[Harm, str]] = {
    "no database at all": (replace_by_text, "is damaged: file is not a database"),
    "its first page": (overwrite(0, 4096), RESTORE),
    "its schema": (overwrite(0.00001, 4000, zeros=True), RESTORE),
    "a page in the middle": (overwrite(0.5, 40_000), "database disk image is malformed ("),
    "cut off": (truncate, RESTORE),
    "a folder": (replace_by_folder, "is not a file: move it away"),
    "a pipe": (replace_by_pipe, "--home DIR"),
}


@pytest.mark.parametrize("case", HARM)
def test_what_is_wrong_is_said_with_the_file_and_what_to_do(database: Path, case: str) -> None:
    harm, why = HARM[case]
    database_file.check(database, whole=True)
    harm(database)
    with pytest.raises(DatabaseRefused) as refusal:
        database_file.check(database, whole=True)
    text = str(refusal.value)
    assert text.startswith(f"{database} "), text
    assert why in text
    assert (RESTORE in text) == (case not in ("a folder", "a pipe"))


def test_a_database_that_is_not_there_yet_or_empty_is_fine(tmp_path: Path) -> None:
    database_file.check(tmp_path / "manciple.sqlite3", whole=True)
    (tmp_path / "manciple.sqlite3").touch()
    database_file.check(tmp_path / "manciple.sqlite3", whole=True)


def test_a_database_in_use_is_fine(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM t WHERE id = 1")
        database_file.check(database, whole=True)


@pytest.mark.parametrize(
    ("target", "why"),
    [("manciple.sqlite3", "cannot be read and written by uid"), ("", "cannot be written by uid")],
)
def test_a_database_of_somebody_else(database: Path, target: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = database.parent / target if target else database.parent
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != forbidden and real(path, mode))
    with pytest.raises(DatabaseRefused, match=why) as refusal:
        database_file.check(database)
    assert str(refusal.value).startswith(str(forbidden))


def manage(home: Path, *words: str) -> tuple[int, str]:
    return NURSERY.run([sys.executable, "manage.py", *words], {**os.environ, "MANCIPLE_HOME": str(home)})


@pytest.mark.sample(1)
@pytest.mark.parametrize("words", ["up --api 127.0.0.1:0 --web 127.0.0.1:0", "token list"])
def test_no_command_ends_in_a_traceback(database: Path, words: str) -> None:
    overwrite(0, 4096)(database)
    code, told = manage(database.parent, *words.split())
    assert (code, "Traceback" in told) == (1, False), told
    assert f"manciple: {database} " in told
    assert RESTORE in told


@pytest.mark.long
def test_tables_of_a_later_version(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "manciple.sqlite3")) as connection:
        connection.execute("CREATE TABLE django_migrations (id INTEGER PRIMARY KEY, app TEXT, name TEXT, applied TEXT)")
        row = "('claims', '0999_later', '2030-01-01')"
        connection.execute(f"INSERT INTO django_migrations (app, name, applied) VALUES {row}")
        connection.commit()
    code, told = manage(tmp_path, "token", "list")
    assert (code, "Traceback" in told) == (1, False), told
    assert "it was migrated by a later version, which has claims.0999_later: run that version" in told


@pytest.mark.django_db
def test_an_error_about_tables_is_explained_by_the_migrations() -> None:
    error = OperationalError("no such column: claims_device.later")
    command_line._explain(error)  # all is as this version needs it: the error says more than we could
    MigrationRecorder(connection).record_applied("claims", "0999_later")
    with pytest.raises(DatabaseRefused, match=r"which has claims\.0999_later"):
        command_line._explain(error)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatabaseRefused, match=r"there is no folder .*/nowhere: name the home with --home DIR"):
        database_file.check(tmp_path / "nowhere" / "manciple.sqlite3")
