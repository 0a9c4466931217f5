"""PostFilter: the verdict on a pod for which the cycle finds no place, and the remedy, if there is one.

    refused_outright(state, pod, hold)                              no node is searched for it
    refused_before_nodes(state, pod, hold)                          the same, for what PreFilter refuses
    refused_by_nodes(state, request, filtered, refusals, remedies)  refusals: of the nodes that lack devices

An idle allocation of the pod's own that is in the way is freed. Else `Remedies` looks for less important pods to evict.
A batch spends `BATCH_SECONDS` of processor time on that, so that no other pod waits for longer; a pod whose turn does
not come is left to the next batch. A search ends after `SEARCH_SECONDS`, and the next one for the same pod goes on
where it stopped. A search that found no help is not repeated in the batch for pods that request the same.

Preemption. On a node where only pods are in the way, all that are less important are removed first, in the search
alone, and put back in the order of their importance as long as the pod still fits: all that stay away are needed. Those
whose disruption budget does not allow their eviction are put back first (`scheduling.state.budgets`). The node with the
cheapest victims is chosen: the fewest that break a budget, then the lowest highest priority, the smallest sum, the
fewest, those that started last. Nodes are tried by a lower bound of their price, so the search ends when no other can
win. Devices are searched by the allocator itself, on a snapshot without what the victims' claims hold; a claim that
others share is freed only when all that hold it leave. Pods that are terminating count as gone, whatever their
priority: where that is enough, no pod is evicted. The search changes nothing. `settle` works out, also after a start,
what the nominated pods of a state wait for.

Fairness. Among pods of one priority none is evicted. So that pods that need much do not starve behind those that need
little, room is kept for the one that has waited longest, once it has waited for `MANCIPLE_FAIRNESS_SECONDS`: on the
node where the fewest pods are in its way. What comes free there is not given to others of its priority or less; as pods
end, it starts. Of each priority one pod at a time has such room, so no more stands idle than that one requests; a pod
that has waited longer takes it over.

Sources: pkg/scheduler/framework/preemption/preemption.go (pickOneNodeForPreemption), plugins/defaultpreemption
(SelectVictimsOnNode) of 1.36; devices are preempted with the gate DRAPreemption of 1.37.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, TypeVar, cast

import msgspec
from django.conf import settings

from claims import event_recorder
from claims.causes import messages
from claims.causes.causes import (
    CannotAllocate,
    ClaimInUse,
    Evicting,
    Fault,
    Ineligible,
    Misconfigured,
    NamedVictim,
    NodeRefusal,
    NoNodeFits,
    NotEligible,
    NoVictims,
    OfDevices,
    OfNode,
    OfPod,
    OfPreemption,
    PreemptionNotHelpful,
    Unhelpful,
    counted,
)
from claims.controllers.reservations import deallocated, not_reserved
from claims.event_recorder import EventNote
from claims.evictions import disrupt, preemption_by
from claims.kinds.pods import Pod, uses_volume_claims
from claims.kinds.resource_claims import AllocationResult, ResourceClaim, is_allocated_by_controller
from claims.kinds.volume_binding import keys_of_claims
from claims.pod_claims import can_be_reserved, is_reserved_for, is_reserved_for_pod, references
from inventory.kinds import gates
from manciple.store.objects import Writer
from manciple.wire.errors import Conflict
from manciple.wire.limits import TimeLimitExceeded, time_limit
from manciple.wire.resources import CLAIMS, EVENTS, PODS, Key, kind
from scheduling.allocator import (
    Allocated,
    AllocationFailed,
    Deadline,
    NodeView,
    RequestPlan,
    Snapshot,
    Unallocatable,
    Undecided,
    allocate,
    free_on,
    is_allocatable,
    overall,
    read_claims,
)
from scheduling.claims import extended_resources
from scheduling.claims.extended_resources import owner_uid
from scheduling.claims.negotiation import Negotiation, StillNegotiating
from scheduling.claims.readiness import PodRequest, given_to, request_of
from scheduling.metrics import PREEMPTION_ATTEMPTS, PREEMPTION_VICTIMS, PluginRun
from scheduling.queue.hints import RESOURCE_KEY, Wakes, claim_key, volume_claim_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import SCHEDULING_GATED, Placement, Retry, Wait, nominated
from scheduling.state import node_fit
from scheduling.state.cluster import ClusterState
from scheduling.state.node_charges import NodeCharges
from scheduling.state.node_fit import REASON_OF_PLUGIN, extended_names
from scheduling.state.nodes import (
    FREE,
    FilterResult,
    PlannedEviction,
    Price,
    Resident,
    cost_of,
    fewest_of,
    least_cost,
    verdict_key,
)

log = logging.getLogger(__name__)

#: Of the pods on a node, how many are tried alone where others would go together.
TRIED_ALONE = 16
#: Seconds for finding the devices that are kept for a nominated pod; they count for no pod's turn.
ROOM_SECONDS = 0.05
#: Seconds for a last look at the devices; it is part of the transaction.
RECHECK_SECONDS = 0.5

#: node -> why it refuses the pod: the filters' refusals, or the result of the search for devices
Refusals = Mapping[str, Sequence[OfNode]]


# Eligible -------------------------------------------------------------------------------------------------------------


def ineligible(state: ClusterState, request: PodRequest, now: datetime) -> Ineligible | None:
    """Why the pod may evict no other now (upstream: PodEligibleToPreemptOthers)."""
    if request.pod.spec.preemption_policy == "Never":
        return Ineligible.POLICY
    node = request.pod.status.nominated_node_name
    if not node:
        return None
    refusals = state.nodes.refusals_without(request.pod, node, (), claims=request.held)
    if not all(refusal.resolvable for refusal in refusals):
        return None  # it will never fit there
    waits = any(
        one.priority < request.priority and state.overlay.is_leaving(one, now) for one in state.residents.on(node)
    )
    return Ineligible.WAITING if waits else None


def nobody_to_evict(refusals: Refusals, *, devices: bool) -> Unhelpful:
    """Where no pod at all is less important than the one that needs room."""
    causes: Counter[PreemptionNotHelpful | NoVictims | OfNode] = Counter(
        NoVictims() if can_pass(refused, devices=devices) and not _lacks_devices(refused) else PreemptionNotHelpful()
        for refused in refusals.values()
    )
    return Unhelpful(nodes=tuple(causes.most_common()))


def can_pass(refusals: Iterable[OfNode], *, devices: bool) -> bool:
    """Whether pods that leave a node could lift all of its refusals. devices: whether devices are preempted."""
    return all(
        refusal.resolvable if isinstance(refusal, NodeRefusal) else _is_device_shortage(refusal) and devices
        for refusal in refusals
    )


def _lacks_devices(refusals: Iterable[OfNode]) -> bool:
    return any(_is_device_shortage(refusal) for refusal in refusals)


def _is_device_shortage(refusal: OfNode) -> bool:
    """Also where an invalid pool is on the node: other pools may have devices that pods hold."""
    return isinstance(refusal, CannotAllocate) or (isinstance(refusal, Misconfigured) and refusal.fault == Fault.POOL)


# One node -------------------------------------------------------------------------------------------------------------


class OnNode:
    """One node as pods leave it."""

    def __init__(
        self, state: ClusterState, request: PodRequest, view: NodeView, *, snapshot: Snapshot, deadline: Deadline
    ) -> None:
        self._state = state
        self._request = request
        self._view = view
        self._snapshot = snapshot
        self._deadline = deadline
        self._wanting = request.wanting_on(state.nodes.allocatable(view.name))
        self._plans = read_claims(snapshot, self._wanting)

    def refusals(self, gone: Mapping[str, Resident], *, hopeless: bool = False) -> Sequence[OfNode]:
        """Why the node refuses the pod even without these (uid -> pod); empty where it fits.

        hopeless: there are too few devices.
        """
        request, name = self._request, self._view.name
        refused = self._state.nodes.refusals_without(request.pod, name, gone.keys(), claims=request.held)
        if refused or not (self._wanting or self._state.devices.charges):
            return refused
        if hopeless:
            return (CannotAllocate(),)
        left = self._snapshot.without(freed(self._state, gone))
        fits = not self._wanting or is_allocatable(left, self._plans, self._view, deadline=self._deadline)
        if fits and self._state.devices.charges is not None:
            return self._overcharged(left, gone, self._state.devices.charges)
        return () if fits else (CannotAllocate(),)

    def _overcharged(self, left: Snapshot, gone: Mapping[str, Resident], charges: NodeCharges) -> Sequence[OfNode]:
        """The refusals once the devices' own share of the node is counted."""
        request = self._request
        outcome = allocate(left, self._wanting, self._view, deadline=self._deadline)
        if not isinstance(outcome, Allocated):
            return (CannotAllocate(),)
        charged = charges.charged(request.pod, (*self._wanting, *request.held), given_to(self._wanting, outcome))
        return self._state.nodes.refusals_without(charged, self._view.name, gone.keys(), claims=request.held)

    def eviction(self, gone: Mapping[str, Resident], victims: Iterable[Resident]) -> PlannedEviction | None:
        """None where the allocator has no result after all."""
        given: Mapping[str, AllocationResult] = {}
        if self._wanting:
            left = self._snapshot.without(freed(self._state, gone))
            outcome = allocate(left, self._wanting, self._view, deadline=self._deadline)
            if not isinstance(outcome, Allocated):
                return None
            given = given_to(self._wanting, outcome)
        ordered = sorted(victims, key=_importance)
        violations = self._state.guard.violations(ordered)
        return PlannedEviction(node=self._view.name, victims=tuple(ordered), allocations=given, violations=violations)

    def spare(self, gone: dict[str, Resident], order: Sequence[Resident]) -> dict[str, Resident]:
        """Without those of `order` that can stay, the first first: what is left is needed, all of it.

        As many as can be are given back at once: if they fit together, they would have one after the other.
        """
        if not order or self._deadline.has_passed:
            return gone
        back = {one.uid for one in order}
        fewer = {uid: one for uid, one in gone.items() if uid not in back}
        if not self.refusals(fewer):
            return fewer
        if len(order) == 1:
            return gone
        half = len(order) // 2
        return self.spare(self.spare(gone, order[:half]), order[half:])


