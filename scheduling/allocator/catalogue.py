"""The published pools and classes, and what each node sees of them: a `Catalogue` for each state of what is published.

A change makes the next catalogue out of the last one: what it does not touch is taken over. Catalogues of one inventory
share a `Lineage`, which tells what nodes see otherwise from one to the next, so that an index can follow them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from inventory.kinds.classes import DeviceClass
from scheduling.allocator.features import Features
from scheduling.allocator.nodeview import NodeView
from scheduling.allocator.pools import NodeDevices, PublishedPool

#: the labels that a node had, and what it saw
NodeSight = tuple[Mapping[str, str], NodeDevices]

#: Changes that a lineage tells of; the next catalogue then begins a new one.
MAX_CHANGES = 1_000


class Lineage:
    """What successive catalogues have in common."""

    def __init__(self) -> None:
        #: for each catalogue after the first: the nodes that see something else than before; None: any may
        self.changes: list[frozenset[str] | None] = []
        #: what other modules derive and want to live on; `first_fit` keeps its index here
        self.memo: dict[Hashable, Any] = {}


class Catalogue:
    """Never changes but for its caches."""

    def __init__(self, features: Features) -> None:
        """An empty one."""
        self.features = features
        self.classes: Mapping[str, DeviceClass] = {}
        #: devices of the newest generations, whoever may use them
        self.device_count = 0
        self.lineage = Lineage()
        #: changes of the lineage before this catalogue
        self.number = 0
        self._by_node: dict[str, tuple[PublishedPool, ...]] = {}
        self._floating: tuple[PublishedPool, ...] = ()
        self._counting: tuple[PublishedPool, ...] = ()
        self._views: dict[str, NodeSight] = {}

    def changed(
        self, *, gone: Sequence[PublishedPool], new: Sequence[PublishedPool], classes: Mapping[str, DeviceClass]
    ) -> Catalogue:
        """The next catalogue: pools that changed are both gone and new."""
        made = Catalogue(self.features)
        made.classes = classes
        made.device_count = self.device_count + _count(new) - _count(gone)
        affected = _affected((*gone, *new))
        if affected is not None:
            made._views = {**self._views}
            for name in affected:
                made._views.pop(name, None)
        made._succeed(self, affected)
        made._by_node = {**self._by_node}
        made._floating = tuple(pool for pool in self._floating if pool not in gone)
        made._counting = tuple(pool for pool in self._counting if pool not in gone)
        for pool in gone:
            for name in pool.reach[0]:
                made._by_node[name] = tuple(one for one in made._by_node.get(name, ()) if one is not pool)
        for pool in new:
            made._enter(pool)
        return made

    def copied(self) -> Catalogue:
        """The same content, with a lineage of its own."""
        made = Catalogue(self.features)
        made.classes = self.classes
        made.device_count = self.device_count
        made._by_node = {**self._by_node}
        made._floating, made._counting = self._floating, self._counting
        made._views = {**self._views}
        return made

    def _succeed(self, last: Catalogue, affected: frozenset[str] | None) -> None:
        if len(last.lineage.changes) == last.number < MAX_CHANGES:
            self.lineage = last.lineage
            self.lineage.changes.append(affected)
            self.number = last.number + 1

    def _enter(self, pool: PublishedPool) -> None:
        named, floating, counters = pool.reach
        if floating:
            self._floating = (*self._floating, pool)
            return
        for name in named:
            self._by_node[name] = (*self._by_node.get(name, ()), pool)
        if counters:
            self._counting = (*self._counting, pool)

    def on_node(self, node: NodeView) -> NodeDevices:
        """What the node sees, from the cache while its labels are the same."""
        cached = self._views.get(node.name)
        if cached is not None and (cached[0] is node.labels or cached[0] == node.labels):
            return cached[1]
        devices = NodeDevices(view for pool in self._candidates(node) if (view := pool.seen_from(node, self.features)))
        self._views[node.name] = (node.labels, devices)
        return devices

    def _candidates(self, node: NodeView) -> Iterable[PublishedPool]:
        yield from self._by_node.get(node.name, ())
        yield from self._floating
        for pool in self._counting:
            # Such a pool gives other nodes nothing but its trouble, which is the same for all of them.
            if node.name not in pool.reach[0] and pool.troubled_elsewhere(self.features):
                yield pool


def _count(pools: Sequence[PublishedPool]) -> int:
    return sum(len(pool.newest.devices) for pool in pools)


def _affected(pools: Iterable[PublishedPool]) -> frozenset[str] | None:
    """The nodes that may see one of the pools; None where that takes a look at each node."""
    names: set[str] = set()
    for pool in pools:
        named, floating, counters = pool.reach
        if floating or counters:
            return None
        names |= named
    return frozenset(names)
