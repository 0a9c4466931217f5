"""What of a device an expression looks at, so that a verdict can be kept for all devices that are alike in it.

Known when every use of `device` is a field, or `device.attributes` or `device.capacity` with a literal domain. Then
devices with equal `projection`s get equal verdicts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from scheduling.cel.checker import CheckedTree
from scheduling.cel.device import DeviceView
from scheduling.cel.tree import Call, Comprehension, Ident, Literal, Node, Select, children, walk
from scheduling.cel.values import CelMap


@dataclass(frozen=True, slots=True, order=True)
class DeviceReference:
    """One thing that is looked at. domain and identifier are empty where the whole map is."""

    #: driver, allowMultipleAllocations, attributes or capacity
    field: str
    domain: str = ""
    identifier: str = ""


def device_references(tree: CheckedTree) -> frozenset[DeviceReference] | None:
    """Everything the expression can look at, or None where `device` is used otherwise."""
    nodes = walk(tree.root)
    if any(isinstance(node, Comprehension) and "device" in _bound(node) for node in nodes):
        return None
    parents: dict[Node, list[Node]] = {}
    for node in nodes:
        for child in children(node):
            parents.setdefault(child, []).append(node)
    found: set[DeviceReference] = set()
    for node in nodes:
        if isinstance(node, Ident) and node.name == "device":
            uses = parents.get(node, [])
            fields = [use for use in uses if isinstance(use, Select)]
            if not uses or len(fields) < len(uses):
                return None
            found = found.union(*(_of_field(use, parents) for use in fields))
    return frozenset(found)


def _bound(node: Comprehension) -> tuple[str, ...]:
    return (node.iter_var, node.iter_var2, node.accu_var)


def _of_field(node: Select, parents: dict[Node, list[Node]]) -> set[DeviceReference]:
    if node.field_name not in ("attributes", "capacity") or node.test_only:
        return {DeviceReference(node.field_name)}
    found: set[DeviceReference] = set()
    for parent in parents.get(node, []):
        domain = _literal_key(parent, node)
        if domain is None:
            return {DeviceReference(node.field_name)}
        found |= _of_domain(parent, DeviceReference(node.field_name, domain), parents)
    return found or {DeviceReference(node.field_name)}


def _of_domain(node: Node, whole: DeviceReference, parents: dict[Node, list[Node]]) -> set[DeviceReference]:
    found: set[DeviceReference] = set()
    for parent in parents.get(node, []):
        identifier = _literal_key(parent, node)
        if not identifier:
            return {whole}
        found.add(DeviceReference(whole.field, whole.domain, identifier))
    return found or {whole}


def _literal_key(parent: Node, operand: Node) -> str | None:
    """The key by which `parent` looks something up in `operand`, where it is written out."""
    if isinstance(parent, Select):
        return parent.field_name
    if isinstance(parent, Call) and parent.function in ("_[_]", "_[?_]", "_?._") and parent.args[0] is operand:
        key = parent.args[1]
        return key.value if isinstance(key, Literal) and isinstance(key.value, str) else None
    return None


def projection(device: DeviceView, references: Iterable[DeviceReference]) -> Hashable:
    """What the device has at these places. Devices that are equal in it get equal verdicts."""
    return (device.fault, *(_value_at(device, reference) for reference in sorted(references)))


def _value_at(device: DeviceView, reference: DeviceReference) -> Hashable:
    if reference.field == "driver":
        return device.driver
    if reference.field == "allowMultipleAllocations":
        return device.allow_multiple_allocations
    domains = device.attributes if reference.field == "attributes" else device.capacity
    if not reference.domain:
        return _frozen(domains)
    entries = domains[reference.domain]
    if not reference.identifier:
        return (reference.domain in domains, _frozen(entries))
    return _frozen(entries[reference.identifier]) if reference.identifier in entries else None


def _frozen(value: Any) -> Hashable:
    """A hashable stand-in that tells True from 1."""
    if isinstance(value, CelMap):
        # The order counts: folds go through maps in it.
        return tuple((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return (type(value).__name__, str(value) if isinstance(value, bool) else value)
