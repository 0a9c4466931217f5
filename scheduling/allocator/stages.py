"""The funnel of a request as values: what is left of the devices after each question, on one node or over several.

The questions, in order: published, in a complete pool, visible from the node, each selector of the class, each of the
request, not tainted, large enough (where capacity is asked for), free. A `Shortage` is one request whose funnel leaves
too little on every node that was looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduling.allocator.device_sets import DeviceSet
from scheduling.allocator.drops import ASKED
from scheduling.allocator.published import PoolKey
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.selectors import SelectorRef

PUBLISHED = "published"
COMPLETE = "in a complete pool"
VISIBLE = "visible from the node"
CLASS_SELECTOR = "class selector"
REQUEST_SELECTOR = "request selector"
UNTAINTED = "not tainted"
LARGE = "large enough"
FREE = "free"


@dataclass(frozen=True, slots=True)
class PoolTrouble:
    """A pool that gives no device as it is."""

    key: PoolKey
    trouble: str  # "incomplete" or "invalid"
    detail: str  # "1 of 2 slices of generation 1"
    devices: int  # how many it publishes
    matching: int  # how many of them the request's selectors choose

    def __str__(self) -> str:
        return f"pool {self.key} is {self.trouble}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the funnel: how many devices were left after it, and what it asked."""

    name: str  # "published", ..., "class selector #0", "request selector #1", ...
    left: int
    clause: str = ""  # the selector's expression, the node, what is wrong with pools, the capacity asked for
    #: the devices that are left; empty for the first two stages, which only count
    devices: DeviceSet = field(default_factory=DeviceSet, compare=False, repr=False)
    selector: SelectorRef | None = field(default=None, compare=False, repr=False)
    troubles: tuple[PoolTrouble, ...] = field(default=(), compare=False, repr=False)


Funnel = tuple[Stage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A request that has too few devices, on one node or on each of several."""

    plan: RequestPlan
    wanted: int  # on one node; where "all" are asked for, as many as there are, at least 1
    funnel: Funnel  # over all of the nodes: what several of them see counts once
    most: tuple[int, ...]  # per stage, the most devices that are left on one node
    nodes: tuple[str, ...]
    #: whether sentences name the claim too
    names_claim: bool = False
    #: how many of the devices that a selector refused are asked for what they have
    asked: int = ASKED

    @property
    def subject(self) -> str:
        """`request "gpu" of claim "ns/name"`, with backticks."""
        request = f"request `{self.plan.full_name}`"
        return f"{request} of claim `{self.plan.claim}`" if self.names_claim else request

    @property
    def failing(self) -> int:
        """The stage at which even the node that came furthest falls short."""
        return next((index for index, most in enumerate(self.most) if most < self.wanted), len(self.funnel) - 1)

    @property
    def stage(self) -> Stage:
        return self.funnel[self.failing]

    @property
    def before(self) -> Stage:
        return self.funnel[max(self.failing - 1, 0)]

    @property
    def lost(self) -> DeviceSet:
        """The devices that fell out at the failing stage."""
        return self.before.devices - self.stage.devices


def merged(funnels: Sequence[Funnel]) -> Funnel:
    """The funnels of one request on several nodes as one."""
    if len(funnels) == 1:
        return funnels[0]
    published = funnels[0][0]
    troubles = {trouble.key: trouble for funnel in funnels for trouble in funnel[1].troubles}
    complete = published.left - sum(trouble.devices for trouble in troubles.values())
    known = tuple(troubles[key] for key in sorted(troubles))
    whole = [published, Stage(COMPLETE, complete, "; ".join(map(str, known)), troubles=known)]
    for same in zip(*(funnel[2:] for funnel in funnels), strict=True):
        left = DeviceSet.union(stage.devices for stage in same)
        clause = "" if same[0].name == VISIBLE else same[0].clause
        whole.append(Stage(same[0].name, len(left), clause, devices=left, selector=same[0].selector))
    return tuple(whole)


def most_left(funnels: Sequence[Funnel]) -> tuple[int, ...]:
    """Per stage, the most devices that are left on one node."""
    return tuple(max(stage.left for stage in same) for same in zip(*funnels, strict=True))
