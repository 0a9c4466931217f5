"""Finds the machine's devices: PCI functions, network interfaces, disks, loop devices, kvm, tun and fuse.

Source: kernel Documentation/ABI/testing (sysfs-bus-pci, sysfs-class-net, sysfs-block).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from inventory.kinds.devices import DeviceAttribute
from nodeagent.drivers import pci
from nodeagent.drivers.attributes import in_bytes, number, text, truth
from nodeagent.drivers.sysfs.found import Found, Kind
from nodeagent.drivers.sysfs.pciids import PciNames
from nodeagent.drivers.sysfs.tree import Roots, integer, link, names, read
from nodeagent.drivers.sysfs.usage import Usage

Attributes = dict[str, DeviceAttribute]

#: `size` of a block device counts in sectors of so many bytes, whatever the disk's own are.
SECTOR = 512
#: The class of bridges between buses.
_BRIDGE = "06"

_SHAREABLE: Sequence[tuple[Kind, str]] = (("kvm", "kvm"), ("tun", "net/tun"), ("fuse", "fuse"))


def scan(roots: Roots, pci_names: PciNames) -> list[Found]:
    """Everything there is now, used by the machine or not, in a fixed order."""
    usage = Usage.read(roots)
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


def _function(roots: Roots, pci_names: PciNames, address: str, children: Sequence[Found]) -> Found:
    folder = roots.sys / "bus/pci/devices" / address
    attributes = _identity(roots, pci_names, address)
    group = link(folder / "iommu_group")
    return Found(
        kind="pci",
        name=address,
        value=address,
        attributes={**attributes, **_virtualization(folder), **_driver(folder)},
        nodes=("vfio/vfio", f"vfio/{group}") if group and link(folder / "driver") == "vfio-pci" else (),
        function=address,
        in_use=_function_in_use(folder, address, children),
    )


def _identity(roots: Roots, pci_names: PciNames, address: str) -> Attributes:
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
    return _texts(known) | pci.standard_attributes(roots.sys, address)


def _virtualization(folder: Path) -> Attributes:
    """SR-IOV, and the group of functions that an IOMMU cannot tell apart."""
    attributes = _numbers({"virtualFunctions": integer(folder / "sriov_totalvfs")})
    if (group := link(folder / "iommu_group")).isdecimal():
        attributes["iommuGroup"] = number(int(group))
    return attributes | _texts({"physicalFunction": link(folder / "physfn")})


def _function_in_use(folder: Path, address: str, children: Sequence[Found]) -> str:
    if read(folder / "class").removeprefix("0x").startswith(_BRIDGE):
        return "a bridge to other devices"
    if (folder / "virtfn0").exists():
        return "what virtual functions are made of"
    used = next((child for child in children if child.function == address and child.in_use), None)
    return f"below {used.name}, which is {used.in_use}" if used else ""


# Network interfaces --------------------------------------------------------------------------------------------------


def _interface(roots: Roots, usage: Usage, pci_names: PciNames, name: str) -> Found | None:
    folder = roots.sys / "class/net" / name
    if not folder.is_dir():  # such as the file bonding_masters
        return None
    way = _way(roots, folder)
    function = pci.function_on(way)
    speed = integer(folder / "speed")  # -1, or no answer, while there is no link
    attributes = {
        **(_identity(roots, pci_names, function) if function else {}),
        **_driver(folder / "device"),
        **_texts({"interface": name, "mac": read(folder / "address"), "operstate": read(folder / "operstate")}),
        **_numbers({"mtu": integer(folder / "mtu"), "speed": speed if speed and speed > 0 else None}),
    }
    return Found(
        kind="virtual-net" if way.startswith("virtual/") else "net",
        name=name,
        value=name,
        attributes=attributes,
        function=function,
        in_use=usage.of_interface(roots.sys, name),
    )


# Disks ---------------------------------------------------------------------------------------------------------------


def _disk(roots: Roots, usage: Usage, pci_names: PciNames, name: str) -> Found:
    folder = roots.sys / "block" / name
    function = pci.function_on(_way(roots, folder))
    read_only = read(folder / "ro") == "1"
    attributes = {
        **(_identity(roots, pci_names, function) if function else {}),
        **_driver(folder / "device"),
        **_texts({"path": f"/dev/{_node(name)}", "model": read(folder / "device/model"), "serial": _serial(folder)}),
        "readOnly": truth(read_only),
        "removable": truth(read(folder / "removable") == "1"),
        "rotational": truth(read(folder / "queue/rotational") == "1"),
    }
    if loop := _is_loop(name):
        attributes["attached"] = truth((folder / "loop/backing_file").exists())
    return Found(
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


def _is_loop(name: str) -> bool:
    return name.startswith("loop") and name.removeprefix("loop").isdecimal()


def _serial(folder: Path) -> str:
    return read(folder / "serial") or read(folder / "device/serial")


def _node(name: str) -> str:
    """Below /dev: the kernel writes the slash of "cciss/c0d0" as an exclamation mark."""
    return name.replace("!", "/")


# Those without hardware ----------------------------------------------------------------------------------------------


def _shareable(roots: Roots) -> Iterator[Found]:
    for kind, node in _SHAREABLE:
        if (roots.dev / node).exists():
            path = f"/dev/{node}"
            yield Found(kind=kind, name=kind, value=path, attributes={"path": text(path)}, nodes=(node,))


# Attributes ----------------------------------------------------------------------------------------------------------


def _way(roots: Roots, folder: Path) -> str:
    """Where the device hangs, below /sys/devices."""
    return os.path.relpath(folder.resolve(), (roots.sys / "devices").resolve())


def _driver(folder: Path) -> Attributes:
    return _texts({"driver": link(folder / "driver")})


def _texts(values: dict[str, str]) -> Attributes:
    return {name: text(value) for name, value in values.items() if value}


def _numbers(values: dict[str, int | None]) -> Attributes:
    return {name: number(value) for name, value in values.items() if value is not None}
