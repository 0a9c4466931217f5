"""Every node with what is expected of it under a mix, followed from placement to placement.

What a node strands is what its units strand, and more if their use would take more cpu or memory than it has left: a
GPU without a core beside it is of no use. What the pods to come will take of the node is uncertain, so the lack is the
expected one, of a normal distribution.

    stranded = units + used · lack

Only nodes that have changed are summed up again; `NodeOutlooks.changes` lists them, for readers that keep scores by
node.

What others depend on has a price (`Scarcity`), by what is free now, whoever came first. A unit is scarce if more is
wanted of its kind than is free, by pods that accept nothing else. Pods that accept any model are kept off it by a part
of what they take of it, and led to what is hardly wanted. Likewise the fewer nodes there are on which pods could use
several devices at once, the dearer are the free devices of those. What is free changes with every placement, so prices
stand beside the scores (`ranking`), not in them, and go up and down in steps: they are always a function of what is
free, but most placements change none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import erfc, exp, frexp, ldexp, pi, sqrt
from typing import Any, NamedTuple

from scheduling.allocator.index import NodeIndex
from scheduling.allocator.pools import NodeDevices
from scheduling.allocator.published import Asked
from scheduling.allocator.snapshot import Snapshot
from scheduling.placement.demands import DemandMix, FreeCapacity, NodeNeeds, NodeRoom
from scheduling.placement.fragmentation.mix import MixReading, WideDemand
from scheduling.placement.fragmentation.units import (
    SEVERAL,
    DeviceUnit,
    Looks,
    NodeLook,
    Outlook,
    SharedUnit,
    UnitKind,
    UnitMove,
    UnitOutlooks,
    UnitPlace,
    UnitState,
)

#: The weight of scarcity, and that of pods that want several devices of one node.
SCARCITY, WIDE = 0.2, 0.1
#: The highest scarcity: twice as much is wanted as there is.
MOST_SCARCE = 2.0
#: Steps of scarcity up to 1, where there is just enough.
DEGREES = 8
#: The lowest supply of anything, as a part of all that is free.
LEAST_SUPPLY = 1e-4
#: Grains of a device, the unit of supplies: whole numbers add up to the same in any order.
GRAINS = 1 << 20
#: Steps of what is free of a kind, from nothing to all that is published: most placements stay within a step.
PARTS = 256
#: Precision, in binary digits, of how much is free for demands for several devices of one node.
USABLE_DIGITS = 5

#: How much is free of each kind of unit, in grains.
Supply = tuple[tuple[UnitKind, int], ...]


def grains(amount: float) -> int:
    return round(amount * GRAINS)


class Scarcity:
    """The prices of all kinds of units."""

    def __init__(self, reading: MixReading, published: Mapping[UnitKind, float], wide: Sequence[WideDemand]) -> None:
        """published: how much there is of each kind, free or not. wide: the demands for several devices of one node."""
        self._kinds = list(published)
        #: kinds that the same pods accept are one class, with one price
        classes = {accepts: at for at, accepts in enumerate(dict.fromkeys(map(_accepts, published)))}
        self._class_of = {kind: classes[_accepts(kind)] for kind in published}
        there = [0] * len(classes)
        for kind, amount in published.items():
            there[self._class_of[kind]] += grains(amount)
        self._each = [max(1, -(-amount // PARTS)) for amount in there]
        self._free = [0] * len(classes)
        #: of each class, how many such steps are free
        self._parts = [0] * len(classes)
        self._prices = [0.0] * len(classes)
        self._wanted = _by_classes(_wanted(reading, published), classes)
        self._wanted_in_all = sum(wanted for _, wanted in self._wanted)
        #: of each demand of `wide`, how much it wants, and how much of what is free it could use
        self._wide = [one.share * one.devices for one in wide]
        self._usable = [0] * len(wide)
        #: the price of a device that such a demand could use
        self.wide_prices = [0.0] * len(wide)
        self._has_changed = True
        #: how often a price has changed
        self.changes = 0

    def is_about(self, published: Mapping[UnitKind, float]) -> bool:
        """Whether the kinds of units are the same, in the same order, so that what is wanted of each is the same."""
        return list(published) == self._kinds

    def count(self, supply: Supply, *, sign: int = 1) -> None:
        """More is free (sign 1), or less (sign -1)."""
        for kind, amount in supply:
            at = self._class_of[kind]
            self._free[at] += sign * amount
            parts = -(-self._free[at] // self._each[at])
            if parts != self._parts[at]:
                self._parts[at] = parts
                self._has_changed = True

    def count_wide(self, before: Sequence[int], after: Sequence[int]) -> None:
        """How many devices of a node each demand for several could use before, and now."""
        for at, (one, other) in enumerate(zip(before, after, strict=True)):
            last = self._usable[at]
            self._usable[at] = now = last + other - one
            if _leading(now) != _leading(last):
                self._has_changed = True

    def settle(self) -> None:
        """Update the prices to what is free now."""
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
        """The price of a whole unit, in devices."""
        return self._prices[self._class_of[kind]]

    def _wide_priced(self, everything: int) -> list[float]:
        return [
            WIDE * _rough(min(MOST_SCARCE, wanted / self._wanted_in_all / (_leading(usable) * GRAINS / everything)))
            if usable and everything and self._wanted_in_all
            else 0.0
            for wanted, usable in zip(self._wide, self._usable, strict=True)
        ]

    def _priced(self, free: Sequence[int]) -> list[float]:
        everything, wanted_in_all, scarce = sum(free), self._wanted_in_all, [0.0] * len(free)
        if len(free) == 1 or not everything or not wanted_in_all:
            return scarce
        for classes, wanted in self._wanted:
            supply = max(sum([free[at] for at in classes]) / everything, LEAST_SUPPLY)
            for at in classes:
                scarce[at] += wanted / wanted_in_all / supply
        return [SCARCITY * (round(min(MOST_SCARCE, one) * DEGREES) / DEGREES - 1) for one in scarce]


def _accepts(kind: UnitKind) -> tuple[bool, ...]:
    return tuple(map(bool, kind.accepts))


def _by_classes(
    wanted: Sequence[float], classes: Mapping[tuple[bool, ...], int]
) -> list[tuple[tuple[int, ...], float]]:
    """How much is wanted by demands that accept the same classes."""
    amounts: dict[tuple[int, ...], float] = {}
    for number, amount in enumerate(wanted):
        taken = tuple(at for accepts, at in classes.items() if accepts[number])
        amounts[taken] = amounts.get(taken, 0.0) + amount
    return list(amounts.items())


def _wanted(reading: MixReading, published: Iterable[UnitKind]) -> Sequence[float]:
    """Of each acceptance, how much is asked for, in devices."""
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


def _rough(ratio: float) -> float:
    """Rounded down to two binary digits."""
    mantissa, exponent = frexp(ratio)
    return ldexp(int(mantissa * 4) / 4, exponent)


def _leading(number: int) -> int:
    """Rounded down to USABLE_DIGITS."""
    spare = max(0, number.bit_length() - USABLE_DIGITS)
    return number >> spare << spare


#: Cached states of nodes.
MOST_ALIKE = 4_096
#: Length at which the list of changes is reset, after which its readers look at all nodes.
MOST_CHANGES = 100_000
#: The room of a node if rooms are unknown.
PLENTY = NodeNeeds(1 << 50, 1 << 50)
#: Standard deviations beyond which an outcome counts as certain.
CERTAIN = 4.0

_ROOT2, _DENSITY = sqrt(2.0), 1 / sqrt(2 * pi)


class NodeSums(NamedTuple):
    """The sums of the `Outlook`s of a node's units."""

    stranded: float = 0.0
    used: float = 0.0
    cpu: float = 0.0
    variance: float = 0.0
    memory: float = 0.0
    free: float = 0.0
    whole: int = 0

    def plus(self, move: UnitMove) -> NodeSums:
        stranded, used, cpu, variance, memory, free, whole = self
        return _sums(
            (
                stranded + move.stranded,
                used + move.used,
                cpu + move.cpu,
                variance + move.variance,
                memory + move.memory,
                free + move.free,
                whole + move.whole,
            )
        )


