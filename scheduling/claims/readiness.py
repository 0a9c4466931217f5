"""What a pod requests of a node (`PodRequest`), and whether its claims are ready: PreEnqueue, PreFilter, and before the
binding of a pod whose devices must be attached first. Those that it lacks are planned (`PlannedClaims`).

    request = request_of(state, pod)    # a Hold if PreFilter refuses the pod
    request.wanting                     # its claims that need devices
    request.placement_on(node, ...)     # the Placement once a node and devices are chosen

Upstream: plugins/dynamicresources/dynamicresources.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Protocol

from django.conf import settings
from msgspec import structs

from claims.causes import causes
from claims.causes.causes import AwaitingBinding, BindingFailed
from claims.causes.messages import SCHEDULER_NAME
from claims.kinds.pods import Pod, PodResourceClaim, PodResourceClaimStatus
from claims.kinds.registration import RESOURCE_CLAIM
from claims.kinds.resource_claims import (
    POD_CLAIM_ANNOTATION,
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimTemplate,
)
from claims.pod_claims import (
    ClaimReference,
    can_be_reserved,
    claim_for,
    controller_of,
    is_done,
    is_for_pod,
    is_reserved_for_pod,
    most_users,
    references,
    requested_classes,
    shares_claims,
)
from inventory.kinds import gates
from manciple.wire.base import RANDOM, Condition, new_uid
from manciple.wire.resources import NEW_PHASES, TEMPLATES, Key
from manciple.wire.validation import generate_name
from scheduling import steering
from scheduling.allocator import Allocated
from scheduling.claims.extended_resources import Extended
from scheduling.queue.hints import claim_key, class_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import Placement, SpecialClaim
from scheduling.state.node_charges import NodeCharges
from scheduling.state.part import Part


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
    return is_judged(scheduler_of(pod))


def scheduler_of(pod: Pod) -> str:
    return pod.spec.scheduler_name or SCHEDULER_NAME


def is_judged(scheduler: str) -> bool:
    """Whether this process places, or explains, the pods of that scheduler."""
    names: frozenset[str] | None = settings.SCHEDULER_NAMES
    return names is None or scheduler in names


def pre_enqueue(pod: Pod, find_claim: FindClaim) -> Hold | None:
    """What keeps `pod` out of the active queue from the start: gates, or claims that do not exist yet."""
    return _not_ready(pod, _required(pod), find_claim)


def _required(pod: Pod) -> tuple[ClaimReference, ...]:
    """`references`; none while the feature is off: the pod is scheduled as if it asked for no claims (KEP-3063)."""
    return references(pod) if gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION) else ()


def _not_ready(pod: Pod, named: Iterable[ClaimReference], find_claim: FindClaim) -> Hold | None:
    if pod.spec.scheduling_gates and not steering.is_chosen_for(pod):
        return Hold(reasons=Reason.GATED, cause=causes.Gated())
    for reference in named:
        if reference.needed and (hold := _missing(pod, reference, find_claim)) is not None:
            return hold
    return None


def pre_filter(pod: Pod, find_claim: FindClaim, has_class: HasClass) -> tuple[ResourceClaim, ...] | Hold:
    """The claims of `pod`, each once, when nothing about them forbids every node at once; else what does."""
    named = _required(pod)
    if (hold := _not_ready(pod, named, find_claim)) is not None:
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


# Claims that are still to be made ------------------------------------------------------------------------------------

# A new pod is decided about at once, without waiting for the controller that makes claims: each claim that it lacks is
# planned here, with the name and the uid that it will have, and the state shows the pod with that name in its status.
# So nothing tells a planned claim from a stored one until the commit makes it, together with the verdict
# (`scheduling.cycle.commit`). Watchers see the events that they would see of the controller.
#
#     the pod lacks claims, all templates exist          -> planned; the same again while templates stay as they are
#     a template is missing, or of a ResourceClass       -> not planned: the pod waits for the controller
#     a claim exists that was made for an entry before   -> not planned: the controller adopts it
#     a claim could not be made                          -> not planned any more
#     scheduling gates; a group shares claims with it    -> not planned
#     a webhook is asked about new claims                -> nothing is planned
#
# The controller (`claims.controllers.generated_claims`) makes the claims of all pods that have none planned. `left` are
# those of which the log does not tell it. They are kept in memory: what a crash loses of them, its sweep finds
# (`RESYNC`).


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """claim: as it will be made."""

    entry: PodResourceClaim
    template: ResourceClaimTemplate
    claim: ResourceClaim

    @property
    def status(self) -> PodResourceClaimStatus:
        return PodResourceClaimStatus(name=self.entry.name, resource_claim_name=self.claim.metadata.name)


@dataclass(frozen=True, slots=True)
class LackingPod:
    """A waiting pod that lacks claims. planned: all of these, or none.

    stored, shown: the pod as it is, and with the planned claims in its status.
    """

    stored: Pod
    shown: Pod
    planned: tuple[PlannedClaim, ...]


@dataclass(slots=True, eq=False, repr=False)
class PlannedClaims(Part):
    """The claims that waiting pods lack, as a part of the scheduler's state. The table above says when."""

    follows: ClassVar[tuple[str, ...]] = (TEMPLATES,)

    #: whether claims are planned at all: whoever asks for webhooks sets it, before a cycle
    enabled: bool = True
    #: the planned claims; read directly, for each claim that a pod names
    by_key: dict[Key, ResourceClaim] = field(default_factory=dict)
    #: pods that the controller has to look at, of which the log does not tell it
    left: dict[Key, None] = field(default_factory=dict)
    #: by uid
    _lacking: dict[str, LackingPod] = field(default_factory=dict)
    _templates: dict[Key, ResourceClaimTemplate] = field(default_factory=dict)
    #: template -> uids of waiting pods that request a claim of it, and lack it
    _users: dict[Key, set[str]] = field(default_factory=dict)
    #: pod uid -> (claim, the entry for which it was made) of each claim that there is
    _made: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    #: uids of pods whose claims could not be made
    _refused: set[str] = field(default_factory=set)

    def put(self, template: ResourceClaimTemplate) -> None:
        self._templates[template.key] = template

    def remove(self, template: ResourceClaimTemplate) -> None:
        self._templates.pop(template.key, None)

    # Claims ----------------------------------------------------------------------------------------------------------

    def put_claim(self, claim: ResourceClaim) -> str:
        """Returns the uid of the pod whose plan is not right any more: the controller may adopt this claim; else ""."""
        owner, entry = controller_of(claim.metadata), claim.metadata.annotations.get(POD_CLAIM_ANNOTATION)
        if owner is None or entry is None:
            return ""
        _, uid = owner
        made, known = (claim.metadata.name, entry), self._made.get(uid, ())
        if made in known:
            return ""
        self._made[uid] = (*known, made)
        return uid if uid in self._lacking and claim.key not in self.by_key else ""

    def remove_claim(self, claim: ResourceClaim) -> None:
        owner = controller_of(claim.metadata)
        if owner is None or owner[1] not in self._made:
            return
        left = tuple(made for made in self._made[owner[1]] if made[0] != claim.metadata.name)
        if left:
            self._made[owner[1]] = left
        else:
            del self._made[owner[1]]

    # Pods ------------------------------------------------------------------------------------------------------------

    def of(self, uid: str) -> tuple[PlannedClaim, ...]:
        """The claims that are planned for a pod."""
        lacking = self._lacking.get(uid)
        return () if lacking is None else lacking.planned

    def could_not_be_made(self, uid: str) -> bool:
        return uid in self._refused

    def refuse(self, uid: str) -> None:
        """The claims of a pod could not be made: none are planned for it from now on."""
        self._refused.add(uid)

    def take_left(self) -> Collection[Key]:
        """Those of `left`, which is empty then."""
        taken = tuple(self.left)
        self.left.clear()
        return taken

    def waiting(self, pod: Pod) -> Pod:
        """A pod that waits for a node, as the state shows it."""
        uid = pod.metadata.uid
        before = self._forget(uid)
        lacking = tuple(lacking_entries(pod))
        if not lacking:
            self._refused.discard(uid)
            self.left.pop(pod.key, None)
            return pod
        if pod.spec.scheduling_gates or shares_claims(pod):
            return pod
        known = () if before is None else before.planned
        planned = tuple(self._plan(pod, lacking, {one.entry.name: one for one in known}))
        if known and not planned:
            self.left[pod.key] = None
        shown = pod
        if planned:
            statuses = with_names(pod, (one.status for one in planned))
            shown = structs.replace(pod, status=structs.replace(pod.status, resource_claim_statuses=statuses))
        self._lacking[uid] = LackingPod(pod, shown, planned)
        self.by_key.update((one.claim.key, one.claim) for one in planned)
        for entry in lacking:
            self._users.setdefault(_template_key(pod, entry), set()).add(uid)
        return shown

    def again(self, uid: str) -> Pod | None:
        """Plan again for a pod. Returns the pod as the state shows it; None if it lacks no claims."""
        lacking = self._lacking.get(uid)
        return None if lacking is None else self.waiting(lacking.stored)

    def shown(self, pod: Pod) -> Pod:
        """The same pod as the state shows it now."""
        lacking = self._lacking.get(pod.metadata.uid)
        return pod if lacking is None else lacking.shown

    def waits_no_more(self, pod: Pod) -> None:
        """A pod that has a node, has ended, or is for another scheduler: its claims are not made with its placement."""
        self.forget(pod.metadata.uid)
        has_begun = pod.status.phase not in NEW_PHASES or pod.metadata.deletion_timestamp is not None
        if not has_begun and any(lacking_entries(pod)):
            self.left[pod.key] = None
        else:
            self.left.pop(pod.key, None)

    def forget(self, uid: str) -> None:
        """A pod that is gone."""
        self._forget(uid)
        self._refused.discard(uid)

    def users(self, template: Key) -> Collection[str]:
        """The uids of the pods that lack a claim of the template."""
        return tuple(self._users.get(template, ()))

    @property
    def pods(self) -> Collection[str]:
        """The uids of all that lack claims."""
        return tuple(self._lacking)

    def _forget(self, uid: str) -> LackingPod | None:
        before = self._lacking.pop(uid, None)
        if before is None:
            return None
        for one in before.planned:
            self.by_key.pop(one.claim.key, None)
        for entry in lacking_entries(before.stored):
            key = _template_key(before.stored, entry)
            users = self._users.get(key, set())
            users.discard(uid)
            if not users:
                self._users.pop(key, None)
        return before

    def _plan(
        self, pod: Pod, lacking: Collection[PodResourceClaim], known: Mapping[str, PlannedClaim]
    ) -> Iterable[PlannedClaim]:
        """A claim for each of the entries, or none. known: by the names of the entries, what was planned before."""
        uid = pod.metadata.uid
        made = {entry for _, entry in self._made.get(uid, ())}
        if not self.enabled or uid in self._refused or any(entry.name in made for entry in lacking):
            return ()
        planned = list[PlannedClaim]()
        for entry in lacking:
            template = self._templates.get(_template_key(pod, entry))
            if template is None or template.spec.spec.resource_class_name:
                return ()
            before = known.get(entry.name)
            if before is None or before.template.spec != template.spec:
                planned.append(PlannedClaim(entry, template, _drawn(claim_for(pod, entry, template))))
            else:
                planned.append(before)
        return planned


