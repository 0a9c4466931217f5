"""The devices as this process knows them: a view that is followed (`manciple.store.event_log`).

A page with one changed line costs one line, and many browsers cost as much as one. A `DeviceSnapshot` is of one
revision and never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

from claims.devices.holdings import Holdings, holding_of, is_preparing
from claims.devices.nodes import Nodes, node_of
from claims.devices.pools import DeviceSnapshot, PoolState
from claims.devices.published import DevicePool, DeviceSlice, Published, gather, read_slice
from claims.kinds.resource_claims import pools_in_use
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.early import Translate, slice_translations
from inventory.kinds.pools import PoolKey, SliceTally
from inventory.kinds.taint_rules import TaintRules
from manciple.store.event_log import Follower, View
from manciple.store.records import Written
from manciple.wire.base import ApiObject

TAINT_RULES = "devicetaintrules.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
PODS = "pods"
NODES = "nodes"


class DeviceCache(View):
    """See the module's docstring. One thread at a time."""

    resources: ClassVar[Sequence[str]] = (TAINT_RULES, SLICES, CLAIMS, PODS, NODES)

    def __init__(self) -> None:
        self._rules = TaintRules()
        self._slices: dict[str, DeviceSlice] = {}
        #: slice name -> as its driver published it, of those to which rules add taints
        self._untainted: dict[str, ResourceSlice] = {}
        self._slices_of: dict[PoolKey, tuple[str, ...]] = {}
        #: (driver, pool name) -> node -> the slices of that pool in its newest generation
        self._counts: dict[tuple[str, str], dict[str, SliceTally]] = {}
        self._holdings = Holdings()
        self._pools: dict[PoolKey, PoolState] = {}
        self._nodes = Nodes()
        self._snapshot: DeviceSnapshot | None = None
        self._applying: dict[str, Callable[[Any, bool], set[PoolKey]]] = {
            TAINT_RULES: self._apply_taint_rule,
            SLICES: self._apply_slice,
            CLAIMS: self._apply_claim,
            PODS: self._apply_pod,
            NODES: self._apply_node,
        }
        if translations := slice_translations():
            self.resources = tuple(dict.fromkeys((*translations, *DeviceCache.resources)))  # type: ignore[misc]  # of a view of this process
            for resource, translate in translations.items():
                self._applying[resource] = partial(self._apply_translated, translate)

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self._applying[resource](obj, False)

    def ready(self) -> None:
        self._refresh({*self._slices_of, *self._holdings.pools()})

    def apply(self, changes: Sequence[Written]) -> None:
        touched: set[PoolKey] = set()
        for change in changes:
            touched |= self._applying[change.resource](change.object, change.type == "DELETED")
        self._refresh(touched)

    def snapshot(self) -> DeviceSnapshot:
        if self._snapshot is None or self._snapshot.revision != self.revision:
            self._snapshot = DeviceSnapshot(
                revision=self.revision,
                pools=dict(self._pools),
                nodes=self._nodes.now,
                published=self._published,
            )
        return self._snapshot

    def _apply_taint_rule(self, rule: Any, gone: bool) -> set[PoolKey]:
        changed = self._rules.remove(rule.metadata.name) if gone else self._rules.put(rule)
        touched: set[PoolKey] = set()
        for one in changed:
            keys = [key for key in self._slices_of if one.concerns(key.driver, key.name)]
            for name in [name for key in keys for name in self._slices_of[key]]:
                touched |= self._apply_slice(self._untainted.get(name) or self._slices[name].published, False)
        return touched

    def _apply_slice(self, published: Any, gone: bool) -> set[PoolKey]:
        touched = set()
        self._untainted.pop(published.metadata.name, None)
        if (old := self._slices.pop(published.metadata.name, None)) is not None:
            self._slices_of[old.pool] = tuple(name for name in self._slices_of[old.pool] if name != old.name)
            touched.add(old.pool)
        if not gone:
            tainted = self._rules.added_to(published)
            if tainted is not published:
                self._untainted[published.metadata.name] = published
            new = read_slice(tainted)
            self._slices[new.name] = new
            self._slices_of[new.pool] = (*self._slices_of.get(new.pool, ()), new.name)
            touched.add(new.pool)
        for pool in touched:
            self._pools.pop(pool, None)
        return touched

    def _apply_translated(self, translate: Translate, published: Any, gone: bool) -> set[PoolKey]:
        return set().union(*(self._apply_slice(one, is_gone) for one, is_gone in translate(published, gone)))

    def _apply_claim(self, claim: Any, gone: bool) -> set[PoolKey]:
        return self._holdings.remove(claim.metadata.uid) if gone else self._holdings.put(holding_of(claim))

    def _apply_pod(self, pod: Any, gone: bool) -> set[PoolKey]:
        if self._nodes.pod_is(pod.metadata.uid, "" if gone else node_of(pod)):
            self._snapshot = None
        return self._holdings.pod_is(pod.metadata.uid, preparing=not gone and is_preparing(pod))

    def _apply_node(self, node: Any, gone: bool) -> set[PoolKey]:
        if self._nodes.remove(node.metadata.name) if gone else self._nodes.put(node):
            self._snapshot = None
        return set()

    def _refresh(self, pools: Iterable[PoolKey]) -> None:
        touched = set(pools)
        for key in tuple(touched):
            touched |= self._count_slices(key)
        for key in {one for pool in touched for one in (pool, *self._in_use_with(pool))}:
            published = self._counts.get(key[:2], {})
            known, holders = self._pools.get(key), self._holdings.of_pool(key, published)
            known = PoolState(self._read_pool(key), holders) if known is None else known.held_by(holders)
            if not known.pool.slices and not holders:
                self._pools.pop(key, None)
            else:
                self._pools[key] = known
            self._snapshot = None

    def _read_pool(self, key: PoolKey) -> DevicePool:
        self.__dict__.pop("_published", None)
        names = self._slices_of.get(key, ())
        if not names:
            self._slices_of.pop(key, None)
        counts = self._counts.get(key[:2], {})
        namesakes = [count for node, count in counts.items() if node != key.node]
        return gather(key, (self._slices[name] for name in names), namesakes)

    def _count_slices(self, key: PoolKey) -> set[PoolKey]:
        """Returns the equally named pools that look different because of this one's slices: parts of one pool
        (`inventory.kinds.pools`), and those in which allocations are in use now.
        """
        counts = self._counts.get(key[:2], {})
        slices = [self._slices[name] for name in self._slices_of.get(key, ())]
        before, after = counts.get(key.node), gather(key, slices).count if slices else None
        if before == after:
            return set()
        counts = {node: count for node, count in counts.items() if node != key.node}
        parts = {PoolKey(key.driver, key.name, node) for node, count in counts.items() if not count.adds_up}
        if after is not None:
            counts[key.node] = after
        self._counts[key[:2]] = counts
        if not counts:
            del self._counts[key[:2]]
        for part in parts:
            self._pools.pop(part, None)
        if before is not None and after is not None:
            return parts
        return parts | (set(self._holdings.namesakes(key)) if not key.node else {PoolKey(key.driver, key.name)})

    def _in_use_with(self, key: PoolKey) -> Iterable[PoolKey]:
        """The pools that hold what is allocated on the pool's node."""
        return pools_in_use(key.driver, key.name, key.node, self._counts.get(key[:2], {}))

    @cached_property
    def _published(self) -> Published:
        return Published(one for key in sorted(self._pools) for one in self._pools[key].pool.slices)


#: of this process
following = Follower(DeviceCache)


def read_devices() -> DeviceSnapshot:
    """The devices as they are now."""
    with following.view() as cache:
        return cache.snapshot()
