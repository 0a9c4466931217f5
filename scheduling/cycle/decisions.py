"""What a scheduling cycle decided about one pod, whether that holds when it is committed, and the condition. PURE.

A `Placement` was found on a state that was current when the cycle began. `Drift` is what others have written since; a
placement that leans on something that drifted is not committed but tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime

from msgspec import structs

from claims.causes.causes import GroupDoesNotFit
from claims.causes.messages import message
from claims.kinds.gangs import is_annotated, shown_name
from claims.kinds.pod_groups import SCHEDULED, PodGroup
from claims.kinds.pods import Pod, PodCondition
from claims.kinds.resource_claims import (
    DELETE_PROTECTION,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from claims.pod_claims import STRUCTURED_FINALIZER, reserved
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.pools import PoolKey
from manciple.wire.base import Condition, condition_of
from manciple.wire.errors import Conflict
from manciple.wire.resources import CLAIMS
from scheduling.allocator import Inventory
from scheduling.claims.extended_resources import IN_MEMORY, SpecialClaim
from scheduling.claims.negotiation import NegotiationWrite
from scheduling.queue.hints import FREED, group_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.residents import PlannedEviction

#: The condition, and the reasons that it names.
POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Bind `pod` to `node`, give its claims what they lack, and reserve them for it."""

    pod: Pod
    node: str
    #: every claim of the pod, as it was when the decision was made
    claims: tuple[ResourceClaim, ...] = ()
    #: claim uid -> what it is given now
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    #: the claim for its extended resources, one of `claims`; it may exist in memory alone
    special: SpecialClaim | None = None
    #: one that was made for them before and does not serve here
    outdated: ResourceClaim | None = None
    #: why this node was chosen
    why: str = ""
    #: the group that the pod names, which may share claims with it
    group: PodGroup | None = None
    #: what is said of it where others decided about claims of the pod
    writes: tuple[NegotiationWrite, ...] = ()

    def applied_to(self, claim: ResourceClaim) -> ResourceClaim:
        """One of `claims` as the commit will leave it."""
        if allocation := self.allocations.get(claim.metadata.uid):
            claim = structs.replace(claim, status=structs.replace(claim.status, allocation=allocation))
        return reserved(claim, self.pod, self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRefusal:
    """`pod` stays where it is: `hold` says why, `condition` is the reason its PodScheduled condition names."""

    pod: Pod
    hold: Hold
    condition: str = UNSCHEDULABLE
    #: claims whose allocations stand in the pod's way and serve nobody else
    deallocate: tuple[ResourceClaim, ...] = ()
    #: claims whose devices could not be attached: no pod that waits for that keeps them
    given_up: tuple[ResourceClaim, ...] = ()
    #: the node on which room is made or kept for the pod; "" where there is none
    nominate: str = ""
    #: pods that lose their nominations to it
    withdrawn: tuple[Pod, ...] = ()
    #: who is evicted for it now
    eviction: PlannedEviction | None = None
    #: what was asked has no answer yet: the pod will be retried after a backoff
    again: bool = False
    #: what is said to those who decide about claims of the pod
    writes: tuple[NegotiationWrite, ...] = ()

    @property
    def told_before(self) -> bool:
        """Whether the pod only goes on waiting for others, as its condition says: nothing is written."""
        known = condition_of(self.pod.status.conditions, POD_SCHEDULED)
        waits = self.hold.reasons == Reason.NEGOTIATION and not (self.writes or self.deallocate)
        return waits and known is not None and known.message == self.message

    @property
    def message(self) -> str:
        """What condition and event say."""
        return message(self.hold.cause) if self.hold.cause else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StillBinding:
    """`pod` goes on waiting for devices that it has been given: nothing is written, and nothing told."""

    pod: Pod
    hold: Hold
    #: when the devices are given up
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """There was no time left to look for a place for `pod`: it is tried again in the next batch."""

    pod: Pod


Decision = Placement | PodRefusal | StillBinding | Postponed


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecision:
    """What was decided about the pods of one group, at once.

    wanted: so many of the group must have a place with these, or nothing of it is written; 0: each holds for itself.
    scheduled: the group has what it needs. evicting: room is made for it. began: as `time.perf_counter` tells.
    where: the label of the nodes among which most of it fits, the best of `domains`; "" where it may be anywhere.
    again: not everything was tried; it goes on with the next attempt.
    """

    group: PodGroup
    decisions: tuple[Decision, ...]
    wanted: int = 0
    scheduled: bool = False
    evicting: bool = False
    began: float = 0.0
    where: str = ""
    domains: int = 0
    again: bool = False

    @property
    def promised(self) -> set[str]:
        """The uids of the pods that get a place by it, or have one kept until others leave."""
        return {one.pod.metadata.uid for one in self.decisions if isinstance(one, Placement) or keeps_room(one)}


AnyDecision = Decision | GroupDecision


def keeps_room(decision: Decision) -> bool:
    """Whether the pod waits for room on a node that others leave for it."""
    return isinstance(decision, PodRefusal) and bool(decision.nominate) and not decision.again


def waiting_for_gang(together: GroupDecision, pod: Pod, fitting: int, *, room: str = "") -> PodRefusal:
    """What becomes of a pod that has a place while others of its gang have none. room: the node on which it is kept."""
    group, awaited = together.group, frozenset({group_key(*together.group.key)})
    cause = GroupDoesNotFit(
        shown_name(group.metadata.name),
        placed=fitting,
        wanted=together.wanted,
        room=room,
        annotated=is_annotated(group),
        where=together.where,
        domains=together.domains,
    )
    hold = Hold(reasons=Reason.GANG, awaited=awaited, cause=cause)
    return PodRefusal(pod=pod, hold=hold, nominate=room)


def with_refused(together: GroupDecision, refused: Mapping[str, PodRefusal], placed: Collection[str]) -> GroupDecision:
    """`together`, where these of its pods get no place; of a gang with too few left none does, and each is told why.

    refused: by the uid of the pod. placed: the uids of the pods of the group that have a place already.
    """
    decisions = tuple(refused.get(one.pod.metadata.uid, one) for one in together.decisions)
    fitting = len((together.promised - refused.keys()).union(placed))
    if fitting >= together.wanted:
        return replace(together, decisions=decisions, scheduled=together.scheduled and bool(fitting))
    told = (_told_of_gang(together, one, fitting) for one in decisions)
    return GroupDecision(group=together.group, decisions=tuple(told), began=together.began)


def _told_of_gang(together: GroupDecision, decision: Decision, fitting: int) -> Decision:
    """What a pod is told of a gang of which too few fit; one that asks for what another was refused waits for the gang.

    With a topology what comes free anywhere may help, wherever the attempt that came closest was made.
    """
    if isinstance(decision, PodRefusal) and Reason.GANG not in decision.hold.reasons:
        told = decision
    elif isinstance(decision, Placement | PodRefusal):
        told = waiting_for_gang(together, decision.pod, fitting)
    else:
        return decision
    if not together.where:
        return told
    hold = replace(told.hold, reasons=told.hold.reasons | FREED | Reason.NODE)
    return replace(told, hold=hold, again=told.again or together.again)


def singles(decisions: Iterable[AnyDecision]) -> Iterator[Decision]:
    """Each decision about one pod."""
    for decision in decisions:
        if isinstance(decision, GroupDecision):
            yield from decision.decisions
        else:
            yield decision


@dataclass(slots=True)
class Drift:
    """What changed since the decisions were made, as far as a placement can lean on it."""

    #: (pool, device) given to somebody since
    devices: set[tuple[PoolKey, str]] = field(default_factory=set)
    #: in which something was given, or whose slices changed
    used_pools: set[PoolKey] = field(default_factory=set)
    published_pools: set[PoolKey] = field(default_factory=set)
    #: (driver, node) of those of one node: another pool of theirs may now be one that is gone, under another name
    published_at: set[tuple[str, str]] = field(default_factory=set)
    #: nodes that changed, went, or got a pod
    nodes: set[str] = field(default_factory=set)
    #: uids of pods for whose extended resources a claim came or went
    special: set[str] = field(default_factory=set)
    #: a class or a taint rule changed: every new allocation leans on those
    rules: bool = False

    def claim_changed(self, claim: ResourceClaim, inventory: Inventory) -> None:
        if claim.status.allocation is not None:
            for result, pool in _pools_in_use(claim.status.allocation, inventory):
                if not result.admin_access:
                    self.devices.add((pool, result.device))
                    self.used_pools.add(pool)

    def slice_changed(self, published: ResourceSlice) -> None:
        spec = published.spec
        self.published_pools.add(PoolKey(spec.driver, spec.pool.name, spec.node_name or ""))
        if spec.node_name:
            self.published_at.add((spec.driver, spec.node_name))


def stale(
    placement: Placement, drift: Drift, inventory: Inventory, counting: AbstractSet[PoolKey] = frozenset()
) -> str:
    """What of the new allocations no longer holds, in words; "" when all of it does.

    Admin access depends on nothing that is given out. An exclusive device clashes only when that very device was given
    away. Shares, and devices of the `counting` pools (those with shared counters), depend on everything that is given
    out of their pool.
    """
    if placement.allocations and drift.rules:
        return "device classes or taints have changed"
    for allocation in placement.allocations.values():
        for result, pool in _pools_in_use(allocation, inventory):
            parts = inventory.parts_of(pool)
            if not drift.published_pools.isdisjoint(parts) or (pool.driver, pool.node) in drift.published_at:
                return f"pool {pool} has changed"
            if result.admin_access:
                continue
            if (pool, result.device) in drift.devices:
                return f"device {pool}/{result.device} was allocated to another claim"
            if pool in drift.used_pools and result.share_id:
                return f"pool {pool} is being used by others"
            if not drift.used_pools.isdisjoint(parts) and not counting.isdisjoint(parts):
                return f"pool {pool} is being used by others"
    return ""


def _pools_in_use(
    allocation: AllocationResult, inventory: Inventory
) -> Iterator[tuple[DeviceRequestAllocationResult, PoolKey]]:
    for result in allocation.devices.results:
        for pool in inventory.pools_in_use(result, allocation):
            yield result, pool


def allocated(claim: ResourceClaim, allocation: AllocationResult, at: str | None) -> ResourceClaim:
    """`claim`, as it is now, with what it is given and its finalizer. Raises: Conflict where it has something."""
    if claim.status.allocation is not None:
        raise Conflict.of(CLAIMS, claim.metadata.name, "the claim was allocated elsewhere in the meantime")
    finalizers, driver = {DELETE_PROTECTION: None}, ""
    if allocation.resource_handles:  # by structured parameters
        finalizers[STRUCTURED_FINALIZER], driver = None, allocation.resource_handles[0].driver_name
    if at is not None:
        allocation = structs.replace(allocation, allocation_timestamp=at)
    protected = tuple(dict.fromkeys((*claim.metadata.finalizers, *finalizers)))
    return structs.replace(
        claim,
        metadata=structs.replace(claim.metadata, finalizers=protected),
        status=structs.replace(claim.status, allocation=allocation, driver_name=driver),
    )


# The PodScheduled condition ------------------------------------------------------------------------------------------


def scheduled(pod: Pod, node: str, now: str) -> Pod:
    """`pod` bound to `node`. now: RFC 3339, whole seconds."""
    spec = structs.replace(pod.spec, node_name=node)
    unbound = structs.replace(pod, spec=spec, status=structs.replace(pod.status, nominated_node_name=""))
    return _with(unbound, PodCondition(type=POD_SCHEDULED, status="True"), now)


def nominated(pod: Pod, node: str) -> Pod:
    """`pod` as it waits to be bound to `node`, of which it takes nothing yet; "" takes that back."""
    status = structs.replace(pod.status, nominated_node_name=node, node_allocatable_resource_claim_statuses=())
    return structs.replace(pod, status=status)


def charged_as(known: Pod, pod: Pod) -> Pod:
    """`pod` with what the devices of `known` take of its node; a claim that existed in memory has its name by now."""
    special = pod.status.extended_resource_claim_status
    charges = known.status.node_allocatable_resource_claim_statuses
    if charges and special is not None:
        names = {IN_MEMORY: special.resource_claim_name}
        charges = tuple(
            structs.replace(one, resource_claim_name=names.get(one.resource_claim_name, one.resource_claim_name))
            for one in charges
        )
    if charges == pod.status.node_allocatable_resource_claim_statuses:
        return pod
    return structs.replace(pod, status=structs.replace(pod.status, node_allocatable_resource_claim_statuses=charges))


def not_scheduled(pod: Pod, *, reason: str, message: str, now: str) -> Pod:
    """`pod` with the reason why it has no node; the same value where its condition says so already."""
    return _with(pod, PodCondition(type=POD_SCHEDULED, status="False", reason=reason, message=message), now)


def _with(pod: Pod, condition: PodCondition, now: str) -> Pod:
    """lastTransitionTime moves only with the status."""
    known = condition_of(pod.status.conditions, condition.type)
    if known is not None and _told(known) == _told(condition):
        return pod
    same_status = known is not None and known.status == condition.status
    since = known.last_transition_time if known is not None and same_status else now
    fresh = structs.replace(condition, last_transition_time=since, observed_generation=pod.metadata.generation)
    others = [other for other in pod.status.conditions if other.type != condition.type]
    return structs.replace(pod, status=structs.replace(pod.status, conditions=(*others, fresh)))


def _told(condition: PodCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


# The PodGroupScheduled condition -------------------------------------------------------------------------------------


def with_scheduled(group: PodGroup, *, scheduled: bool, evicting: bool, now: str) -> PodGroup:
    """`group` with what became of the attempt to place its pods; the same value where it says so already."""
    message = "pod group is unschedulable"
    if evicting:
        message += ", pod group is waiting for preemption to complete"
    known = condition_of(group.status.conditions, SCHEDULED)
    fresh = Condition(
        type=SCHEDULED,
        status="True" if scheduled else "False",
        reason="Scheduled" if scheduled else UNSCHEDULABLE,
        message="" if scheduled else message,
        last_transition_time=now,
        observed_generation=group.metadata.generation,
    )
    if known is not None and known.status == fresh.status:
        fresh = structs.replace(fresh, last_transition_time=known.last_transition_time)
    if known == fresh:
        return group
    others = [one for one in group.status.conditions if one.type != SCHEDULED]
    return structs.replace(group, status=structs.replace(group.status, conditions=(*others, fresh)))
