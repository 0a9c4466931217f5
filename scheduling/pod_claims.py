"""Which claims a pod uses, for how long, whether they let it be scheduled (PreEnqueue and PreFilter), whether their
devices let it be bound, and which classes serve the extended resources that it may ask for instead.

PersistentVolumeClaims are not served: a pod with a volume of one waits, as it does for one that does not exist.

An entry of spec.resourceClaims names a claim, or a template; the claim made from a template stands in
status.resourceClaimStatuses, and must belong to the pod. Upstream: dynamic-resource-allocation/resourceclaim/claim.go
and plugins/dynamicresources/dynamicresources.go. PURE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from claims.classic.ownership import IMMEDIATE
from claims.classic.rules import RESERVATIONS_MAX
from claims.kinds.gangs import SIZE
from claims.kinds.pod_groups import API_VERSION as GROUP_API_VERSION
from claims.kinds.pod_groups import (
    CLAIMS_GATE,
    PodGroup,
    PodGroupResourceClaim,
    is_made_for_group_of,
    is_reserved_for_group_of,
)
from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import (
    POD_CLAIM_ANNOTATION,
    AllocatedDeviceStatus,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimTemplate,
    is_allocated_by_controller,
    names_controller,
)
from inventory.kinds import gates
from inventory.kinds.devices import DeviceClass
from manciple.wire.base import Condition, ObjectMeta, OwnerReference
from manciple.wire.validation import DEVICE_CLASS_RESOURCE_PREFIX, claim_generate_name
from scheduling import causes
from scheduling.causes import AwaitingBinding, BindingFailed
from scheduling.hints import FINISHED_PHASES, claim_key, class_key
from scheduling.holds import Hold, Reason
from scheduling.messages import SCHEDULER_NAME

#: resourceapi.ResourceClaimReservedForMaxSize
MOST_RESERVATIONS = 256

#: Beside the delete protection, of a claim with structured parameters (KEP-4381, first draft).
STRUCTURED_FINALIZER = "structured.dra.k8s.io/delete-protection"
#: Feature gates of those who allocate claims of ResourceClasses.
OF_RESOURCE_CLASSES = (gates.CONTROL_PLANE_CONTROLLER, gates.STRUCTURED_PARAMETERS_DRAFT)

#: name, in the pod's namespace -> the claim
FindClaim = Callable[[str], ResourceClaim | None]
HasClass = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReference:
    """One entry of spec.resourceClaims, resolved as far as the pod alone tells."""

    entry: str
    claim: str | None  #: the claim's name; None while the claim is to be created, and where none is needed
    needed: bool = True  #: False when it was determined that this entry needs no claim
    generated: bool = False  #: the claim must have the pod as its controller


def references(pod: Pod) -> tuple[ClaimReference, ...]:
    """Every entry of spec.resourceClaims, in order."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    return tuple(_reference(entry, made) for entry in pod.spec.resource_claims)


def _reference(entry: PodResourceClaim, made: dict[str, str | None]) -> ClaimReference:
    if entry.resource_claim_name:
        return ClaimReference(entry=entry.name, claim=entry.resource_claim_name)
    if entry.name not in made:
        return ClaimReference(entry=entry.name, claim=None, generated=True)
    name = made[entry.name] or None
    return ClaimReference(entry=entry.name, claim=name, needed=name is not None, generated=True)


def claim_names(pod: Pod) -> tuple[str, ...]:
    """The names of the claims that exist for the pod, as far as it tells, without repeats."""
    extended = pod.status.extended_resource_claim_status
    special = (extended.resource_claim_name,) if extended is not None else ()
    return tuple(dict.fromkeys((*(one.claim for one in references(pod) if one.claim), *special)))


def names_of_claims(pod: Pod) -> str:
    """`namespace/name` of each, for messages."""
    return ", ".join(f"{pod.metadata.namespace}/{name}" for name in claim_names(pod))


def has_group(pod: Pod) -> bool:
    """Whether it names a PodGroup, or says how large its gang is."""
    return pod.spec.scheduling_group is not None or SIZE in pod.metadata.annotations


def is_done(pod: Pod) -> bool:
    """Whether it is certain that no container of `pod` runs or ever will."""
    if pod.status.phase in FINISHED_PHASES:
        return True
    return pod.metadata.deletion_timestamp is not None and not pod.spec.node_name


def wants_a_node(pod: Pod) -> bool:
    """Whether it waits for this scheduler."""
    if is_done(pod) or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return False
    return (pod.spec.scheduler_name or SCHEDULER_NAME) == SCHEDULER_NAME


def controller_of(meta: ObjectMeta) -> tuple[str, str] | None:
    """(name, uid) of the pod that controls the object, if a pod does."""
    for owner in meta.owner_references:
        if owner.controller and owner.kind == "Pod" and owner.api_version == "v1":
            return owner.name, owner.uid
    return None


def controlled_by(pod: Pod) -> OwnerReference:
    """What an object that is made for the pod says of it."""
    meta = pod.metadata
    return OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)


