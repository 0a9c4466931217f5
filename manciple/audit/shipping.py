"""The trail as lines of JSON in a file, for whoever ships logs: followed, without a gap, across restarts.

    Shipment(path).ship()       # what came since: appended, flushed, and the place remembered in PATH.place

The file may be rotated at any time. It is opened for appending, so one that is emptied in place (copytruncate) is
filled from its beginning; one that was moved away is noticed at the next entry, or at once where `reopen` is called
(SIGHUP). The place is remembered after the lines are on disk: whoever is killed in between writes some lines twice,
never none. Without a path the lines go to standard output, beginning with what comes from now on.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from django.db import Error, close_old_connections

from manciple.audit import events, searching
from manciple.audit.models import Entry
from manciple.audit.searching import Search
from manciple.store.sql import chunks

log = logging.getLogger(__name__)

#: Entries after which the place is remembered; seconds between two looks at the trail.
BATCH, EVERY = 500, 1.0


class Shipment:
    """One follower of the trail. path: None for standard output."""

    def __init__(self, path: Path | None, search: Search) -> None:
        self._path = path
        self._search = search
        self._file: BinaryIO | None = None
        self._outdated = False
        self._after = self._remembered()

    def ship(self) -> int:
        """Write what came since; returns how many lines that were. Raises: OSError, django.db.Error."""
        written = 0
        for batch in chunks(searching.oldest(self._search, after=self._after), BATCH):
            file = self._opened()
            file.write(b"".join(map(events.line, batch)))
            file.flush()
            self._remember(batch[-1].id)
            written += len(batch)
        return written

    def follow(self, stopping: threading.Event) -> None:
        """Ship until it is stopped. A database or a disk that fails is tried again, and told in the process's log."""
        failing = False
        while True:
            try:
                close_old_connections()
                self.ship()
                failing = False
            except (OSError, Error) as error:
                if not failing:
                    log.warning("the audit trail cannot be shipped at the moment: %s", error)
                failing = True
            if stopping.wait(EVERY):
                return

    def reopen(self) -> None:
        """Open the file anew at the next entry. May be called by a signal's handler."""
        self._outdated = True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _opened(self) -> BinaryIO:
        if self._path is None:
            return sys.stdout.buffer
        if self._outdated or (self._file is not None and not _is_same(self._file, self._path)):
            self._outdated = False
            self.close()
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._file = os.fdopen(descriptor, "ab")
        return self._file

    @property
    def _place(self) -> Path | None:
        return None if self._path is None else self._path.with_name(f"{self._path.name}.place")

    def _remembered(self) -> int:
        if self._place is None:
            newest = Entry.objects.order_by("-id").values_list("id", flat=True).first()
            return newest or 0
        with suppress(FileNotFoundError, ValueError):
            return int(self._place.read_text())
        return 0

    def _remember(self, place: int) -> None:
        self._after = place
        if self._place is not None and self._file is not None:
            os.fsync(self._file.fileno())
            draft = self._place.with_suffix(".new")
            draft.write_text(str(place))
            draft.replace(self._place)


def _is_same(file: BinaryIO, path: Path) -> bool:
    """Whether what is open is still what `path` names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def lines(search: Search) -> Iterator[bytes]:
    """What the search lets through, oldest first."""
    return map(events.line, searching.oldest(search))