_sums = NodeSums._make


class NodeFigures(NamedTuple):
    """What `NodeOutlooks` derives for one node."""

    outlooks: list[Outlook]
    distinct: tuple[Outlook, ...]
    alike: int
    sums: NodeSums
    stranded: float
    supply: Supply
    wide: tuple[int, ...]


def summed(outlooks: Iterable[Outlook]) -> NodeSums:
    stranded = used = cpu = variance = memory = free = 0.0
    whole = 0
    for one in outlooks:
        stranded += one.stranded
        used += one.used
        cpu += one.cpu
        variance += one.variance
        memory += one.memory
        free += one.free
        whole += one.whole
    return NodeSums(stranded, used, cpu, variance, memory, free, whole)


def lack(wanted: float, variance: float, left: float) -> float:
    """The expected shortage, as a part of what is wanted."""
    over = wanted - left
    if over * over >= CERTAIN * CERTAIN * variance:
        return min(1.0, over / wanted) if over > 0 else 0.0
    deviation = sqrt(variance)
    z = over / deviation
    expected = deviation * (z * 0.5 * erfc(-z / _ROOT2) + _DENSITY * exp(-z * z / 2))
    return expected / wanted if expected < wanted else 1.0


def missing(sums: NodeSums, cpu: int, memory: int) -> float:
    """The part of the expected use for which the node has no cpu or memory."""
    _, _, wants_cpu, variance, wants_memory, _, _ = sums
    part = lack(wants_cpu, variance, cpu) if wants_cpu > 0 else 0.0
    if wants_memory > memory and (over := (wants_memory - memory) / wants_memory) > part:
        return over
    return part


