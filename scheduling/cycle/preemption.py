"""Preemption: which pods would have to go so that a more important one fits, and the room that is kept for it then.

On a node where nothing but pods speaks against the pod, all that are less important leave at first, in thought, and
come back in the order of their importance as long as the pod still fits: of those that stay away all are needed. Those
whose disruption budget does not let them go come back first (`scheduling.state.budgets`).
The node with the cheapest victims is chosen: the fewest whom no budget lets go, then the lowest highest priority, the
smallest sum, the fewest, those that started last. Nodes are looked at by the cheapest that they could come to, so the
search ends when no other can win.
Devices are asked for by the allocator itself, on a snapshot without what the victims' claims hold; a claim that others
share is given back only when all who hold it go. Pods that are on their way out count as gone, whoever they are: where
that is enough, nobody is evicted.

The search changes nothing. `settle` works out, after a start too, what the nominated pods of a state wait for.
Sources: pkg/scheduler/framework/preemption/preemption.go (pickOneNodeForPreemption), plugins/defaultpreemption
(SelectVictimsOnNode) of 1.36; devices are preempted with the gate DRAPreemption of 1.37.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from msgspec import structs

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
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.pod_claims import is_reserved_for_pod
from manciple.wire.limits import TimeLimitExceeded
from scheduling.allocator import (
    Allocated,
    Deadline,
    NodeView,
    Snapshot,
    allocate,
    is_allocatable,
    read_claims,
)
from scheduling.claims.extended_resources import Extended, SpecialClaim
from scheduling.cycle.decisions import Placement
from scheduling.queue.reasons import Hold
from scheduling.state.cluster import ClusterState
from scheduling.state.node_charges import NodeCharges
from scheduling.state.nodes import fewest_of
from scheduling.state.residents import FREE, PlannedEviction, Price, Resident, Supply, cost_of, least_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A pod that asks for a node. wanting, held: its claims without and with devices.

    extended: what it asks for by the names of extended resources that devices serve.
    """

    pod: Pod
    #: those of its spec, in that order
    claims: tuple[ResourceClaim, ...] = ()
    wanting: tuple[ResourceClaim, ...] = ()
    held: tuple[ResourceClaim, ...] = ()
    extended: Extended | None = None

    @classmethod
    def of(cls, pod: Pod, claims: Iterable[ResourceClaim], extended: Extended | None = None) -> Asking:
        known = tuple(claims)
        held = tuple(claim for claim in known if claim.status.allocation is not None)
        return cls(
            pod=pod,
            claims=known,
            wanting=tuple(claim for claim in known if claim.status.allocation is None),
            held=held if extended is None else (*held, *extended.held),
            extended=extended,
        )

    def charged(self, charges: NodeCharges | None, given: Mapping[str, AllocationResult]) -> Pod:
        """The pod with what its devices take of a node. given: claim uid -> what it gets there."""
        return self.pod if charges is None else charges.charged(self.pod, (*self.wanting, *self.held), given)

    def uncharged(self) -> Asking:
        """As before it was given anything: what its devices take of a node is asked for anew."""
        status = self.pod.status
        if not status.node_allocatable_resource_claim_statuses:
            return self
        bare = structs.replace(status, node_allocatable_resource_claim_statuses=())
        return replace(self, pod=structs.replace(self.pod, status=bare))

    @property
    def has_claims(self) -> bool:
        return bool(self.wanting or self.held or self.extended)

    @property
    def is_served(self) -> bool:
        """Whether it needs no devices beside those that it has, on any node."""
        return not self.wanting and (self.extended is None or bool(self.extended.held))

    def special_on(self, allocatable: Mapping[str, str]) -> SpecialClaim | None:
        """The claim for its extended resources on a node with so much to give."""
        return None if self.extended is None else self.extended.claim_on(allocatable)

    def wanting_on(self, allocatable: Mapping[str, str]) -> tuple[ResourceClaim, ...]:
        """The claims that need devices on a node with so much to give."""
        special = None if self.is_served else self.special_on(allocatable)
        if special is None or special.claim.status.allocation is not None:
            return self.wanting
        return (*self.wanting, special.claim)

    def placement_on(
        self, node: str, allocatable: Mapping[str, str], outcome: Allocated | None = None, *, why: str = ""
    ) -> Placement:
        """outcome: what the claims that need devices there are given; None where none does."""
        special = self.special_on(allocatable)
        known = None if self.extended is None else self.extended.known
        return Placement(
            pod=self.pod,
            node=node,
            claims=self.claims if special is None else (*self.claims, special.claim),
            allocations={} if outcome is None else given_to(self.wanting_on(allocatable), outcome),
            special=special,
            outdated=None if special is not None and special.claim is known else known,
            why=why,
        )

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0