def _importance(one: Resident) -> tuple[tuple[int, float], str]:
    return one.importance, one.uid


def freed(state: ClusterState, gone: Mapping[str, Resident]) -> Iterator[AllocationResult]:
    """What comes free when these pods (by uid) leave: of claims that no other pod uses."""
    for key in {key for one in gone.values() for key in one.claims}:
        claim = state.claim(*key)
        allocation = claim.status.allocation if claim is not None else None
        if claim is None or allocation is None:
            continue
        users = claim.status.reserved_for
        if users and all(user.uid in gone for user in users):
            yield allocation


# Devices --------------------------------------------------------------------------------------------------------------


class Supply:
    """Devices that a pod requests, that a node has free and that others hold: a count that can spare a search.

    It only counts devices that serve one claim each: a number does not say how many shares or partitions another one
    makes room for.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        wanting: Sequence[ResourceClaim],
        claim: Callable[[str, str], ResourceClaim | None],
    ) -> None:
        """claim: by namespace and name."""
        self._snapshot = snapshot
        self._claim = claim
        wanted = least_devices(snapshot, wanting)
        #: a single device need not be counted: some pod has to go for it
        self._wanted = wanted if wanted > 1 else 0

    def short_on(self, view: NodeView) -> int:
        """At least this many more have to come free on the node."""
        if not self._wanted:
            return 0
        free = free_on(self._snapshot, view)
        return 0 if free is None else max(0, self._wanted - free)

    def held_by(self, one: Resident) -> int:
        """At most this many come free when the pod goes."""
        claims = [self._claim(*key) for key in one.claims] if self._wanted else ()
        given = [claim.status.allocation for claim in claims if claim is not None]
        return sum(len(allocation.devices.results) for allocation in given if allocation is not None)


def least_devices(snapshot: Snapshot, wanting: Sequence[ResourceClaim]) -> int:
    """At least this many devices these claims take from others; a request with alternatives counts by its smallest."""

    def least(plan: RequestPlan) -> int:
        return 0 if plan.admin else 1 if plan.everything else plan.count

    plans = read_claims(snapshot, wanting)
    return sum(min(map(least, options), default=0) for plan in plans for options in plan.requests)


# All nodes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A node that pods keep from the one that asks. bound: no victims there cost less.

    hopeless: it has too few devices even if all of them go.
    """

    view: NodeView
    leaving: tuple[Resident, ...]
    victims: tuple[Resident, ...]
    bound: Price
    hopeless: bool


