"""The placement policy `fragmentation`: what is expected of each node, the nodes for one kind of pod, and the policy.

Nodes (`NodeOutlooks`). What a node strands is what its units strand, and more if their use would take more cpu or
memory than it has left: a GPU without a core beside it is of no use. What the pods to come will take of the node is
uncertain, so the lack is the expected one, of a normal distribution:

    stranded = units + used · lack

Only nodes that have changed are summed up again; `NodeOutlooks.changes` lists them, for readers that keep scores by
node.

Prices (`Scarcity`) protect what others depend on, by what is free now, whatever came first. A unit is scarce if more is
wanted of its kind than is free, by pods that accept nothing else. Pods that accept any model are kept off it by a part
of what they take of it, and led to what is hardly wanted. Likewise the fewer nodes there are on which pods could use
several devices at once, the dearer are the free devices of those. What is free changes with every placement, so prices
stand beside the scores (`Ranking`), not in them, and go up and down in steps: they are always a function of what is
free, but most placements change none of them.

The ranking (`Ranking`) keeps a score of every node for one kind of pod: how much more is expected to be stranded once
the pod is there. It updates the scores of nodes that have changed since the last pod of the kind. If prices have
changed, only what is taken of each node is paid for again. Scores stand in blocks with the lowest of each block beside
them, so that the best of thousands of nodes is found by looking at some dozens of numbers. Of nodes that strand the
same, one is taken whose devices have no class of their own of which there are few (`NodeIndex.levels`), then the one
with the least free devices, with the least cpu left, the first by name.

A `Picking` says by which of a node's units a pod is served best, and what becomes of the node then. The pod's parts are
served one after the other, each by the unit on which it strands the least in the state in which the parts before it
left the units. Each device that nothing ties to the others is a step by itself.

`Fragmentation` is the score for the allocator; it caches rankings. `FragmentationPolicy` is the policy as the scheduler
uses it, with the cluster's state and its settings.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from itertools import count, islice
from math import erfc, exp, frexp, inf, ldexp, pi, sqrt
from operator import add, mul, sub
from typing import Any, NamedTuple

from django.conf import settings

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.kinds.resource_usage import node_requests_of
from claims.pod_claims import claim_names
from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from manciple.wire.resources import Key
from scheduling.allocator import NodeChoice, NodeView
from scheduling.allocator.index import NodeIndex, Variant
from scheduling.allocator.placement import Candidate, Fit, NodeQuery, NodeScore, most_packed
from scheduling.allocator.problem import selected
from scheduling.allocator.requests import plan_class
from scheduling.allocator.snapshot import NodeDevices, Snapshot, bits
from scheduling.placement.demands import (
    NOTHING_ELSE,
    Demand,
    DemandMix,
    FreeCapacity,
    NodeNeeds,
    NodeRoom,
    declared_demands,
)
from scheduling.placement.fragmentation.mix import ClaimPart, MixReading, Pick, WideDemand, parts_of
from scheduling.placement.fragmentation.units import (
    MOST_COMPARED,
    SEVERAL,
    DeviceUnit,
    GroupUnit,
    Looks,
    NodeLook,
    Outlook,
    SharedUnit,
    Taken,
    UnitKind,
    UnitMove,
    UnitOutlooks,
    UnitPlace,
    UnitWant,
    least_taken,
    unit_want,
)
from scheduling.placement.policies import PlacementPolicy, among, free_devices
from scheduling.state.cluster import ClusterState

# What is expected of the nodes ----------------------------------------------------------------------------------------


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
        everything, prices = sum(free), self._priced(free)
        wide = [
            WIDE * _rough(min(MOST_SCARCE, wanted / self._wanted_in_all / (_leading(usable) * GRAINS / everything)))
            if usable and everything and self._wanted_in_all
            else 0.0
            for wanted, usable in zip(self._wide, self._usable, strict=True)
        ]
        if prices != self._prices or wide != self.wide_prices:
            self._prices, self.wide_prices = prices, wide
            self.changes += 1
            for kind, number in self._class_of.items():
                if kind.outlooks is not None:
                    kind.outlooks.price = prices[number]

    def price(self, kind: UnitKind) -> float:
        """The price of a whole unit, in devices."""
        return self._prices[self._class_of[kind]]

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
            size = 1.0  # of the share that is asked for, by the first kind of shared device that serves it
            for kind in published:
                unit = kind.unit
                if kind.accepts[accepts] and isinstance(unit, SharedUnit) and unit.taken(pick.asked) is not None:
                    size = unit.height(pick.asked) / unit.levels
                    break
            wanted[accepts] += part.share * pick.devices * size
    return wanted


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
        index, look = self.index, self.looks[number]
        same = None
        if not index.shared_out[number]:
            # Without units, it does not matter what is taken.
            same = (look, index.taken[number] if look.units else 0, self.left[number])
            if (figures := self._same.get(same)) is not None:
                outlooks, distinct, alike, sums, stranded, supply, wide = figures
                self.outlooks[number], self.distinct[number], self.alike[number] = outlooks, distinct, alike
                self.sums[number], self.stranded[number] = sums, stranded
                self._restock(number, supply, wide)
                return
        outlooks = self.outlooks[number] = []
        if look.units:  # nodes with too many devices have none, since going through them takes long
            of_kinds = {kind: kind.outlooks or self._judged(kind) for kind in look.kinds}
            taken = index.taken[number] | index.shared_out[number]
            consumed = _consumed(index.devices[number], snapshot) if index.shared_out[number] else {}
            outlooks += look.outlooks(taken, consumed, of_kinds)
        self.distinct[number] = tuple(dict.fromkeys(outlooks))
        key = (look, tuple(outlooks), self.left[number])
        if max(len(self._alike), len(self._same)) >= MOST_ALIKE:
            self._same.clear()
        if len(self._alike) >= MOST_ALIKE:
            self._alike.clear()
        self.alike[number] = self._alike.setdefault(key, next(self._numbers))
        sums = self.sums[number] = summed(outlooks)
        self.stranded[number] = self.expected(sums, *self.left[number])
        if len(look.kinds) == 1:
            supply = ((look.kinds[0], grains(sums.free)),)
        else:
            supply = tuple((place.kind, grains(one.free)) for place, one in zip(look.units, outlooks, strict=True))
        wide = self.for_wide(sums.whole, *self.left[number])
        self._restock(number, supply, wide)
        if same is not None:
            self._same[same] = NodeFigures(
                outlooks, self.distinct[number], self.alike[number], sums, self.stranded[number], supply, wide
            )

    def _restock(self, number: int, supply: Supply, wide: tuple[int, ...]) -> None:
        before = self._supply[number]
        if supply is not before:
            self.scarcity.count(before, sign=-1)
            self.scarcity.count(supply)
            self._supply[number] = supply
        if wide != self.wide[number]:
            self.scarcity.count_wide(self.wide[number], wide)
            self.wide[number] = wide

    def _judged(self, kind: UnitKind) -> UnitOutlooks:
        """Compute the outlooks of a kind: once, when a node is summed up that has a unit of the kind."""
        outlooks = kind.outlooks = kind.judged(self._reading, self._looks.least, work=self._looks.work)
        outlooks.price = self.scarcity.price(kind)
        return outlooks

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


# The nodes for one kind of pod ----------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """What a step wants of each unit of a node; None of a unit that cannot serve it. chooses: whether units of several
    kinds can.
    """

    units: tuple[UnitWant | None, ...]
    chooses: bool


class PickStep(NamedTuple):
    """attribute: the number of the attribute that all its devices must have in common; -1 for none."""

    attribute: int
    picks: tuple[Pick, ...]


class StepMove(NamedTuple):
    """A step, or one device of it, served by a unit of the node."""

    cost: float
    unit: int
    move: UnitMove
    step: PickStep


class Picking:
    """How nodes serve one variant of a pod's claims; the variant is None for a pod without claims."""

    def __init__(self, nodes: NodeOutlooks, variant: Variant | None) -> None:
        self._nodes = nodes
        self._variant = variant
        parts = parts_of(variant.plans, variant.chosen) if variant is not None else ()
        self._steps = tuple(step for part in parts for step in _steps(part, nodes.attributes))
        #: (number of the step, look, the devices that each of its requests accepts) -> what it wants of each unit
        self._wanted: dict[tuple[int, NodeLook, tuple[int, ...]], Wanted] = {}
        #: whether there is a single request, without constraints
        self._is_single = variant is not None and len(variant.wants) == len(parts) == 1 and not variant.rules
        #: whether it is for one device
        self._is_plain = self._is_single and parts[0].devices == 1
        #: per node, the devices that the only request accepts
        self._accepted = variant.wants[0].counts.candidates if self._is_single and variant is not None else []
        #: per step, the least of any unit that serves one of its devices
        self._least = [self._least_of(step) for step in self._steps]
        #: (look, the devices that are accepted) -> what is wanted of each unit, if that is the same for all units
        self._alike: dict[tuple[NodeLook, int], UnitWant | None] = {}

    def accepted(self) -> list[list[int]]:
        """Of each request, the devices that it accepts, by node."""
        return [] if self._variant is None else [want.counts.candidates for want in self._variant.wants]

    def is_certain(self, number: int) -> bool:
        """Whether the states of the units alone decide if the node can serve the pod."""
        return self._is_single and not self._accepted[number] & ~self._nodes.looks[number].certain

    def served(self, number: int) -> tuple[NodeSums, Taken] | None:
        """The node's sums with the pod, and what the pod takes; None if its units do not seem to have that."""
        sums = self._nodes.sums[number]
        if self._is_plain:
            only = self._only_move(number)
            return None if only is None else (sums.plus(only), only.taken)
        moves = self._moves(number)
        if moves is None:
            return None
        for one in moves:
            sums = sums.plus(one.move)
        return sums, tuple([taken for one in moves for taken in one.move.taken])

    def chooses(self, number: int) -> bool:
        """Whether the node has units of several kinds for the pod, so that prices decide which one serves it."""
        return any(self._wants_of(at, number).chooses for at in range(len(self._steps)))

    def devices(self, number: int) -> list[int] | None:
        """Of each want, the devices of the node that serve it best; any of them that is free will do. All devices for a
        want that no unit serves; None if the units do not seem to have what is asked for.
        """
        moves = self._moves(number)
        if moves is None or self._variant is None:
            return None
        masks = [0] * len(self._variant.wants)
        units = self._nodes.looks[number].units
        for one in moves:
            for pick in one.step.picks:
                masks[pick.want] |= units[one.unit].on_node(one.move.devices)
        return [mask or -1 for mask in masks]

    def _only_move(self, number: int) -> UnitMove | None:
        """The best move for a pod that asks for one device."""
        nodes = self._nodes
        key = (nodes.looks[number], self._accepted[number])
        try:
            want = self._alike[key]
        except KeyError:
            wants = set(self._wants_of(0, number).units)
            want = self._alike[key] = wants.pop() if len(wants) == 1 else None
        if want is None:
            moves = self._moves(number)
            return moves[0].move if moves else None
        best, least = None, inf
        for outlook in nodes.distinct[number]:
            move = outlook.moves[want]
            if move is not None and (cost := move.cost - outlook.outlooks.price * move.free) < least:
                best, least = move, cost
        return best

    def _moves(self, number: int) -> list[StepMove] | None:
        look, outlooks = self._nodes.looks[number], list(self._nodes.outlooks[number])
        steps: list[StepMove] = []
        for at, step in enumerate(self._steps):
            moves = _served(step, self._wants_of(at, number), look, outlooks)
            if moves is None:
                return None
            steps += moves
        return steps

    def _wants_of(self, at: int, number: int) -> Wanted:
        """What a step wants of each unit of a node, cached."""
        step, look = self._steps[at], self._nodes.looks[number]
        wants = () if self._variant is None else self._variant.wants
        accepted = tuple(wants[pick.want].counts.candidates[number] for pick in step.picks)
        key = (at, look, accepted)
        wanted = self._wanted.get(key)
        if wanted is None:
            units = tuple(_want(step, place, accepted, least=self._least[at]) for place in look.units)
            kinds = {place.kind for place, want in zip(look.units, units, strict=True) if want is not None}
            wanted = self._wanted[key] = Wanted(units, len(kinds) >= SEVERAL)
        return wanted

    def _least_of(self, step: PickStep) -> float:
        if step.attribute >= 0 or self._variant is None:
            return 0.0
        candidates = self._variant.wants[step.picks[0].want].counts.candidates
        amounts: dict[tuple[UnitKind, UnitWant | None], float] = {}
        for look, number in islice(self._nodes.examples.items(), MOST_COMPARED):
            for place in look.units:
                want = _want(step, place, (candidates[number],), least=0.0)
                if want is not None and (place.kind, want) not in amounts:
                    amounts[place.kind, want] = least_taken(place.kind.unit, want)
        least = min(amounts.values(), default=inf)
        return least if least < inf else 0.0