log = logging.getLogger(__name__)

#: Of the pods on a node, how many are tried alone where others would go together.
TRIED_ALONE = 16
#: Seconds for finding the devices that are kept for a nominated pod; nobody's turn is counted for that.
ROOM_SECONDS = 0.05

#: node -> what speaks against it: the filters' refusals, or how the search for devices ended
Refusals = Mapping[str, Sequence[OfNode]]


# Who may --------------------------------------------------------------------------------------------------------------


def ineligible(state: ClusterState, asking: Asking, now: datetime) -> Ineligible | None:
    """Why the pod may evict nobody now (upstream: PodEligibleToPreemptOthers)."""
    if asking.pod.spec.preemption_policy == "Never":
        return Ineligible.POLICY
    node = asking.pod.status.nominated_node_name
    if not node or not _could_ever_fit(state, asking, node):
        return None
    lower = (one for one in state.residents.on(node) if one.priority < asking.priority)
    waits = any(state.overlay.is_leaving(one, now) for one in lower)
    return Ineligible.WAITING if waits else None


def _could_ever_fit(state: ClusterState, asking: Asking, node: str) -> bool:
    refusals = state.nodes.refusals_without(asking.pod, node, (), claims=asking.held)
    return all(one.resolvable for one in refusals)


def nobody_to_evict(refusals: Refusals, *, devices: bool) -> Unhelpful:
    """What is told where no pod at all is less important than the one that asks."""
    told: Counter[PreemptionNotHelpful | NoVictims | OfNode] = Counter(
        NoVictims() if can_pass(against, devices=devices) and not _lacks_devices(against) else PreemptionNotHelpful()
        for against in refusals.values()
    )
    return Unhelpful(nodes=tuple(told.most_common()))


def can_pass(against: Iterable[OfNode], *, devices: bool) -> bool:
    """Whether all that speaks against a node could change as pods leave it. devices: whether those are preempted."""
    return all(one.resolvable if isinstance(one, NodeRefusal) else _is_lack(one) and devices for one in against)


def _lacks_devices(against: Iterable[OfNode]) -> bool:
    return any(_is_lack(one) for one in against)


def _is_lack(refusal: OfNode) -> bool:
    """Also where an invalid pool is on the node: other pools may have devices that pods hold."""
    return isinstance(refusal, CannotAllocate) or (isinstance(refusal, Misconfigured) and refusal.fault == Fault.POOL)


# One node -------------------------------------------------------------------------------------------------------------


class OnNode:
    """What one node comes to as pods leave it."""

    def __init__(
        self, state: ClusterState, asking: Asking, view: NodeView, *, snapshot: Snapshot, deadline: Deadline
    ) -> None:
        self._state = state
        self._asking = asking
        self._view = view
        self._snapshot = snapshot
        self._deadline = deadline
        self._wanting = asking.wanting_on(state.nodes.allocatable(view.name))
        self._plans = read_claims(snapshot, self._wanting)

    def refusals(self, gone: Mapping[str, Resident], *, hopeless: bool = False) -> Sequence[OfNode]:
        """What still speaks against the node without these pods (uid -> pod); nothing where the asking pod fits.

        hopeless: it is known that there are too few devices.
        """
        asking, name = self._asking, self._view.name
        refused = self._state.nodes.refusals_without(asking.pod, name, gone.keys(), claims=asking.held)
        if refused or not (self._wanting or self._state.devices.charges):
            return refused
        if hopeless:
            return (CannotAllocate(),)
        left = self._snapshot.without(freed(self._state, gone))
        found = not self._wanting or is_allocatable(left, self._plans, self._view, deadline=self._deadline)
        if found and self._state.devices.charges is not None:
            return self._overcharged(left, gone, self._state.devices.charges)
        return () if found else (CannotAllocate(),)

    def _overcharged(self, left: Snapshot, gone: Mapping[str, Resident], charges: NodeCharges) -> Sequence[OfNode]:
        """What speaks against the node once the devices' own share of it is counted."""
        asking = self._asking
        outcome = allocate(left, self._wanting, self._view, deadline=self._deadline)
        if not isinstance(outcome, Allocated):
            return (CannotAllocate(),)
        charged = charges.charged(asking.pod, (*self._wanting, *asking.held), given_to(self._wanting, outcome))
        return self._state.nodes.refusals_without(charged, self._view.name, gone.keys(), claims=asking.held)

    def eviction(self, gone: Mapping[str, Resident], victims: Iterable[Resident]) -> PlannedEviction | None:
        """None where the allocator's results do not hold what its search found."""
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
    """What comes free when these pods (by uid) go: of claims that nobody else uses."""
    for key in {key for one in gone.values() for key in one.claims}:
        claim = state.claim(*key)
        allocation = claim.status.allocation if claim is not None else None
        if claim is None or allocation is None:
            continue
        users = claim.status.reserved_for
        if users and all(user.uid in gone for user in users):
            yield allocation


