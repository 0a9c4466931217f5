"""`place`: the best node for all claims of a pod, over all the nodes that are given.

Every node is searched: a fatal error that any node's ordered search reaches keeps the pod pending with that error, even
where other nodes would do, and whichever node is looked at first (the node first by name speaks). Otherwise the best
node that fits wins: earlier alternatives of prioritized lists first, then the score, then the order by name. A node
whose search was undecided does not hide one that fits; where none fits, the answer is undecided too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.allocation import answer, read_claims
from scheduling.allocator.outcome import Failed, NodeView, Outcome, Unallocatable, Undecided
from scheduling.allocator.problem import Problem, pose
from scheduling.allocator.search import DEFAULT_LIMIT, Solution, solve
from scheduling.allocator.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A node on which the claims can be met, for a score to judge."""

    node: NodeView
    #: devices that the node sees and nobody holds, before this allocation
    free: int


Score = Callable[[Fit], float]


def most_packed(fit: Fit) -> float:
    """Prefers the node with the fewest free devices, so that others stay whole for larger claims."""
    return -fit.free


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`outcome` is that of `node` where there is one, else what holds the pod on all of them.

    `refusals` tells for every node that was refused why: Unallocatable, Failed or Undecided.
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

    A higher score is better; `limit` is per node.
    """
    plans = read_claims(snapshot, claims)
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
    return Placement(node=problem.node, outcome=answer(problem, found), refusals=refusals)


def _overall(refusals: Mapping[str, Unallocatable | Failed | Undecided]) -> Outcome:
    """Undecided before "no", since it may yet be "yes"; then the reason that most nodes give."""
    undecided = [one for one in refusals.values() if isinstance(one, Undecided)]
    if undecided:
        return Undecided(trials=sum(one.trials for one in undecided))
    if not refusals:
        return Unallocatable()
    texts = [one.message for one in refusals.values()]
    commonest = max(texts, key=texts.count)
    return next(one for one in refusals.values() if one.message == commonest)
