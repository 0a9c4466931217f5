"""resource.k8s.io/v1 ResourceClaim and ResourceClaimTemplate: their values, defaults and validation. PURE.

A request asks for devices of a class, or lists alternatives (subrequests). An allocation records the devices that were
given, and `status.reserved_for` their users. `pools_in_use` and `recorded_draw` say what an allocation holds of pools
and shared counters.

Sources: k8s.io/api/resource/v1; pkg/apis/resource/v1/defaults.go, pkg/apis/resource/validation/validation.go and
pkg/registry/resource/resourceclaim/strategy.go of Kubernetes 1.36.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from inventory.kinds.device_rules import (
    CONFIGURATIONS_MAX,
    PARAMETERS_MAX,
    ExpressionBudget,
    expressions_of,
    validate_binding_conditions,
    validate_configuration,
    validate_device_class_name,
    validate_device_name,
    validate_driver_name,
    validate_fully_qualified_name,
    validate_pool_name,
    validate_qualified_name,
    validate_quantity,
    validate_raw,
    validate_selectors,
    validate_skipped_operations,
    validate_tolerations,
    validate_uid,
)
from inventory.kinds.devices import (
    CounterSet,
    DeviceConfiguration,
    DeviceCounterConsumption,
    DeviceSelector,
    DeviceToleration,
)
from inventory.kinds.gates import GatedFields, without_disabled
from inventory.kinds.named_resources import ResourceClaimParametersReference, ResourceHandle
from inventory.kinds.node_rules import validate_node_selector
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
    status_metadata,
)
from manciple.wire.errors import FieldError, forbidden, immutable, invalid, not_supported, required, too_long, too_many
from manciple.wire.quantity import Quantity, read_quantity
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_dns_label,
    each,
    validate_annotations,
    validate_conditions,
    validate_immutable,
    validate_labels,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

# Requests -------------------------------------------------------------------------------------------------------------


PACKAGE = "io.k8s.api.resource.v1"
#: resourceapi.Finalizer: the claim must not disappear while it is allocated.
#: The allocation mode, in v1alpha2, of a claim that is allocated without a pod and kept while no pod uses it.
IMMEDIATE = "Immediate"
#: The maximum of reservations of a claim that names a ResourceClass, as Kubernetes 1.30 had it.
CLASSIC_RESERVATIONS_MAX = 32
#: resourceapi.Finalizer: the claim may not go while its devices are given out.
DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
#: The entry of its pod's spec.resourceClaims for which a claim was generated.
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
#: "true" if the claim was generated for the extended resources of the pod that controls it.
EXTENDED_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


class CapacityRequirements(Value):
    """How much of each capacity one device must give. requests: minimum amounts by the capacity's qualified name."""

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
    """Whether a request of the claim asks for devices that other claims may hold."""
    return any(
        request.exactly is not None and bool(request.exactly.admin_access) for request in claim.spec.devices.requests
    )


def class_of(requests: tuple[DeviceRequest, ...], name: str) -> str:
    """The class that the request "NAME" or "NAME/SUBREQUEST" asks for; "" if `requests` has no such request."""
    main, _, sub = name.partition("/")
    request = next((request for request in requests if request.name == main), None)
    if request is None:
        return ""
    if request.exactly is not None:
        return request.exactly.device_class_name
    return next((choice.device_class_name for choice in request.first_available if choice.name == sub), "")


