"""Attributes and capacities within the limits of the API, and those of PCI that every driver tells alike.

Source of the limits: k8s.io/api/resource/v1, types.go (DeviceAttributeMaxValueLength).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from inventory.kinds.devices import DeviceAttribute, DeviceCapacity
from manciple.wire.quantity import Format, Quantity
from manciple.wire.validation import DRIVER_NAME_MAX, check_driver_name

#: Of a text or a version, in bytes.
TEXT_MAX = 64


def check_name(name: str) -> None:
    """Raises: ValueError for what cannot be a driver's name, as its settings have it."""
    if len(name) > DRIVER_NAME_MAX or check_driver_name(name):
        raise ValueError(f"`{name}` is not a name for a driver: a DNS subdomain of at most 63 bytes - at `$.name`")


def text(value: str) -> DeviceAttribute:
    """`value`, cut to 64 bytes between two characters."""
    return DeviceAttribute(string_value=value.encode()[:TEXT_MAX].decode(errors="ignore"))


def number(value: int) -> DeviceAttribute:
    return DeviceAttribute(int_value=value)


def truth(value: bool) -> DeviceAttribute:
    return DeviceAttribute(bool_value=value)


def version(value: str) -> DeviceAttribute:
    """The version that `value` begins with; a text where it begins with none."""
    semantic = semantic_version(value)
    return DeviceAttribute(version_value=semantic) if semantic else text(value)


def semantic_version(value: str) -> str:
    """ "535.104.05" becomes "535.104.5", "12.2" becomes "12.2.0"; empty where `value` begins with no number.

    A semantic version has three numbers without leading zeros; what follows the third is left out.
    """
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", value)
    return ".".join(str(int(part or 0)) for part in found.groups()) if found else ""


def in_bytes(count: int) -> DeviceCapacity:
    """An amount of bytes as Kubernetes writes it: "4Mi"."""
    return DeviceCapacity(value=Quantity.of(count, Format.BINARY_SI).canonical())


def plain(attribute: DeviceAttribute) -> str:
    """The value as a person would write it: a number in digits, a truth as true or false."""
    if attribute.bool_value is not None:
        return "true" if attribute.bool_value else "false"
    if attribute.int_value is not None:
        return str(attribute.int_value)
    return attribute.string_value or attribute.version_value or ""


# Where a device sits on the PCI bus, as the standard attributes tell it for every driver alike.
# `resource.kubernetes.io/pciBusID` is the address as domain:bus:device.function with a domain of four digits;
# `resource.kubernetes.io/pcieRoot` is the first directory below /sys/devices on the way to the function, where that is
# a PCI host bridge; `resource.kubernetes.io/numaNode` is what the kernel says, and absent where it says -1: two devices
# without affinity have nothing in common. Source: kubernetes, staging/src/k8s.io/dynamic-resource-allocation/
# deviceattribute (pci_linux.go, numa_linux.go).

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
