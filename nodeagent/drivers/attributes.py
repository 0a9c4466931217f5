"""Attribute values and capacities within the limits of the API, whatever a machine says of its devices.

Source of the limits: k8s.io/api/resource/v1, types.go (DeviceAttributeMaxValueLength).
"""

from __future__ import annotations

import re

from inventory.kinds.devices import DeviceAttribute, DeviceCapacity
from manciple.wire.quantity import Format, Quantity

#: Of a text or a version, in bytes.
TEXT_MAX = 64


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
