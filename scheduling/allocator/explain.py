"""Why the requests cannot be met on one node: the funnels of those that are short, or what stands between all of them.

The dominant reason is that of the request with the shortest funnel: the one that is furthest from being met. Only
counts and sets are made here, since every node that refuses a pod is explained; the sentences and the clause that
refused the last devices are worked out when a reason is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduling.allocator.conflicts import conflict_of
from scheduling.allocator.funnels import funnel
from scheduling.allocator.outcome import Reason
from scheduling.allocator.problem import Problem, RequestOnNode
from scheduling.allocator.stages import Funnel


def explain(problem: Problem) -> tuple[Reason, ...]:
    """A reason for every request that cannot be met on its own; else one for what the requests ask for together."""
    reasons = [reason for _, alternatives in problem.steps for reason in _missing(problem, alternatives)]
    if reasons:
        return tuple(sorted(reasons, key=lambda reason: reason.progress))
    return tuple(_together(problem))


def funnels(problem: Problem) -> tuple[tuple[RequestOnNode, Funnel], ...]:
    """Every request and alternative with its funnel, whether it can be met or not."""
    options = [one for _, alternatives in problem.steps for one in alternatives]
    return tuple((one, funnel(problem, one)) for one in options)


def wanted(request: RequestOnNode) -> int:
    """How many devices would do; for "all" as many as there are, and at least one."""
    return max(request.count, 1)


def is_short(request: RequestOnNode) -> bool:
    """Whether the request cannot be met even if it were the only one."""
    return request.candidates.bit_count() < (wanted(request) if request.plan.everything else request.count)


def _missing(problem: Problem, alternatives: tuple[RequestOnNode, ...]) -> Iterator[Reason]:
    """Nothing where one of the alternatives has enough devices for itself."""
    if all(is_short(one) for one in alternatives):
        for one in alternatives:
            yield _reason(problem, one)


def _reason(problem: Problem, request: RequestOnNode, *, conflict: str = "") -> Reason:
    return Reason(
        plan=request.plan,
        node=problem.node.name,
        wanted=wanted(request),
        funnel=funnel(problem, request),
        conflict=conflict,
    )


def _together(problem: Problem) -> Iterator[Reason]:
    """Each request has enough devices for itself: constraints, counters or other requests stand in the way."""
    for index, claim in enumerate(problem.claims):
        requests = [alternatives[0] for owner, alternatives in problem.steps if owner == index]
        if requests:
            yield _reason(problem, requests[0], conflict=conflict_of(problem, claim, requests))
