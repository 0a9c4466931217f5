"""resource.k8s.io/v1 ResourceClaim and ResourceClaimTemplate: requests, allocations and what they hold. PURE.

A request asks for devices of a class, or lists alternatives (subrequests). An allocation records which devices were
given, and `status.reserved_for` who uses them. `pools_in_use` and `recorded_draw` say what an allocation holds of pools
and shared counters.

Source: k8s.io/api/resource/v1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, ClassVar, TypeVar

import msgspec

from inventory.kinds.devices import (
    CounterSet,
    DeviceConfiguration,
    DeviceCounterConsumption,
    DeviceSelector,
    DeviceToleration,
)
from inventory.kinds.named_resources import ResourceClaimParametersReference, ResourceHandle
from inventory.kinds.nodes import NodeSelector
from inventory.kinds.pools import PoolKey
from manciple.wire.base import (
    ApiObject,
    Condition,
    Int64,
    ObjectMeta,
    QuantityText,
    Raw,
    TimeText,
    Value,
    always,
    aside,
    pb,
)
from manciple.wire.quantity import Quantity

# What is asked for ----------------------------------------------------------------------------------------------------


PACKAGE = "io.k8s.api.resource.v1"
#: The allocation mode, in v1alpha2, of a claim that is allocated without a pod and kept while no pod uses it.
IMMEDIATE = "Immediate"
#: The maximum of reservations of a claim that names a ResourceClass, as Kubernetes 1.30 had it.
CLASSIC_RESERVATIONS_MAX = 32
#: resourceapi.Finalizer: the claim may not go while its devices are given out.
DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
#: Says for which entry of its pod's spec.resourceClaims a claim was made.
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
#: "true" says that the claim was made for the extended resources of the pod that controls it.
EXTENDED_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


class CapacityRequirements(Value):
    """How much of each capacity one device must give.

    requests: the least amounts, by the qualified name of the capacity.
    """

    requests: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}


class ExactDeviceRequest(Value):
    """Devices of one class.

    device_class_name: the DeviceClass that the devices belong to; required.
    selectors: all must hold, besides the class's; at most 32. allocation_mode: ExactCount (the default) or All.
    count: devices wanted with ExactCount; 1 by default. admin_access: also devices that others hold, for monitoring.
    """

    device_class_name: Annotated[str, pb(1)] = ""
    selectors: Annotated[tuple[DeviceSelector, ...], pb(2)] = ()
    allocation_mode: Annotated[str, pb(3)] = ""
    count: Annotated[Int64, pb(4)] = 0
    admin_access: Annotated[bool | None, pb(5)] = None
    tolerations: Annotated[tuple[DeviceToleration, ...], pb(6)] = ()
    capacity: Annotated[CapacityRequirements | None, pb(7)] = None


class DeviceSubRequest(Value):
    """One alternative of a prioritized list; otherwise as ExactDeviceRequest. Referred to as "request/subrequest".

    name: a DNS label, unique in the request. device_class_name: the DeviceClass that the devices belong to; required.
    allocation_mode: ExactCount (the default) or All. count: devices wanted with ExactCount; 1 by default.
    """

    name: Annotated[str, pb(1)] = ""
    device_class_name: Annotated[str, pb(2)] = ""
    selectors: Annotated[tuple[DeviceSelector, ...], pb(3)] = ()
    allocation_mode: Annotated[str, pb(4)] = ""
    count: Annotated[Int64, pb(5)] = 0
    tolerations: Annotated[tuple[DeviceToleration, ...], pb(6)] = ()
    capacity: Annotated[CapacityRequirements | None, pb(7)] = None


class DeviceRequest(Value):
    """One request of a claim: `exactly` this, or the first of up to 8 alternatives that fits.

    name: a DNS label, unique in the claim; constraints, configurations and containers refer to it.
    first_available: alternatives in the order of preference; the first that can be met is taken. At most 8.
    """

    name: Annotated[str, pb(1)] = ""
    exactly: Annotated[ExactDeviceRequest | None, pb(2)] = None
    first_available: Annotated[tuple[DeviceSubRequest, ...], pb(3)] = ()


def wants_admin_access(claim: ResourceClaim) -> bool:
    """Whether one of its requests asks for devices that others may hold."""
    return any(
        request.exactly is not None and bool(request.exactly.admin_access) for request in claim.spec.devices.requests
    )


def class_of(requests: tuple[DeviceRequest, ...], name: str) -> str:
    """The class that the request "NAME" or "NAME/SUBREQUEST" asks for; empty where `requests` has no such one."""
    main, _, sub = name.partition("/")
    found = next((request for request in requests if request.name == main), None)
    if found is None:
        return ""
    if found.exactly is not None:
        return found.exactly.device_class_name
    return next((one.device_class_name for one in found.first_available if one.name == sub), "")


class DeviceConstraint(Value):
    """What the devices of several requests must have in common, or must not.

    requests: the requests, or "request/subrequest", that it holds for; all of the claim when empty.
    match_attribute: all have this attribute with one value; distinct_attribute: no two have the same value.
    """

    requests: Annotated[tuple[str, ...], pb(1)] = ()
    match_attribute: Annotated[str | None, pb(2)] = None
    distinct_attribute: Annotated[str | None, pb(3)] = None


class DeviceClaimConfiguration(DeviceConfiguration):
    """A configuration for the devices of the named requests; of all when none is named.

    requests: the requests, or "request/subrequest", that it is for; all of the claim when empty.
    """

    EMBEDS: ClassVar = (DeviceConfiguration, 2)

    requests: Annotated[tuple[str, ...], pb(1)] = ()


class DeviceClaim(Value):
    """All that a claim asks for; at most 32 of each."""

    requests: Annotated[tuple[DeviceRequest, ...], pb(1)] = ()
    constraints: Annotated[tuple[DeviceConstraint, ...], pb(2)] = ()
    config: Annotated[tuple[DeviceClaimConfiguration, ...], pb(3)] = ()


# What was given -------------------------------------------------------------------------------------------------------


class DeviceRequestAllocationResult(Value):
    """One device, given for one request.

    request: "request" or "request/subrequest". driver, pool, device: together they name the device.
    admin_access: given for monitoring; others may hold the device.
    tolerations, binding_conditions, binding_failure_conditions, skip_node_operations: copies from the time of the
    allocation. share_id: a UUID that tells apart the allocations of a device with multiple ones.
    consumed_capacity: how much this allocation takes of each capacity; only with multiple allocations.
    """

    request: Annotated[str, pb(1)] = ""
    driver: Annotated[str, pb(2)] = ""
    pool: Annotated[str, pb(3)] = ""
    device: Annotated[str, pb(4)] = ""
    admin_access: Annotated[bool | None, pb(5)] = None
    tolerations: Annotated[tuple[DeviceToleration, ...], pb(6)] = ()
    binding_conditions: Annotated[tuple[str, ...], pb(7)] = ()
    binding_failure_conditions: Annotated[tuple[str, ...], pb(8)] = ()
    share_id: Annotated[str | None, pb(9)] = msgspec.field(default=None, name="shareID")
    consumed_capacity: Annotated[dict[str, QuantityText], pb(10, encoding="quantity")] = {}
    skip_node_operations: Annotated[tuple[str, ...], pb(11)] = ()


class DeviceAllocationConfiguration(DeviceConfiguration):
    """A configuration that applies to the named requests.

    source: FromClass or FromClaim. requests: those that it is for; all of the claim when empty.
    """

    EMBEDS: ClassVar = (DeviceConfiguration, 3)

    source: Annotated[str, pb(1)] = ""
    requests: Annotated[tuple[str, ...], pb(2)] = ()


class DeviceAllocationResult(Value):
    """The devices given and their configuration.

    results: at most 32. config: those of the classes first, then those of the claim; at most 64.
    """

    results: Annotated[tuple[DeviceRequestAllocationResult, ...], pb(1)] = ()
    config: Annotated[tuple[DeviceAllocationConfiguration, ...], pb(2)] = ()


class DrawnCounters(Value):
    """What an allocated device draws from its pool's shared counters. Copied when the device is allocated, because its
    driver may change what it publishes of the device, or publish it no more.

    driver, pool, device: as in the result. consumes: by counter set. counter_sets: the names of all that the pool had.
    counters: SET/COUNTER of all that these sets had. What the pool gets later may be one of these under another name.
    """

    driver: Annotated[str, pb(1)] = ""
    pool: Annotated[str, pb(2)] = ""
    device: Annotated[str, pb(3)] = ""
    consumes: Annotated[tuple[DeviceCounterConsumption, ...], pb(4)] = ()
    counter_sets: Annotated[tuple[str, ...], pb(5)] = ()
    counters: Annotated[tuple[str, ...], pb(6)] = ()


class AllocationResult(Value):
    """What was given, and where it is available.

    node_selector: the nodes on which the devices are available; every node without one.
    allocation_timestamp: when they were given.

    Kept aside, because Kubernetes has no place for it. drawn_counters: of each device given that draws from counters.

    Kept aside for claims that a driver's controller allocates (`claims.classic`). controller_name: the driver that
    allocated, and has to deallocate; empty where the scheduler did. resource_handles: for the node plugins of drivers,
    one for each driver. shareable: several pods may use the claim at once.
    """

    devices: Annotated[DeviceAllocationResult, pb(1)] = DeviceAllocationResult()
    node_selector: Annotated[NodeSelector | None, pb(3)] = None
    allocation_timestamp: Annotated[TimeText | None, pb(5, encoding="time")] = None
    controller_name: str = aside("controllerName", "")
    resource_handles: tuple[ResourceHandle, ...] = aside("resourceHandles", ())
    shareable: bool = aside("shareable", False)
    drawn_counters: tuple[DrawnCounters, ...] = aside("drawnCounters", ())


class NetworkDeviceData(Value):
    """What a driver tells of a network device.

    interface_name: in the pod's network namespace. ips: in CIDR notation; at most 16.
    hardware_address: such as a MAC address.
    """

    interface_name: Annotated[str, pb(1)] = ""
    ips: Annotated[tuple[str, ...], pb(2)] = ()
    hardware_address: Annotated[str, pb(3)] = ""


#: Type of a condition of an allocated device by which a driver of ours says whether anything uses it (docs/drivers.md).
IDLE_CONDITION = "manciple.dev/Idle"


class AllocatedDeviceStatus(Value):
    """A driver's report on one allocated device.

    driver, pool, device, share_id: together they name the allocation. conditions: as the driver sees them; at most 8.
    data: any JSON object, at most 10 KiB.
    """

    driver: Annotated[str, pb(1)] = ""
    pool: Annotated[str, pb(2)] = ""
    device: Annotated[str, pb(3)] = ""
    share_id: Annotated[str | None, pb(7)] = msgspec.field(default=None, name="shareID")
    conditions: Annotated[tuple[Condition, ...], pb(4, list_keys="type")] = ()
    data: Annotated[Raw, pb(5, encoding="raw")] = None
    network_data: Annotated[NetworkDeviceData | None, pb(6)] = None


# Claims and templates -------------------------------------------------------------------------------------------------


class ResourceClaimConsumerReference(Value):
    """Who may use the claim: an object of the claim's namespace.

    api_group: the group of the object's kind; empty for core. resource: the plural of its kind, such as "pods".
    name: of the object. uid: of the object; one of the same name made later is another.
    """

    api_group: Annotated[str, pb(1)] = ""
    resource: Annotated[str, pb(3)] = ""
    name: Annotated[str, pb(4)] = ""
    uid: Annotated[str, pb(5)] = ""

    @property
    def full_resource(self) -> str:
        """As kubectl names it: "pods", "jobs.batch"."""
        return f"{self.resource}.{self.api_group}" if self.api_group else self.resource

    @property
    def is_pod(self) -> bool:
        return self.full_resource == "pods"

    @property
    def title(self) -> str:
        """A pod by its name, anything else with what it is: "jobs.batch train"."""
        return self.name if self.is_pod else f"{self.full_resource} {self.name}"


class ResourceClaimSpec(Value):
    """What is asked for. Immutable.

    Kept aside for claims that a driver's controller allocates (`claims.classic`). controller_name: the driver, in the
    later form. resource_class_name, parameters_ref and allocation_mode: the whole spec, in the form of v1alpha2.
    """

    devices: Annotated[DeviceClaim, pb(1)] = DeviceClaim()
    controller_name: str = aside("controllerName", "")
    resource_class_name: str = aside("resourceClassName", "")
    parameters_ref: ResourceClaimParametersReference | None = aside("parametersRef", None)
    allocation_mode: str = aside("allocationMode", "")


class ResourceClaimStatus(Value):
    """What was given, who may use it, and what the drivers report about it.

    reserved_for: who may use the devices; at most 256. An allocated claim that is reserved for nobody is deallocated.

    Kept aside for claims that a driver's controller allocates (`claims.classic`). deallocation_requested: that driver
    is to deallocate; until then nobody else may use the claim. driver_name: what v1alpha2 says of the driver while
    there is no allocation; with one it is the allocation's controller_name.
    """

    allocation: Annotated[AllocationResult | None, pb(1)] = None
    reserved_for: Annotated[tuple[ResourceClaimConsumerReference, ...], pb(2, merge_key="uid")] = ()
    devices: Annotated[tuple[AllocatedDeviceStatus, ...], pb(4, list_keys="driver,device,pool,shareID")] = ()
    deallocation_requested: bool = aside("deallocationRequested", False)
    driver_name: str = aside("driverName", "")


class ResourceClaim(ApiObject):
    """A request for devices, and once it is allocated, the devices. Namespaced."""

    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())
    status: Annotated[ResourceClaimStatus, pb(3)] = ResourceClaimStatus()


def names_controller(claim: ResourceClaim) -> bool:
    """Whether a driver's controller may allocate the claim: it names the controller, or a resource class."""
    return bool(claim.spec.resource_class_name or claim.spec.controller_name)


