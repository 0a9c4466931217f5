"""The agent's files: writes that survive a crash at any instruction, and whether its directories can be written.

A file is written under a temporary name and renamed over the old one: a reader sees the old content or the new, never
a part. How much of that survives a loss of power is the caller's choice, because writing costs flushes: concurrent
writers share one flush of a directory (`SharedFlushes`). Each primitive step is a method of `Disk`, so that a test can
fail or stop the agent at every one of them.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

#: Temporary files end so; what a crash left behind is swept at start and never read.
TEMPORARY = ".tmp"

#: Bytes that are written in one step.
PAGE = 4096

#: A link in a file's place is never written through.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def is_file_name(text: str) -> bool:
    """Whether a name from outside can name a file in a directory of the agent: no separators, no leading dot."""
    return _FILE_NAME.fullmatch(text) is not None


def make_private(folder: Path) -> None:
    """Create `folder` if needed, accessible to its owner only: it holds secrets. A later write reports what failed."""
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)


def make_public(folder: Path) -> None:
    """Create `folder` and its parents if needed, world-readable regardless of the umask. Raises: OSError."""
    for path in reversed([folder, *folder.parents]):
        if not path.is_dir():
            path.mkdir(exist_ok=True)  # another thread may create it now
            path.chmod(0o755)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: Path) -> None:
    """Remove `folder` and everything in it, which programs of others have made and may still be changing.

    No link is followed. A tree may be deeper than a path can be long, than there are file descriptors, or than a
    recursion gets: directories of directories are moved up first. Raises: OSError.
    """
    top = os.open(folder, _FOLDER)
    try:
        with os.scandir(top) as entries:
            names = [entry.name for entry in entries]
        while names:
            name = names.pop()
            try:
                inner = os.open(name, _FOLDER, dir_fd=top)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                os.unlink(name, dir_fd=top)
                continue
            try:
                with os.scandir(inner) as entries:
                    below = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
                for entry, is_folder in below:
                    if is_folder:
                        names.append(secrets.token_hex(16))
                        os.rename(entry, names[-1], src_dir_fd=inner, dst_dir_fd=top)
                    else:
                        os.unlink(entry, dir_fd=inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


#: What a loss of power may do to a completed write. durable: nothing. whole: restore the old content. rebuilt: also
#: corrupt the file; for files that their reader checks and their writer can write again.
Survival = Literal["durable", "whole", "rebuilt"]


class Disk:
    """The agent's file operations. Paths are absolute; a missing directory is created when first written to."""

    def __init__(self) -> None:
        self._flushes = SharedFlushes()

    def write(self, path: Path, content: bytes, survival: Survival = "durable", *, mode: int | None = None) -> None:
        """Replace `path` by `content`. Raises: OSError (disk full, read-only).

        After an error `path` is unchanged, unless the last step failed: flushing the directory. mode: of the file; None
        for the umask's.
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
                with suppress(OSError):  # the next start sweeps it
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
            descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
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
        while written < len(content):  # as in `fill`
            written += os.pwrite(descriptor, content[written:], written)

    def fill(self, path: Path, content: bytes, *, flushed: bool, mode: int | None = None) -> None:
        try:
            descriptor = os.open(path, _NEW, 0o666 if mode is None else mode)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, _NEW, 0o666 if mode is None else mode)
        try:
            left = content
            while left:  # a disk that is nearly full takes a part, and reports it only at the next write
                left = left[os.write(descriptor, left) :]
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
        """Remove `path` if it exists. A loss of power may bring it back."""
        path.unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        """Raises: FileNotFoundError."""
        return path.read_bytes()

    def names(self, folder: Path, suffix: str) -> Iterator[str]:
        """The names in `folder` that end in `suffix`, sorted, without hidden and temporary files."""
        if not folder.is_dir():
            return iter(())
        return iter(sorted(p.name for p in folder.iterdir() if p.name.endswith(suffix) and not p.name.startswith(".")))

    def sweep(self, folder: Path, names: str = "*") -> None:
        """Remove what an interrupted `write` left in `folder`, as far as possible: nothing reads it.

        names: a pattern of the files that were written: in a shared folder others may be writing theirs.
        """
        if folder.is_dir():
            for path in folder.glob(f".{names}{TEMPORARY}"):
                with suppress(OSError):
                    path.unlink(missing_ok=True)


# Concurrent writers share flushes of a directory. A flush makes durable whatever any thread changed before it began.
# So a thread that arrives during a flush waits for the next one, together with all others that arrive meanwhile, and
# one of them does it: under load a node flushes as often as its disk can, not as often as it has claims.
@dataclass(eq=False, slots=True)
class _Flush:
    done: bool = False
    error: OSError | None = None


@dataclass(slots=True)
class _Place:
    running: _Flush | None = None
    #: not begun; the waiting threads share it
    next: _Flush | None = None


class SharedFlushes:
    """Thread-safe. Never forgets a directory: an agent has few."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._places: dict[str, _Place] = {}

    def flush(self, name: str, act: Callable[[], None]) -> None:
        """Return after an `act` for `name` that began after this call, in this thread or another.

        Raises: OSError, in every thread that shared the `act` that failed.
        """
        with self._changed:
            place = self._places.setdefault(name, _Place())
            mine = place.next = place.next or _Flush()
            while place.running and not mine.done:
                self._changed.wait()
            leads = not mine.done
            if leads:
                place.running, place.next = mine, None
        if leads:
            mine.error = OSError("the flush was cut short")
            try:
                act()
                mine.error = None
            except OSError as error:
                mine.error = error
            finally:
                with self._changed:
                    mine.done, place.running = True, None
                    self._changed.notify_all()
        if mine.error is not None:
            raise mine.error


