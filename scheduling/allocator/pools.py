"""Published pools, and the view that one node has of each.

The slices of a pool are grouped by generation; a `Generation` orders them by name and gives each device one bit, in
that order. Every set of devices in this package is an int over those bits. For one node, the slices that target it
choose the generation, tell whether the pool is complete and valid, and give two masks: `scan` (devices of the slices
that target the node: what selectors are tried on) and `visible` (those that the node may use). Rules and order:
GatherPools in upstream's structured/internal/experimental/pools_experimental.go (v1.37).

A `Catalogue` holds all pools and classes that are published at one moment. A change derives the next catalogue from the
last one and copies what it does not touch. Catalogues of one inventory share a `Lineage`, which lists the nodes whose
view changed from one to the next, so that an index can follow them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import accumulate
from operator import or_
from typing import Any

from inventory.kinds.devices import HARD_EFFECTS, CounterSet, DeviceClass
from inventory.kinds.pools import PoolKey
from manciple.copying import RESET, immutable
from manciple.wire.base import Alike
from manciple.wire.quantity import Quantity
from scheduling.allocator.published import (
    Capacities,
    Features,
    NodeView,
    PublishedDevice,
    SliceContent,
    VerdictMasks,
    make_room,
)


def bits(mask: int) -> Iterator[int]:
    """The bit numbers that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def union(masks: Iterable[int]) -> int:
    """The bits that are set in any of them."""
    return reduce(or_, masks, 0)


def _starts(lengths: Iterable[int]) -> tuple[int, ...]:
    """The offset of each part when all are laid end to end."""
    return tuple(accumulate(lengths, initial=0))[:-1]


#: (pool, counter set, counter)
CounterKey = tuple[PoolKey, str, str]


def needs(device: PublishedDevice, pool: PoolKey) -> dict[CounterKey, int]:
    """What the device draws from the counters of `pool`, in nanos."""
    drawn: dict[CounterKey, int] = {}
    for consumption in device.published.consumes_counters:
        for name, counter in consumption.counters.items():
            key = (pool, consumption.counter_set, name)
            drawn[key] = drawn.get(key, 0) + Quantity.parse(counter.value).nanos
    return drawn


#: names in order -> name -> mask: the devices of most nodes have the same names
_bits_by_name = Alike[Mapping[str, int]](64)


class Generation:
    """All slices of one generation of a pool. Bits run over the slices by name, then over their devices."""

    def __init__(self, key: PoolKey, number: int, slices: Sequence[SliceContent]) -> None:
        self.key = key
        self.number = number
        #: in the order of their publication; the first one's slice count is the pool's
        self.arrivals = tuple(slices)
        self.slices = tuple(sorted(slices, key=lambda one: one.name))
        self.offsets = _starts(len(one.devices) for one in self.slices)
        self.devices: tuple[PublishedDevice, ...] = tuple(device for one in self.slices for device in one.devices)
        #: CEL expression -> verdicts on these devices; `requests` fills it
        self.verdicts: dict[str, VerdictMasks] = {}
        #: attribute name -> value groups of these devices; `problem` fills it
        self.groups: dict[tuple[str, bool], Any] = {}
        self.views: dict[tuple[tuple[int, ...], int], PoolOnNode] = {}

    @cached_property
    def bits_by_name(self) -> Mapping[str, int]:
        """device name -> mask; several slices may have the same name, for different nodes."""
        names = tuple([device.published.name for device in self.devices])
        if (cached := _bits_by_name.get(names)) is not None:
            return cached
        masks: dict[str, int] = {}
        for position, name in enumerate(names):
            masks[name] = masks.get(name, 0) | (1 << position)
        return _bits_by_name.first(names, masks)

    @cached_property
    def shared(self) -> int:
        """Devices that allow multiple allocations."""
        return self._where(lambda device: bool(device.published.allow_multiple_allocations))

    @cached_property
    def binding(self) -> int:
        """Devices with binding conditions."""
        return self._where(lambda device: bool(device.published.binding_conditions))

    @cached_property
    def consuming(self) -> int:
        """Devices that draw from shared counters."""
        return self._where(lambda device: bool(device.published.consumes_counters))

    @cached_property
    def draws(self) -> tuple[Mapping[CounterKey, int], ...]:
        """What each device draws from the counters of this pool, in nanos."""
        by_consumption: dict[int, Mapping[CounterKey, int]] = {}
        for device in self.devices:
            consumes = device.published.consumes_counters
            if id(consumes) not in by_consumption:
                by_consumption[id(consumes)] = needs(device, self.key)
        return tuple(by_consumption[id(device.published.consumes_counters)] for device in self.devices)

    @cached_property
    def drawing_alike(self) -> tuple[int, ...]:
        """Of each device, the devices that draw the same from the same counters."""
        drawn = [frozenset(one.items()) for one in self.draws]
        masks: dict[Hashable, int] = {}
        for position, one in enumerate(drawn):
            masks[one] = masks.get(one, 0) | (1 << position)
        return tuple(masks[one] for one in drawn)

    @cached_property
    def by_capacity(self) -> tuple[tuple[Capacities, int], ...]:
        """The devices by their capacities."""
        masks: dict[Capacities, int] = {}
        for position, device in enumerate(self.devices):
            masks[device.capacities] = masks.get(device.capacities, 0) | (1 << position)
        return tuple(masks.items())

    @cached_property
    def tainted(self) -> int:
        """Devices with a taint that requests must tolerate."""
        return self._where(lambda device: any(taint.effect in HARD_EFFECTS for taint in device.condition.taints))

    def _where(self, test: Callable[[PublishedDevice], bool]) -> int:
        return sum(1 << position for position, device in enumerate(self.devices) if test(device))

    def span(self, index: int) -> int:
        """The mask of the devices of slice number `index`."""
        return ((1 << len(self.slices[index].devices)) - 1) << self.offsets[index]


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolOnNode:
    """One node's view of one pool. A pool with a `trouble` gives no devices."""

    generation: Generation
    trouble: str = ""  # "", "incomplete" or "invalid"
    detail: str = ""  # what is wrong
    scan: int = 0
    visible: int = 0
    counter_sets: Mapping[str, CounterSet]
    binding: bool = False  # some device on this node has binding conditions: the pool is searched last
    #: the other parts of a pool that is spread over nodes: their devices draw on the same counters
    elsewhere: tuple[Generation, ...] = ()

    @property
    def key(self) -> PoolKey:
        return self.generation.key

    @cached_property
    def counter_names(self) -> Mapping[str, Collection[str]]:
        """By counter set."""
        return {name: one.counters for name, one in self.counter_sets.items()}

    @cached_property
    def counters(self) -> Mapping[CounterKey, int]:
        """The value of each counter of the pool, in nanos."""
        return {
            (self.key, counter_set.name, name): Quantity.parse(counter.value).nanos
            for counter_set in self.counter_sets.values()
            for name, counter in counter_set.counters.items()
        }