@dataclass(slots=True, kw_only=True)
class VictimSearch:
    """The search for the victims that would make room. below: their priority is lower than this.

    seconds: by the clock, for trying candidates. Listing the candidates is not limited: among thousands of nodes the
    search would never try any. devices: whether devices are preempted. by_number: the fewest victims are the cheapest,
    whatever their priority. skip: candidates that an earlier search has tried without success; after the search, with
    those of this one, or 0 at its end. stopped: the time was up before a candidate was found.
    """

    state: ClusterState
    request: PodRequest
    now: datetime
    seconds: float
    below: int
    clock: Callable[[], float] = time.thread_time
    devices: bool = True
    by_number: bool = False
    skip: int = 0
    stopped: bool = False
    _supply: Supply = field(init=False)
    _deadline: Deadline = field(init=False)

    def run(self, refusals: Refusals) -> PlannedEviction | Unhelpful | NotEligible:
        """refusals: of each node that does not take the pod now."""
        unhelpful: Counter[PreemptionNotHelpful | NoVictims | OfNode] = Counter()
        candidates = []
        self._supply = Supply(self.state.snapshot(), self.request.wanting, self.state.claim)
        for name, refused in refusals.items():
            candidate = self._candidate(name, refused)
            if isinstance(candidate, _Candidate):
                candidates.append(candidate)
            else:
                unhelpful[candidate] += 1
        candidates.sort(key=lambda one: (one.bound, one.view.name))
        self._deadline = Deadline.after(self.seconds, clock=self.clock)
        best = self._best(candidates, unhelpful)
        if self.stopped:
            return NotEligible(Ineligible.UNDECIDED)
        return best or Unhelpful(nodes=tuple(unhelpful.most_common()))

    def _candidate(self, name: str, refused: Sequence[OfNode]) -> _Candidate | PreemptionNotHelpful | NoVictims:
        view = self.state.nodes.view(name)
        if view is None or not can_pass(refused, devices=self.devices):
            return PreemptionNotHelpful()
        leaving, victims = [], []
        for one in self.state.residents.on(name):
            if self.state.overlay.is_leaving(one, self.now):
                leaving.append(one)
            elif one.priority < self.below and one.going is None:
                victims.append(one)
        if not leaving and not victims:
            return PreemptionNotHelpful() if _lacks_devices(refused) else NoVictims()
        bound, held = (0, *FREE), [self._supply.held_by(one) for one in (*leaving, *victims)]
        short = self._supply.short_on(view)
        if not leaving and not self.by_number:
            number = max(1, fewest_of(held, short))
            if any(isinstance(refusal, NodeRefusal) for refusal in refused):
                uids = [one.uid for one in victims]
                number = max(number, self.state.nodes.fewest_to_leave(self.request.pod, name, uids))
            number = min(number, len(victims))
            bound = (self.state.guard.least(victims, number), *least_cost(victims, number))
        return _Candidate(
            view=view, leaving=tuple(leaving), victims=tuple(victims), bound=bound, hopeless=sum(held) < short
        )

    def _best(
        self, candidates: Sequence[_Candidate], unhelpful: Counter[PreemptionNotHelpful | NoVictims | OfNode]
    ) -> PlannedEviction | None:
        """The cheapest; `unhelpful` counts why others do not help."""
        best: PlannedEviction | None = None
        snapshot = self.state.snapshot()
        done, self.skip, self.stopped = self.skip, 0, False
        for at, candidate in enumerate(candidates):
            if best is not None and best.price <= candidate.bound:
                break
            if at < done:
                unhelpful[CannotAllocate()] += 1
                continue
            result = None if self._deadline.has_passed else self._on(candidate, snapshot)
            cut_short = at > done and self._deadline.has_passed  # the first one has had all the time that there is
            if isinstance(result, PlannedEviction):
                if best is None or (self._weight(result), result.node) < (self._weight(best), best.node):
                    best = result
            elif result is None or cut_short:
                self.stopped = best is None
                self.skip = at if self.stopped else 0
                break
            else:
                unhelpful.update(result)
        return best

    def _weight(self, eviction: PlannedEviction) -> tuple[float, ...]:
        return (len(eviction.victims),) if self.by_number else eviction.price

    def _price(self, victims: Sequence[Resident]) -> Price:
        return self.state.guard.violations(victims), *cost_of(victims)

    def _on(self, candidate: _Candidate, snapshot: Snapshot) -> PlannedEviction | Sequence[OfNode]:
        on = OnNode(self.state, self.request, candidate.view, snapshot=snapshot, deadline=self._deadline)
        leaving = {one.uid: one for one in candidate.leaving}
        every = leaving | {one.uid: one for one in candidate.victims}
        if refused := on.refusals(every, hopeless=candidate.hopeless):
            return refused[:1]
        best: Sequence[Resident] | None = None
        for gone in self._sets(on, candidate, every):
            if self._deadline.has_passed:
                break  # some of them might stay
            needed = [one for uid, one in gone.items() if uid not in leaving]
            if best is None or self._price(needed) < self._price(best):
                best = needed
        eviction = None if best is None else on.eviction(leaving | {one.uid: one for one in best}, best)
        return eviction or (CannotAllocate(),)

    def _sets(self, on: OnNode, candidate: _Candidate, every: dict[str, Resident]) -> Iterator[Mapping[str, Resident]]:
        """Sets of pods that could leave, with those that are terminating. First as in Kubernetes; then by importance
        alone where that kept some for their budget, which may allow evicting the least important of its pods; then,
        where it takes several, those that hold the least are put back first, so that one that holds much leaves rather
        than several that hold little; then each alone.
        """
        leaving, by_importance = {one.uid: one for one in candidate.leaving}, sorted(candidate.victims, key=_importance)
        against = self.state.guard.violating(by_importance)
        ordered = sorted(by_importance, key=lambda one: one.uid not in against)
        first = on.spare(every, ordered)
        yield first
        if against:
            yield on.spare(every, by_importance)
        if len(first) - len(leaving) <= 1:
            return
        by_use = sorted(ordered, key=lambda one: (one.uid not in against, -one.priority, len(one.claims)))
        yield on.spare(every, by_use)
        highest = max(one.priority for uid, one in first.items() if uid not in leaving)
        for one in [one for one in reversed(ordered) if one.priority <= highest][:TRIED_ALONE]:
            alone = leaving | {one.uid: one}
            if not on.refusals(alone):
                yield alone
                return


