"""The kinds of resource.k8s.io between the versions that they are stored in and those that clients still write.

v1beta2 has the shape of v1. In v1beta1, whose ResourceSlice stands here, a device's properties stand in `basic`; all
else of it has the shape of v1. Both directions take a whole object as builtins and return a new one.
Source: pkg/apis/resource/v1beta1/conversion.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from inventory.kinds import devices
from inventory.kinds.devices import (
    CounterSet,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
    ResourcePool,
)
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import ApiObject, Value, always, pb
from manciple.wire.registry import Conversion

PACKAGE = "io.k8s.api.resource.v1beta1"


class BasicDevice(Value):
    """The properties of a device; as v1 Device without the name."""

    DESCRIBED_AS: ClassVar = devices.Device

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
    node_allocatable_resource_mappings: Annotated[dict[str, NodeAllocatableResourceMapping], pb(12)] = {}
    node_allocatable_resources: Annotated[dict[str, NodeAllocatableResource], pb(13)] = {}


class Device(Value):
    """One device of a pool."""

    DESCRIBED_AS: ClassVar = devices.Device

    name: Annotated[str, pb(1)] = ""
    basic: Annotated[BasicDevice | None, pb(2)] = None


class ResourceSliceSpec(Value):
    """As v1, but for the shape of the devices."""

    DESCRIBED_AS: ClassVar = devices.ResourceSliceSpec

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


Document = dict[str, Any]

STORAGE_VERSION = "resource.k8s.io/v1"


def with_version(document: Mapping[str, Any], api_version: str) -> Document:
    """The same content under another apiVersion."""
    return {**document, "apiVersion": api_version}


def same_shape(version: str) -> Conversion:
    """The conversion of a version that differs from v1 in its name only."""
    return reshaped(version, to_storage=dict, from_storage=dict)


def reshaped(
    version: str,
    *,
    to_storage: Callable[[Document], Document],
    from_storage: Callable[[Document], Document],
    message: type[ApiObject] | None = None,
) -> Conversion:
    """The conversion of `resource.k8s.io/<version>` by functions that need not mind the apiVersion."""
    return Conversion(
        to_storage=lambda document: with_version(to_storage(document), STORAGE_VERSION),
        from_storage=lambda document: with_version(from_storage(document), f"resource.k8s.io/{version}"),
        type=message,
    )


def map_field(document: Mapping[str, Any], path: tuple[str, ...], change: Callable[[Any], Any]) -> Document:
    """A copy of `document` with `change` applied to the field at `path`, where it is there."""
    name, *rest = path
    if name not in document:
        return dict(document)
    value = document[name]
    if rest and not isinstance(value, dict):
        return dict(document)
    return {**document, name: map_field(value, tuple(rest), change) if rest else change(value)}


def renamed(part: Any, names: Mapping[str, str]) -> Any:
    """A copy with other names for some of its fields; what is no object is left to strict decoding to refuse."""
    return {names.get(name, name): value for name, value in part.items()} if isinstance(part, dict) else part


def map_items(change: Callable[[Document], Document]) -> Callable[[Any], Any]:
    """`change` for every object of a list; anything else is left to strict decoding to refuse."""

    def changed(items: Any) -> Any:
        if not isinstance(items, list):
            return items
        return [change(item) if isinstance(item, dict) else item for item in items]

    return changed


# ResourceSlice -------------------------------------------------------------------------------------------------------

_DEVICES = ("spec", "devices")


def _unwrap_device(device: Document) -> Document:
    """v1beta1 -> v1: what stands in `basic` is the device's own."""
    basic = device.get("basic")
    if not isinstance(basic, dict):
        return {key: value for key, value in device.items() if key != "basic" or value is not None}
    return {**{key: value for key, value in device.items() if key != "basic"}, **basic}


def _wrap_device(device: Document) -> Document:
    """v1 -> v1beta1."""
    return {"name": device.get("name", ""), "basic": {key: value for key, value in device.items() if key != "name"}}


def _slice_to_storage(document: Document) -> Document:
    return map_field(_without_zero_placement(document), _DEVICES, map_items(_unwrap_device))


def slice_of_1_31(document: Document) -> Document:
    """v1alpha3 -> v1: as v1beta1, but a capacity is an amount by itself. Nobody is served that version here.

    Source: pkg/apis/resource/v1alpha3/types.go of Kubernetes 1.31.
    """

    def with_values(device: Document) -> Document:
        return map_field(device, ("basic", "capacity"), valued)

    def valued(capacity: Any) -> Any:
        if not isinstance(capacity, dict):
            return capacity
        return {name: amount if isinstance(amount, dict) else {"value": amount} for name, amount in capacity.items()}

    document = map_field(document, _DEVICES, map_items(with_values))
    return with_version(_slice_to_storage(document), STORAGE_VERSION)


def _slice_from_storage(document: Document) -> Document:
    return map_field(document, _DEVICES, map_items(_wrap_device))


def _without_zero_placement(document: Document) -> Document:
    """v1beta1 has no pointers for nodeName and allNodes: their zero values mean that they are not set."""

    def cleaned(spec: Any) -> Any:
        if not isinstance(spec, dict):
            return spec
        zeros: tuple[tuple[str, Any], ...] = (("nodeName", ""), ("allNodes", False))
        unset = {name for name, zero in zeros if spec.get(name) is not None and spec[name] == zero}
        return {key: value for key, value in spec.items() if key not in unset}

    return map_field(document, ("spec",), cleaned)


#: DeviceTaintRule is stored as v1beta2; v1alpha3 has the same shape.
RULE_VERSIONS: Mapping[str, Conversion] = {
    "v1alpha3": Conversion(
        to_storage=lambda document: with_version(document, "resource.k8s.io/v1beta2"),
        from_storage=lambda document: with_version(document, "resource.k8s.io/v1alpha3"),
    )
}
CLASS_VERSIONS: Mapping[str, Conversion] = {"v1beta2": same_shape("v1beta2"), "v1beta1": same_shape("v1beta1")}
SLICE_VERSIONS: Mapping[str, Conversion] = {
    "v1beta2": same_shape("v1beta2"),
    "v1beta1": reshaped(
        "v1beta1", to_storage=_slice_to_storage, from_storage=_slice_from_storage, message=ResourceSlice
    ),
}
