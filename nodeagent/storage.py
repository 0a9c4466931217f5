"""Whether the agent's directories can be written to; without them no claim can be prepared or given back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nodeagent.disk import Disk

#: As much as a claim's record or CDI file may need; a full disk often still takes a few bytes.
PROBE = b"\0" * 4096


class Storage:
    """The directories that an agent must be able to write to."""

    def __init__(self, disk: Disk, folders: Sequence[Path]) -> None:
        self._disk = disk
        self._folders = folders
        self._name = f".probe-{os.getpid()}-{id(self):x}"  # several agents may look at one parent directory

    def trouble(self) -> str:
        """What keeps which directory from being written to, and what to do; "" when all is well."""
        reasons = [reason for folder in self._folders if (reason := self._try(folder))]
        return "; ".join(reasons)

    def _try(self, folder: Path) -> str:
        """In `folder`, or where it would be made."""
        place = next((path for path in (folder, *folder.parents) if path.is_dir()), folder)
        try:
            self._disk.write(place / self._name, PROBE, "whole")
            self._disk.remove(place / self._name)
        except OSError as error:
            why = error.strerror or str(error)
            return f"{folder} cannot be written to: {why}; make room there, or mount it writable"
        return ""
