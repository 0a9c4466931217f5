"""`place`: the best node for all claims of a pod, over all the nodes that are given.

A fatal error that any node's ordered search reaches keeps the pod pending with that error, even where other nodes would
do, and whichever node is looked at first (the node first by name speaks). Otherwise the best node that fits wins:
earlier alternatives of prioritized lists first, then the score, then the order by name. A node whose search was
undecided does not hide one that fits; where none fits, the answer is undecided too.

Where no error can come up, the score is the usual one and no list has alternatives, a `NodeIndex` gives the nodes in
order of the score, and the first of them whose search finds a solution is the answer. Else every node is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.allocation import answer, read_claims
from scheduling.allocator.index import NodeIndex
from scheduling.allocator.outcome import Failed, NodeView, Outcome, Unallocatable, Undecided
from scheduling.allocator.problem import MAX_RESULTS, Problem, pose
from scheduling.allocator.requests import ClaimPlan, RequestPlan
from scheduling.allocator.search import DEFAULT_LIMIT, Solution, solve
from scheduling.allocator.snapshot import Snapshot

#: Tuples of nodes for which a catalogue keeps an index.
MAX_INDEXES = 8


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
    among: int | None = None,
    score: Score = most_packed,
    limit: int = DEFAULT_LIMIT,
) -> Placement:
    """Choose among `nodes`, which fit in every other respect. The same input gives the same answer.

    Pass the same tuple of nodes again and again, and it is indexed; `among` then restricts it (bit i: nodes[i]; the
    tuple must be sorted by name). A higher score is better; `limit` is per node.
    """
    plans = read_claims(snapshot, claims)
    if score is most_packed and isinstance(nodes, tuple):
        found = _by_index(snapshot, plans, nodes, among=among, limit=limit)
        if found is not None:
            return found
    allowed = (node for number, node in enumerate(nodes) if among is None or among >> number & 1)
    return _by_search(snapshot, plans, allowed, score=score, limit=limit)


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
    texts = [one.message for one in refusals.values()]
    commonest = max(texts, key=texts.count)
    return next(one for one in refusals.values() if one.message == commonest)


# By index ------------------------------------------------------------------------------------------------------------


def _by_index(
    snapshot: Snapshot, plans: Sequence[ClaimPlan], nodes: tuple[NodeView, ...], *, among: int | None, limit: int
) -> Placement | None:
    """None where the index cannot tell, or no node fits: then every node has to be asked, and to say why."""
    requests = _plain_requests(plans)
    if requests is None:
        return None
    index = _index(snapshot, nodes)
    if index is None:
        return None
    feasible = index.all_nodes if among is None else among
    for plan in requests:
        counts = index.counts(plan)
        feasible &= counts.at_least(plan.count)
        if counts.erring:
            return None
    for number in index.most_packed_first(feasible):
        problem = pose(snapshot, plans, index.nodes[number], used=index.in_use[number])
        if isinstance(problem, Failed):
            return None
        found = solve(problem, limit=limit)
        if isinstance(found, Solution):
            return Placement(node=problem.node, outcome=answer(problem, found))
    return None


def _plain_requests(plans: Sequence[ClaimPlan]) -> list[RequestPlan] | None:
    """All requests, if none has alternatives, an error or allocationMode All."""
    requests: list[RequestPlan] = []
    for claim in plans:
        if claim.constraint_error:
            return None
        mine = [alternatives[0] for alternatives in claim.requests if len(alternatives) == 1]
        if len(mine) < len(claim.requests) or any(one.error or one.everything for one in mine):
            return None
        if sum(one.count for one in mine) > MAX_RESULTS:
            return None
        requests += mine
    return requests


def _index(snapshot: Snapshot, nodes: tuple[NodeView, ...]) -> NodeIndex | None:
    """The index of these nodes, caught up; made when the same tuple comes for the second time."""
    memo = snapshot.catalogue.memo
    key: Hashable = ("index", id(nodes))
    known = memo.get(key)
    if isinstance(known, NodeIndex) and known.given is nodes and known.follow(snapshot):
        return known
    if sum(1 for one in memo if isinstance(one, tuple) and one[0] == "index") >= MAX_INDEXES:
        memo.clear()
    if known is not nodes and not isinstance(known, NodeIndex):
        memo[key] = nodes
        return None
    made = memo[key] = NodeIndex(snapshot, nodes)
    return made
