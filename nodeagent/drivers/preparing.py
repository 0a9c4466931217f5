"""What preparing a claim is for every driver whose CDI files the agent writes: one CDI device per allocation result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from nodeagent import cdi
from nodeagent.cdi.folder import kind_of
from nodeagent.checkpoint import PreparedDevice
from nodeagent.drivers.protocol import Failed, Prepared

#: What a container with this device gets. Raises: ValueError for a device that cannot be given, saying why.
EditsOf = Callable[[DeviceRequestAllocationResult], cdi.ContainerEdits]


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
            cdi.Device(name=name, container_edits=edits_of(result)) for name, result in zip(names, results, strict=True)
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
