"""Backups of the database: made whole or not at all, each in a folder of its own with a note of what it is.

    FOLDER/2026-11-27T041500Z/backup.json      when, by which version, up to which revision
    FOLDER/2026-11-27T041500Z/manciple.sqlite3 a copy of SQLite's database, taken while it is in use
    FOLDER/2026-11-27T041500Z/base.tar.gz ...  PostgreSQL's base backup (pg_basebackup), from which, with the archived
                                               log, any later moment can be restored (docs/how-to/back-up.md)

No keys are in it: what was encrypted is worth nothing without those of the installation, which belong elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from django.db import connection

from manciple import layout
from manciple.store import sql

NOTE: Final = "backup.json"
#: Names of folders sort by time.
_NAME: Final = "%Y-%m-%dT%H%M%SZ"
_UNFINISHED: Final = ".unfinished-"


class BackupNote(msgspec.Struct, frozen=True):
    """at: when it was begun. revision: the newest that it certainly has."""

    at: datetime
    version: str
    database: str
    revision: int


class BackupFailed(Exception):
    """There is no new backup; the text says why."""


def take(folder: Path, now: datetime) -> Path:
    """A new backup; its folder. Raises: BackupFailed, OSError."""
    target, draft = folder / now.strftime(_NAME), folder / f"{_UNFINISHED}{os.getpid()}"
    draft.mkdir(mode=0o700, parents=True)
    try:
        note = BackupNote(at=now, version=layout.version(), database=connection.vendor, revision=sql.counter()[0])
        if sql.on_postgresql():
            _base_backup(draft)
        else:
            sql.fetch("VACUUM INTO %s", [str(draft / "manciple.sqlite3")])
        (draft / NOTE).write_bytes(msgspec.json.format(msgspec.json.encode(note)))
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _base_backup(target: Path) -> None:
    """Raises: BackupFailed."""
    known = connection.settings_dict
    command = ["pg_basebackup", f"--pgdata={target}", "--format=tar", "--gzip", "--wal-method=stream"]
    command += ["--checkpoint=fast", "--no-password"]
    parts = {"host": known["HOST"], "port": known["PORT"], "user": known["USER"], "dbname": known["NAME"]}
    told = " ".join(f"{name}='{value}'" for name, value in parts.items() if value)
    environment = {**os.environ, "PGPASSWORD": known["PASSWORD"]}  # in the command, others on the machine would see it
    try:
        done = subprocess.run(
            [*command, f"--dbname={told}"], env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise BackupFailed("pg_basebackup is not installed here: install postgresql-client") from error
    if done.returncode:
        raise BackupFailed(f"pg_basebackup: {done.stderr.strip()}; the role needs REPLICATION")


def notes(folder: Path) -> Iterator[tuple[Path, BackupNote]]:
    """Those that are whole, the oldest first."""
    for path in sorted(folder.glob(f"*/{NOTE}")):
        try:
            yield path.parent, msgspec.json.decode(path.read_bytes(), type=BackupNote)
        except (OSError, msgspec.MsgspecError):
            continue


def newest(folder: Path) -> BackupNote | None:
    return next((note for _, note in reversed(list(notes(folder)))), None)


def remove_old(folder: Path, *, keep: int) -> list[Path]:
    """Remove all but the newest `keep`; those that went."""
    gone = [path for path, _ in notes(folder)][:-keep] if keep > 0 else []
    for path in gone:
        shutil.rmtree(path)
    return gone


def age_hours(note: BackupNote, now: datetime | None = None) -> float:
    return ((now or datetime.now(UTC)) - note.at).total_seconds() / 3600