class DeviceConstraint(Value):
    """An attribute that the devices of several requests must share, or must not.

    requests: the requests, or "request/subrequest", that it applies to; all of the claim if empty.
    match_attribute: all devices have the same value of it. distinct_attribute: no two devices have the same value.
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


# Allocations ----------------------------------------------------------------------------------------------------------


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


#: Type of the condition of an allocated device by which a driver of ours reports its use (docs/how-to/drivers.md).
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
    """The requests. Immutable.

    Kept aside for claims that a driver's controller allocates (`claims.classic`). controller_name: the driver, in the
    later form. resource_class_name, parameters_ref and allocation_mode: the whole spec, in the form of v1alpha2.
    """

    devices: Annotated[DeviceClaim, pb(1)] = DeviceClaim()
    controller_name: str = aside("controllerName", "")
    resource_class_name: str = aside("resourceClassName", "")
    parameters_ref: ResourceClaimParametersReference | None = aside("parametersRef", None)
    allocation_mode: str = aside("allocationMode", "")


class ResourceClaimStatus(Value):
    """The allocation, its users, and what the drivers report about the devices.

    reserved_for: the users; at most 256. An allocated claim without any is deallocated.

    Kept aside for claims that a driver's controller allocates (`claims.classic`). deallocation_requested: that driver
    is to deallocate; until then the claim takes no new users. driver_name: the driver in v1alpha2 while there is no
    allocation; with one it is the allocation's controller_name.
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
    """The claim to generate. metadata: labels and annotations of the claims; nothing else of it is used."""

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
    nodes = [name for name in (node, "") if name in published] if node else list(published)
    return tuple(PoolKey(driver, pool, name) for name in nodes or (node,))


def pools_allocated_from(driver: str, pool: str, node: str, published: Collection[str]) -> tuple[PoolKey, ...]:
    """The pools from which a new allocation takes the device: for a node, the node's own pool if it has one.

    A device that is in use in one of these pools cannot be allocated.
    """
    pools = pools_in_use(driver, pool, node, published)
    return pools[:1] if node else pools


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
    """The highest amount of each counter."""
    maxima: dict[Key, int] = {}
    for amounts in drawn:
        for key, nanos in amounts.items():
            maxima[key] = max(nanos, maxima.get(key, 0))
    return maxima


# How claims are stored ------------------------------------------------------------------------------------------------


#: When a claim of a ResourceClass is allocated (v1alpha2.AllocationModeWaitForFirstConsumer).
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"

Request = TypeVar("Request", ExactDeviceRequest, DeviceSubRequest)


