"""CPU seconds, wake-ups and memory of server processes with their children (Linux's /proc)."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
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


def of_trees(roles: Mapping[int, str]) -> dict[str, tuple[float, int]]:
    """role -> CPU seconds so far, and wake-ups: how often a thread that still runs has given up its core to wait.

    roles: of processes, each of which is counted with its children. Those that have ended count in their parents.
    """
    while True:
        spent: dict[str, tuple[float, int]] = dict.fromkeys(roles.values(), (0.0, 0))
        children = _children()
        by_pid = {process.pid: process for each in children.values() for process in each}
        counted = [(role, process) for pid, role in roles.items() for process in _tree(by_pid[pid], children)]
        for role, process in counted:
            seconds, wakeups = spent[role]
            spent[role] = (seconds + process.seconds, wakeups + _wakeups(process.pid))
        # A child that ended meanwhile may be missing, or count twice.
        after = {process.pid for each in _children().values() for process in each}
        if all(process.pid in after for _role, process in counted):
            return spent


def _wakeups(pid: int) -> int:
    count = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):  # it ended meanwhile
            count += int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return count


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
    children = _children()
    for child in children[os.getpid()]:
        role = next((role for mark, role in _ROLES.items() if mark in child.command), "")
        if role:
            yield from ((role, process) for process in _tree(child, children))


def _children() -> dict[int, list[_Process]]:
    children: dict[int, list[_Process]] = defaultdict(list)
    for process in _processes():
        children[process.parent].append(process)
    return children


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