@immutable
class PoolSlices:
    """Every slice of a pool."""

    def __init__(self, key: PoolKey, slices: Iterable[SliceContent], namesakes: Iterable[PoolSlices] = ()) -> None:
        """namesakes: see `adds_up`."""
        self.key = key
        by_number: dict[int, list[SliceContent]] = {}
        for one in slices:
            by_number.setdefault(one.generation, []).append(one)
        self.generations = tuple(
            Generation(key, number, by_number[number]) for number in sorted(by_number, reverse=True)
        )
        self._namesakes = tuple(one.newest for one in namesakes)

    @property
    def newest(self) -> Generation:
        return self.generations[0]

    @property
    def adds_up(self) -> bool:
        """Whether its slices are all that they announce. If not, it may be part of a pool that is spread over nodes: it
        needs its namesakes, the pools of the same driver and name that do not add up either (`inventory.kinds.pools`).
        """
        return all(one.slice_count == len(self.newest.slices) for one in self.newest.slices)

    @cached_property
    def reach(self) -> tuple[frozenset[str], bool, bool]:
        """(nodes that slices name, whether other nodes must be checked one by one, whether a slice has counter sets for
        all nodes)
        """
        named: set[str] = set()
        floating = counters = False
        for generation in self.generations:
            for one in generation.slices:
                nodes = one.named_nodes()
                floating = floating or nodes is None
                named |= nodes or set()
                counters = counters or (bool(one.counter_sets) and not one.targeting.node_name)
        return frozenset(named), floating, counters

    def seen_from(self, node: NodeView, features: Features) -> PoolOnNode | None:
        """The node's view of the pool. None if the pool has nothing for the node, or only slices of an old generation.

        The trouble of a pool does not concern a node that none of its slices is for, except through its counters.
        """
        view = self._view_from(node, features)
        if view is None or not view.trouble or any(one.reaches(node) for one in view.generation.slices):
            return view
        return None

    def _view_from(self, node: NodeView, features: Features) -> PoolOnNode | None:
        for generation in self.generations:
            relevant = tuple(i for i, one in enumerate(generation.slices) if one.targets(node, features))
            if relevant:
                return self._on_node(generation, relevant, node=node, features=features)
        return None

    def troubled_elsewhere(self, features: Features) -> bool:
        """Whether the pool is incomplete or invalid for a node that no slice names."""
        view = self._view_from(NodeView(name=""), features)
        return view is not None and view.trouble != ""

    def _on_node(
        self, generation: Generation, relevant: tuple[int, ...], *, node: NodeView, features: Features
    ) -> PoolOnNode | None:
        expected = _expected(generation, relevant)
        elsewhere: tuple[Generation, ...] = ()
        if len(relevant) != expected:
            if generation.number < max(one.number for one in (self.newest, *self._namesakes)):
                return None
            elsewhere = tuple(one for one in self._namesakes if one.number == generation.number)
            seen = sum(len(one.slices) for one in (generation, *elsewhere))
            if seen != expected:
                detail = f"{seen} of {expected} slices of generation {generation.number}"
                scan = _scan(generation, relevant) & ~_hidden(generation, relevant, node)
                return PoolOnNode(
                    generation=generation, trouble="incomplete", detail=detail, scan=scan, counter_sets={}
                )
        hidden = _hidden(generation, relevant, node)
        memo = generation.views
        key = (relevant, hidden)
        if key not in memo:
            make_room(memo)
            memo[key] = _build(generation, relevant, hidden=hidden, features=features, elsewhere=elsewhere)
        return memo[key]


