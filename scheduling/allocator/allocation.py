"""`allocate`: all claims of a pod on one node, from a snapshot to an answer; `examine`: the same, with every funnel.

A solution becomes `AllocationResult`s: device results, configuration, node selector. Order and naming follow the end of
upstream's Allocate and createNodeSelector (allocator_experimental.go, v1.37). The share id of a shared device is
derived from the claim, the request and the device, so that a plan is a pure function of its input; a claim has one
allocation at a time, so no two shares of a device have the same id.

"No" becomes reasons (`explain`): the funnels of the requests that are short, counted from the same masks that the
search runs on. The dominant reason is that of the request with the shortest funnel: the one that is furthest from being
met. Only counts and sets are made here, since every node that refuses a pod is explained; the cause and the operand
that refused the last devices are worked out when a reason is read. If each request has enough devices for itself, the
reason is the first of these that, by counting alone, shows why they cannot be met together: a constraint without enough
devices for any value, exhausted shared counters, requests that compete for the same few devices. If none of them does,
the constraints are named together.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from msgspec.structs import replace

from claims.causes.causes import (
    ConstraintsUnmet,
    CountersExhausted,
    Fault,
    Misconfigured,
    NoCommonValue,
    NotTogether,
    RequestsCompete,
    TooFewValues,
)
from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DrawnCounters,
    ResourceClaim,
    names_of_counters,
)
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from scheduling.allocator.outcome import (
    CLASS_SELECTOR,
    COMPLETE,
    FREE,
    LARGE,
    PUBLISHED,
    REQUEST_SELECTOR,
    UNTAINTED,
    VISIBLE,
    Allocated,
    AllocationFailed,
    ConstraintStep,
    DeviceSet,
    Funnel,
    Outcome,
    PoolTrouble,
    RequestReason,
    Stage,
    Unallocatable,
    Undecided,
)
from scheduling.allocator.problem import (
    AllocationProblem,
    ConstraintOnNode,
    RequestOnNode,
    may_serve,
    pose,
    scanned,
    serving,
    untainted,
)
from scheduling.allocator.published import Consumption, NodeView, PublishedDevice
from scheduling.allocator.requests import ClaimPlan, RequestPlan, SelectorRef, chosen, name_of, plan_claim
from scheduling.allocator.search import DEFAULT_LIMIT, CounterLedger, NoSolution, Solution, Taken, solve
from scheduling.allocator.snapshot import Generation, PoolOnNode, Snapshot, bits, union

_Left = dict[PoolOnNode, int]


def funnel(problem: AllocationProblem, request: RequestOnNode) -> Funnel:
    """All stages, in order. Their names are the same on every node."""
    return tuple(_stages(problem, request))


def _stages(problem: AllocationProblem, request: RequestOnNode) -> Iterator[Stage]:
    """Stages share what is equal, on this node and across nodes: the index caches thousands of funnels."""
    plan, features = request.plan, problem.snapshot.features
    published = problem.snapshot.catalogue.device_count
    healthy = [view for view in problem.devices.pools if not view.trouble]
    troubles = tuple(_trouble(view, plan) for view in problem.devices.pools if view.trouble)
    yield _without_devices(PUBLISHED, published, "", None)
    # allocationMode All gets nothing while it is unknown which devices there are.
    complete = 0 if request.blocked_by else published - sum(trouble.devices for trouble in troubles)
    if troubles:
        yield Stage(COMPLETE, complete, "; ".join(map(str, troubles)), troubles=troubles)
    else:
        yield _without_devices(COMPLETE, complete, "", None)
    left = {view: view.visible & scanned(view, features) for view in healthy}
    visible = {view: view.visible for view in healthy}
    devices = _set(visible)
    yield Stage(VISIBLE, len(devices), problem.node.name, devices=devices)
    before = visible
    for selector in plan.selectors:
        left = {view: chosen(view.generation, (selector,), mask)[0] for view, mask in left.items()}
        kind = CLASS_SELECTOR if selector.owner.startswith("class ") else REQUEST_SELECTOR
        devices = devices if left == before else _set(left)
        yield _stage(f"{kind} #{selector.index}", devices, selector.expression, selector)
        before = left
    left = {view: untainted(view, plan, mask, features) for view, mask in left.items()}
    devices = devices if left == before else _set(left)
    yield _stage(UNTAINTED, devices)
    if plan.capacity:
        asked = ", ".join(f"{name} {amount}" for name, amount in plan.capacity)
        devices = _set({view: serving(view, plan, mask, features) for view, mask in left.items()})
        yield _stage(LARGE, devices, asked)
    yield _stage(FREE, _free(problem, request))


def _stage(name: str, devices: DeviceSet, clause: str = "", selector: SelectorRef | None = None) -> Stage:
    if not devices.masks:
        return _without_devices(name, 0, clause, selector)
    return Stage(name, len(devices), clause, devices=devices, selector=selector)


@lru_cache(maxsize=4096)
def _without_devices(name: str, left: int, clause: str, selector: SelectorRef | None) -> Stage:
    return Stage(name, left, clause, selector=selector)


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


def _free(problem: AllocationProblem, request: RequestOnNode) -> DeviceSet:
    masks: dict[Generation, int] = {}
    for view, shift in zip(problem.devices.pools, problem.devices.shifts, strict=True):
        mask = request.candidates >> shift & ((1 << len(view.generation.devices)) - 1)
        if mask:
            masks[view.generation] = mask
    return DeviceSet(masks)


def conflict_of(problem: AllocationProblem, claim: ClaimPlan, requests: Sequence[RequestOnNode]) -> NotTogether:
    """requests: those of the claim, the first alternative of each."""
    conflict = next(_proven(problem, requests), None)
    if conflict is not None:
        return conflict
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
    """matchAttribute: no value has enough devices for each request that it covers."""
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


def _constraint_steps(problem: AllocationProblem, owner: int, request: RequestOnNode) -> Iterator[ConstraintStep]:
    """What each constraint leaves of the request's free devices. owner: the index of its claim."""
    options = [alternatives for claim, alternatives in problem.steps if claim == owner]
    together = [request if request in alternatives else alternatives[0] for alternatives in options]
    for index in request.constraints:
        constraint = problem.constraints[index]
        covered = [one for one in together if index in one.constraints and one.count]
        total, candidates = sum(one.count for one in covered), _union(covered)
        if constraint.plan.distinct:
            left = sum(1 for carriers in constraint.carriers if carriers & candidates)
            met = left >= total
        else:
            left = max(((candidates & carriers).bit_count() for carriers in constraint.carriers), default=0)
            met = max((_servable(problem, one, covered) for one in constraint.carriers), default=0) >= total
        yield ConstraintStep(
            attribute=constraint.plan.attribute, distinct=constraint.plan.distinct, wanted=total, left=left, met=met
        )


