"""The allocator's input: a frozen `Snapshot`, taken from an `Inventory` that a scheduling worker keeps up to date.

The worker applies each event to its `Inventory` (slices, classes, taint rules, claims with their allocations) and
`assume`s the plans of its own batch until their commit comes back as events. `snapshot()` costs nothing: published
content is shared and never changes, and the usage table is a value.

What is allocated of a pool is a `PoolUsage`, a value: giving and taking make a new one. An entry with admin access
counts for nothing; an entry with a share id is a share of a device that allows multiple allocations; any other takes
the device exclusively (semantics of upstream's allocated state, dynamicresources/allocateddevices.go).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

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
from inventory.kinds.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from inventory.kinds.pools import PoolKey
from inventory.kinds.taint_rules import TaintedPools, TaintRules
from manciple.copying import RESET, immutable
from manciple.wire.quantity import Quantity
from scheduling.allocator.pools import (
    Catalogue,
    CounterKey,
    Generation,
    NodeDevices,
    PoolOnNode,
    PoolSlices,
    bits,
    needs,
    union,
)
from scheduling.allocator.published import Features, Interner, NodeView, SliceContent


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

    #: Entries after which a log is long: each holds the usage of a pool as it was.
    LONG: ClassVar[int] = 16_384

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

    @property
    def is_long(self) -> bool:
        return len(self.entries) > self.LONG

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
