"""The devices of a node as units: devices that can only be judged together.

A device that many may share is a unit (`SharedUnit`): its state is what is left of its capacity. Devices that draw on
the same counters are one, whatever partitions they are (`CardUnit`): its state is who is taken. So are devices with the
same value of an attribute that pods want devices to have in common (`GroupUnit`), whose state is how many are free; any
other device is a group of one. A unit knows which states can follow when somebody takes something of it (`after`).
Units of equal shape are one object, whichever node they stand on: what is worked out of one holds for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd, inf
from typing import Any, NamedTuple, Protocol

from manciple.wire.base import Alike
from scheduling.allocator.published import Asked, Capacities, make_room

#: Levels of a shared device's capacity that are told apart.
MOST_LEVELS = 256

#: Places of a unit among which the one is chosen that spoils the fewest others.
MOST_WAYS = 16
#: States of a card that are known again.
MOST_KNOWN = 20_000

#: Of a shared device: what is left of each capacity, in the order of their names. Of a card: a `CardState`. Of a group:
#: how many of each cell are free. Hashable.
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
    #: in how many places one want may be served, at most
    breadth: int

    def free(self, state: UnitState) -> float:
        """How much of it is left, in devices; of a card or a shared device at most 1."""

    def whole(self, state: UnitState) -> int:
        """How many devices are left of which nobody uses anything."""

    def after(self, state: UnitState, want: UnitWant) -> Iterator[tuple[UnitState, int]]:
        """The states that may follow when somebody takes `want`, each with the devices that it is taken of, a bit
        each: any of them that are free will do.
        """

    def unfilled(self, state: UnitState, want: UnitWant) -> float:
        """How much of it is left, in devices, if nobody but those takes of it who want this, until none fits."""


class SharedUnit:
    """One device that several may use, each for a share of its capacity."""

    breadth = 1

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
            make_room(self._taken)
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

    def unfilled(self, state: tuple[int, ...], want: UnitWant) -> float:
        return self.level(state) % self.height(want.asked) / self.levels


@dataclass(frozen=True, slots=True)
class CardShape:
    """draws: of each device, (counter, amount) pairs. totals: of each counter."""

    draws: tuple[tuple[tuple[int, int], ...], ...]
    totals: tuple[int, ...]


class CardCell(NamedTuple):
    """Partitions of a card that nothing tells apart. devices: a bit each. draws: of each of them, (counter, amount)."""

    devices: int
    draws: tuple[tuple[int, int], ...]


class CardState:
    """left: of each counter. free: of each cell, how many devices can still be taken. amount: how much is left, in
    devices. Who holds what makes no difference if it leaves the same.
    """

    __slots__ = ("amount", "free", "left")

    def __init__(self, left: tuple[int, ...], free: tuple[int, ...], amount: float) -> None:
        self.left = left
        self.free = free
        self.amount = amount


class CardUnit:
    """Devices that draw on the same counters."""

    def __init__(self, shape: CardShape, cells: Sequence[int]) -> None:
        """cells: devices that nothing tells apart, a bit each."""
        self._totals = shape.totals
        self._cells = [CardCell(cell, shape.draws[(cell & -cell).bit_length() - 1]) for cell in cells]
        #: equal states are one object, as long as there are not too many
        self._states = Alike[CardState](MOST_KNOWN)
        self._by_taken = Alike[CardState](MOST_KNOWN)
        self._following = Alike[CardState](MOST_KNOWN)
        self._ways = Alike[list[int]](MOST_KNOWN)
        self.breadth = len(cells)
        self.full = self.state(0)

    def state(self, taken: int) -> CardState:
        """taken: the devices that somebody has, a bit each."""
        return self._by_taken.get(taken) or self._by_taken.first(taken, self._without(taken))

    def _without(self, taken: int) -> CardState:
        left, free = list(self._totals), []
        for cell in self._cells:
            count = (cell.devices & taken).bit_count()
            free.append((cell.devices & ~taken).bit_count())
            for counter, amount in cell.draws if count else ():
                left[counter] -= count * amount
        return self._state(left, free)

    def _state(self, left: Sequence[int], free: Sequence[int]) -> CardState:
        able = tuple(
            count if count and all(left[counter] >= amount for counter, amount in cell.draws) else 0
            for cell, count in zip(self._cells, free, strict=True)
        )
        key = (tuple(left), able)
        return self._states.get(key) or self._states.first(key, CardState(*key, self._amount(left)))

    def _amount(self, left: Sequence[int]) -> float:
        parts = [amount / total for amount, total in zip(left, self._totals, strict=True) if total > 0]
        return max(0.0, sum(parts) / len(parts)) if parts else 0.0

    def free(self, state: CardState) -> float:
        return state.amount

    def whole(self, state: CardState) -> int:
        return int(state.left == self.full.left and state.free == self.full.free)

    def after(self, state: CardState, want: UnitWant) -> Iterator[tuple[CardState, int]]:
        allowed, _ = want.picks[0]
        able = (number for number in self._cells_for(allowed) if state.free[number])
        for number in islice(able, MOST_WAYS):
            key = (state, number)
            after = self._following.get(key) or self._following.first(key, self._taken(*key))
            yield after, self._cells[number].devices & allowed

    def unfilled(self, state: CardState, want: UnitWant) -> float:
        allowed, _ = want.picks[0]
        left = list(state.left)
        for number in self._cells_for(allowed):
            draws = self._cells[number].draws
            count = min((state.free[number], *(left[counter] // amount for counter, amount in draws if amount > 0)))
            for counter, amount in draws if count else ():
                left[counter] -= count * amount
        return self._amount(left)

    def _cells_for(self, allowed: int) -> list[int]:
        """The numbers of those that have devices among these, those that draw the least first."""
        return self._ways.get(allowed) or self._ways.first(allowed, sorted(self._allowed(allowed), key=self._drawn))

    def _allowed(self, allowed: int) -> Iterator[int]:
        return (number for number, cell in enumerate(self._cells) if cell.devices & allowed)

    def _drawn(self, number: int) -> float:
        return sum(
            amount / total for counter, amount in self._cells[number].draws if (total := self._totals[counter]) > 0
        )

    def _taken(self, state: CardState, number: int) -> CardState:
        """With a device of a cell taken."""
        left, free = list(state.left), list(state.free)
        free[number] -= 1
        for counter, amount in self._cells[number].draws:
            left[counter] -= amount
        return self._state(left, free)


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
        self.breadth = len(shape.cells)
        attributes = len(shape.values[0]) if shape.values else 0
        self._each = [[cell] for cell in range(self.breadth)]
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
        for cells in self._unlike(state, self._choices(want)):
            if (found := self._taken(state, want, cells)) is not None:
                yield found

    def _choices(self, want: UnitWant) -> list[list[int]]:
        return self._each if want.attribute < 0 else self._carriers[want.attribute]

    def _unlike(self, state: tuple[int, ...], choices: list[list[int]]) -> Iterable[list[int]]:
        """All of them if they are few; else some in which not as much is left, nor beside them."""
        if len(choices) <= MOST_WAYS:
            return choices
        beside = [Counter[int]() for _ in self._carriers]
        for values, left in zip(self._values, state, strict=True):
            for counts, value in zip(beside, values, strict=True):
                counts[value] += left
        found: dict[Hashable, list[int]] = {}
        for cells in choices:
            around = [counts[value] for counts, value in zip(beside, self._values[cells[0]], strict=True)]
            found.setdefault((sum(state[cell] for cell in cells), *around), cells)
        return islice(found.values(), MOST_WAYS)

    def unfilled(self, state: tuple[int, ...], want: UnitWant) -> float:
        left, each = sum(state), sum(count for _, count in want.picks)
        for cells in self._choices(want):
            able = [[state[cell] for cell in cells if self._cells[cell] & allowed] for allowed, _ in want.picks]
            any_ = sum(state[cell] for cell in cells if any(self._cells[cell] & allowed for allowed, _ in want.picks))
            fits = (sum(has) // count for has, (_, count) in zip(able, want.picks, strict=True))
            left -= each * min(any_ // each, *fits)
        return float(left)

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