def _servable(problem: AllocationProblem, carriers: int, covered: Sequence[RequestOnNode]) -> int:
    """An upper bound of the devices with one value that the requests can be given."""
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
    """Shared counters have too little left even for one request alone."""
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


#: Devices that a cause names.
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
    """More devices are wanted than there are: by all requests without admin access, of all claims; or by those of this
    claim, which gets no device twice even with admin access.
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
    """A reason for every request that cannot be met on its own; otherwise, why they cannot be met together."""
    reasons = [reason for _, alternatives in problem.steps for reason in _missing(problem, alternatives)]
    if reasons:
        return tuple(sorted(reasons, key=lambda reason: reason.progress))
    return tuple(_together(problem))


def wanted(request: RequestOnNode) -> int:
    """How many devices would do; for allocationMode All as many as there are, and at least one."""
    return max(request.count, 1)


def is_short(request: RequestOnNode) -> bool:
    """Whether the request cannot be met even if it were the only one."""
    return request.candidates.bit_count() < (wanted(request) if request.plan.everything else request.count)


def _missing(problem: AllocationProblem, alternatives: tuple[RequestOnNode, ...]) -> Iterator[RequestReason]:
    """Nothing if one of the alternatives has enough devices for itself."""
    if all(is_short(one) for one in alternatives):
        for one in alternatives:
            yield _reason(problem, one)


def _reason(
    problem: AllocationProblem, request: RequestOnNode, *, conflict: NotTogether | None = None
) -> RequestReason:
    stages = funnel(problem, request)
    return RequestReason(
        plan=request.plan,
        node=problem.node.name,
        wanted=wanted(request),
        funnel=stages,
        conflict=conflict,
        progress=math.inf if conflict else sum(1 for stage in stages if stage.left),
    )


def _together(problem: AllocationProblem) -> Iterator[RequestReason]:
    """Each request has enough devices for itself: constraints, counters or other requests stand in the way."""
    for index, claim in enumerate(problem.claims):
        requests = [alternatives[0] for owner, alternatives in problem.steps if owner == index]
        if requests:
            yield _reason(problem, requests[0], conflict=conflict_of(problem, claim, requests))


_SHARES = uuid.UUID("5f2f6bb9-1b0e-4a5c-9a5d-0f6f2d8a4c11")


def build_results(problem: AllocationProblem, solution: Solution) -> tuple[AllocationResult, ...] | AllocationFailed:
    """One result per claim, in order; Failed if a slice has a node selector that results cannot carry."""
    results: list[AllocationResult] = []
    for index, claim in enumerate(problem.claims):
        taken = [one for one in solution.taken if one.claim == index]
        selector = node_selector([problem.devices.device(one.position) for one in taken], problem.node)
        if isinstance(selector, str):
            error = f"create NodeSelector for claim {claim.claim.metadata.name}: {selector}"
            return AllocationFailed(cause=Misconfigured(Fault.CLAIM, error))
        chosen = [
            alternatives[alternative].plan
            for (owner, alternatives), alternative in zip(problem.steps, solution.chosen, strict=True)
            if owner == index
        ]
        devices = DeviceAllocationResult(
            results=tuple(_device_result(problem, claim, one) for one in taken), config=configuration(claim, chosen)
        )
        drawn = tuple(_drawn(problem, one) for one in taken if problem.draws(one.request, one.position))
        results.append(AllocationResult(devices=devices, node_selector=selector, drawn_counters=drawn))
    return tuple(results)


def _device_result(problem: AllocationProblem, claim: ClaimPlan, taken: Taken) -> DeviceRequestAllocationResult:
    device, plan = problem.devices.device(taken.position), taken.request.plan
    result = plan.exclusive_result(device, conditions=problem.snapshot.features.binding_conditions)
    if taken.consumed is None and not plan.admin:
        return result
    if plan.admin:
        result = replace(result, admin_access=True)
    return result if taken.consumed is None else shared_result(result, claim.claim, device, taken.consumed)


def _drawn(problem: AllocationProblem, taken: Taken) -> DrawnCounters:
    view = problem.devices.pools[problem.devices.pool_index(taken.position)]
    device = problem.devices.device(taken.position)
    return DrawnCounters(
        driver=device.key.driver,
        pool=device.key.name,
        device=device.name,
        consumes=device.published.consumes_counters,
        **names_of_counters(view.counter_sets.values()),
    )


def shared_result(
    result: DeviceRequestAllocationResult, claim: ResourceClaim, device: PublishedDevice, consumed: Consumption
) -> DeviceRequestAllocationResult:
    """`result` as a share of the device."""
    owner = "\n".join((claim.metadata.uid or name_of(claim), result.request, str(device)))
    return replace(
        result,
        share_id=str(uuid.uuid5(_SHARES, owner)),
        consumed_capacity={name: amount.canonical() for name, amount in consumed.items()},
    )


def configuration(claim: ClaimPlan, chosen: Sequence[RequestPlan]) -> tuple[DeviceAllocationConfiguration, ...]:
    """Class configurations once per class in request order, then those of the claim that cover a chosen request."""
    return class_configuration(chosen) + claim_configuration(claim.claim, chosen)


def class_configuration(chosen: Sequence[RequestPlan]) -> tuple[DeviceAllocationConfiguration, ...]:
    """Once per class, in request order. `requests` is left empty if all chosen requests are of the class."""
    entries: list[DeviceAllocationConfiguration] = []
    first_of_class: dict[str, RequestPlan] = {}
    for plan in chosen:
        first_of_class.setdefault(plan.class_name, plan)
    for plan in first_of_class.values():
        users = tuple(one.full_name for one in chosen if one.class_name == plan.class_name)
        named = () if len(users) == len(chosen) else users
        for config in plan.device_class.spec.config if plan.device_class else ():
            entries.append(DeviceAllocationConfiguration(source="FromClass", requests=named, opaque=config.opaque))
    return tuple(entries)


def claim_configuration(
    claim: ResourceClaim, chosen: Sequence[RequestPlan]
) -> tuple[DeviceAllocationConfiguration, ...]:
    """`requests` is left empty if all chosen requests are covered; otherwise it is copied."""
    entries: list[DeviceAllocationConfiguration] = []
    for given in claim.spec.devices.config:
        named = given.requests
        if named:
            names = frozenset(named)
            covered = [one for one in chosen if not names.isdisjoint({one.parent or one.name, one.full_name})]
            if not covered:
                continue
            if len(covered) == len(chosen):
                named = ()
        entries.append(DeviceAllocationConfiguration(source="FromClaim", requests=named, opaque=given.opaque))
    return tuple(entries)


def node_selector(devices: Sequence[PublishedDevice], node: NodeView) -> NodeSelector | str | None:
    """The nodes that can use the devices: this one, those that meet all requirements of the pools, or (None) any."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for device in devices:
        targeting = device.targeting
        if targeting.node_name or device.published.binds_to_node:
            return only_on(node)
        terms = targeting.node_selector.node_selector_terms if targeting.node_selector else ()
        if len(terms) > 1:
            return f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
        for term in terms:
            _merge(term.match_fields, fields)
            _merge(term.match_expressions, expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))


