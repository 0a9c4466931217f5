"""Preemption: which pods have to leave so that a more important one fits, the room that is kept for it, their eviction.

On a node where only pods are in the way, all that are less important are removed first, in the search alone, and put
back in the order of their importance as long as the pod still fits: all that stay away are needed. Those whose
disruption budget does not allow their eviction are put back first (`scheduling.state.budgets`).
The node with the cheapest victims is chosen: the fewest that break a budget, then the lowest highest priority, the
smallest sum, the fewest, those that started last. Nodes are tried by a lower bound of their price, so the search ends
when no other can win.
Devices are searched by the allocator itself, on a snapshot without what the victims' claims hold; a claim that others
share is freed only when all that hold it leave. Pods that are terminating count as gone, whatever their priority: where
that is enough, no pod is evicted.

The search changes nothing. `settle` works out, also after a start, what the nominated pods of a state wait for.
Sources: pkg/scheduler/framework/preemption/preemption.go (pickOneNodeForPreemption), plugins/defaultpreemption
(SelectVictimsOnNode) of 1.36; devices are preempted with the gate DRAPreemption of 1.37.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from claims import event_recorder
from claims.causes import messages
from claims.causes.causes import (
    CannotAllocate,
    Fault,
    Ineligible,
    Misconfigured,
    NodeRefusal,
    NotEligible,
    NoVictims,
    OfNode,
    PreemptionNotHelpful,
    Unhelpful,
)
from claims.controllers.reservations import deallocated, not_reserved
from claims.event_recorder import EventNote
from claims.evictions import disrupt, preemption_by
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.pod_claims import is_reserved_for_pod
from manciple.store.objects import Writer
from manciple.wire.errors import Conflict
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import CLAIMS, EVENTS, PODS, Key, kind
from scheduling.allocator import (
    Allocated,
    Deadline,
    NodeView,
    RequestPlan,
    Snapshot,
    allocate,
    free_on,
    is_allocatable,
    read_claims,
)
from scheduling.claims import extended_resources
from scheduling.claims.extended_resources import owner_uid
from scheduling.claims.readiness import PodRequest, given_to, request_of
from scheduling.metrics import PREEMPTION_VICTIMS
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import nominated
from scheduling.state.cluster import ClusterState
from scheduling.state.node_charges import NodeCharges
from scheduling.state.nodes import FREE, PlannedEviction, Price, Resident, cost_of, fewest_of, least_cost

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
        state.rooms.keep(request.charged(state.devices.charges, given), node, given)


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
