"""Why requests that each have enough devices for themselves cannot be met together.

The search has shown that there is no solution; here the first of these is named that shows it by counting: a constraint
without enough devices for any value, shared counters that are drawn up, requests that want the same few devices. Where
none of them does alone, the constraints are named together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scheduling.allocator.counters import CounterLedger
from scheduling.allocator.pools import bits
from scheduling.allocator.problem import ConstraintOnNode, Problem, RequestOnNode
from scheduling.allocator.requests import ClaimPlan


def conflict_of(problem: Problem, claim: ClaimPlan, requests: Sequence[RequestOnNode]) -> str:
    """One clause without a final stop. requests: those of the claim, the first alternative of each."""
    found = next(_proven(problem, requests), "")
    if found:
        return found
    if not claim.constraints:
        drawing = next((one for one in requests if one.candidates & problem.consuming), None)
        if drawing is None:
            return "each request has enough devices for itself, but not all of them together"
        left = f"what is left of these does not serve {drawing.count} of them together"
        return f"{_drawing(drawing)}, and {left}"
    rules = (f"`{'distinct' if one.distinct else 'match'}Attribute: {one.attribute}`" for one in claim.constraints)
    return f"no devices that claim `{claim.name}` accepts satisfy {' and '.join(rules)} together"


def _proven(problem: Problem, requests: Sequence[RequestOnNode]) -> Iterator[str]:
    for index, constraint in enumerate(problem.constraints):
        covered = [one for one in requests if index in one.constraints and one.count]
        if covered:
            yield from _unequal(constraint, covered) if constraint.plan.distinct else _equal(constraint, covered)
    yield from _drawn_up(problem, requests)
    yield from _contested(problem)


def _equal(constraint: ConstraintOnNode, covered: Sequence[RequestOnNode]) -> Iterator[str]:
    """matchAttribute: no value is carried by enough devices for each request that it covers."""
    total = sum(one.count for one in covered)
    if any(_suffices(carriers, covered, total) for carriers in constraint.carriers):
        return
    wanted = _union(covered)
    most = max(((carriers & wanted).bit_count() for carriers in constraint.carriers), default=0)
    attribute, whose = constraint.plan.attribute, f"claim `{covered[0].plan.claim}`"
    if not most:
        yield f"none of the devices that {whose} accepts has `{attribute}`, which must be the same for {total}"
    else:
        share = "no two" if most == 1 else f"no more than {most}"
        yield f"{whose} wants {total} devices with the same `{attribute}`, and {share} of the free ones share a value"


def _suffices(carriers: int, covered: Sequence[RequestOnNode], total: int) -> bool:
    each = all((one.candidates & carriers).bit_count() >= one.count for one in covered)
    return each and (_union(covered) & carriers).bit_count() >= total


def _unequal(constraint: ConstraintOnNode, covered: Sequence[RequestOnNode]) -> Iterator[str]:
    """distinctAttribute: fewer values than devices."""
    total, wanted = sum(one.count for one in covered), _union(covered)
    values = sum(1 for carriers in constraint.carriers if carriers & wanted)
    if values < total:
        has = f"{values} value" if values == 1 else f"{values} values"
        wanting = f"claim `{covered[0].plan.claim}` wants {total} devices that differ in `{constraint.plan.attribute}`"
        yield f"{wanting}, and the free ones have only {has}"


def _drawn_up(problem: Problem, requests: Sequence[RequestOnNode]) -> Iterator[str]:
    """Shared counters leave too little even for one request alone."""
    ledger = CounterLedger(problem.devices, problem.snapshot.usage)
    for one in requests:
        drawing = one.candidates & problem.consuming
        if not drawing or problem.shared & drawing:
            continue
        served = (one.candidates & ~drawing).bit_count()
        for position in bits(drawing):
            if ledger.charge(position):
                ledger.refund(position)
                served += 1
        if served < one.count:
            only = one.candidates.bit_count() == 1
            left = "does not serve it" if only else f"serves {f'only {served}' if served else 'none'} of them"
            yield f"{_drawing(one)}, and what is left of these {left}"


def _drawing(one: RequestOnNode) -> str:
    """What is drawn on, by how many devices."""
    accepted = one.candidates.bit_count()
    of_request = f"that request `{one.plan.full_name}` accepts"
    if accepted == 1:
        return f"the one device {of_request} draws on shared counters"
    return f"the {accepted} devices {of_request} draw on shared counters"


def _contested(problem: Problem) -> Iterator[str]:
    """All requests, of all claims, together want more devices than there are."""
    options = [alternatives for _, alternatives in problem.steps if not any(one.plan.admin for one in alternatives)]
    total = sum(min(one.count for one in alternatives) for alternatives in options)
    union = _union([one for alternatives in options for one in alternatives])
    if union.bit_count() < total and not union & problem.shared:
        yield f"its requests want {total} devices together, and only {union.bit_count()} of the free ones serve them"


def _union(requests: Sequence[RequestOnNode]) -> int:
    wanted = 0
    for one in requests:
        wanted |= one.candidates
    return wanted
