"""Fields of features that are off: dropped from what is new, kept where they were set before. PURE.

    GATED: GatedFields = {"DRADeviceTaints": {Device: ("taints",)}}
    prepared = without_disabled(new, old, GATED)

A field counts as set where it differs from its default. An update may change what is there already in any way: whoever
set it before the gate was turned off goes on with it.
Source: dropDisabledFields of the strategies below pkg/registry/resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct, structs

from inventory.kinds import gates
from inventory.kinds.devices import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClassSpec,
    ResourceSliceSpec,
)

#: gate -> type -> the fields of it that belong to the feature
GatedFields = Mapping[str, Mapping[type, tuple[str, ...]]]
ValueT = TypeVar("ValueT", bound=Struct)

OF_SLICES: GatedFields = {
    "DRADeviceTaints": {Device: ("taints",)},
    "DRAPartitionableDevices": {
        ResourceSliceSpec: ("shared_counters", "per_device_node_selection"),
        Device: ("consumes_counters", "node_name", "node_selector", "all_nodes"),
    },
    "DRADeviceBindingConditions": {Device: ("binding_conditions", "binding_failure_conditions", "binds_to_node")},
    "DRAConsumableCapacity": {Device: ("allow_multiple_allocations",), DeviceCapacity: ("request_policy",)},
    "DRANodeAllocatableResources": {Device: ("node_allocatable_resources",)},
    "DRAResourcePoolStatus": {ResourceSliceSpec: ("partition_type_attribute",)},
    "DRAListTypeAttributes": {DeviceAttribute: ("int_values", "bool_values", "string_values", "version_values")},
}
OF_CLASSES: GatedFields = {"DRAExtendedResource": {DeviceClassSpec: ("extended_resource_name",)}}


def without_disabled(new: ValueT, old: Struct | None, fields: GatedFields) -> ValueT:
    """`new` without what features that are off would add to `old`, which is None where `new` is created."""
    for gate, by_type in fields.items():
        if not gates.enabled(gate) and not (old is not None and _uses(old, by_type)):
            new = _stripped(new, by_type)
    return new


@cache
def _default(type_: type) -> Any:
    return type_()


def _parts(value: Struct) -> Iterator[tuple[str, Any]]:
    """The fields that may hold structs."""
    for name in value.__struct_fields__:
        part = getattr(value, name)
        if isinstance(part, (Struct, tuple, dict)) and part:
            yield name, part


def _uses(value: Any, by_type: Mapping[type, tuple[str, ...]]) -> bool:
    if isinstance(value, tuple):
        return any(_uses(one, by_type) for one in value)
    if isinstance(value, dict):
        return any(_uses(one, by_type) for one in value.values())
    if not isinstance(value, Struct):
        return False
    own = by_type.get(type(value), ())
    if any(getattr(value, name) != getattr(_default(type(value)), name) for name in own):
        return True
    return any(_uses(part, by_type) for _, part in _parts(value))


def _stripped(value: Any, by_type: Mapping[type, tuple[str, ...]]) -> Any:
    """The same object where nothing of it goes."""
    if isinstance(value, tuple):
        found = tuple(_stripped(one, by_type) for one in value)
        return value if all(one is other for one, other in zip(found, value, strict=True)) else found
    if isinstance(value, dict):
        parts = {key: _stripped(one, by_type) for key, one in value.items()}
        return value if all(parts[key] is value[key] for key in parts) else parts
    if not isinstance(value, Struct):
        return value
    plain = {name: getattr(_default(type(value)), name) for name in by_type.get(type(value), ())}
    inner = {name: _stripped(part, by_type) for name, part in _parts(value) if name not in plain}
    changed = {name: part for name, part in (inner | plain).items() if part is not getattr(value, name)}
    return structs.replace(value, **changed) if changed else value
