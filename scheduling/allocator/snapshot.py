"""What allocation reads: a frozen `Snapshot`, taken from an `Inventory` that a scheduling worker keeps warm.

The worker applies each event to its `Inventory` (slices, classes, taint rules, claims with their allocations) and
`assume`s the plans of its own batch until their commit comes back as events. `snapshot()` costs nothing: published
content is shared and never changes, and the usage table is a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from claims.kinds.allocations import AllocationResult, DeviceRequestAllocationResult
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.classes import DeviceClass
from inventory.kinds.slices import ResourceSlice
from inventory.kinds.taints import DeviceTaintRule
from scheduling.allocator.catalogue import Catalogue
from scheduling.allocator.features import Features
from scheduling.allocator.interning import Interner
from scheduling.allocator.outcome import NodeView
from scheduling.allocator.pools import NodeDevices, PublishedPool
from scheduling.allocator.published import PoolKey, SliceContent, tainted_by
from scheduling.allocator.usage import PoolUsage, UsageLog, UsageTable


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
        #: the same by pool, by name; first published first
        self._by_pool: dict[PoolKey, dict[str, SliceContent]] = {}
        self._pools: dict[PoolKey, PublishedPool] = {}
        self._stale: set[PoolKey] = set()
        self._classes: dict[str, DeviceClass] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._claims: dict[str, tuple[DeviceRequestAllocationResult, ...]] = {}
        self._usage = UsageLog()
        #: what was published when a snapshot was last taken, and whether that is so now
        self._catalogue = Catalogue(self.features)
        self._is_current = False

    def copied(self) -> Inventory:
        """The same content: slices and pools are shared with what was derived from them, the usage goes its own way."""
        made = Inventory(self.features)
        made._catalogue, made._is_current = self._current().copied(), True
        made._interner = self._interner
        made._slices = dict(self._slices)
        made._by_pool = {key: dict(slices) for key, slices in self._by_pool.items()}
        made._pools = dict(self._pools)
        made._classes = self._classes
        made._rules = dict(self._rules)
        made._claims = dict(self._claims)
        made._usage = self._usage.copied()
        return made

    # Published content -----------------------------------------------------------------------------------------------

    def apply_slice(self, published: ResourceSlice) -> None:
        """Add a slice, or replace the one of its name."""
        content = SliceContent(published, self._interner, self._taint_rules)
        before = self._slices.get(content.name)
        if before is not None and before.key != content.key:
            self.remove_slice(content.name)
        self._put(content)

    def remove_slice(self, name: str) -> None:
        """Forget a slice; unknown names are nothing new."""
        gone = self._slices.pop(name, None)
        if gone is not None:
            del self._by_pool[gone.key][name]
            if not self._by_pool[gone.key]:
                del self._by_pool[gone.key]
            self._touch(gone.key)

    def _put(self, content: SliceContent) -> None:
        self._slices[content.name] = content
        self._by_pool.setdefault(content.key, {})[content.name] = content
        self._touch(content.key)

    def apply_class(self, device_class: DeviceClass) -> None:
        self._classes = {**self._classes, device_class.metadata.name: device_class}
        self._is_current = False

    def remove_class(self, name: str) -> None:
        self._classes = {known: value for known, value in self._classes.items() if known != name}
        self._is_current = False

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
        for content in tuple(self._slices.values()):
            if any(tainted_by(rule, content.key) for rule in changed):
                fresh = SliceContent(content.published, self._interner, rules)
                fresh.verdicts = content.verdicts
                self._put(fresh)

    def _touch(self, key: PoolKey) -> None:
        self._stale.add(key)
        self._is_current = False

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
        if not self._is_current:
            gone, new = self._rebuild_pools()
            self._catalogue = self._catalogue.changed(gone=gone, new=new, classes=self._classes)
            self._is_current = True
        return self._catalogue

    def _rebuild_pools(self) -> tuple[list[PublishedPool], list[PublishedPool]]:
        """Returns the pools that changed, as they were and as they are."""
        gone = [self._pools.pop(key) for key in self._stale if key in self._pools]
        new = [PublishedPool(key, slices.values()) for key in self._stale if (slices := self._by_pool.get(key))]
        self._pools.update((pool.key, pool) for pool in new)
        self._stale = set()
        return gone, new
