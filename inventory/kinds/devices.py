"""What is said of devices: ResourceSlice, in which drivers publish them; DeviceClass, a named selection of them with
its configuration, which claims ask for; taints, which keep claims off them, and the DeviceTaintRule that adds one.

The slices of one driver, pool and generation together are the pool; it counts once as many slices have been seen as
each of them announces. Source: k8s.io/api/resource/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from inventory.kinds.named_resources import NamedResourcesResources
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import ApiObject, Condition, Int64, QuantityText, Raw, TimeText, Value, always, aside, pb

# Classes --------------------------------------------------------------------------------------------------------------


PACKAGE = "io.k8s.api.resource.v1"


class CELDeviceSelector(Value):
    """A CEL expression over one `device`.

    expression: true selects the device. At most 10 KiB, at a bounded cost. It sees device.driver,
    device.attributes[DOMAIN].NAME, device.capacity[DOMAIN].NAME and device.allowMultipleAllocations.
    """

    expression: Annotated[str, pb(1)] = ""


class DeviceSelector(Value):
    """One test of a device. Exactly one field is set."""

    cel: Annotated[CELDeviceSelector | None, pb(1)] = None


class OpaqueDeviceConfiguration(Value):
    """Parameters that only the named driver understands.

    driver: whose parameters these are. parameters: any JSON object, at most 10 KiB.
    """

    driver: Annotated[str, pb(1)] = ""
    parameters: Annotated[Raw, pb(2, encoding="raw")] = None


class DeviceConfiguration(Value):
    """What a driver is told when it prepares a device. Exactly one field is set."""

    opaque: Annotated[OpaqueDeviceConfiguration | None, pb(1)] = None


class DeviceClassConfiguration(DeviceConfiguration):
    """A configuration for every device that is claimed through the class."""

    EMBEDS: ClassVar = (DeviceConfiguration, 1)


class DeviceClassSpec(Value):
    """Which devices belong to the class, and how they are configured.

    selectors: all must hold; at most 32. config: passed to the drivers, ignored by the allocator; at most 32.
    extended_resource_name: the name by which containers may request these devices among their resources.

    Kept aside. suitable_nodes: the only nodes for pods whose claims a driver's controller has yet to allocate.
    """

    selectors: Annotated[tuple[DeviceSelector, ...], pb(1)] = ()
    config: Annotated[tuple[DeviceClassConfiguration, ...], pb(2)] = ()
    extended_resource_name: Annotated[str | None, pb(4)] = None
    suitable_nodes: NodeSelector | None = aside("suitableNodes", None)


class DeviceClass(ApiObject):
    """Devices that claims can request by name: selectors and configuration, set by an administrator. Cluster scoped."""

    spec: Annotated[DeviceClassSpec, pb(2)] = always(DeviceClassSpec())


# Taints ---------------------------------------------------------------------------------------------------------------

#: Effects of taints, on devices as on nodes, that keep away who does not tolerate them; others only inform.
HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
#: How the keys of taints end by which a driver says that a device is broken: ours, and those of NVIDIA's.
UNHEALTHY = frozenset({"unhealthy", "xid", "ecc", "gpu-lost"})


class DeviceTaint(Value):
    """A reason not to use a device. `effect`: None, NoSchedule or NoExecute; unknown ones count as None.

    key: a label name; value: a label value; time_added: set by the server when absent.
    """

    key: Annotated[str, pb(1)] = ""
    value: Annotated[str, pb(2)] = ""
    effect: Annotated[str, pb(3)] = ""
    time_added: Annotated[TimeText | None, pb(4, encoding="time")] = None


class DeviceToleration(Value):
    """What lets a request use a tainted device.

    key: of the taint; an empty one with Exists tolerates every taint. operator: Equal (the default) or Exists.
    value: of the taint, for Equal. effect: of the taint; an empty one stands for every effect.
    toleration_seconds: how long NoExecute is tolerated after the taint was added; without it forever, zero
    and below means not at all.
    """

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    value: Annotated[str, pb(3)] = ""
    effect: Annotated[str, pb(4)] = ""
    toleration_seconds: Annotated[Int64 | None, pb(5)] = None


def is_unhealthy(key: str) -> bool:
    """Whether a taint with this key tells of a broken device."""
    return key.rpartition("/")[2] in UNHEALTHY


class DeviceTaintSelector(Value):
    """Which devices a rule taints: every field that is set must match, so an empty selector matches every device.

    driver: of the device. pool: of the device. device: its name.
    """

    driver: Annotated[str | None, pb(2)] = None
    pool: Annotated[str | None, pb(3)] = None
    device: Annotated[str | None, pb(4)] = None


class DeviceTaintRuleSpec(Value):
    """One selector and the taint that it puts on the devices.

    device_selector: which devices; a rule without one taints none.
    """

    device_selector: Annotated[DeviceTaintSelector | None, pb(1)] = None
    taint: Annotated[DeviceTaint, pb(2)] = always(DeviceTaint())


class DeviceTaintRuleStatus(Value):
    """The progress of the eviction of pods, in condition `EvictionInProgress`."""

    conditions: Annotated[tuple[Condition, ...], pb(1, merge_key="type")] = ()


class DeviceTaintRule(ApiObject):
    """Taints every device that its selector names, for as long as the rule exists. Cluster scoped."""

    spec: Annotated[DeviceTaintRuleSpec, pb(2)] = always(DeviceTaintRuleSpec())
    status: Annotated[DeviceTaintRuleStatus, pb(3)] = DeviceTaintRuleStatus()


# Slices ---------------------------------------------------------------------------------------------------------------


class DeviceAttribute(Value):
    """A property of a device. Exactly one field is set.

    int_value: a number. bool_value: a boolean. string_value: a string of at most 64 bytes.
    version_value: a semantic version (semver.org 2.0.0) of at most 64 bytes.
    int_values: several numbers. bool_values: several booleans. string_values: several strings.
    version_values: several semantic versions.
    """

    int_value: Annotated[Int64 | None, pb(2)] = msgspec.field(default=None, name="int")
    bool_value: Annotated[bool | None, pb(3)] = msgspec.field(default=None, name="bool")
    string_value: Annotated[str | None, pb(4)] = msgspec.field(default=None, name="string")
    version_value: Annotated[str | None, pb(5)] = msgspec.field(default=None, name="version")
    int_values: Annotated[tuple[Int64, ...], pb(6)] = msgspec.field(default=(), name="ints")
    bool_values: Annotated[tuple[bool, ...], pb(7)] = msgspec.field(default=(), name="bools")
    string_values: Annotated[tuple[str, ...], pb(8)] = msgspec.field(default=(), name="strings")
    version_values: Annotated[tuple[str, ...], pb(9)] = msgspec.field(default=(), name="versions")


class CapacityRequestPolicyRange(Value):
    """Amounts in steps above a least one; requests round up.

    min: the least amount. max: the greatest; unbounded when absent. step: what lies between two amounts.
    """

    min: Annotated[QuantityText | None, pb(1, encoding="quantity")] = None
    max: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    step: Annotated[QuantityText | None, pb(3, encoding="quantity")] = None


class CapacityRequestPolicy(Value):
    """How a share of a capacity may be asked for: from a sorted list of values (at most 10), or from a range.

    default: what a request without an amount consumes. valid_values: the amounts, ascending; at most 10.
    """

    default: Annotated[QuantityText | None, pb(1, encoding="quantity")] = None
    valid_values: Annotated[tuple[QuantityText, ...], pb(3, encoding="quantity")] = ()
    valid_range: Annotated[CapacityRequestPolicyRange | None, pb(4)] = None


class DeviceCapacity(Value):
    """How much of something a device has. What is consumed is counted from the allocations, never written here.

    value: the amount.
    """

    value: Annotated[QuantityText, pb(1, encoding="quantity")] = always("0")
    request_policy: Annotated[CapacityRequestPolicy | None, pb(2)] = None


class Counter(Value):
    """An amount of a shared counter.

    value: the amount.
    """

    value: Annotated[QuantityText, pb(1, encoding="quantity")] = always("0")


class CounterSet(Value):
    """Counters that the devices of a pool draw from together; at most 32.

    name: a DNS label, unique in the pool. counters: by name.
    """

    name: Annotated[str, pb(1)] = ""
    counters: Annotated[dict[str, Counter], pb(2)] = {}


class DeviceCounterConsumption(Value):
    """What one device takes from one counter set while it is allocated.

    counter_set: the name of a counter set of the pool. counters: by name.
    """

    counter_set: Annotated[str, pb(1)] = ""
    counters: Annotated[dict[str, Counter], pb(2)] = {}


class NodeAllocatableMapping(Value):
    """How an allocation is itself an amount of a node's resource (a CPU driver's devices are CPUs).

    capacity_key: the capacity whose consumed amount counts. capacity_multiplier: what that amount is multiplied by.
    device_multiplier: what the number of devices is multiplied by, where no capacity is named.
    """

    capacity_key: Annotated[str | None, pb(1)] = None
    capacity_multiplier: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    device_multiplier: Annotated[QuantityText | None, pb(3, encoding="quantity")] = None


class NodeAllocatableOverhead(Value):
    """What using the device costs of a node's resource.

    per_pod: once for each pod. per_container: once for each container that names the claim.
    """

    per_pod: Annotated[QuantityText | None, pb(1, encoding="quantity")] = None
    per_container: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None


class NodeAllocatableResource(Value):
    """What an allocated device takes of one resource of its node. At least one field is set."""

    mapping: Annotated[NodeAllocatableMapping | None, pb(3)] = None
    overhead: Annotated[NodeAllocatableOverhead | None, pb(4)] = None


class NodeAllocatableResourceMapping(Value):
    """What Kubernetes 1.36 has in place of NodeAllocatableMapping.

    capacity_key: the capacity whose consumed amount counts; the number of devices does where it is left out.
    allocation_multiplier: what that is multiplied by; 1 unless given.
    """

    capacity_key: Annotated[str | None, pb(1)] = None
    allocation_multiplier: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None

    def as_resource(self) -> NodeAllocatableResource:
        """As 1.37 says the same."""
        multiplier = self.allocation_multiplier or "1"
        if self.capacity_key is None:
            return NodeAllocatableResource(mapping=NodeAllocatableMapping(device_multiplier=multiplier))
        mapping = NodeAllocatableMapping(capacity_key=self.capacity_key, capacity_multiplier=multiplier)
        return NodeAllocatableResource(mapping=mapping)


class Device(Value):
    """One device of a pool.

    name: a DNS label, unique in the pool. attributes and capacity: by qualified name; a name without a domain has the
    driver's; at most 32 together. node_name, node_selector, all_nodes: one is set when the slice says
    per_device_node_selection. binds_to_node: an allocation is good only on the node it was made for.
    binding_conditions: the claim's device conditions that must be True before the pod is bound; at most 4.
    binding_failure_conditions: those of which none may be True then; at most 4.
    allow_multiple_allocations: several requests may share the device by capacity.
    node_allocatable_resources: by the name of a node's resource ("cpu").
    node_allocatable_resource_mappings: what drivers built for Kubernetes 1.36 say instead.
    """

    name: Annotated[str, pb(1)] = ""
    attributes: Annotated[dict[str, DeviceAttribute], pb(2)] = {}
    capacity: Annotated[dict[str, DeviceCapacity], pb(3)] = {}
    consumes_counters: Annotated[tuple[DeviceCounterConsumption, ...], pb(4)] = ()
    node_name: Annotated[str | None, pb(5)] = None
    node_selector: Annotated[NodeSelector | None, pb(6)] = None
    all_nodes: Annotated[bool | None, pb(7)] = None
    taints: Annotated[tuple[DeviceTaint, ...], pb(8)] = ()
    binds_to_node: Annotated[bool | None, pb(9)] = None
    binding_conditions: Annotated[tuple[str, ...], pb(10)] = ()
    binding_failure_conditions: Annotated[tuple[str, ...], pb(11)] = ()
    allow_multiple_allocations: Annotated[bool | None, pb(12)] = None
    node_allocatable_resource_mappings: Annotated[dict[str, NodeAllocatableResourceMapping], pb(13)] = {}
    node_allocatable_resources: Annotated[dict[str, NodeAllocatableResource], pb(14)] = {}

    @property
    def taken_of_node(self) -> Mapping[str, NodeAllocatableResource]:
        """What an allocation takes of the node, in whichever way the driver says it."""
        if self.node_allocatable_resources or not self.node_allocatable_resource_mappings:
            return self.node_allocatable_resources
        return {name: one.as_resource() for name, one in self.node_allocatable_resource_mappings.items()}


class ResourcePool(Value):
    """The pool that a slice belongs to.

    name: such as the node's; unique for the driver.
    generation: raised by the driver with every change; only the slices of the highest count.
    resource_slice_count: how many slices of this generation make the pool complete.
    """

    name: Annotated[str, pb(1)] = ""
    generation: Annotated[Int64, pb(2)] = always(0)
    resource_slice_count: Annotated[Int64, pb(3)] = always(0)


class ResourceSliceSpec(Value):
    """The devices (at most 128) or the counter sets (at most 8) of one slice, and where they are available.

    Exactly one of node_name, node_selector, all_nodes and per_device_node_selection is set.
    driver: a DNS subdomain; the same in every version of the driver. node_name: the one node that has the devices.
    node_selector: the nodes that have access to them. all_nodes: every node has access to them.
    per_device_node_selection: each device tells its nodes itself. devices: at most 128; 64 where they have taints or
    consume counters. shared_counters: at most 8; such a slice has no devices.
    partition_type_attribute: the attribute by which partitions are counted in a pool's status.
    skip_node_operations: what a node need not ask the driver for: NodePrepareResources, NodeUnprepareResources or "*".

    Kept aside. named_resources: the instances that a driver of Kubernetes 1.30 published, as v1alpha2 has them.
    """

    driver: Annotated[str, pb(1)] = ""
    pool: Annotated[ResourcePool, pb(2)] = always(ResourcePool())
    node_name: Annotated[str | None, pb(3)] = None
    node_selector: Annotated[NodeSelector | None, pb(4)] = None
    all_nodes: Annotated[bool | None, pb(5)] = None
    devices: Annotated[tuple[Device, ...], pb(6)] = ()
    per_device_node_selection: Annotated[bool | None, pb(7)] = None
    shared_counters: Annotated[tuple[CounterSet, ...], pb(8)] = ()
    partition_type_attribute: Annotated[str | None, pb(9)] = None
    skip_node_operations: Annotated[tuple[str, ...], pb(10)] = ()
    named_resources: NamedResourcesResources | None = aside("namedResources", None)


class ResourceSlice(ApiObject):
    """A part of a driver's pool of devices, as the driver published it. Cluster scoped."""

    spec: Annotated[ResourceSliceSpec, pb(2)] = always(ResourceSliceSpec())