# Room -----------------------------------------------------------------------------------------------------------------


def settle(state: ClusterState, now: datetime) -> None:
    """Work out what the nominated pods wait for: for devices that they have to be attached, or for room.

    The most important first: what is kept for one is not available to the next.
    """
    pods = [state.pending[uid] for uid in state.unsettled if uid in state.pending]
    state.unsettled.clear()
    for pod in sorted(pods, key=turn_of):
        try:
            _settle(state, pod, now)
        except TimeLimitExceeded:
            log.warning("no room is kept for pod %s/%s: no time is left", pod.metadata.namespace, pod.metadata.name)
        except Exception:
            # The pod has its own turn, and its own error then: it must not block the others.
            log.exception("no room is kept for pod %s/%s", pod.metadata.namespace, pod.metadata.name)


def _settle(state: ClusterState, pod: Pod, now: datetime) -> None:
    node, request = pod.status.nominated_node_name, request_of(state, pod)
    claims = () if isinstance(request, Hold) else request.every_claim
    if claims and all(claim.status.allocation and is_reserved_for_pod(claim, pod) for claim in claims):
        state.residents.put(Resident.of(pod, node))  # it waits for its devices to be attached
        return
    with state.overlay.trying(pod):
        given: Mapping[str, AllocationResult] = {}
        if isinstance(request, Hold):
            request = PodRequest.of(pod, (), state.extended(pod))
        else:
            given = _room(state, request, now)
        is_firm = pod.metadata.uid in state.promises
        state.rooms.keep(request.charged(state.devices.charges, given), node, given, is_firm=is_firm)


def turn_of(pod: Pod) -> tuple[int, tuple[str, str]]:
    """The more important first, then the one that has waited longer."""
    return -(pod.spec.priority or 0), age_of(pod)


def age_of(pod: Pod) -> tuple[str, str]:
    """The lower, the longer it has waited."""
    return pod.metadata.creation_timestamp or "", pod.metadata.uid


