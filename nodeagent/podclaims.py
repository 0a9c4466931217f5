"""The claims of a pod: which it uses, whether it may, which devices its containers get, and what is recorded. Pure.

Source: kubernetes pkg/kubelet/cm/dra/manager.go and staging/src/k8s.io/dynamic-resource-allocation/resourceclaim;
KEP-4680 for health. A device is named by its first CDI device id, or by driver, pool and name where it has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from claims.kinds.containers import Container
from claims.kinds.pod_groups import is_made_for_group_of, is_reserved_for_group_of
from claims.kinds.pod_rules import HEALTH_MESSAGE_MAX
from claims.kinds.pods import ContainerExtendedResourceRequest, Pod, ResourceHealth, ResourceStatus
from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from inventory.classic.values import ResourceHandle
from inventory.kinds import gates
from manciple.wire.base import ApiObject
from manciple.wire.selectors import node_selector_matches
from nodeagent.checkpoint import ClaimRecord, DriverRecord, PreparedDevice
from nodeagent.draft_claims import names_used
from nodeagent.drivers.preparing import request_matches
from nodeagent.drivers.protocol import ClaimDriver, DeviceHealth, Prepared
from nodeagent.failures import PrepareFailed, PrepareRefused

#: The entry under which a pod's extended-resource claim is known; it has no name in the pod's spec.
EXTENDED_RESOURCES = ""

_TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a claim's allocation is checked against."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """One claim of a pod. `entry`: its name in spec.resourceClaims; `generated`: made for this pod from a template.
    `draft`: it is one of cdi.k8s.io, which the pod names in spec.resources."""

    entry: str
    claim: str
    generated: bool
    draft: bool = False


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has run to its end; its claims are no longer its own."""
    return pod.status.phase in _TERMINAL


def claims_used(pod: Pod) -> tuple[ClaimUse, ...]:
    """The claims that must be prepared before the pod's containers start, whether a container names them or not.

    None while the feature is off: containers that are started then get no devices (KEP-4381, "Feature Enablement and
    Rollback"); what is prepared stays so until the pod has ended.
    Raises: PrepareRefused while a claim from a template has not been made yet.
    """
    if not gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION):
        return ()
    uses = [use for entry in pod.spec.resource_claims if (use := _use(pod, entry.name, entry.resource_claim_name))]
    if isinstance(pod.spec.resources, tuple):
        uses += (ClaimUse(entry, claim, generated, draft=True) for entry, claim, generated in names_used(pod))
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


def check_claim(pod: Pod, use: ClaimUse, claim: ResourceClaim, *, node: NodeFacts) -> None:
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
    check_requests(pod, use, claim)


def check_requests(pod: Pod, use: ClaimUse, claim: ResourceClaim) -> None:
    """Raises: PrepareRefused where a container, or the pod's status for it, names a request that the claim lacks.

    A kubelet starts it without a device and without a word.
    """
    known = set(_requests_of(claim))
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for entry, request in _named(pod, container):
            if entry == use.entry and request and request not in known:
                raise PrepareRefused(
                    f"container {container.name} names request {request} of ResourceClaim {claim.metadata.name}, "
                    f"which has {', '.join(sorted(known)) or 'none'}; the container would start without a device"
                )


def _requests_of(claim: ResourceClaim) -> Iterator[str]:
    """`request` and `request/subrequest`."""
    for request in claim.spec.devices.requests:
        yield request.name
        yield from (f"{request.name}/{alternative.name}" for alternative in request.first_available)


def is_made_for(obj: ApiObject, pod: Pod) -> bool:
    """Whether the pod is the object's controller."""
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in obj.metadata.owner_references)


def _owned_by(claim: ResourceClaim, pod: Pod) -> bool:
    return is_made_for(claim, pod) or is_made_for_group_of(claim, pod)


def _reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """By itself, or as one of its group: the control plane reserves claims for groups only with their gate on."""
    by_itself = any(r.is_pod and r.uid == pod.metadata.uid for r in claim.status.reserved_for)
    return by_itself or is_reserved_for_group_of(claim, pod)


def names_devices(claim: ResourceClaim) -> bool:
    """Whether its allocation, if any, says which devices were given."""
    return claim.status.allocation is None or bool(claim.status.allocation.devices.results)


