"""The devices of a node as units, and what is expected of a unit in each state.

**Units** are devices that can only be judged together. A device that several pods may share is a unit (`SharedUnit`):
its state is what is left of its capacity. Devices that draw on the same counters are one unit, whatever partitions they
are (`CardUnit`): its state is which of them are taken. Devices with the same value of an attribute that pods want
devices to have in common are one (`GroupUnit`): its state is how many are free; any other device is a group of one. A
unit knows which states can follow when a pod takes something of it (`after`).

**Outlooks** say how much of a unit stays unused, and what its use takes of the node. Pods come as the mix says, one
after the other, and each that fits takes the place that leaves the least unused. A pod that comes rarely may not come
in time: at each step there is a chance that the next one comes too late for this unit (PATIENCE). What is free when
that happens is stranded. So a shared GPU with 190 of 1,000 left is nearly all stranded if no pod asks for so little,
and one with 500 left is not; a card whose next whole partition is blocked by a small one counts for what small ones
will still take. If devices of a card or a group are wanted in several sizes, a small part of the weight goes to what
each size could not use if it came alone, so that what only the large ones need is kept whole though small ones would
fill it, too. What the pods take of the node's cpu and memory on the way is summed up as well (mean and variance):
`policy` compares it with what the node has.

**Looks** keep this cheap: units of equal shape are one object, and so are units that look the same under a mix
(`UnitKind`, with all its outlooks) and nodes that do (`NodeLook`). A thousand nodes of a kind cost as much as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from itertools import islice
from math import gcd, inf
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from manciple.wire.base import Alike
from manciple.wire.quantity import Quantity
from scheduling.allocator.problem import sharing, value_groups
from scheduling.allocator.published import Asked, Capacities, Features, make_room
from scheduling.allocator.snapshot import NodeDevices, bits, union
from scheduling.placement.fragmentation.mix import MixReading, PartDemand

#: Highest resolution of a shared device's capacity, in levels.
MOST_LEVELS = 256

#: Places of a unit that are compared for one want; of more, these speak for all.
MOST_WAYS = 16
#: Cached states of a card.
MOST_KNOWN = 20_000

#: Of a shared device: what is left of each capacity, in the order of their names. Of a card: a `CardState`. Of a group:
#: how many of each cell are free. Hashable.
UnitState = Any


@dataclass(frozen=True, slots=True, eq=False)
class UnitWant:
    """What a pod takes of a unit. picks: (the devices that will do, a bit each; how many of them).

    attribute: which of the unit's attributes all of them must have in common; -1 for none, then it is one device.
    least: the least of any unit that would do; what is taken beyond that is wasted.
    Equal wants are one object (`unit_want`), so that lookups compare identities.
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
    """How much of the whole unit the want takes at least; infinite if the unit cannot serve it."""
    free = unit.free(unit.full)
    return min((free - unit.free(after) for after, _ in unit.after(unit.full, want)), default=inf)


class DeviceUnit(Protocol):
    """Devices that are judged together."""

    #: its state while all of it is free
    full: UnitState
    #: the number of places where one want may be served, at most
    breadth: int

    def free(self, state: UnitState) -> float:
        """How much of it is left, in devices; of a card or a shared device at most 1."""

    def whole(self, state: UnitState) -> int:
        """How many devices are left untouched."""

    def after(self, state: UnitState, want: UnitWant) -> Iterator[tuple[UnitState, int]]:
        """The states that may follow when a pod takes `want`, each with the devices that may serve it, a bit each: any
        of them that is free will do.
        """

    def unfilled(self, state: UnitState, want: UnitWant) -> float:
        """How much of it is left, in devices, once it is filled with this want alone."""


