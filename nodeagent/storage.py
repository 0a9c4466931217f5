"""Whether the agent's directories can be written to; without them no claim can be prepared or given back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nodeagent.disk import TEMPORARY, Disk

#: As much as a claim's record or CDI file may need; a full disk often still takes a few bytes.
PROBE = b"\0" * 4096
#: Swept at the next start, should a crash leave it.
NAME = f".probe{TEMPORARY}"


class Storage:
    """The directories that an agent must be able to write to."""

    def __init__(self, disk: Disk, folders: Sequence[Path]) -> None:
        self._disk = disk
        self._folders = folders

    def trouble(self) -> str:
        """What keeps which directory from being written to, and what to do; "" when all is well."""
        reasons = [f"{folder} cannot be written to: {why}" for folder in self._folders if (why := self._try(folder))]
        return "; ".join((*reasons, "make room there, or mount it writable")) if reasons else ""

    def _try(self, folder: Path) -> str:
        """Why nothing can be written in `folder`; one that does not exist is not made for that."""
        if not folder.is_dir():
            place = next(path for path in folder.parents if path.is_dir())
            return "" if os.access(place, os.W_OK) else f"{place} is read-only"
        try:
            self._disk.write(folder / NAME, PROBE, "whole")
            self._disk.remove(folder / NAME)
        except OSError as error:
            return error.strerror or str(error)
        return ""
