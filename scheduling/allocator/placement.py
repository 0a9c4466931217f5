"""`place`: the best node for all claims of a pod, over all the nodes that are given.

A fatal error that any node's ordered search reaches keeps the pod pending with that error, even where other nodes would
do, and whichever node is looked at first (the node first by name speaks). Otherwise the best node that fits wins:
earlier alternatives of prioritized lists first, then the score, then the order by name. A node whose search was
undecided does not hide one that fits; where none fits, the answer is undecided too.

A `NodeIndex` gives the nodes that have enough devices for every request by itself; they are searched best first, and
the first that has a solution is the answer. Where an error could come up, or the claims ask for all devices or have
more than one list of alternatives, every node is searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.allocation import answer, read_claims
from scheduling.allocator.direct import Answer, direct_results, first_devices
from scheduling.allocator.index import NodeIndex
from scheduling.allocator.outcome import Allocated, Failed, NodeView, Outcome, Unallocatable, Undecided
from scheduling.allocator.problem import Problem, pose
from scheduling.allocator.requests import ClaimPlan
from scheduling.allocator.score import Fit, Score, most_packed
from scheduling.allocator.search import DEFAULT_LIMIT, NoSolution, Solution, solve
from scheduling.allocator.shapes import Shape, Variant, shape_of
from scheduling.allocator.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`outcome` is that of `node` where there is one, else what holds the pod on all of them.

    `refusals` tells, where no node fits, why each was refused: Unallocatable, Failed or Undecided.
    """

    node: NodeView | None
    outcome: Outcome
    refusals: Mapping[str, Unallocatable | Failed | Undecided] = field(default_factory=dict)


def place(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    nodes: Sequence[NodeView],
    *,
    score: Score = most_packed,
    limit: int = DEFAULT_LIMIT,
) -> Placement:
    """Choose among `nodes`, which fit in every other respect. The same input gives the same answer.

    A higher score is better; `limit` is per node. Fastest with the default score, and with the same `NodeView`s (best
    the same tuple of them) from call to call.
    """
    found = _by_index(snapshot, claims, nodes, score=score, limit=limit)
    return found or _by_search(snapshot, read_claims(snapshot, claims), nodes, score=score, limit=limit)


# Every node ----------------------------------------------------------------------------------------------------------


def _by_search(
    snapshot: Snapshot, plans: Sequence[ClaimPlan], nodes: Iterable[NodeView], *, score: Score, limit: int
) -> Placement:
    fitting: list[tuple[tuple[int, float], Problem, Solution]] = []
    refusals: dict[str, Unallocatable | Failed | Undecided] = {}
    for node in sorted(nodes, key=lambda one: one.name):
        problem = pose(snapshot, plans, node)
        if isinstance(problem, Failed):
            return Placement(node=None, outcome=problem, refusals={node.name: problem})
        found = solve(problem, limit=limit)
        if isinstance(found, Solution):
            fit = Fit(node=node, free=problem.free.bit_count())
            fitting.append(((sum(found.chosen), -score(fit)), problem, found))
            continue
        refusal = answer(problem, found)
        if isinstance(refusal, Failed) and refusal.fatal_for_pod:
            return Placement(node=None, outcome=refusal, refusals={node.name: refusal})
        if isinstance(refusal, (Unallocatable, Failed, Undecided)):
            refusals[node.name] = refusal
    if not fitting:
        return Placement(node=None, outcome=_overall(refusals), refusals=refusals)
    _, problem, found = min(fitting, key=lambda one: one[0])
    return Placement(node=problem.node, outcome=answer(problem, found))


def _overall(refusals: Mapping[str, Unallocatable | Failed | Undecided]) -> Outcome:
    """Undecided before "no", since it may yet be "yes"; then the reason that most nodes give."""
    undecided = [one for one in refusals.values() if isinstance(one, Undecided)]
    if undecided:
        return Undecided(trials=sum(one.trials for one in undecided))
    if not refusals:
        return Unallocatable()
    counted = Counter(map(_gist, refusals.values()))
    commonest = max(counted, key=counted.__getitem__)
    return next(one for one in refusals.values() if _gist(one) == commonest)


def _gist(refusal: Unallocatable | Failed | Undecided) -> Hashable:
    """What tells refusals apart, without the cost of their words."""
    if isinstance(refusal, Unallocatable):
        return tuple((reason.claim, reason.request, reason.progress) for reason in refusal.reasons[:1])
    return refusal.message


# By index ------------------------------------------------------------------------------------------------------------


def _by_index(
    snapshot: Snapshot, claims: Sequence[ResourceClaim], nodes: Sequence[NodeView], *, score: Score, limit: int
) -> Placement | None:
    """None where the index cannot tell, or no node fits: then every node has to be asked, and to say why."""
    index = _index(snapshot, nodes)
    if index is None:
        return None
    shape = shape_of(claims, snapshot, index)
    among = index.mask_of(nodes)
    if shape.errs_on(among):
        return None
    asked = _Asked(snapshot, claims, shape=shape, index=index, limit=limit)
    for variant in shape.variants:
        for number in index.best_first(variant.feasible(among), score):
            placement = asked.on_node(variant, number)
            if placement is not None:
                return placement
    return None


class _Asked:
    """Claims whose shape the index knows, to be met on one node after the other."""

    def __init__(
        self, snapshot: Snapshot, claims: Sequence[ResourceClaim], *, shape: Shape, index: NodeIndex, limit: int
    ) -> None:
        self._snapshot = snapshot
        self._claims = claims
        self._shape = shape
        self._index = index
        self._limit = limit

    def on_node(self, variant: Variant, number: int) -> Placement | None:
        """None where the node does not meet this variant. No earlier variant can be met on any node."""
        found = first_devices(variant, self._index, number)
        if found is Answer.HOPELESS:
            variant.give_up(number)
            return None
        if found is not Answer.UNSURE:
            results = direct_results(self._claims, variant, found, index=self._index, number=number)
            if results is not None:
                trials = sum(map(len, found))
                return Placement(node=self._index.nodes[number], outcome=Allocated(results=results, trials=trials))
        return self._by_search(variant, number)

    def _by_search(self, variant: Variant, number: int) -> Placement | None:
        index = self._index
        plans = self._shape.plans(self._claims)
        problem = pose(self._snapshot, plans, index.nodes[number], used=index.used_on(number))
        found = problem if isinstance(problem, Failed) else solve(problem, limit=self._limit)
        if isinstance(found, NoSolution):
            variant.give_up(number)
        if isinstance(found, Solution) and isinstance(problem, Problem) and sum(found.chosen) == variant.rank:
            return Placement(node=problem.node, outcome=answer(problem, found))
        return None


def _index(snapshot: Snapshot, nodes: Sequence[NodeView]) -> NodeIndex | None:
    """The catalogue's index, caught up and with all of these nodes. None for a snapshot older than the index."""
    memo = snapshot.catalogue.memo
    known = memo.get(NodeIndex)
    if isinstance(known, NodeIndex):
        if snapshot.usage.age < known.age:
            return None
        if known.knows(nodes) and known.follow(snapshot):
            return known
    others = known.nodes if isinstance(known, NodeIndex) else ()
    made = memo[NodeIndex] = NodeIndex(snapshot, {node.name: node for node in (*others, *nodes)}.values())
    return made
