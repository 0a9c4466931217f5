"""`place`: the best node for all claims of a pod, over all the nodes that are given.

A fatal error that any node's ordered search reaches keeps the pod pending with that error, even where other nodes would
do, and whichever node is looked at first (the node first by name speaks). Otherwise the best node that fits wins:
earlier alternatives of prioritized lists first, then the score, then the order by name. A node whose search was
undecided does not hide one that fits; where none fits, the answer is undecided too.

A `NodeIndex` gives the nodes that have enough devices for every request by itself. They are met best first, the short
way (`shapes`) or, where that cannot tell, by a search, and the first that has a solution is the answer (`first_fit`).
Where none has, what was shown of them on the way is handed on (`Refuted`), so that nobody needs to search again. Where
an error could come up, or the claims ask for all devices or have more than one list of alternatives, every node is
searched.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from claims.kinds.resource_claims import ResourceClaim
from manciple.wire.limits import Deadline, TimeLimitExceeded, check_time, time_limit
from scheduling.allocator.allocation import answer, read_claims
from scheduling.allocator.index import (
    Fit,
    NodeIndex,
    Score,
    best_fitting,
    first_named,
    most_packed,
    most_spread,
)
from scheduling.allocator.outcome import Allocated, AllocationFailed, Outcome, RequestReason, Unallocatable, Undecided
from scheduling.allocator.problem import AllocationProblem, TakenDevices, pose, selected
from scheduling.allocator.published import NodeView
from scheduling.allocator.requests import ClaimPlan, RequestPlan, name_of, plan_class
from scheduling.allocator.search import DEFAULT_LIMIT, DEFAULT_TIMEOUT, NoSolution, Solution, solve
from scheduling.allocator.shapes import ClaimShape, ShapeAnswer, Variant, direct_results, first_devices, shape_of
from scheduling.allocator.snapshot import LessenedUsage, Snapshot
from scheduling.placement.fragmentation.nodes import FreeCapacity
from scheduling.placement.fragmentation.policy import Fragmentation

#: Those that look at nothing but the devices.
PLAIN_SCORES = (most_packed, most_spread, first_named, best_fitting)

_NONE = NoSolution(trials=0)
#: For what takes no search.
NEVER = Deadline.after(math.inf)

#: Why a node does not take the claims.
NodeRefusalOutcome = Unallocatable | AllocationFailed | Undecided


class Refuted:
    """No node has a solution, but for those that are undecided."""

    def __init__(self, index: NodeIndex, shape: ClaimShape, undecided: Mapping[str, Undecided]) -> None:
        """undecided: node name -> why its search was stopped."""
        self._index = index
        self._undecided = undecided
        self._kept = index.refusals_of(shape)
        #: the requests of other claims of this shape -> those of the claims that are refused now
        self._stand_ins: dict[int, Mapping[RequestPlan, RequestPlan]] = {}

    @property
    def is_proof(self) -> bool:
        """Whether there is no node that is undecided."""
        return not self._undecided

    def is_about(self, snapshot: Snapshot) -> bool:
        """Whether the index still stands where it stood: it goes on with every placement."""
        return self._index.age == snapshot.usage.age and self._index.catalogue is snapshot.catalogue

    def verdict(self, node: NodeView) -> NoSolution | Undecided:
        return self._undecided.get(node.name) or _NONE

    def used_on(self, node: NodeView) -> TakenDevices:
        return self._index.used_on(self._index.number_of(node))

    def known(self, node: NodeView, plans: Sequence[ClaimPlan]) -> Outcome | None:
        """What was answered when the node's devices were in use as they are now, as if these claims had asked."""
        number = self._index.number_of(node)
        kept = self._kept.get(number)
        if kept is None or kept[0] != self._index.stamps[number]:
            return None
        _, others, outcome = kept
        if not isinstance(outcome, Unallocatable) or _same(others, plans):
            return outcome
        if any(reason.conflict for reason in outcome.reasons):
            return None  # its words name the claims
        stand_in = self._stand_in(others, plans)
        reasons = tuple(_retold(reason, stand_in[reason.plan]) for reason in outcome.reasons)
        return replace(outcome, reasons=reasons)

    def keep(self, node: NodeView, plans: Sequence[ClaimPlan], outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Undecided):
            number = self._index.number_of(node)
            self._kept[number] = (self._index.stamps[number], plans, outcome)
        return outcome

    def _stand_in(self, others: Sequence[ClaimPlan], plans: Sequence[ClaimPlan]) -> Mapping[RequestPlan, RequestPlan]:
        known = self._stand_ins.get(id(others))
        if known is None:
            known = self._stand_ins[id(others)] = dict(zip(_requests(others), _requests(plans), strict=True))
        return known


