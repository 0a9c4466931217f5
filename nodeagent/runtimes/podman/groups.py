"""Control groups of pods with resources of their own (`spec.resources`, KEP-2837), around those of their containers.

The pod's group has the pod's limits, and podman makes the containers' groups in it. It stands beside the containers of
pods without one: they all share the processors by what they request. Where systemd manages the control groups, it is a
slice, which systemd makes and limits.

Source: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, scheduler/sched-bwc.rst; kubernetes
pkg/kubelet/cm/helpers_linux.go; systemd.resource-control(5), systemd.slice(5).
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.kernel import GROUPS
from nodeagent.runtimes.podman.program import COMMAND_SECONDS, run_bounded, systemd_manages
from nodeagent.runtimes.protocol import Limits

SHARES_PER_CPU, LEAST_SHARES, MOST_SHARES = 1024, 2, 262144
#: Microseconds in which a group may use its quota, and the least quota that the kernel takes.
PERIOD, LEAST_QUOTA = 100_000, 1_000
#: Where podman puts containers, without systemd and with it.
PARENT, SLICE = "libpod_parent", "machine"
#: Where systemd keeps what `systemctl set-property --runtime` was told.
PROPERTIES = Path("/run/systemd/system.control")
#: How long the monitor of a removed container may take to leave the group, in seconds.
LEAVING_SECONDS = 5.0


def shares(limits: Limits) -> int:
    """Of the processors, by what is requested of them; without a request, what podman gives."""
    if not limits.cpu_request_millis:
        return SHARES_PER_CPU
    return min(MOST_SHARES, max(LEAST_SHARES, limits.cpu_request_millis * SHARES_PER_CPU // 1000))


def weight(limits: Limits) -> int:
    """The same in cgroup v2, as runc has it for containers."""
    return 1 + (shares(limits) - LEAST_SHARES) * 9999 // (MOST_SHARES - LEAST_SHARES)


def quota(limits: Limits) -> int:
    """Microseconds in each period; 0 for no limit."""
    return max(LEAST_QUOTA, limits.cpu_millis * PERIOD // 1000) if limits.cpu_millis else 0


class PodGroups(Protocol):
    """The groups of one agent's pods."""

    def name(self, pod_uid: str) -> str:
        """For podman's `--cgroup-parent`."""

    def limit(self, pod_uid: str, limits: Limits) -> None:
        """Give the group these limits; it is made if it is not there. Raises: ContainerFailed."""

    def delete(self, pod_uid: str) -> None:
        """Without containers in it; one that is not there is fine. Raises: ContainerFailed."""

    def pod_uids(self) -> frozenset[str]:
        """The pods that have a group."""


def pod_groups(mark: str) -> PodGroups:
    """mark: of the agent."""
    return Slices(mark) if systemd_manages() else Directories(mark)


class Directories:
    """Groups as directories. In cgroup v1 there is one for each controller."""

    def __init__(self, mark: str, root: Path = GROUPS) -> None:
        self._prefix, self._root = f"manciple-{mark}-", root

    def name(self, pod_uid: str) -> str:
        return f"/{PARENT}/{self._prefix}{pod_uid}"

    def limit(self, pod_uid: str, limits: Limits) -> None:
        try:
            if self._is_unified:
                self._limit_unified(self._made(self._root, pod_uid), limits)
            else:
                _limit_cpu(self._made(self._root / "cpu", pod_uid), limits)
                _limit_memory(self._made(self._root / "memory", pod_uid), limits.memory_bytes)
        except OSError as error:
            raise ContainerFailed(f"the pod's resources cannot be limited: {error}") from error

    def delete(self, pod_uid: str) -> None:
        deadline = time.monotonic() + LEAVING_SECONDS
        for hierarchy in self._hierarchies():
            group = hierarchy / self.name(pod_uid).lstrip("/")
            while group.is_dir():
                try:
                    _remove(group)
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise ContainerFailed(f"the pod's control group cannot be removed: {error}") from error
                    time.sleep(0.05)

    def pod_uids(self) -> frozenset[str]:
        found = (path for hierarchy in self._hierarchies() for path in (hierarchy / PARENT).glob(f"{self._prefix}*"))
        return frozenset(path.name.removeprefix(self._prefix) for path in found)

    @property
    def _is_unified(self) -> bool:
        return (self._root / "cgroup.controllers").exists()

    def _hierarchies(self) -> Sequence[Path]:
        return [self._root] if self._is_unified else [path for path in self._root.glob("*") if path.is_dir()]

    def _made(self, hierarchy: Path, pod_uid: str) -> Path:
        group = hierarchy / self.name(pod_uid).lstrip("/")
        group.mkdir(parents=True, exist_ok=True)
        return group

    def _limit_unified(self, group: Path, limits: Limits) -> None:
        for above in (self._root, group.parent):
            (above / "cgroup.subtree_control").write_text("+cpu +memory")
        (group / "cpu.weight").write_text(str(weight(limits)))
        (group / "cpu.max").write_text(f"{quota(limits) or 'max'} {PERIOD}")
        (group / "memory.max").write_text(str(limits.memory_bytes or "max"))
        with suppress(FileNotFoundError):  # a kernel that does not swap
            (group / "memory.swap.max").write_text("0" if limits.memory_bytes else "max")