def _expected(generation: Generation, relevant: tuple[int, ...]) -> int:
    """The slice count that the first published of the relevant slices announces."""
    names = {generation.slices[i].name for i in relevant}
    return next(one.slice_count for one in generation.arrivals if one.name in names)


def _hidden(generation: Generation, relevant: tuple[int, ...], node: NodeView) -> int:
    """Devices in relevant slices that select their nodes themselves, and not this one."""
    hidden = 0
    for index in relevant:
        content = generation.slices[index]
        if content.per_device and not content.targeting.is_set:
            for position, device in enumerate(content.devices, generation.offsets[index]):
                if not device.targeting.matches(node):
                    hidden |= 1 << position
    return hidden


def _scan(generation: Generation, relevant: tuple[int, ...]) -> int:
    """The devices of these slices."""
    return union(generation.span(index) for index in relevant if not generation.slices[index].counter_sets)


def _build(
    generation: Generation,
    relevant: tuple[int, ...],
    *,
    hidden: int,
    features: Features,
    elsewhere: tuple[Generation, ...],
) -> PoolOnNode:
    chosen = [generation.slices[i] for i in relevant]
    others = [content for one in elsewhere for content in one.slices]
    # Slices for other nodes matter only if the node's own are not the whole pool.
    whole = len(relevant) == _expected(generation, relevant)
    consumers = chosen if whole else [*generation.slices, *others]
    counter_sets: dict[str, CounterSet] = {}
    detail = _duplicate_device(chosen)
    if not detail and features.partitionable_devices:
        detail = _counter_trouble([*chosen, *others], consumers, counter_sets)
    scan = _scan(generation, relevant)
    if detail:
        return PoolOnNode(generation=generation, trouble="invalid", detail=detail, scan=scan & ~hidden, counter_sets={})
    binding = any(generation.devices[position].published.binding_conditions for position in bits(scan))
    return PoolOnNode(
        generation=generation,
        scan=scan,
        visible=scan & ~hidden,
        counter_sets=counter_sets,
        binding=binding,
        elsewhere=elsewhere,
    )


def _duplicate_device(slices: Sequence[SliceContent]) -> str:
    seen: set[str] = set()
    for one in slices:
        if one.counter_sets:
            continue
        for device in one.devices:
            if device.name in seen:
                return f"duplicate device name {device.name}"
            seen.add(device.name)
    return ""


def _counter_trouble(
    relevant: Sequence[SliceContent], consumers: Sequence[SliceContent], counter_sets: dict[str, CounterSet]
) -> str:
    """Fills `counter_sets` from the relevant slices. Returns what is wrong with these or with their consumers."""
    for one in relevant:
        for counter_set in one.counter_sets:
            if counter_set.name in counter_sets:
                return f"duplicate counter set name {counter_set.name}"
            counter_sets[counter_set.name] = counter_set
    for device in (device for one in consumers for device in one.devices):
        for consumption in device.published.consumes_counters:
            counters = counter_sets.get(consumption.counter_set)
            if counters is None:
                return f"counter set {consumption.counter_set} not found"
            for name in consumption.counters:
                if name not in counters.counters:
                    return f"counter {name} not found in counter set {counters.name}"
    return ""


@immutable
class NodeDevices:
    """The pools that a node sees, in search order, laid side by side: each at its own shift in one wide int."""

    __slots__ = ("consuming", "memo", "pools", "shared", "shifts", "visible")

    def __init__(self, pools: Iterable[PoolOnNode]) -> None:
        self.pools = tuple(sorted(pools, key=lambda one: (one.binding, one.key)))
        self.shifts = _starts(len(one.generation.devices) for one in self.pools)
        #: what is derived from these devices, such as the masks of requests and constraints (`problem`)
        self.memo: dict[Hashable, Any] = {}
        self.shared = self.consuming = self.visible = 0
        for view, shift in zip(self.pools, self.shifts, strict=True):
            self.shared |= view.generation.shared << shift
            self.consuming |= view.generation.consuming << shift
            self.visible |= view.visible << shift

    def device(self, position: int) -> PublishedDevice:
        index = self.pool_index(position)
        return self.pools[index].generation.devices[position - self.shifts[index]]

    def pool_index(self, position: int) -> int:
        """Which pool the bit belongs to."""
        return bisect_right(self.shifts, position) - 1


