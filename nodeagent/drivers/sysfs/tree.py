"""Reads the kernel's directories. A device may vanish between two reads: what cannot be read is not there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the machine's directories are; elsewhere in a container, or in a test."""

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    pci_ids: Path = Path("/usr/share/misc/pci.ids")


def read(path: Path) -> str:
    """The content without the white space around it; empty where it cannot be read."""
    try:
        with path.open("rb", buffering=0) as stream:
            return stream.read().decode(errors="replace").strip()
    except OSError:
        return ""


def integer(path: Path) -> int | None:
    try:
        return int(read(path))
    except ValueError:
        return None


def link(path: Path) -> str:
    """The last part of where `path` points; empty where it is no link."""
    try:
        return path.readlink().name
    except OSError:
        return ""


def names(folder: Path, *, prefix: str = "") -> list[str]:
    """What is in `folder` and begins with `prefix`, in a person's order: loop2 before loop10.

    Nothing where there is no such folder.
    """
    try:
        return sorted((path.name for path in folder.iterdir() if path.name.startswith(prefix)), key=_in_order)
    except OSError:
        return []


def _in_order(name: str) -> tuple[tuple[int, int | str], ...]:
    """Digits compare as numbers, before letters."""
    parts: list[str] = []
    for character in name:
        if parts and parts[-1].isdecimal() == character.isdecimal():
            parts[-1] += character
        else:
            parts.append(character)
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts)
