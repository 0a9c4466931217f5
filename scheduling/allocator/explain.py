"""Why a request gets no device: the funnel of the same masks that the search ran on, and one dominant reason.

The funnel counts what is left after each question: published, in a complete pool, visible from the node, each
selector of the class, each of the request, not tainted, free (with enough capacity and counters), and common to the
constraints. The dominant reason is that of the request with the shortest funnel: the one that is furthest from being
met.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scheduling.allocator.masks import intolerable
from scheduling.allocator.outcome import Reason, Stage
from scheduling.allocator.pools import PoolOnNode
from scheduling.allocator.problem import Problem, RequestOnNode
from scheduling.allocator.requests import ClaimPlan, RequestPlan
from scheduling.allocator.selectors import chosen

#: The stage that the pools with a trouble do not pass.
COMPLETE = "in a complete pool"


def explain(problem: Problem) -> tuple[Reason, ...]:
    """A reason for every request that cannot be met on its own; else one for what the requests ask for together."""
    reasons = [reason for _, alternatives in problem.steps for reason in _missing(problem, alternatives)]
    if reasons:
        return tuple(sorted(reasons, key=lambda reason: reason.progress))
    return tuple(_together(problem))


def _missing(problem: Problem, alternatives: tuple[RequestOnNode, ...]) -> Iterator[Reason]:
    """Nothing where one of the alternatives has enough devices for itself."""
    short = [one for one in alternatives if _is_short(one)]
    if len(short) == len(alternatives):
        for request in short:
            funnel = _funnel(problem, request)
            yield _reason(request.plan, wanted=_wanted(request), text=_text(problem, request, funnel), funnel=funnel)


def _is_short(request: RequestOnNode) -> bool:
    if request.plan.everything:
        return not request.everything or request.candidates.bit_count() < request.count
    return request.candidates.bit_count() < request.count


def _wanted(request: RequestOnNode) -> int:
    return 0 if request.plan.everything else request.count


def _reason(plan: RequestPlan, *, wanted: int, text: str, funnel: tuple[Stage, ...]) -> Reason:
    return Reason(
        claim=plan.claim,
        request=plan.full_name,
        device_class=plan.class_name,
        wanted=wanted,
        text=f"claim {plan.claim}, request {plan.full_name}: {text}",
        funnel=funnel,
    )


def _funnel(problem: Problem, request: RequestOnNode) -> tuple[Stage, ...]:
    """Counts summed over the pools. The stages are the same for all pools, in the same order."""
    published, plan = problem.snapshot.catalogue.device_count, request.plan
    healthy = [view for view in problem.devices.pools if not view.trouble]
    here = sum(len(view.generation.devices) for view in problem.devices.pools)
    complete = sum(len(view.generation.devices) for view in healthy)
    stages = [
        Stage("published", published),
        Stage(COMPLETE, published - here + complete, _troubles(view for view in problem.devices.pools if view.trouble)),
        Stage("visible from the node", sum(view.visible.bit_count() for view in healthy), problem.node.name),
    ]
    left = {view: view.visible & _allowed(problem, view) for view in healthy}
    for number, selector in enumerate(plan.selectors):
        left = {view: chosen(view.generation, plan.selectors[: number + 1], mask)[0] for view, mask in left.items()}
        kind = "class" if selector.owner.startswith("class ") else "request"
        stages.append(Stage(f"{kind} selector #{selector.index}", _count(left), selector.expression))
    tolerated = {view: mask & ~_kept_away(problem, view, plan, mask) for view, mask in left.items()}
    stages.append(Stage("not tainted", _count(tolerated)))
    stages.append(Stage("free", request.candidates.bit_count()))
    return tuple(stages)


def _allowed(problem: Problem, view: PoolOnNode) -> int:
    return view.scan if problem.snapshot.features.binding_conditions else view.scan & ~view.generation.binding


def _kept_away(problem: Problem, view: PoolOnNode, plan: RequestPlan, mask: int) -> int:
    if not problem.snapshot.features.device_taints:
        return 0
    return intolerable(view, plan, mask & view.generation.tainted)


def _count(left: Mapping[PoolOnNode, int]) -> int:
    return sum(mask.bit_count() for mask in left.values())


def _troubles(views: Iterable[PoolOnNode]) -> str:
    return "; ".join(f"pool {view.key} is {view.trouble}: {view.detail}" for view in views)


def _text(problem: Problem, request: RequestOnNode, funnel: tuple[Stage, ...]) -> str:
    """The stage at which the devices fell below what is wanted, in plain words."""
    plan = request.plan
    wanted = max(request.count, 1)
    before = funnel[0]
    for stage in funnel:
        if stage.left < wanted:
            sentence = _sentence(plan, before, stage, wanted=wanted)
            return sentence if stage.name == COMPLETE else f"{sentence}{_withheld(problem, plan)}"
        before = stage
    return "not all of the devices that match can be had"


def _withheld(problem: Problem, plan: RequestPlan) -> str:
    """The pools that cannot be used although the selectors choose devices of theirs."""
    views = [view for view in problem.devices.pools if view.trouble]
    matching = [view for view in views if chosen(view.generation, plan.selectors, _all(view))[0]]
    return f"; {_troubles(matching)}" if matching else ""


def _all(view: PoolOnNode) -> int:
    return (1 << len(view.generation.devices)) - 1


def _sentence(plan: RequestPlan, before: Stage, stage: Stage, *, wanted: int) -> str:
    """What the stage asked, and how many devices that left."""
    if stage.name == "published":
        return f"{wanted} wanted, but only {stage.left} devices are published in the cluster"
    what = {
        COMPLETE: f"the resource pools are not usable ({stage.clause})",
        "visible from the node": f"node {stage.clause} sees too few devices",
        "not tainted": f"devices of class {plan.class_name} are tainted and the request does not tolerate it",
        "free": f"devices of class {plan.class_name} are in use, or have too little capacity left",
    }.get(stage.name)
    if what is None:
        where = stage.name if stage.name.startswith("request ") else f"{stage.name} of class {plan.class_name}"
        what = f"{where} matches too few devices ({stage.clause})"
    return f"{what}; {wanted} wanted, {stage.left} left of {before.left}"


def _together(problem: Problem) -> Iterator[Reason]:
    """Each request has enough devices for itself: constraints, or other requests, stand in the way."""
    for index, claim in enumerate(problem.claims):
        plans = [alternatives[0].plan for owner, alternatives in problem.steps if owner == index]
        if plans:
            wanted = sum(alternatives[0].count for owner, alternatives in problem.steps if owner == index)
            yield Reason(
                claim=claim.name,
                request=plans[0].full_name,
                device_class=plans[0].class_name,
                wanted=wanted,
                text=f"claim {claim.name}: {_conflict(claim)}",
            )


def _conflict(claim: ClaimPlan) -> str:
    if not claim.constraints:
        return "each request has enough devices for itself, but not all of them together"
    names = " and ".join(
        f"{'distinctAttribute' if one.distinct else 'matchAttribute'} {one.attribute}" for one in claim.constraints
    )
    return f"no devices that the requests match satisfy {names} together"
