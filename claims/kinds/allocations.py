"""What a claim was given (`status.allocation`), and what drivers report about it (`status.devices`).

Source: k8s.io/api/resource/v1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from inventory.kinds.classes import DeviceConfiguration
from inventory.kinds.node_selectors import NodeSelector
from inventory.kinds.taints import DeviceToleration
from manciple.wire.base import QuantityText, Raw, TimeText, Value, pb
from manciple.wire.conditions import Condition

PACKAGE = "io.k8s.api.resource.v1"


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


class AllocationResult(Value):
    """What was given, and where it is available.

    node_selector: the nodes on which the devices are available; every node without one.
    allocation_timestamp: when they were given.
    """

    devices: Annotated[DeviceAllocationResult, pb(1)] = DeviceAllocationResult()
    node_selector: Annotated[NodeSelector | None, pb(3)] = None
    allocation_timestamp: Annotated[TimeText | None, pb(5, encoding="time")] = None


class NetworkDeviceData(Value):
    """What a driver tells of a network device.

    interface_name: in the pod's network namespace. ips: in CIDR notation; at most 16.
    hardware_address: such as a MAC address.
    """

    interface_name: Annotated[str, pb(1)] = ""
    ips: Annotated[tuple[str, ...], pb(2)] = ()
    hardware_address: Annotated[str, pb(3)] = ""


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
