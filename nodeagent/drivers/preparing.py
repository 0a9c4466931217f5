"""What preparing a claim is to drivers whose CDI files the agent writes: a CDI device per result, opaque parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from claims.kinds.resource_claims import (
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from nodeagent import cdi
from nodeagent.cdi.files import kind_of
from nodeagent.checkpoint import PreparedDevice
from nodeagent.drivers.protocol import Failed, Prepared

#: What a container with this device gets. Raises: ValueError for a device that cannot be given, saying why.
EditsOf = Callable[[DeviceRequestAllocationResult], cdi.ContainerEdits]


class DeviceGone(ValueError):
    """An allocated device is not on the node."""

    def __init__(self, pool: str, device: str) -> None:
        super().__init__(f"device {pool}/{device} no longer exists on this node")


def prepare_claim(
    claim: ResourceClaim, *, driver: str, edits_of: EditsOf, shared: cdi.ContainerEdits | None = None
) -> Prepared | Failed:
    """shared: what a container gets once, however many devices of the claim it has."""
    if claim.status.allocation is None:
        return Failed(f"ResourceClaim {claim.metadata.name} is not allocated")
    results = [result for result in claim.status.allocation.devices.results if result.driver == driver]
    names = cdi_device_names(claim.metadata.uid, [_label(result) for result in results])
    try:
        devices = tuple(
            cdi.CdiDevice(name=name, container_edits=edits_of(result))
            for name, result in zip(names, results, strict=True)
        )
    except ValueError as error:
        return Failed(str(error))
    prepared = tuple(_prepared(result, kind_of(driver), name) for result, name in zip(results, names, strict=True))
    return Prepared(prepared, cdi.Spec.of(kind_of(driver), devices, edits=shared))


def cdi_device_names(claim_uid: str, devices: Sequence[str]) -> list[str]:
    """`<claim uid>-<device>` for each; a device that serves several requests is counted from its second time on."""
    return [
        f"{claim_uid}-{device}" + (f"-{seen}" if (seen := devices[:index].count(device)) else "")
        for index, device in enumerate(devices)
    ]


def _label(result: DeviceRequestAllocationResult) -> str:
    """The device; of a shared one, the share (KEP-5075)."""
    return result.device if result.share_id is None else f"{result.device}-{result.share_id}"


def _prepared(result: DeviceRequestAllocationResult, kind: str, name: str) -> PreparedDevice:
    return PreparedDevice(
        requests=(result.request,),
        pool=result.pool,
        device=result.device,
        cdi_device_ids=(cdi.qualified_name(kind, name),),
    )


def device_names(claims: Sequence[ResourceClaim], driver: str) -> dict[str, set[str]]:
    """Claim uid -> the names of the driver's devices that are allocated to it."""
    allocations = ((claim.metadata.uid, claim.status.allocation) for claim in claims)
    return {
        uid: {result.device for result in allocation.devices.results if result.driver == driver}
        if allocation
        else set()
        for uid, allocation in allocations
    }


# Opaque configuration: which parameters of a claim's allocation apply to one of its devices. The allocator copies the
# configurations of the classes and of the claim into `status.allocation.devices.config`. For a device, those count
# whose driver is its driver and that name its request, or none. Class comes before claim, and a later one takes
# precedence over an earlier one. Source: KEP-4381 "OpaqueDeviceConfiguration".

#: Lower comes first, and so has less weight.
_WEIGHT = {"FromClass": 0, "FromClaim": 1}


def request_matches(named: str, request: str) -> bool:
    """Whether `named` ("request" or "request/subrequest") covers the `request` of an allocation result."""
    return named in (request, request.partition("/")[0])


def parameters_for(allocation: DeviceAllocationResult, *, driver: str, request: str) -> tuple[Any, ...]:
    """The parameters that apply to the device given for `request`, the one with the last word last."""
    applying = [config for config in allocation.config if _applies(config, driver, request)]
    applying.sort(key=lambda config: _WEIGHT.get(config.source, 0))
    return tuple(config.opaque.parameters for config in applying if config.opaque is not None)


def _applies(config: DeviceAllocationConfiguration, driver: str, request: str) -> bool:
    if config.opaque is None or config.opaque.driver != driver:
        return False
    return not config.requests or any(request_matches(named, request) for named in config.requests)
