"""What the machine itself uses: mounted disks, swap, the interface of the default route.

A device in use is not offered unless its owner asks for it: whoever got it would take it from under the machine.
Source: proc(5) for mountinfo, swaps and net/route; kernel Documentation/ABI/testing/sysfs-block (holders).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeagent.drivers.sysfs.tree import Roots, link, names, read

#: Bits of the flags in /proc/net/route: the route is up and leads through a gateway.
_UP = 0x1
#: The all-zero destination with the all-zero mask is the default route.
_ANYWHERE_V4, _ANYWHERE_V6 = "00000000", "0" * 32
#: Of a loopback interface, in its `type`. Source: linux/if_arp.h, ARPHRD_LOOPBACK.
_LOOPBACK = "772"


@dataclass(frozen=True, slots=True)
class Usage:
    """What /proc says now. mounts: "8:1" or "sda1" -> where it is mounted. swaps: "sda2". routes: "eth0"."""

    mounts: Mapping[str, str]
    swaps: frozenset[str]
    routes: frozenset[str]

    @classmethod
    def read(cls, roots: Roots) -> Usage:
        return cls(dict(_mounts(roots.proc)), frozenset(_swaps(roots)), frozenset(_default_routes(roots.proc)))

    def of_disk(self, sys: Path, disk: str) -> str:
        """Why the machine needs the disk; empty when it does not. Its partitions count as it does."""
        folder = sys / "class/block" / disk
        partitions = [name for name in names(folder, prefix=disk) if (folder / name / "partition").exists()]
        for name, place in [(disk, folder), *((name, folder / name) for name in partitions)]:
            if reason := self._of_block(name, place):
                return reason if name == disk else f"its partition {name} is {reason}"
        return ""

    def _of_block(self, name: str, folder: Path) -> str:
        mounted = self.mounts.get(read(folder / "dev")) or self.mounts.get(name)
        if mounted:
            return f"mounted at {mounted}"
        if name in self.swaps:
            return "used as swap space"
        holders = names(folder / "holders")
        return f"held by {holders[0]}" if holders else ""

    def of_interface(self, sys: Path, interface: str) -> str:
        """Why the machine needs the network interface; empty when it does not."""
        folder = sys / "class/net" / interface
        if read(folder / "type") == _LOOPBACK:
            return "the loopback interface"
        if interface in self.routes:
            return "the way of the default route"
        if master := link(folder / "master"):
            return f"a part of {master}"
        upper = next(iter(names(folder, prefix="upper_")), "")
        return f"what {upper.removeprefix('upper_')} is built on" if upper else ""


def _mounts(proc: Path) -> Iterator[tuple[str, str]]:
    """By device number and by the source's name: file systems such as btrfs have numbers of their own.

    Those of the first process too: the agent may run in a mount namespace of its own.
    """
    for line in "\n".join(read(proc / who / "mountinfo") for who in ("self", "1")).splitlines():
        before, _, after = line.partition(" - ")
        fields, source = before.split(), after.split()[1:2]
        if len(fields) > 4:  # noqa: PLR2004 - the fifth field is the mount point
            point = _unescaped(fields[4])
            yield fields[2], point
            if source and source[0].startswith("/dev/"):
                yield _device_name(source[0]), point


def _swaps(roots: Roots) -> Iterator[str]:
    for line in read(roots.proc / "swaps").splitlines()[1:]:
        if line.startswith("/dev/"):
            yield _device_name(line.split()[0])


def _device_name(path: str) -> str:
    """The kernel's name of a device node: /dev/mapper/vg-root is a link to /dev/dm-0."""
    return Path(_unescaped(path)).resolve().name


def _default_routes(proc: Path) -> Iterator[str]:
    for line in read(proc / "net/route").splitlines()[1:]:
        fields = line.split()
        if fields[1] == _ANYWHERE_V4 and fields[7] == _ANYWHERE_V4 and int(fields[3], 16) & _UP:
            yield fields[0]
    for line in read(proc / "net/ipv6_route").splitlines():
        fields = line.split()
        if fields[0] == _ANYWHERE_V6 and fields[1] == "00":
            yield fields[9]


def _unescaped(text: str) -> str:
    """The kernel writes white space in paths as an octal number: "\\040"."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
