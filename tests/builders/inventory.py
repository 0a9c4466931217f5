"""Classes, slices with their devices, and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inventory.kinds.devices import (
    CELDeviceSelector,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceSelector,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    OpaqueDeviceConfiguration,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from inventory.kinds.nodes import (
    Node,
    NodeCondition,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    Taint,
)
from tests.builders.metadata import CREATED, make_meta

#: The driver and class that tests speak of unless they say otherwise.
DRIVER = "gpu.example.com"
CLASS = "gpu.example.com"


class Version(str):
    """An attribute's value that is a semantic version."""

    __slots__ = ()


AttributeValue = bool | int | str | Sequence[bool] | Sequence[int] | Sequence[str]


def make_selectors(expressions: Iterable[str]) -> tuple[DeviceSelector, ...]:
    return tuple(DeviceSelector(cel=CELDeviceSelector(expression=text)) for text in expressions)


def make_opaque(parameters: Any, driver: str = DRIVER) -> OpaqueDeviceConfiguration:
    return OpaqueDeviceConfiguration(driver=driver, parameters=parameters)


def make_class(
    name: str = CLASS,
    *,
    expressions: Iterable[str] = (f"device.driver == '{DRIVER}'",),
    parameters: Any = None,
    extended_resource_name: str | None = None,
    **meta: Any,
) -> DeviceClass:
    """`parameters`: of one opaque configuration for DRIVER, where given."""
    config = () if parameters is None else (DeviceClassConfiguration(opaque=make_opaque(parameters)),)
    spec = DeviceClassSpec(
        selectors=make_selectors(expressions), config=config, extended_resource_name=extended_resource_name
    )
    return DeviceClass(
        api_version="resource.k8s.io/v1", kind="DeviceClass", metadata=make_meta(name, **meta), spec=spec
    )


def make_attribute(value: AttributeValue) -> DeviceAttribute:
    if isinstance(value, bool):
        return DeviceAttribute(bool_value=value)
    if isinstance(value, int):
        return DeviceAttribute(int_value=value)
    if isinstance(value, Version):
        return DeviceAttribute(version_value=str(value))
    if isinstance(value, str):
        return DeviceAttribute(string_value=value)
    return _list_attribute(tuple(value))


def _list_attribute(values: tuple[Any, ...]) -> DeviceAttribute:
    if all(isinstance(value, bool) for value in values):
        return DeviceAttribute(bool_values=values)
    if all(isinstance(value, int) for value in values):
        return DeviceAttribute(int_values=values)
    if all(isinstance(value, Version) for value in values):
        return DeviceAttribute(version_values=tuple(map(str, values)))
    return DeviceAttribute(string_values=values)


def make_device(
    name: str = "gpu-0",
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    capacity: Mapping[str, str | DeviceCapacity] | None = None,
    taints: Iterable[DeviceTaint] = (),
    **fields: Any,
) -> Device:
    """`capacity`: quantities as text, or whole capacities. `fields`: any others of Device."""
    capacities = {
        key: value if isinstance(value, DeviceCapacity) else DeviceCapacity(value=value)
        for key, value in (capacity or {}).items()
    }
    properties = {key: make_attribute(value) for key, value in (attributes or {}).items()}
    return Device(name=name, attributes=properties, capacity=capacities, taints=tuple(taints), **fields)


def make_devices(count: int, *, prefix: str = "gpu", **fields: Any) -> tuple[Device, ...]:
    """`prefix`-0, `prefix`-1, ... each with its number as attribute `index` beside the given ones."""
    given = fields.pop("attributes", None) or {}
    return tuple(
        make_device(f"{prefix}-{index}", attributes={"index": index, **given}, **fields) for index in range(count)
    )


def make_device_taint(key: str = "example.com/broken", value: str = "", effect: str = "NoSchedule") -> DeviceTaint:
    return DeviceTaint(key=key, value=value, effect=effect, time_added=CREATED)


def make_taint_rule(
    name: str = "repair",
    *,
    key: str = "example.com/broken",
    value: str = "",
    effect: str = "NoSchedule",
    time_added: str = CREATED,
    **selector: str,
) -> DeviceTaintRule:
    """`selector`: driver, pool, device; every device where none is named."""
    taint = DeviceTaint(key=key, value=value, effect=effect, time_added=time_added)
    return DeviceTaintRule(
        api_version="resource.k8s.io/v1beta2",
        kind="DeviceTaintRule",
        metadata=make_meta(name),
        spec=DeviceTaintRuleSpec(device_selector=DeviceTaintSelector(**selector), taint=taint),
    )


def make_slice(
    name: str = "",
    *,
    node: str | None = "node-1",
    driver: str = DRIVER,
    pool: str = "",
    generation: int = 1,
    slices: int = 1,
    devices: Iterable[Device] | None = None,
    meta: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ResourceSlice:
    """A slice of a node's pool, named like the node; for other placements `node=None` and `all_nodes=True` and so on.

    devices: two GPUs unless given. slices: how many the pool has. fields: any others of ResourceSliceSpec.
    """
    pool = pool or node or "shared"
    spec = ResourceSliceSpec(
        driver=driver,
        pool=ResourcePool(name=pool, generation=generation, resource_slice_count=slices),
        node_name=node,
        devices=tuple(make_devices(2) if devices is None else devices),
        **fields,
    )
    return ResourceSlice(
        api_version="resource.k8s.io/v1",
        kind="ResourceSlice",
        metadata=make_meta(name or f"{pool}-{driver}", **(meta or {})),
        spec=spec,
    )


def make_node_selector(labels: Mapping[str, str]) -> NodeSelector:
    """One term: all of the labels, by In."""
    expressions = tuple(
        NodeSelectorRequirement(key=key, operator="In", values=(value,)) for key, value in labels.items()
    )
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=expressions),))


def make_node(
    name: str = "node-1",
    *,
    ready: bool = True,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
    capacity: Mapping[str, str] | None = None,
    **meta: Any,
) -> Node:
    """A node of 8 CPUs, 32 GiB and 110 pods unless `capacity` says otherwise."""
    amounts = dict(capacity or {"cpu": "8", "memory": "32Gi", "pods": "110"})
    condition = NodeCondition(
        type="Ready", status="True" if ready else "False", last_heartbeat_time=CREATED, last_transition_time=CREATED
    )
    return Node(
        api_version="v1",
        kind="Node",
        metadata=make_meta(name, labels={"kubernetes.io/hostname": name, **(labels or {})}, **meta),
        spec=NodeSpec(taints=tuple(taints), unschedulable=unschedulable),
        status=NodeStatus(capacity=amounts, allocatable=amounts, conditions=(condition,)),
    )
