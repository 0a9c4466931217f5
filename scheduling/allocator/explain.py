"""Why the requests cannot be met on one node: the funnels of those that are short, or what stands between all of them.

A funnel is counted from the same masks that the search runs on. The dominant reason is that of the request with the
shortest funnel: the one that is furthest from being met. Only counts and sets are made here, since every node that
refuses a pod is explained; the cause and the operand that refused the last devices are worked out when a reason is
read.

Where each request has enough devices for itself, the first of these is named that shows by counting why they cannot be
met together: a constraint without enough devices for any value, shared counters that are drawn up, requests that want
the same few devices. Where none of them does alone, the constraints are named together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from claims.causes.causes import (
    ConstraintsUnmet,
    CountersExhausted,
    NoCommonValue,
    NotTogether,
    RequestsCompete,
    TooFewValues,
)
from scheduling.allocator import stages
from scheduling.allocator.outcome import RequestReason
from scheduling.allocator.pools import Generation, PoolOnNode, bits, union
from scheduling.allocator.problem import (
    AllocationProblem,
    ConstraintOnNode,
    RequestOnNode,
    may_serve,
    scanned,
    serving,
    untainted,
)
from scheduling.allocator.requests import ClaimPlan, RequestPlan, chosen
from scheduling.allocator.stages import DeviceSet, Funnel, PoolTrouble, Stage
from scheduling.allocator.state import CounterLedger

_Left = dict[PoolOnNode, int]


def funnel(problem: AllocationProblem, request: RequestOnNode) -> Funnel:
    """All stages, in order. Their names are the same on every node."""
    return tuple(_stages(problem, request))


def _stages(problem: AllocationProblem, request: RequestOnNode) -> Iterator[Stage]:
    plan, features = request.plan, problem.snapshot.features
    published = problem.snapshot.catalogue.device_count
    healthy = [view for view in problem.devices.pools if not view.trouble]
    troubles = tuple(_trouble(view, plan) for view in problem.devices.pools if view.trouble)
    yield Stage(stages.PUBLISHED, published)
    # Of "all" devices nothing can be given while it is not known which these are.
    complete = 0 if request.blocked_by else published - sum(trouble.devices for trouble in troubles)
    yield Stage(stages.COMPLETE, complete, "; ".join(map(str, troubles)), troubles=troubles)
    yield _stage(stages.VISIBLE, {view: view.visible for view in healthy}, clause=problem.node.name)
    left = {view: view.visible & scanned(view, features) for view in healthy}
    for selector in plan.selectors:
        left = {view: chosen(view.generation, (selector,), mask)[0] for view, mask in left.items()}
        kind = stages.CLASS_SELECTOR if selector.owner.startswith("class ") else stages.REQUEST_SELECTOR
        name = f"{kind} #{selector.index}"
        devices = _set(left)
        yield Stage(name, len(devices), selector.expression, devices=devices, selector=selector)
    left = {view: untainted(view, plan, mask, features) for view, mask in left.items()}
    yield _stage(stages.UNTAINTED, left)
    if plan.capacity:
        asked = ", ".join(f"{name} {amount}" for name, amount in plan.capacity)
        yield _stage(
            stages.LARGE, {view: serving(view, plan, mask, features) for view, mask in left.items()}, clause=asked
        )
    yield _free(problem, request)


def _stage(name: str, left: _Left, *, clause: str = "") -> Stage:
    devices = _set(left)
    return Stage(name, len(devices), clause, devices=devices)


def _set(left: _Left) -> DeviceSet:
    return DeviceSet({view.generation: mask for view, mask in left.items() if mask})


def _trouble(view: PoolOnNode, plan: RequestPlan) -> PoolTrouble:
    return PoolTrouble(
        key=view.key,
        trouble=view.trouble,
        detail=view.detail,
        devices=len(view.generation.devices),
        matching=chosen(view.generation, plan.selectors, view.scan)[0].bit_count(),
        may_serve=may_serve(view, plan),
    )


def _free(problem: AllocationProblem, request: RequestOnNode) -> Stage:
    masks: dict[Generation, int] = {}
    for view, shift in zip(problem.devices.pools, problem.devices.shifts, strict=True):
        mask = request.candidates >> shift & ((1 << len(view.generation.devices)) - 1)
        if mask:
            masks[view.generation] = mask
    devices = DeviceSet(masks)
    return Stage(stages.FREE, len(devices), devices=devices)


def conflict_of(problem: AllocationProblem, claim: ClaimPlan, requests: Sequence[RequestOnNode]) -> NotTogether:
    """requests: those of the claim, the first alternative of each."""
    found = next(_proven(problem, requests), None)
    if found is not None:
        return found
    if not claim.constraints:
        drawing = next((one for one in requests if one.candidates & problem.consuming and not one.plan.admin), None)
        return _exhausted(problem, drawing) if drawing is not None else NotTogether()
    rules = (f"{'distinct' if one.distinct else 'match'}Attribute: {one.attribute}" for one in claim.constraints)
    return ConstraintsUnmet(claim.name, tuple(rules))


def _proven(problem: AllocationProblem, requests: Sequence[RequestOnNode]) -> Iterator[NotTogether]:
    for index, constraint in enumerate(problem.constraints):
        covered = [one for one in requests if index in one.constraints and one.count]
        if covered:
            yield from (
                _unequal(constraint, covered) if constraint.plan.distinct else _equal(problem, constraint, covered)
            )
    yield from _drawn_up(problem, requests)
    yield from _contested(problem, requests)


def _equal(
    problem: AllocationProblem, constraint: ConstraintOnNode, covered: Sequence[RequestOnNode]
) -> Iterator[NotTogether]:
    """matchAttribute: no value is carried by enough devices for each request that it covers."""
    total = sum(one.count for one in covered)
    most = max((_servable(problem, carriers, covered) for carriers in constraint.carriers), default=0)
    if most < total:
        yield NoCommonValue(
            claim=covered[0].plan.claim,
            attribute=constraint.plan.attribute,
            wanted=total,
            most=most,
            requests=tuple(one.plan.full_name for one in covered),
        )


def _servable(problem: AllocationProblem, carriers: int, covered: Sequence[RequestOnNode]) -> int:
    """How many devices with one value the requests can be given at most, as far as counting tells."""
    each = sum(min((one.candidates & carriers).bit_count(), one.count) for one in covered)
    those = _union(covered) & carriers
    return each if those & problem.shared else min(each, those.bit_count())


def _unequal(constraint: ConstraintOnNode, covered: Sequence[RequestOnNode]) -> Iterator[NotTogether]:
    """distinctAttribute: fewer values than devices."""
    total, wanted = sum(one.count for one in covered), _union(covered)
    values = sum(1 for carriers in constraint.carriers if carriers & wanted)
    if values < total:
        claim, attribute = covered[0].plan.claim, constraint.plan.attribute
        yield TooFewValues(claim=claim, attribute=attribute, wanted=total, values=values)


def _drawn_up(problem: AllocationProblem, requests: Sequence[RequestOnNode]) -> Iterator[NotTogether]:
    """Shared counters leave too little even for one request alone."""
    ledger = CounterLedger(problem.devices, problem.snapshot.usage)
    for one in requests:
        drawing = one.candidates & problem.consuming
        if one.plan.admin or not drawing or problem.shared & drawing:
            continue
        served = (one.candidates & ~drawing).bit_count()
        for position in bits(drawing):
            if ledger.charge(position):
                ledger.refund(position)
                served += 1
        if served < one.count:
            yield _exhausted(problem, one, served)


#: Devices that are named.
_NAMED = 3


def _exhausted(problem: AllocationProblem, one: RequestOnNode, served: int | None = None) -> CountersExhausted:
    devices = problem.devices
    views = {devices.pools[devices.pool_index(position)] for position in bits(one.candidates & problem.consuming)}
    held = {name: view for view in views for name in problem.snapshot.pool_usage(view.key).draws}
    gone = sorted(name for name, view in held.items() if name not in view.generation.bits_by_name)
    return CountersExhausted(
        request=one.plan.full_name,
        wanted=one.count,
        accepted=one.candidates.bit_count(),
        served=served,
        unpublished=tuple(gone[:_NAMED]),
    )


def _contested(problem: AllocationProblem, requests: Sequence[RequestOnNode]) -> Iterator[NotTogether]:
    """More devices are wanted than there are: by all requests, of all claims, that give nothing twice; or by those of
    this claim, which gets no device twice, with admin access either.
    """
    exclusive = [alternatives for _, alternatives in problem.steps if not any(one.plan.admin for one in alternatives)]
    of_claim = [alternatives for _, alternatives in problem.steps if any(alternatives[0] is one for one in requests)]
    for options, claim in ((exclusive, ""), (of_claim, requests[0].plan.claim)):
        total = sum(min(one.count for one in alternatives) for alternatives in options)
        union = _union([one for alternatives in options for one in alternatives])
        if union.bit_count() < total and not union & problem.shared:
            yield RequestsCompete(total, union.bit_count(), claim)


def _union(requests: Sequence[RequestOnNode]) -> int:
    return union(one.candidates for one in requests)


def explain(problem: AllocationProblem) -> tuple[RequestReason, ...]:
    """A reason for every request that cannot be met on its own; else one for what the requests ask for together."""
    reasons = [reason for _, alternatives in problem.steps for reason in _missing(problem, alternatives)]
    if reasons:
        return tuple(sorted(reasons, key=lambda reason: reason.progress))
    return tuple(_together(problem))


def funnels(problem: AllocationProblem) -> tuple[tuple[RequestOnNode, Funnel], ...]:
    """Every request and alternative with its funnel, whether it can be met or not."""
    options = [one for _, alternatives in problem.steps for one in alternatives]
    return tuple((one, funnel(problem, one)) for one in options)


def wanted(request: RequestOnNode) -> int:
    """How many devices would do; for "all" as many as there are, and at least one."""
    return max(request.count, 1)


def is_short(request: RequestOnNode) -> bool:
    """Whether the request cannot be met even if it were the only one."""
    return request.candidates.bit_count() < (wanted(request) if request.plan.everything else request.count)


def _missing(problem: AllocationProblem, alternatives: tuple[RequestOnNode, ...]) -> Iterator[RequestReason]:
    """Nothing where one of the alternatives has enough devices for itself."""
    if all(is_short(one) for one in alternatives):
        for one in alternatives:
            yield _reason(problem, one)


def _reason(
    problem: AllocationProblem, request: RequestOnNode, *, conflict: NotTogether | None = None
) -> RequestReason:
    return RequestReason(
        plan=request.plan,
        node=problem.node.name,
        wanted=wanted(request),
        funnel=funnel(problem, request),
        conflict=conflict,
    )


def _together(problem: AllocationProblem) -> Iterator[RequestReason]:
    """Each request has enough devices for itself: constraints, counters or other requests stand in the way."""
    for index, claim in enumerate(problem.claims):
        requests = [alternatives[0] for owner, alternatives in problem.steps if owner == index]
        if requests:
            yield _reason(problem, requests[0], conflict=conflict_of(problem, claim, requests))