#: a node's labels, and what it sees with these
NodeSight = tuple[Mapping[str, str], NodeDevices]

#: Length of a lineage; after that, the next catalogue begins a new one.
MAX_CHANGES = 1_000


class Lineage:
    """The history that successive catalogues share."""

    def __init__(self) -> None:
        #: of each catalogue after the first, the nodes whose view has changed; None: any may have
        self.changes: list[frozenset[str] | None] = []
        #: what other modules derive and carry from catalogue to catalogue, such as the `NodeIndex`
        self.memo: dict[Hashable, Any] = {}


@dataclass(slots=True, eq=False, repr=False)
class Catalogue:
    """Never changes, apart from its caches. A copy starts a lineage of its own."""

    features: Features
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    #: devices of the newest generations, whoever may use them
    device_count: int = 0
    lineage: Lineage = field(default_factory=Lineage, metadata=RESET)
    #: changes of the lineage before this catalogue
    number: int = field(default=0, metadata=RESET)
    _by_node: dict[str, tuple[PoolSlices, ...]] = field(default_factory=dict)
    _floating: tuple[PoolSlices, ...] = ()
    _counting: tuple[PoolSlices, ...] = ()
    _views: dict[str, NodeSight] = field(default_factory=dict)

    def changed(
        self, *, gone: Sequence[PoolSlices], new: Sequence[PoolSlices], classes: Mapping[str, DeviceClass]
    ) -> Catalogue:
        """The next catalogue. Pools that changed are in both `gone` and `new`."""
        following = Catalogue(self.features)
        following.classes = classes
        following.device_count = self.device_count + _count(new) - _count(gone)
        affected = _affected((*gone, *new))
        if affected is not None:
            following._views = {**self._views}
            for name in affected:
                following._views.pop(name, None)
        following._succeed(self, affected)
        following._by_node = {**self._by_node}
        following._floating = tuple(pool for pool in self._floating if pool not in gone)
        following._counting = tuple(pool for pool in self._counting if pool not in gone)
        for pool in gone:
            for name in pool.reach[0]:
                if left := tuple(one for one in following._by_node.get(name, ()) if one is not pool):
                    following._by_node[name] = left
                else:
                    following._by_node.pop(name, None)  # nodes come and go, under new names
        for pool in new:
            following._enter(pool)
        return following

    def _succeed(self, last: Catalogue, affected: frozenset[str] | None) -> None:
        if len(last.lineage.changes) == last.number < MAX_CHANGES:
            self.lineage = last.lineage
            self.lineage.changes.append(affected)
            self.number = last.number + 1

    def _enter(self, pool: PoolSlices) -> None:
        named, floating, counters = pool.reach
        if floating:
            self._floating = (*self._floating, pool)
            return
        for name in named:
            self._by_node[name] = (*self._by_node.get(name, ()), pool)
        if counters:
            self._counting = (*self._counting, pool)

    def on_node(self, node: NodeView) -> NodeDevices:
        """What the node sees, cached while its labels are the same."""
        cached = self._views.get(node.name)
        if cached is not None and (cached[0] is node.labels or cached[0] == node.labels):
            return cached[1]
        views: dict[tuple[str, str], PoolOnNode] = {}
        for pool in self._candidates(node):
            if (view := pool.seen_from(node, self.features)) is not None:
                other = views.setdefault(pool.key[:2], view)
                # Of a pool of the node and one of several nodes with the same name, only one can be used: results
                # could not distinguish them.
                if (view.generation.number, view.key) > (other.generation.number, other.key):
                    views[pool.key[:2]] = view
        devices = NodeDevices(views.values())
        self._views[node.name] = (node.labels, devices)
        return devices

    def _candidates(self, node: NodeView) -> Iterable[PoolSlices]:
        yield from self._by_node.get(node.name, ())
        yield from self._floating
        for pool in self._counting:
            # Such a pool can give other nodes nothing but its trouble.
            if node.name not in pool.reach[0] and pool.troubled_elsewhere(self.features):
                yield pool


def _count(pools: Sequence[PoolSlices]) -> int:
    return sum(len(pool.newest.devices) for pool in pools)


def _affected(pools: Iterable[PoolSlices]) -> frozenset[str] | None:
    """The nodes that may see one of the pools; None if each node must be checked."""
    names: set[str] = set()
    for pool in pools:
        named, floating, counters = pool.reach
        if floating or counters:
            return None
        names |= named
    return frozenset(names)