def _room(state: ClusterState, request: PodRequest, now: datetime) -> Mapping[str, AllocationResult]:
    """The devices that are kept: first those that come free as pods leave, else those that less important ones hold."""
    node = request.pod.status.nominated_node_name
    view, wanting = state.nodes.view(node), request.wanting_on(state.nodes.allocatable(node))
    if view is None or not wanting:
        return {}
    placed = {one.uid: one for one in state.residents.on(node)}
    leaving = {uid: one for uid, one in placed.items() if state.overlay.is_leaving(one, now)}
    others = {uid: one for uid, one in placed.items() if one.priority <= request.priority}
    snapshot, deadline = state.snapshot(), Deadline.after(ROOM_SECONDS)
    for gone in (leaving, leaving | others):
        outcome = allocate(snapshot.without(freed(state, gone)), wanting, view, deadline=deadline)
        if isinstance(outcome, Allocated):
            return given_to(wanting, outcome)
    return {}


# The commit -----------------------------------------------------------------------------------------------------------


def still_helps(state: ClusterState, request: PodRequest, eviction: PlannedEviction, now: datetime) -> bool:
    """Whether the pod still fits without the victims, and not with them, on a state that has moved on."""
    current = {victim.uid: state.residents.get(victim.uid) for victim in eviction.victims}
    victims = {uid: one for uid, one in current.items() if one is not None and one.node == eviction.node}
    view = state.nodes.view(eviction.node)
    if view is None or len(victims) < len(eviction.victims):
        return False
    others = [one for one in state.residents.on(eviction.node) if one.uid not in victims]
    leaving = {one.uid: one for one in others if state.overlay.is_leaving(one, now)}
    on = OnNode(state, request, view, snapshot=state.snapshot(), deadline=Deadline.after(RECHECK_SECONDS))
    if any(one.going is not None for one in victims.values()) or on.refusals(leaving | victims):
        return False
    return not victims or bool(on.refusals(leaving))


def withdraw_nomination(writer: Writer, loser: Pod) -> None:
    """The pod waits for room that another one gets. Part of the writer's transaction."""
    pod = writer.get(kind(PODS), *loser.key)
    if isinstance(pod, Pod) and pod.metadata.uid == loser.metadata.uid and not pod.spec.node_name:
        writer.update(kind(PODS), nominated(pod, ""), subresource="status")


class PreemptionEvictions:
    """The evictions for one pod, `preemptor`, which make room on `node` (upstream: Executor.PreemptPod).

    A victim that runs is deleted, with its own grace period and a condition that says why; one that only waits for its
    devices to be attached gives them back and waits for others.
    """

    def __init__(self, writer: Writer, *, preemptor: Pod, node: str, now: datetime) -> None:
        self._writer = writer
        self._preemptor = preemptor
        self._node = node
        self._now = now

    def evict(self, victims: Sequence[Resident]) -> None:
        """All of them, or none. Raises: Conflict when one is gone, or another pod by now."""
        pods = [self._read(victim) for victim in victims]
        if pods:
            PREEMPTION_VICTIMS.observe(len(pods))
        self._writer.load(kind(EVENTS), [event_recorder.key_of(self._note(pod)) for pod in pods])
        scheduler = self._preemptor.spec.scheduler_name or messages.SCHEDULER_NAME
        for pod, victim in zip(pods, victims, strict=True):
            if pod.spec.node_name:
                disrupt(self._writer, pod, preemption_by(scheduler), now=self._now, note=self._note(pod))
            else:
                event_recorder.record(self._writer, self._note(pod), now=self._now)
                self._send_back(pod, victim.claims)

    def _read(self, victim: Resident) -> Pod:
        pod = self._writer.get(kind(PODS), victim.namespace, victim.name)
        if isinstance(pod, Pod) and pod.metadata.uid == victim.uid and pod.metadata.deletion_timestamp is None:
            return pod
        raise Conflict.of(PODS, victim.name, "the pod has changed in the meantime")

    def _send_back(self, pod: Pod, claims: Iterable[Key]) -> None:
        uid = pod.metadata.uid
        waiting = nominated(extended_resources.without_claim(pod), "")
        self._writer.update(kind(PODS), waiting, subresource="status")
        for key in claims:
            claim = self._writer.get(kind(CLAIMS), *key)
            if not isinstance(claim, ResourceClaim):
                continue
            if owner_uid(claim) == uid:
                extended_resources.give_back(self._writer, claim)
            else:
                kept = not_reserved(claim, uid)
                self._writer.update(kind(CLAIMS), kept if kept.status.reserved_for else deallocated(claim))

    def _note(self, pod: Pod) -> EventNote:
        return EventNote(
            regarding=pod,
            reason="Preempted",
            message=f"Preempted by pod {self._preemptor.metadata.uid} on node {self._node}",
            component=messages.SCHEDULER_NAME,
            action="Preempting",
            related=self._preemptor,
        )


#: Seconds of processor time for finding out which part of a selector refuses the devices. After that the message names
#: the selector alone.
EXPLAIN_SECONDS = 0.03
#: Seconds for one search for victims, and for all of a batch.
SEARCH_SECONDS = 0.05
BATCH_SECONDS = 0.1
#: Seconds for a search that only its reader waits for.
PREVIEW_SECONDS = 1.0
#: Victims that a message names.
NAMED = 8