def only_on(node: NodeView) -> NodeSelector:
    here = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node.name,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(here,)),))


def _merge(new: Sequence[NodeSelectorRequirement], known: list[NodeSelectorRequirement]) -> None:
    """Add the requirements that are not there yet; their values compare as sets."""
    for one in new:
        if not any(
            (one.key, one.operator, set(one.values)) == (old.key, old.operator, set(old.values)) for old in known
        ):
            known.append(one)


def allocate(
    snapshot: Snapshot,
    claims: Sequence[ResourceClaim],
    node: NodeView,
    *,
    limit: int = DEFAULT_LIMIT,
    deadline: Deadline | None = None,
) -> Outcome:
    """Find devices on `node` for all `claims`, none of which is allocated yet.

    The same input gives the same answer. It is Undecided after `limit` device trials or past `deadline`.
    """
    try:
        with time_limit(deadline):
            problem = pose(snapshot, read_claims(snapshot, claims), node)
            if isinstance(problem, AllocationFailed):
                return problem
            return answer(problem, solve(problem, limit=limit, deadline=deadline))
    except TimeLimitExceeded as error:
        if error.deadline is not deadline:
            raise
        return Undecided(trials=0, timed_out=True)


def is_allocatable(
    snapshot: Snapshot,
    plans: Sequence[ClaimPlan],
    node: NodeView,
    *,
    limit: int = DEFAULT_LIMIT,
    deadline: Deadline | None = None,
) -> bool:
    """Whether `node` has devices for all of it. Cheaper than `allocate` if not, since it explains nothing."""
    try:
        with time_limit(deadline):
            problem = pose(snapshot, plans, node)
            return isinstance(problem, AllocationProblem) and isinstance(
                solve(problem, limit=limit, deadline=deadline), Solution
            )
    except TimeLimitExceeded as error:
        if error.deadline is not deadline:
            raise
        return False


