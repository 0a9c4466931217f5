"""The best node by an index: those that may fit are looked at best first, and the first that does is the answer.

Each node is met the short way (`direct`) or, where that cannot tell, by a search. Where no node fits, what was shown of
them on the way is handed on, so that nobody needs to search again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.allocation import answer
from scheduling.allocator.deadline import Deadline
from scheduling.allocator.direct import Answer, direct_results, first_devices
from scheduling.allocator.index import NodeIndex
from scheduling.allocator.nodeview import NodeView
from scheduling.allocator.outcome import Allocated, Failed, Outcome, Undecided
from scheduling.allocator.problem import Problem, pose
from scheduling.allocator.refuted import Refuted
from scheduling.allocator.score import Score
from scheduling.allocator.search import NoSolution, Solution, solve
from scheduling.allocator.shapes import Shape, Variant, shape_of
from scheduling.allocator.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to search: device trials per node, and until when."""

    limit: int
    deadline: Deadline

    def solve(self, problem: Problem) -> Solution | NoSolution | Failed | Undecided:
        return solve(problem, limit=self.limit, deadline=self.deadline)


@dataclass(frozen=True, slots=True)
class Fitting:
    """The node, and what it gives."""

    node: NodeView
    outcome: Outcome


def index_of(snapshot: Snapshot, nodes: Sequence[NodeView]) -> tuple[NodeIndex, int] | None:
    """The inventory's index, caught up, and the set of the nodes in it. None for a snapshot older than the index."""
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
    """among: the nodes, as the index numbers them. None where it cannot tell: then every node has to be asked."""
    shape = shape_of(claims, snapshot, index)
    if not shape.variants or shape.errs_on(among):
        return None
    asked = _Asked(snapshot, claims, shape=shape, index=index, effort=effort)
    for variant in shape.variants:
        for number in index.best_first(variant.feasible(among), score):
            found = asked.on_node(variant, number)
            if found is not None:
                return found
    return Refuted(index, shape, asked.undecided)


class _Asked:
    """Claims whose shape the index knows, to be met on one node after the other."""

    def __init__(
        self, snapshot: Snapshot, claims: Sequence[ResourceClaim], *, shape: Shape, index: NodeIndex, effort: Effort
    ) -> None:
        self._snapshot = snapshot
        self._claims = claims
        self._shape = shape
        self._index = index
        self._effort = effort
        #: node name -> why its search was stopped
        self.undecided: dict[str, Undecided] = {}

    def on_node(self, variant: Variant, number: int) -> Fitting | None:
        """None where the node does not meet this variant. No earlier variant can be met on any node."""
        index = self._index
        found = first_devices(variant, index, number)
        if found is Answer.HOPELESS:
            variant.give_up(number)
            return None
        if found is not Answer.UNSURE:
            results = direct_results(self._claims, variant, found, index=index, number=number)
            if results is not None:
                return Fitting(index.nodes[number], Allocated(results=results, trials=sum(map(len, found))))
        return self._search(variant, number)

    def _search(self, variant: Variant, number: int) -> Fitting | None:
        node = self._index.nodes[number]
        if node.name in self.undecided:
            return None
        if self._effort.deadline.has_passed:
            self.undecided[node.name] = Undecided(trials=0, timed_out=True)
            return None
        problem = pose(self._snapshot, self._shape.plans(self._claims), node, used=self._index.used_on(number))
        found = problem if isinstance(problem, Failed) else self._effort.solve(problem)
        if isinstance(found, NoSolution):
            variant.give_up(number)
        elif isinstance(found, Undecided):
            self.undecided[node.name] = found
        elif isinstance(found, Failed):
            return Fitting(node, found)
        elif isinstance(problem, Problem) and sum(found.chosen) == variant.rank:
            return Fitting(node, answer(problem, found))
        return None