def with_defaults(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """Fill in count and mode of requests, operators of tolerations, and the allocation mode."""
    requests = tuple(
        replace(
            request,
            exactly=None if request.exactly is None else _counted(request.exactly),
            first_available=tuple(map(_counted, request.first_available)),
        )
        for request in spec.devices.requests
    )
    mode = spec.allocation_mode or (WAIT_FOR_FIRST_CONSUMER if spec.resource_class_name else "")
    return replace(spec, devices=replace(spec.devices, requests=requests), allocation_mode=mode)


def _counted(request: Request) -> Request:
    mode = request.allocation_mode or "ExactCount"
    count = request.count or (1 if mode == "ExactCount" else 0)
    tolerations = tuple(one if one.operator else replace(one, operator="Equal") for one in request.tolerations)
    return replace(request, allocation_mode=mode, count=count, tolerations=tolerations)


def create_claim(new: ResourceClaim) -> ResourceClaim:
    """With defaults and an empty status."""
    new = without_disabled(new, None, OF_CLAIMS)
    return replace(new, spec=with_defaults(new.spec), status=ResourceClaimStatus())


def update_claim(new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
    new = without_disabled(new, old, OF_CLAIMS)
    return replace(new, spec=with_defaults(new.spec), status=old.status)


def update_claim_status(new: ResourceClaim, old: ResourceClaim) -> ResourceClaim:
    """Keep spec and metadata, and drop the drivers' reports once the claim is deallocated."""
    deallocated = old.status.allocation is not None and new.status.allocation is None
    status = replace(new.status, devices=()) if deallocated else new.status
    status = without_disabled(status, old, OF_CLAIMS)
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=status)


def create_template(new: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return _template_with_defaults(without_disabled(new, None, OF_CLAIMS))


def update_template(new: ResourceClaimTemplate, old: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return _template_with_defaults(without_disabled(new, old, OF_CLAIMS))


def _template_with_defaults(new: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return replace(new, spec=replace(new.spec, spec=with_defaults(new.spec.spec)))


#: Fields of claims and templates that are dropped while their feature is off (upstream: dropDisabledFields).
OF_CLAIMS: GatedFields = {
    "DRAPrioritizedList": {DeviceRequest: ("first_available",)},
    "DRAConsumableCapacity": {
        ExactDeviceRequest: ("capacity",),
        DeviceSubRequest: ("capacity",),
        DeviceConstraint: ("distinct_attribute",),
        DeviceRequestAllocationResult: ("share_id", "consumed_capacity"),
        AllocatedDeviceStatus: ("share_id",),
    },
    "DRADeviceBindingConditions": {
        DeviceRequestAllocationResult: ("binding_conditions", "binding_failure_conditions"),
        AllocationResult: ("allocation_timestamp",),
    },
    "DRAResourceClaimDeviceStatus": {ResourceClaimStatus: ("devices",)},
}


# Rules of requests ----------------------------------------------------------------------------------------------------


REQUESTS_MAX = 32
CONSTRAINTS_MAX = 32
ALTERNATIVES_MAX = 8

ALLOCATION_MODES = ("All", "ExactCount")

_REFERENCE_RULE = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_ALTERNATIVES_RULE = "exactly one of `exactly` or `firstAvailable` is required"

Errors = list[FieldError]
#: Request name -> the names of its alternatives; empty for a request without any.
RequestNames = Mapping[str, frozenset[str]]


def gather_request_names(claim: DeviceClaim) -> RequestNames:
    return {
        request.name: frozenset(alternative.name for alternative in request.first_available)
        for request in claim.requests
    }


def validate_device_claim(claim: DeviceClaim, path: Path) -> Errors:
    request_names = gather_request_names(claim)

    def validate_constraint(constraint: DeviceConstraint, at: Path) -> Errors:
        return _validate_constraint(constraint, at, request_names)

    def validate_config(config: DeviceClaimConfiguration, at: Path) -> Errors:
        found = validate_request_references(config.requests, at.child("requests"), request_names)
        return found + validate_configuration(config, at)

    choices = (choice for request in claim.requests for choice in (request.exactly, *request.first_available))
    expressions = (text for choice in choices if choice is not None for text in expressions_of(choice.selectors))
    budget = ExpressionBudget(expressions, path.child("requests"))

    def validate_request(request: DeviceRequest, at: Path) -> Errors:
        return _validate_request(request, at, budget)

    found = [
        *budget.errors,
        *validate_set(
            claim.requests,
            path.child("requests"),
            validate_request,
            key=lambda request: request.name,
            maximum=REQUESTS_MAX,
        ),
    ]
    if claim.constraints:
        at = path.child("constraints")
        found += validate_list(claim.constraints, at, validate_constraint, maximum=CONSTRAINTS_MAX)
    if claim.config:
        found += validate_list(claim.config, path.child("config"), validate_config, maximum=CONFIGURATIONS_MAX)
    return found


def validate_request_name(name: str, path: Path) -> Errors:
    return each(check_dns_label(name), path, name)


def _validate_request(request: DeviceRequest, path: Path, budget: ExpressionBudget) -> Errors:
    def validate_alternative(alternative: DeviceSubRequest, at: Path) -> Errors:
        return validate_request_name(alternative.name, at.child("name")) + _validate_request_fields(
            alternative, at, budget
        )

    found = validate_request_name(request.name, path.child("name"))
    if request.exactly is not None and request.first_available:
        found.append(invalid(path, None, f"{_ALTERNATIVES_RULE}, but multiple fields are set"))
    elif request.exactly is not None:
        found += _validate_request_fields(request.exactly, path.child("exactly"), budget)
    elif request.first_available:
        found += validate_set(
            request.first_available,
            path.child("firstAvailable"),
            validate_alternative,
            key=lambda alternative: alternative.name,
            maximum=ALTERNATIVES_MAX,
        )
    else:
        found.append(required(path, _ALTERNATIVES_RULE))
    return found


def _validate_request_fields(
    request: ExactDeviceRequest | DeviceSubRequest, path: Path, budget: ExpressionBudget
) -> Errors:
    return [
        *validate_device_class_name(request.device_class_name, path.child("deviceClassName")),
        *validate_selectors(request.selectors, path.child("selectors"), budget=budget),
        *_validate_count(request, path),
        *(validate_tolerations(request.tolerations, path.child("tolerations")) if request.tolerations else ()),
        *(_validate_capacity(request.capacity, path.child("capacity")) if request.capacity is not None else ()),
    ]


def _validate_count(request: ExactDeviceRequest | DeviceSubRequest, path: Path) -> Errors:
    mode, count = request.allocation_mode, request.count
    if mode not in ALLOCATION_MODES:
        return [not_supported(path.child("allocationMode"), mode, ALLOCATION_MODES)]
    if mode == "All" and count != 0:
        return [invalid(path.child("count"), count, "must not be specified when allocationMode is 'All'")]
    if mode == "ExactCount" and count <= 0:
        return [invalid(path.child("count"), count, "must be greater than zero")]
    return []


def _validate_capacity(capacity: CapacityRequirements, path: Path) -> Errors:
    found: Errors = []
    at = path.child("requests")
    for name, text in capacity.requests.items():
        amount, wrong = read_quantity(text, at.key(name))
        found += validate_qualified_name(name, at) + wrong
        if amount is not None and amount.sign < 0:
            found.append(invalid(at.key(name), text, "must be greater than or equal to 0"))
    return found


def _validate_constraint(constraint: DeviceConstraint, path: Path, request_names: RequestNames) -> Errors:
    found = validate_request_references(constraint.requests, path.child("requests"), request_names)
    match, distinct = constraint.match_attribute, constraint.distinct_attribute
    if match is not None and distinct is not None:
        return [*found, invalid(path, None, 'exactly one of "matchAttribute" or "distinctAttribute" is required')]
    if match is not None:
        return found + validate_fully_qualified_name(match, path.child("matchAttribute"))
    if distinct is not None:
        return found + validate_fully_qualified_name(distinct, path.child("distinctAttribute"))
    return [*found, required(path, 'exactly one of "matchAttribute" or "distinctAttribute" is required')]


def validate_request_references(references: Sequence[str], path: Path, request_names: RequestNames) -> Errors:
    """Each names a request of the claim, or one of its alternatives as "request/alternative"; none twice."""

    def validate_reference(reference: str, at: Path) -> Errors:
        return validate_request_reference(reference, at, request_names)

    return validate_set(references, path, validate_reference, key=str, maximum=REQUESTS_MAX)


def validate_request_reference(reference: str, path: Path, request_names: RequestNames) -> Errors:
    segments = reference.split("/")
    if len(segments) > 2:  # noqa: PLR2004 - a request and an alternative
        return [invalid(path, reference, _REFERENCE_RULE)]
    found = [error for segment in segments for error in validate_request_name(segment, path)]
    alternatives = request_names.get(segments[0])
    if alternatives is None or not alternatives.issuperset(segments[1:]):
        found.append(invalid(path, reference, _REFERENCE_RULE))
    return found


# Rules of claims and templates ----------------------------------------------------------------------------------------


#: resourceapi.ResourceClaimReservedForMaxSize
RESERVATIONS_MAX = 256
RESULTS_MAX = 32
#: Of one device, as its driver reports them.
CONDITIONS_MAX = 8
INTERFACE_NAME_MAX = 256
HARDWARE_ADDRESS_MAX = 128
ADDRESSES_MAX = 16

CONFIGURATION_SOURCES = ("FromClaim", "FromClass")


def validate_claim(claim: ResourceClaim) -> Errors:
    found = validate_object_meta(claim.metadata, namespaced=True)
    found += validate_controller(claim.spec.controller_name, SPEC)
    return found + validate_device_claim(claim.spec.devices, SPEC.child("devices"))


def validate_claim_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    return found + validate_immutable(new.spec, old.spec, SPEC)


def validate_template(template: ResourceClaimTemplate) -> Errors:
    return validate_object_meta(template.metadata, namespaced=True) + _validate_template_spec(template.spec)


def _validate_template_spec(spec: ResourceClaimTemplateSpec) -> Errors:
    found = validate_template_meta(spec.metadata, SPEC.child("metadata"))
    found += validate_controller(spec.spec.controller_name, SPEC.child("spec"))
    return found + validate_device_claim(spec.spec.devices, SPEC.child("spec", "devices"))


def validate_template_meta(metadata: ObjectMeta, path: Path) -> Errors:
    """The metadata in a template: labels and annotations only.

    Upstream: ValidateTemplateObjectMeta, with the names that it gives the fields.
    """
    found = validate_annotations(metadata.annotations, path.child("annotations"))
    found += validate_labels(metadata.labels, path.child("labels"))
    unset = ObjectMeta()
    for name, shown in zip(ObjectMeta.__struct_fields__, ObjectMeta.__struct_encode_fields__, strict=True):
        if name not in ("labels", "annotations") and getattr(metadata, name) != getattr(unset, name):
            found.append(forbidden(path.child("uID" if name == "uid" else shown), "cannot be set"))
    return found


def validate_template_update(new: ResourceClaimTemplate, old: ResourceClaimTemplate) -> Errors:
    """The spec is immutable. If it changes, its own errors are reported as well."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    if new.spec != old.spec:
        found += _validate_template_spec(new.spec)
    return found + validate_immutable(new.spec, old.spec, SPEC)


# Rules of the status --------------------------------------------------------------------------------------------------


def validate_claim_status_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    """An allocation is immutable, and only an allocated claim can be reserved."""
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += validate_set(
        new.status.reserved_for,
        STATUS.child("reservedFor"),
        _validate_consumer,
        key=lambda consumer: consumer.uid,
        maximum=RESERVATIONS_MAX,
    )
    found += _validate_device_statuses(new.status)
    found += _validate_reservations(new, old) + validate_deallocation(new.status, old.status)
    path, allocation = STATUS.child("allocation"), new.status.allocation
    if allocation is None:
        return found
    if old.status.allocation is None:
        return found + _validate_allocation(allocation, path, gather_request_names(new.spec.devices))
    return found if allocation == old.status.allocation else [*found, immutable(path, allocation)]


def _validate_consumer(consumer: ResourceClaimConsumerReference, path: Path) -> Errors:
    parts = {"resource": consumer.resource, "name": consumer.name, "uid": consumer.uid}
    return [required(path.child(name)) for name, value in parts.items() if not value]


def _validate_reservations(new: ResourceClaim, old: ResourceClaim) -> Errors:
    path = STATUS.child("reservedFor")
    if not new.status.reserved_for:
        return []
    if new.status.allocation is None:
        return [forbidden(path, "may not be specified when `allocated` is not set")]
    if new.spec.resource_class_name and not new.status.allocation.shareable and len(new.status.reserved_for) > 1:
        return [forbidden(path, "may not be reserved more than once")]
    ends = old.metadata.deletion_timestamp is not None or new.status.deallocation_requested
    if ends and any(consumer not in old.status.reserved_for for consumer in new.status.reserved_for):
        message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        return [forbidden(path, message)]
    return []


def _validate_allocation(allocation: AllocationResult, path: Path, request_names: RequestNames) -> Errors:
    def validate_result(result: DeviceRequestAllocationResult, at: Path) -> Errors:
        return _validate_result(result, at, request_names)

    def validate_config(config: DeviceAllocationConfiguration, at: Path) -> Errors:
        return _validate_allocated_configuration(config, at, request_names)

    devices = path.child("devices")
    both_sources = 2 * CONFIGURATIONS_MAX
    found = validate_list(allocation.devices.results, devices.child("results"), validate_result, maximum=RESULTS_MAX)
    found += validate_list(allocation.devices.config, devices.child("config"), validate_config, maximum=both_sources)
    if allocation.node_selector is not None:
        found += validate_node_selector(allocation.node_selector, path.child("nodeSelector"))
    return found + validate_controller(allocation.controller_name, path)


def _validate_result(result: DeviceRequestAllocationResult, path: Path, request_names: RequestNames) -> Errors:
    found = validate_request_reference(result.request, path.child("request"), request_names)
    found += _validate_device_identity(result, path)
    found += validate_binding_conditions(result.binding_conditions, result.binding_failure_conditions, path)
    found += validate_tolerations(result.tolerations, path.child("tolerations"))
    for name, text in result.consumed_capacity.items():
        found += validate_quantity(text, path.child("consumedCapacity").key(name))
    return found + validate_skipped_operations(result.skip_node_operations, path.child("skipNodeOperations"))


def _validate_device_identity(device: DeviceRequestAllocationResult | AllocatedDeviceStatus, path: Path) -> Errors:
    return [
        *validate_driver_name(device.driver, path.child("driver")),
        *validate_pool_name(device.pool, path.child("pool")),
        *validate_device_name(device.device, path.child("device")),
        *([] if device.share_id is None else validate_uid(device.share_id, path.child("shareID"))),
    ]


def _validate_allocated_configuration(
    config: DeviceAllocationConfiguration, path: Path, request_names: RequestNames
) -> Errors:
    found: Errors = []
    if not config.source:
        found.append(required(path.child("source")))
    elif config.source not in CONFIGURATION_SOURCES:
        found.append(not_supported(path.child("source"), config.source, CONFIGURATION_SOURCES))
    found += validate_request_references(config.requests, path.child("requests"), request_names)
    return found + validate_configuration(config, path)


# Rules of drivers' reports --------------------------------------------------------------------------------------------

_DeviceKey = tuple[str, str, str, str | None]


def _device_key(device: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> _DeviceKey:
    return device.driver, device.pool, device.device, device.share_id


def _shown_device(device: AllocatedDeviceStatus) -> str:
    return "/".join(part for part in _device_key(device) if part)


def _validate_device_statuses(status: ResourceClaimStatus) -> Errors:
    results = status.allocation.devices.results if status.allocation is not None else ()
    allocated = {_device_key(result) for result in results}

    def validate_device(device: AllocatedDeviceStatus, path: Path) -> Errors:
        found = _validate_device_identity(device, path)
        if _device_key(device) not in allocated:
            found.append(invalid(path, _shown_device(device), "must be an allocated device in the claim"))
        return found + _validate_report(device, path)

    return validate_set(status.devices, STATUS.child("devices"), validate_device, key=_device_key, shown=_shown_device)


def _validate_report(device: AllocatedDeviceStatus, path: Path) -> Errors:
    found = validate_conditions(device.conditions, path.child("conditions"))
    if len(device.conditions) > CONDITIONS_MAX:
        found.append(too_many(path.child("conditions"), len(device.conditions), CONDITIONS_MAX))
    if device.data is not None:
        found += validate_raw(device.data, path.child("data"), maximum=PARAMETERS_MAX)
    return found + _validate_network(device.network_data, path.child("networkData"))


def _validate_network(network: NetworkDeviceData | None, path: Path) -> Errors:
    if network is None:
        return []
    limits: tuple[tuple[str, str, int], ...] = (
        ("interfaceName", network.interface_name, INTERFACE_NAME_MAX),
        ("hardwareAddress", network.hardware_address, HARDWARE_ADDRESS_MAX),
    )
    found = [too_long(path.child(name), limit) for name, text, limit in limits if len(text.encode()) > limit]
    check: Callable[[str, Path], Errors] = _validate_interface_address
    return found + validate_set(network.ips, path.child("ips"), check, key=str, maximum=ADDRESSES_MAX)


def _validate_interface_address(address: str, path: Path) -> Errors:
    """An address with the length of its network, in canonical form: "192.0.2.1/24"."""
    try:
        parsed = ipaddress.ip_interface(address)
    except ValueError:
        parsed = None
    if parsed is None or "/" not in address:
        message = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [invalid(path, address, message)]
    if str(parsed) != address:
        return [invalid(path, address, f'must be in canonical form ("{parsed}")')]
    return []


# Rules of claims that drivers' controllers allocate -------------------------------------------------------------------


class Deallocated(Protocol):
    """The status of a claim, as it is stored or as v1alpha2 has it."""

    @property
    def deallocation_requested(self) -> bool: ...
    @property
    def reserved_for(self) -> tuple[object, ...]: ...
    @property
    def allocation(self) -> object | None: ...


def validate_controller(name: str, path: Path) -> Errors:
    return validate_driver_name(name, path.child("controllerName")) if name else []


def validate_deallocation(status: Deallocated, before: Deallocated) -> Errors:
    """A request for deallocation cannot be taken back: the driver may have begun."""
    path, found = STATUS.child("deallocationRequested"), []
    requested, was_requested = status.deallocation_requested, before.deallocation_requested
    if requested and not was_requested and status.reserved_for:
        found.append(forbidden(path, "deallocation cannot be requested while `reservedFor` is set"))
    if requested and status.allocation is None:
        found.append(forbidden(STATUS, "`allocation` must be set when `deallocationRequested` is set"))
    if was_requested and not requested and status.allocation is not None:
        found.append(forbidden(path, "may not be cleared when `allocation` is set"))
    return found