def given_to(claims: Iterable[ResourceClaim], outcome: Allocated) -> dict[str, AllocationResult]:
    """claim uid -> what it gets."""
    return {claim.metadata.uid: one for claim, one in zip(claims, outcome.results, strict=True)}


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
    """Which victims would make room. below: pods of a lower priority than this may be among them.

    seconds: by the clock, for looking at candidates. Finding out who is one takes what it takes: a search of thousands
    of nodes would never come to look at any. devices: whether devices are preempted. by_number: the fewest are the
    cheapest, whoever they are. skip: candidates that an earlier search has looked at without success; after the search,
    with those of this one, or 0 at its end. stopped: the time was up before any was found.
    """

    state: ClusterState
    asking: Asking
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
        """refusals: what speaks against each node that does not take the pod as things are."""
        told: Counter[PreemptionNotHelpful | NoVictims | OfNode] = Counter()
        candidates = []
        self._supply = Supply(self.state.snapshot(), self.asking.wanting, self.state.claim)
        for name, against in refusals.items():
            found = self._candidate(name, against)
            if isinstance(found, _Candidate):
                candidates.append(found)
            else:
                told[found] += 1
        candidates.sort(key=lambda one: (one.bound, one.view.name))
        self._deadline = Deadline.after(self.seconds, clock=self.clock)
        best = self._best(candidates, told)
        if self.stopped:
            return NotEligible(Ineligible.UNDECIDED)
        return best or Unhelpful(nodes=tuple(told.most_common()))

    def _candidate(self, name: str, against: Sequence[OfNode]) -> _Candidate | PreemptionNotHelpful | NoVictims:
        view = self.state.nodes.view(name)
        if view is None or not can_pass(against, devices=self.devices):
            return PreemptionNotHelpful()
        leaving, victims = [], []
        for one in self.state.residents.on(name):
            if self.state.overlay.is_leaving(one, self.now):
                leaving.append(one)
            elif one.priority < self.below and one.going is None:
                victims.append(one)
        if not leaving and not victims:
            return PreemptionNotHelpful() if _lacks_devices(against) else NoVictims()
        bound, held = (0, *FREE), [self._supply.held_by(one) for one in (*leaving, *victims)]
        short = self._supply.short_on(view)
        if not leaving and not self.by_number:
            number = max(1, fewest_of(held, short))
            if any(isinstance(one, NodeRefusal) for one in against):
                uids = [one.uid for one in victims]
                number = max(number, self.state.nodes.fewest_to_leave(self.asking.pod, name, uids))
            number = min(number, len(victims))
            bound = (self.state.guard.least(victims, number), *least_cost(victims, number))
        return _Candidate(
            view=view, leaving=tuple(leaving), victims=tuple(victims), bound=bound, hopeless=sum(held) < short
        )

    def _best(
        self, candidates: Sequence[_Candidate], told: Counter[PreemptionNotHelpful | NoVictims | OfNode]
    ) -> PlannedEviction | None:
        """The cheapest; `told`: why the others are none."""
        best: PlannedEviction | None = None
        snapshot = self.state.snapshot()
        done, self.skip, self.stopped = self.skip, 0, False
        for at, candidate in enumerate(candidates):
            if best is not None and best.price <= candidate.bound:
                break
            if at < done:
                told[CannotAllocate()] += 1
                continue
            found = None if self._deadline.has_passed else self._on(candidate, snapshot)
            cut_short = at > done and self._deadline.has_passed  # the first one has had all the time that there is
            if isinstance(found, PlannedEviction):
                if best is None or (self._weight(found), found.node) < (self._weight(best), best.node):
                    best = found
            elif found is None or cut_short:
                self.stopped = best is None
                self.skip = at if self.stopped else 0
                break
            else:
                told.update(found)
        return best

    def _weight(self, eviction: PlannedEviction) -> tuple[float, ...]:
        return (len(eviction.victims),) if self.by_number else eviction.price

    def _price(self, victims: Sequence[Resident]) -> Price:
        return self.state.guard.violations(victims), *cost_of(victims)

    def _on(self, candidate: _Candidate, snapshot: Snapshot) -> PlannedEviction | Sequence[OfNode]:
        on = OnNode(self.state, self.asking, candidate.view, snapshot=snapshot, deadline=self._deadline)
        leaving = {one.uid: one for one in candidate.leaving}
        everybody = leaving | {one.uid: one for one in candidate.victims}
        if refused := on.refusals(everybody, hopeless=candidate.hopeless):
            return refused[:1]
        best: Sequence[Resident] | None = None
        for gone in self._sets(on, candidate, everybody):
            if self._deadline.has_passed:
                break  # somebody may be among them who could have stayed
            needed = [one for uid, one in gone.items() if uid not in leaving]
            if best is None or self._price(needed) < self._price(best):
                best = needed
        found = None if best is None else on.eviction(leaving | {one.uid: one for one in best}, best)
        return found or (CannotAllocate(),)

    def _sets(
        self, on: OnNode, candidate: _Candidate, everybody: dict[str, Resident]
    ) -> Iterator[Mapping[str, Resident]]:
        """Who could go, those who leave anyhow with them. First as Kubernetes has it; then by importance alone where
        that kept some for their budget, which may let the least important of its pods go; then, where it takes several,
        with those back first who hold the least, so that one who holds much goes rather than several who hold little;
        then each alone.
        """
        leaving, by_importance = {one.uid: one for one in candidate.leaving}, sorted(candidate.victims, key=_importance)
        against = self.state.guard.violating(by_importance)
        ordered = sorted(by_importance, key=lambda one: one.uid not in against)
        first = on.spare(everybody, ordered)
        yield first
        if against:
            yield on.spare(everybody, by_importance)
        if len(first) - len(leaving) <= 1:
            return
        by_use = sorted(ordered, key=lambda one: (one.uid not in against, -one.priority, len(one.claims)))
        yield on.spare(everybody, by_use)
        highest = max(one.priority for uid, one in first.items() if uid not in leaving)
        for one in [one for one in reversed(ordered) if one.priority <= highest][:TRIED_ALONE]:
            alone = leaving | {one.uid: one}
            if not on.refusals(alone):
                yield alone
                return


