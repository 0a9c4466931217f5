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
from functools import lru_cache
from heapq import nlargest
from math import inf
from operator import attrgetter
from typing import NamedTuple

from scheduling.allocator.published import make_room
from scheduling.placement.fragmentation.units import (
    MOST_WAYS,
    DeviceUnit,
    SharedUnit,
    UnitState,
    UnitWant,
    least_taken,
)

#: The share of all pods that has to want a unit for it to be as likely used as not: one in fifty.
PATIENCE = 0.02
#: The weight of what is too small for some who ask for several devices of a group, or for a large one of a card.
LARGE = 0.1
#: States of one unit that are known again.
MOST_STATES = 4_000
#: Of what is wanted of a unit, so much is asked whether it is too large for what is left: what is wanted most.
MOST_SIZES = 16
#: Parts of a device that are rounding.
NEARLY_NOTHING = 1e-6
#: Decimal digits of an amount that are not rounding.
DIGITS = 9
#: Of two ways that strand the same the one is taken that leaves less free.
TIE = 1e-6

_UNUSED = attrgetter("unused")


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


class OutlookFigures(NamedTuple):
    """free: of the unit, in devices. unused: how much of that is expected to stay unused though the node has enough
    beside it; stranded: the same, weighted: it counts as lost; used: how much more does, if the node has nothing. cpu,
    variance, memory: what its use takes.
    """

    free: float
    unused: float
    stranded: float
    used: float
    cpu: float
    variance: float
    memory: float


class Outlook:
    """One state of a unit, with the `OutlookFigures` of it. whole: of its devices, nobody uses so many."""

    __slots__ = (
        *("cpu", "free", "memory", "moves", "outlooks", "state", "stranded", "unused", "used", "variance", "whole"),
    )

    def __init__(self, outlooks: UnitOutlooks, state: UnitState, figures: OutlookFigures) -> None:
        self.outlooks = outlooks
        self.state = state
        self.whole: int = outlooks.unit.whole(state)
        self.free, self.unused, self.stranded, self.used, self.cpu, self.variance, self.memory = figures
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
        make_room(self.moves)
        self.moves[want] = best
        return best


#: Of which units how much is taken, in devices: it is paid for by the price of these.
Taken = tuple[tuple["UnitOutlooks", float], ...]


class UnitMove:
    """Somebody takes some of a unit: what becomes of it, by which devices (any of them that will do), and the change of
    each number of its `Outlook`. What is wasted counts as stranded. cost: without the price of what is taken.
    """

    __slots__ = ("after", "cost", "cpu", "devices", "free", "memory", "stranded", "taken", "used", "variance", "whole")

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
        self.taken: Taken = ((after.outlooks, round(-self.free, DIGITS)),)


