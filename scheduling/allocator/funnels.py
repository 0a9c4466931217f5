"""Counts the funnel of a request on one node, from the same masks that the search runs on."""

from __future__ import annotations

from collections.abc import Iterator

from scheduling.allocator import stages
from scheduling.allocator.device_sets import DeviceSet
from scheduling.allocator.masks import intolerable, scanned, serving
from scheduling.allocator.pools import Generation, PoolOnNode
from scheduling.allocator.problem import Problem, RequestOnNode
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.selectors import chosen
from scheduling.allocator.stages import Funnel, PoolTrouble, Stage

_Left = dict[PoolOnNode, int]


def funnel(problem: Problem, request: RequestOnNode) -> Funnel:
    """All stages, in order. Their names are the same on every node."""
    return tuple(_stages(problem, request))


def _stages(problem: Problem, request: RequestOnNode) -> Iterator[Stage]:
    plan, features = request.plan, problem.snapshot.features
    published = problem.snapshot.catalogue.device_count
    healthy = [view for view in problem.devices.pools if not view.trouble]
    troubles = tuple(_trouble(view, plan) for view in problem.devices.pools if view.trouble)
    yield Stage(stages.PUBLISHED, published)
    complete = published - sum(trouble.devices for trouble in troubles)
    yield Stage(stages.COMPLETE, complete, "; ".join(map(str, troubles)), troubles=troubles)
    yield _stage(stages.VISIBLE, {view: view.visible for view in healthy}, clause=problem.node.name)
    left = {view: view.visible & scanned(view, features) for view in healthy}
    for selector in plan.selectors:
        left = {view: chosen(view.generation, (selector,), mask)[0] for view, mask in left.items()}
        kind = stages.CLASS_SELECTOR if selector.owner.startswith("class ") else stages.REQUEST_SELECTOR
        name = f"{kind} #{selector.index}"
        devices = _set(left)
        yield Stage(name, len(devices), selector.expression, devices=devices, selector=selector)
    left = {view: mask & ~_kept_away(problem, view, plan, mask) for view, mask in left.items()}
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
    count = len(view.generation.devices)
    matching = chosen(view.generation, plan.selectors, (1 << count) - 1)[0].bit_count()
    return PoolTrouble(view.key, view.trouble, view.detail, devices=count, matching=matching)


def _kept_away(problem: Problem, view: PoolOnNode, plan: RequestPlan, mask: int) -> int:
    if not problem.snapshot.features.device_taints:
        return 0
    return intolerable(view, plan, mask & view.generation.tainted)


def _free(problem: Problem, request: RequestOnNode) -> Stage:
    masks: dict[Generation, int] = {}
    for view, shift in zip(problem.devices.pools, problem.devices.shifts, strict=True):
        mask = request.candidates >> shift & ((1 << len(view.generation.devices)) - 1)
        if mask:
            masks[view.generation] = mask
    devices = DeviceSet(masks)
    return Stage(stages.FREE, len(devices), devices=devices)