# Room -----------------------------------------------------------------------------------------------------------------


def settle(state: ClusterState, now: datetime) -> None:
    """Work out what the nominated pods wait for: for devices that they have to be attached, or for room.

    The most important first: what is kept for one is not there for the next.
    """
    pods = [state.pending[uid] for uid in state.unsettled if uid in state.pending]
    state.unsettled.clear()
    for pod in sorted(pods, key=lambda one: (-(one.spec.priority or 0), age_of(one))):
        try:
            _settle(state, pod, now)
        except TimeLimitExceeded:
            log.warning("no room is kept for pod %s/%s: no time is left", pod.metadata.namespace, pod.metadata.name)
        except Exception:
            # The pod has its own turn, and its own error then: the others are not to wait for that.
            log.exception("no room is kept for pod %s/%s", pod.metadata.namespace, pod.metadata.name)


def _settle(state: ClusterState, pod: Pod, now: datetime) -> None:
    claims = state.pre_filter(pod)
    extended = state.extended(pod)
    if not isinstance(claims, Hold) and _waits_for_attachment(pod, (*claims, *(extended.held if extended else ()))):
        state.residents.put(Resident.of(pod, pod.status.nominated_node_name))
        return
    with state.overlay.trying(pod):
        asking = Asking.of(pod, () if isinstance(claims, Hold) else claims, extended)
        given = {} if isinstance(claims, Hold) else _room(state, asking, now)
        state.rooms.keep(asking.charged(state.devices.charges, given), pod.status.nominated_node_name, given)


def age_of(pod: Pod) -> tuple[str, str]:
    """Less has waited for longer."""
    return pod.metadata.creation_timestamp or "", pod.metadata.uid


def _waits_for_attachment(pod: Pod, claims: Sequence[ResourceClaim]) -> bool:
    return bool(claims) and all(claim.status.allocation and is_reserved_for_pod(claim, pod) for claim in claims)


def _room(state: ClusterState, asking: Asking, now: datetime) -> Mapping[str, AllocationResult]:
    """The devices that are kept: first those that come free as pods leave, else those that less important ones hold."""
    node = asking.pod.status.nominated_node_name
    view, wanting = state.nodes.view(node), asking.wanting_on(state.nodes.allocatable(node))
    if view is None or not wanting:
        return {}
    everybody = {one.uid: one for one in state.residents.on(node)}
    leaving = {uid: one for uid, one in everybody.items() if state.overlay.is_leaving(one, now)}
    others = {uid: one for uid, one in everybody.items() if one.priority <= asking.priority}
    snapshot, deadline = state.snapshot(), Deadline.after(ROOM_SECONDS)
    for gone in (leaving, leaving | others):
        outcome = allocate(snapshot.without(freed(state, gone)), wanting, view, deadline=deadline)
        if isinstance(outcome, Allocated):
            return given_to(wanting, outcome)
    return {}
