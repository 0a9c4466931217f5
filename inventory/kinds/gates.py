"""Feature gates that concern DRA, by Kubernetes' names: their defaults, and the fields that belong to each. PURE.

While a gate is off, its fields are dropped from new objects and kept in objects that have them already, and the
allocator ignores them. So a gate can be turned off and on again while pods run. A locked gate cannot be turned off.

    GATED: GatedFields = {"DRADeviceTaints": {Device: ("taints",)}}
    prepared = without_disabled(new, old, GATED)

Sources: pkg/features/kube_features.go and dropDisabledFields of the strategies below pkg/registry/resource, 1.36. One
default is ours: DeviceTaintRules are served, so their gate is on. DynamicResourceAllocation, which 1.36 locks, can be
turned off as its KEPs describe. DRAControlPlaneController is Kubernetes 1.31's, DRAPreemption 1.37's (KEP-5690); the
two drafts never had a gate there.

`enabled("NAME")` is the only question about a gate. Django's settings and the options of the node agent are the
input of `use`, once, at the start; tests change gates with `using`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from msgspec import Struct, structs

from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity, DeviceClassSpec, ResourceSliceSpec
from manciple.wire.registry import registry

Stage = Literal["ALPHA", "BETA", "GA"]
#: Names that stand for all gates of a stage.
GROUPS: Mapping[str, Stage] = MappingProxyType({"AllAlpha": "ALPHA", "AllBeta": "BETA"})


@dataclass(frozen=True, slots=True)
class Gate:
    """needs: other gates without which it is off."""

    stage: Stage
    default: bool
    locked: bool = False
    needs: tuple[str, ...] = ()


#: While it is off, `resource.k8s.io` is not served, and pods run as if they named no claims.
DYNAMIC_RESOURCE_ALLOCATION = "DynamicResourceAllocation"
#: KEP-3063: claims that a driver's controller allocates.
CONTROL_PLANE_CONTROLLER = "DRAControlPlaneController"
STRUCTURED_PARAMETERS_DRAFT = "DRAStructuredParametersDraft"
CLAIMS_DRAFT = "DRAClaimsDraft"

_ALL = (DYNAMIC_RESOURCE_ALLOCATION,)

KNOWN: Mapping[str, Gate] = MappingProxyType(
    {
        "DRAAdminAccess": Gate("GA", True, locked=True, needs=_ALL),
        "DRAClaimsDraft": Gate("ALPHA", False, needs=("DRAControlPlaneController",)),
        "DRAConsumableCapacity": Gate("BETA", True, needs=_ALL),
        "DRAControlPlaneController": Gate("ALPHA", False, needs=_ALL),
        "DRADeviceBindingConditions": Gate("BETA", True, needs=("DRAResourceClaimDeviceStatus",)),
        "DRADeviceTaintRules": Gate("BETA", True, needs=("DRADeviceTaints",)),
        "DRADeviceTaints": Gate("BETA", True, needs=_ALL),
        "DRAExtendedResource": Gate("BETA", True, needs=_ALL),
        "DRAListTypeAttributes": Gate("ALPHA", False, needs=_ALL),
        "DRANodeAllocatableResources": Gate("ALPHA", False, needs=_ALL),
        "DRAPartitionableDevices": Gate("BETA", True, needs=_ALL),
        "DRAPreemption": Gate("BETA", True, needs=_ALL),
        "DRAPrioritizedList": Gate("GA", True, needs=_ALL),
        "DRAResourceClaimDeviceStatus": Gate("BETA", True, needs=_ALL),
        "DRAResourceClaimGranularStatusAuthorization": Gate("BETA", True, needs=("DRAResourceClaimDeviceStatus",)),
        "DRAResourcePoolStatus": Gate("ALPHA", False, needs=_ALL),
        "DRASchedulerFilterTimeout": Gate("BETA", True, needs=_ALL),
        "DRAStructuredParametersDraft": Gate("ALPHA", False, needs=_ALL),
        "DRAWorkloadResourceClaims": Gate("ALPHA", False, needs=("GenericWorkload", *_ALL)),
        DYNAMIC_RESOURCE_ALLOCATION: Gate("GA", True),
        "GangScheduling": Gate("ALPHA", False, needs=("GenericWorkload",)),
        "GenericWorkload": Gate("ALPHA", False),
    }
)

DEFAULTS: Mapping[str, bool] = MappingProxyType({name: gate.default for name, gate in KNOWN.items()})


def parse(text: str) -> dict[str, bool]:
    """Every gate, as "NAME=true,NAME=false" sets it, or its default. AllAlpha and AllBeta are applied first.

    Raises: ValueError for an unknown name, a value that is no boolean, or a locked gate, like Kubernetes at its start.
    """
    given: dict[str, bool] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, value = part.partition("=")
        if name not in KNOWN and name not in GROUPS:
            raise ValueError(f"unrecognized feature gate: {name}; known are {', '.join((*GROUPS, *KNOWN))}")
        if value.lower() not in ("true", "false"):
            raise ValueError(f"invalid value of {name}: {value!r}, must be true or false")
        given[name] = value.lower() == "true"
    wanted = dict(DEFAULTS)
    for group, stage in GROUPS.items():
        if group in given:
            wanted |= {name: given[group] for name, gate in KNOWN.items() if gate.stage == stage}
    wanted |= {name: on for name, on in given.items() if name in KNOWN}
    for name, gate in KNOWN.items():
        if gate.locked and wanted[name] is not gate.default:
            raise ValueError(f"cannot set feature gate {name} to false, feature is locked to true")
    for name in [one for one in KNOWN if wanted[one]]:
        if missing := [other for other in _needed_by(name) if not wanted[other]]:
            if given.get(name):
                raise ValueError(f"{name} needs {', '.join(missing)}")
            wanted[name] = False
    return wanted


def _needed_by(name: str) -> Iterator[str]:
    for other in KNOWN[name].needs:
        yield other
        yield from _needed_by(other)


_now: dict[str, bool] = dict(DEFAULTS)


def use(gates: Mapping[str, bool]) -> None:
    """Set the gates of this process; others get their defaults."""
    _now.clear()
    _now.update({**DEFAULTS, **gates})
    registry.ask_restrictions_again()


@contextmanager
def using(**gates: bool) -> Iterator[None]:
    """Change some gates within a `with` block."""
    before = dict(_now)
    use({**before, **gates})
    try:
        yield
    finally:
        use(before)


def enabled(name: str) -> bool:
    return _now[name]


def serves(group: str, _version: str, _plural: str) -> bool:
    """Whether the group is served: `resource.k8s.io` only while DynamicResourceAllocation is on."""
    return group != "resource.k8s.io" or _now[DYNAMIC_RESOURCE_ALLOCATION]


# The fields of each gate ----------------------------------------------------------------------------------------------


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
    "DRANodeAllocatableResources": {Device: ("node_allocatable_resources", "node_allocatable_resource_mappings")},
    "DRAResourcePoolStatus": {ResourceSliceSpec: ("partition_type_attribute",)},
    "DRAListTypeAttributes": {DeviceAttribute: ("int_values", "bool_values", "string_values", "version_values")},
}
OF_CLASSES: GatedFields = {"DRAExtendedResource": {DeviceClassSpec: ("extended_resource_name",)}}


def without_disabled(new: ValueT, old: Struct | None, fields: GatedFields) -> ValueT:
    """`new` without the fields of disabled gates that `old` does not use. old: None on create.

    A field is used if it differs from its default. An update may change a field in use in any way: whoever set it
    before the gate was turned off can still edit it.
    """
    for gate, by_type in fields.items():
        if not enabled(gate) and not (old is not None and _uses(old, by_type)):
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
    """The same object if it has none of the fields."""
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
