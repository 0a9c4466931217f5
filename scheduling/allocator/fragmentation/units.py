"""The devices of a node as units: devices that can only be judged together.

A device that many may share is a unit (`SharedUnit`): its state is what is left of its capacity. Devices that draw on
the same counters are one, whatever partitions they are (`CardUnit`): its state is who is taken. So are devices with the
same value of an attribute that pods want devices to have in common (`GroupUnit`), whose state is how many are free; any
other device is a group of one. A unit knows which states can follow when somebody takes something of it (`after`).
Units of equal shape are one object, whichever node they stand on: what is worked out of one holds for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, inf
from typing import Any, Protocol

from manciple.wire.base import Alike
from scheduling.allocator.pools import bits
from scheduling.allocator.published import Asked, Capacities

#: Levels of a shared device's capacity that are told apart.
MOST_LEVELS = 256

#: Of a shared device: what is left of each capacity, in the order of their names. Of a card: its devices that are
#: taken, a bit each. Of a group: how many of each cell are free. Hashable.
UnitState = Any


@dataclass(frozen=True, slots=True, eq=False)
class UnitWant:
    """What somebody takes of a unit. picks: (the devices that will do, a bit each; how many of them).

    attribute: which of the unit's attributes all of them must have in common; -1 for none, then it is one device.
    least: how much of any unit would do; whatever is taken beyond that is wasted.
    Equal ones are one object (`unit_want`), so that it is found by its identity.
    """

    asked: Asked
    picks: tuple[tuple[int, int], ...]
    attribute: int = -1
    least: float = 0.0


_wants = Alike[UnitWant](100_000)


def unit_want(asked: Asked, picks: tuple[tuple[int, int], ...], attribute: int = -1, *, least: float = 0.0) -> UnitWant:
    key = (asked, picks, attribute, least)
    return _wants.get(key) or _wants.first(key, UnitWant(asked, picks, attribute, least))


def least_taken(unit: DeviceUnit, want: UnitWant) -> float:
    """How much of the whole unit the want takes at least; infinite where the unit cannot serve it."""
    free = unit.free(unit.full)
    return min((free - unit.free(after) for after, _ in unit.after(unit.full, want)), default=inf)


class DeviceUnit(Protocol):
    """Devices that are judged together."""

    #: its state while nobody uses any of it
    full: UnitState

    def free(self, state: UnitState) -> float:
        """How much of it is left, in devices; of a card or a shared device at most 1."""

    def whole(self, state: UnitState) -> int:
        """How many devices are left of which nobody uses anything."""

    def after(self, state: UnitState, want: UnitWant) -> Iterator[tuple[UnitState, int]]:
        """The states that may follow when somebody takes `want`, each with the devices that it is taken of, a bit
        each: any of them that are free will do.
        """


class SharedUnit:
    """One device that several may use, each for a share of its capacity."""

    def __init__(self, capacities: Capacities, asked: Sequence[Asked]) -> None:
        """asked: the amounts that are usually asked for: levels are as fine as they are, up to MOST_LEVELS."""
        self._capacities = capacities
        self._names = tuple(name for name, total in capacities.totals.items() if total > 0)
        self._totals = tuple(capacities.totals[name] for name in self._names)
        self._taken: dict[Asked, tuple[int, ...] | None] = {}
        self.levels = self._finest(asked)
        self.full: tuple[int, ...] = self._totals

    def _finest(self, asked: Sequence[Asked]) -> int:
        levels = 1
        for at, total in enumerate(self._totals):
            step = total
            for one in asked:
                taken = self.taken(one)
                step = gcd(step, taken[at]) if taken is not None else step
            levels = max(levels, total // step)
        return min(levels, MOST_LEVELS)

    def taken(self, asked: Asked) -> tuple[int, ...] | None:
        """Of each capacity, in nanos; None where the device cannot serve so much."""
        if asked not in self._taken:
            consumed = self._capacities.consumption(asked)
            self._taken[asked] = None if consumed is None else tuple(consumed[name].nanos for name in self._names)
        return self._taken[asked]

    def left(self, consumed: Mapping[str, int]) -> tuple[int, ...]:
        """The state of a device of which so much is consumed."""
        return tuple(total - consumed.get(name, 0) for name, total in zip(self._names, self._totals, strict=True))

    def level(self, state: tuple[int, ...]) -> int:
        """By the capacity of which the smallest part is left."""
        shares = (left * self.levels // total for left, total in zip(state, self._totals, strict=True))
        return max(0, min(shares, default=0))

    def height(self, asked: Asked) -> int:
        """How many levels the amount takes: at least one, by the capacity of which it takes the largest part."""
        taken = self.taken(asked)
        if taken is None:
            return self.levels + 1
        parts = (round(part * self.levels / total) for part, total in zip(taken, self._totals, strict=True))
        return max(1, max(parts, default=1))

    def free(self, state: tuple[int, ...]) -> float:
        return self.level(state) / self.levels

    def whole(self, state: tuple[int, ...]) -> int:
        return int(state == self.full)

    def after(self, state: tuple[int, ...], want: UnitWant) -> Iterator[tuple[tuple[int, ...], int]]:
        taken = self.taken(want.asked)
        if taken is not None and all(part <= left for part, left in zip(taken, state, strict=True)):
            yield tuple(left - part for part, left in zip(taken, state, strict=True)), 1


@dataclass(frozen=True, slots=True)
class CardShape:
    """draws: of each device, (counter, amount) pairs. totals: of each counter."""

    draws: tuple[tuple[tuple[int, int], ...], ...]
    totals: tuple[int, ...]


class CardUnit:
    """Devices that draw on the same counters."""

    def __init__(self, shape: CardShape) -> None:
        self._shape = shape
        self._counters: dict[int, tuple[int, ...]] = {}
        self.full = 0

    def left(self, taken: int) -> tuple[int, ...]:
        """Of each counter."""
        known = self._counters.get(taken)
        if known is None:
            amounts = list(self._shape.totals)
            for device in bits(taken):
                for counter, amount in self._shape.draws[device]:
                    amounts[counter] -= amount
            known = self._counters[taken] = tuple(amounts)
        return known

    def free(self, state: int) -> float:
        parts = [left / total for left, total in zip(self.left(state), self._shape.totals, strict=True) if total > 0]
        return max(0.0, sum(parts) / len(parts)) if parts else 0.0

    def whole(self, state: int) -> int:
        return int(state == self.full)

    def after(self, state: int, want: UnitWant) -> Iterator[tuple[int, int]]:
        left = self.left(state)
        allowed, _ = want.picks[0]
        for device in bits(allowed & ~state):
            if all(left[counter] >= amount for counter, amount in self._shape.draws[device]):
                yield state | 1 << device, 1 << device


@dataclass(frozen=True, slots=True)
class GroupShape:
    """cells: devices that nothing tells apart, a bit each. values: of each cell, its value of each attribute."""

    cells: tuple[int, ...]
    values: tuple[tuple[int, ...], ...]


class GroupUnit:
    """Devices with something in common, each of them for one user."""

    def __init__(self, shape: GroupShape) -> None:
        self._cells = shape.cells
        self._values = shape.values
        self.full = tuple(cell.bit_count() for cell in shape.cells)
        attributes = len(shape.values[0]) if shape.values else 0
        #: per attribute, the cells of each value
        self._carriers = [self._by_value(attribute) for attribute in range(attributes)]

    def _by_value(self, attribute: int) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for cell, values in enumerate(self._values):
            found.setdefault(values[attribute], []).append(cell)
        return list(found.values())

    def state(self, free: int) -> tuple[int, ...]:
        """free: the devices that nobody has, a bit each."""
        return tuple((cell & free).bit_count() for cell in self._cells)

    def free(self, state: tuple[int, ...]) -> float:
        return float(sum(state))

    def whole(self, state: tuple[int, ...]) -> int:
        return sum(state)

    def after(self, state: tuple[int, ...], want: UnitWant) -> Iterator[tuple[tuple[int, ...], int]]:
        each = [[cell] for cell in range(len(self._cells))]
        for cells in each if want.attribute < 0 else self._carriers[want.attribute]:
            if (found := self._taken(state, want, cells)) is not None:
                yield found

    def _taken(
        self, state: tuple[int, ...], want: UnitWant, cells: Sequence[int]
    ) -> tuple[tuple[int, ...], int] | None:
        """All of it out of these cells: out of those with the fewest first."""
        left, mask = list(state), 0
        for allowed, count in want.picks:
            for cell in sorted(cells, key=lambda cell: left[cell]):
                given = min(count, left[cell]) if self._cells[cell] & allowed else 0
                left[cell] -= given
                count -= given  # noqa: PLW2901 - what is still wanted
                mask |= self._cells[cell] & allowed if given else 0
            if count:
                return None
        return tuple(left), mask
