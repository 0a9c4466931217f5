"""ResourceSlice as resource.k8s.io/v1beta1 shapes it: a device's properties stand in `basic`.

All else of that version (DeviceClass, DeviceTaintRule) and all of v1beta2 has the shape of v1.
"""

from __future__ import annotations

from typing import Annotated

from inventory.kinds.node_selectors import NodeSelector
from inventory.kinds.slices import (
    CounterSet,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    NodeAllocatableResource,
    ResourcePool,
)
from inventory.kinds.taints import DeviceTaint
from manciple.wire.base import ApiObject, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1beta1"


class BasicDevice(Value):
    """The properties of a device; as v1 Device without the name."""

    attributes: Annotated[dict[str, DeviceAttribute], pb(1)] = {}
    capacity: Annotated[dict[str, DeviceCapacity], pb(2)] = {}
    consumes_counters: Annotated[tuple[DeviceCounterConsumption, ...], pb(3)] = ()
    node_name: Annotated[str | None, pb(4)] = None
    node_selector: Annotated[NodeSelector | None, pb(5)] = None
    all_nodes: Annotated[bool | None, pb(6)] = None
    taints: Annotated[tuple[DeviceTaint, ...], pb(7)] = ()
    binds_to_node: Annotated[bool | None, pb(8)] = None
    binding_conditions: Annotated[tuple[str, ...], pb(9)] = ()
    binding_failure_conditions: Annotated[tuple[str, ...], pb(10)] = ()
    allow_multiple_allocations: Annotated[bool | None, pb(11)] = None
    node_allocatable_resources: Annotated[dict[str, NodeAllocatableResource], pb(13)] = {}


class Device(Value):
    """One device of a pool."""

    name: Annotated[str, pb(1)] = ""
    basic: Annotated[BasicDevice | None, pb(2)] = None


class ResourceSliceSpec(Value):
    """As v1, but for the shape of the devices."""

    driver: Annotated[str, pb(1)] = ""
    pool: Annotated[ResourcePool, pb(2)] = always(ResourcePool())
    node_name: Annotated[str, pb(3)] = ""
    node_selector: Annotated[NodeSelector | None, pb(4)] = None
    all_nodes: Annotated[bool, pb(5)] = False
    devices: Annotated[tuple[Device, ...], pb(6)] = ()
    per_device_node_selection: Annotated[bool | None, pb(7)] = None
    shared_counters: Annotated[tuple[CounterSet, ...], pb(8)] = ()
    partition_type_attribute: Annotated[str | None, pb(9)] = None
    skip_node_operations: Annotated[tuple[str, ...], pb(10)] = ()


class ResourceSlice(ApiObject):
    """A part of a driver's pool of devices. Cluster scoped."""

    spec: Annotated[ResourceSliceSpec, pb(2)] = always(ResourceSliceSpec())
