"""mount(2) and umount(2). Everything here raises OSError."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MS_BIND = 4096
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str, options: str) -> None:
    """A file system of its own at `target`."""
    _check(_libc.mount(source.encode(), os.fsencode(target), kind.encode(), 0, options.encode()))


def bind(source: Path, target: Path) -> None:
    """What is at `source` also at `target`, without what is mounted below it."""
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, _MS_BIND, None))


def unmount(target: Path) -> None:
    """The topmost mount at `target`; whoever uses it keeps it. EINVAL where nothing is mounted."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
