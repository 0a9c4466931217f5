"""The allocator's input: published pools, what is allocated of them, and a frozen `Snapshot` of both.

Pools. The slices of a pool are grouped by generation; a `Generation` orders them by name and gives each device one bit,
in that order. Every set of devices in this package is an int over those bits. For one node, the slices that target it
choose the generation, decide whether the pool is complete and valid, and give two masks: `scan` (devices of the slices
that target the node: selectors are evaluated on these) and `visible` (those that the node may use). Rules and order:
GatherPools in upstream's structured/internal/experimental/pools_experimental.go (v1.37).

A `Catalogue` holds all pools and classes that are published at one moment. A change derives the next catalogue from the
last one and copies what it does not touch. Catalogues of one inventory share a `Lineage`, which lists the nodes whose
view changed from one to the next, so that an index can follow them.

Usage. What is allocated of a pool is a `PoolUsage`, a value: giving and taking make a new one. An entry with admin
access counts for nothing; an entry with a share id is a share of a device that allows multiple allocations; any other
takes the device exclusively (semantics of upstream's allocated state, dynamicresources/allocateddevices.go).

A scheduling worker applies each event to its `Inventory` (slices, classes, taint rules, claims with their allocations)
and `assume`s the plans of its own batch until their commit comes back as events. `Inventory.snapshot()` costs nothing:
published content is shared and never changes, and the usage table is a value.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, reduce
from itertools import accumulate
from operator import or_
from typing import Any, ClassVar

from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    DrawnCounters,
    ResourceClaim,
    highest,
    node_of,
    pools_in_use,
    recorded_draw,
)
from inventory.kinds.devices import HARD_EFFECTS, CounterSet, DeviceClass, DeviceTaintRule, ResourceSlice
from inventory.kinds.pools import PoolKey
from inventory.kinds.taint_rules import TaintedPools, TaintRules
from manciple.copying import RESET, immutable
from manciple.wire.base import Alike
from manciple.wire.quantity import Quantity
from scheduling.allocator.published import (
    Capacities,
    Features,
    Interner,
    NodeView,
    PublishedDevice,
    SliceContent,
    Targeting,
    VerdictMasks,
    make_room,
)

# Published pools ------------------------------------------------------------------------------------------------------


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
        self._alike: tuple[Features, PoolOnNode | None] | None = None

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

    @cached_property
    def targeting(self) -> Targeting | None:
        """What decides alone which nodes see the pool; all that do see the same. None if more than that decides, and
        for a pool of named nodes.
        """
        first, *others = (one for generation in self.generations for one in generation.slices)
        is_plain = first.named_nodes() is None and not any(
            one.counter_sets or one.per_device_named or one.targeting != first.targeting for one in (first, *others)
        )
        return first.targeting if is_plain else None

    @cached_property
    def whole(self) -> PoolOnNode:
        """The newest generation with every counter, which no single node may see: to add up what is in use."""
        elsewhere = tuple(one for one in self._namesakes if one.number == self.newest.number and not self.adds_up)
        slices = (content for one in (self.newest, *elsewhere) for content in one.slices)
        counter_sets: dict[str, CounterSet] = {}
        for counter_set in (found for content in slices for found in content.counter_sets):
            counter_sets.setdefault(counter_set.name, counter_set)
        return PoolOnNode(generation=self.newest, counter_sets=counter_sets, elsewhere=elsewhere)

    def seen_alike(self, node: NodeView, features: Features) -> PoolOnNode | None:
        """`seen_from` for a node that its `targeting` matches, cached for all of these."""
        if self._alike is None or self._alike[0] != features:
            self._alike = (features, self.seen_from(node, features))
        return self._alike[1]

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
        for targeting, devices in generation.slices[index].own_targetings:
            if not targeting.matches(node):
                hidden |= devices << generation.offsets[index]
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
    #: pools with a `targeting`, by it
    _targeted: dict[Targeting, tuple[PoolSlices, ...]] = field(default_factory=dict)
    _floating: tuple[PoolSlices, ...] = ()
    _counting: tuple[PoolSlices, ...] = ()
    _views: dict[str, NodeSight] = field(default_factory=dict)
    #: of nodes that see nothing else, what they see by which entries of `_targeted` match them
    _alike: dict[tuple[int, ...], NodeDevices] = field(default_factory=dict)

    def changed(
        self, *, gone: Sequence[PoolSlices], new: Sequence[PoolSlices], classes: Mapping[str, DeviceClass]
    ) -> Catalogue:
        """The next catalogue. Pools that changed are in both `gone` and `new`."""
        following = Catalogue(self.features)
        following.classes = classes
        following.device_count = self.device_count + _count(new) - _count(gone)
        affected = _affected((*gone, *new))
        if affected is not None:
            following._alike = self._alike
            following._views = {**self._views}
            for name in affected:
                following._views.pop(name, None)
        following._succeed(self, affected)
        following._by_node = {**self._by_node}
        departed = set(gone)
        following._floating = tuple(pool for pool in self._floating if pool not in departed)
        following._counting = tuple(pool for pool in self._counting if pool not in departed)
        following._targeted = _retargeted(self._targeted, departed, new)
        for pool in gone:
            for name in pool.reach[0]:
                if left := tuple(one for one in following._by_node.get(name, ()) if one is not pool):
                    following._by_node[name] = left
                else:
                    following._by_node.pop(name, None)  # nodes come and go, under new names
        for pool in new:
            if pool.targeting is None:
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
        matching = {at: pools for at, (one, pools) in enumerate(self._targeted.items()) if one.matches(node)}
        others = tuple(self._candidates(node))
        devices = None if others else self._alike.get(tuple(matching))
        if devices is None:
            views = (pool.seen_alike(node, self.features) for pools in matching.values() for pool in pools)
            devices = _laid_out((*views, *(pool.seen_from(node, self.features) for pool in others)))
            if not others:
                make_room(self._alike)
                self._alike[tuple(matching)] = devices
        self._views[node.name] = (node.labels, devices)
        return devices

    def _candidates(self, node: NodeView) -> Iterable[PoolSlices]:
        yield from self._by_node.get(node.name, ())
        yield from self._floating
        for pool in self._counting:
            # Such a pool can give other nodes nothing but its trouble.
            if node.name not in pool.reach[0] and pool.troubled_elsewhere(self.features):
                yield pool


def _retargeted(
    before: Mapping[Targeting, tuple[PoolSlices, ...]], gone: Set[PoolSlices], new: Iterable[PoolSlices]
) -> dict[Targeting, tuple[PoolSlices, ...]]:
    """The pools by `targeting`, without those that are gone and with the new ones."""
    after = dict(before)
    for targeting in {pool.targeting for pool in gone}:
        if targeting is not None:
            after[targeting] = tuple(pool for pool in after[targeting] if pool not in gone)
    added: dict[Targeting, list[PoolSlices]] = {}
    for pool in new:
        if pool.targeting is not None:
            added.setdefault(pool.targeting, []).append(pool)
    for targeting, pools in added.items():
        after[targeting] = (*after.get(targeting, ()), *pools)
    return {targeting: pools for targeting, pools in after.items() if pools}


def _laid_out(pools: Iterable[PoolOnNode | None]) -> NodeDevices:
    """What a node sees. Of a pool of the node and one of several nodes with the same name, only one can be used:
    results could not distinguish them.
    """
    views: dict[tuple[str, str], PoolOnNode] = {}
    for view in pools:
        if view is not None:
            other = views.setdefault(view.key[:2], view)
            if (view.generation.number, view.key) > (other.generation.number, other.key):
                views[view.key[:2]] = view
    return NodeDevices(views.values())


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


# Usage ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceShares:
    """The allocated shares of one device: their number, and what they consume in all (capacity name -> nanos)."""

    count: int = 0
    consumed: Mapping[str, int] = field(default_factory=dict)

    def plus(self, consumed: Mapping[str, int], *, sign: int) -> DeviceShares:
        total = dict(self.consumed)
        for name, nanos in consumed.items():
            total[name] = total.get(name, 0) + sign * nanos
        return DeviceShares(self.count + sign, {name: nanos for name, nanos in total.items() if nanos})


NO_SHARES = DeviceShares()


#: device -> what each of its allocations drew from counters
Draws = Mapping[str, tuple[DrawnCounters, ...]]
_NO_DRAWS: Draws = {}


@immutable
class PoolUsage:
    """The allocated devices of one pool. `taken`: device name -> exclusive allocations (1, but for conflicts)."""

    __slots__ = ("_drained", "_left", "_masks", "draws", "shares", "taken")

    def __init__(
        self,
        taken: Mapping[str, int],
        shares: Mapping[str, DeviceShares],
        draws: Draws = _NO_DRAWS,
    ) -> None:
        self.taken = taken
        self.shares = shares
        self.draws = draws
        self._masks: tuple[Generation, int, int] | None = None
        self._drained: tuple[Generation, int] | None = None
        self._left: tuple[PoolOnNode, Mapping[CounterKey, int]] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.taken and not self.shares

    def masks(self, generation: Generation) -> tuple[int, int]:
        """(devices allocated exclusively, devices with shares), as bits of `generation`."""
        cached = self._masks
        if cached is None or cached[0] is not generation:
            names = generation.bits_by_name
            taken, shares = (union(names.get(one, 0) for one in held) for held in (self.taken, self.shares))
            cached = self._masks = (generation, taken, shares)
        return cached[1], cached[2]

    def counters_left(self, view: PoolOnNode, usage: UsageTable) -> Mapping[CounterKey, int]:
        """What the allocated devices leave of each counter, in nanos. usage: of all pools."""
        if self._left is not None and self._left[0] is view:
            return self._left[1]
        left = dict(view.counters)
        for generation in (view.generation, *view.elsewhere):
            held = self if generation is view.generation else usage.get(generation.key)
            for drawn in held._drawn(generation, view):
                for key, nanos in drawn.items():
                    if key in left:
                        left[key] -= nanos
        if not view.elsewhere:
            self._left = (view, left)
        return left

    def _drawn(self, generation: Generation, view: PoolOnNode) -> Iterator[Mapping[CounterKey, int]]:
        """What each allocated device draws: what its slice says, or what it drew when it was allocated if that is more
        or if the device is no longer published. A shared device counts once, however many shares of it are allocated.
        """
        taken, shares = self.masks(generation)
        held = (taken | shares) & generation.consuming
        # All parts of a pool that is spread over nodes draw on the counters of the part whose view this is.
        now = generation.draws if generation.key == view.key else [needs(one, view.key) for one in generation.devices]
        for name, draws in self.draws.items():
            mask = generation.bits_by_name.get(name, 0) & held
            if mask:
                published = generation.devices[mask.bit_length() - 1].published.consumes_counters
                if draws[0].consumes == published and (
                    len(draws) == 1 or all(one.consumes == published for one in draws)
                ):
                    continue
            held &= ~mask
            recorded = highest(recorded_draw(one, view.counter_names, device_is_published=bool(mask)) for one in draws)
            by_counter = {(view.key, *counter): nanos for counter, nanos in recorded.items()}
            yield highest((*(now[position] for position in bits(mask)), by_counter))
        for position in bits(held):
            yield now[position]

    def drained(self, view: PoolOnNode, usage: UsageTable) -> int:
        """Devices, as bits of the generation, that would draw more than is left; none of an unusable pool."""
        generation = view.generation
        if view.trouble or not generation.consuming:
            return 0
        cached = self._drained
        if cached is not None and cached[0] is generation and not view.elsewhere:
            return cached[1]
        left, mask = self.counters_left(view, usage), 0
        for position in bits(generation.consuming):
            for key, nanos in generation.draws[position].items():
                if left.get(key, 0) < nanos:
                    mask |= 1 << position
                    break
        if not view.elsewhere:
            self._drained = (generation, mask)
        return mask

    def with_result(
        self, result: DeviceRequestAllocationResult, drawn: DrawnCounters | None, *, sign: int
    ) -> PoolUsage:
        """The usage with `result` (without admin access) added (sign 1) or removed (sign -1). drawn: from counters."""
        device = result.device
        self._left = None  # the log keeps this usage, but only the new one still needs the sum
        draws = self.draws if drawn is None else self._draws_with(device, drawn, sign=sign)
        if result.share_id is not None:
            shares = dict(self.shares)
            consumed = {name: Quantity.parse(text).nanos for name, text in result.consumed_capacity.items()}
            shares[device] = shares.get(device, NO_SHARES).plus(consumed, sign=sign)
            if shares[device].count <= 0:
                del shares[device]
            return PoolUsage(self.taken, shares, draws)
        taken = dict(self.taken)
        left = taken.get(device, 0) + sign
        if left > 0:
            taken[device] = left
        else:
            taken.pop(device, None)
        usage = PoolUsage(taken, self.shares, draws)
        masks = self._masks
        if masks is not None and len(taken) != len(self.taken):
            # One device came or went: its bit changes.
            usage._masks = (masks[0], masks[1] ^ masks[0].bits_by_name.get(device, 0), masks[2])
        return usage

    def _draws_with(self, device: str, drawn: DrawnCounters, *, sign: int) -> Draws:
        draws, left = dict(self.draws), list(self.draws.get(device, ()))
        if sign > 0:
            left.append(drawn)
        else:
            left.remove(drawn)
        if left:
            draws[device] = tuple(left)
        else:
            del draws[device]
        return draws


NO_USAGE = PoolUsage({}, {})


def draws_of(allocation: AllocationResult) -> Mapping[tuple[str, str, str], DrawnCounters]:
    """(driver, pool, device) -> what it drew."""
    return {(one.driver, one.pool, one.device): one for one in allocation.drawn_counters}


@dataclass(slots=True, eq=False, repr=False)
class PublishedPools:
    """Which pools are published, and since when: since their oldest slice was created.

    This decides in which pools an allocated device is in use: in the one that its allocation names
    (`claims.kinds.resource_claims`). If a node no longer has that pool, the device is also in use in the pools that its
    driver has published there since the allocation: each may be that pool under another name.
    """

    #: (driver, pool name) -> node -> that pool, in a tuple of its own
    by_name: dict[tuple[str, str], dict[str, tuple[PoolKey]]] = field(default_factory=dict)
    #: (driver, node) -> pool name -> since when it is published
    _at: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def put(self, key: PoolKey, since: str | None) -> None:
        """since: RFC 3339, "" if unknown; None: the pool is not published."""
        by_node = self.by_name.setdefault(key[:2], {})
        at = self._at.setdefault((key.driver, key.node), {})
        if since is not None:
            by_node[key.node], at[key.name] = (key,), since
            return
        del by_node[key.node], at[key.name]
        if not by_node:
            del self.by_name[key[:2]]
        if not at:
            del self._at[key.driver, key.node]

    def since(self, key: PoolKey) -> str | None:
        """None if the pool is not published."""
        return self._at.get((key.driver, key.node), {}).get(key.name)

    def has_others(self, key: PoolKey) -> bool:
        """Whether the driver publishes other pools at the same place."""
        return not self._at.get((key.driver, key.node), {}).keys() <= {key.name}

    def in_use(self, driver: str, pool: str, allocation: AllocationResult, node: str) -> tuple[PoolKey, ...]:
        """The pools in which an allocated device is in use. node: that of the allocation."""
        published = self.by_name.get((driver, pool), {})
        only = published.get(node)
        if only is not None and (len(published) == 1 or (node and "" not in published)):
            return only
        pools = pools_in_use(driver, pool, node, published)
        if node and allocation.allocation_timestamp and published.keys().isdisjoint((node, "")):
            # Compare times, not texts: another scheduler may write fractions of a second, or an offset. Creation times
            # have whole seconds: within the same second, the slice may have been created before or after.
            allocated = datetime.fromisoformat(allocation.allocation_timestamp).replace(microsecond=0)
            pools += tuple(
                PoolKey(driver, name, node)
                for name, since in self._at.get((driver, node), {}).items()
                if since and datetime.fromisoformat(since) >= allocated
            )
        return pools


@dataclass(slots=True, eq=False, repr=False)
class UsageLog:
    """The current usage of every pool, and a log of changes from which earlier versions can be read.

    Entry i of `entries` is (pool, its usage before the change number i). The owner starts a new log (`continued`) once
    this one has grown `long`; whoever still reads at an earlier version keeps this one. A copy has no past.
    """

    #: Entries, and names of devices in them, after which a log is long: each holds the usage of a pool as it was. Fewer
    #: entries than a batch makes are not: whoever is two logs behind looks at everything again.
    LONG: ClassVar[int] = 32_768
    BATCH: ClassVar[int] = 1024

    published: PublishedPools
    #: of the pools in which something is or was in use
    now: dict[PoolKey, PoolUsage] = field(default_factory=dict)
    #: (driver, node) -> the pools there of which something is or was in use
    _places: dict[tuple[str, str], set[PoolKey]] = field(default_factory=dict)
    #: the log that this one continues
    previous: UsageLog | None = field(default=None, metadata=RESET)
    #: changes that were counted before this log
    began: int = field(default=0, metadata=RESET)
    entries: list[tuple[PoolKey, PoolUsage]] = field(default_factory=list, metadata=RESET)
    #: the names of devices in `entries`
    _names: int = field(default=0, metadata=RESET)

    @property
    def is_long(self) -> bool:
        return len(self.entries) >= self.BATCH and len(self.entries) + self._names > self.LONG

    def continued(self) -> UsageLog:
        """A log with the same usage, which remembers only this log as its past."""
        self.previous = None
        places = {place: set(keys) for place, keys in self._places.items()}
        return UsageLog(self.published, dict(self.now), places, self, self.began + len(self.entries))

    def count(self, allocation: AllocationResult, node: str, *, sign: int) -> None:
        """Count an allocation in (sign 1) or out (sign -1). node: that of the allocation."""
        now, in_use = self.now, self.published.in_use
        drawn = draws_of(allocation) if allocation.drawn_counters else None
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            draw = None if drawn is None else drawn.get((result.driver, result.pool, result.device))
            for key in in_use(result.driver, result.pool, allocation, node):
                before = now.get(key, NO_USAGE)
                if before is NO_USAGE:
                    self._places.setdefault((key.driver, key.node), set()).add(key)
                self.entries.append((key, before))
                self._names += len(before.taken) + len(before.shares)
                now[key] = before.with_result(result, draw, sign=sign)

    def in_use_at(self, driver: str, node: str) -> Iterator[PoolKey]:
        """The pools of a driver on a node of which something is in use."""
        return (key for key in self._places.get((driver, node), ()) if not self.now[key].is_empty)

    def names(self, name: tuple[str, str]) -> bool:
        """Whether anything is or was in use in pools with this driver and name."""
        return any(key[:2] == name for key in self.now)


class UsageTable:
    """The usage after the first `version` changes of `log`: a value, although the log grows."""

    __slots__ = ("_undone", "log", "version")

    def __init__(self, log: UsageLog, version: int) -> None:
        self.log = log
        self.version = version
        #: (the version up to which the log was read, the earlier usage of pools that changed since `version`)
        self._undone: tuple[int, dict[PoolKey, PoolUsage]] = (version, {})

    @property
    def age(self) -> int:
        """The number of changes before it: of two tables of one inventory, the later one has more."""
        return self.log.began + self.version

    def get(self, key: PoolKey) -> PoolUsage:
        """The usage of a pool; empty if none of its devices is allocated."""
        if len(self.log.entries) != self._undone[0]:
            read, undone = self._undone
            for changed, earlier in self.log.entries[read:]:
                undone.setdefault(
                    changed, earlier
                )  # a pool's first change since the version has its usage at the version
            self._undone = (len(self.log.entries), undone)
        before = self._undone[1].get(key)
        return self.log.now.get(key, NO_USAGE) if before is None else before


class LessenedUsage(UsageTable):
    """A usage without some of its allocations: what would be in use if these were released. It has no index."""

    __slots__ = ("_lessened", "_whole")

    def __init__(self, whole: UsageTable, gone: Iterable[AllocationResult]) -> None:
        super().__init__(whole.log, whole.version)
        self._whole = whole
        self._lessened: dict[PoolKey, PoolUsage] = {}
        in_use = self.log.published.in_use
        for allocation in gone:
            node, drawn = node_of(allocation), draws_of(allocation)
            for result in allocation.devices.results:
                draw = drawn.get((result.driver, result.pool, result.device))
                for key in () if result.admin_access else in_use(result.driver, result.pool, allocation, node):
                    self._lessened[key] = self.get(key).with_result(result, draw, sign=-1)

    def get(self, key: PoolKey) -> PoolUsage:
        lessened = self._lessened.get(key)
        return self._whole.get(key) if lessened is None else lessened


# Snapshot and inventory -----------------------------------------------------------------------------------------------


class Snapshot:
    """Everything that allocation depends on, except the claims and the node. A value."""

    __slots__ = ("catalogue", "usage")

    def __init__(self, catalogue: Catalogue, usage: UsageTable) -> None:
        self.catalogue = catalogue
        self.usage = usage

    @property
    def features(self) -> Features:
        return self.catalogue.features

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        return self.catalogue.classes

    def on_node(self, node: NodeView) -> NodeDevices:
        return self.catalogue.on_node(node)

    def pool_usage(self, key: PoolKey) -> PoolUsage:
        return self.usage.get(key)

    def without(self, gone: Iterable[AllocationResult]) -> Snapshot:
        """The snapshot as if these allocations were released."""
        return Snapshot(self.catalogue, LessenedUsage(self.usage, gone))


@dataclass(slots=True, eq=False, repr=False)
class Inventory:
    """The warm state from which snapshots are taken. One thread at a time.

    A copy shares slices and pools, with everything derived from them. Take a snapshot before copying, so that what has
    changed is derived once for both.
    """

    features: Features = field(default_factory=Features)
    _interner: Interner = field(default_factory=Interner)
    _slices: dict[str, SliceContent] = field(default_factory=dict)
    #: the same by pool, by name; first published first
    _by_pool: dict[PoolKey, dict[str, SliceContent]] = field(default_factory=dict)
    _pools: dict[PoolKey, PoolSlices] = field(default_factory=dict)
    _stale: set[PoolKey] = field(default_factory=set)
    _classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    _rules: TaintRules = field(default_factory=TaintRules)
    #: driver and name of pools with allocations that name no node
    _without_node: set[tuple[str, str]] = field(default_factory=set)
    #: pools whose slices must be read again because rules have changed
    _changed_taints: set[PoolKey] = field(default_factory=set)
    _published: PublishedPools = field(default_factory=PublishedPools)
    #: pools that don't add up by themselves, by driver and name (`PoolSlices.adds_up`)
    _short: dict[tuple[str, str], set[PoolKey]] = field(default_factory=dict)
    _claims: dict[str, AllocationResult] = field(default_factory=dict)
    #: (driver, node) -> claim uid -> the allocation of its devices there; None until it is first needed
    _by_place: dict[tuple[str, str], dict[str, AllocationResult]] | None = field(default=None, metadata=RESET)
    _usage: UsageLog = field(init=False)
    #: what was published when the last snapshot was taken, and whether that is current
    _catalogue: Catalogue = field(init=False)
    _is_current: bool = False

    def __post_init__(self) -> None:
        self._usage, self._catalogue = UsageLog(self._published), Catalogue(self.features)

    # Published content -----------------------------------------------------------------------------------------------

    def apply_slice(self, published: ResourceSlice) -> None:
        """Add a slice, or replace the one of its name."""
        content = SliceContent(published, self._interner, self._rules)
        before = self._slices.get(content.name)
        if before is not None and before.key != content.key:
            self.remove_slice(content.name)
        self._put(content)

    def remove_slice(self, name: str) -> None:
        """Remove a slice; does nothing for an unknown name."""
        gone = self._slices.pop(name, None)
        if gone is not None:
            del self._by_pool[gone.key][name]
            if not self._by_pool[gone.key]:
                del self._by_pool[gone.key]
            self._publish(gone.key)
            self._touch(gone.key)

    def _put(self, content: SliceContent) -> None:
        self._slices[content.name] = content
        self._by_pool.setdefault(content.key, {})[content.name] = content
        self._publish(content.key)
        self._touch(content.key)

    def _publish(self, key: PoolKey) -> None:
        """Note since when the pool is published, if it is. That may move allocations from pool to pool."""
        slices = self._by_pool.get(key, {}).values()
        since = min((one.published.metadata.creation_timestamp or "" for one in slices), default=None)
        if since == self._published.since(key):
            return
        moved = {id(one): one for one in (*self._namesakes(key), *self._renamed(key))}.values()
        for allocation in moved:
            self._count(allocation, sign=-1)
        self._published.put(key, since)
        for allocation in moved:
            self._count(allocation, sign=1)

    def _namesakes(self, key: PoolKey) -> Iterator[AllocationResult]:
        """The allocations that name a pool of this name, if a result may belong to several of those."""
        name = key[:2]
        ambiguous = "" in self._published.by_name.get(name, {}) or not key.node or name in self._without_node
        if ambiguous and self._usage.names(name):
            for allocation in self._claims.values():
                if any((one.driver, one.pool) == name for one in allocation.devices.results):
                    yield allocation

    def _renamed(self, key: PoolKey) -> Sequence[AllocationResult]:
        """The allocations of the driver's devices on the node, if a pool there may have been renamed."""
        if not key.node:
            return ()
        used = set(self._usage.in_use_at(key.driver, key.node))
        others = self._published.has_others(key) if key in used else None
        if not others and all(one == key or self._published.since(one) is not None for one in used):
            return ()
        if self._by_place is None:
            self._by_place = {}
            for uid, allocation in self._claims.items():
                self._place(uid, allocation)
        return tuple(self._by_place.get((key.driver, key.node), {}).values())

    def apply_class(self, device_class: DeviceClass) -> None:
        self._classes = {**self._classes, device_class.metadata.name: device_class}
        self._is_current = False

    def remove_class(self, name: str) -> None:
        self._classes = {known: value for known, value in self._classes.items() if known != name}
        self._is_current = False

    def apply_taint_rule(self, rule: DeviceTaintRule) -> tuple[TaintedPools, ...]:
        """Add a rule, or replace the one of its name. Returns the pools whose taints have changed."""
        return self._reread_taints_of(self._rules.put(rule))

    def remove_taint_rule(self, name: str) -> tuple[TaintedPools, ...]:
        return self._reread_taints_of(self._rules.remove(name))

    def _reread_taints_of(self, touched: tuple[TaintedPools, ...]) -> tuple[TaintedPools, ...]:
        """Read the slices of these pools again at the next snapshot; more rules may change until then."""
        for driver, pool in touched:
            if driver is not None and pool is not None:
                keys: Iterable[PoolKey] = self.pools_named(driver, pool)
            else:
                keys = [key for key in self._by_pool if TaintedPools(driver, pool).concerns(key.driver, key.name)]
            self._changed_taints.update(keys)
        self._is_current = self._is_current and not self._changed_taints
        return touched

    def _read_taints(self) -> None:
        """Apply changed taint rules to slices. Verdicts stay valid, since selectors do not see taints."""
        for key in self._changed_taints:
            for content in tuple(self._by_pool.get(key, {}).values()):
                fresh = SliceContent(content.published, self._interner, self._rules)
                fresh.verdicts = content.verdicts
                self._put(fresh)
        self._changed_taints = set()

    def _touch(self, key: PoolKey) -> None:
        self._stale.add(key)
        self._is_current = False

    # Allocations -----------------------------------------------------------------------------------------------------

    def apply_claim(self, claim: ResourceClaim) -> None:
        """Record what the claim holds now; it replaces what was recorded or assumed for its uid."""
        self._hold(claim.metadata.uid, claim.status.allocation)

    def remove_claim(self, uid: str) -> None:
        self._hold(uid, None)

    def assume(self, plan: Iterable[tuple[str, AllocationResult]]) -> None:
        """Count the allocations of a plan, each (claim uid, result), as if they were committed."""
        for uid, result in plan:
            self._hold(uid, result)

    def forget(self, uids: Iterable[str]) -> None:
        """Remove what was assumed for these claims, whose commit failed."""
        for uid in uids:
            self._hold(uid, None)

    def _hold(self, uid: str, allocation: AllocationResult | None) -> None:
        held = self._claims.get(uid)
        if held is not None:
            if allocation is not None and self._is_counted_as(held, allocation):
                self._claims[uid] = allocation
                self._place(uid, allocation)
                return
            del self._claims[uid]
            if self._by_place is not None:
                for driver in {one.driver for one in held.devices.results}:
                    del self._by_place[driver, node_of(held)][uid]
            self._count(held, sign=-1)
        if allocation is not None and allocation.devices.results:
            self._claims[uid] = allocation
            self._place(uid, allocation)
            self._count(allocation, sign=1)

    def _place(self, uid: str, allocation: AllocationResult) -> None:
        if self._by_place is not None:
            for driver in {one.driver for one in allocation.devices.results}:
                self._by_place.setdefault((driver, node_of(allocation)), {})[uid] = allocation

    def _is_counted_as(self, held: AllocationResult, allocation: AllocationResult) -> bool:
        """Whether `allocation` would be counted like `held`. An assumed allocation has no timestamp yet, which matters
        only for pools that are no longer published.
        """
        return (
            held.devices.results == allocation.devices.results
            and held.node_selector == allocation.node_selector
            and held.drawn_counters == allocation.drawn_counters
            and (
                held.allocation_timestamp == allocation.allocation_timestamp
                or all(
                    self.pools_in_use(one, held) == self.pools_in_use(one, allocation)
                    for one in allocation.devices.results
                )
            )
        )

    def _count(self, allocation: AllocationResult, *, sign: int) -> None:
        if self._usage.is_long:
            self._usage = self._usage.continued()
        node = node_of(allocation)
        self._usage.count(allocation, node, sign=sign)
        if not node:
            self._without_node.update((one.driver, one.pool) for one in allocation.devices.results)

    # Reading ---------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The present state. Later changes to the inventory do not affect it."""
        return Snapshot(self._current(), UsageTable(self._usage, len(self._usage.entries)))

    def pools_in_use(self, result: DeviceRequestAllocationResult, allocation: AllocationResult) -> tuple[PoolKey, ...]:
        """The pools in which a device of the allocation is in use."""
        return self._published.in_use(result.driver, result.pool, allocation, node_of(allocation))

    def published(self, key: PoolKey) -> PoolSlices | None:
        """What is published of the pool now."""
        self._current()
        return self._pools.get(key)

    def pools_named(self, driver: str, name: str) -> Iterable[PoolKey]:
        """The pools with that name, of all nodes."""
        return (key for (key,) in self._published.by_name.get((driver, name), {}).values())

    def parts_of(self, pool: PoolKey) -> Collection[PoolKey]:
        """The pool and the other parts of the pool that it belongs to, if that is spread over nodes."""
        self._current()
        parts = self._short.get(pool[:2], ())
        return parts if pool in parts else (pool,)

    def _current(self) -> Catalogue:
        if not self._is_current:
            self._read_taints()
            gone, new = self._rebuild_pools()
            self._catalogue = self._catalogue.changed(gone=gone, new=new, classes=self._classes)
            self._is_current = True
        return self._catalogue

    def _rebuild_pools(self) -> tuple[list[PoolSlices], list[PoolSlices]]:
        """Rebuild the pools whose slices have changed. Returns them before and after."""
        gone = {key: self._pools.pop(key) for key in self._stale if key in self._pools}
        new = {key: PoolSlices(key, slices.values()) for key in self._stale if (slices := self._by_pool.get(key))}
        self._pools.update(new)
        spread = {key[:2] for key in self._stale if self._spread(key)}
        for name in spread:
            parts = [self._pools[key] for key in self._short[name]]
            for part in parts:
                if part.key not in new:
                    gone[part.key] = part
                whole = PoolSlices(
                    part.key, self._by_pool[part.key].values(), [one for one in parts if one is not part]
                )
                new[part.key] = self._pools[part.key] = whole
        self._stale = set()
        return list(gone.values()), list(new.values())

    def _spread(self, key: PoolKey) -> bool:
        """Whether the pool is or was a part of a pool that may be spread over nodes. Notes whether it is."""
        name, pool = key[:2], self._pools.get(key)
        short = self._short.setdefault(name, set())
        was = key in short
        if pool is not None and not pool.adds_up:
            short.add(key)
        else:
            short.discard(key)
        if not short:
            del self._short[name]
        return bool(short) and (was or key in short)
