"""Into which units the devices of a node fall under a mix, and who may take what of them.

Nodes that look the same share one `NodeLook`, and units that look the same one `UnitKind` with all its outlooks, so
that a thousand nodes of a kind cost as much as one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf

from scheduling.allocator.pools import NodeDevices, bits, union
from scheduling.allocator.published import Asked, Capacities, Features
from scheduling.placement.fragmentation.layouts import DeviceLayout, groups, layout_of
from scheduling.placement.fragmentation.outlooks import UnitDemand, UnitOutlooks, merged
from scheduling.placement.fragmentation.reading import MixReading, PartDemand
from scheduling.placement.fragmentation.units import (
    CardShape,
    CardUnit,
    GroupShape,
    GroupUnit,
    SharedUnit,
    UnitState,
    UnitWant,
    least_taken,
    unit_want,
)

#: Devices of a node beyond which it is not looked at: all choices are the same there.
MOST_DEVICES = 512
#: How many ways to serve a demand may be looked at for one kind of unit, and for all kinds together.
UNIT_WORK, WORK = 2_000_000, 20_000_000
#: Levels of a shared device's capacity that are told apart in any case.
LEAST_LEVELS = 16
#: Kinds of units beyond which shared devices that hardly differ are the same, and those beyond which nodes with others
#: are not looked at.
MANY_KINDS, MOST_KINDS = 64, 512
#: Binary digits of a capacity that are told apart then.
DIGITS = 12
#: Kinds of units among which it is found out who could do with less.
MOST_COMPARED = 64
#: Kinds of units among which there is a choice.
SEVERAL = 2


#: (number of an acceptance, how much is asked for) -> how much of any unit would do
LeastTaken = Callable[[int, Asked], float]


class UnitKind:
    """Units that look the same. accepts: of each acceptance, the devices that it takes, a bit each."""

    def __init__(
        self, unit: SharedUnit | CardUnit | GroupUnit, accepts: tuple[int, ...], capacities: tuple[Capacities, ...]
    ) -> None:
        self.unit = unit
        self.accepts = accepts
        self.capacities = capacities
        #: None until it is known what it is worth
        self.outlooks: UnitOutlooks | None = None

    def judged(self, reading: MixReading, least: LeastTaken, *, work: int) -> UnitOutlooks:
        """least: how much of any unit would do for whoever accepts the same and asks for so much."""
        demands = (one for part in reading.parts for one in self._demands(part, reading, least))
        return UnitOutlooks(self.unit, merged(demands), work=work)

    def wanted(self, accepts: int, asked: Asked) -> UnitWant | None:
        """What one device for an acceptance is, of this unit; None where it has none that is large enough."""
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
        """Those of the devices that are large enough as a whole; how much is left of a shared one is its state."""
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
        """Its devices as the node numbers them."""
        return sum(1 << self.positions[at] for at in bits(devices))

    def state(self, taken: int, consumed: Mapping[int, Mapping[str, int]]) -> UnitState:
        """taken: devices that somebody has. consumed: position -> what is consumed of a device that several use."""
        unit = self.kind.unit
        if isinstance(unit, GroupUnit):
            return unit.state(self.local(self.mask & ~taken))
        if isinstance(unit, CardUnit):
            return unit.state(self.local(taken))
        known = consumed.get(self.positions[0])
        return unit.full if known is None else unit.left(known)


def local(positions: tuple[int, ...], mask: int) -> int:
    first = positions[0]
    if positions[-1] - first == len(positions) - 1:
        return mask >> first & (1 << len(positions)) - 1
    return sum(1 << at for at, position in enumerate(positions) if mask >> position & 1)


@dataclass(frozen=True, slots=True, eq=False)
class NodeLook:
    """The units of a node. certain: their devices of which the state of the unit tells who can be served. kinds: of the
    units, each once.
    """

    units: tuple[UnitPlace, ...] = ()
    certain: int = 0
    kinds: tuple[UnitKind, ...] = ()


class Looks:
    """Of all nodes, under one mix."""

    def __init__(self, reading: MixReading, features: Features) -> None:
        self._reading = reading
        self._features = features
        self._looks: dict[Hashable, NodeLook] = {}
        self.kinds: dict[Hashable, UnitKind] = {}
        #: how many ways to serve a demand may be looked at for each kind of unit
        self.work = UNIT_WORK
        self._least: dict[tuple[int, Asked], float] = {}
        self._roughly: dict[Hashable, Capacities] = {}
        self._asked = tuple({pick.asked: None for one in reading.parts for pick in one.part.picks})

    def of(self, devices: NodeDevices) -> NodeLook:
        """The same object for nodes that look the same."""
        if devices.visible.bit_count() > MOST_DEVICES or len(self.kinds) >= MOST_KINDS:
            return NodeLook()
        layout = layout_of(devices, self._reading.attributes, self._features)
        masks = self._reading.masks(devices)
        known = self._looks.get((layout, masks))
        if known is None:
            known = self._looks[(layout, masks)] = self._look(layout, masks)
        return known

    def _look(self, layout: DeviceLayout, masks: tuple[int, ...]) -> NodeLook:
        units = tuple(self._units(layout, masks))
        shared = (place for place in units if isinstance(place.kind.unit, SharedUnit))
        exact = (place.mask for place in shared if place.kind.capacities[0] is layout.capacities[place.positions[0]])
        return NodeLook(units, union(exact), tuple(dict.fromkeys(place.kind for place in units)))

    def share_out_work(self) -> None:
        """Before anything is expected of a unit: of many kinds each is looked at less closely."""
        self.work = min(UNIT_WORK, WORK // max(1, len(self.kinds)))
        levels = max(LEAST_LEVELS, self.work // max(1, len(self._reading.parts)))
        for kind in self.kinds.values():
            if isinstance(kind.unit, SharedUnit):
                kind.unit.levels = min(kind.unit.levels, levels)

    def least(self, accepts: int, asked: Asked) -> float:
        """How much of any unit would do for a device of an acceptance, of so much."""
        known = self._least.get((accepts, asked))
        if known is None:
            some = islice(self.kinds.values(), MOST_COMPARED)
            kinds = ((kind.unit, kind.wanted(accepts, asked)) for kind in some)
            found = min((least_taken(unit, want) for unit, want in kinds if want is not None), default=0.0)
            known = self._least[accepts, asked] = found if found < inf else 0.0
        return known

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
    """Equal for devices that hardly differ, by a few bytes of 80 GiB."""
    amounts = capacities.totals.items()
    rounded = tuple((name, nanos >> max(0, nanos.bit_length() - DIGITS), nanos.bit_length()) for name, nanos in amounts)
    return rounded, tuple(one.request_policy for one in capacities.published.values())


def _group_shape(positions: tuple[int, ...], accepts: tuple[int, ...], layout: DeviceLayout) -> GroupShape:
    """Devices that the same pods accept, and that have the same values, are one cell."""
    values = [tuple(_value(carriers, position) for carriers in layout.carriers) for position in positions]
    capacities = (layout.capacities[position] for position in positions)
    found = cells(zip(values, capacities, _bits_at(accepts, len(positions)), strict=True))
    return GroupShape(found, tuple(values[(cell & -cell).bit_length() - 1] for cell in found))


def _bits_at(masks: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """For each position, its bit of each mask."""
    return (tuple(mask >> at & 1 for mask in masks) for at in range(size))


def cells(keys: Iterable[Hashable]) -> tuple[int, ...]:
    """keys: of each device, what tells it apart. Those that nothing does, a bit each; in the order of the first."""
    found: dict[Hashable, int] = {}
    for at, key in enumerate(keys):
        found[key] = found.get(key, 0) | 1 << at
    return tuple(found.values())


def _value(carriers: tuple[int, ...], position: int) -> int:
    """The number of the value that the device carries, the first of several; a number of its own where it has none."""
    return next((number for number, mask in enumerate(carriers) if mask >> position & 1), -1 - position)
