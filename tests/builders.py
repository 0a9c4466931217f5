"""Builders of API values for tests: keyword functions whose defaults validate, so that a test says only what matters.

    make_claim("training", requests=[make_request(count=2)], namespace="team-a")
    make_pod("web", claims={"gpu": "training"})          # uses an existing claim
    make_pod("web", templates={"gpu": "one-gpu"})        # a claim is made for it

They return the typed values as a client would send them; `stored` gives one what the server fills in. Attributes are
written as Python values: bool, int and str become bool, int and string, `Version("1.2.3")` a version, lists the lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid5

from msgspec.structs import replace

from claims.kinds.allocations import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from claims.kinds.containers import Container, ContainerResourceClaim, ResourceRequirements
from claims.kinds.pods import Pod, PodResourceClaim, PodSpec
from claims.kinds.requests import (
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from claims.kinds.resource_claims import (
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from inventory.kinds.classes import (
    CELDeviceSelector,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceSelector,
    OpaqueDeviceConfiguration,
)
from inventory.kinds.node_selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from inventory.kinds.nodes import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from inventory.kinds.slices import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from inventory.kinds.taints import DeviceTaint, DeviceToleration
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.machinery import Namespace

#: The driver and class that tests speak of unless they say otherwise.
DRIVER = "gpu.example.com"
CLASS = "gpu.example.com"
NAMESPACE = "default"
CREATED = "2026-01-01T00:00:00Z"

_UIDS = UUID("0b9a6c1e-7a55-4f7e-9d0c-3f2a5c8e1d4b")

Object = TypeVar("Object", bound=ApiObject)


class Version(str):
    """An attribute's value that is a semantic version."""

    __slots__ = ()


AttributeValue = bool | int | str | Sequence[bool] | Sequence[int] | Sequence[str]


def make_uid(*parts: str) -> str:
    """A UUID that is always the same for the same parts."""
    return str(uuid5(_UIDS, "/".join(parts)))


def make_meta(name: str, namespace: str = "", **fields: Any) -> ObjectMeta:
    """`fields`: any of ObjectMeta's, by their Python names."""
    return ObjectMeta(name=name, namespace=namespace, **fields)


def stored(obj: Object, *, revision: int = 1, **fields: Any) -> Object:
    """`obj` with uid, resourceVersion and creationTimestamp, as the server would have stored it."""
    meta = obj.metadata
    uid = meta.uid or make_uid(type(obj).__name__, meta.namespace, meta.name)
    server_fields: dict[str, Any] = {
        "uid": uid,
        "resource_version": str(revision),
        "creation_timestamp": meta.creation_timestamp or CREATED,
        **fields,
    }
    return replace(obj, metadata=replace(meta, **server_fields))


# Inventory -----------------------------------------------------------------------------------------------------------


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


# Claims --------------------------------------------------------------------------------------------------------------


def make_request(
    name: str = "gpu",
    *,
    device_class: str = CLASS,
    count: int = 1,
    all_devices: bool = False,
    expressions: Iterable[str] = (),
    admin_access: bool | None = None,
    tolerations: Iterable[DeviceToleration] = (),
    **fields: Any,
) -> DeviceRequest:
    """An exact request, as stored: with its defaults. fields: any others of ExactDeviceRequest."""
    exactly = ExactDeviceRequest(
        device_class_name=device_class,
        selectors=make_selectors(expressions),
        allocation_mode="All" if all_devices else "ExactCount",
        count=0 if all_devices else count,
        admin_access=admin_access,
        tolerations=tuple(tolerations),
        **fields,
    )
    return DeviceRequest(name=name, exactly=exactly)


def make_alternatives(name: str, *alternatives: DeviceSubRequest) -> DeviceRequest:
    """A prioritized list: the first of the alternatives that fits."""
    return DeviceRequest(name=name, first_available=alternatives)


def make_alternative(
    name: str, *, device_class: str = CLASS, count: int = 1, expressions: Iterable[str] = (), **fields: Any
) -> DeviceSubRequest:
    return DeviceSubRequest(
        name=name,
        device_class_name=device_class,
        selectors=make_selectors(expressions),
        allocation_mode="ExactCount",
        count=count,
        **fields,
    )


def make_constraint(
    match: str | None = None, *, distinct: str | None = None, requests: Iterable[str] = ()
) -> DeviceConstraint:
    return DeviceConstraint(requests=tuple(requests), match_attribute=match, distinct_attribute=distinct)


def make_claim_config(
    parameters: Any, *, driver: str = DRIVER, requests: Iterable[str] = ()
) -> DeviceClaimConfiguration:
    return DeviceClaimConfiguration(requests=tuple(requests), opaque=make_opaque(parameters, driver))