def _same(others: Sequence[ClaimPlan], plans: Sequence[ClaimPlan]) -> bool:
    return others is plans or [one.name for one in others] == [one.name for one in plans]


def _requests(plans: Sequence[ClaimPlan]) -> list[RequestPlan]:
    return [one for claim in plans for options in claim.requests for one in options]


def _retold(reason: RequestReason, plan: RequestPlan) -> RequestReason:
    return RequestReason(plan=plan, node=reason.node, wanted=reason.wanted, funnel=reason.funnel)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to search: device trials per node, and until when."""

    limit: int
    deadline: Deadline

    def solve(self, problem: AllocationProblem) -> Solution | NoSolution | AllocationFailed | Undecided:
        return solve(problem, limit=self.limit, deadline=self.deadline)

    def stopped(self, error: TimeLimitExceeded, claims: Iterable[ResourceClaim], *, began: float) -> Undecided:
        """The answer where evaluating the claims' selectors took too long. began: by the deadline's clock. Raises: the
        error, if a caller's deadline has passed.
        """
        if error.deadline is not self.deadline:
            raise error
        seconds = round(self.deadline.clock() - began, 1)
        return Undecided(trials=0, timed_out=True, claims=", ".join(map(name_of, claims)), seconds=seconds)


class NodeChoice(NamedTuple):
    """Between how many nodes it was chosen that had enough devices, and how many free ones this one had."""

    free: int
    nodes: int
    #: with `Fragmentation`: how many devices more are expected to be stranded by it
    stranded: float | None = None
    #: and the next best node that is as welcome, with the same of it
    next_best: tuple[str, float] | None = None
    #: whether the pod would rather have some nodes than others, which comes before all of this
    prefers: bool = False


@dataclass(slots=True)
class Fitting:
    """The node, and what it gives."""

    node: NodeView
    outcome: Outcome
    choice: NodeChoice | None = None


def index_of(snapshot: Snapshot, nodes: Sequence[NodeView]) -> tuple[NodeIndex, int] | None:
    """The inventory's index, caught up, and the set of the nodes in it. None for a snapshot older than the index,
    and for one in which something is imagined to be gone.
    """
    if isinstance(snapshot.usage, LessenedUsage):
        return None
    memo = snapshot.catalogue.lineage.memo
    known = memo.get(NodeIndex)
    if isinstance(known, NodeIndex):
        if snapshot.usage.age < known.age or snapshot.catalogue.number < known.catalogue.number:
            return None
        among = known.mask_of(nodes)
        if among is not None and known.follow(snapshot):
            return known, among
    others = known.nodes if isinstance(known, NodeIndex) else ()
    made = memo[NodeIndex] = NodeIndex(snapshot, {node.name: node for node in (*others, *nodes)}.values())
    return made, made.mask_of(nodes) or 0


def first_fit(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    among: int,
    *,
    index: NodeIndex,
    score: Score,
    effort: Effort,
) -> Fitting | Refuted | None:
    """among: the nodes, as the index numbers them. None where it cannot tell: then every node has to be asked.

    Raises: TimeLimitExceeded. The deadline is set only where selectors may be evaluated: most placements evaluate none.
    """
    shape = shape_of(claims, snapshot, index, deadline=effort.deadline)
    if not shape.variants or shape.errs_on(among):
        return None
    asked = _Asked(snapshot=snapshot, claims=claims, shape=shape, index=index, effort=effort)
    for variant in shape.variants:
        feasible = variant.feasible(among)
        if isinstance(score, Fragmentation):
            found = _least_stranding(asked, variant, feasible, score)
        else:
            found = _best_scored(asked, variant, feasible, score)
        if found is not None:
            return found
    return Refuted(index, shape, asked.undecided)


def _best_scored(asked: _Asked, variant: Variant, feasible: int, score: Score) -> Fitting | None:
    index, levels = asked.index, variant.levels(by_size=score is best_fitting)
    for number in index.best_first(feasible, score, levels):
        free = index.free_on(number)
        found = asked.on_node(variant, number)
        if found is not None:
            found.choice = NodeChoice(free, feasible.bit_count(), prefers=score not in PLAIN_SCORES)
            return found
    return None


def _least_stranding(asked: _Asked, variant: Variant, feasible: int, policy: Fragmentation) -> Fitting | None:
    index = asked.index
    with time_limit(asked.effort.deadline):
        ranking = policy.ranking(index, asked.snapshot, variant)
    if ranking is None:
        return _best_scored(asked, variant, feasible, most_packed if policy.preference is None else policy)
    order = policy.best_first(ranking, feasible)
    for number, stranded in order:
        if stranded == math.inf and ranking.is_certain(number):
            variant.give_up(number)
            continue
        free = index.free_on(number)
        found = asked.on_node(variant, number, within=ranking.devices(number) or ())
        if found is not None:
            next_best = policy.next_best(ranking, number, next(order, None))
            prefers = policy.preference is not None
            found.choice = NodeChoice(free, feasible.bit_count(), stranded, next_best, prefers)
            return found
    return None


@dataclass(slots=True, kw_only=True)
class _Asked:
    """Claims whose shape the index knows, to be met on one node after the other."""

    snapshot: Snapshot
    claims: Sequence[ResourceClaim]
    shape: ClaimShape
    index: NodeIndex
    effort: Effort
    #: node name -> why its search was stopped
    undecided: dict[str, Undecided] = field(default_factory=dict)

    def on_node(self, variant: Variant, number: int, *, within: Sequence[int] = ()) -> Fitting | None:
        """None where the node does not meet this variant. No earlier variant can be met on any node.

        within: of each request, the devices by which it had best be met. Where these alone do not meet it, all count.
        """
        if within and (found := self._attempt(variant, number, within=within)) is not None:
            return found
        return self._attempt(variant, number)

    def _attempt(self, variant: Variant, number: int, *, within: Sequence[int] = ()) -> Fitting | None:
        index = self.index
        found = first_devices(variant, index, number, self.snapshot.usage, within=within)
        if found is ShapeAnswer.HOPELESS:
            if not within:
                variant.give_up(number)
            return None
        if found is not ShapeAnswer.UNSURE:
            results = direct_results(self.claims, variant, found, index=index, number=number)
            if results is not None:
                return Fitting(index.nodes[number], Allocated(results=results, trials=sum(map(len, found))))
        return self._search(variant, number, within=within)

    def _search(self, variant: Variant, number: int, *, within: Sequence[int]) -> Fitting | None:
        node = self.index.nodes[number]
        if node.name in self.undecided:
            return None
        if self.effort.deadline.has_passed:
            self.undecided[node.name] = Undecided(trials=0, timed_out=True)
            return None
        used = self.index.used_on(number)
        with time_limit(self.effort.deadline):
            problem = pose(self.snapshot, self.shape.plans(self.claims), node, used=used, within=within)
            found = problem if isinstance(problem, AllocationFailed) else self.effort.solve(problem)
        if isinstance(found, AllocationFailed):
            return Fitting(node, found)
        if isinstance(found, Solution) and isinstance(problem, AllocationProblem):
            return Fitting(node, answer(problem, found)) if sum(found.chosen) == variant.rank else None
        if isinstance(found, NoSolution) and not within:
            variant.give_up(number)
        elif isinstance(found, Undecided) and not within:
            self.undecided[node.name] = found
        return None


class NodePlacement:
    """`outcome` is that of `node` where there is one, else what holds the pod on all of them.

    `refusals` tells, where no node fits, why each was refused: Unallocatable, Failed or Undecided. Where it is proven
    that none fits, both are worked out when somebody asks for them.
    """

    __slots__ = ("_found", "_later", "choice", "node")

    def __init__(
        self,
        *,
        node: NodeView | None,
        outcome: Outcome,
        refusals: Mapping[str, NodeRefusalOutcome] | None = None,
        choice: NodeChoice | None = None,
    ) -> None:
        """choice: how the node was chosen; None where every node was searched."""
        self.node = node
        self.choice = choice
        self._found: tuple[Outcome, Mapping[str, NodeRefusalOutcome]] = (outcome, refusals or {})
        self._later: Callable[[], NodePlacement] | None = None

    @classmethod
    def refused(cls, explain: Callable[[], NodePlacement]) -> NodePlacement:
        """No node fits; explain: says why."""
        made = cls(node=None, outcome=Unallocatable())
        made._later = explain
        return made

    @property
    def outcome(self) -> Outcome:
        if self._later is not None:
            self._work_out(self._later)
        return self._found[0]

    @property
    def refusals(self) -> Mapping[str, NodeRefusalOutcome]:
        if self._later is not None:
            self._work_out(self._later)
        return self._found[1]

    def _work_out(self, explain: Callable[[], NodePlacement]) -> None:
        self._found, self._later = explain()._found, None


def place(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    nodes: Sequence[NodeView],
    *,
    score: Score = most_packed,
    limit: int = DEFAULT_LIMIT,
    deadline: Deadline | None = None,
) -> NodePlacement:
    """Choose among `nodes`, which fit in every other respect. The same input gives the same answer, in time.

    A higher score is better. limit: device trials per node. deadline: for all nodes together; by default
    DEFAULT_TIMEOUT from now. Fastest with the default score, and with the same `NodeView`s (best the same tuple of
    them) from call to call.
    """
    deadline = deadline or Deadline.after(DEFAULT_TIMEOUT)
    effort, began = Effort(limit, deadline), deadline.clock()
    try:
        indexed = index_of(snapshot, nodes)
        refuted: Refuted | None = None
        if indexed is not None:
            index, among = indexed
            found = first_fit(snapshot, claims, among, index=index, score=score, effort=effort)
            if isinstance(found, Fitting):
                return NodePlacement(node=found.node, outcome=found.outcome, choice=found.choice)
            if found is not None and found.is_proof:
                searched = _Everywhere(snapshot, claims, Effort(limit, NEVER), found)
                return NodePlacement.refused(partial(_by_search, searched, nodes, score=score))
            refuted = found
        with time_limit(deadline):
            return _by_search(_Everywhere(snapshot, claims, effort, refuted, began), nodes, score=score)
    except TimeLimitExceeded as error:
        stopped = effort.stopped(error, claims, began=began)
        return NodePlacement(node=None, outcome=stopped, refusals={node.name: stopped for node in nodes})


def least_stranding(snapshot: Snapshot, nodes: Sequence[NodeView], policy: Fragmentation) -> Sequence[NodeView]:
    """Those of these nodes, on which a pod without new claims fits, where it strands hardly more than on the best one.
    All of them where nothing tells them apart.
    """
    indexed = index_of(snapshot, nodes)
    if indexed is None:
        return nodes
    index, among = indexed
    ranking = policy.ranking(index, snapshot, None)
    if ranking is None:
        return nodes
    return [index.nodes[number] for number in ranking.as_good_as_the_best(among)] or nodes


def capacity_by_class(
    snapshot: Snapshot, nodes: Sequence[NodeView], policy: Fragmentation
) -> Mapping[str, FreeCapacity]:
    """What is free of each class whose selectors can be used, and how much of that is expected to be stranded. Nothing
    while the mix is not evaluated.
    """
    indexed = index_of(snapshot, nodes)
    if indexed is None:
        return {}
    index, _ = indexed
    outlooks, found = policy.outlooks(index, snapshot), dict[str, FreeCapacity]()
    if outlooks is None:
        return {}
    for name in snapshot.classes:
        plan = plan_class(name, snapshot.classes, snapshot.features)
        if plan.error is None:
            masks = [selected(devices, plan, snapshot.features)[0] for devices in index.devices]
            found[name] = outlooks.free_capacity(masks)
    return found


@dataclass(frozen=True, slots=True)
class _Everywhere:
    """What is asked of every node."""

    snapshot: Snapshot
    claims: Sequence[ResourceClaim]
    effort: Effort
    #: what the index has shown of all nodes, where it could
    refuted: Refuted | None
    #: by the deadline's clock
    began: float = 0.0

    def on(self, node: NodeView, plans: Sequence[ClaimPlan]) -> tuple[AllocationProblem | None, Solution | Outcome]:
        """The node's problem and its solution; or what speaks against the node, then perhaps without its problem."""
        refuted = self.refuted
        current = refuted if refuted is not None and refuted.is_about(self.snapshot) else None
        known = current.known(node, plans) if current else None
        if known is not None:
            return None, known
        if self.effort.deadline.has_passed:
            return None, Undecided(trials=0, timed_out=True)
        check_time()
        try:
            problem = pose(self.snapshot, plans, node, used=current.used_on(node) if current else None)
        except TimeLimitExceeded as error:
            return None, self.effort.stopped(error, self.claims, began=self.began)
        if isinstance(problem, AllocationFailed):
            return None, problem
        if refuted is None:
            found = self.effort.solve(problem)
            return problem, found if isinstance(found, Solution) else answer(problem, found)
        told = answer(problem, refuted.verdict(node))
        return problem, told if current is None else current.keep(node, plans, told)


