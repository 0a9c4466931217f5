"""CPU seconds and memory of the server processes that this process has started, with their children (Linux's /proc)."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
#: What the command line of a process holds -> what the process is called here.
_ROLES = {
    "manage.py serve": "api",
    " worker ": "workers",
    "postgres": "postgresql",
    "redis-server": "redis",
}


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    seconds: float  # user and system, and those of children that have ended
    command: str


def by_role() -> dict[str, float]:
    """role (api, workers, postgresql, redis) -> CPU seconds so far."""
    spent: dict[str, float] = defaultdict(float)
    for role, process in _by_role():
        spent[role] += process.seconds
    return dict(spent)


def memory_by_role() -> dict[str, float]:
    """role -> MiB that its processes hold; what several of them share counts once (PSS)."""
    held: dict[str, float] = defaultdict(float)
    for role, process in _by_role():
        with suppress(OSError):  # it ended meanwhile
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            held[role] += int(rollup.partition("Pss:")[2].split()[0]) / 1024
    return dict(held)


def since(before: dict[str, float]) -> dict[str, float]:
    """role -> CPU seconds spent after `before` was taken."""
    return {role: seconds - before.get(role, 0.0) for role, seconds in by_role().items()}


def _by_role() -> Iterator[tuple[str, _Process]]:
    """Every server process beside the role of the one that this process has started for it."""
    children: dict[int, list[_Process]] = defaultdict(list)
    for process in _processes():
        children[process.parent].append(process)
    for child in children[os.getpid()]:
        role = next((role for mark, role in _ROLES.items() if mark in child.command), "")
        if role:
            yield from ((role, process) for process in _tree(child, children))


def _tree(process: _Process, children: dict[int, list[_Process]]) -> Iterator[_Process]:
    yield process
    for child in children[process.pid]:
        yield from _tree(child, children)


def _processes() -> Iterator[_Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
        yield _Process(int(folder.name), int(fields[1]), sum(map(int, fields[11:15])) / _TICKS, command)
