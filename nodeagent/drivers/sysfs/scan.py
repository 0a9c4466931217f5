"""Finds the machine's devices, and what the machine needs of them itself.

Source: kernel Documentation/ABI/testing (sysfs-bus-pci, sysfs-class-net, sysfs-block).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inventory.kinds.devices import DeviceAttribute
from nodeagent.drivers.attributes import function_on, in_bytes, number, standard_attributes, text, truth
from nodeagent.drivers.sysfs.found import FoundDevice, Kind


# Reads the kernel's directories. A device may vanish between two reads: what cannot be read is not there.
@dataclass(frozen=True, slots=True, kw_only=True)
class SysfsRoots:
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


# Names of vendors, devices and classes, from the list that lspci uses. A line without indentation is a vendor ("8086
# Intel Corporation"), one with a tab a device of it, one with two tabs a subsystem; further down "C 02  Network
# controller" is a class and what is indented below it a subclass. Source: the head of pci.ids.
@dataclass(frozen=True, slots=True)
class PciNames:
    """Names by ids of lower-case hexadecimal digits; empty where a name is not known."""

    vendors: dict[str, str] = field(default_factory=dict)
    devices: dict[tuple[str, str], str] = field(default_factory=dict)  # (vendor, device)
    classes: dict[str, str] = field(default_factory=dict)  # two digits, or four with the subclass

    def class_name(self, class_: str) -> str:
        """class_: six digits; the subclass's name where it has one."""
        return self.classes.get(class_[:4]) or self.classes.get(class_[:2], "")


def read_pci_ids(path: Path) -> PciNames:
    """Without the file, no name is known."""
    names = PciNames()
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return names
    above = ""
    for line in lines:
        if line and not line.startswith(("#", "\t\t")):
            above = _take(names, line, above)
    return names


def _take(names: PciNames, line: str, above: str) -> str:
    """Remember one line; returns the vendor or class ("C 02") to which the indented lines that follow belong."""
    indented, entry = line.startswith("\t"), line.strip()
    id_, _, name = entry.removeprefix("C ").partition("  ")
    if indented:
        if above.startswith("C "):
            names.classes[above[2:] + id_] = name
        else:
            names.devices[above, id_] = name
        return above
    if entry.startswith("C "):
        names.classes[id_] = name
        return f"C {id_}"
    names.vendors[id_] = name
    return id_


# What the machine itself uses: mounted disks, swap, the interface of the default route. A device in use is not
# published unless its owner asks for it: whoever got it would take it from under the machine. Source: proc(5) for
# mountinfo, swaps and net/route; kernel Documentation/ABI/testing/sysfs-block (holders).

#: Bits of the flags in /proc/net/route: the route is up and leads through a gateway.
_UP = 0x1
#: The all-zero destination with the all-zero mask is the default route.
_ANYWHERE_V4, _ANYWHERE_V6 = "00000000", "0" * 32
#: Of a loopback interface, in its `type`. Source: linux/if_arp.h, ARPHRD_LOOPBACK.
_LOOPBACK = "772"


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """What /proc says now. mounts: "8:1" or "sda1" -> where it is mounted. swaps: "sda2". routes: "eth0"."""

    mounts: Mapping[str, str]
    swaps: frozenset[str]
    routes: frozenset[str]

    @classmethod
    def read(cls, roots: SysfsRoots) -> MachineUsage:
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
            return "the interface of the default route"
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


def _swaps(roots: SysfsRoots) -> Iterator[str]:
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


Attributes = dict[str, DeviceAttribute]

#: `size` of a block device counts in sectors of so many bytes, whatever the disk's own are.
SECTOR = 512
#: The class of bridges between buses.
_BRIDGE = "06"

_SHAREABLE: Sequence[tuple[Kind, str]] = (("kvm", "kvm"), ("tun", "net/tun"), ("fuse", "fuse"))


def scan(roots: SysfsRoots, pci_names: PciNames) -> list[FoundDevice]:
    """Everything there is now, used by the machine or not, in a fixed order."""
    usage = MachineUsage.read(roots)
    interfaces = [_interface(roots, usage, pci_names, name) for name in names(roots.sys / "class/net")]
    disks = [
        _disk(roots, usage, pci_names, name)
        for name in names(roots.sys / "block")
        if (roots.dev / _node(name)).exists() and not integer(roots.sys / "block" / name / "hidden")
    ]
    children = [found for found in (*interfaces, *disks) if found is not None]
    functions = [_function(roots, pci_names, address, children) for address in names(roots.sys / "bus/pci/devices")]
    return [*functions, *children, *_shareable(roots)]


# PCI functions -------------------------------------------------------------------------------------------------------


def _function(roots: SysfsRoots, pci_names: PciNames, address: str, children: Sequence[FoundDevice]) -> FoundDevice:
    folder = roots.sys / "bus/pci/devices" / address
    attributes = _identity(roots, pci_names, address)
    group = link(folder / "iommu_group")
    return FoundDevice(
        kind="pci",
        name=address,
        value=address,
        attributes={**attributes, **_virtualization(folder), **_driver(folder)},
        nodes=("vfio/vfio", f"vfio/{group}") if group and link(folder / "driver") == "vfio-pci" else (),
        function=address,
        in_use=_function_in_use(folder, address, children),
    )


