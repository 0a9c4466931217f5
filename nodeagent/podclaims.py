"""Which claims a pod uses, whether it may, and which devices each of its containers gets. Pure rules.

Source: kubernetes pkg/kubelet/cm/dra/manager.go and staging/src/k8s.io/dynamic-resource-allocation/resourceclaim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from claims.kinds.containers import Container
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from manciple.wire.selectors import node_selector_matches
from nodeagent.checkpoint import ClaimRecord, DriverRecord, PreparedDevice
from nodeagent.drivers.opaque import request_matches
from nodeagent.failures import PrepareRefused

#: The entry under which a pod's extended-resource claim is known; it has no name in the pod's spec.
EXTENDED_RESOURCES = ""

_TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Node:
    """What a claim's allocation is checked against."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """One claim of a pod. `entry`: its name in spec.resourceClaims; `generated`: made for this pod from a template."""

    entry: str
    claim: str
    generated: bool


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has run to its end; its claims are no longer its own."""
    return pod.status.phase in _TERMINAL


def claims_used(pod: Pod) -> tuple[ClaimUse, ...]:
    """The claims that must be prepared before the pod's containers start, whether a container names them or not.

    Raises: PrepareRefused while a claim from a template has not been made yet.
    """
    uses = [use for entry in pod.spec.resource_claims if (use := _use(pod, entry.name, entry.resource_claim_name))]
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        uses.append(ClaimUse(EXTENDED_RESOURCES, extended.resource_claim_name, generated=True))
    return tuple(uses)


def _use(pod: Pod, entry: str, direct: str | None) -> ClaimUse | None:
    if direct:
        return ClaimUse(entry, direct, generated=False)
    for status in pod.status.resource_claim_statuses:
        if status.name == entry:
            # A status without a name says that no claim is needed.
            return ClaimUse(entry, status.resource_claim_name, generated=True) if status.resource_claim_name else None
    raise PrepareRefused(f"the ResourceClaim for entry {entry} of the pod has not been created yet")


def check_claim(pod: Pod, use: ClaimUse, claim: ResourceClaim, *, node: Node) -> None:
    """Raises: PrepareRefused unless `claim` is allocated for this node and reserved for exactly this pod."""
    name = claim.metadata.name
    allocation = claim.status.allocation
    if use.generated and not _owned_by(claim, pod):
        raise PrepareRefused(f"ResourceClaim {name} was not created for pod {pod.metadata.name}")
    if allocation is None:
        raise PrepareRefused(f"ResourceClaim {name} is not allocated")
    if not _reserved_for(claim, pod):
        raise PrepareRefused(
            f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim {name} "
            f"({claim.metadata.uid}): it is not reserved for it"
        )
    selector = allocation.node_selector
    if selector is not None and not node_selector_matches(selector, node.name, node.labels):
        raise PrepareRefused(f"ResourceClaim {name} is allocated for other nodes than {node.name}")


def _owned_by(claim: ResourceClaim, pod: Pod) -> bool:
    return any(o.controller and o.uid == pod.metadata.uid for o in claim.metadata.owner_references)


def _reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    return any(r.is_pod and r.uid == pod.metadata.uid for r in claim.status.reserved_for)


def driver_records(claim: ResourceClaim) -> tuple[DriverRecord, ...]:
    """One empty record for each driver that must prepare the claim, sorted by name."""
    results = _to_prepare(claim)
    drivers = sorted({result.driver for result in results})
    return tuple(
        DriverRecord(
            driver=driver,
            exclusive=tuple(sorted({(r.pool, r.device) for r in results if r.driver == driver and _is_exclusive(r)})),
        )
        for driver in drivers
    )


def allocation_digest(claim: ResourceClaim) -> str:
    """What tells one allocation of a claim from another; "" without one."""
    allocation = claim.status.allocation
    if allocation is None:
        return ""
    given = [(r.request, r.driver, r.pool, r.device, r.share_id) for r in allocation.devices.results]
    return hashlib.sha256(msgspec.json.encode(given)).hexdigest()[:32]


def _to_prepare(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    skips = {"NodePrepareResources", "*"}
    return tuple(r for r in allocation.devices.results if not skips.intersection(r.skip_node_operations))


def _is_exclusive(result: DeviceRequestAllocationResult) -> bool:
    return not result.admin_access and result.share_id is None


def container_devices(pod: Pod, container: Container, prepared: Mapping[str, ClaimRecord]) -> tuple[str, ...]:
    """The CDI device ids that `container` gets: of the requests it names, in order and without repeats.

    prepared: the records of the pod's claims by entry.
    """
    ids = (i for entry, request in _named(pod, container) for i in _ids(prepared.get(entry), request))
    return tuple(dict.fromkeys(ids))


def _named(pod: Pod, container: Container) -> Iterator[tuple[str, str]]:
    """(entry, request) for each use by the container; an empty request means all of the claim."""
    for use in container.resources.claims:
        yield use.name, use.request
    extended = pod.status.extended_resource_claim_status
    for mapping in extended.request_mappings if extended is not None else ():
        if mapping.container_name == container.name:
            yield EXTENDED_RESOURCES, mapping.request_name


def _ids(record: ClaimRecord | None, request: str) -> Iterator[str]:
    if record is None:
        return
    for device in record.devices:
        if serves(device, request):
            yield from device.cdi_device_ids


def serves(device: PreparedDevice, request: str) -> bool:
    """Whether a container that names `request` of the claim, or no request (""), gets the device."""
    return not request or not device.requests or any(request_matches(request, given) for given in device.requests)
