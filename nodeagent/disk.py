"""Files that survive a crash at any instruction.

A file is written under a temporary name, flushed to the disk, renamed over the old one, and the directory is flushed:
a reader sees the old content or the new, never a part. Each primitive step is a method of `Disk`, so that a test can
fail or stop the agent at every one of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

#: Temporary files end so; what a crash left behind is swept at start and never read.
TEMPORARY = ".tmp"


class Disk:
    """The agent's file operations. Paths are absolute; a missing directory is created when first written to."""

    def write(self, path: Path, content: bytes) -> None:
        """Replace `path` by `content`, durably. Raises: OSError (disk full, read-only)."""
        temporary = path.with_name(f".{path.name}{TEMPORARY}")
        self.fill(temporary, content)
        self.rename(temporary, path)
        self.flush_directory(path.parent)

    def fill(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def flush_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove `path`, durably; one that is not there is fine."""
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            self.flush_directory(path.parent)

    def read(self, path: Path) -> bytes:
        """Raises: FileNotFoundError."""
        return path.read_bytes()

    def names(self, folder: Path, suffix: str) -> Iterator[str]:
        """The names in `folder` that end so, sorted, hidden and temporary ones left out."""
        if not folder.is_dir():
            return iter(())
        return iter(sorted(p.name for p in folder.iterdir() if p.name.endswith(suffix) and not p.name.startswith(".")))

    def sweep(self, folder: Path) -> None:
        """Remove what an interrupted `write` left in `folder`."""
        if folder.is_dir():
            for path in folder.glob(f".*{TEMPORARY}"):
                path.unlink(missing_ok=True)