_ENCODE = msgspec.json.Encoder().encode
_VerdictT = TypeVar("_VerdictT", bound=Placement | Wait | Retry)

# Refusals -------------------------------------------------------------------------------------------------------------


def refused_outright(state: ClusterState, pod: Pod, hold: Hold) -> Wait:
    """The pod's own reason stands in place of the nodes' reasons."""
    if Reason.GATED in hold.reasons:
        return Wait(pod=pod, hold=hold, condition=SCHEDULING_GATED)
    nodes = len(state.nodes)
    unhelpful = None
    if nodes and not hold.reasons & (Reason.CLAIM_MISSING | Reason.GROUP):
        unhelpful = Unhelpful(nodes=((PreemptionNotHelpful(), nodes),))
    cause = NoNodeFits(
        nodes=nodes, because=cast("OfPod", hold.cause), preemption=unhelpful, without_claims=unhelpful is not None
    )
    return Wait(pod=pod, hold=Hold(reasons=hold.reasons, awaited=hold.awaited, cause=cause))


def refused_by_nodes(
    state: ClusterState,
    request: PodRequest,
    filtered: FilterResult,
    refusals: Mapping[str, Unallocatable | AllocationFailed | Undecided],
    remedies: Remedies | None,
) -> Wait | Retry:
    """No node is left: the reason of each, and the remedy, if there is one."""
    reasons = Reason.NODE if not len(state.nodes) else Reason(0)
    of_nodes: dict[str, Sequence[OfNode]] = dict(filtered.refused)
    for refused in filtered.refused.values():
        for refusal in refused:
            reasons |= REASON_OF_PLUGIN.get(refusal.plugin, Reason.NODE)
    for name, outcome in refusals.items():
        of_nodes[name] = [outcome.cause]
        reasons |= Reason.ERROR if isinstance(outcome, Undecided) else Reason.DEVICES
    with PluginRun("PostFilter", "DynamicResources") as run:
        idle = filtered.idle_claim(partial(state.is_idle_but_for, request.pod))
        run.status = "Unschedulable" if idle is None else "Success"
    remedy = Remedy()
    if idle is None and remedies is not None and of_nodes:
        with PluginRun("PostFilter", "DefaultPreemption") as run:
            remedy = remedies.for_pod(state, request, of_nodes)
            run.status = "Unschedulable" if remedy.eviction is None else "Success"
        if remedy.postponed:
            return Retry(pod=request.pod, untried=True)
        if remedy.held is not None:
            return refused_outright(state, request.pod, remedy.held)
    cause = NoNodeFits(
        nodes=len(state.nodes),
        refused=counted(of_nodes.values()),
        because=_because([one for one in refusals.values() if isinstance(one, Unallocatable)]),
        deallocated=idle is not None,
        without_claims=not request.has_claims,
        preemption=remedy.cause,
        room=remedy.nominate if remedy.eviction is None else "",
    )
    awaited = {claim_key(claim.metadata.namespace, claim.metadata.name) for claim in filtered.elsewhere}
    awaited |= {f"{RESOURCE_KEY}{name}" for name in extended_names(request.pod)}
    if uses_volume_claims(request.pod):
        awaited |= {volume_claim_key(*key) for key in keys_of_claims(request.pod)}
    hold = Hold(reasons=reasons, awaited=frozenset(awaited), cause=cause)
    return Wait(
        pod=request.pod,
        hold=hold,
        deallocate=() if idle is None else (idle,),
        nominate=remedy.nominate,
        withdrawn=remedy.withdrawn,
        eviction=remedy.eviction,
        again=remedy.again,
    )


def _because(refusals: Sequence[Unallocatable]) -> OfDevices | None:
    limit = Deadline.after_work(EXPLAIN_SECONDS)
    try:
        with time_limit(limit):
            return overall(refusals)
    except TimeLimitExceeded as error:
        if error.deadline is not limit:
            raise
        return None


# Negotiations: drivers decide about claims of the pod -----------------------------------------------------------------


def refused_before_nodes(state: ClusterState, pod: Pod, hold: Hold) -> Wait:
    """`refused_outright`, without a deadlock: of two pods without a node, one of which needs what the other has, the
    later gives back what drivers have reserved for it. In every ring of such pods one is later than the one for which
    it waits. (KEP-3063's pseudo-code picks what to deallocate at random.)
    """
    refusal = refused_outright(state, pod, hold)
    if not state.extensions or not isinstance(hold.cause, ClaimInUse):
        return refusal
    needed = [
        (reference, claim)
        for reference in references(pod)
        if reference.claim and (claim := state.claim(pod.metadata.namespace, reference.claim))
    ]
    users = (user.uid for _, claim in needed if not can_be_reserved(claim) for user in claim.status.reserved_for)
    waiting = (other for uid in users if (other := state.pending.get(uid)) is not None)
    if not any(turn_of(other) < turn_of(pod) for other in waiting):
        return refusal
    given_up = [
        claim
        for one, claim in needed
        if not one.generated and is_reserved_for(claim, pod.metadata.uid) and is_allocated_by_controller(claim)
    ]
    given_up = [claim for claim in given_up if state.is_idle_but_for(pod, claim)]
    negotiations = state.negotiations(pod, [claim for _, claim in needed])
    refusal = replace(refusal, deallocate=tuple(given_up))
    return refusal if isinstance(negotiations, Hold) else during_negotiations(refusal, negotiations)


