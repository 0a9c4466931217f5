"""What is wrong with SQLite's file, and what to do, in place of a traceback."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from manciple.refusals import StartRefused

#: Bytes up to which every page is checked before a server starts: less than a second.
CHECKED_WHOLE: Final = 256 << 20
#: Beginnings of SQLite's messages about damaged content.
_DAMAGE: Final = ("file is not a database", "database disk image is malformed", "malformed database schema")


class DatabaseRefused(StartRefused):
    """The database cannot be used. Its text says which, why, and what to do."""


def check_configured(*, whole: bool = False) -> None:
    """The file that Django's settings name; nothing for PostgreSQL. Raises: DatabaseRefused."""
    from django.conf import settings  # noqa: PLC0415 - this module is imported without Django, too

    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        check(Path(database["NAME"]), whole=whole)


def check(path: Path, *, whole: bool = False) -> None:
    """whole: look at every page of a file that is not too large. Raises: DatabaseRefused.

    A file that does not exist is fine: it will be made.
    """
    who = f"uid {os.geteuid()}"
    if not path.parent.is_dir():
        raise DatabaseRefused(
            f"there is no folder {path.parent}: name the home with --home DIR (`manciple up` makes one)"
        )
    if not os.access(path.parent, os.R_OK | os.W_OK | os.X_OK):
        raise DatabaseRefused(
            f"{path.parent} cannot be written by {who}, but SQLite keeps files beside {path.name}: correct the owner "
            "and mode of the folder, or mount its file system writable"
        )
    if not path.exists():
        return
    if not path.is_file():
        raise DatabaseRefused(f"{path} is not a file: move it away, or name another home with --home DIR")
    if not os.access(path, os.R_OK | os.W_OK):
        raise DatabaseRefused(
            f"{path} cannot be read and written by {who}: correct its owner (chown) and its mode (chmod 600)"
        )
    try:
        trouble = next(_content(path, whole=whole and path.stat().st_size <= CHECKED_WHOLE), "")
    except sqlite3.Error as error:
        trouble = str(error)
    if trouble.startswith(_DAMAGE):
        raise DatabaseRefused(
            f"{path} is damaged: {trouble}\n"
            "Stop everything that uses this home, and move the file away together with its -wal and -shm. Then put\n"
            "the newest backup's manciple.sqlite3 in its place, run `manciple restored`, and start again\n"
            "(docs/how-to/back-up.md). Without a backup `manciple up` begins with an empty database."
        )
    if trouble and trouble != "database is locked":
        raise DatabaseRefused(f"{path} cannot be opened: {trouble}")


def _content(path: Path, *, whole: bool) -> Iterator[str]:
    """The first thing that is wrong with what is in the file. Raises: sqlite3.Error."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=5)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if whole:
            (told,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if told != "ok":
                first = " ".join(told.removeprefix("*** in database main ***").split())
                yield f"{_DAMAGE[1]} ({first})"