def handles_of(claim: ResourceClaim) -> tuple[ResourceHandle, ...]:
    """Each with the name of the driver that it is for."""
    return claim.status.allocation.resource_handles if claim.status.allocation is not None else ()


def handles_for(claim: ResourceClaim, driver: str) -> tuple[ResourceHandle, ...]:
    """Those for `driver`; one may be empty, and the driver is asked all the same."""
    return tuple(handle for handle in handles_of(claim) if handle.driver_name == driver)


def driver_records(claim: ResourceClaim) -> tuple[DriverRecord, ...]:
    """One empty record for each driver that must prepare the claim, sorted by name."""
    results = _to_prepare(claim)
    drivers = {result.driver for result in results}
    if not names_devices(claim):
        drivers = {handle.driver_name for handle in handles_of(claim)}
    return tuple(
        DriverRecord(
            driver=driver,
            exclusive=tuple(sorted({(r.pool, r.device) for r in results if r.driver == driver and _is_exclusive(r)})),
            handles=handles_for(claim, driver),
        )
        for driver in sorted(drivers)
    )


def allocation_digest(claim: ResourceClaim) -> str:
    """What tells one allocation of a claim from another; "" without one."""
    allocation = claim.status.allocation
    if allocation is None:
        return ""
    given: list[object] = [(r.request, r.driver, r.pool, r.device, r.share_id) for r in allocation.devices.results]
    if not given:
        given = list(handles_of(claim))
    return hashlib.sha256(msgspec.json.encode(given)).hexdigest()[:32]


def names_on_disk(claim: ResourceClaim) -> Iterator[str]:
    """What of the claim becomes part of the names of files."""
    yield from (claim.metadata.uid, claim.metadata.namespace, claim.metadata.name)
    for result in _to_prepare(claim):
        yield from (result.driver, *result.request.split("/"))
    yield from (handle.driver_name for handle in handles_of(claim))


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
    for name in container.pod_resources:
        yield name, ""
    for mapping in _mappings(pod, container):
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


# How a claim's record changes from step to step.
def unknown_record(uid: str, *, pods: tuple[str, ...], drivers: Iterable[str]) -> ClaimRecord:
    """A claim of which only the uid is known: any of `drivers` may have prepared it, for any allocation."""
    records = tuple(DriverRecord(driver=name) for name in sorted(drivers))
    return ClaimRecord(uid=uid, namespace="", name="", state="Preparing", pods=pods, drivers=records)


def with_drivers(known: ClaimRecord, drivers: Iterable[str]) -> ClaimRecord:
    """The record of a claim that `drivers` may have prepared too."""
    return replace(known, drivers=(*known.drivers, *(DriverRecord(driver=name) for name in sorted(drivers))))


def with_pod(known: ClaimRecord | None, claim: ResourceClaim, *, pod: str) -> ClaimRecord:
    """The record that says: `claim` is prepared, or about to be, for `pod` too."""
    pods = (*known.pods, pod) if known is not None and pod not in known.pods else known.pods if known else (pod,)
    if known is not None and known.state == "Prepared":
        return replace(known, pods=pods)
    return ClaimRecord(
        uid=claim.metadata.uid,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        state="Preparing",
        pods=pods,
        drivers=driver_records(claim),
        allocation=allocation_digest(claim),
    )


def is_outdated(known: ClaimRecord, claim: ResourceClaim, *, pod: str) -> bool:
    """Whether `known` is not, or not surely, of the allocation that `claim` has now, and no pod but `pod` uses it."""
    same = known.allocation == allocation_digest(claim) and _drivers(known.drivers) == _drivers(driver_records(claim))
    return not same and set(known.pods) <= {pod}


def prepared_record(record: ClaimRecord, answers: Mapping[str, Prepared], *, boot: str) -> ClaimRecord:
    """The record once every driver has done its part. answers: by driver. boot: that of the machine, now."""
    drivers = (
        replace(d, devices=answers[d.driver].devices, cdi_file=answers[d.driver].spec is not None)
        for d in record.drivers
    )
    return replace(record, state="Prepared", drivers=tuple(drivers), boot=boot)


