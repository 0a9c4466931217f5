"""Every node with what is expected of it under a mix, followed from placement to placement.

What a node strands is what its units strand, and more where their use would take more cpu or memory than it has left: a
GPU without a core beside it is of use to nobody. What the pods to come will take of the node is uncertain, so the lack
is the expected one, of a normal distribution.

    stranded = units + used · lack

Beside it stands what pods that want several devices of one node could use of it, and what is free of each kind: that
has a price by how scarce it is (`scarcity`).

Only nodes of which something has changed are summed up again; `changes` lists them, for whoever keeps scores by node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import erfc, exp, pi, sqrt
from typing import Any, NamedTuple

from scheduling.allocator.index import NodeIndex
from scheduling.allocator.pools import NodeDevices
from scheduling.allocator.snapshot import Snapshot
from scheduling.placement.fragmentation.demands import DemandMix, NodeNeeds, NodeRoom
from scheduling.placement.fragmentation.looks import SEVERAL, Looks, NodeLook, UnitKind, UnitPlace
from scheduling.placement.fragmentation.outlooks import Outlook, UnitMove, UnitOutlooks
from scheduling.placement.fragmentation.reading import MixReading
from scheduling.placement.fragmentation.scarcity import Scarcity, Supply, grains
from scheduling.placement.fragmentation.units import DeviceUnit, UnitState

#: States of nodes that are known again.
MOST_ALIKE = 4_096
#: Changes that are listed before whoever reads them has to look at all nodes.
MOST_CHANGES = 100_000
#: What a node has of which nobody knows what it has.
PLENTY = NodeNeeds(1 << 50, 1 << 50)
#: Deviations from what is expected beyond which nothing is left to chance.
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
    """Of one node, what `NodeOutlooks` has of each."""

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
    """The part of what is wanted that is expected to be missing."""
    over = wanted - left
    if over * over >= CERTAIN * CERTAIN * variance:
        return min(1.0, over / wanted) if over > 0 else 0.0
    deviation = sqrt(variance)
    z = over / deviation
    expected = deviation * (z * 0.5 * erfc(-z / _ROOT2) + _DENSITY * exp(-z * z / 2))
    return expected / wanted if expected < wanted else 1.0


def missing(sums: NodeSums, cpu: int, memory: int) -> float:
    """The part of what is expected to be used for which the node has no cpu or memory."""
    _, _, wants_cpu, variance, wants_memory, _, _ = sums
    found = lack(wants_cpu, variance, cpu) if wants_cpu > 0 else 0.0
    if wants_memory > memory and (over := (wants_memory - memory) / wants_memory) > found:
        return over
    return found


class FreeCapacity(NamedTuple):
    """In devices. stranded: how much of what is free is expected to stay unused, by what pods usually ask for."""

    free: float = 0.0
    stranded: float = 0.0


class NodeOutlooks:
    """Of all nodes of an index. One thread at a time, as the index."""

    def __init__(self, index: NodeIndex, snapshot: Snapshot, mix: DemandMix, room: NodeRoom | None) -> None:
        self.index = index
        self.mix = mix
        self.room = room
        self.classes = snapshot.classes
        self._reading = reading = MixReading(mix, snapshot, index.devices)
        self._wide = tuple(reading.wide())
        #: so many devices are of no use to any of these
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
        #: what `policy` keeps here: a `Ranking` for each kind of pod
        self.rankings: dict[Hashable, Any] = {}
        #: numbers of nodes whose sums have changed, in order; a new list where any may have
        self.changes: list[int] = []
        self.left = [self._left(number) for number in range(size)]
        self.outlooks: list[list[Outlook]] = [[] for _ in range(size)]
        #: of each node, the outlooks that its units have, each once
        self.distinct: list[tuple[Outlook, ...]] = [()] * size
        #: of each node, a number that those have in common that are in the same state
        self.alike = [0] * size
        self._alike: dict[Hashable, int] = {}
        self._numbers = count()
        #: the same of nodes of which no shares are out: (look, devices that are taken, room) -> what is known of such
        self._same: dict[Hashable, NodeFigures] = {}
        self.sums = [NodeSums()] * size
        self.stranded = [0.0] * size
        #: of each node, what is free
        self._supply: list[Supply] = [()] * size
        self.nothing_wide = (0,) * len(self._wide)
        #: of each node, how many of its devices those could use who want several
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
        """Catch up with the index, which has followed `snapshot`, and with the room. False where other devices are
        published now, so that the mix is read differently or there are other kinds of units: nothing of it holds then.
        """
        touched = self.index.touched
        stale = set(touched[self._read :] if touched is self._touched else range(len(self.left)))
        self._touched, self._read = touched, len(touched)
        if self._look_again(stale) and not (self._reading.holds() and self.scarcity.is_about(self._published())):
            return False
        stale.update(self._roomier())
        if len(self.changes) > MOST_CHANGES:
            self.changes = []
        for number in sorted(stale):
            self._sum_up(number, snapshot)
            self.changes.append(number)
        if stale:
            self.scarcity.settle()
        return True

    def _look_again(self, numbers: Iterable[int]) -> bool:
        """Whether any of these nodes sees other devices than before."""
        index = self.index
        others = [number for number in numbers if self._devices[number] is not index.devices[number]]
        for number in others:
            self._devices[number] = index.devices[number]
            self.looks[number] = self._looks.of(index.devices[number])
            self.examples[self.looks[number]] = number
            (self.various.add if len(self.looks[number].kinds) >= SEVERAL else self.various.discard)(number)
        return bool(others)

    def _roomier(self) -> Iterator[int]:
        """Nodes of which more or less is left than before."""
        if self.room is None:
            return
        names, self._mark = self.room.changed_since(self._mark)
        numbers = range(len(self.left)) if names is None else map(self.index.number_of_name, names)
        for number in numbers:
            if number is not None and (left := self._left(number)) != self.left[number]:
                self.left[number] = left
                yield number

    def _left(self, number: int) -> NodeNeeds:
        """Nothing of what more was given away than there is."""
        if self.room is None:
            return PLENTY
        cpu, memory = self.room.left(self.index.nodes[number].name)
        return NodeNeeds(max(0, cpu), max(0, memory))

    def _sum_up(self, number: int, snapshot: Snapshot) -> None:
        index = self.index
        same = None
        if not index.shared_out[number]:
            look = self.looks[number]  # without units it does not matter what is taken
            same = (look, index.taken[number] if look.units else 0, self.left[number])
            if (known := self._same.get(same)) is not None:
                self._take_over(number, known)
                return
        found = self.outlooks[number] = [
            self._outlooks(place.kind).of(state) for place, state in self._states(number, snapshot)
        ]
        self.distinct[number] = tuple(dict.fromkeys(found))
        key = (self.looks[number], tuple(found), self.left[number])
        if max(len(self._alike), len(self._same)) >= MOST_ALIKE:
            self._same.clear()
        if len(self._alike) >= MOST_ALIKE:
            self._alike.clear()
        self.alike[number] = self._alike.setdefault(key, next(self._numbers))
        sums = self.sums[number] = summed(found)
        self.stranded[number] = self.expected(sums, *self.left[number])
        supply, wide = self._free(self.looks[number], found, sums), self.for_wide(sums.whole, *self.left[number])
        self._restock(number, supply, wide)
        if same is not None:
            self._same[same] = NodeFigures(
                found, self.distinct[number], self.alike[number], sums, self.stranded[number], supply, wide
            )

    def _take_over(self, number: int, known: NodeFigures) -> None:
        outlooks, distinct, alike, sums, stranded, supply, wide = known
        self.outlooks[number], self.distinct[number], self.alike[number] = outlooks, distinct, alike
        self.sums[number], self.stranded[number] = sums, stranded
        self._restock(number, supply, wide)

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

    # What there is ---------------------------------------------------------------------------------------------------

    def _states(self, number: int, snapshot: Snapshot) -> Iterator[tuple[UnitPlace, UnitState]]:
        index, units = self.index, self.looks[number].units
        if not units:  # a node that sees too many devices is left out; looking through them would take long
            return
        taken = index.taken[number] | index.shared_out[number]
        consumed = _consumed(index.devices[number], snapshot) if index.shared_out[number] else {}
        for place in units:
            yield place, place.state(taken, consumed)

    def _published(self) -> dict[UnitKind, float]:
        """How much there is of each kind of unit, whoever has it now."""
        there: dict[UnitKind, float] = {}
        for look, nodes in Counter(self.looks).items():
            for place in look.units:
                unit: DeviceUnit = place.kind.unit
                there[place.kind] = there.get(place.kind, 0.0) + nodes * unit.free(unit.full)
        return there

    def free_capacity(self, masks: Sequence[int]) -> FreeCapacity:
        """Of these devices, a mask for each node; units of which only a part is meant count as a whole."""
        free = stranded = 0.0
        for number, mask in enumerate(masks):
            units = zip(self.looks[number].units, self.outlooks[number], strict=True)
            found = [outlook for place, outlook in units if place.mask & mask and outlook.free]
            lacking = missing(self.sums[number], *self.left[number]) if found else 0.0
            free += sum(one.free for one in found)
            stranded += sum(one.unused + (one.free - one.unused) * lacking for one in found)
        return FreeCapacity(free, stranded)

    # The measure -----------------------------------------------------------------------------------------------------

    def expected(self, sums: NodeSums, cpu: int, memory: int) -> float:
        """What is expected to be stranded of a node with so much left."""
        stranded, used, _, _, _, _, _ = sums
        if used > 0:
            stranded += used * missing(sums, cpu, memory)
        return stranded

    def for_wide(self, whole: int, cpu: int, memory: int) -> tuple[int, ...]:
        """Of each demand for several devices of one node, how many of the node's those could use."""
        if whole <= self._narrow:
            return self.nothing_wide
        found = []
        for devices, _, each_cpu, each_memory in self._wide:
            fits = whole // devices
            if each_cpu and cpu < fits * each_cpu:
                fits = int(cpu / each_cpu)
            if each_memory and memory < fits * each_memory:
                fits = int(memory / each_memory)
            found.append(devices * fits)
        return tuple(found)


def _consumed(devices: NodeDevices, snapshot: Snapshot) -> dict[int, Mapping[str, int]]:
    """position -> what is consumed of a device of which shares are out."""
    found: dict[int, Mapping[str, int]] = {}
    for view, shift in zip(devices.pools, devices.shifts, strict=True):
        for name, shares in snapshot.pool_usage(view.key).shares.items():
            if mask := view.generation.bits_by_name.get(name, 0):
                found[mask.bit_length() - 1 + shift] = shares.consumed
    return found