def _served(step: PickStep, wants: Wanted, look: NodeLook, outlooks: list[Outlook]) -> list[StepMove] | None:
    """The best units for a step; updates `outlooks` to those after it. None if there are too few."""
    waiting = [
        StepMove(_cost(move), unit, move, step)
        for unit, want in enumerate(wants.units)
        if want is not None and (move := outlooks[unit].moves[want]) is not None
    ]
    served: list[StepMove] = []
    for _ in range(step.picks[0].devices if step.attribute < 0 else 1):
        if not waiting:
            return None
        best = min(waiting)
        waiting.remove(best)
        served.append(best)
        outlooks[best.unit] = best.move.after
        want = wants.units[best.unit]
        if want is not None and not isinstance(look.units[best.unit].kind.unit, SharedUnit):
            again = best.move.after.moves[want]  # while a shared device serves a request only once
            waiting += () if again is None else (StepMove(_cost(again), best.unit, again, step),)
    return served


def _cost(move: UnitMove) -> float:
    """Including what is taken, at its price."""
    return move.cost - move.after.outlooks.price * move.free


def _steps(part: ClaimPart, attributes: tuple[str, ...]) -> Iterator[PickStep]:
    if part.attribute in attributes:
        yield PickStep(attributes.index(part.attribute), part.picks)
    else:
        yield from (PickStep(-1, (pick,)) for pick in part.picks)


