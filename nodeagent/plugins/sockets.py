"""Finds the registration sockets: every Unix socket below a folder that is not hidden, nor in a hidden folder.

A link to a socket counts as one; a link to a folder is not followed.

Source: kubernetes pkg/kubelet/pluginmanager/pluginwatcher.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Identity(NamedTuple):
    """Tells a socket from another one that took its path later: inode numbers are used again."""

    inode: int
    made_ns: int


def find_sockets(folder: Path) -> Mapping[Path, Identity]:
    """By path. What vanishes while it looks, or may not be read, is not there."""
    return dict(_sockets(folder))


def _sockets(folder: Path) -> Iterator[tuple[Path, Identity]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            found = entry.stat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and not entry.is_symlink():
            yield from _sockets(folder / entry.name)
        elif stat.S_ISSOCK(found.st_mode):
            # The time of the last change of content: a chmod after bind() makes no other socket of it.
            yield folder / entry.name, Identity(found.st_ino, found.st_mtime_ns)