class NodeOutlooks:
    """What is expected of every node of an index. One thread at a time, as the index."""

    def __init__(self, index: NodeIndex, snapshot: Snapshot, mix: DemandMix, room: NodeRoom | None) -> None:
        self.index = index
        self.mix = mix
        self.room = room
        self.classes = snapshot.classes
        self._reading = reading = MixReading(mix, snapshot, index.devices)
        self._wide = tuple(reading.wide())
        #: with this many devices or fewer, a node serves none of these demands
        self._narrow = min((one.devices for one in self._wide), default=1 << 62) - 1
        self.attributes = reading.attributes
        self._looks = Looks(reading, index.features)
        self._devices = list(index.devices)
        self.looks = [self._looks.of(devices) for devices in index.devices]
        #: nodes that have several kinds of units
        self.various = {number for number, look in enumerate(self.looks) if len(look.kinds) >= SEVERAL}
        #: a node of each look
        self.examples = {look: number for number, look in enumerate(self.looks)}
        self._looks.share_out_work()
        self.scarcity = Scarcity(reading, self._published(), self._wide)
        size = len(index.nodes)
        #: kind of pod -> its `Ranking`; `Fragmentation` fills it
        self.rankings: dict[Hashable, Any] = {}
        #: the nodes whose sums have changed, in order; replaced by a new list if that may be any
        self.changes: list[int] = []
        self.left = [self._left(number) for number in range(size)]
        self.outlooks: list[list[Outlook]] = [[] for _ in range(size)]
        #: of each node, the distinct outlooks of its units
        self.distinct: list[tuple[Outlook, ...]] = [()] * size
        #: of each node, the number of its state: equal for nodes in the same state
        self.alike = [0] * size
        self._alike: dict[Hashable, int] = {}
        self._numbers = count()
        #: (look, taken devices, room) -> the figures of such nodes, if no shares are out
        self._same: dict[Hashable, NodeFigures] = {}
        self.sums = [NodeSums()] * size
        self.stranded = [0.0] * size
        #: of each node, what is free
        self._supply: list[Supply] = [()] * size
        self.nothing_wide = (0,) * len(self._wide)
        #: of each node, how many of its devices each demand for several could use
        self.wide = [self.nothing_wide] * size
        for number in range(size):
            self._sum_up(number, snapshot)
        self.scarcity.settle()
        self._touched, self._read = index.touched, len(index.touched)
        self._mark = room.changed_since(0)[1] if room is not None else 0

    def is_of(self, mix: DemandMix, room: NodeRoom | None, snapshot: Snapshot) -> bool:
        return self.mix is mix and self.room is room and self.classes is snapshot.classes

    # Keeping up ------------------------------------------------------------------------------------------------------

    def follow(self, snapshot: Snapshot) -> bool:
        """Catch up with the index, which has followed `snapshot`, and with the room. False if this cannot be reused:
        other devices are published now, so the mix is read differently or there are other kinds of units.
        """
        touched = self.index.touched
        stale = set(touched[self._read :] if touched is self._touched else range(len(self.left)))
        self._touched, self._read = touched, len(touched)
        if self._reread(stale) and not (self._reading.holds() and self.scarcity.is_about(self._published())):
            return False
        stale.update(self._with_other_room())
        if len(self.changes) > MOST_CHANGES:
            self.changes = []
        for number in sorted(stale):
            self._sum_up(number, snapshot)
            self.changes.append(number)
        if stale:
            self.scarcity.settle()
        return True

    def _reread(self, numbers: Iterable[int]) -> bool:
        """Update the looks of nodes that see other devices than before. Whether there are any."""
        index = self.index
        others = [number for number in numbers if self._devices[number] is not index.devices[number]]
        for number in others:
            self._devices[number] = index.devices[number]
            self.looks[number] = self._looks.of(index.devices[number])
            self.examples[self.looks[number]] = number
            (self.various.add if len(self.looks[number].kinds) >= SEVERAL else self.various.discard)(number)
        return bool(others)

    def _with_other_room(self) -> Iterator[int]:
        """Update the rooms. The nodes of which more or less is left than before."""
        if self.room is None:
            return
        names, self._mark = self.room.changed_since(self._mark)
        numbers = range(len(self.left)) if names is None else map(self.index.number_of_name, names)
        for number in numbers:
            if number is not None and (left := self._left(number)) != self.left[number]:
                self.left[number] = left
                yield number

    def _left(self, number: int) -> NodeNeeds:
        """The room of a node; an overcommitted resource counts as 0."""
        if self.room is None:
            return PLENTY
        cpu, memory = self.room.left(self.index.nodes[number].name)
        return NodeNeeds(max(0, cpu), max(0, memory))

    def _sum_up(self, number: int, snapshot: Snapshot) -> None:
        index = self.index
        same = None
        if not index.shared_out[number]:
            look = self.looks[number]  # without units, it does not matter what is taken
            same = (look, index.taken[number] if look.units else 0, self.left[number])
            if (figures := self._same.get(same)) is not None:
                outlooks, distinct, alike, sums, stranded, supply, wide = figures
                self.outlooks[number], self.distinct[number], self.alike[number] = outlooks, distinct, alike
                self.sums[number], self.stranded[number] = sums, stranded
                self._restock(number, supply, wide)
                return
        outlooks = self.outlooks[number] = [
            self._outlooks(place.kind).of(state) for place, state in self._states(number, snapshot)
        ]
        self.distinct[number] = tuple(dict.fromkeys(outlooks))
        key = (self.looks[number], tuple(outlooks), self.left[number])
        if max(len(self._alike), len(self._same)) >= MOST_ALIKE:
            self._same.clear()
        if len(self._alike) >= MOST_ALIKE:
            self._alike.clear()
        self.alike[number] = self._alike.setdefault(key, next(self._numbers))
        sums = self.sums[number] = summed(outlooks)
        self.stranded[number] = self.expected(sums, *self.left[number])
        supply, wide = self._free(self.looks[number], outlooks, sums), self.for_wide(sums.whole, *self.left[number])
        self._restock(number, supply, wide)
        if same is not None:
            self._same[same] = NodeFigures(
                outlooks, self.distinct[number], self.alike[number], sums, self.stranded[number], supply, wide
            )

    def _free(self, look: NodeLook, outlooks: Sequence[Outlook], sums: NodeSums) -> Supply:
        if len(look.kinds) == 1:
            return ((look.kinds[0], grains(sums.free)),)
        return tuple((place.kind, grains(one.free)) for place, one in zip(look.units, outlooks, strict=True))

    def _restock(self, number: int, supply: Supply, wide: tuple[int, ...]) -> None:
        before = self._supply[number]
        if supply is not before:
            self.scarcity.count(before, sign=-1)
            self.scarcity.count(supply)
            self._supply[number] = supply
        if wide != self.wide[number]:
            self.scarcity.count_wide(self.wide[number], wide)
            self.wide[number] = wide

    def _outlooks(self, kind: UnitKind) -> UnitOutlooks:
        if kind.outlooks is None:
            kind.outlooks = kind.judged(self._reading, self._looks.least, work=self._looks.work)
            kind.outlooks.price = self.scarcity.price(kind)
        return kind.outlooks

    # Reading the devices ---------------------------------------------------------------------------------------------

    def _states(self, number: int, snapshot: Snapshot) -> Iterator[tuple[UnitPlace, UnitState]]:
        index, units = self.index, self.looks[number].units
        if not units:  # nodes with too many devices are left out, since going through them takes long
            return
        taken = index.taken[number] | index.shared_out[number]
        consumed = _consumed(index.devices[number], snapshot) if index.shared_out[number] else {}
        for place in units:
            yield place, place.state(taken, consumed)

    def _published(self) -> dict[UnitKind, float]:
        """How much there is of each kind of unit, free or not."""
        there: dict[UnitKind, float] = {}
        for look, nodes in Counter(self.looks).items():
            for place in look.units:
                unit: DeviceUnit = place.kind.unit
                there[place.kind] = there.get(place.kind, 0.0) + nodes * unit.free(unit.full)
        return there

    def free_capacity(self, masks: Sequence[int]) -> FreeCapacity:
        """Of these devices, a mask for each node. Units of which a mask has only a part count as a whole."""
        free = stranded = 0.0
        for number, mask in enumerate(masks):
            units = zip(self.looks[number].units, self.outlooks[number], strict=True)
            outlooks = [outlook for place, outlook in units if place.mask & mask and outlook.free]
            lacking = missing(self.sums[number], *self.left[number]) if outlooks else 0.0
            free += sum(one.free for one in outlooks)
            stranded += sum(one.unused + (one.free - one.unused) * lacking for one in outlooks)
        return FreeCapacity(free, stranded)

    # The measure -----------------------------------------------------------------------------------------------------

    def expected(self, sums: NodeSums, cpu: int, memory: int) -> float:
        """What is expected to be stranded of a node that has so much cpu and memory left."""
        stranded, used, _, _, _, _, _ = sums
        if used > 0:
            stranded += used * missing(sums, cpu, memory)
        return stranded

    def for_wide(self, whole: int, cpu: int, memory: int) -> tuple[int, ...]:
        """Of each demand for several devices of one node, how many of the node's devices it could use."""
        if whole <= self._narrow:
            return self.nothing_wide
        usable = []
        for devices, _, each_cpu, each_memory in self._wide:
            fits = whole // devices
            if each_cpu and cpu < fits * each_cpu:
                fits = int(cpu / each_cpu)
            if each_memory and memory < fits * each_memory:
                fits = int(memory / each_memory)
            usable.append(devices * fits)
        return tuple(usable)


def _consumed(devices: NodeDevices, snapshot: Snapshot) -> dict[int, Mapping[str, int]]:
    """position -> what is consumed of a shared device."""
    consumed: dict[int, Mapping[str, int]] = {}
    for view, shift in zip(devices.pools, devices.shifts, strict=True):
        for name, shares in snapshot.pool_usage(view.key).shares.items():
            if mask := view.generation.bits_by_name.get(name, 0):
                consumed[mask.bit_length() - 1 + shift] = shares.consumed
    return consumed