def make_claim_spec(
    requests: Iterable[DeviceRequest] | None = None,
    *,
    constraints: Iterable[DeviceConstraint] = (),
    config: Iterable[DeviceClaimConfiguration] = (),
) -> ResourceClaimSpec:
    """One GPU unless `requests` says otherwise."""
    wanted = tuple((make_request(),) if requests is None else requests)
    return ResourceClaimSpec(devices=DeviceClaim(requests=wanted, constraints=tuple(constraints), config=tuple(config)))


def make_claim(
    name: str = "claim",
    *,
    namespace: str = NAMESPACE,
    requests: Iterable[DeviceRequest] | None = None,
    constraints: Iterable[DeviceConstraint] = (),
    config: Iterable[DeviceClaimConfiguration] = (),
    allocation: AllocationResult | None = None,
    reserved_for: Iterable[ResourceClaimConsumerReference] = (),
    **meta: Any,
) -> ResourceClaim:
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=make_meta(name, namespace, **meta),
        spec=make_claim_spec(requests, constraints=constraints, config=config),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=tuple(reserved_for)),
    )


def make_template(
    name: str = "template",
    *,
    namespace: str = NAMESPACE,
    requests: Iterable[DeviceRequest] | None = None,
    constraints: Iterable[DeviceConstraint] = (),
    config: Iterable[DeviceClaimConfiguration] = (),
    claim_meta: Mapping[str, Any] | None = None,
    **meta: Any,
) -> ResourceClaimTemplate:
    """claim_meta: the metadata that the claims get."""
    spec = make_claim_spec(requests, constraints=constraints, config=config)
    return ResourceClaimTemplate(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaimTemplate",
        metadata=make_meta(name, namespace, **meta),
        spec=ResourceClaimTemplateSpec(metadata=ObjectMeta(**(claim_meta or {})), spec=spec),
    )


def make_result(
    device: str = "gpu-0", *, request: str = "gpu", pool: str = "node-1", driver: str = DRIVER, **fields: Any
) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(request=request, driver=driver, pool=pool, device=device, **fields)


def make_allocation(
    *results: DeviceRequestAllocationResult,
    node: str | None = "node-1",
    config: Iterable[DeviceAllocationConfiguration] = (),
) -> AllocationResult:
    """Of gpu-0 on node-1 unless results are given; available on every node with `node=None`."""
    requirement = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node or "",))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(requirement,)),))
    return AllocationResult(
        devices=DeviceAllocationResult(results=results or (make_result(),), config=tuple(config)),
        node_selector=None if node is None else selector,
    )


def make_consumer(pod: Pod | str) -> ResourceClaimConsumerReference:
    """The reservation of a pod; of one in NAMESPACE when only its name is given."""
    if isinstance(pod, str):
        return ResourceClaimConsumerReference(resource="pods", name=pod, uid=make_uid("Pod", NAMESPACE, pod))
    return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


# Pods and namespaces -------------------------------------------------------------------------------------------------


def make_container(
    name: str = "main",
    *,
    claims: Iterable[str] = (),
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **fields: Any,
) -> Container:
    """claims: as the pod names them; "gpu/left" for one request of a claim. fields: any others of Container."""
    used = tuple(ContainerResourceClaim(name=one.partition("/")[0], request=one.partition("/")[2]) for one in claims)
    resources = ResourceRequirements(requests=dict(requests or {}), limits=dict(limits or {}), claims=used)
    return Container(name=name, image=fields.pop("image", "registry.example.com/app:1"), resources=resources, **fields)


def make_pod(
    name: str = "pod",
    *,
    namespace: str = NAMESPACE,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    containers: Iterable[Container] | None = None,
    node: str = "",
    meta: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of one container that uses all its claims.

    claims, templates: the pod's name of a claim -> the claim, or the template to make it from. node: where it is bound.
    meta: metadata fields; spec: any other fields of PodSpec.
    """
    entries = (
        *(PodResourceClaim(name=key, resource_claim_name=value) for key, value in (claims or {}).items()),
        *(PodResourceClaim(name=key, resource_claim_template_name=value) for key, value in (templates or {}).items()),
    )
    running = (make_container(claims=[entry.name for entry in entries]),) if containers is None else tuple(containers)
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=make_meta(name, namespace, **(meta or {})),
        spec=PodSpec(containers=running, resource_claims=entries, node_name=node, **spec),
    )


def make_namespace(name: str = NAMESPACE, **meta: Any) -> Namespace:
    return Namespace(api_version="v1", kind="Namespace", metadata=make_meta(name, **meta))