class UnitOutlooks:
    """The outlook of every state of one unit, under one mix."""

    def __init__(self, unit: DeviceUnit, demands: Sequence[UnitDemand], *, work: int) -> None:
        """work: how many ways to serve a demand may be looked at, in all states together. Of a unit for which that is
        not enough it is guessed what is expected (`_guess`).
        """
        self.unit = unit
        #: what it costs to take a whole unit beyond what is stranded by it; `scarcity` tells
        self.price = 0.0
        self._demands = tuple(demands)
        self._outlooks: dict[UnitState, Outlook] = {}
        #: of a shared device, by the level of its state
        self._by_level: dict[int, OutlookFigures] = {}
        self._expected: dict[UnitState, Expected] = {}
        least = [least_taken(unit, one.want) for one in self._demands]
        self._shares = [one.share if taken < inf else 0.0 for one, taken in zip(self._demands, least, strict=True)]
        amounts = (share * taken if share else 0.0 for share, taken in zip(self._shares, least, strict=True))
        most = nlargest(MOST_SIZES, zip(amounts, range(len(self._demands)), strict=True), key=lambda one: one[0])
        #: (how much is wanted by some, what by each), those who want the most
        self._sizes = [(amount, self._demands[at].want) for amount, at in sorted(most, key=lambda one: one[1])]
        self._levels: Sequence[Expected] = _by_level(unit, self._demands) if isinstance(unit, SharedUnit) else ()
        self._is_large = not isinstance(unit, SharedUnit) and not self._work_out(unit.full, work)

    def of(self, state: UnitState) -> Outlook:
        """The same object for the same state."""
        known = self._outlooks.get(state)
        if known is None:
            if len(self._outlooks) >= MOST_STATES:
                self._outlooks.clear()
            known = self._outlooks[state] = Outlook(self, state, self._figures(state))
        return known

    def _figures(self, state: UnitState) -> OutlookFigures:
        if not isinstance(self.unit, SharedUnit):
            return self._figured(state)
        level = self.unit.level(state)
        known = self._by_level.get(level)
        if known is None:
            known = self._by_level[level] = self._figured(state)
        return known

    def _figured(self, state: UnitState) -> OutlookFigures:
        expected, free = self._expect(state), self.unit.free(state)
        unused = (1 - LARGE) * expected.unused + LARGE * self.too_small_for(state)
        return OutlookFigures(
            free=free,
            unused=expected.unused,
            stranded=unused,
            used=free - expected.unused,
            cpu=expected.cpu,
            variance=max(0.0, expected.squared - expected.cpu**2),
            memory=expected.memory,
        )

    def too_small_for(self, state: UnitState) -> float:
        """How much of what is free would be left if the unit were filled with one demand alone: the mean of all, by how
        much is wanted by each.
        """
        everybody = sum(amount for amount, _ in self._sizes)
        if isinstance(self.unit, SharedUnit) or not self._sizes[1:] or not everybody or not self.unit.free(state):
            return self._expect(state).unused
        return sum(self.unit.unfilled(state, want) * amount for amount, want in self._sizes) / everybody

    def _expect(self, state: UnitState) -> Expected:
        if isinstance(self.unit, SharedUnit):
            return self._levels[self.unit.level(state)]
        if state not in self._expected:
            if len(self._expected) >= MOST_STATES:
                self._expected.clear()
            if self._is_large:
                self._expected[state] = self._guess(state)
            else:
                self._work_out(state)
        return self._expected[state]

    def _work_out(self, state: UnitState, work: float = inf) -> bool:
        """What is expected of the state, of those that may follow first. False where that is more work than allowed."""
        breadth, expected = self.unit.breadth, self._expected
        each = breadth * breadth + min(breadth, MOST_WAYS) * len(self._demands)
        following: dict[UnitState, list[list[tuple[UnitState, float]]]] = {}
        waiting = [state]
        while waiting:
            at = waiting[-1]
            if at in expected:
                waiting.pop()
            elif at not in following:
                work -= each
                if work < 0:
                    expected.clear()
                    return False
                following[at] = [self._following(at, one.want) for one in self._demands]
                waiting += {after: None for ways in following[at] for after, _ in ways if after not in expected}
            else:
                waiting.pop()
                best = (
                    min((expected[after].wasting(wasted) for after, wasted in ways), key=_UNUSED, default=None)
                    for ways in following.pop(at)
                )
                expected[at] = _summed(self.unit.free(at), zip(self._demands, best, strict=True))
        return True

    def _following(self, state: UnitState, want: UnitWant) -> list[tuple[UnitState, float]]:
        """The states that may follow, each with what is wasted on the way."""
        return [(after, self.wasted(state, after, want)) for after, _ in self.unit.after(state, want)]

    def _guess(self, state: UnitState) -> Expected:
        """As if the unit were filled with one demand alone, and what its use takes were spread evenly over it."""
        free, everybody = self.unit.free(state), sum(amount for amount, _ in self._sizes)
        if not everybody:
            return Expected(free)
        unused = sum(self.unit.unfilled(state, want) * amount for amount, want in self._sizes) / everybody
        parts = (free - unused) / everybody
        cpu, squared, memory = (
            parts * sum(share * amount for share, amount in zip(self._shares, amounts, strict=True))
            for amounts in zip(*((one.cpu, one.squared, one.memory) for one in self._demands), strict=True)
        )
        return Expected(unused, cpu, cpu * cpu + squared, memory)

    def wasted(self, before: UnitState, after: UnitState, want: UnitWant) -> float:
        """What was taken beyond the least that would have done."""
        return _over(self.unit.free(before) - self.unit.free(after) - want.least) if want.least else 0.0


def _by_level(unit: SharedUnit, demands: tuple[UnitDemand, ...]) -> tuple[Expected, ...]:
    heights = tuple(unit.height(one.want.asked) for one in demands)
    wasted = tuple(_over(height / unit.levels - one.want.least) for one, height in zip(demands, heights, strict=True))
    return _of_levels(unit.levels, demands, heights, wasted)


@lru_cache(maxsize=128)
def _of_levels(
    levels: int, demands: tuple[UnitDemand, ...], heights: tuple[int, ...], wasted: tuple[float, ...]
) -> tuple[Expected, ...]:
    """What is expected at each level of what is left. Kept, for devices that differ by a few bytes."""
    found: list[Expected] = []
    for level in range(levels + 1):
        after = (
            (one, found[level - height].wasting(waste) if height <= level else None)
            for one, height, waste in zip(demands, heights, wasted, strict=True)
        )
        found.append(_summed(level / levels, after))
    return tuple(found)


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
