"""Finds CDI devices by their qualified names, as a container runtime does before it starts a container.

Directories are given in the order of their precedence, the lowest first: the static one (/etc/cdi), then the dynamic
one (/var/run/cdi), as in the specification's library. A device of a later directory stands in for one of the same name
in an earlier one; two in one directory are a conflict, and the name then means nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeagent.cdi.documents import SUFFIXES, parse_spec
from nodeagent.cdi.spec import ContainerEdits, Device, Spec, qualified_name

_Stamp = tuple[int, int, int]  # inode, mtime in ns, size: a changed file has another one


@dataclass(frozen=True, slots=True)
class SpecFile:
    """One file of a directory: what it defines, or why it defines nothing."""

    path: Path
    spec: Spec | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """One device, and where it is defined. priority: the index of the directory."""

    device: Device
    spec: Spec
    path: Path
    priority: int


class SpecFiles:
    """The CDI files of one directory; a file is parsed again only when it has changed. Not thread-safe.

    of_interest: by a file's name, which ones to read at all.
    """

    def __init__(self, folder: Path, of_interest: Callable[[str], bool] = lambda _name: True) -> None:
        self._folder = folder
        self._of_interest = of_interest
        self._known: dict[str, tuple[_Stamp, SpecFile]] = {}

    def read(self) -> list[SpecFile]:
        """As the directory is now, sorted by name; subdirectories and files that cannot be opened are left out."""
        self._known = dict(self._look())
        return [file for _, file in self._known.values()]

    def _look(self) -> Iterator[tuple[str, tuple[_Stamp, SpecFile]]]:
        for name, stamp in sorted(self._stamps().items()):
            if name in self._known and self._known[name][0] == stamp:
                yield name, self._known[name]
                continue
            try:
                yield name, (stamp, _read(self._folder / name))
            except OSError:
                continue  # gone between two looks, or nobody may read it

    def _stamps(self) -> dict[str, _Stamp]:
        stamps: dict[str, _Stamp] = {}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIXES) and self._of_interest(entry.name) and entry.is_file():
                        stat = entry.stat()
                        stamps[entry.name] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except OSError:
            return stamps  # no directory, no devices
        return stamps


def _read(path: Path) -> SpecFile:
    """Raises: OSError."""
    try:
        return SpecFile(path, parse_spec(path.read_bytes(), suffix=path.suffix))
    except ValueError as error:
        return SpecFile(path, None, str(error))


class CdiRegistry:
    """The devices of `folders`, the last of which has the last word. Not thread-safe."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [SpecFiles(folder) for folder in folders]

    def edits(self, devices: Sequence[str]) -> list[ContainerEdits]:
        """What to do to a container that gets `devices`: each spec's own edits before those of its first device.

        Raises: LookupError naming the devices that no valid file defines, or two of the same precedence, and what
        is wrong with which files.
        """
        files = [(priority, file) for priority, folder in enumerate(self._folders) for file in folder.read()]
        known, conflicts = definitions(files)
        if missing := [device for device in devices if device not in known]:
            raise LookupError(_why(missing, conflicts, [file for _, file in files]))
        edits: list[ContainerEdits] = []
        seen: set[Path] = set()
        for found in (known[device] for device in devices):
            if found.path not in seen:
                seen.add(found.path)
                edits.append(found.spec.container_edits)
            edits.append(found.device.container_edits)
        return edits


def definitions(files: Sequence[tuple[int, SpecFile]]) -> tuple[dict[str, Definition], dict[str, tuple[Path, Path]]]:
    """The devices that (priority, file) pairs in rising order define, and the conflicts: name -> the two files.

    A name in conflict stays unresolvable even if a directory of higher precedence has it too, as in the library.
    """
    known: dict[str, Definition] = {}
    conflicts: dict[str, tuple[Path, Path]] = {}
    for priority, file in files:
        if file.spec is None:
            continue
        for device in file.spec.devices:
            name = qualified_name(file.spec.kind, device.name)
            if name in known and known[name].priority == priority:
                conflicts.setdefault(name, (known[name].path, file.path))
            else:
                known[name] = Definition(device, file.spec, file.path, priority)
    return {name: found for name, found in known.items() if name not in conflicts}, conflicts


def _why(missing: Sequence[str], conflicts: Mapping[str, tuple[Path, Path]], files: Sequence[SpecFile]) -> str:
    reasons = [f"unresolvable CDI devices {', '.join(missing)}"]
    for name in missing:
        if name in conflicts:
            first, second = conflicts[name]
            reasons.append(f"{name} is defined by both {first} and {second}; remove one of them")
    if len(reasons) == 1:
        reasons += [f"{file.path} is not a valid CDI file: {file.problem}" for file in files if file.problem]
    return "; ".join(reasons)
