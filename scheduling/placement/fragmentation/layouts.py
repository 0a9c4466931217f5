"""How the devices of a node hang together, whoever wants them: what is shared, what draws on common counters, and which
have a value of an attribute in common.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from manciple.wire.base import Alike
from manciple.wire.quantity import Quantity
from scheduling.allocator.pools import NodeDevices, bits, union
from scheduling.allocator.problem import sharing, value_groups
from scheduling.allocator.published import Capacities, Features, make_room
from scheduling.placement.fragmentation.units import CardShape


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
    """The same object for nodes that are laid out alike, as far as these attributes go."""
    key = ("layout", attributes)
    known = devices.memo.get(key)
    if not isinstance(known, DeviceLayout):
        made = _read(devices, attributes, features)
        known = _layouts.first(made, made)
        make_room(devices.memo)
        devices.memo[key] = known
    return known


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
    """Devices are on one card where they draw on the same counter set, or on those of others between them."""
    of_set: dict[Hashable, int] = {}
    for position in bits(consuming):
        device = devices.device(position)
        if not devices.pools[devices.pool_index(position)].trouble:
            for drawn in device.published.consumes_counters:
                key = (device.key, drawn.counter_set)
                of_set[key] = of_set.get(key, 0) | 1 << position
    for mask in joined(of_set.values()):
        if not mask & devices.shared:  # of partitions that several may use it takes the search to tell
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
    """The devices that nobody shares: by themselves, or with those with which they have a value in common."""
    single = layout.single & wanted
    tied = (carriers & single for values in layout.carriers for carriers in values)
    return joined((*(mask for mask in tied if mask), *(1 << position for position in bits(single))))


def joined(masks: Iterable[int]) -> list[int]:
    """Masks that have a bit in common as one mask; in the order of their lowest bits."""
    found: list[int] = []
    for mask in masks:
        apart = [one for one in found if not one & mask]
        found = [*apart, union((mask, *(one for one in found if one & mask)))]
    return sorted(found, key=lambda mask: mask & -mask)
