"""What is expected of a unit in each state: how much of it stays unused, and what its use takes of the node.

Pods come as the mix says, one after the other, and whoever fits takes the place that leaves least unused. A pod that
comes rarely may not come in time: at each step there is a chance that the next one comes too late for this unit
(PATIENCE). What is free when that happens is stranded. So a shared GPU with 190 of 1,000 left is nearly all stranded
where nobody asks for so little, and one with 500 left is not; a card whose next whole partition is blocked by a small
one counts for what small ones will still take.

Where devices are wanted in several sizes, of a card or a group, a small part of the weight goes to what each of them
could not use if it came alone: so what only the large ones need is kept whole, though small ones would fill it, too.

What the pods take of the node's cpu and memory on the way is summed up beside it (mean and variance): the node compares
it with what it has (`nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from scheduling.allocator.fragmentation.units import DeviceUnit, SharedUnit, UnitState, UnitWant, least_taken

#: The share of all pods that has to want a unit for it to be as likely used as not: one in fifty.
PATIENCE = 0.02
#: The weight of what is too small for some who ask for several devices of a group, or for a large one of a card.
LARGE = 0.1
#: States of one unit that are worked out; what is expected of others is guessed from the one before.
MOST_STATES = 4_000
#: Parts of a device that are rounding.
NEARLY_NOTHING = 1e-6
#: Of two ways that strand the same the one is taken that leaves less free.
TIE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDemand:
    """What some pods take of a unit. share: of all pods. cpu, memory: what comes with it; squared: of the cpu."""

    want: UnitWant
    share: float
    cpu: float
    squared: float
    memory: float


def merged(demands: Iterable[UnitDemand]) -> tuple[UnitDemand, ...]:
    """Those that take the same of the unit as one."""
    found: dict[UnitWant, list[UnitDemand]] = {}
    for one in demands:
        found.setdefault(one.want, []).append(one)
    return tuple(_together(alike) for alike in found.values())


def _together(alike: Sequence[UnitDemand]) -> UnitDemand:
    share = sum(one.share for one in alike)
    cpu, squared, memory = (
        sum(one.share * part for one, part in zip(alike, parts, strict=True)) / share
        for parts in zip(*((one.cpu, one.squared, one.memory) for one in alike), strict=True)
    )
    return UnitDemand(want=alike[0].want, share=share, cpu=cpu, squared=squared, memory=memory)


class Expected(NamedTuple):
    """unused: of the unit, in devices. cpu, squared, memory: what those take of the node who use the rest."""

    unused: float
    cpu: float = 0.0
    squared: float = 0.0
    memory: float = 0.0

    def wasting(self, wasted: float) -> Expected:
        return self._replace(unused=self.unused + wasted) if wasted else self


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPrices:
    """What else counts of a free unit. scarcity: how much it is wanted for what there is, weighted. wide: the weight of
    pods that want several devices of one node, of which `nodes` takes care.
    """

    scarcity: float = 0.0
    wide: float = 0.0


class Outlook:
    """One state of a unit.

    stranded: how much of it counts as lost if the node has enough beside it; used: how much more is, if the node has
    nothing. cpu, variance, memory: what its use takes. free: of it, in devices. whole: of its devices, nobody uses so
    many.
    """

    __slots__ = (
        *("cpu", "free", "memory", "moves", "outlooks", "state", "stranded", "unused", "used", "variance", "whole"),
    )

    def __init__(self, outlooks: UnitOutlooks, state: UnitState, expected: Expected) -> None:
        prices, unit = outlooks.prices, outlooks.unit
        self.outlooks = outlooks
        self.state = state
        self.free: float = unit.free(state)
        self.whole: int = unit.whole(state)
        #: how much of it is expected to stay unused though the node has enough beside it, unweighted
        self.unused = expected.unused
        unused = (1 - LARGE) * expected.unused + LARGE * outlooks.too_small_for(state)
        self.stranded = (1 - prices.wide) * unused + (prices.wide - prices.scarcity) * self.free
        self.used = (1 - prices.wide) * (self.free - expected.unused)
        self.cpu = expected.cpu
        self.variance = max(0.0, expected.squared - expected.cpu**2)
        self.memory = expected.memory
        #: UnitWant -> the best way to serve it; None where there is none. `outlooks` fills it
        self.moves: dict[UnitWant, UnitMove | None] = {}

    def move(self, want: UnitWant) -> UnitMove | None:
        """How the unit serves somebody best, if it can."""
        try:
            return self.moves[want]
        except KeyError:
            return self._best_move(want)

    def _best_move(self, want: UnitWant) -> UnitMove | None:
        outlooks, best = self.outlooks, None
        for state, devices in outlooks.unit.after(self.state, want):
            move = UnitMove(self, outlooks.of(state), devices, wasted=outlooks.wasted(self.state, state, want))
            if best is None or move.cost < best.cost:
                best = move
        self.moves[want] = best
        return best


class UnitMove:
    """Somebody takes some of a unit: what becomes of it, by which devices (any of them that will do), and the change of
    each number of its `Outlook`. What is wasted counts as stranded.
    """

    __slots__ = ("after", "cost", "cpu", "devices", "free", "memory", "stranded", "used", "variance", "whole")

    def __init__(self, before: Outlook, after: Outlook, devices: int, *, wasted: float) -> None:
        self.after = after
        self.devices = devices
        self.stranded = after.stranded - before.stranded + wasted
        self.used = after.used - before.used
        self.cpu = after.cpu - before.cpu
        self.variance = after.variance - before.variance
        self.memory = after.memory - before.memory
        self.free = after.free - before.free
        self.whole = after.whole - before.whole
        self.cost = self.stranded + TIE * after.free


class UnitOutlooks:
    """The outlook of every state of one unit, under one mix."""

    def __init__(self, unit: DeviceUnit, demands: Sequence[UnitDemand], prices: UnitPrices) -> None:
        self.unit = unit
        self.prices = prices
        self._demands = tuple(demands)
        self._outlooks: dict[UnitState, Outlook] = {}
        self._expected: dict[UnitState, Expected] = {}
        self._amounts = [
            one.share * taken if (taken := least_taken(unit, one.want)) < inf else 0.0 for one in self._demands
        ]
        self._filled: dict[tuple[UnitState, UnitWant], float] = {}
        self._levels: list[Expected] = _by_level(unit, self._demands) if isinstance(unit, SharedUnit) else []

    def of(self, state: UnitState) -> Outlook:
        """The same object for the same state."""
        known = self._outlooks.get(state)
        if known is None:
            if len(self._outlooks) >= MOST_STATES:
                self._outlooks.clear()
            known = self._outlooks[state] = Outlook(self, state, self._expect(state))
        return known

    def too_small_for(self, state: UnitState) -> float:
        """How much of what is free would be left if the unit were filled with one demand alone: the mean of all, by how
        much is wanted by each.
        """
        everybody = sum(self._amounts)
        if isinstance(self.unit, SharedUnit) or not self._amounts[1:] or not everybody or not self.unit.free(state):
            return self._expect(state).unused
        left = (
            self._left_by(state, one.want) * amount for one, amount in zip(self._demands, self._amounts, strict=True)
        )
        return sum(left) / sum(self._amounts)

    def _left_by(self, state: UnitState, want: UnitWant) -> float:
        key = (state, want)
        known = self._filled.get(key)
        if known is None:
            if len(self._filled) >= MOST_STATES * len(self._demands):
                self._filled.clear()
            after = next((one for one, _ in self.unit.after(state, want)), None)
            known = self.unit.free(state) if after is None else self._left_by(after, want)
            self._filled[key] = known
        return known

    def _expect(self, state: UnitState) -> Expected:
        if isinstance(self.unit, SharedUnit):
            return self._levels[self.unit.level(state)]
        known = self._expected.get(state)
        if known is None:
            known = Expected(self.unit.free(state))  # if there are too many states to look beyond this one
            if len(self._expected) < MOST_STATES:
                found = ((one, self._best_after(state, one)) for one in self._demands)
                known = _summed(known.unused, found)
            self._expected[state] = known
        return known

    def _best_after(self, state: UnitState, demand: UnitDemand) -> Expected | None:
        """With what is wasted on the way."""
        following = (
            self._expect(after).wasting(self.wasted(state, after, demand.want))
            for after, _ in self.unit.after(state, demand.want)
        )
        return min(following, key=lambda one: one.unused, default=None)

    def wasted(self, before: UnitState, after: UnitState, want: UnitWant) -> float:
        """What was taken beyond the least that would have done."""
        return _over(self.unit.free(before) - self.unit.free(after) - want.least) if want.least else 0.0


def _by_level(unit: SharedUnit, demands: Sequence[UnitDemand]) -> list[Expected]:
    """What is expected at each level of what is left."""
    found: list[Expected] = []
    heights = [(one, unit.height(one.want.asked)) for one in demands]
    wasted = [_over(height / unit.levels - one.want.least) for one, height in heights]
    for level in range(unit.levels + 1):
        after = (
            (one, found[level - height].wasting(waste) if height <= level else None)
            for (one, height), waste in zip(heights, wasted, strict=True)
        )
        found.append(_summed(level / unit.levels, after))
    return found


def _over(amount: float) -> float:
    return amount if amount > NEARLY_NOTHING else 0.0


def _summed(free: float, following: Iterable[tuple[UnitDemand, Expected | None]]) -> Expected:
    """following: whoever may come next, and what is expected then; None for those who do not fit."""
    chances, unused = PATIENCE, PATIENCE * free
    cpu = squared = memory = 0.0
    for demand, after in following:
        if after is not None:
            share = demand.share
            chances += share
            unused += share * after.unused
            cpu += share * (demand.cpu + after.cpu)
            squared += share * (demand.squared + 2 * demand.cpu * after.cpu + after.squared)
            memory += share * (demand.memory + after.memory)
    return Expected(unused / chances, cpu / chances, squared / chances, memory / chances)
