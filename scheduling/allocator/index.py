"""Which of many nodes could meet a request, known without looking at each: bitsets over nodes, kept up with the usage.

A `NodeIndex` belongs to one catalogue and one tuple of nodes; bit i stands for the i-th node by name. It follows the
inventory's log of changed pools: each entry recounts the nodes that see the pool. For every request signature that was
asked for it keeps, lazily, how many free devices each node has, and for each count asked for the set of nodes that have
as many. Nodes are also kept in buckets by their free devices, so that the most packed node is found first.
The index only narrows: the node that is chosen is searched as `allocate` searches it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from scheduling.allocator.masks import InUse, in_use, selected
from scheduling.allocator.outcome import NodeView
from scheduling.allocator.pools import bits
from scheduling.allocator.published import PoolKey
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.snapshot import Snapshot


class SignatureCounts:
    """Free devices per node for one request signature."""

    def __init__(self, plan: RequestPlan, index: NodeIndex) -> None:
        self._plan = plan
        self._index = index
        self._counts = [0] * len(index.nodes)
        self._at_least: dict[int, int] = {}
        self._seen = len(index.changes)
        #: nodes on which a selector would err on a device that is free
        self.erring = 0
        for number in range(len(index.nodes)):
            self._recount(number)

    def at_least(self, count: int) -> int:
        """The nodes with at least `count` free devices that serve the request."""
        self.catch_up()
        known = self._at_least.get(count)
        if known is None:
            known = 0
            for number, has in enumerate(self._counts):
                known |= (has >= count) << number
            self._at_least[count] = known
        return known

    def catch_up(self) -> None:
        changes = self._index.changes
        if self._seen != len(changes):
            for number in set(changes[self._seen :]):
                self._recount(number)
            self._seen = len(changes)

    def _recount(self, number: int) -> None:
        index = self._index
        candidates, errors = selected(index.devices[number], self._plan, index.features)
        taken = 0 if self._plan.admin else index.in_use[number].taken
        bit = 1 << number
        self.erring = self.erring | bit if errors & ~taken else self.erring & ~bit
        before, now = self._counts[number], (candidates & ~taken).bit_count()
        self._counts[number] = now
        if before != now:
            for count, nodes in self._at_least.items():
                self._at_least[count] = nodes | bit if now >= count else nodes & ~bit


class NodeIndex:
    """See the module's docstring. One thread at a time, like the inventory that it follows."""

    def __init__(self, snapshot: Snapshot, nodes: Sequence[NodeView]) -> None:
        self.given = nodes
        self.nodes = tuple(sorted(nodes, key=lambda one: one.name))
        self.all_nodes = (1 << len(self.nodes)) - 1
        self.features = snapshot.features
        self.devices = tuple(snapshot.on_node(node) for node in self.nodes)
        self.in_use: list[InUse] = [in_use(one, snapshot.usage, self.features) for one in self.devices]
        #: numbers of the nodes whose free devices changed, in order
        self.changes: list[int] = []
        self._log = snapshot.log
        self._seen = snapshot.version
        self._signatures: dict[Hashable, SignatureCounts] = {}
        self._free = [-1] * len(self.nodes)
        self._buckets: dict[int, int] = {}
        self._sees: dict[PoolKey, list[int]] = {}
        for number, one in enumerate(self.devices):
            self._file(number)
            for view in one.pools:
                self._sees.setdefault(view.key, []).append(number)

    def follow(self, snapshot: Snapshot) -> bool:
        """Catch up with the usage of `snapshot`. False where that is older than what the index has seen."""
        if snapshot.log is not self._log or snapshot.version < self._seen:
            return False
        changed = self._log[self._seen : snapshot.version]
        self._seen = snapshot.version
        for key in set(changed):
            for number in self._sees.get(key, ()):
                self.in_use[number] = in_use(self.devices[number], snapshot.usage, self.features)
                self._file(number)
                self.changes.append(number)
        return True

    def counts(self, plan: RequestPlan) -> SignatureCounts:
        """The counts of the request's signature."""
        key = (plan.signature, plan.admin)
        known = self._signatures.get(key)
        if known is None:
            known = self._signatures[key] = SignatureCounts(plan, self)
        return known

    def most_packed_first(self, among: int) -> Iterator[int]:
        """The numbers of the nodes in `among`: fewest free devices first, then by name."""
        for free in sorted(self._buckets):
            yield from bits(self._buckets[free] & among)

    def _file(self, number: int) -> None:
        """Put the node into the bucket of its free devices."""
        free = (self.devices[number].visible & ~self.in_use[number].taken).bit_count()
        before, bit = self._free[number], 1 << number
        if free == before:
            return
        if before >= 0:
            left = self._buckets[before] & ~bit
            if left:
                self._buckets[before] = left
            else:
                del self._buckets[before]
        self._buckets[free] = self._buckets.get(free, 0) | bit
        self._free[number] = free