def refused_while_negotiating(state: ClusterState, pod: Pod, negotiating: StillNegotiating) -> Wait:
    """No node can be chosen yet; the writes are assumed, so that the next pod sees them."""
    state.overlay.say(negotiating.writes)
    return replace(refused_outright(state, pod, negotiating.hold), writes=negotiating.writes)


def during_negotiations(verdict: _VerdictT, negotiations: Sequence[Negotiation]) -> _VerdictT | Wait:
    """`verdict`; a refusal also waits for what the drivers do, which are notified of what the pod gives back."""
    if not isinstance(verdict, Wait):
        return verdict
    hold, awaited = verdict.hold, frozenset[str]().union(*(one.awaited for one in negotiations))
    if awaited:
        hold = replace(hold, reasons=hold.reasons | Reason.NEGOTIATION, awaited=hold.awaited | awaited)
    notices = (write for one in negotiations for write in one.giving_back(verdict.deallocate))
    return replace(verdict, hold=hold, writes=(*verdict.writes, *notices))


# Remedies -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What is done for a pod that fits nowhere. cause: for its message. nominate: where room is made or kept for it."""

    cause: OfPreemption | None = None
    nominate: str = ""
    eviction: PlannedEviction | None = None
    #: pods whose room it takes over
    withdrawn: tuple[Pod, ...] = ()
    again: bool = False
    postponed: bool = False
    #: its devices would exceed a quota: no pod is evicted for it
    held: Hold | None = None


class SearchProgress(NamedTuple):
    """How far a search has come. skip: candidates tried without success; since: the revision that it saw."""

    skip: int
    since: int


class UnfinishedSearches:
    """Searches that ran out of time, by what is searched and the uid of the pod (of a gang, the first) for which."""

    def __init__(self) -> None:
        self._progress: dict[tuple[str, str], SearchProgress] = {}

    def __len__(self) -> int:
        return len(self._progress)

    def resume(self, what: str, uid: str, state: ClusterState) -> SearchProgress:
        """Where to go on: once, then the search begins at the first candidate again."""
        return self._progress.pop((what, uid), None) or SearchProgress(0, state.revision)

    def interrupt(self, what: str, uid: str, progress: SearchProgress) -> None:
        self._progress[what, uid] = progress

    def keep(self, uids: Container[str]) -> None:
        """Forget those for other pods than these."""
        self._progress = {key: progress for key, progress in self._progress.items() if key[1] in uids}


def was_overtaken(state: ClusterState, progress: SearchProgress) -> bool:
    """Whether a search that has gone on from there may have missed something: what it was refused first came free."""
    if not progress.skip:
        return False
    news = state.news_after(progress.since)
    return news is None or bool(Wakes(news).anywhere & (Reason.RESOURCES | Reason.DEVICES | Reason.NODE))