def _by_search(asked: _Everywhere, nodes: Sequence[NodeView], *, score: Score) -> NodePlacement:
    fitting: list[tuple[tuple[int, float], AllocationProblem, Solution]] = []
    refusals: dict[str, NodeRefusalOutcome] = {}
    plans = read_claims(asked.snapshot, asked.claims)
    for node in sorted(nodes, key=lambda one: one.name):
        problem, found = asked.on(node, plans)
        if isinstance(found, AllocationFailed):
            return NodePlacement(node=None, outcome=found, refusals={node.name: found})
        if isinstance(found, Solution) and problem is not None:
            fit = Fit(node=node, free=problem.free.bit_count())
            fitting.append(((sum(found.chosen), -score(fit)), problem, found))
        elif isinstance(found, (Unallocatable, Undecided)):
            refusals[node.name] = found
    if not fitting:
        return NodePlacement(node=None, outcome=_overall(refusals), refusals=refusals)
    _, best, found = min(fitting, key=lambda one: one[0])
    return NodePlacement(node=best.node, outcome=answer(best, found))


def _overall(refusals: Mapping[str, NodeRefusalOutcome]) -> Outcome:
    """Undecided before "no", since it may yet be "yes"; then the reason that most nodes give."""
    undecided = [one for one in refusals.values() if isinstance(one, Undecided)]
    if undecided:
        trials = sum(one.trials for one in undecided)
        return Undecided(trials=trials, timed_out=any(one.timed_out for one in undecided))
    if not refusals:
        return Unallocatable()
    counted = Counter(map(_gist, refusals.values()))
    commonest = max(counted, key=counted.__getitem__)
    return next(one for one in refusals.values() if _gist(one) == commonest)


def _gist(refusal: NodeRefusalOutcome) -> Hashable:
    """What tells refusals apart, without the cost of their words."""
    if isinstance(refusal, Unallocatable):
        return tuple((reason.claim, reason.request, reason.progress) for reason in refusal.reasons[:1])
    return refusal.cause