def _limit_cpu(group: Path, limits: Limits) -> None:
    (group / "cpu.shares").write_text(str(shares(limits)))
    (group / "cpu.cfs_period_us").write_text(str(PERIOD))
    (group / "cpu.cfs_quota_us").write_text(str(quota(limits) or -1))


def _limit_memory(group: Path, most: int) -> None:
    """As much memory with swap as without: none is swapped. The kernel never lets it be less."""
    memory, with_swap = group / "memory.limit_in_bytes", group / "memory.memsw.limit_in_bytes"
    files = [file for file in (memory, with_swap) if file.exists()]
    if not most or most > int(memory.read_text()):
        files.reverse()
    for file in files:
        file.write_text(str(most or -1))


def _remove(group: Path) -> None:
    for below in group.iterdir():
        if below.is_dir():
            _remove(below)
    group.rmdir()


def _systemctl(*arguments: str) -> None:
    """Raises: ContainerFailed."""
    try:
        done = run_bounded(("systemctl", *arguments), timeout=COMMAND_SECONDS, keep=4096)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ContainerFailed(f"systemd cannot be asked: {error}") from error
    if done.returncode != 0:
        raise ContainerFailed(f"systemctl {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")


class Slices:
    """Groups as slices of systemd, in which podman has it start the containers."""

    def __init__(
        self, mark: str, *, systemctl: Callable[..., None] = _systemctl, properties: Path = PROPERTIES
    ) -> None:
        # A hyphen in a slice's name stands for a level above it.
        self._prefix, self._systemctl, self._properties = f"{SLICE}-manciple_{mark}_", systemctl, properties

    def name(self, pod_uid: str) -> str:
        return f"{self._prefix}{pod_uid.replace('-', '_')}.slice"

    def limit(self, pod_uid: str, limits: Limits) -> None:
        given: Mapping[str, object] = {
            "CPUWeight": weight(limits),
            "CPUQuota": f"{quota(limits) * 100 / PERIOD:g}%" if limits.cpu_millis else "",
            "MemoryMax": limits.memory_bytes or "infinity",
            "MemorySwapMax": 0 if limits.memory_bytes else "infinity",
        }
        words = [f"{name}={value}" for name, value in given.items()]
        self._systemctl("set-property", "--runtime", self.name(pod_uid), *words)

    def delete(self, pod_uid: str) -> None:
        told = self._properties / f"{self.name(pod_uid)}.d"
        if told.is_dir():
            self._systemctl("stop", self.name(pod_uid))
            shutil.rmtree(told, ignore_errors=True)

    def pod_uids(self) -> frozenset[str]:
        told = self._properties.glob(f"{self._prefix}*.slice.d")
        return frozenset(
            path.name.removeprefix(self._prefix).removesuffix(".slice.d").replace("_", "-") for path in told
        )
