"""What it costs to take what others depend on: by what is free now, whoever came first.

A unit is scarce where more is wanted of its kind than is free, by those who accept nothing else. Pods that accept any
model are kept off it by a part of what they take of it, and led to what is hardly wanted. Likewise the free devices of
a node of which pods could use several at once are the dearer, the fewer such there are beside all that is free.

What is free changes with every placement. So prices stand beside the scores (`ranking`), not in them, and go up and
down in steps: they are always a function of what is free, but most placements change none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import frexp, ldexp

from scheduling.allocator.published import Asked
from scheduling.placement.fragmentation.looks import UnitKind
from scheduling.placement.fragmentation.reading import MixReading, WideDemand
from scheduling.placement.fragmentation.units import SharedUnit

#: The weight of scarcity, and that of pods that want several devices of one node.
SCARCITY, WIDE = 0.2, 0.1
#: How scarce a unit may be: twice as much wanted as there is.
MOST_SCARCE = 2.0
#: Degrees of scarcity that are told apart, up to one that is just enough.
DEGREES = 8
#: The part of all that is free that there is at least of anything.
LEAST_SUPPLY = 1e-4
#: Parts of a device that are counted: whole numbers add up to the same in any order.
GRAINS = 1 << 20
#: Parts of what is published of a kind that are told apart: most placements leave what is free in the same part.
PARTS = 256
#: Binary digits that are told apart of how much those could use who want several devices of one node.
DIGITS = 5

#: How much is free of each kind of unit, in grains.
Supply = tuple[tuple[UnitKind, int], ...]


def grains(amount: float) -> int:
    return round(amount * GRAINS)


class Scarcity:
    """Of all kinds of units. changes: how often a price has changed."""

    def __init__(self, reading: MixReading, published: Mapping[UnitKind, float], wide: Sequence[WideDemand]) -> None:
        """published: how much there is of each kind, whoever has it. wide: who wants several devices of one node."""
        self._kinds = list(published)
        #: kinds that the same pods accept have one price
        classes = {accepts: at for at, accepts in enumerate(dict.fromkeys(map(_accepts, published)))}
        self._class_of = {kind: classes[_accepts(kind)] for kind in published}
        there = [0] * len(classes)
        for kind, amount in published.items():
            there[self._class_of[kind]] += grains(amount)
        self._each = [max(1, -(-amount // PARTS)) for amount in there]
        self._free = [0] * len(classes)
        #: of each class, how many such parts are free; more than that is not told apart
        self._parts = [0] * len(classes)
        self._prices = [0.0] * len(classes)
        self._wanted = _by_classes(_wanted(reading, published), classes)
        self._everybody = sum(wanted for _, wanted in self._wanted)
        #: of each of `wide`, how much they want, and how much of what is free they could use
        self._wide = [one.share * one.devices for one in wide]
        self._usable = [0] * len(wide)
        #: what it costs to take a device from those
        self.wide_prices = [0.0] * len(wide)
        self._has_changed = True
        self.changes = 0

    def is_about(self, published: Mapping[UnitKind, float]) -> bool:
        """Whether there are the same kinds of units, first met in the same order: what they are wanted for is the
        same then.
        """
        return list(published) == self._kinds

    def count(self, supply: Supply, *, sign: int = 1) -> None:
        """So much more is free, or less."""
        for kind, amount in supply:
            at = self._class_of[kind]
            self._free[at] += sign * amount
            parts = -(-self._free[at] // self._each[at])
            if parts != self._parts[at]:
                self._parts[at] = parts
                self._has_changed = True

    def count_wide(self, before: Sequence[int], after: Sequence[int]) -> None:
        """So many devices of a node could be used by those who want several, and can be now."""
        for at, (one, other) in enumerate(zip(before, after, strict=True)):
            known = self._usable[at]
            self._usable[at] = now = known + other - one
            if _leading(now) != _leading(known):
                self._has_changed = True

    def settle(self) -> None:
        """Work out the prices of what is free now."""
        if not self._has_changed:
            return
        self._has_changed = False
        free = [parts * each for parts, each in zip(self._parts, self._each, strict=True)]
        prices, wide = self._priced(free), self._wide_priced(sum(free))
        if prices != self._prices or wide != self.wide_prices:
            self._prices, self.wide_prices = prices, wide
            self.changes += 1
            for kind, number in self._class_of.items():
                if kind.outlooks is not None:
                    kind.outlooks.price = prices[number]

    def price(self, kind: UnitKind) -> float:
        """Of a whole unit, in devices."""
        return self._prices[self._class_of[kind]]

    def _wide_priced(self, everything: int) -> list[float]:
        return [
            WIDE * _rough(min(MOST_SCARCE, wanted / self._everybody / (_leading(usable) * GRAINS / everything)))
            if usable and everything and self._everybody
            else 0.0
            for wanted, usable in zip(self._wide, self._usable, strict=True)
        ]

    def _priced(self, free: Sequence[int]) -> list[float]:
        everything, everybody, scarce = sum(free), self._everybody, [0.0] * len(free)
        if len(free) == 1 or not everything or not everybody:
            return scarce
        for classes, wanted in self._wanted:
            supply = max(sum([free[at] for at in classes]) / everything, LEAST_SUPPLY)
            for at in classes:
                scarce[at] += wanted / everybody / supply
        return [SCARCITY * (_coarse(one) - 1) for one in scarce]


def _accepts(kind: UnitKind) -> tuple[bool, ...]:
    return tuple(map(bool, kind.accepts))


def _by_classes(
    wanted: Sequence[float], classes: Mapping[tuple[bool, ...], int]
) -> list[tuple[tuple[int, ...], float]]:
    """How much is wanted by those who accept the same classes."""
    found: dict[tuple[int, ...], float] = {}
    for number, amount in enumerate(wanted):
        taken = tuple(at for accepts, at in classes.items() if accepts[number])
        found[taken] = found.get(taken, 0.0) + amount
    return list(found.items())


def _wanted(reading: MixReading, published: Iterable[UnitKind]) -> Sequence[float]:
    """For each acceptance, how much is asked for, in devices."""
    wanted = [0.0] * len(reading.accepted)
    for part in reading.parts:
        for accepts, pick in zip(part.accepts, part.part.picks, strict=True):
            wanted[accepts] += part.share * pick.devices * _size(published, accepts, pick.asked)
    return wanted


def _size(kinds: Iterable[UnitKind], accepts: int, asked: Asked) -> float:
    """How much of a device is asked for, by the first kind of device that is shared and serves it."""
    for kind in kinds:
        if kind.accepts[accepts] and isinstance(kind.unit, SharedUnit) and kind.unit.taken(asked) is not None:
            return kind.unit.height(asked) / kind.unit.levels
    return 1.0


def _coarse(wanted: float) -> float:
    return round(min(MOST_SCARCE, wanted) * DEGREES) / DEGREES


def _rough(ratio: float) -> float:
    """The next lower number of two binary digits."""
    mantissa, exponent = frexp(ratio)
    return ldexp(int(mantissa * 4) / 4, exponent)


def _leading(number: int) -> int:
    """With no more binary digits than are told apart."""
    spare = max(0, number.bit_length() - DIGITS)
    return number >> spare << spare