def lacking_entries(pod: Pod) -> Iterable[PodResourceClaim]:
    """The entries whose claims are still to be made from templates, by the pod alone."""
    if not pod.spec.resource_claims:
        return
    for entry, reference in zip(pod.spec.resource_claims, references(pod), strict=True):
        if entry.resource_claim_template_name and reference.needed and reference.claim is None:
            yield entry


def with_names(pod: Pod, statuses: Iterable[PodResourceClaimStatus]) -> tuple[PodResourceClaimStatus, ...]:
    """status.resourceClaimStatuses of `pod` with these as well, in the order in which they are written."""
    return tuple(sorted((*pod.status.resource_claim_statuses, *statuses), key=lambda one: one.name))


def _template_key(pod: Pod, entry: PodResourceClaim) -> Key:
    return pod.metadata.namespace, entry.resource_claim_template_name or ""


def _drawn(claim: ResourceClaim) -> ResourceClaim:
    """`claim` with defaults, a name and a uid."""
    fresh = RESOURCE_CLAIM.prepare_create(claim)
    name = generate_name(claim.metadata.generate_name, RANDOM.value)
    drawn: ResourceClaim = structs.replace(fresh, metadata=structs.replace(fresh.metadata, name=name, uid=new_uid()))
    return drawn


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
