"""Which optional parts of the resource API the allocator honours: feature gates as one frozen value.

Every rule that depends on a gate reads a field of `Features`; nothing else in the core knows about gates. The gates
keep their Kubernetes names (pkg/features/kube_features.go); the conformance scenarios use the field names of
upstream's `structured.Features`, so both spellings can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

#: field of Features -> (Kubernetes gate, name in upstream's structured.Features)
_NAMES: dict[str, tuple[str, str]] = {
    "admin_access": ("DRAAdminAccess", "adminAccess"),
    "prioritized_list": ("DRAPrioritizedList", "prioritizedList"),
    "partitionable_devices": ("DRAPartitionableDevices", "partitionableDevices"),
    "consumable_capacity": ("DRAConsumableCapacity", "consumableCapacity"),
    "device_taints": ("DRADeviceTaints", "deviceTaints"),
    "binding_conditions": ("DRADeviceBindingConditions", "deviceBindingAndStatus"),
    "list_attributes": ("DRAListTypeAttributes", "listTypeAttributes"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """All on by default; each field is one gate."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    consumable_capacity: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    list_attributes: bool = True

    @classmethod
    def from_gates(cls, gates: Mapping[str, bool]) -> Features:
        """From Kubernetes' gate names; a gate that is not named stays on. Other components' gates are ignored."""
        return cls(**{f.name: gates.get(_NAMES[f.name][0], True) for f in fields(cls)})

    @classmethod
    def from_upstream(cls, flags: Mapping[str, bool]) -> Features:
        """From upstream's `structured.Features` names, as scenarios carry them; one that is not named is off."""
        return cls(**{f.name: bool(flags.get(_NAMES[f.name][1], False)) for f in fields(cls)})
