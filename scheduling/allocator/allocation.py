"""`allocate`: all claims of a pod on one node, from a snapshot to an answer."""

from __future__ import annotations

from collections.abc import Sequence

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.deadline import DEFAULT_LIMIT, Deadline
from scheduling.allocator.explain import explain
from scheduling.allocator.outcome import INVALID_POOLS, Allocated, Failed, NodeView, Outcome, Unallocatable
from scheduling.allocator.problem import Problem, pose
from scheduling.allocator.requests import ClaimPlan, plan_claim
from scheduling.allocator.results import build_results
from scheduling.allocator.search import NoSolution, Solution, solve
from scheduling.allocator.snapshot import Snapshot


def allocate(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    node: NodeView,
    *,
    limit: int = DEFAULT_LIMIT,
    deadline: Deadline | None = None,
) -> Outcome:
    """Find devices on `node` for all `claims`, none of which is allocated yet.

    The same input gives the same answer. The search answers Undecided after `limit` device trials or past `deadline`.
    """
    plans = read_claims(snapshot, claims)
    problem = pose(snapshot, plans, node)
    if isinstance(problem, Failed):
        return problem
    return answer(problem, solve(problem, limit=limit, deadline=deadline))


def read_claims(snapshot: Snapshot, claims: Sequence[ResourceClaim]) -> tuple[ClaimPlan, ...]:
    """What does not depend on the node."""
    return tuple(plan_claim(claim, snapshot.classes, snapshot.features) for claim in claims)


def answer(problem: Problem, found: Solution | NoSolution | Failed | Outcome) -> Outcome:
    """The outcome of one node's search, explained where it is "no"."""
    if isinstance(found, Solution):
        results = build_results(problem, found)
        return results if isinstance(results, Failed) else Allocated(results=results, trials=found.trials)
    if isinstance(found, NoSolution):
        if problem.devices.first_invalid is not None:
            return Failed(error=INVALID_POOLS, fatal_for_pod=False, trials=found.trials)
        return Unallocatable(reasons=explain(problem), trials=found.trials)
    return found
