"""What allocation reads: a frozen `Snapshot`, taken from an `Inventory` that a scheduling worker keeps warm.

The worker applies each event to its `Inventory` (slices, classes, taint rules, claims with their allocations) and
`assume`s the plans of its own batch until their commit comes back as events. `snapshot()` costs nothing: published
content is shared and never changes, and the usage table is a value.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from claims.kinds.allocations import AllocationResult, DeviceRequestAllocationResult
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.classes import DeviceClass
from inventory.kinds.slices import ResourceSlice
from inventory.kinds.taints import DeviceTaintRule
from scheduling.allocator.features import Features
from scheduling.allocator.interning import Interner
from scheduling.allocator.outcome import NodeView
from scheduling.allocator.pools import NodeDevices, PublishedPool
from scheduling.allocator.published import PoolKey, SliceContent, tainted_by
from scheduling.allocator.usage import PoolUsage, UsageLog, UsageTable

#: the labels that a node had, and what it saw
NodeSight = tuple[Mapping[str, str], NodeDevices]


class Catalogue:
    """The published pools and classes, and what each node sees of them. Never changes but for its caches."""

    def __init__(
        self,
        *,
        features: Features,
        pools: Mapping[PoolKey, PublishedPool],
        classes: Mapping[str, DeviceClass],
        views: Mapping[str, NodeSight] | None = None,
    ) -> None:
        self.features = features
        self.pools = pools
        self.classes = classes
        self._by_node: dict[str, list[PublishedPool]] = {}
        self._floating: list[PublishedPool] = []
        self._counting: list[PublishedPool] = []
        self._views: dict[str, NodeSight] = dict(views or {})
        #: what other modules derive from the catalogue and want to live as long; `placement` keeps its indexes here
        self.memo: dict[Hashable, Any] = {}
        #: devices of the newest generations, whoever may use them
        self.device_count = sum(len(pool.newest.devices) for pool in pools.values())
        for pool in pools.values():
            self._index(pool)

    def _index(self, pool: PublishedPool) -> None:
        named, floating, counters = pool.reach
        if floating:
            self._floating.append(pool)
            return
        for name in named:
            self._by_node.setdefault(name, []).append(pool)
        if counters:
            self._counting.append(pool)

    def views_without(self, changed: Iterable[PublishedPool]) -> dict[str, NodeSight]:
        """What nodes see, but for those that see one of these pools."""
        names: set[str] = set()
        for pool in changed:
            named, floating, counters = pool.reach
            if floating or counters:
                return {}
            names |= named
        return {name: sight for name, sight in self._views.items() if name not in names}

    def on_node(self, node: NodeView) -> NodeDevices:
        """What the node sees, from the cache while its labels are the same."""
        cached = self._views.get(node.name)
        if cached is not None and (cached[0] is node.labels or cached[0] == node.labels):
            return cached[1]
        devices = NodeDevices(view for pool in self._candidates(node) if (view := pool.seen_from(node, self.features)))
        self._views[node.name] = (node.labels, devices)
        return devices

    def _candidates(self, node: NodeView) -> Iterable[PublishedPool]:
        named = self._by_node.get(node.name, ())
        yield from named
        yield from self._floating
        for pool in self._counting:
            # Such a pool gives other nodes nothing but its trouble, which is the same for all of them.
            if node.name not in pool.reach[0] and pool.troubled_elsewhere(self.features):
                yield pool


class Snapshot:
    """Everything that allocation depends on, but for the claims and the node. A value."""

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


class Inventory:
    """The warm state from which snapshots are taken. One thread at a time."""

    def __init__(self, features: Features | None = None) -> None:
        self.features = features or Features()
        self._interner = Interner()
        self._slices: dict[str, SliceContent] = {}
        self._pools: dict[PoolKey, PublishedPool] = {}
        self._stale: set[PoolKey] = set()
        self._classes: dict[str, DeviceClass] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._claims: dict[str, tuple[DeviceRequestAllocationResult, ...]] = {}
        self._usage = UsageLog()
        #: the catalogue of what is published now (None: something changed), and the last one there was
        self._catalogue: Catalogue | None = None
        self._last: Catalogue | None = None

    # Published content -----------------------------------------------------------------------------------------------

    def apply_slice(self, published: ResourceSlice) -> None:
        """Add a slice, or replace the one of its name."""
        content = SliceContent(published, self._interner, self._taint_rules)
        before = self._slices.get(content.name)
        if before is not None:
            self._touch(before.key)
        self._slices[content.name] = content
        self._touch(content.key)

    def remove_slice(self, name: str) -> None:
        """Forget a slice; unknown names are nothing new."""
        gone = self._slices.pop(name, None)
        if gone is not None:
            self._touch(gone.key)

    def apply_class(self, device_class: DeviceClass) -> None:
        self._classes = {**self._classes, device_class.metadata.name: device_class}
        self._catalogue = None

    def remove_class(self, name: str) -> None:
        self._classes = {known: value for known, value in self._classes.items() if known != name}
        self._catalogue = None

    def apply_taint_rule(self, rule: DeviceTaintRule) -> None:
        """Add a rule, or replace the one of its name."""
        before = self._rules.get(rule.metadata.name)
        self._rules[rule.metadata.name] = rule
        self._taint_anew([rule] if before is None else [before, rule])

    def remove_taint_rule(self, name: str) -> None:
        gone = self._rules.pop(name, None)
        if gone is not None:
            self._taint_anew([gone])

    @property
    def _taint_rules(self) -> tuple[DeviceTaintRule, ...]:
        return tuple(self._rules[name] for name in sorted(self._rules))

    def _taint_anew(self, changed: Sequence[DeviceTaintRule]) -> None:
        """Read the slices again that a changed rule can taint. Selectors do not see taints: verdicts stay."""
        rules = self._taint_rules
        for name, content in self._slices.items():
            if any(tainted_by(rule, content.key) for rule in changed):
                fresh = SliceContent(content.published, self._interner, rules)
                fresh.verdicts = content.verdicts
                self._slices[name] = fresh
                self._touch(content.key)

    def _touch(self, key: PoolKey) -> None:
        self._stale.add(key)
        self._catalogue = None

    # Allocations -----------------------------------------------------------------------------------------------------

    def apply_claim(self, claim: ResourceClaim) -> None:
        """Take over what the claim holds now; it replaces what was known or assumed of the same uid."""
        allocation = claim.status.allocation
        self._hold(claim.metadata.uid, allocation.devices.results if allocation else ())

    def remove_claim(self, uid: str) -> None:
        self._hold(uid, ())

    def assume(self, plan: Iterable[tuple[str, AllocationResult]]) -> None:
        """Count the allocations of a plan, (claim uid, result) each, as if they were committed."""
        for uid, result in plan:
            self._hold(uid, result.devices.results)

    def forget(self, uids: Iterable[str]) -> None:
        """Take back what was assumed for these claims: their commit failed."""
        for uid in uids:
            self._hold(uid, ())

    def _hold(self, uid: str, results: Sequence[DeviceRequestAllocationResult]) -> None:
        held = self._claims.get(uid, ())
        if held == results:
            return
        if self._usage.is_long:
            self._usage = self._usage.continued()
        for one in held:
            self._usage.count(one, sign=-1)
        for one in results:
            self._usage.count(one, sign=1)
        if results:
            self._claims[uid] = tuple(results)
        else:
            self._claims.pop(uid, None)

    # Reading ---------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The state now. Later changes to the inventory do not show in it."""
        return Snapshot(self._current(), UsageTable(self._usage, len(self._usage.entries)))

    def _current(self) -> Catalogue:
        if self._catalogue is None:
            changed = self._rebuild_pools()
            views = self._last.views_without(changed) if self._last is not None else None
            self._catalogue = self._last = Catalogue(
                features=self.features, pools=self._pools, classes=self._classes, views=views
            )
        return self._catalogue

    def _rebuild_pools(self) -> list[PublishedPool]:
        """Returns the pools that changed, as they were and as they are."""
        slices: dict[PoolKey, list[SliceContent]] = {key: [] for key in self._stale}
        for content in self._slices.values():
            if content.key in slices:
                slices[content.key].append(content)
        before = self._pools
        self._pools = {key: pool for key, pool in before.items() if key not in slices}
        self._pools.update((key, PublishedPool(key, contents)) for key, contents in slices.items() if contents)
        self._stale = set()
        return [table[key] for key in slices for table in (before, self._pools) if key in table]