def read_claims(snapshot: Snapshot, claims: Sequence[ResourceClaim]) -> tuple[ClaimPlan, ...]:
    """The part of the problem that does not depend on the node."""
    return tuple(plan_claim(claim, snapshot.classes, snapshot.features) for claim in claims)


def answer(problem: AllocationProblem, result: Solution | NoSolution | AllocationFailed | Outcome) -> Outcome:
    """The outcome of one node's search; a "no" is explained."""
    if isinstance(result, Solution):
        results = build_results(problem, result)
        return results if isinstance(results, AllocationFailed) else Allocated(results=results, trials=result.trials)
    if isinstance(result, NoSolution):
        return Unallocatable(reasons=explain(problem), trials=result.trials, pool_fault=problem.pool_fault)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One request or alternative on one node."""

    plan: RequestPlan
    wanted: int
    funnel: Funnel
    short: bool  # it could not be met even if it were the only one
    constraints: tuple[ConstraintStep, ...] = ()

    @property
    def met(self) -> bool:
        """Whether there are enough devices for it, with its constraints."""
        return not self.short and all(one.met for one in self.constraints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """`requests` is empty if a claim or class is wrong, so that nothing could be counted."""

    node: NodeView
    outcome: Outcome
    requests: tuple[Examined, ...] = ()


def examine(
    snapshot: Snapshot, claims: Sequence[ResourceClaim], node: NodeView, *, limit: int = DEFAULT_LIMIT
) -> Examination:
    """As `allocate`, by the same code, with every funnel. Undecided past a deadline that the caller set."""
    try:
        problem = pose(snapshot, read_claims(snapshot, claims), node)
        if isinstance(problem, AllocationFailed):
            return Examination(node=node, outcome=problem)
        requests = tuple(
            Examined(
                plan=one.plan,
                wanted=wanted(one),
                funnel=funnel(problem, one),
                short=is_short(one),
                constraints=tuple(_constraint_steps(problem, owner, one)),
            )
            for owner, alternatives in problem.steps
            for one in alternatives
        )
        return Examination(node=node, outcome=answer(problem, solve(problem, limit=limit)), requests=requests)
    except TimeLimitExceeded:
        return Examination(node=node, outcome=Undecided(trials=0, timed_out=True))
