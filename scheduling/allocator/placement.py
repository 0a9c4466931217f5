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

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.allocation import answer, read_claims
from scheduling.allocator.index import NodeIndex
from scheduling.allocator.outcome import Failed, NodeView, Outcome, Unallocatable, Undecided
from scheduling.allocator.problem import MAX_RESULTS, Problem, pose
from scheduling.allocator.requests import ClaimPlan, RequestPlan
from scheduling.allocator.score import Fit, Score, most_packed
from scheduling.allocator.search import DEFAULT_LIMIT, NoSolution, Solution, solve
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
    plans = read_claims(snapshot, claims)
    found = _by_index(snapshot, plans, nodes, score=score, limit=limit)
    return found or _by_search(snapshot, plans, nodes, score=score, limit=limit)


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
    snapshot: Snapshot, plans: Sequence[ClaimPlan], nodes: Sequence[NodeView], *, score: Score, limit: int
) -> Placement | None:
    """None where the index cannot tell, or no node fits: then every node has to be asked, and to say why."""
    wanted = _indexable(plans)
    index = _index(snapshot, nodes) if wanted is not None else None
    if wanted is None or index is None:
        return None
    among = index.mask_of(nodes)
    for rank, requests in enumerate(wanted):
        feasible = _feasible(index, requests, among=among)
        if feasible is None:
            return None
        found = _first_fit(snapshot, plans, index.best_first(feasible, score), index=index, limit=limit)
        if found is None:
            continue
        # Another alternative than the counts allowed for: other nodes may do better.
        return found[1] if found[0] == rank else None
    return None


def _first_fit(
    snapshot: Snapshot, plans: Sequence[ClaimPlan], numbers: Iterable[int], *, index: NodeIndex, limit: int
) -> tuple[int, Placement] | None:
    """(alternatives passed over, the placement) of the first node whose search finds a solution."""
    shape: Hashable = None
    for number in numbers:
        if shape is not None and index.is_refuted(shape, number):
            continue
        problem = pose(snapshot, plans, index.nodes[number], used=index.in_use[number])
        found = problem if isinstance(problem, Failed) else solve(problem, limit=limit)
        if isinstance(found, Solution) and isinstance(problem, Problem):
            return sum(found.chosen), Placement(node=problem.node, outcome=answer(problem, found))
        shape = shape or tuple(claim.shape for claim in plans)
        if isinstance(found, NoSolution):
            index.refute(shape, number)
    return None


def _feasible(index: NodeIndex, requests: Sequence[RequestPlan], *, among: int) -> int | None:
    """The nodes that have enough devices for every request by itself; None where a selector could err."""
    wanted: dict[Hashable, int] = {}
    for plan in requests:
        counts = index.counts(plan)
        if plan.admin or index.sharing:
            among &= counts.at_least(plan.count)
        else:
            # Requests for the same devices do not share them.
            wanted[plan.signature] = wanted.get(plan.signature, 0) + plan.count
            among &= counts.at_least(wanted[plan.signature])
        if counts.erring:
            return None
    return among


def _indexable(plans: Sequence[ClaimPlan]) -> list[list[RequestPlan]] | None:
    """The requests of all claims, once for each alternative of the one list of alternatives that there may be.

    None where an error is certain or `allocationMode: All` is asked for, or where there are more lists.
    """
    lists = [alternatives for claim in plans for alternatives in claim.requests if len(alternatives) != 1]
    if len(lists) > 1 or any(claim.constraint_error for claim in plans):
        return None
    for claim in plans:
        if any(one.error or one.everything for alternatives in claim.requests for one in alternatives):
            return None
        if sum(min(one.count for one in alternatives) for alternatives in claim.requests) > MAX_RESULTS:
            return None
    fixed = [alternatives[0] for claim in plans for alternatives in claim.requests if len(alternatives) == 1]
    return [[*fixed, one] for one in lists[0]] if lists else [fixed]


def _index(snapshot: Snapshot, nodes: Sequence[NodeView]) -> NodeIndex | None:
    """The catalogue's index, caught up and with all of these nodes. None for a snapshot older than the index."""
    memo = snapshot.catalogue.memo
    known = memo.get(NodeIndex)
    if isinstance(known, NodeIndex) and known.knows(nodes):
        return known if known.follow(snapshot) else None
    others = known.nodes if isinstance(known, NodeIndex) else ()
    made = memo[NodeIndex] = NodeIndex(snapshot, {node.name: node for node in (*others, *nodes)}.values())
    return made