def is_allocated_by_controller(claim: ResourceClaim) -> bool:
    """Whether only a driver's controller may deallocate it. The scheduler's allocations have our finalizer."""
    allocation = claim.status.allocation
    if allocation is None or not allocation.controller_name:
        return False
    return DELETE_PROTECTION not in claim.metadata.finalizers


class ResourceClaimTemplateSpec(Value):
    """The claim to be made.

    metadata: labels and annotations of the claims; nothing else of it is taken over.
    """

    metadata: Annotated[ObjectMeta, pb(1)] = ObjectMeta()
    spec: Annotated[ResourceClaimSpec, pb(2)] = always(ResourceClaimSpec())


class ResourceClaimTemplate(ApiObject):
    """The template from which each pod that names it gets a claim of its own. Immutable; namespaced."""

    spec: Annotated[ResourceClaimTemplateSpec, pb(2)] = always(ResourceClaimTemplateSpec())


# The pools of an allocation's devices ---------------------------------------------------------------------------------

# A result names a driver, a pool and a device. Pools of several nodes may share that name (`inventory.kinds.pools`), so
# the node comes from the allocation's node selector: the allocator writes one that selects a single node for every
# device of a node. Everything that counts devices as in use calls `pools_in_use`.


def node_of(allocation: AllocationResult) -> str:
    """The single node that the allocation's node selector names; "" if it names none or several."""
    selector = allocation.node_selector
    if selector is None or len(selector.node_selector_terms) != 1:
        return ""
    for field in selector.node_selector_terms[0].match_fields:
        if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
            return field.values[0]
    return ""


