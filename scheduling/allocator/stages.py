"""The funnel of a request as values: what is left of the devices after each question, on one node or over several.

The questions, in order: published, in a complete pool, visible from the node, each selector of the class, each of the
request, not tainted, large enough (where capacity is asked for), free. A `Shortage` is one request whose funnel leaves
too little on every node that was looked at. A `Drop` tells what a selector held against the devices that it refused:
a false operand, and what the devices have there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from inventory.kinds.pools import PoolKey
from manciple.wire.limits import TimeLimitExceeded
from scheduling.allocator.pools import Generation, bits
from scheduling.allocator.published import PublishedDevice
from scheduling.allocator.requests import Projection, RequestPlan, SelectorRef, projection_of
from scheduling.cel import CompileError, DeviceView, Selector, compile_selector
from scheduling.cel.clauses import Clause, extremes, first_false, shown


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSet:
    """Never changes. Several nodes may see the same devices: a union counts each once."""

    masks: Mapping[Generation, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(mask.bit_count() for mask in self.masks.values())

    def __iter__(self) -> Iterator[PublishedDevice]:
        for generation, mask in self.masks.items():
            for position in bits(mask):
                yield generation.devices[position]

    def __sub__(self, other: DeviceSet) -> DeviceSet:
        return DeviceSet({key: mask & ~other.masks.get(key, 0) for key, mask in self.masks.items()})

    @classmethod
    def union(cls, sets: Iterable[DeviceSet]) -> DeviceSet:
        masks: dict[Generation, int] = {}
        for one in sets:
            for key, mask in one.masks.items():
                masks[key] = masks.get(key, 0) | mask
        return cls(masks)


#: Devices that are asked where a refusal is told in passing; of more, the first so many speak for all.
ASKED = 512
#: The same where somebody has asked for an explanation.
ASKED_THOROUGHLY = 100_000
#: Different values that are named.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """One operand with the devices that it refused."""

    clause: Clause
    count: int
    #: how many devices were asked, those that other operands refused included
    asked: int = 0
    #: value -> devices that have it, most first, at most NAMED; only where the operand is a simple comparison
    values: tuple[tuple[str, int], ...] = ()
    more_values: bool = False
    least: str = ""
    greatest: str = ""
    one_device: str = ""  # driver/pool/device, for example


def drops(selector: SelectorRef, refused: DeviceSet, *, most: int = ASKED_THOROUGHLY) -> tuple[Drop, ...]:
    """The operands that refused the devices, the one that refused most first. most: how many devices are asked; fewer
    where a deadline passes.
    """
    try:
        compiled = compile_selector(selector.expression)
    except (CompileError, TimeLimitExceeded):
        return ()
    views = _Views(compiled)
    asked, found = 0, dict[str, tuple[Clause, list[DeviceView], PublishedDevice]]()
    for device in islice(refused, most):
        try:
            view, clause = views.of(device)
        except TimeLimitExceeded:
            break
        asked += 1
        if clause is not None:
            found.setdefault(clause.text, (clause, [], device))[1].append(view)
    summed = (replace(_summed(clause, alike, str(example)), asked=asked) for clause, alike, example in found.values())
    return tuple(sorted(summed, key=lambda drop: (-drop.count, drop.clause.text)))


class _Views:
    """Devices as the expression sees them: one view for all that are alike in what it looks at."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._projections: dict[str, Projection | None] = {}
        self._known: dict[Hashable, tuple[DeviceView, Clause | None]] = {}

    def of(self, device: PublishedDevice) -> tuple[DeviceView, Clause | None]:
        """The view, and the operand that is false on it."""
        driver = device.key.driver
        if driver not in self._projections:
            self._projections[driver] = projection_of(self._selector.references, driver)
        project = self._projections[driver]
        seen = project(device.published) if project is not None and device.condition.readable else None
        known = self._known.get(seen) if seen is not None else None
        if known is None:
            view = device.view
            known = view, first_false(self._selector, view)
            if seen is not None:
                self._known[seen] = known
        return known


def _summed(clause: Clause, views: Sequence[DeviceView], example: str) -> Drop:
    if clause.comparison is None:
        return Drop(clause=clause, count=len(views), one_device=example)
    has = {id(view): clause.comparison.value(view) for view in {id(view): view for view in views}.values()}
    values: list[Any] = [value for view in views if (value := has[id(view)]) is not None]
    counted = Counter(map(shown, values)).most_common()
    ends = extremes(values)
    return Drop(
        clause=clause,
        count=len(views),
        values=tuple(counted[:NAMED]),
        more_values=len(counted) > NAMED,
        least=shown(ends[0]) if ends else "",
        greatest=shown(ends[1]) if ends else "",
        one_device=example,
    )


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
    matching: int  # how many of them, on this node, the request's selectors choose
    may_serve: bool  # whether the request could have devices of it

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
    #: how many of the devices that a selector refused are asked for what they have
    asked: int = ASKED

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
