"""The verdict on a pod: what `decide` returns, the commit writes and the queue records. PURE.

    Placement    bind it
    Wait         it waits for an event; with what is written about that
    Retry        there is no verdict yet: try again
    Gone         nothing to do any more

A `Placement` was found on a state that was current when the cycle began. `Drift` is what others have written since; a
placement that depends on something that drifted is not committed but retried. At the end: the pod's condition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeGuard

from msgspec import structs

from claims.causes.causes import AnyCause, GroupDoesNotFit
from claims.causes.messages import EXTENDED_RESOURCES, message
from claims.kinds.pod_groups import PodGroup, is_annotated, shown_name
from claims.kinds.pods import ContainerExtendedResourceRequest, Pod, PodCondition, PodExtendedResourceClaimStatus
from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from claims.pod_claims import reserved
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.pools import PoolKey
from manciple.wire.base import condition_of
from scheduling.allocator import Inventory
from scheduling.claims.negotiation import NegotiationWrite
from scheduling.queue.hints import FREED, group_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.nodes import PlannedEviction

#: The condition, and the reasons that it names.
POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"
#: The name of a special claim that exists in memory alone.
IN_MEMORY = EXTENDED_RESOURCES


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialClaim:
    """The claim for a pod's extended resources on some nodes (`scheduling.claims.extended_resources`): one that exists,
    or one in memory, which the commit writes. mappings: the container that each of its requests is for.
    """

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]

    def status_of(self, made: ResourceClaim) -> PodExtendedResourceClaimStatus:
        """For the pod's status. made: the claim as it was written."""
        return PodExtendedResourceClaimStatus(resource_claim_name=made.metadata.name, request_mappings=self.mappings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Bind `pod` to `node`, give its claims what they lack, and reserve them for it."""

    pod: Pod
    node: str
    #: every claim of the pod, as it was when the verdict was reached
    claims: tuple[ResourceClaim, ...] = ()
    #: claim uid -> its new allocation
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    #: the claim for its extended resources, one of `claims`; it may exist in memory alone
    special: SpecialClaim | None = None
    #: an earlier one, which does not serve here
    outdated: ResourceClaim | None = None
    #: why this node was chosen
    why: str = ""
    #: the group that the pod names, which may share claims with it
    group: PodGroup | None = None
    #: written with the binding, for drivers that decide about claims of the pod
    writes: tuple[NegotiationWrite, ...] = ()

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    def applied_to(self, claim: ResourceClaim) -> ResourceClaim:
        """One of `claims` as the commit will leave it."""
        if allocation := self.allocations.get(claim.metadata.uid):
            claim = structs.replace(claim, status=structs.replace(claim.status, allocation=allocation))
        return reserved(claim, self.pod, self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """`pod` waits for an event. `hold` says for which and why, `condition` is the reason of its PodScheduled condition.

    until: when it is tried again without an event. silent: nothing is written, the pod's status says it already, or
    will say it.
    """

    pod: Pod
    hold: Hold
    condition: str = UNSCHEDULABLE
    until: datetime | None = None
    silent: bool = False
    #: claims whose allocations are in the pod's way and serve no other pod
    deallocate: tuple[ResourceClaim, ...] = ()
    #: claims whose devices could not be attached: no pod that waits for that keeps them
    given_up: tuple[ResourceClaim, ...] = ()
    #: the node on which room is made or kept for the pod; "" where there is none
    nominate: str = ""
    #: pods that lose their nominations to it
    withdrawn: tuple[Pod, ...] = ()
    #: the pods that are evicted for it now
    eviction: PlannedEviction | None = None
    #: the search is not finished: the pod is retried after a backoff
    again: bool = False
    #: written for drivers that decide about claims of the pod
    writes: tuple[NegotiationWrite, ...] = ()

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def message(self) -> str:
        """The text of condition and event."""
        return message(self.hold.cause) if self.hold.cause else ""

    @property
    def writes_nothing(self) -> bool:
        """Whether the pod's status says all of it: a pod that goes on waiting for drivers is not written again."""
        current = condition_of(self.pod.status.conditions, POD_SCHEDULED)
        negotiates = self.hold.reasons == Reason.NEGOTIATION and not (self.writes or self.deallocate)
        return self.silent or (negotiates and current is not None and current.message == self.message)

    @property
    def keeps_room(self) -> bool:
        """Whether room on a node is kept for the pod until others leave."""
        return bool(self.nominate) and not self.again

    @property
    def leaves_claims(self) -> bool:
        """Whether it was tried with claims that could not be made, which are left to the controller."""
        return self.silent and self.hold.reasons == Reason.CLAIM_MISSING

    @property
    def waits_for_driver(self) -> bool:
        """Whether nothing failed: a driver has to do its part."""
        return self.hold.reasons in (Reason.BINDING, Reason.NEGOTIATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """There is no verdict on `pod`: try again, after a backoff unless said otherwise. Nothing is written."""

    pod: Pod
    cause: AnyCause | None = None
    #: a conflict, not a fault of the pod: without a backoff, unless that has not helped before
    at_once: bool = False
    #: its turn did not come: its row stays as it is
    untried: bool = False
    #: an unexpected error: the worker's state may be wrong, and is read again
    broken: bool = False

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The pod needs no scheduling any more: it was deleted, has ended, or was bound by others."""

    uid: str


#: On one pod, from the decision to its row in the queue. What the commit returns as a `Placement` is bound.
Verdict = Placement | Wait | Retry


def is_refusal(verdict: Verdict) -> TypeGuard[Wait]:
    """Whether the pod was tried and got no place; not for one that waits for its devices to be attached."""
    return isinstance(verdict, Wait) and not verdict.silent


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerdict:
    """The verdicts on the pods of one group, which are written together.

    wanted: so many of the group must have a place with these, or nothing of it is written; 0: each holds for itself.
    scheduled: the group has what it needs. evicting: room is made for it. began: by `time.perf_counter`.
    where: the label of the nodes among which most of it fits, the best of `domains`; "" where it may be anywhere.
    again: not everything was tried; the next attempt goes on.
    """

    group: PodGroup
    verdicts: tuple[Verdict, ...]
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
        return promised(self.verdicts)

    def with_refused(self, refused: Mapping[str, Wait], placed: Collection[str]) -> GroupVerdict:
        """The same where these of its pods get no place; of a gang with too few left none does, and each says why.

        refused: by the uid of the pod. placed: the uids of the pods of the group that have a place already.
        """
        verdicts = tuple(refused.get(verdict.uid, verdict) for verdict in self.verdicts)
        fitting = len((self.promised - refused.keys()).union(placed))
        if fitting >= self.wanted:
            return replace(self, verdicts=verdicts, scheduled=self.scheduled and bool(fitting))
        # Where it lacks only pods that cannot be tried yet, whoever has nominated nodes for it decides.
        all_fit = all(isinstance(one, Placement) for one in verdicts)
        waiting = tuple(self._without_gang(verdict, fitting, all_fit=all_fit) for verdict in verdicts)
        return GroupVerdict(group=self.group, verdicts=waiting, began=self.began)

    def _without_gang(self, verdict: Verdict, fitting: int, *, all_fit: bool) -> Verdict:
        """Of a gang of which too few fit; a pod that requests what another was refused waits for the gang.

        With a topology what comes free anywhere may help, wherever the attempt that came closest was made.
        """
        if isinstance(verdict, Retry) or (isinstance(verdict, Wait) and verdict.silent):
            return verdict
        if isinstance(verdict, Placement) or Reason.GANG in verdict.hold.reasons:
            kept = verdict.pod.status.nominated_node_name if all_fit else ""
            verdict = replace(self.waiting(verdict.pod, fitting), nominate=kept)
        if not self.where:
            return verdict
        hold = replace(verdict.hold, reasons=verdict.hold.reasons | FREED | Reason.NODE)
        return replace(verdict, hold=hold, again=verdict.again or self.again)

    def waiting(self, pod: Pod, fitting: int, *, room: str = "") -> Wait:
        """For a pod that has a place while others of its gang have none. room: the node on which it is kept."""
        cause = GroupDoesNotFit(
            shown_name(self.group.metadata.name),
            placed=fitting,
            wanted=self.wanted,
            room=room,
            annotated=is_annotated(self.group),
            where=self.where,
            domains=self.domains,
        )
        hold = Hold(reasons=Reason.GANG, awaited=frozenset({group_key(*self.group.key)}), cause=cause)
        return Wait(pod=pod, hold=hold, nominate=room)


AnyVerdict = Verdict | GroupVerdict


def promised(verdicts: Iterable[Verdict]) -> set[str]:
    """The uids of the pods that get a place by these verdicts, or have one kept until others leave."""
    return {
        verdict.uid
        for verdict in verdicts
        if isinstance(verdict, Placement) or (isinstance(verdict, Wait) and verdict.keeps_room)
    }


def singles(verdicts: Iterable[AnyVerdict]) -> list[Verdict]:
    """Each verdict on one pod."""
    every = list[Verdict]()
    for verdict in verdicts:
        every += verdict.verdicts if isinstance(verdict, GroupVerdict) else (verdict,)
    return every


# Whether a placement still holds -------------------------------------------------------------------------------------


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


# The PodScheduled condition ------------------------------------------------------------------------------------------


def scheduled(pod: Pod, node: str, now: str) -> Pod:
    """`pod` bound to `node`. now: RFC 3339, whole seconds."""
    spec = structs.replace(pod.spec, node_name=node)
    bound = structs.replace(pod, spec=spec, status=structs.replace(pod.status, nominated_node_name=""))
    # Without observedGeneration, as a binding leaves it (upstream: BindingREST).
    return _with(bound, PodCondition(type=POD_SCHEDULED, status="True"), now, generation=0)


def nominated(pod: Pod, node: str) -> Pod:
    """`pod` as it waits to be bound to `node`, of which it takes nothing yet; "" takes that back."""
    status = structs.replace(pod.status, nominated_node_name=node, node_allocatable_resource_claim_statuses=())
    return structs.replace(pod, status=status)


def charged_as(decided: Pod, pod: Pod) -> Pod:
    """`pod` with what the devices of `decided` take of its node; a claim that existed in memory has its name by now."""
    special = pod.status.extended_resource_claim_status
    charges = decided.status.node_allocatable_resource_claim_statuses
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
    condition = PodCondition(type=POD_SCHEDULED, status="False", reason=reason, message=message)
    return _with(pod, condition, now, generation=pod.metadata.generation)


def _with(pod: Pod, condition: PodCondition, now: str, *, generation: int) -> Pod:
    """lastTransitionTime moves only with the status."""
    current = condition_of(pod.status.conditions, condition.type)
    since: str | None = now
    if current is not None and current.status == condition.status:
        if (current.reason, current.message) == (condition.reason, condition.message):
            return pod
        since = current.last_transition_time
    fresh = structs.replace(condition, last_transition_time=since, observed_generation=generation)
    others = [other for other in pod.status.conditions if other.type != condition.type]
    return structs.replace(pod, status=structs.replace(pod.status, conditions=(*others, fresh)))
