"""`place`: the best node for all claims of a pod, over all the nodes that are given.

A fatal error that any node's ordered search reaches keeps the pod pending with that error, even if other nodes would
do, and whatever the order of the nodes (the first node by name reports its error). Otherwise the best node that fits
wins: earlier alternatives of prioritized lists first, then the placement policy (`Score`), then the order by name. An
undecided search on one node does not hide a node that fits; if none fits, the answer is undecided, too.

1. The index (`NodeIndex`) gives the nodes that have enough devices for every request by itself, and the policy puts
   them in order.
2. They are tried, best first: the short way (`first_devices`) or, if that cannot decide, by a search. The first node
   that has a solution is the answer (`first_fit`).
3. If none has one, what was proven of the nodes on the way is kept (`Refuted`), so that they need no second search when
   someone asks why each was refused.

Every node is searched, without the index, if an error could come up, or if the claims request all devices or have more
than one list of alternatives.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from inventory.kinds.nodes import NodeSelector
from manciple.wire.limits import Deadline, TimeLimitExceeded, check_time, time_limit
from scheduling.allocator.allocation import (
    answer,
    claim_configuration,
    node_selector,
    read_claims,
    shared_result,
)
from scheduling.allocator.index import ClaimShape, NodeIndex, Variant, Want, shape_of
from scheduling.allocator.outcome import Allocated, AllocationFailed, Outcome, RequestReason, Unallocatable, Undecided
from scheduling.allocator.problem import (
    AllocationProblem,
    TakenDevices,
    ValueGroups,
    pose,
    sharing,
    value_groups,
    with_room,
)
from scheduling.allocator.published import NodeView, PublishedDevice
from scheduling.allocator.requests import ClaimPlan, RequestPlan, name_of
from scheduling.allocator.search import DEFAULT_LIMIT, DEFAULT_TIMEOUT, NoSolution, Solution, solve
from scheduling.allocator.snapshot import Snapshot, UsageTable, bits, union

_NO_SOLUTION = NoSolution(trials=0)
#: A deadline for what takes no search.
NEVER = Deadline.after(math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A node on which the claims can be met, for a score to judge."""

    node: NodeView
    #: its free devices, before this allocation
    free: int
    #: 0 if its devices are the least rare (`NodeIndex.levels`)
    level: int = 0


class NodeQuery(NamedTuple):
    """Which nodes `place` wants ordered."""

    #: what the pod asks for; its index has followed the snapshot
    variant: Variant
    #: the nodes, as the index numbers them
    among: int
    snapshot: Snapshot
    #: selectors are evaluated under a `time_limit` of it
    deadline: Deadline


class Candidate(NamedTuple):
    """A node that has enough devices for every request by itself, and what the policy knows of it."""

    #: the node, as the index numbers it
    number: int
    #: of each request, the devices that would best serve it, a bit each; empty: any. If these do not meet the requests,
    #: the others are tried, too
    devices: Sequence[int] = ()
    #: what the policy measures and minimises, in its own unit; None if it measures nothing
    cost: float | None = None
    #: the second-best node, and what it would cost there
    next_best: tuple[str, float] | None = None


class Score(Protocol):
    """Which of the nodes that have enough devices is best for a pod: what `place` needs of a placement policy.

    A policy that looks at one node at a time is a `NodeScore`. One that knows more of the nodes (`NodeIndex.memo` keeps
    what it derives) implements this protocol.
    """

    @property
    def prefers(self) -> bool:
        """Whether the pod itself prefers some nodes to others, which comes before the policy."""

    def __call__(self, fit: Fit) -> float:
        """Of one node by itself; the higher the better. For nodes that are compared without an index: those of a
        snapshot that is older than it, and those where an error could come up.
        """

    def candidates(self, query: NodeQuery) -> Iterable[Candidate]:
        """All nodes of `query.among`, the best first. The first that meets `query.variant` gets the pod.

        If the policy proves that a node cannot meet the variant, it may leave the node out after
        `query.variant.give_up(number)`. Raises: TimeLimitExceeded.
        """


