"""The names of the drivers that have registered on this node, kept on the disk.

After a restart no driver behind a socket is there yet. When the record of a claim is lost then, these are the drivers
that may have prepared it and must be asked to undo that. A name is written before its driver is asked for anything.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import msgspec

from nodeagent.disk import Disk
from nodeagent.failures import StorageFailed

log = logging.getLogger(__name__)

_decoder = msgspec.json.Decoder(tuple[str, ...])


class KnownDrivers:
    """A JSON list in `path`. Thread-safe."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._lock = threading.Lock()
        self._names = self._read()

    def names(self) -> frozenset[str]:
        return self._names

    def add(self, name: str) -> None:
        """On return it is on the disk. Raises: StorageFailed, and then it is not known."""
        with self._lock:
            if name not in self._names:
                self._write(self._names | {name})

    def forget(self, name: str) -> None:
        """Raises: StorageFailed, and then it is still known."""
        with self._lock:
            if name in self._names:
                self._write(self._names - {name})

    def _write(self, names: frozenset[str]) -> None:
        try:
            self._disk.write(self._path, msgspec.json.encode(sorted(names)))
        except OSError as error:
            raise StorageFailed(f"the names of the node's drivers cannot be written: {error}") from error
        self._names = names

    def _read(self) -> frozenset[str]:
        self._disk.sweep(self._path.parent, self._path.name)
        try:
            return frozenset(_decoder.decode(self._disk.read(self._path)))
        except FileNotFoundError:
            return frozenset()
        except (OSError, msgspec.MsgspecError):
            log.exception("the names of the node's drivers in %s cannot be read; starting without", self._path)
            return frozenset()
