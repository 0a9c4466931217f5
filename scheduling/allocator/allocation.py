"""`allocate`: all claims of a pod on one node, from a snapshot to an answer; `examine`: the same, with every funnel.

A solution becomes `AllocationResult`s: device results, configuration, node selector. Order and naming follow the end of
upstream's Allocate and createNodeSelector (allocator_experimental.go, v1.37). The share id of a shared device is
derived from the claim, the request and the device, so that a plan is a pure function of its input; a claim has one
allocation at a time, so no two shares of a device have the same id.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from claims.causes.causes import Fault, Misconfigured
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
from scheduling.allocator.explain import explain, funnels, is_short, wanted
from scheduling.allocator.outcome import Allocated, AllocationFailed, Outcome, Unallocatable, Undecided
from scheduling.allocator.problem import AllocationProblem, pose
from scheduling.allocator.published import Consumption, NodeView, PublishedDevice
from scheduling.allocator.requests import ClaimPlan, RequestPlan, name_of, plan_claim
from scheduling.allocator.search import DEFAULT_LIMIT, NoSolution, Solution, solve
from scheduling.allocator.snapshot import Snapshot
from scheduling.allocator.stages import Funnel
from scheduling.allocator.state import Taken

_SHARES = uuid.UUID("5f2f6bb9-1b0e-4a5c-9a5d-0f6f2d8a4c11")


def build_results(problem: AllocationProblem, solution: Solution) -> tuple[AllocationResult, ...] | AllocationFailed:
    """One result per claim, in order; Failed where a slice has a node selector that results cannot carry."""
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
    """`requests` is left empty where all chosen requests are of the class."""
    entries: list[DeviceAllocationConfiguration] = []
    for plan in _first_of_each_class(chosen):
        users = tuple(one.full_name for one in chosen if one.class_name == plan.class_name)
        named = () if len(users) == len(chosen) else users
        for config in plan.device_class.spec.config if plan.device_class else ():
            entries.append(DeviceAllocationConfiguration(source="FromClass", requests=named, opaque=config.opaque))
    return tuple(entries)


def claim_configuration(
    claim: ResourceClaim, chosen: Sequence[RequestPlan]
) -> tuple[DeviceAllocationConfiguration, ...]:
    """`requests` is left empty where all chosen requests are covered; else it is taken over as it stands."""
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


def _first_of_each_class(chosen: Sequence[RequestPlan]) -> list[RequestPlan]:
    first: dict[str, RequestPlan] = {}
    for plan in chosen:
        first.setdefault(plan.class_name, plan)
    return list(first.values())


def node_selector(devices: Sequence[PublishedDevice], node: NodeView) -> NodeSelector | str | None:
    """Where the devices are available: this node, the merged requirements of their pools, or (None) everywhere."""
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
    """Add what is not there yet; values compare as sets."""
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
    """Whether `node` has devices for all of it. Cheaper than `allocate` where it has not: nobody is told why."""
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
    """What does not depend on the node."""
    return tuple(plan_claim(claim, snapshot.classes, snapshot.features) for claim in claims)


def answer(problem: AllocationProblem, found: Solution | NoSolution | AllocationFailed | Outcome) -> Outcome:
    """The outcome of one node's search, explained where it is "no"."""
    if isinstance(found, Solution):
        results = build_results(problem, found)
        return results if isinstance(results, AllocationFailed) else Allocated(results=results, trials=found.trials)
    if isinstance(found, NoSolution):
        return Unallocatable(reasons=explain(problem), trials=found.trials, pool_fault=problem.pool_fault)
    return found


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
    """As `allocate`, by the same code; nothing is given to anybody. Undecided past a deadline that the caller set."""
    try:
        problem = pose(snapshot, read_claims(snapshot, claims), node)
        if isinstance(problem, AllocationFailed):
            return Examination(node=node, outcome=problem)
        requests = tuple(
            Examined(plan=one.plan, wanted=wanted(one), funnel=funnel, short=is_short(one))
            for one, funnel in funnels(problem)
        )
        return Examination(node=node, outcome=answer(problem, solve(problem, limit=limit)), requests=requests)
    except TimeLimitExceeded:
        return Examination(node=node, outcome=Undecided(trials=0, timed_out=True))