@dataclass(frozen=True, slots=True, eq=False)
class NodeScore:
    """A policy that looks at one node at a time. Of nodes with equal scores, the first by name is the best."""

    function: Callable[[Fit], float]
    prefers: bool = False

    def __call__(self, fit: Fit) -> float:
        return self.function(fit)

    def candidates(self, query: NodeQuery) -> Iterable[Candidate]:
        index, levels = query.variant.index, query.variant.levels(by_size=False)
        level_of = {number: at for at, level in enumerate(levels) for number in bits(level & query.among)}
        scored = {
            number: self(Fit(node=index.nodes[number], free=index.free_on(number), level=level_of[number]))
            for number in bits(query.among)
        }
        return map(Candidate, sorted(scored, key=lambda number: -scored[number]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FreeDevicesScore:
    """Scores nodes by their free devices, whose order the index keeps: nodes whose devices others can do without come
    first, with `by_size` those with the smallest devices.
    """

    most_first: bool = False
    by_size: bool = False
    prefers: bool = False

    def __call__(self, fit: Fit) -> float:
        return fit.free if self.most_first else -fit.free

    def candidates(self, query: NodeQuery) -> Iterable[Candidate]:
        variant, among, _, _ = query
        levels = variant.levels(by_size=self.by_size)
        return map(Candidate, variant.index.by_free(among, levels, most_first=self.most_first))


class _FirstNamed(NodeScore):
    def candidates(self, query: NodeQuery) -> Iterable[Candidate]:
        return map(Candidate, bits(query.among))


#: Prefers the node with the fewest free devices, so that others stay whole for larger claims.
most_packed: Score = FreeDevicesScore()
#: Prefers the node with the most free devices, so that pods share as little as possible.
most_spread: Score = FreeDevicesScore(most_first=True)
#: Prefers, among the nodes whose devices have the least sufficient capacity, the most packed one.
best_fitting: Score = FreeDevicesScore(by_size=True)
#: Takes the first node by name, as the reference does.
first_named: Score = _FirstNamed(lambda _fit: 0.0)


# place ----------------------------------------------------------------------------------------------------------------


class NodeChoice(NamedTuple):
    """How a node was chosen."""

    #: its free devices, before this allocation
    free: int
    #: how many nodes had enough devices
    nodes: int
    #: `Candidate.cost` and `Candidate.next_best`
    cost: float | None = None
    next_best: tuple[str, float] | None = None
    #: `Score.prefers`
    prefers: bool = False


#: Why a node does not take the claims.
NodeRefusalOutcome = Unallocatable | AllocationFailed | Undecided


class NodePlacement:
    """The chosen node with its outcome; or, if no node fits, the outcome that most nodes have in common, and `refusals`
    by node name.

    If it is proven that no node fits, both are computed on the first access.
    """

    __slots__ = ("_answer", "_explain", "choice", "node")

    def __init__(
        self,
        *,
        node: NodeView | None,
        outcome: Outcome,
        refusals: Mapping[str, NodeRefusalOutcome] | None = None,
        choice: NodeChoice | None = None,
    ) -> None:
        """choice: how the node was chosen; None if every node was searched."""
        self.node = node
        self.choice = choice
        self._answer: tuple[Outcome, Mapping[str, NodeRefusalOutcome]] = (outcome, refusals or {})
        self._explain: Callable[[], NodePlacement] | None = None

    @classmethod
    def refused(cls, explain: Callable[[], NodePlacement]) -> NodePlacement:
        """No node fits. explain: computes the outcome and the refusals."""
        placement = cls(node=None, outcome=Unallocatable())
        placement._explain = explain
        return placement

    @property
    def fits(self) -> bool:
        """Whether the node has the devices; nothing is computed for that."""
        return self._explain is None and isinstance(self._answer[0], Allocated)

    @property
    def outcome(self) -> Outcome:
        return self._explained()[0]

    @property
    def refusals(self) -> Mapping[str, NodeRefusalOutcome]:
        return self._explained()[1]

    def _explained(self) -> tuple[Outcome, Mapping[str, NodeRefusalOutcome]]:
        if self._explain is not None:
            self._answer, self._explain = self._explain()._answer, None
        return self._answer


class Effort(NamedTuple):
    """How long to search: device trials per node, and until when."""

    limit: int
    deadline: Deadline
    #: the start, by the deadline's clock
    began: float = 0.0

    def solve(self, problem: AllocationProblem) -> Solution | NoSolution | AllocationFailed | Undecided:
        return solve(problem, limit=self.limit, deadline=self.deadline)

    def stopped(self, error: TimeLimitExceeded, claims: Iterable[ResourceClaim]) -> Undecided:
        """The outcome if evaluating the claims' selectors took too long. Raises: the error, if the deadline that has
        passed is a caller's.
        """
        if error.deadline is not self.deadline:
            raise error
        seconds = round(self.deadline.clock() - self.began, 1)
        return Undecided(trials=0, timed_out=True, claims=", ".join(map(name_of, claims)), seconds=seconds)


def place(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    nodes: Sequence[NodeView],
    *,
    score: Score = most_packed,
    limit: int = DEFAULT_LIMIT,
    deadline: Deadline | None = None,
) -> NodePlacement:
    """Choose among `nodes`, which fit in every other respect. The same input gives the same answer, unless the deadline
    passes.

    limit: device trials per node. deadline: for all nodes together; by default DEFAULT_TIMEOUT from now. Fastest with
    the same `NodeView`s (best the same tuple of them) from call to call.
    """
    deadline = deadline or Deadline.after(DEFAULT_TIMEOUT)
    effort = Effort(limit, deadline, deadline.clock())
    try:
        refuted: Refuted | None = None
        indexed = NodeIndex.of(snapshot, nodes)
        if indexed is not None:
            index, among = indexed
            fit = first_fit(snapshot, claims, among, index=index, score=score, effort=effort)
            if isinstance(fit, NodePlacement):
                return fit
            if fit is not None and fit.is_proof:
                search = _FullSearch(snapshot, claims, Effort(limit, NEVER), fit)
                return NodePlacement.refused(partial(search.best, nodes, score))
            refuted = fit
        with time_limit(deadline):
            return _FullSearch(snapshot, claims, effort, refuted).best(nodes, score)
    except TimeLimitExceeded as error:
        stopped = effort.stopped(error, claims)
        return NodePlacement(node=None, outcome=stopped, refusals={node.name: stopped for node in nodes})


# With the index -------------------------------------------------------------------------------------------------------


def first_fit(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    among: int,
    *,
    index: NodeIndex,
    score: Score,
    effort: Effort,
) -> NodePlacement | Refuted | None:
    """The first candidate that meets the claims. None if the index cannot help, so that every node must be searched.

    among: the nodes, as the index numbers them. Raises: TimeLimitExceeded. The deadline is set only around the
    evaluation of selectors: most placements evaluate none.
    """
    shape = shape_of(claims, snapshot, index, deadline=effort.deadline)
    if not shape.variants or shape.errs_on(among):
        return None
    search = _IndexSearch(snapshot, claims, shape, index, effort)
    for variant in shape.variants:
        feasible = variant.feasible(among)
        for candidate in score.candidates(NodeQuery(variant, feasible, snapshot, effort.deadline)):
            number, devices, cost, next_best = candidate
            placement = search.on_node(variant, number, within=devices) if devices else None
            if placement is None:
                placement = search.on_node(variant, number)
            if placement is not None:
                free, nodes = index.free_on(number), feasible.bit_count()
                placement.choice = NodeChoice(free, nodes, cost, next_best, score.prefers)
                return placement
    return Refuted(index, shape, search.undecided)


class _IndexSearch:
    """Tries one node after the other for claims whose shape the index knows."""

    def __init__(
        self,
        snapshot: Snapshot,
        claims: Sequence[ResourceClaim],
        shape: ClaimShape,
        index: NodeIndex,
        effort: Effort,
    ) -> None:
        self._snapshot = snapshot
        self._claims = claims
        self._shape = shape
        self._index = index
        self._effort = effort
        #: node name -> why its search was stopped
        self.undecided: dict[str, Undecided] = {}

    def on_node(self, variant: Variant, number: int, *, within: Sequence[int] = ()) -> NodePlacement | None:
        """None if the node does not meet this variant. No earlier variant can be met on any node.

        within: of each request, the only devices that it may get; empty: any.
        """
        index = self._index
        devices = first_devices(variant, index, number, self._snapshot.usage, within=within)
        if devices is ShapeAnswer.HOPELESS:
            if not within:
                variant.give_up(number)
            return None
        if devices is not ShapeAnswer.UNSURE:
            results = direct_results(self._claims, variant, devices, index=index, number=number)
            if results is not None:
                outcome = Allocated(results=results, trials=sum(map(len, devices)))
                return NodePlacement(node=index.nodes[number], outcome=outcome)
        return self._searched(variant, number, within=within)

    def _searched(self, variant: Variant, number: int, *, within: Sequence[int]) -> NodePlacement | None:
        node = self._index.nodes[number]
        if node.name in self.undecided:
            return None
        if self._effort.deadline.has_passed:
            self.undecided[node.name] = Undecided(trials=0, timed_out=True)
            return None
        used = self._index.used_on(number)
        with time_limit(self._effort.deadline):
            problem = pose(self._snapshot, self._shape.plans(self._claims), node, used=used, within=within)
            solved = problem if isinstance(problem, AllocationFailed) else self._effort.solve(problem)
        if isinstance(solved, AllocationFailed):
            return NodePlacement(node=node, outcome=solved)
        if isinstance(solved, Solution) and isinstance(problem, AllocationProblem):
            is_variant = sum(solved.chosen) == variant.rank
            return NodePlacement(node=node, outcome=answer(problem, solved)) if is_variant else None
        if isinstance(solved, NoSolution) and not within:
            variant.give_up(number)
        elif isinstance(solved, Undecided) and not within:
            self.undecided[node.name] = solved
        return None


class Refuted:
    """Proof that no node meets the claims, except for nodes whose search is undecided."""

    def __init__(self, index: NodeIndex, shape: ClaimShape, undecided: Mapping[str, Undecided]) -> None:
        """undecided: node name -> why its search was stopped."""
        self._index = index
        self._undecided = undecided
        self._refusals = index.refusals_of(shape)
        #: id of the plans of claims of this shape -> what `_counterpart` has for them
        self._counterparts: dict[int, Mapping[RequestPlan, RequestPlan] | None] = {}

    @property
    def is_proof(self) -> bool:
        """Whether no node is undecided."""
        return not self._undecided

    def is_about(self, snapshot: Snapshot) -> bool:
        """Whether the index has not moved on from the snapshot; every placement moves it on."""
        return self._index.age == snapshot.usage.age and self._index.catalogue is snapshot.catalogue

    def verdict(self, node: NodeView) -> NoSolution | Undecided:
        return self._undecided.get(node.name) or _NO_SOLUTION

    def used_on(self, node: NodeView) -> TakenDevices:
        return self._index.used_on(self._index.number_of(node))

    def cached(self, node: NodeView, plans: Sequence[ClaimPlan]) -> Outcome | None:
        """The node's cached refusal of this shape, reworded for these claims; None if what is in use has changed."""
        number = self._index.number_of(node)
        refusal = self._refusals.get(number)
        if refusal is None or refusal[0] != self._index.stamps[number]:
            return None
        _, others, outcome = refusal
        try:
            counterpart = self._counterparts[id(others)]
        except KeyError:
            counterpart = self._counterparts[id(others)] = _counterpart(others, plans)
        if counterpart is None or not isinstance(outcome, Unallocatable):
            return outcome
        reasons = []
        for one in outcome.reasons:
            if one.conflict:
                return None  # a conflict names the claims
            reasons.append(
                RequestReason(
                    plan=counterpart[one.plan],
                    node=one.node,
                    wanted=one.wanted,
                    funnel=one.funnel,
                    progress=one.progress,
                )
            )
        return Unallocatable(reasons=tuple(reasons), trials=outcome.trials, pool_fault=outcome.pool_fault)

    def cache(self, node: NodeView, plans: Sequence[ClaimPlan], outcome: Outcome) -> None:
        if not isinstance(outcome, Undecided):
            number = self._index.number_of(node)
            self._refusals[number] = (self._index.stamps[number], plans, outcome)


def _counterpart(others: Sequence[ClaimPlan], plans: Sequence[ClaimPlan]) -> Mapping[RequestPlan, RequestPlan] | None:
    """The requests of other claims of the same shape -> those of `plans`; None if they are the same claims."""
    if others is plans or [one.name for one in others] == [one.name for one in plans]:
        return None
    theirs, ours = (
        [one for claim in claims for options in claim.requests for one in options] for claims in (others, plans)
    )
    return dict(zip(theirs, ours, strict=True))


# Every node -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FullSearch:
    """Searches every node, or only explains why each refuses the claims."""

    snapshot: Snapshot
    claims: Sequence[ResourceClaim]
    effort: Effort
    #: what the index has proven, if it could
    refuted: Refuted | None

    def best(self, nodes: Sequence[NodeView], score: Score) -> NodePlacement:
        """The best node that fits; otherwise every refusal."""
        fitting: list[tuple[tuple[int, float], AllocationProblem, Solution]] = []
        refusals: dict[str, NodeRefusalOutcome] = {}
        plans = read_claims(self.snapshot, self.claims)
        for node in sorted(nodes, key=lambda one: one.name):
            problem, result = self._on(node, plans)
            if isinstance(result, AllocationFailed):
                return NodePlacement(node=None, outcome=result, refusals={node.name: result})
            if isinstance(result, Solution) and problem is not None:
                fit = Fit(node=node, free=problem.free.bit_count())
                fitting.append(((sum(result.chosen), -score(fit)), problem, result))
            elif isinstance(result, (Unallocatable, Undecided)):
                refusals[node.name] = result
        if not fitting:
            return NodePlacement(node=None, outcome=_commonest(refusals), refusals=refusals)
        _, best, solution = min(fitting, key=lambda one: one[0])
        return NodePlacement(node=best.node, outcome=answer(best, solution))

    def _on(self, node: NodeView, plans: Sequence[ClaimPlan]) -> tuple[AllocationProblem | None, Solution | Outcome]:
        """The node's problem with its solution, or the node's refusal, which may come without a problem."""
        refuted = self.refuted
        current = refuted if refuted is not None and refuted.is_about(self.snapshot) else None
        refusal = current.cached(node, plans) if current else None
        if refusal is not None:
            return None, refusal
        if self.effort.deadline.has_passed:
            return None, Undecided(trials=0, timed_out=True)
        check_time()
        try:
            problem = pose(self.snapshot, plans, node, used=current.used_on(node) if current else None)
        except TimeLimitExceeded as error:
            return None, self.effort.stopped(error, self.claims)
        if isinstance(problem, AllocationFailed):
            return None, problem
        if refuted is None:
            solved = self.effort.solve(problem)
            return problem, solved if isinstance(solved, Solution) else answer(problem, solved)
        refusal = answer(problem, refuted.verdict(node))
        if current is not None:
            current.cache(node, plans, refusal)
        return problem, refusal


def _commonest(refusals: Mapping[str, NodeRefusalOutcome]) -> Outcome:
    """Undecided comes before "no", since it may yet be "yes"; then the refusal that most nodes have in common."""
    undecided = [one for one in refusals.values() if isinstance(one, Undecided)]
    if undecided:
        trials = sum(one.trials for one in undecided)
        return Undecided(trials=trials, timed_out=any(one.timed_out for one in undecided))
    if not refusals:
        return Unallocatable()
    keys = {name: _gist(refusal) for name, refusal in refusals.items()}
    counted = Counter(keys.values())
    commonest = max(counted, key=counted.__getitem__)
    return next(refusal for name, refusal in refusals.items() if keys[name] == commonest)


def _gist(refusal: NodeRefusalOutcome) -> Hashable:
    """What distinguishes refusals, without the cost of their causes."""
    if isinstance(refusal, Unallocatable):
        return tuple((reason.claim, reason.request, reason.progress) for reason in refusal.reasons[:1])
    return refusal.cause


# The short way --------------------------------------------------------------------------------------------------------
#
# `first_devices` finds the devices of one node for requests of exclusive devices and matchAttribute: it takes the
# lowest device that the constraints allow, again and again. What it passes over is proven to be useless, so if it gets
# through, it has found what the search finds first. Otherwise it says whether the node cannot meet the requests
# (counting proves it) or only the search can tell.


class ShapeAnswer(Enum):
    """The short way's answers without devices."""

    HOPELESS = "the node cannot meet the requests as it is now"
    UNSURE = "ask the search"


def first_devices(
    variant: Variant, index: NodeIndex, number: int, usage: UsageTable, *, within: Sequence[int] = ()
) -> list[list[int]] | ShapeAnswer:
    """The positions of the devices for each want, in order. within: of each want, the only devices that it may get;
    empty: any.
    """
    for counts, needed in variant.thresholds:
        has = counts.free_on(number).bit_count()
        if has < needed:
            counts.correct(number, has)
            return ShapeAnswer.HOPELESS
    free = [want.counts.free_on(number) for want in variant.wants]
    if within:
        free = [mask & one for mask, one in zip(free, within, strict=True)]
    special = index.special[number]
    if not variant.is_direct or (special and any(mask & special for mask in free)):
        return _first_shares(variant, index, number, free, usage)
    if not variant.rules:
        return _lowest(variant.wants, free)
    groups = [value_groups(index.devices[number], rule.attribute, index.features) for rule in variant.rules]
    if not _narrow(variant, groups, free):
        return ShapeAnswer.HOPELESS
    return _lowest_alike(variant, groups, free)


def _first_shares(
    variant: Variant, index: NodeIndex, number: int, free: Sequence[int], usage: UsageTable
) -> list[list[int]] | ShapeAnswer:
    """For a single request without constraints, of devices that do not draw on counters."""
    devices = index.devices[number]
    if len(free) != 1 or variant.rules or not variant.is_direct or free[0] & devices.consuming:
        return ShapeAnswer.UNSURE
    plan = variant.wants[0].plan
    shared_out = index.shared_out[number] & sharing(devices, index.features)
    positions = list(islice(bits(with_room(devices, plan, free[0], shared_out=shared_out, usage=usage)), plan.count))
    return [positions] if len(positions) == plan.count else ShapeAnswer.HOPELESS


def direct_results(
    claims: Sequence[ResourceClaim], variant: Variant, chosen: Sequence[Sequence[int]], *, index: NodeIndex, number: int
) -> tuple[AllocationResult, ...] | None:
    """One result per claim, equal to those of `allocation.build_results`; None if only that can build them."""
    devices = index.devices[number]
    conditions = index.features.binding_conditions
    shared = devices.shared if index.features.consumable_capacity else 0
    given: list[list[PublishedDevice]] = [[] for _ in claims]
    entries: list[list[DeviceRequestAllocationResult]] = [[] for _ in claims]
    for want, positions in zip(variant.wants, chosen, strict=True):
        for position in positions:
            device = devices.device(position)
            given[want.claim].append(device)
            result = want.plan.exclusive_result(device, conditions=conditions)
            if shared >> position & 1:
                consumed = device.capacities.consumption(want.plan.capacity)
                result = shared_result(result, claims[want.claim], device, consumed or {})
            entries[want.claim].append(result)
    results = []
    for at, claim in enumerate(claims):
        devices_given = given[at]
        selector: NodeSelector | str | None
        if devices_given and devices_given[0].slice.pinned:
            selector = index.selector(number)
        else:
            selector = node_selector(devices_given, index.nodes[number])
        if isinstance(selector, str):
            return None
        config = variant.class_configuration[at]
        if claim.spec.devices.config:
            config += claim_configuration(claim, variant.chosen[at])
        given_devices = DeviceAllocationResult(results=tuple(entries[at]), config=config)
        results.append(AllocationResult(devices=given_devices, node_selector=selector))
    return tuple(results)


def _lowest(wants: Sequence[Want], free: Sequence[int]) -> list[list[int]] | ShapeAnswer:
    """Without constraints."""
    used = 0
    chosen = []
    for want, mine in zip(wants, free, strict=True):
        positions = []
        for _ in range(want.plan.count):
            left = mine & ~used
            if not left:
                # Earlier requests took what only this one can use.
                return ShapeAnswer.UNSURE
            low = left & -left
            positions.append(low.bit_length() - 1)
            used |= low
        chosen.append(positions)
    return chosen


def _narrow(variant: Variant, groups: Sequence[ValueGroups], free: list[int]) -> bool:
    """Leave each want only devices with a value that serves all wants of the constraint; False if one has too few."""
    while True:
        before = free.copy()
        for covered, values in zip(variant.covered, groups, strict=True):
            counted = [at for at in covered if variant.wants[at].plan.count]
            allowed = 0
            for carriers in values.carriers:
                if _is_enough(carriers, variant.wants, counted=counted, free=free):
                    allowed |= carriers
            for at in counted:
                free[at] &= allowed
        if any(mask.bit_count() < want.plan.count for mask, want in zip(free, variant.wants, strict=True)):
            return False
        if len(variant.rules) == 1 or before == free:
            return True


def _is_enough(carriers: int, wants: Sequence[Want], *, counted: Sequence[int], free: Sequence[int]) -> bool:
    union = total = 0
    for at in counted:
        mine = free[at] & carriers
        count = wants[at].plan.count
        if mine.bit_count() < count:
            return False
        union |= mine
        total += count
    return union.bit_count() >= total


def _lowest_alike(
    variant: Variant, groups: Sequence[ValueGroups], free: Sequence[int]
) -> list[list[int]] | ShapeAnswer:
    used = 0
    #: per rule, the values that all devices so far have in common, and the devices that carry one of them
    common = [-1] * len(groups)
    allowed = [-1] * len(groups)
    chosen = []
    for want, mine in zip(variant.wants, free, strict=True):
        positions = []
        for _ in range(want.plan.count):
            mask = mine & ~used
            for rule in want.rules:
                mask &= allowed[rule]
            if not mask:
                return ShapeAnswer.UNSURE
            low = mask & -mask
            position = low.bit_length() - 1
            positions.append(position)
            used |= low
            for rule in want.rules:
                values = common[rule] & groups[rule].of_device[position]
                if values != common[rule]:
                    common[rule] = values
                    carriers = groups[rule].carriers
                    if values & (values - 1):
                        allowed[rule] = union(carriers[number] for number in bits(values))
                    else:
                        allowed[rule] = carriers[values.bit_length() - 1]
        chosen.append(positions)
    return chosen