#: As large as a claim's record or CDI file may be; a full disk often still takes a few bytes.
_PROBE = b"\0" * 4096
#: Swept at the next start, should a crash leave it.
_PROBE_NAME = f".probe{TEMPORARY}"


class Storage:
    """The directories that the agent must be able to write to, to prepare and unprepare claims."""

    def __init__(self, disk: Disk, folders: Sequence[Path]) -> None:
        self._disk = disk
        self._folders = folders

    def trouble(self) -> str:
        """Which directories are not writable, why, and what to do; "" if all are."""
        reasons = [f"{folder} cannot be written to: {why}" for folder in self._folders if (why := self._try(folder))]
        return "; ".join((*reasons, "make room there, or mount it writable")) if reasons else ""

    def _try(self, folder: Path) -> str:
        """Why nothing can be written in `folder`, which is not created for that; "" if something can."""
        if not folder.is_dir():
            place = next(path for path in folder.parents if path.is_dir())
            return "" if os.access(place, os.W_OK) else f"{place} is read-only"
        try:
            self._disk.write(folder / _PROBE_NAME, _PROBE, "whole")
            self._disk.remove(folder / _PROBE_NAME)
        except OSError as error:
            return error.strerror or str(error)
        return ""


# Groups of volumes ----------------------------------------------------------------------------------------------------


#: What a volume's group may do with its files and folders, whose new files are the group's, too.
_FILES_MODE, _FOLDERS_MODE = 0o660, 0o770 | stat.S_ISGID
#: Folders in each other: each takes a descriptor.
DEEPEST = 128


def is_of_group(folder: Path, group: int) -> bool:
    """Whether the folder itself is the group's to write to, and so, for all we know, what is in it."""
    found = folder.stat()
    return found.st_gid == group and found.st_mode & _FOLDERS_MODE == _FOLDERS_MODE


def hand_to_group(folder: Path, group: int) -> None:
    """Give the group all that is in the folder, which others may be writing to: no link is followed, and no mount.

    Raises: OSError, also where folders lie deeper in each other than `DEEPEST`.
    Source: kubernetes pkg/volume/volume_linux.go (SetVolumeOwnership).
    """
    top = os.open(folder, _FOLDER)
    try:
        _give_all(top, group, device=os.fstat(top).st_dev, depth=0)
    finally:
        os.close(top)


def _give_all(top: int, group: int, *, device: int, depth: int) -> None:
    if depth > DEEPEST:
        raise OSError(errno.ELOOP, f"fsGroup: folders lie more than {DEEPEST} deep in each other")
    _give(top, group)
    with os.scandir(top) as entries:
        for entry in entries:
            with suppress(FileNotFoundError), _opened(entry.name, os.O_PATH | os.O_NOFOLLOW, top) as handle:
                found = os.fstat(handle)
                if not stat.S_ISDIR(found.st_mode):
                    _give(handle, group)
                elif found.st_dev == device:
                    with _opened(".", _FOLDER, handle) as inner:
                        _give_all(inner, group, device=device, depth=depth + 1)


@contextmanager
def _opened(name: str, flags: int, folder: int) -> Iterator[int]:
    handle = os.open(name, flags | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)


def _give(handle: int, group: int) -> None:
    """handle: of a file, folder or link; it may be one without rights (O_PATH)."""
    found, path = os.fstat(handle), Path(f"/proc/self/fd/{handle}")
    if stat.S_ISLNK(found.st_mode):
        return  # whose it is makes no difference
    if found.st_gid != group:
        os.chown(path, -1, group)
    wanted = _FOLDERS_MODE if stat.S_ISDIR(found.st_mode) else _FILES_MODE
    mode = stat.S_IMODE(found.st_mode)
    if mode | wanted != mode or found.st_gid != group:  # a change of the group takes bits away
        path.chmod(mode | wanted)