@dataclass(slots=True, kw_only=True)
class Remedies:
    """The remedies of one batch. searches: what its searches go on from; outlives the batch."""

    now: datetime
    searches: UnfinishedSearches = field(default_factory=UnfinishedSearches)
    #: for all of its searches; set by the first one, which always has its turn
    deadline: Deadline | None = None
    hopeless: dict[Hashable, Unhelpful] = field(default_factory=dict)
    #: whether room is kept for pods that have waited longest, without evictions
    keeps_room: bool = True

    def for_pod(self, state: ClusterState, request: PodRequest, refusals: Refusals) -> Remedy:
        """refusals: why each node refuses the pod. An eviction, or room, is assumed."""
        why_not = ineligible(state, request, self.now)
        if why_not is Ineligible.WAITING:
            return Remedy(cause=NotEligible(why_not), nominate=request.pod.status.nominated_node_name)
        result: PlannedEviction | OfPreemption
        if why_not is not None:
            result = NotEligible(why_not)
        else:
            unhelpful = self._without_search(state, request, refusals)
            if unhelpful is None and self._time_is_up:
                return Remedy(postponed=True)
            result = unhelpful or self._search(state, request, refusals)
        if isinstance(result, PlannedEviction):
            held = state.quotas.hold_after(request.pod, request.wanting, result.allocations)
            return Remedy(held=held) if held is not None else self._evict(state, request, result)
        return self._wait(state, request, refusals, result)

    @property
    def _time_is_up(self) -> bool:
        return self.deadline is not None and self.deadline.has_passed

    # Evicting --------------------------------------------------------------------------------------------------------

    def _without_search(self, state: ClusterState, request: PodRequest, refusals: Refusals) -> Unhelpful | None:
        """Where it is clear that no eviction helps."""
        node = request.pod.status.nominated_node_name
        waits = any(state.overlay.is_leaving(one, self.now) for one in state.residents.on(node)) if node else False
        if not waits and not state.residents.any_below(request.priority):
            return nobody_to_evict(refusals, devices=devices_are_preempted())
        return self.hopeless.get(gist_of(state, request))

    def _search(self, state: ClusterState, request: PodRequest, refusals: Refusals) -> PlannedEviction | OfPreemption:
        PREEMPTION_ATTEMPTS.inc()
        self.deadline = self.deadline or Deadline.after_work(BATCH_SECONDS)
        uid = request.pod.metadata.uid
        progress = self.searches.resume("victims", uid, state)
        search = _search_for_victims(state, request, self.now, SEARCH_SECONDS)
        search.skip = progress.skip
        result = search.run(refusals)
        if search.skip:
            self.searches.interrupt("victims", uid, progress._replace(skip=search.skip))
        elif isinstance(result, Unhelpful) and was_overtaken(state, progress):
            return NotEligible(Ineligible.UNDECIDED)  # the first candidates may help by now
        if isinstance(result, Unhelpful):
            self.hopeless[gist_of(state, request)] = result
        return result

    def _evict(self, state: ClusterState, request: PodRequest, eviction: PlannedEviction) -> Remedy:
        taking = request.charged(state.devices.charges, eviction.allocations)
        leaving = [victim.uid for victim in eviction.victims]
        state.overlay.nominate(taking, eviction.node, eviction.allocations, leaving)
        cause = eviction_cause(eviction, sees=request.pod.metadata.namespace.__eq__)
        return Remedy(cause=cause, nominate=eviction.node, eviction=eviction)

    # Waiting ---------------------------------------------------------------------------------------------------------

    def _wait(self, state: ClusterState, request: PodRequest, refusals: Refusals, why: OfPreemption) -> Remedy:
        """No pod is evicted. It may be the pod's turn to have room kept."""
        again = isinstance(why, NotEligible) and why.because is Ineligible.UNDECIDED
        if again or self._time_is_up:
            return Remedy(cause=why, nominate=request.pod.status.nominated_node_name, again=again)
        others = self._waiting_alike(state, request)
        first = self._is_patient(state, request) and not any(age_of(other) < age_of(request.pod) for other in others)
        if not self.keeps_room or not first:
            return Remedy(cause=why)
        node = self._room(state, request, refusals, others)
        return Remedy(cause=why, nominate=node, withdrawn=others if node else ())

    def _waiting_alike(self, state: ClusterState, request: PodRequest) -> tuple[Pod, ...]:
        """The others of its priority for which room is kept without evictions."""
        return tuple(
            room.pod
            for room in state.rooms.all()
            if room.priority == request.priority
            and room.pod.metadata.uid != request.pod.metadata.uid
            and not any(state.overlay.is_leaving(one, self.now) for one in state.residents.on(room.node))
        )

    def _room(self, state: ClusterState, request: PodRequest, refusals: Refusals, instead_of: Sequence[Pod]) -> str:
        """The node on which room is kept for a pod that has waited long; "" where there is none."""
        search = VictimSearch(
            state=state,
            request=request,
            now=self.now,
            seconds=SEARCH_SECONDS,
            below=request.priority + 1,
            by_number=True,
        )
        room = search.run(refusals)
        if not isinstance(room, PlannedEviction):
            return ""
        if state.quotas.hold_after(request.pod, request.wanting, room.allocations) is not None:
            return ""
        state.overlay.withdraw(instead_of)
        taking = request.charged(state.devices.charges, room.allocations)
        state.overlay.nominate(taking, room.node, room.allocations, ())
        return room.node

    def _is_patient(self, state: ClusterState, request: PodRequest) -> bool:
        meta, patience = request.pod.metadata, settings.SCHEDULER_FAIRNESS
        created = meta.creation_timestamp
        if state.shares is not None and not state.shares.has_the_turn(meta.namespace, request.priority):
            return False
        if not created or not patience:
            return False
        return self.now - datetime.fromisoformat(created) >= timedelta(seconds=patience)


def devices_are_preempted() -> bool:
    """While the gate is off, preemption helps no pod that lacks devices, as in Kubernetes 1.36."""
    return gates.enabled("DRAPreemption")


def _search_for_victims(state: ClusterState, request: PodRequest, now: datetime, seconds: float) -> VictimSearch:
    return VictimSearch(
        state=state,
        request=request,
        now=now,
        seconds=seconds,
        below=request.priority,
        devices=devices_are_preempted(),
    )


def preview(
    state: ClusterState, request: PodRequest, refusals: Refusals, now: datetime
) -> PlannedEviction | OfPreemption:
    """What would be done for a pod that fits nowhere; nothing is assumed."""
    why_not = ineligible(state, request, now)
    if why_not is not None:
        return NotEligible(why_not)
    if not state.residents.any_below(request.priority):
        return nobody_to_evict(refusals, devices=devices_are_preempted())
    return _search_for_victims(state, request, now, PREVIEW_SECONDS).run(refusals)


def eviction_cause(eviction: PlannedEviction, *, sees: Callable[[str], bool]) -> Evicting:
    """sees: whether the reader may see the pods of a namespace; those of other namespaces are counted."""
    named = tuple(
        NamedVictim(namespace=one.namespace, name=one.name, priority=one.priority)
        for one in [one for one in eviction.victims if sees(one.namespace)][:NAMED]
    )
    return Evicting(node=eviction.node, victims=named, more=len(eviction.victims) - len(named))


def gist_of(state: ClusterState, request: PodRequest) -> Hashable:
    """Equal for pods that preemption helps alike; its own for one whose neighbours or claims matter."""
    pod = request.pod
    if request.held or state.nodes.neighbours.may_refuse(pod):
        return pod.metadata.uid
    wanted = _ENCODE([claim.spec.devices for claim in request.wanting])
    return request.priority, verdict_key(node_fit.needs_of(pod)), wanted
