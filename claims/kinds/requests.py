"""What a claim asks for: requests, constraints and configuration (`spec.devices`).

Source: k8s.io/api/resource/v1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from inventory.kinds.classes import DeviceConfiguration, DeviceSelector
from inventory.kinds.taints import DeviceToleration
from manciple.wire.base import Int64, QuantityText, Value, pb

PACKAGE = "io.k8s.api.resource.v1"


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