def is_for_pod(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether `claim` was generated for `pod`, or for its group."""
    owner = controller_of(claim.metadata)
    if claim.metadata.namespace == pod.metadata.namespace and owner is not None and owner[1] == pod.metadata.uid:
        return True
    return _shares_claims(pod) and is_made_for_group_of(claim, pod)


def _shares_claims(pod: Pod) -> bool:
    return pod.spec.scheduling_group is not None and gates.enabled(CLAIMS_GATE)


def is_reserved_for_pod(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether `pod` may use the claim, by itself or as one of its group."""
    by_itself = is_reserved_for(claim, pod.metadata.uid)
    return by_itself or (_shares_claims(pod) and is_reserved_for_group_of(claim, pod))


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    return any(consumer.uid == uid for consumer in claim.status.reserved_for)


def can_be_reserved(claim: ResourceClaim) -> bool:
    """Whether one more may use it. A claim of a ResourceClass is for one at a time, unless it is shareable; nobody
    begins to use what is being deleted, or what a driver is to deallocate.
    """
    ends = claim.metadata.deletion_timestamp is not None or claim.status.deallocation_requested
    return not ends and len(claim.status.reserved_for) < most_users(claim)


def most_users(claim: ResourceClaim) -> int:
    """How many may use it at once."""
    if not claim.spec.resource_class_name:
        return MOST_RESERVATIONS
    allocation = claim.status.allocation
    return RESERVATIONS_MAX if allocation is not None and allocation.shareable else 1


def stays_allocated(claim: ResourceClaim) -> bool:
    """Whether it keeps what it has when nobody uses it."""
    return claim.spec.allocation_mode == IMMEDIATE and claim.metadata.deletion_timestamp is None


def keeps_unused(claim: ResourceClaim) -> bool:
    """Whether it holds its devices by design though nobody uses it: Immediate, or its driver's controller decides."""
    is_over = claim.status.deallocation_requested or claim.metadata.deletion_timestamp is not None
    return stays_allocated(claim) or (is_allocated_by_controller(claim) and not is_over)


def consumer(pod: Pod) -> ResourceClaimConsumerReference:
    """The entry of status.reservedFor that stands for `pod`."""
    return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)


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


def requested_classes(claim: ResourceClaim) -> Iterator[tuple[str, str]]:
    """(request or request/subrequest, DeviceClass name) for everything that `claim` asks for."""
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.name, request.exactly.device_class_name
        for alternative in request.first_available:
            yield f"{request.name}/{alternative.name}", alternative.device_class_name


def claim_for(
    user: Pod | PodGroup, entry: PodResourceClaim | PodGroupResourceClaim, template: ResourceClaimTemplate
) -> ResourceClaim:
    """The claim to create for `entry`: the template's spec, labels and annotations; owned by the pod, or the group.

    Upstream: pkg/controller/resourceclaim/controller.go (handleClaim, handlePodGroupClaim).
    """
    meta = user.metadata
    of_group = OwnerReference(
        api_version=GROUP_API_VERSION, kind="PodGroup", name=meta.name, uid=meta.uid, controller=True
    )
    given = template.spec.metadata
    return ResourceClaim(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        metadata=ObjectMeta(
            namespace=user.metadata.namespace,
            generate_name=claim_generate_name(user.metadata.name, entry.name),
            labels=given.labels,
            annotations={**given.annotations, POD_CLAIM_ANNOTATION: entry.name},
            owner_references=(controlled_by(user) if isinstance(user, Pod) else of_group,),
        ),
        spec=template.spec.spec,
    )


# Extended resources (KEP-5004) ----------------------------------------------------------------------------------------


class ServingClasses:
    """Which DeviceClass serves which resource. Of several with one name the newest does, then the first by name."""

    def __init__(self, *, enabled: bool = True) -> None:
        """enabled: the gate DRAExtendedResource."""
        self.enabled = enabled
        #: resource -> the class that serves it; to be read, so that who asks for none of them pays one look-up
        self.by_resource: dict[str, str] = {}
        #: every class -> the name that it has itself; "" for none
        self.own: dict[str, str] = {}
        #: such a name -> the classes that have it, each with its creationTimestamp
        self._sharing: dict[str, dict[str, str]] = {}

    def copied(self) -> ServingClasses:
        made = ServingClasses(enabled=self.enabled)
        made.by_resource = dict(self.by_resource)
        made.own = dict(self.own)
        made._sharing = {name: dict(classes) for name, classes in self._sharing.items()}
        return made

    def serve(self, pod: Pod) -> bool:
        """Whether `pod` names a resource that a class serves."""
        served, spec = self.by_resource, pod.spec
        return any(
            name in served for one in (*spec.containers, *spec.init_containers) for name in one.resources.requests
        )

    def put(self, device_class: DeviceClass) -> None:
        name, own = device_class.metadata.name, device_class.spec.extended_resource_name or ""
        self.remove(name)
        self.own[name] = own
        if self.enabled:
            self.by_resource[f"{DEVICE_CLASS_RESOURCE_PREFIX}{name}"] = name
        if own:
            self._sharing.setdefault(own, {})[name] = device_class.metadata.creation_timestamp or ""
            self._choose(own)

    def remove(self, name: str) -> None:
        """Unknown ones are nothing new."""
        own = self.own.pop(name, "")
        self.by_resource.pop(f"{DEVICE_CLASS_RESOURCE_PREFIX}{name}", None)
        if own:
            del self._sharing[own][name]
            self._choose(own)

    def _choose(self, resource: str) -> None:
        sharing = self._sharing[resource]
        if not sharing:
            del self._sharing[resource]
            self.by_resource.pop(resource, None)
        elif self.enabled:
            newest = max(sharing.values())
            self.by_resource[resource] = min(name for name, created in sharing.items() if created == newest)


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
    return all(
        condition in _true(_status_of(claim, result))
        for result in _conditional(claim)
        for condition in result.binding_conditions
    )


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


def _true(status: AllocatedDeviceStatus | None) -> frozenset[str]:
    conditions: tuple[Condition, ...] = status.conditions if status is not None else ()
    return frozenset(condition.type for condition in conditions if condition.status == "True")


def may_be_negotiated(pod: Pod, claims: Iterable[ResourceClaim]) -> bool:
    """Whether somebody else may decide about what the pod asks for (`scheduling.negotiation`)."""
    return isinstance(pod.spec.resources, tuple) or any(map(names_controller, claims))
