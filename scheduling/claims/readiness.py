"""What a pod requests of a node (`PodRequest`), and whether its claims are ready: PreEnqueue, PreFilter, and before the
binding of a pod whose devices must be attached first.

    request = request_of(state, pod)    # a Hold if PreFilter refuses the pod
    request.wanting                     # its claims that need devices
    request.placement_on(node, ...)     # the Placement once a node and devices are chosen

PersistentVolumeClaims are not served: a pod with a volume of one waits, as it does for one that does not exist.
Upstream: plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from msgspec import structs

from claims.causes import causes
from claims.causes.causes import AwaitingBinding, BindingFailed
from claims.causes.messages import SCHEDULER_NAME
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from claims.pod_claims import (
    ClaimReference,
    can_be_reserved,
    is_done,
    is_for_pod,
    is_reserved_for_pod,
    most_users,
    references,
    requested_classes,
)
from inventory.kinds import gates
from manciple.wire.base import Condition
from scheduling.allocator import Allocated
from scheduling.claims.extended_resources import Extended
from scheduling.queue.hints import claim_key, class_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import Placement, SpecialClaim
from scheduling.state.node_charges import NodeCharges


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """A pod and what it requests.

    wanting, held: its claims without and with devices.
    extended: its requests for extended resources that devices serve.
    """

    pod: Pod
    #: those of its spec, in that order
    claims: tuple[ResourceClaim, ...] = ()
    wanting: tuple[ResourceClaim, ...] = ()
    held: tuple[ResourceClaim, ...] = ()
    extended: Extended | None = None

    @classmethod
    def of(cls, pod: Pod, claims: Iterable[ResourceClaim], extended: Extended | None = None) -> PodRequest:
        """The pod is taken without its devices' charges of an earlier attempt, which are computed for each node."""
        status, every = pod.status, tuple(claims)
        if status.node_allocatable_resource_claim_statuses:
            status = structs.replace(status, node_allocatable_resource_claim_statuses=())
            pod = structs.replace(pod, status=status)
        held = tuple(claim for claim in every if claim.status.allocation is not None)
        return cls(
            pod=pod,
            claims=every,
            wanting=tuple(claim for claim in every if claim.status.allocation is None),
            held=held if extended is None else (*held, *extended.held),
            extended=extended,
        )

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0

    @property
    def every_claim(self) -> tuple[ResourceClaim, ...]:
        """Those of its spec, and the allocated one for its extended resources."""
        return self.claims if self.extended is None else (*self.claims, *self.extended.held)

    @property
    def has_claims(self) -> bool:
        return bool(self.wanting or self.held or self.extended)

    @property
    def is_served(self) -> bool:
        """Whether it needs no further devices, on any node."""
        return not self.wanting and (self.extended is None or bool(self.extended.held))

    def special_on(self, allocatable: Mapping[str, str]) -> SpecialClaim | None:
        """The claim for its extended resources on a node with this allocatable."""
        return None if self.extended is None else self.extended.claim_on(allocatable)

    def wanting_on(self, allocatable: Mapping[str, str]) -> tuple[ResourceClaim, ...]:
        """The claims that need devices on a node with this allocatable."""
        if self.extended is None or self.is_served:
            return self.wanting
        return self.extended.wanting_on(allocatable, self.wanting)

    def charged(self, charges: NodeCharges | None, allocations: Mapping[str, AllocationResult]) -> Pod:
        """The pod with what its devices take of a node. allocations: by the claim's uid."""
        return self.pod if charges is None else charges.charged(self.pod, (*self.wanting, *self.held), allocations)

    def placement_on(
        self, node: str, allocatable: Mapping[str, str], outcome: Allocated | None = None, *, why: str = ""
    ) -> Placement:
        """outcome: what the allocator gives the claims that need devices there; None if none does."""
        special = self.special_on(allocatable)
        existing = None if self.extended is None else self.extended.known
        return Placement(
            pod=self.pod,
            node=node,
            claims=self.claims if special is None else (*self.claims, special.claim),
            allocations={} if outcome is None else given_to(self.wanting_on(allocatable), outcome),
            special=special,
            outdated=None if special is not None and special.claim is existing else existing,
            why=why,
        )


class ClusterView(Protocol):
    """The part of a worker's cluster state (`scheduling.state.cluster`) that a pod's request depends on."""

    def pre_filter(self, pod: Pod) -> tuple[ResourceClaim, ...] | Hold: ...
    def extended(self, pod: Pod) -> Extended | None: ...


def request_of(state: ClusterView, pod: Pod) -> PodRequest | Hold:
    """What the pod requests; a Hold if its claims or classes are not usable yet (PreFilter)."""
    claims = state.pre_filter(pod)
    return claims if isinstance(claims, Hold) else PodRequest.of(pod, claims, state.extended(pod))


def given_to(claims: Iterable[ResourceClaim], outcome: Allocated) -> dict[str, AllocationResult]:
    """claim uid -> its allocation."""
    return {claim.metadata.uid: result for claim, result in zip(claims, outcome.results, strict=True)}