def _identity(roots: SysfsRoots, pci_names: PciNames, address: str) -> Attributes:
    """What the function at `address` is, and where; also told of the interfaces and disks that hang on it."""
    folder = roots.sys / "bus/pci/devices" / address
    vendor, device, class_ = (read(folder / name).removeprefix("0x") for name in ("vendor", "device", "class"))
    known = {
        "vendor": vendor,
        "device": device,
        "class": class_,
        "subsystemVendor": read(folder / "subsystem_vendor").removeprefix("0x"),
        "subsystemDevice": read(folder / "subsystem_device").removeprefix("0x"),
        "vendorName": pci_names.vendors.get(vendor, ""),
        "deviceName": pci_names.devices.get((vendor, device), ""),
        "className": pci_names.class_name(class_),
    }
    return _texts(known) | standard_attributes(roots.sys, address)


def _virtualization(folder: Path) -> Attributes:
    """SR-IOV, and the group of functions that an IOMMU cannot tell apart."""
    attributes = _numbers({"virtualFunctions": integer(folder / "sriov_totalvfs")})
    if (group := link(folder / "iommu_group")).isdecimal():
        attributes["iommuGroup"] = number(int(group))
    return attributes | _texts({"physicalFunction": link(folder / "physfn")})


def _function_in_use(folder: Path, address: str, children: Sequence[FoundDevice]) -> str:
    if read(folder / "class").removeprefix("0x").startswith(_BRIDGE):
        return "a bridge to other devices"
    if (folder / "virtfn0").exists():
        return "what virtual functions are made of"
    used = next((child for child in children if child.function == address and child.in_use), None)
    return f"below {used.name}, which is {used.in_use}" if used else ""


# Network interfaces --------------------------------------------------------------------------------------------------


def _interface(roots: SysfsRoots, usage: MachineUsage, pci_names: PciNames, name: str) -> FoundDevice | None:
    folder = roots.sys / "class/net" / name
    if not folder.is_dir():  # such as the file bonding_masters
        return None
    way = _way(roots, folder)
    function = function_on(way)
    speed = integer(folder / "speed")  # -1, or no answer, while there is no link
    attributes = {
        **(_identity(roots, pci_names, function) if function else {}),
        **_driver(folder / "device"),
        **_texts({"interface": name, "mac": read(folder / "address"), "operstate": read(folder / "operstate")}),
        **_numbers({"mtu": integer(folder / "mtu"), "speed": speed if speed and speed > 0 else None}),
    }
    return FoundDevice(
        kind="virtual-net" if way.startswith("virtual/") else "net",
        name=name,
        value=name,
        attributes=attributes,
        function=function,
        in_use=usage.of_interface(roots.sys, name),
    )


# Disks ---------------------------------------------------------------------------------------------------------------


def _disk(roots: SysfsRoots, usage: MachineUsage, pci_names: PciNames, name: str) -> FoundDevice:
    folder = roots.sys / "block" / name
    function = function_on(_way(roots, folder))
    read_only = read(folder / "ro") == "1"
    attributes = {
        **(_identity(roots, pci_names, function) if function else {}),
        **_driver(folder / "device"),
        **_texts(
            {
                "path": f"/dev/{_node(name)}",
                "model": read(folder / "device/model"),
                "serial": read(folder / "serial") or read(folder / "device/serial"),
            }
        ),
        "readOnly": truth(read_only),
        "removable": truth(read(folder / "removable") == "1"),
        "rotational": truth(read(folder / "queue/rotational") == "1"),
    }
    if loop := name.startswith("loop") and name.removeprefix("loop").isdecimal():
        attributes["attached"] = truth((folder / "loop/backing_file").exists())
    return FoundDevice(
        kind="loop" if loop else "block",
        name=name,
        value=f"/dev/{_node(name)}",
        attributes=attributes,
        capacity={"size": in_bytes((integer(folder / "size") or 0) * SECTOR)},
        nodes=(_node(name),),
        function=function,
        in_use=usage.of_disk(roots.sys, name),
        read_only=read_only,
    )


def _node(name: str) -> str:
    """Below /dev: the kernel writes the slash of "cciss/c0d0" as an exclamation mark."""
    return name.replace("!", "/")


# Those without hardware ----------------------------------------------------------------------------------------------


def _shareable(roots: SysfsRoots) -> Iterator[FoundDevice]:
    for kind, node in _SHAREABLE:
        if (roots.dev / node).exists():
            path = f"/dev/{node}"
            yield FoundDevice(kind=kind, name=kind, value=path, attributes={"path": text(path)}, nodes=(node,))


# Attributes ----------------------------------------------------------------------------------------------------------


def _way(roots: SysfsRoots, folder: Path) -> str:
    """Where the device hangs, below /sys/devices."""
    return os.path.relpath(folder.resolve(), (roots.sys / "devices").resolve())


def _driver(folder: Path) -> Attributes:
    return _texts({"driver": link(folder / "driver")})


def _texts(values: dict[str, str]) -> Attributes:
    return {name: text(value) for name, value in values.items() if value}


def _numbers(values: dict[str, int | None]) -> Attributes:
    return {name: number(value) for name, value in values.items() if value is not None}
