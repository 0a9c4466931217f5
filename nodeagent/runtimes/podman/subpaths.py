"""The sub path of a volume: opened so that it cannot lead out of the volume, and held by a mount for podman to use.

Containers write to their volumes while the agent, as root, works on the same paths. So a path is never checked first
and used later: `open_below` walks it one directory at a time from an open one and follows no link, and what it has
opened is bound to a place that no container can reach. Links that stay inside the volume were resolved before the walk;
one that is put there during it is refused.
Source: kubernetes pkg/volume/util/subpath/subpath_linux.go (SafeMakeDir, doSafeOpen, doBindSubPath).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path, PurePosixPath

from nodeagent.runtimes.podman.mounts import bind, unmount

#: A handle of a file or directory that reads nothing, blocks on nothing and follows no link at its end.
_HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_below(root: Path, sub_path: str) -> int:
    """A handle (O_PATH) of `sub_path` in the volume at `root`; directories that are missing are made, as open as it is.

    Raises: OSError, also where it leads out of the volume.
    """
    base = root.resolve(strict=True)
    handle = os.open(base, _HANDLE | os.O_DIRECTORY)
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    for name in _parts(base, sub_path):
        try:
            below = _open_or_make(name, handle, mode=mode)
        finally:
            os.close(handle)
        handle = below
        if stat.S_ISLNK(os.fstat(handle).st_mode):
            os.close(handle)
            raise _leads_out(sub_path)
    return handle


def hold(handle: int, target: Path) -> None:
    """Mount what is open as `handle` at `target`, in place of what an earlier attempt at the container was given."""
    _unmount_all(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    is_directory = stat.S_ISDIR(os.fstat(handle).st_mode)
    if target.exists() and target.is_dir() != is_directory:
        _remove(target)
    if is_directory:
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    bind(Path(f"/proc/self/fd/{handle}"), target)


def release(folder: Path) -> None:
    """Unmount and remove all that was held below `folder`. Never removes what stands behind a mount.

    Raises: OSError.
    """
    if not folder.is_dir():
        return
    for volume in folder.iterdir():
        for container in volume.iterdir():
            for target in container.iterdir():
                _unmount_all(target)
                _remove(target)
            container.rmdir()
        volume.rmdir()
    folder.rmdir()


def _parts(base: Path, sub_path: str) -> tuple[str, ...]:
    """The names to walk from `base`, links resolved as they stand now."""
    given = PurePosixPath(sub_path)
    if given.is_absolute() or ".." in given.parts:
        raise _leads_out(sub_path)
    try:
        found = (base / given).resolve()
    except RuntimeError as error:  # links that lead to each other
        raise OSError(f"subPath {sub_path} goes round in circles") from error
    if not found.is_relative_to(base):
        raise _leads_out(sub_path)
    return found.relative_to(base).parts


def _open_or_make(name: str, parent: int, *, mode: int) -> int:
    try:
        return os.open(name, _HANDLE, dir_fd=parent)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise OSError(f"subPath: {name} stands below what is no directory") from None
    with suppress(FileExistsError):  # a container was faster
        os.mkdir(name, mode, dir_fd=parent)
    made = os.open(name, _HANDLE, dir_fd=parent)
    if stat.S_ISDIR(os.fstat(made).st_mode):
        Path(f"/proc/self/fd/{made}").chmod(mode)  # mkdir(2) heeds the umask
    return made


def _leads_out(sub_path: str) -> OSError:
    return OSError(f"subPath {sub_path} leads out of the volume")


def _unmount_all(target: Path) -> None:
    """Until nothing is mounted at `target`."""
    while True:
        try:
            unmount(target)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return
            raise


def _remove(target: Path) -> None:
    """An empty directory or file: a mount point is busy, and what it covers is never looked into."""
    if target.is_dir():
        target.rmdir()
    else:
        target.unlink()