# Whether its claims let it be scheduled -------------------------------------------------------------------------------


#: Feature gates of those who allocate claims of ResourceClasses.
OF_RESOURCE_CLASSES = (gates.CONTROL_PLANE_CONTROLLER, gates.STRUCTURED_PARAMETERS_DRAFT)

#: name, in the pod's namespace -> the claim
FindClaim = Callable[[str], ResourceClaim | None]
HasClass = Callable[[str], bool]


def wants_a_node(pod: Pod) -> bool:
    """Whether it waits for this scheduler."""
    if is_done(pod) or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return False
    return (pod.spec.scheduler_name or SCHEDULER_NAME) == SCHEDULER_NAME


def pre_enqueue(pod: Pod, find_claim: FindClaim) -> Hold | None:
    """What keeps `pod` out of the active queue from the start: gates, or claims that do not exist yet."""
    return _not_ready(pod, _required(pod), find_claim)


def _required(pod: Pod) -> tuple[ClaimReference, ...]:
    """`references`; none while the feature is off: the pod is scheduled as if it asked for no claims (KEP-3063)."""
    return references(pod) if gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION) else ()


def _not_ready(pod: Pod, named: Iterable[ClaimReference], find_claim: FindClaim) -> Hold | None:
    if pod.spec.scheduling_gates:
        return Hold(reasons=Reason.GATED, cause=causes.Gated())
    for reference in named:
        if reference.needed and (hold := _missing(pod, reference, find_claim)) is not None:
            return hold
    return None


def pre_filter(pod: Pod, find_claim: FindClaim, has_class: HasClass) -> tuple[ResourceClaim, ...] | Hold:
    """The claims of `pod`, each once, when nothing about them forbids every node at once; else what does."""
    named = _required(pod)
    if (hold := _not_ready(pod, named, find_claim) or _without_volume(pod)) is not None:
        return hold
    claims: dict[str, ResourceClaim] = {}
    for reference in named:
        claim = find_claim(reference.claim) if reference.claim else None
        if claim is None:
            continue
        if (hold := _unusable(pod, reference, claim) or _without_class(claim, has_class)) is not None:
            return hold
        claims[claim.metadata.uid] = claim
    return tuple(claims.values())


def _without_volume(pod: Pod) -> Hold | None:
    """Upstream: plugins/volumebinding, PreFilter."""
    for volume in pod.spec.volumes:
        source: Any = volume
        if source.persistentVolumeClaim is not None:
            missing = causes.VolumeClaimMissing(source.persistentVolumeClaim.claimName, volume.name)
            return Hold(reasons=Reason.VOLUME, cause=missing)
        if source.ephemeral is not None:
            unmade = causes.VolumeClaimNotCreated(f"{pod.metadata.name}-{volume.name}", volume.name)
            return Hold(reasons=Reason.VOLUME, cause=unmade)
    return None


def _missing(pod: Pod, reference: ClaimReference, find_claim: FindClaim) -> Hold | None:
    namespace = pod.metadata.namespace
    if reference.claim is None:
        cause = causes.ClaimNotCreated(f"{namespace}/{pod.metadata.name}", reference.entry)
        return Hold(reasons=Reason.CLAIM_MISSING, cause=cause)
    if find_claim(reference.claim) is None:
        awaited = frozenset({claim_key(namespace, reference.claim)})
        return Hold(reasons=Reason.CLAIM_MISSING, awaited=awaited, cause=causes.ClaimNotFound(reference.claim))
    return None


def _unusable(pod: Pod, reference: ClaimReference, claim: ResourceClaim) -> Hold | None:
    meta = claim.metadata
    cause: causes.OfPod | None = None
    if meta.deletion_timestamp is not None:
        cause = causes.ClaimBeingDeleted(meta.name)
    elif reference.generated and not is_for_pod(claim, pod):
        names = f"{meta.namespace}/{meta.name}", f"{pod.metadata.namespace}/{pod.metadata.name}"
        cause = causes.ClaimNotForPod(*names)
    elif claim.status.deallocation_requested:
        cause = causes.AwaitingDrivers("resourceclaim must be reallocated")
    elif (cause := _without_gate(claim)) is not None:
        return Hold(reasons=Reason.CLASS_MISSING, cause=cause)
    elif claim.status.allocation and not is_reserved_for_pod(claim, pod) and not can_be_reserved(claim):
        cause = causes.ClaimInUse(claim=f"{meta.namespace}/{meta.name}", most=most_users(claim))
    if cause is None:
        return None
    awaited = frozenset({claim_key(meta.namespace, meta.name)})
    return Hold(reasons=Reason.CLAIM_BUSY, awaited=awaited, cause=cause)


def _without_gate(claim: ResourceClaim) -> causes.NobodyAllocates | None:
    """Nobody allocates a claim of a ResourceClass while the features are off that know of them."""
    name = claim.spec.resource_class_name
    if not name or claim.status.allocation is not None or any(map(gates.enabled, OF_RESOURCE_CLASSES)):
        return None
    off = " and ".join(OF_RESOURCE_CLASSES)
    why = f"nobody allocates for resource class {name}: the feature gates {off} are off"
    return causes.NobodyAllocates(f"resourceclaim {claim.metadata.name}: {why}")