def refuse_conflict(claim: ResourceClaim, records: Iterable[ClaimRecord]) -> None:
    """Raises: PrepareFailed while what `claim` needs is still prepared for a claim before it.

    The pod of that one was force-deleted, or its claim replaced by one of the same name, or freed and allocated anew,
    and this node is not done with it yet; the API does not know.
    """
    wanted = {(driver.driver, *device) for driver in driver_records(claim) for device in driver.exclusive}
    for other in records:
        if other.uid == claim.metadata.uid:
            _refuse_other_allocation(claim, other)
            continue
        if (other.namespace, other.name) == claim.key:
            raise PrepareFailed(
                f"an older ResourceClaim {other.name} with uid {other.uid} is still prepared on this node; "
                "waiting until its pod has stopped"
            )
        for driver in other.drivers:
            for pool, device in driver.exclusive:
                if (name := (driver.driver, pool, device)) in wanted:
                    held = f"device {'/'.join(name)} is still prepared for {other.label}"
                    raise PrepareFailed(f"{held}; waiting until its pod has stopped")


def _refuse_other_allocation(claim: ResourceClaim, known: ClaimRecord) -> None:
    """Raises: PrepareFailed."""
    if known.allocation and known.allocation != allocation_digest(claim):
        raise PrepareFailed(
            f"{known.label} is still prepared on this node as it was allocated before, for the pods with the uids "
            f"{', '.join(known.pods)}; waiting until they have stopped"
        )


def _drivers(records: Iterable[DriverRecord]) -> set[str]:
    return {record.driver for record in records}


# The health of its devices.

#: (driver, pool, device) -> what its driver says
KnownHealth = Mapping[tuple[str, str, str], DeviceHealth]


def known_health(drivers: Iterable[ClaimDriver]) -> KnownHealth:
    """What the drivers say now."""
    return {(driver.name, one.pool, one.device): one for driver in drivers for one in driver.health()}


def resource_statuses(
    pod: Pod, container: Container, records: Mapping[str, ClaimRecord], known: KnownHealth
) -> tuple[ResourceStatus, ...]:
    """One status for each use of a claim by the container, and for each extended resource that devices serve, by the
    name of the resource as for those of device plugins (a kubelet tells nothing of these). records: the pod's claims by
    entry.

    As kubelet has it, the health of a device of which its driver says nothing is unknown, and of devices that a driver
    gives by one CDI device the first is told: the list has one entry for each name.
    """
    told: dict[str, dict[str, ResourceHealth]] = {}
    for name, entry, request in _resources(pod, container):
        record = records.get(entry)
        for health in _healths(record, request, known) if record is not None else ():
            told.setdefault(name, {}).setdefault(health.resource_id, health)
    return tuple(ResourceStatus(name=name, resources=tuple(healths.values())) for name, healths in told.items())


def _resources(pod: Pod, container: Container) -> Iterator[tuple[str, str, str]]:
    """(name in the container's status, entry, request)."""
    for use in container.resources.claims:
        yield f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}", use.name, use.request
    for name in container.pod_resources:
        yield f"claim:{name}", name, ""
    for mapping in _mappings(pod, container):
        yield mapping.resource_name, EXTENDED_RESOURCES, mapping.request_name


def _mappings(pod: Pod, container: Container) -> Iterator[ContainerExtendedResourceRequest]:
    """Which requests of the claim for the pod's extended resources are for the container."""
    extended = pod.status.extended_resource_claim_status
    for mapping in extended.request_mappings if extended is not None else ():
        if mapping.container_name == container.name:
            yield mapping


def _healths(record: ClaimRecord, request: str, known: KnownHealth) -> Iterator[ResourceHealth]:
    for driver in record.drivers:
        for device in driver.devices:
            if not serves(device, request):
                continue
            name = _name(driver.driver, device)
            if said := known.get((driver.driver, device.pool, device.device)):
                message = said.message[:HEALTH_MESSAGE_MAX] or None
                yield ResourceHealth(resource_id=name, health=said.health, message=message)
            else:
                yield ResourceHealth(resource_id=name, health="Unknown")


def _name(driver: str, device: PreparedDevice) -> str:
    return device.cdi_device_ids[0] if device.cdi_device_ids else f"{driver}/{device.pool}/{device.device}"