def pools_in_use(driver: str, pool: str, node: str, published: Collection[str]) -> tuple[PoolKey, ...]:
    """The pools in which a device allocated on `node` is in use.

    published: the nodes whose slices name this driver and pool, "" for slices of no single node. It is one pool, except
    where the result is ambiguous; then the device is in use in each pool that it may belong to, so that it is never
    given twice:
        node "node-1"  pools of node-1 and of no single node share the name
        node ""        a person or an old version wrote the allocation, or the pool is of no single node
    """
    possible = [one for one in (node, "") if one in published] if node else list(published)
    return tuple(PoolKey(driver, pool, one) for one in possible or (node,))


def pools_allocated_from(driver: str, pool: str, node: str, published: Collection[str]) -> tuple[PoolKey, ...]:
    """The pools from which a new allocation takes the device: for a node, the node's own pool if it has one.

    A device that is in use in one of these pools cannot be allocated.
    """
    found = pools_in_use(driver, pool, node, published)
    return found[:1] if node else found


# What an allocation's devices draw from shared counters ---------------------------------------------------------------

# A driver may stop publishing an allocated device, or publish it with other counters. Until the device is deallocated,
# it draws what it drew when it was allocated (`DrawnCounters`), or what is published of it if that is more.


Key = TypeVar("Key")