def _without_class(claim: ResourceClaim, has_class: HasClass) -> Hold | None:
    if claim.status.allocation is not None:
        return None
    for request, name in requested_classes(claim):
        if not has_class(name):
            cause = causes.ClassMissing(request, name)
            return Hold(reasons=Reason.CLASS_MISSING, awaited=frozenset({class_key(name)}), cause=cause)
    return None


# Binding conditions (KEP-5007) ----------------------------------------------------------------------------------------

# Devices that are given to a pod before it may be bound, because they must be attached. A device may name conditions;
# its driver reports them in the claim's status.devices. The commit writes allocation and reservation as ever, but
# leaves the pod unbound and nominates its node; the pod waits until the claim changes. When all conditions hold it is
# bound. When one of the failure conditions holds, or none of it has come true within the timeout, its claims are given
# back, by all pods that wait with it for them, and it is tried anew, first without the devices that failed it. A claim
# that other pods run with by then stays with those.
# Source: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go (isClaimReadyForBinding) of 1.36.


def is_ready_to_bind(claim: ResourceClaim) -> bool:
    """Whether every binding condition of its devices holds; also where there are none."""
    for result in _conditional(claim):
        status = _status_of(claim, result)
        conditions: tuple[Condition, ...] = status.conditions if status is not None else ()
        if not {one.type for one in conditions if one.status == "True"}.issuperset(result.binding_conditions):
            return False
    return True


def binding_failure(claim: ResourceClaim, *, now: datetime, timeout: timedelta) -> BindingFailed | None:
    """Why the allocation is given up; None where it is not."""
    for result in _conditional(claim):
        status = _status_of(claim, result)
        for condition in status.conditions if status is not None else ():
            if condition.type in result.binding_failure_conditions and condition.status == "True":
                return BindingFailed(claim.metadata.name, reason=condition.reason, detail=condition.message)
    until = binding_deadline(claim, timeout)
    if until is not None and until < now and not is_ready_to_bind(claim):
        return BindingFailed(claim.metadata.name, timed_out=True)
    return None


def binding_deadline(claim: ResourceClaim, timeout: timedelta) -> datetime | None:
    """When the wait for a claim's conditions ends; None where it waits for none."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None or not any(_conditional(claim)):
        return None
    return datetime.fromisoformat(allocation.allocation_timestamp) + timeout


def earliest_deadline(claims: Iterable[ResourceClaim], timeout: timedelta) -> datetime | None:
    """When the first of these claims is given up."""
    return min(filter(None, (binding_deadline(claim, timeout) for claim in claims)), default=None)


def binding_failures(
    pod: Pod, claims: Iterable[ResourceClaim], *, now: datetime, timeout: timedelta
) -> dict[str, BindingFailed]:
    """claim uid -> why it is given up, of the claims that are reserved for `pod`."""
    reserved = (claim for claim in claims if is_reserved_for_pod(claim, pod))
    failures = ((claim, binding_failure(claim, now=now, timeout=timeout)) for claim in reserved)
    return {claim.metadata.uid: failed for claim, failed in failures if failed is not None}


def not_attached(pod: Pod, claims: Iterable[ResourceClaim], *, now: datetime, timeout: timedelta) -> Hold | None:
    """What keeps `pod` from joining pods that use a claim: its devices could not be attached, for it they would not be
    either. It waits for the claim to change.
    """
    for claim in claims:
        used = bool(claim.status.reserved_for) and not is_reserved_for_pod(claim, pod)
        if used and (failed := binding_failure(claim, now=now, timeout=timeout)) is not None:
            awaited = frozenset({claim_key(*claim.key)})
            return Hold(reasons=Reason.CLAIM_BUSY, awaited=awaited, cause=failed)
    return None


def awaiting_binding(pod: Pod, node: str, claims: Iterable[ResourceClaim]) -> Hold:
    """What `pod` waits for on `node`: changes of the claims whose conditions do not hold yet."""
    namespace = pod.metadata.namespace
    awaited = frozenset(claim_key(namespace, claim.metadata.name) for claim in claims)
    return Hold(reasons=Reason.BINDING, awaited=awaited, cause=AwaitingBinding(node))


def _conditional(claim: ResourceClaim) -> Iterator[DeviceRequestAllocationResult]:
    """Conditions that devices were given while the feature was on hold nobody up while it is off."""
    allocation = claim.status.allocation if gates.enabled("DRADeviceBindingConditions") else None
    for result in allocation.devices.results if allocation is not None else ():
        if result.binding_conditions:
            yield result


def _status_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    key = (result.driver, result.pool, result.device, result.share_id)
    return next(
        (one for one in claim.status.devices if (one.driver, one.pool, one.device, one.share_id) == key),
        None,
    )
