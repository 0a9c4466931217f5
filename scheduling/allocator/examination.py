"""`examine`: what one node answers, with the funnel of every request, those that can be met included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.allocation import answer, read_claims
from scheduling.allocator.deadline import DEFAULT_LIMIT
from scheduling.allocator.explain import funnels, is_short, wanted
from scheduling.allocator.nodeview import NodeView
from scheduling.allocator.outcome import Failed, Outcome
from scheduling.allocator.problem import pose
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.search import solve
from scheduling.allocator.snapshot import Snapshot
from scheduling.allocator.stages import Funnel


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One request or alternative on one node."""

    plan: RequestPlan
    wanted: int
    funnel: Funnel
    short: bool  # cannot be met even if it were the only one


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """`requests` is empty where a claim or class is wrong, so that nothing could be counted."""

    node: NodeView
    outcome: Outcome
    requests: tuple[Examined, ...] = ()


def examine(
    snapshot: Snapshot, claims: Sequence[ResourceClaim], node: NodeView, *, limit: int = DEFAULT_LIMIT
) -> Examination:
    """As `allocate`, by the same code; nothing is given to anybody."""
    problem = pose(snapshot, read_claims(snapshot, claims), node)
    if isinstance(problem, Failed):
        return Examination(node=node, outcome=problem)
    requests = tuple(
        Examined(plan=one.plan, wanted=wanted(one), funnel=funnel, short=is_short(one))
        for one, funnel in funnels(problem)
    )
    return Examination(node=node, outcome=answer(problem, solve(problem, limit=limit)), requests=requests)
