"""Where a device sits on the PCI bus, as the standard attributes tell it for every driver alike.

`resource.kubernetes.io/pciBusID` is the address as domain:bus:device.function with a domain of four digits;
`resource.kubernetes.io/pcieRoot` is the first directory below /sys/devices on the way to the function, where that is
a PCI host bridge; `resource.kubernetes.io/numaNode` is what the kernel says, and absent where it says -1: two devices
without affinity have nothing in common. Source: kubernetes, staging/src/k8s.io/dynamic-resource-allocation/
deviceattribute (pci_linux.go, numa_linux.go).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from inventory.kinds.devices import DeviceAttribute
from nodeagent.drivers.attributes import number, text

BUS_ID = "resource.kubernetes.io/pciBusID"
ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

#: An address as /sys writes it; a domain has more than four digits behind some controllers (Intel VMD).
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_STANDARD_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


def standard_attributes(sys: Path, address: str) -> dict[str, DeviceAttribute]:
    """pciBusID, pcieRoot and numaNode of the function at `address`, those that it has. sys: where /sys is."""
    if not _STANDARD_ADDRESS.fullmatch(address):
        return {}
    attributes = {BUS_ID: text(address)}
    if root := pcie_root(sys, address):
        attributes[ROOT] = text(root)
    if (node := numa_node(sys, address)) is not None:
        attributes[NUMA_NODE] = attributes["numaNode"] = number(node)
    return attributes


def pcie_root(sys: Path, address: str) -> str:
    """ "pci0000:00"; empty where the function hangs on something else than a PCI host bridge, or is gone."""
    link = sys / "bus/pci/devices" / address
    try:
        target = link.readlink()
    except OSError:
        return ""
    way = os.path.relpath(os.path.normpath(link.parent / target), sys / "devices").split("/")
    return way[0] if way[0].startswith("pci") and way[-1] == address else ""


def numa_node(sys: Path, address: str) -> int | None:
    """None without affinity."""
    try:
        node = int((sys / "bus/pci/devices" / address / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def function_on(way: str) -> str:
    """The address of the last PCI function on a path below /sys/devices; empty where there is none."""
    return next((part for part in reversed(way.split("/")) if ADDRESS.fullmatch(part)), "")