def _want(step: PickStep, place: UnitPlace, accepted: tuple[int, ...], *, least: float) -> UnitWant | None:
    masks = [place.local(one) for one in accepted]
    if not all(masks):
        return None
    if step.attribute < 0:
        return unit_want(step.picks[0].asked, ((masks[0], 1),), least=least)
    if not isinstance(place.kind.unit, GroupUnit):
        return None
    picks = zip(masks, step.picks, strict=True)
    return unit_want((), tuple((mask, pick.devices) for mask, pick in picks), step.attribute)


#: Scores in a block.
BLOCK = 64
#: A difference between scores, in devices, that does not matter.
HARDLY = 1e-3
#: Different amounts that pods take, each with a cost, before all nodes are scored again.
MOST_TAKEN = 4_096
#: Number of nodes to score from which grouping them by state pays.
MANY = 100
#: Handicaps of a node, for each level of rarity, each device that is left free there, each thousandth of a core.
PER_LEVEL, PER_DEVICE, PER_CPU = 1e-3, 1e-7, 1e-14


class RankedNode(NamedTuple):
    """stranded: how many more devices are expected to be stranded with the pod there; infinite if it may not fit."""

    number: int
    stranded: float


class Ranking:
    """The nodes for one variant of a pod's claims and what the pod takes of its node."""

    def __init__(self, nodes: NodeOutlooks, variant: Variant | None, needs: NodeNeeds) -> None:
        """variant: None for a pod without claims."""
        self._nodes = nodes
        self._variant = variant
        self._needs = needs
        self._picking = Picking(nodes, variant)
        size = len(nodes.left)
        self._levels: tuple[int, ...] = ()
        self._handicaps: list[float] = []
        #: by node, the score without the cost of what is taken, which changes more often, and the number of what is
        #: taken, in `_taken`
        self._bare = array("d", [inf]) * size
        self._takes = [0] * size
        self._taken: dict[tuple[Taken, tuple[int, ...]], int] = {((), ()): 0}
        #: by that number, the cost
        self._costs = [0.0]
        self._prices = nodes.scarcity.changes
        self._scores = array("d", [inf]) * size
        self._lowest = [inf] * -(-size // BLOCK)
        self._among = 0
        self._changes, self._read = nodes.changes, 0

    def best_first(self, among: int) -> Iterator[RankedNode]:
        """The nodes in `among`, best first; those whose units do not seem to have what is asked for come last."""
        self._follow(among)
        passed: list[tuple[int, float]] = []
        try:
            while (best := self._best()).stranded < inf:
                passed.append(best)
                self._put(best.number, inf)
                yield best
            seen = sum(1 << number for number, _ in passed)
            for number in bits(among & ~seen):
                yield RankedNode(number, inf)
        finally:
            for number, score in passed:
                self._put(number, score)

    def as_good_as_the_best(self, among: int) -> list[int]:
        """The nodes in `among` on which hardly more is stranded than on the best one."""
        self._follow(among)
        most = min(self._lowest, default=inf) + HARDLY
        return [number for number, score in enumerate(self._scores) if score <= most < inf]

    def name_of(self, number: int) -> str:
        return self._nodes.index.nodes[number].name

    def devices(self, number: int) -> list[int] | None:
        """Of each want, the devices of the node that strand the least; None if the units do not seem to serve it."""
        return self._picking.devices(number)

    def is_certain(self, number: int) -> bool:
        """Whether a node on which the pod does not seem to fit is proven to be unable to take it."""
        return self._picking.is_certain(number)

    def _best(self) -> RankedNode:
        score = min(self._lowest, default=inf)
        if score == inf:
            return RankedNode(-1, inf)
        start = self._lowest.index(score) * BLOCK
        return RankedNode(self._scores.index(score, start), score)

    def _follow(self, among: int) -> None:
        nodes = self._nodes
        changes = nodes.changes
        stale = set(changes[self._read :]) if changes is self._changes else set(range(len(nodes.left)))
        self._changes, self._read = changes, len(changes)
        if len(self._costs) > MOST_TAKEN:
            self._taken, self._costs = {((), ()): 0}, [0.0]
            stale = set(range(len(nodes.left)))
        if self._have_levels_changed():
            stale = set(range(len(nodes.left)))
        if self._prices != nodes.scarcity.changes:
            self._prices = nodes.scarcity.changes
            stale.update(self._reprice())
        if among != self._among:
            stale.update(bits(among & ~self._among))
            for number in bits(self._among & ~among):
                self._bare[number] = inf
                self._put(number, inf)
            self._among = among
        digits = f"{among:b}"[::-1].ljust(len(nodes.left), "0")
        numbers = [number for number in stale if digits[number] == "1"]
        scores, bare, takes = self._scores, self._bare, self._takes
        if len(numbers) < MANY:
            for number in numbers:
                scores[number], bare[number], takes[number] = self._score(number)
        else:
            by_state = dict[Hashable, tuple[float, float, int]]()
            keys = list(zip(nodes.alike, self._handicaps, *self._picking.accepted(), strict=True))
            for number in numbers:
                score = by_state.get(keys[number])
                if score is None:
                    score = by_state[keys[number]] = self._score(number)
                scores[number], bare[number], takes[number] = score
        for block in {number // BLOCK for number in numbers}:
            self._lowest[block] = min(scores[block * BLOCK : (block + 1) * BLOCK])

    def _have_levels_changed(self) -> bool:
        """Update the handicaps for rarity. Whether they changed."""
        levels = self._variant.levels(by_size=False) if self._variant is not None else self._nodes.index.one_level
        if levels == self._levels:
            return False
        self._levels = levels
        self._handicaps = [0.0] * len(self._nodes.left)
        for level, members in enumerate(levels[1:], 1):
            for number in bits(members):
                self._handicaps[number] = level * PER_LEVEL
        return True

    def _put(self, number: int, score: float) -> None:
        block = number // BLOCK
        self._scores[number] = score
        self._lowest[block] = min(self._scores[block * BLOCK : (block + 1) * BLOCK])

    def _reprice(self) -> Iterator[int]:
        """Update the costs to changed prices. The nodes on which other units may serve the pod now."""
        costs = [self._cost(taken, lost) for taken, lost in self._taken]
        if costs != self._costs:
            self._costs = costs
            scores = self._scores = array("d", map(add, self._bare, map(costs.__getitem__, self._takes)))
            self._lowest = [min(scores[at : at + BLOCK]) for at in range(0, len(scores), BLOCK)]
        return filter(self._picking.chooses, self._nodes.various)

    def _score(self, number: int) -> tuple[float, float, int]:
        """The score with and without the cost of what is taken, and the number of what is taken."""
        nodes, needs = self._nodes, self._needs
        served = self._picking.served(number)
        if served is None:
            return inf, inf, 0
        sums, taken = served
        cpu, memory = nodes.left[number]
        cpu, memory = max(0, cpu - needs[0]), max(0, memory - needs[1])
        grown = nodes.expected(sums, cpu, memory) - nodes.stranded[number]
        score = grown + self._handicaps[number] + PER_DEVICE * sums.free + PER_CPU * cpu
        lost: tuple[int, ...] = ()  # of each demand for several devices of one node, how many it cannot use any more
        if (before := nodes.wide[number]) is not nodes.nothing_wide:
            after = nodes.for_wide(sums.whole, cpu, memory)
            lost = () if before == after else tuple(map(sub, before, after))
        takes = self._taken.setdefault((taken, lost), len(self._costs))
        if takes == len(self._costs):
            self._costs.append(self._cost(taken, lost))
        return score + self._costs[takes], score, takes

    def _cost(self, taken: Taken, lost: tuple[int, ...]) -> float:
        cost = 0.0
        for kind, amount in taken:
            cost += kind.price * amount
        return cost + sum(map(mul, lost, self._nodes.scarcity.wide_prices)) if lost else cost


#: Cached rankings, each for one kind of pod.
MOST_RANKINGS = 256
#: Seconds for evaluating the selectors of the mix, and seconds between two attempts. Their estimated cost is limited
#: (`mix.SelectorBudget`), so this matters only if they look at many thousands of different devices.
MIX_SECONDS, MIX_EVERY = 0.1, 1.0
#: Precision of cpu and memory, in binary digits: pods that ask for nearly the same share a ranking.
NEEDS_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fragmentation:
    """Prefers the node on which the least is stranded, by what pods usually ask for.

    needs: of the pod. room: what nodes have left of their own; None if unknown. preference: of nodes by name; it comes
    first. If every node has to be searched, or the mix is not evaluated yet, the most packed node is preferred.
    """

    mix: DemandMix
    room: NodeRoom | None = None
    needs: NodeNeeds = NOTHING_ELSE
    preference: Callable[[str], int] | None = None

    @property
    def prefers(self) -> bool:
        return self.preference is not None

    def __call__(self, fit: Fit) -> float:
        preferred = self.preference(fit.node.name) * 10**12 if self.preference is not None else 0
        return preferred - fit.free

    def candidates(self, query: NodeQuery) -> Iterator[Candidate]:
        variant, among, snapshot, deadline = query
        with time_limit(deadline):
            ranking = self.ranking(variant.index, snapshot, variant)
        if ranking is None:
            yield from (NodeScore(self) if self.prefers else most_packed).candidates(query)
            return
        order, preference = ranking.best_first(among), self.preference
        if preference is not None:
            order = iter(sorted(order, key=lambda one: -preference(ranking.name_of(one.number))))
        following = next(order, None)
        while following is not None:
            (number, stranded), following = following, next(order, None)
            if stranded == inf and ranking.is_certain(number):
                variant.give_up(number)
                continue
            next_best = None
            if following is not None and following.stranded < inf:
                name = ranking.name_of(following.number)
                if preference is None or preference(name) == preference(ranking.name_of(number)):
                    next_best = (name, following.stranded)
            yield Candidate(number, ranking.devices(number) or (), stranded, next_best)

    def least_stranding(self, snapshot: Snapshot, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        """Of these nodes, on which a pod without new claims fits, those where it strands hardly more than on the best
        one. All of them if there is no difference.
        """
        indexed = NodeIndex.of(snapshot, nodes)
        if indexed is None:
            return nodes
        index, among = indexed
        ranking = self.ranking(index, snapshot, None)
        if ranking is None:
            return nodes
        return [index.nodes[number] for number in ranking.as_good_as_the_best(among)] or nodes

    def capacity_by_class(self, snapshot: Snapshot, nodes: Sequence[NodeView]) -> Mapping[str, FreeCapacity]:
        """What is free of each class whose selectors can be used, and how much of that is expected to be stranded.
        Empty while the mix is not evaluated.
        """
        indexed = NodeIndex.of(snapshot, nodes)
        if indexed is None:
            return {}
        index, _ = indexed
        outlooks, capacity = self.outlooks(index, snapshot), dict[str, FreeCapacity]()
        if outlooks is None:
            return {}
        for name in snapshot.classes:
            plan = plan_class(name, snapshot.classes, snapshot.features)
            if plan.error is None:
                masks = [selected(devices, plan, snapshot.features)[0] for devices in index.devices]
                capacity[name] = outlooks.free_capacity(masks)
        return capacity

    def ranking(self, index: NodeIndex, snapshot: Snapshot, variant: Variant | None) -> Ranking | None:
        """The cached ranking for such pods, caught up with `snapshot`, which the index has followed. None: see
        `outlooks`.
        """
        nodes = self.outlooks(index, snapshot)
        if nodes is None:
            return None
        key = (variant, NodeNeeds(coarse(self.needs.cpu), coarse(self.needs.memory)))
        ranking = nodes.rankings.pop(key, None)
        if not isinstance(ranking, Ranking):
            ranking = Ranking(nodes, variant, key[1])
        nodes.rankings[key] = ranking  # in the order of their last use
        if len(nodes.rankings) > MOST_RANKINGS:
            del nodes.rankings[next(iter(nodes.rankings))]
        return ranking

    def outlooks(self, index: NodeIndex, snapshot: Snapshot) -> NodeOutlooks | None:
        """What is expected of each node, caught up with `snapshot`, which the index has followed.

        None while evaluating the selectors of the mix takes too long: the verdicts so far are kept, and the evaluation
        continues after MIX_EVERY.
        """
        nodes = index.memo.get(NodeOutlooks)
        if isinstance(nodes, Deadline) and not nodes.has_passed:
            return None
        deadline, index.memo[NodeOutlooks] = Deadline.after(MIX_SECONDS), None  # nothing half-built stays there
        try:
            with time_limit(deadline):
                if not (
                    isinstance(nodes, NodeOutlooks)
                    and nodes.is_of(self.mix, self.room, snapshot)
                    and nodes.follow(snapshot)
                ):
                    nodes = NodeOutlooks(index, snapshot, self.mix, self.room)
        except TimeLimitExceeded as error:
            if error.deadline is not deadline:
                raise
            index.memo[NodeOutlooks] = Deadline.after(MIX_EVERY)
            return None
        index.memo[NodeOutlooks] = nodes
        return nodes


def coarse(amount: int) -> int:
    """Rounded up to NEEDS_DIGITS."""
    spare = max(0, amount.bit_length() - NEEDS_DIGITS)
    return -(-amount >> spare) << spare


# The policy -----------------------------------------------------------------------------------------------------------


#: Pods that the mix is learned from: so many with a place, and as many that wait. One namespace counts with fewer that
#: wait, since only a quota limits how many pods a tenant creates that never start.
MOST_PODS, MOST_PODS_OF_NAMESPACE = 2000, 500
#: Amounts of stranded devices that count as equal.
EQUAL = 0.005


class FragmentationPolicy(PlacementPolicy):
    """Pods go where they strand the least of what pods usually ask for."""

    def score(self, state: ClusterState, pod: Pod) -> Fragmentation:
        nodes = state.nodes
        needs = NodeNeeds.of(nodes.requests_of(pod))
        return Fragmentation(mix=mix(state), room=nodes, needs=needs, preference=nodes.preference(pod))

    def reason(self, choice: NodeChoice, results: Sequence[AllocationResult]) -> str:
        if choice.cost is None:  # the mix was not evaluated yet
            return f"the most packed {among(choice).removesuffix(',')}, {free_devices(choice)}"
        if choice.cost == inf:  # `RankedNode.stranded`: it was searched after all nodes that have an estimate
            return (
                f"{among(choice)} the first that took the pod; what it strands has no estimate; {free_devices(choice)}"
            )
        given = [one.device for result in results for one in result.devices.results]
        device = f", by {given[0]}" if len(given) == 1 and choice.free > 1 else ""
        reason = f"{among(choice)} the pod strands the least here{device}: {_devices(choice.cost)}"
        if choice.next_best is not None:
            name, stranded = choice.next_best
            if abs(stranded - choice.cost) < EQUAL:
                reason += f" (as on {name}, which is less packed)"
            else:
                reason += f" (on {name}, the next best, {_devices(stranded)})"
        return f"{reason}; {free_devices(choice)}"

    def narrowed(self, state: ClusterState, pod: Pod, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        if not any(NodeNeeds.of(state.nodes.requests_of(pod))):
            return nodes
        return self.score(state, pod).least_stranding(state.snapshot(), nodes)

    def learn(self, state: ClusterState) -> None:
        mix(state)

    def free_by_class(self, state: ClusterState) -> Mapping[str, FreeCapacity]:
        """What is free of each class, and how much of that is expected to be stranded."""
        return Fragmentation(mix=mix(state), room=state.nodes).capacity_by_class(state.snapshot(), state.nodes.views)


POLICY = FragmentationPolicy()


def _devices(amount: float) -> str:
    """`0.31 devices more than before`"""
    if abs(amount) < EQUAL:
        return "no more than before"
    return f"{abs(amount):.2f} devices {'more' if amount > 0 else 'less'} than before"


def mix(state: ClusterState) -> DemandMix:
    """What pods usually ask for, as the setting declares it or the cluster's pods show it."""
    declared = settings.SCHEDULER_DEMANDS
    return declared_demands(declared) if declared else state.usual.mix(partial(_demands, state))


def _demands(state: ClusterState) -> Iterator[Demand]:
    """The moderate demands of the latest pods with a place, and of the latest that wait."""

    def claims(keys: Iterable[Key]) -> tuple[ResourceClaim, ...]:
        return tuple(claim for key in keys if (claim := state.claim(*key)) is not None)

    for placed in state.residents.latest(MOST_PODS):
        demand = Demand(claims=claims(placed.claims), needs=state.nodes.taken_by(placed.uid))
        if demand.is_moderate:
            yield demand
    waiting: Counter[str] = Counter()
    newest = nlargest(
        MOST_PODS, state.pending.values(), key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.uid)
    )
    for pod in newest:
        namespace = pod.metadata.namespace
        waiting[namespace] += 1
        if waiting[namespace] > MOST_PODS_OF_NAMESPACE:
            continue
        names = [(namespace, name) for name in claim_names(pod)]
        demand = Demand(claims=claims(names), needs=NodeNeeds.of(node_requests_of(pod)))
        if demand.is_moderate:
            yield demand
