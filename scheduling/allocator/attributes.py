"""Attribute values as constraints compare them: sets of (type, value), grouped over the devices of a generation.

A constraint's name is looked up in full first, then without its domain where the domain is the driver's. Types must be
equal; versions compare as text. With list-typed attributes a device carries each element of its list as a value, and
devices match where one value is common to all. Without them a list, and an attribute without any value, is a value that
no other device has. Source: lookupAttribute and the constraints of upstream's allocator_experimental.go (v1.37).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inventory.kinds.slices import DeviceAttribute
from scheduling.allocator.pools import Generation
from scheduling.allocator.published import PublishedDevice, make_room

#: ("int", 3), ("string", "x"), ...; (ODD, object()) for what equals nothing else
AttributeValue = tuple[str, Any]

#: The type of a value that equals nothing else.
ODD = "odd"

_SCALARS = ("int_value", "bool_value", "string_value", "version_value")


@dataclass(frozen=True, slots=True)
class Groups:
    """The values of one attribute in one generation. `carriers`: value -> mask of the devices that carry it."""

    carriers: dict[AttributeValue, int]
    #: devices that have the attribute at all, with at least one value
    present: int


def groups_of(generation: Generation, attribute: str, *, lists: bool) -> Groups:
    """Grouped once per generation."""
    known = generation.groups.get((attribute, lists))
    if isinstance(known, Groups):
        return known
    carriers: dict[AttributeValue, int] = {}
    present = 0
    for position, device in enumerate(generation.devices):
        for value in _values(device, attribute, lists=lists):
            carriers[value] = carriers.get(value, 0) | (1 << position)
            present |= 1 << position
    make_room(generation.groups)
    groups = generation.groups[(attribute, lists)] = Groups(carriers, present)
    return groups


def look_up(device: PublishedDevice, attribute: str) -> DeviceAttribute | None:
    """By the name as it stands, then by the part after the domain if that is the driver's."""
    attributes = device.published.attributes
    found = attributes.get(attribute)
    if found is not None:
        return found
    domain, slash, identifier = attribute.partition("/")
    return attributes.get(identifier) if slash and domain == device.key.driver else None


def _values(device: PublishedDevice, attribute: str, *, lists: bool) -> Iterable[AttributeValue]:
    found = look_up(device, attribute)
    if found is None:
        return ()
    scalar = next(((name, getattr(found, name)) for name in _SCALARS if getattr(found, name) is not None), None)
    if scalar is not None:
        return (scalar,)
    if not lists:
        return ((ODD, object()),)
    return {(name, one) for name in _SCALARS for one in getattr(found, f"{name}s")}