def recorded_draw(
    drawn: DrawnCounters, published: Mapping[str, Collection[str]], *, device_is_published: bool
) -> dict[tuple[str, str], int]:
    """(counter set, counter) -> nanos. published: the counter sets that the pool has now, with the names of their
    counters.

    A counter set or counter that is gone may be any that was added since, unless the device is still published. For
    counters this needs the record of those that there were, which earlier versions did not write.
    """
    counters_recorded = bool(drawn.counters) and not device_is_published
    came = [] if device_is_published else [name for name in published if name not in drawn.counter_sets]
    found: dict[tuple[str, str], int] = {}
    for one in drawn.consumes:
        for name in (one.counter_set,) if one.counter_set in published else came:
            added = [
                counter
                for counter in published[name]
                if counters_recorded and f"{one.counter_set}/{counter}" not in drawn.counters
            ]
            for counter, amount in one.counters.items():
                for charged in (counter,) if counter in published[name] else added:
                    found[name, charged] = found.get((name, charged), 0) + Quantity.parse(amount.value).nanos
    return found


def names_of_counters(counter_sets: Iterable[CounterSet]) -> dict[str, tuple[str, ...]]:
    """`counter_sets` and `counters` of a `DrawnCounters`, in a pool with these sets."""
    known = {one.name: one.counters for one in counter_sets}
    counters = (f"{name}/{counter}" for name in known for counter in known[name])
    return {"counter_sets": tuple(sorted(known)), "counters": tuple(sorted(counters))}


def highest(drawn: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    """Of each counter, the highest of the amounts."""
    found: dict[Key, int] = {}
    for one in drawn:
        for key, nanos in one.items():
            found[key] = max(nanos, found.get(key, 0))
    return found