class SharedUnit:
    """One device that several may use, each for a share of its capacity."""

    breadth = 1

    def __init__(self, capacities: Capacities, asked: Sequence[Asked]) -> None:
        """asked: the amounts that are usually asked for: levels are fine enough for these, up to MOST_LEVELS."""
        self._capacities = capacities
        self._names = tuple(name for name, total in capacities.totals.items() if total > 0)
        self._totals = tuple(capacities.totals[name] for name in self._names)
        self._taken: dict[Asked, tuple[int, ...] | None] = {}
        levels = 1
        for at, total in enumerate(self._totals):
            step = total
            for one in asked:
                taken = self.taken(one)
                step = gcd(step, taken[at]) if taken is not None else step
            levels = max(levels, total // step)
        self.levels = min(levels, MOST_LEVELS)
        self.full: tuple[int, ...] = self._totals

    def taken(self, asked: Asked) -> tuple[int, ...] | None:
        """The amount of each capacity that a request takes, in nanos; None if the device cannot serve it."""
        if asked not in self._taken:
            make_room(self._taken)
            consumed = self._capacities.consumption(asked)
            self._taken[asked] = None if consumed is None else tuple(consumed[name].nanos for name in self._names)
        return self._taken[asked]

    def left(self, consumed: Mapping[str, int]) -> tuple[int, ...]:
        """The state that remains after this consumption."""
        return tuple(total - consumed.get(name, 0) for name, total in zip(self._names, self._totals, strict=True))

    def level(self, state: tuple[int, ...]) -> int:
        """The level of the capacity of which the smallest part is left."""
        shares = (left * self.levels // total for left, total in zip(state, self._totals, strict=True))
        return max(0, min(shares, default=0))

    def height(self, asked: Asked) -> int:
        """How many levels an amount takes, at least one: those of the capacity of which it takes the largest part."""
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
    """Interchangeable partitions of a card. devices: a bit each. draws: of each of them, (counter, amount)."""

    devices: int
    draws: tuple[tuple[int, int], ...]


class CardState:
    """left: of each counter. free: of each cell, how many devices can still be taken. amount: how much is left, in
    devices. It does not matter which devices are held if they leave the same.
    """

    __slots__ = ("amount", "free", "left")

    def __init__(self, left: tuple[int, ...], free: tuple[int, ...], amount: float) -> None:
        self.left = left
        self.free = free
        self.amount = amount


class CardUnit:
    """Devices that draw on the same counters."""

    def __init__(self, shape: CardShape, cells: Sequence[int]) -> None:
        """cells: interchangeable devices, a bit each."""
        self._totals = shape.totals
        self._cells = [CardCell(cell, shape.draws[(cell & -cell).bit_length() - 1]) for cell in cells]
        #: equal states are one object, up to MOST_KNOWN of them
        self._states = Alike[CardState](MOST_KNOWN)
        self._by_taken = Alike[CardState](MOST_KNOWN)
        self._following = Alike[CardState](MOST_KNOWN)
        self._ways = Alike[list[int]](MOST_KNOWN)
        self.breadth = len(cells)
        self.full = self.state(0)

    def state(self, taken: int) -> CardState:
        """taken: the devices that are held, a bit each."""
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
        """The numbers of the cells with devices among these, those that draw the least first."""
        if (cached := self._ways.get(allowed)) is not None:
            return cached
        numbers = [number for number, cell in enumerate(self._cells) if cell.devices & allowed]
        return self._ways.first(allowed, sorted(numbers, key=self._drawn))

    def _drawn(self, number: int) -> float:
        """The parts of the counters that a device of the cell draws, added up."""
        return sum(
            amount / total for counter, amount in self._cells[number].draws if (total := self._totals[counter]) > 0
        )

    def _taken(self, state: CardState, number: int) -> CardState:
        """The state with a device of a cell taken."""
        left, free = list(state.left), list(state.free)
        free[number] -= 1
        for counter, amount in self._cells[number].draws:
            left[counter] -= amount
        return self._state(left, free)


@dataclass(frozen=True, slots=True)
class GroupShape:
    """cells: interchangeable devices, a bit each. values: of each cell, its value of each attribute."""

    cells: tuple[int, ...]
    values: tuple[tuple[int, ...], ...]


class GroupUnit:
    """Devices with something in common, each of them for one pod."""

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
        carriers: dict[int, list[int]] = {}
        for cell, values in enumerate(self._values):
            carriers.setdefault(values[attribute], []).append(cell)
        return list(carriers.values())

    def state(self, free: int) -> tuple[int, ...]:
        """free: the devices that are free, a bit each."""
        return tuple((cell & free).bit_count() for cell in self._cells)

    def free(self, state: tuple[int, ...]) -> float:
        return float(sum(state))

    def whole(self, state: tuple[int, ...]) -> int:
        return sum(state)

    def after(self, state: tuple[int, ...], want: UnitWant) -> Iterator[tuple[tuple[int, ...], int]]:
        for cells in self._different(state, self._choices(want)):
            if (after := self._taken(state, want, cells)) is not None:
                yield after

    def _choices(self, want: UnitWant) -> list[list[int]]:
        return self._each if want.attribute < 0 else self._carriers[want.attribute]

    def _different(self, state: tuple[int, ...], choices: list[list[int]]) -> Iterable[list[int]]:
        """All choices if they are few; otherwise some that differ in what is left in them or beside them."""
        if len(choices) <= MOST_WAYS:
            return choices
        beside = [Counter[int]() for _ in self._carriers]
        for values, left in zip(self._values, state, strict=True):
            for counts, value in zip(beside, values, strict=True):
                counts[value] += left
        examples: dict[Hashable, list[int]] = {}
        for cells in choices:
            around = [counts[value] for counts, value in zip(beside, self._values[cells[0]], strict=True)]
            examples.setdefault((sum(state[cell] for cell in cells), *around), cells)
        return islice(examples.values(), MOST_WAYS)

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
        """All of the want out of these cells, those with the fewest free devices first."""
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


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """Of the devices of a node, by position. capacities: of each. carriers: by attribute, the devices of each value."""

    capacities: tuple[Capacities, ...]
    shared: int
    cards: tuple[tuple[tuple[int, ...], CardShape], ...]
    single: int
    carriers: tuple[tuple[int, ...], ...]


_layouts = Alike[DeviceLayout](1024)


def layout_of(devices: NodeDevices, attributes: tuple[str, ...], features: Features) -> DeviceLayout:
    """The layout of a node's devices: one object for all nodes that are equal as far as these attributes go."""
    key = ("layout", attributes)
    layout = devices.memo.get(key)
    if not isinstance(layout, DeviceLayout):
        layout = _read(devices, attributes, features)
        layout = _layouts.first(layout, layout)
        make_room(devices.memo)
        devices.memo[key] = layout
    return layout


def _read(devices: NodeDevices, attributes: tuple[str, ...], features: Features) -> DeviceLayout:
    consuming = devices.consuming if features.partitionable_devices else 0
    shared = sharing(devices, features) & ~consuming
    return DeviceLayout(
        capacities=tuple(device.capacities for view in devices.pools for device in view.generation.devices),
        shared=shared,
        cards=tuple(_cards(devices, consuming)),
        single=devices.visible & ~shared & ~consuming,
        carriers=tuple(value_groups(devices, one, features).carriers for one in attributes),
    )


def _cards(devices: NodeDevices, consuming: int) -> Iterator[tuple[tuple[int, ...], CardShape]]:
    """Devices are on one card if they draw on the same counter set, directly or through other devices of the card."""
    of_set: dict[Hashable, int] = {}
    for position in bits(consuming):
        device = devices.device(position)
        if not devices.pools[devices.pool_index(position)].trouble:
            for drawn in device.published.consumes_counters:
                key = (device.key, drawn.counter_set)
                of_set[key] = of_set.get(key, 0) | 1 << position
    for mask in joined(of_set.values()):
        if not mask & devices.shared:  # only the search can handle partitions that several pods share
            positions = tuple(bits(mask))
            yield positions, _card_shape(devices, positions)


def _card_shape(devices: NodeDevices, positions: Sequence[int]) -> CardShape:
    sets = devices.pools[devices.pool_index(positions[0])].counter_sets
    numbers: dict[tuple[str, str], int] = {}
    totals: list[int] = []
    draws: list[tuple[tuple[int, int], ...]] = []
    for position in positions:
        drawn: dict[int, int] = {}
        for one in devices.device(position).published.consumes_counters:
            for name, counter in one.counters.items():
                number = numbers.setdefault((one.counter_set, name), len(numbers))
                if number == len(totals):
                    totals.append(Quantity.parse(sets[one.counter_set].counters[name].value).nanos)
                drawn[number] = drawn.get(number, 0) + Quantity.parse(counter.value).nanos
        draws.append(tuple(sorted(drawn.items())))
    return CardShape(tuple(draws), tuple(totals))


def groups(layout: DeviceLayout, wanted: int) -> list[int]:
    """The devices that are not shared, in groups that have a value in common with each other."""
    single = layout.single & wanted
    tied = (carriers & single for values in layout.carriers for carriers in values)
    return joined((*(mask for mask in tied if mask), *(1 << position for position in bits(single))))


def joined(masks: Iterable[int]) -> list[int]:
    """The masks, those that have a bit in common as one; in the order of their lowest bits."""
    joined_masks: list[int] = []
    for mask in masks:
        apart = [one for one in joined_masks if not one & mask]
        joined_masks = [*apart, union((mask, *(one for one in joined_masks if one & mask)))]
    return sorted(joined_masks, key=lambda mask: mask & -mask)


#: The share of all pods that must want a unit for it to be as likely used as not: one in fifty.
PATIENCE = 0.02
#: The weight of what is too small for some demands: for several devices of a group, or for a large one of a card.
LARGE = 0.1
#: Cached states of one unit.
MOST_STATES = 4_000
#: Demands that are checked for being too large for what is left of a unit: those that want the most of it.
MOST_SIZES = 16
#: Parts of a device that are rounding errors.
NEARLY_NOTHING = 1e-6
#: Decimal digits of an amount that are not rounding errors.
AMOUNT_DIGITS = 9
#: Weight of what is left free, so that of two moves that strand the same, the one that leaves less free is taken.
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
    """The demands, those that take the same of the unit as one."""
    by_want: dict[UnitWant, list[UnitDemand]] = {}
    for demand in demands:
        by_want.setdefault(demand.want, []).append(demand)
    result = []
    for want, alike in by_want.items():
        share = sum(one.share for one in alike)
        cpu, squared, memory = (
            sum(one.share * part for one, part in zip(alike, parts, strict=True)) / share
            for parts in zip(*((one.cpu, one.squared, one.memory) for one in alike), strict=True)
        )
        result.append(UnitDemand(want=want, share=share, cpu=cpu, squared=squared, memory=memory))
    return tuple(result)


class Expected(NamedTuple):
    """unused: of the unit, in devices. cpu, squared, memory: what the use of the rest takes of the node."""

    unused: float
    cpu: float = 0.0
    squared: float = 0.0
    memory: float = 0.0

    def wasting(self, wasted: float) -> Expected:
        return self._replace(unused=self.unused + wasted) if wasted else self


class OutlookFigures(NamedTuple):
    """free: of the unit, in devices. unused: how much of that is expected to stay unused even with enough cpu and
    memory; stranded: the same with the weight of LARGE, which counts as lost; used: how much more is lost if the node
    has no cpu or memory. cpu, variance, memory: what its use takes.
    """

    free: float
    unused: float
    stranded: float
    used: float
    cpu: float
    variance: float
    memory: float


class Outlook:
    """One state of a unit, with its `OutlookFigures`. whole: how many of its devices are untouched."""

    __slots__ = (
        *("cpu", "free", "memory", "moves", "outlooks", "state", "stranded", "unused", "used", "variance", "whole"),
    )

    def __init__(self, outlooks: UnitOutlooks, state: UnitState, figures: OutlookFigures) -> None:
        self.outlooks = outlooks
        self.state = state
        self.whole: int = outlooks.unit.whole(state)
        self.free, self.unused, self.stranded, self.used, self.cpu, self.variance, self.memory = figures
        self.moves = BestMoves(self)


class BestMoves(dict["UnitWant", "UnitMove | None"]):
    """How a unit in one state serves a want best; None if it cannot. Computed when it is first looked up."""

    __slots__ = ("_outlook",)

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook

    def __missing__(self, want: UnitWant) -> UnitMove | None:
        before, best = self._outlook, None
        outlooks = before.outlooks
        for state, devices in outlooks.unit.after(before.state, want):
            move = UnitMove(before, outlooks.of(state), devices, wasted=outlooks.wasted(before.state, state, want))
            if best is None or move.cost < best.cost:
                best = move
        make_room(self)
        self[want] = best
        return best


#: How much is taken of which units, in devices: it is paid for at their price.
Taken = tuple[tuple["UnitOutlooks", float], ...]


class UnitMove:
    """A pod takes some of a unit: the outlook after that, the devices (any of them that is free will do), and the
    change of each figure of the `Outlook`. What is wasted counts as stranded. cost: without the price of what is taken.
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
        self.taken: Taken = ((after.outlooks, round(-self.free, AMOUNT_DIGITS)),)


class UnitOutlooks:
    """The outlook of every state of one unit, under one mix."""

    def __init__(self, unit: DeviceUnit, demands: Sequence[UnitDemand], *, work: int) -> None:
        """work: how many ways to serve a demand may be examined, in all states together. If that is not enough for the
        unit, its figures are estimates (`_guess`).
        """
        self.unit = unit
        #: the price of a whole unit, beyond what is stranded by taking it; set by `Scarcity`
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
        #: (how much is wanted in all, the want), of the demands that want the most
        self._sizes = [(amount, self._demands[at].want) for amount, at in sorted(most, key=lambda one: one[1])]
        self._levels: Sequence[Expected] = _by_level(unit, self._demands) if isinstance(unit, SharedUnit) else ()
        self._is_large = not isinstance(unit, SharedUnit) and not self._work_out(unit.full, work)

    def of(self, state: UnitState) -> Outlook:
        """The same object for the same state."""
        outlook = self._outlooks.get(state)
        if outlook is None:
            if len(self._outlooks) >= MOST_STATES:
                self._outlooks.clear()
            outlook = self._outlooks[state] = Outlook(self, state, self._figures(state))
        return outlook

    def _figures(self, state: UnitState) -> OutlookFigures:
        if not isinstance(self.unit, SharedUnit):
            return self._figured(state)
        level = self.unit.level(state)
        figures = self._by_level.get(level)
        if figures is None:
            figures = self._by_level[level] = self._figured(state)
        return figures

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
        """How much of what is free would be left if the unit were filled with one demand alone: the mean of all
        demands, weighted by how much each wants.
        """
        is_one_size = isinstance(self.unit, SharedUnit) or len(self._sizes) <= 1
        if is_one_size or not any(amount for amount, _ in self._sizes) or not self.unit.free(state):
            return self._expect(state).unused
        return self._unfilled(state)

    def _unfilled(self, state: UnitState) -> float:
        total = sum(amount for amount, _ in self._sizes)
        return sum(self.unit.unfilled(state, want) * amount for amount, want in self._sizes) / total

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
        """Compute what is expected of the state, after the states that may follow. False if that exceeds `work`."""
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
        """An estimate: as if the unit were filled with one demand alone, and what its use takes were spread evenly."""
        free, total = self.unit.free(state), sum(amount for amount, _ in self._sizes)
        if not total:
            return Expected(free)
        unused = self._unfilled(state)
        parts = (free - unused) / total
        cpu, squared, memory = (
            parts * sum(share * amount for share, amount in zip(self._shares, amounts, strict=True))
            for amounts in zip(*((one.cpu, one.squared, one.memory) for one in self._demands), strict=True)
        )
        return Expected(unused, cpu, cpu * cpu + squared, memory)

    def wasted(self, before: UnitState, after: UnitState, want: UnitWant) -> float:
        """How much was taken beyond the least that would have done."""
        return _over(self.unit.free(before) - self.unit.free(after) - want.least) if want.least else 0.0


def _by_level(unit: SharedUnit, demands: tuple[UnitDemand, ...]) -> tuple[Expected, ...]:
    heights = tuple(unit.height(one.want.asked) for one in demands)
    wasted = tuple(_over(height / unit.levels - one.want.least) for one, height in zip(demands, heights, strict=True))
    return _of_levels(unit.levels, demands, heights, wasted)


@lru_cache(maxsize=128)
def _of_levels(
    levels: int, demands: tuple[UnitDemand, ...], heights: tuple[int, ...], wasted: tuple[float, ...]
) -> tuple[Expected, ...]:
    """What is expected at each level of what is left. Cached, for devices that differ by a few bytes."""
    expected: list[Expected] = []
    for level in range(levels + 1):
        after = (
            (one, expected[level - height].wasting(waste) if height <= level else None)
            for one, height, waste in zip(demands, heights, wasted, strict=True)
        )
        expected.append(_summed(level / levels, after))
    return tuple(expected)


def _over(amount: float) -> float:
    return amount if amount > NEARLY_NOTHING else 0.0


def _summed(free: float, following: Iterable[tuple[UnitDemand, Expected | None]]) -> Expected:
    """following: the demands that may come next, and what is expected then; None for those that do not fit."""
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


#: Nodes with more devices than this are left out: all choices count as equal there.
MOST_DEVICES = 512
#: How many ways to serve a demand may be examined for one kind of unit, and for all kinds together.
UNIT_WORK, WORK = 2_000_000, 20_000_000
#: Lowest resolution of a shared device's capacity, in levels.
LEAST_LEVELS = 16
#: Number of kinds of units from which shared devices that hardly differ count as equal, and from which nodes with new
#: kinds are left out.
MANY_KINDS, MOST_KINDS = 64, 512
#: Precision of a capacity then, in binary digits.
CAPACITY_DIGITS = 12
#: Kinds of units that are compared to find the least that a demand could do with.
MOST_COMPARED = 64
#: Kinds of units from which there is a choice.
SEVERAL = 2


#: (number of an acceptance, amount asked for) -> the least of any unit that would do
LeastTaken = Callable[[int, Asked], float]


class UnitKind:
    """Units that look the same. accepts: of each acceptance, the devices that it takes, a bit each."""

    def __init__(
        self, unit: SharedUnit | CardUnit | GroupUnit, accepts: tuple[int, ...], capacities: tuple[Capacities, ...]
    ) -> None:
        self.unit = unit
        self.accepts = accepts
        self.capacities = capacities
        #: None until they are computed
        self.outlooks: UnitOutlooks | None = None

    def judged(self, reading: MixReading, least: LeastTaken, *, work: int) -> UnitOutlooks:
        """The outlooks of the unit under a mix."""
        demands = (one for part in reading.parts for one in self._demands(part, reading, least))
        return UnitOutlooks(self.unit, merged(demands), work=work)

    def wanted(self, accepts: int, asked: Asked) -> UnitWant | None:
        """One device of this unit for an acceptance; None if it has none that is large enough."""
        mask = self._able(self.accepts[accepts], asked)
        return unit_want(asked, ((mask, 1),)) if mask else None

    def _demands(self, demand: PartDemand, reading: MixReading, least: LeastTaken) -> Iterator[UnitDemand]:
        attribute, picks = demand.part.attribute, list(zip(demand.accepts, demand.part.picks, strict=True))
        if not attribute or not isinstance(self.unit, GroupUnit):
            for accepts, pick in picks:
                if mask := self._able(self.accepts[accepts], pick.asked):
                    want = unit_want(pick.asked, ((mask, 1),), least=least(accepts, pick.asked))
                    yield _demand(want, demand, times=pick.devices, devices=1)
            return
        masks = [(self._able(self.accepts[accepts], pick.asked), pick.devices) for accepts, pick in picks]
        if all(mask for mask, _ in masks):
            want = unit_want((), tuple(masks), reading.attributes.index(attribute))
            yield _demand(want, demand, times=1, devices=demand.part.devices)

    def _able(self, mask: int, asked: Asked) -> int:
        """The devices that are large enough as a whole; what is left of a shared one is a matter of its state."""
        if not asked or isinstance(self.unit, SharedUnit):
            return mask
        return sum(1 << at for at in bits(mask) if self.capacities[at].serves(asked))


def _demand(want: UnitWant, demand: PartDemand, *, times: int, devices: int) -> UnitDemand:
    cpu = demand.cpu * devices
    return UnitDemand(want=want, share=demand.share * times, cpu=cpu, squared=cpu * cpu, memory=demand.memory * devices)


@dataclass(frozen=True, slots=True, eq=False)
class UnitPlace:
    """A unit on a node: its devices, and a bit each."""

    kind: UnitKind
    positions: tuple[int, ...]
    mask: int

    def local(self, mask: int) -> int:
        """Its devices among `mask`, numbered by itself."""
        return local(self.positions, mask)

    def on_node(self, devices: int) -> int:
        """Its devices, as the node numbers them."""
        return sum(1 << self.positions[at] for at in bits(devices))

    def state(self, taken: int, consumed: Mapping[int, Mapping[str, int]]) -> UnitState:
        """taken: devices that are held. consumed: position -> what is consumed of a shared device."""
        unit = self.kind.unit
        if isinstance(unit, GroupUnit):
            return unit.state(self.local(self.mask & ~taken))
        if isinstance(unit, CardUnit):
            return unit.state(self.local(taken))
        used = consumed.get(self.positions[0])
        return unit.full if used is None else unit.left(used)


def local(positions: tuple[int, ...], mask: int) -> int:
    first = positions[0]
    if positions[-1] - first == len(positions) - 1:
        return mask >> first & (1 << len(positions)) - 1
    return sum(1 << at for at, position in enumerate(positions) if mask >> position & 1)


@dataclass(frozen=True, slots=True, eq=False)
class NodeLook:
    """The units of a node. certain: their devices for which the unit's state alone decides which pods it can serve.
    kinds: the distinct kinds of the units.
    """

    units: tuple[UnitPlace, ...] = ()
    certain: int = 0
    kinds: tuple[UnitKind, ...] = ()

    def outlooks(
        self, taken: int, consumed: Mapping[int, Mapping[str, int]], of_kinds: Mapping[UnitKind, UnitOutlooks]
    ) -> list[Outlook]:
        """Of each unit, the outlook of its state (`UnitPlace.state`)."""
        return [of_kinds[place.kind].of(place.state(taken, consumed)) for place in self.units]


class Looks:
    """The looks of all nodes under one mix."""

    def __init__(self, reading: MixReading, features: Features) -> None:
        self._reading = reading
        self._features = features
        self._looks: dict[Hashable, NodeLook] = {}
        self.kinds: dict[Hashable, UnitKind] = {}
        #: how many ways to serve a demand may be examined for each kind of unit
        self.work = UNIT_WORK
        self._least: dict[tuple[int, Asked], float] = {}
        self._roughly: dict[Hashable, Capacities] = {}
        self._asked = tuple({pick.asked: None for one in reading.parts for pick in one.part.picks})

    def of(self, devices: NodeDevices) -> NodeLook:
        """The look of a node: the same object for nodes that look the same."""
        if devices.visible.bit_count() > MOST_DEVICES or len(self.kinds) >= MOST_KINDS:
            return NodeLook()
        layout = layout_of(devices, self._reading.attributes, self._features)
        masks = self._reading.masks(devices)
        look = self._looks.get((layout, masks))
        if look is None:
            look = self._looks[(layout, masks)] = self._look(layout, masks)
        return look

    def _look(self, layout: DeviceLayout, masks: tuple[int, ...]) -> NodeLook:
        units = tuple(self._units(layout, masks))
        shared = (place for place in units if isinstance(place.kind.unit, SharedUnit))
        exact = (place.mask for place in shared if place.kind.capacities[0] is layout.capacities[place.positions[0]])
        return NodeLook(units, union(exact), tuple(dict.fromkeys(place.kind for place in units)))

    def share_out_work(self) -> None:
        """Call before any outlook is computed: the more kinds there are, the less closely each is examined."""
        self.work = min(UNIT_WORK, WORK // max(1, len(self.kinds)))
        levels = max(LEAST_LEVELS, self.work // max(1, len(self._reading.parts)))
        for kind in self.kinds.values():
            if isinstance(kind.unit, SharedUnit):
                kind.unit.levels = min(kind.unit.levels, levels)

    def least(self, accepts: int, asked: Asked) -> float:
        """The least of any unit that would serve an acceptance with an amount, cached."""
        least = self._least.get((accepts, asked))
        if least is None:
            some = islice(self.kinds.values(), MOST_COMPARED)
            kinds = ((kind.unit, kind.wanted(accepts, asked)) for kind in some)
            smallest = min((least_taken(unit, want) for unit, want in kinds if want is not None), default=0.0)
            least = self._least[accepts, asked] = smallest if smallest < inf else 0.0
        return least

    def _units(self, layout: DeviceLayout, masks: tuple[int, ...]) -> Iterator[UnitPlace]:
        wanted = union(masks)
        for position in bits(layout.shared & wanted):
            yield self._place((position,), masks, layout, layout.capacities[position])
        for positions, shape in layout.cards:
            if local(positions, wanted):
                yield self._place(positions, masks, layout, shape)
        for mask in groups(layout, wanted):
            yield self._place(tuple(bits(mask)), masks, layout, None)

    def _place(
        self,
        positions: tuple[int, ...],
        masks: tuple[int, ...],
        layout: DeviceLayout,
        about: Capacities | CardShape | None,
    ) -> UnitPlace:
        accepts = tuple(local(positions, one) for one in masks)
        capacities = tuple(layout.capacities[position] for position in positions)
        if isinstance(about, Capacities):
            first = self._roughly.setdefault(_roughly(about), about)
            if len(self.kinds) >= MANY_KINDS:
                about, capacities = first, (first,)
        shape = _group_shape(positions, accepts, layout) if about is None else about
        key = (shape, accepts, capacities)
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = UnitKind(self._unit(shape, accepts, capacities), accepts, capacities)
        return UnitPlace(kind, positions, sum(1 << position for position in positions))

    def _unit(
        self, shape: Capacities | CardShape | GroupShape, accepts: tuple[int, ...], capacities: tuple[Capacities, ...]
    ) -> SharedUnit | CardUnit | GroupUnit:
        if isinstance(shape, Capacities):
            return SharedUnit(shape, self._asked)
        if isinstance(shape, CardShape):
            return CardUnit(shape, cells(zip(shape.draws, capacities, _bits_at(accepts, len(capacities)), strict=True)))
        return GroupUnit(shape)


def _roughly(capacities: Capacities) -> Hashable:
    """A key that is equal for devices that hardly differ, such as by a few bytes of 80 GiB."""
    amounts = capacities.totals.items()
    rounded = tuple(
        (name, nanos >> max(0, nanos.bit_length() - CAPACITY_DIGITS), nanos.bit_length()) for name, nanos in amounts
    )
    return rounded, tuple(one.request_policy for one in capacities.published.values())


def _group_shape(positions: tuple[int, ...], accepts: tuple[int, ...], layout: DeviceLayout) -> GroupShape:
    """Devices that the same pods accept, and that have the same values, are one cell."""
    # The number of the value that a device carries, the first of several; a number of its own if it has none.
    values = [
        tuple(
            next((number for number, mask in enumerate(carriers) if mask >> position & 1), -1 - position)
            for carriers in layout.carriers
        )
        for position in positions
    ]
    capacities = (layout.capacities[position] for position in positions)
    shape_cells = cells(zip(values, capacities, _bits_at(accepts, len(positions)), strict=True))
    return GroupShape(shape_cells, tuple(values[(cell & -cell).bit_length() - 1] for cell in shape_cells))


def _bits_at(masks: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """For each position, its bit of each mask."""
    return (tuple(mask >> at & 1 for mask in masks) for at in range(size))


def cells(keys: Iterable[Hashable]) -> tuple[int, ...]:
    """Devices with equal keys, a bit each, in the order of their first devices. keys: of each device."""
    by_key: dict[Hashable, int] = {}
    for at, key in enumerate(keys):
        by_key[key] = by_key.get(key, 0) | 1 << at
    return tuple(by_key.values())
