"""Files that survive a crash at any instruction.

A file is written under a temporary name and renamed over the old one: a reader sees the old content or the new, never
a part. How much of that survives a loss of power is the caller's choice, because flushing is what writing costs. Each
primitive step is a method of `Disk`, so that a test can fail or stop the agent at every one of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from nodeagent.flushes import SharedFlushes

#: Temporary files end so; what a crash left behind is swept at start and never read.
TEMPORARY = ".tmp"

#: Bytes that are written in one step.
PAGE = 4096

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC

#: What a loss of power may do to a write that has returned. durable: nothing. whole: bring the old content back.
#: rebuilt: also leave a file that cannot be read; for what its reader checks and its writer can write again.
Survival = Literal["durable", "whole", "rebuilt"]


class Disk:
    """The agent's file operations. Paths are absolute; a missing directory is created when first written to."""

    def __init__(self) -> None:
        self._flushes = SharedFlushes()

    def write(self, path: Path, content: bytes, survival: Survival = "durable", *, mode: int | None = None) -> None:
        """Replace `path` by `content`. Raises: OSError (disk full, read-only); then `path` is as it was.

        Only where the last step fails, flushing the directory, has it changed already. mode: of the file; as the
        process's umask says where None.
        """
        self.write_all([(path, content)], survival, mode=mode)

    def write_all(
        self, contents: Sequence[tuple[Path, bytes]], survival: Survival = "durable", *, mode: int | None = None
    ) -> None:
        """Replace several files of one directory, with one flush of it. Raises: OSError; some may be replaced then."""
        temporaries = [path.with_name(f".{path.name}{TEMPORARY}") for path, _ in contents]
        try:
            for temporary, (_, content) in zip(temporaries, contents, strict=True):
                self.fill(temporary, content, flushed=survival != "rebuilt", mode=mode)
            for temporary, (path, _) in zip(temporaries, contents, strict=True):
                self.rename(temporary, path)
        except OSError:
            for temporary in temporaries:
                with suppress(OSError):  # it is in nobody's way, and swept at the next start
                    temporary.unlink(missing_ok=True)
            raise
        if survival == "durable":
            for folder in {str(path.parent): path.parent for path, _ in contents}.values():
                self._flushes.flush(str(folder), partial(self.flush_directory, folder))

    def overwrite(self, path: Path, content: bytes) -> None:
        """Replace a file that only its writer reads, as `write` does with "rebuilt", but at a fifth of the cost.

        What fits one page is written in one step that no kill can cut in two, padded with blanks to the old length:
        no new file, and no renaming over an old one, which file systems flush by themselves. Raises: OSError.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY)
        except FileNotFoundError:
            self.write(path, content, "rebuilt")
            return
        try:
            padded = content.ljust(os.fstat(descriptor).st_size)
            if len(padded) <= PAGE:
                self.put_over(descriptor, padded)
                return
        finally:
            os.close(descriptor)
        self.write(path, content, "rebuilt")

    def put_over(self, descriptor: int, content: bytes) -> None:
        written = os.pwrite(descriptor, content, 0)
        while written < len(content):  # as in _write_whole
            written += os.pwrite(descriptor, content[written:], written)

    def fill(self, path: Path, content: bytes, *, flushed: bool, mode: int | None = None) -> None:
        try:
            descriptor = os.open(path, _NEW, 0o666)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, _NEW, 0o666)
        try:
            _write_whole(descriptor, content)
            if mode is not None:
                os.fchmod(descriptor, mode)
            if flushed:
                self.flush_file(descriptor)
        finally:
            os.close(descriptor)

    def flush_file(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Both in the same file system; `target` is replaced."""
        try:
            source.replace(target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)

    def flush_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove `path`; one that is not there is fine. After a loss of power it may be back."""
        path.unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        """Raises: FileNotFoundError."""
        return path.read_bytes()

    def names(self, folder: Path, suffix: str) -> Iterator[str]:
        """The names in `folder` that end so, sorted, hidden and temporary ones left out."""
        if not folder.is_dir():
            return iter(())
        return iter(sorted(p.name for p in folder.iterdir() if p.name.endswith(suffix) and not p.name.startswith(".")))

    def sweep(self, folder: Path, names: str = "*") -> None:
        """Remove what an interrupted `write` left in `folder`, as far as that is possible: nobody reads it.

        names: a pattern of the files that were written; what others are writing in a shared folder is theirs.
        """
        if folder.is_dir():
            for path in folder.glob(f".{names}{TEMPORARY}"):
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def _write_whole(descriptor: int, content: bytes) -> None:
    """A disk that is nearly full takes a part, and says so only when asked again."""
    while content:
        content = content[os.write(descriptor, content) :]
