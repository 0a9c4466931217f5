"""Which of many nodes could meet a request, known without looking at each: bitsets over nodes, kept up with the usage.

A `NodeIndex` belongs to one catalogue; bit i stands for the i-th node by name. It follows the
inventory's log of changed pools: each entry recounts the nodes that see the pool. For every request signature that was
asked for it keeps, lazily, how many free devices each node has, and for each count asked for the set of nodes that have
as many. Nodes are also kept in buckets by their free devices, so that the most packed node is found first.
The index only narrows: the node that is chosen is searched as `allocate` searches it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from scheduling.allocator.masks import InUse, in_use, selected, sharing
from scheduling.allocator.outcome import NodeView
from scheduling.allocator.pools import bits
from scheduling.allocator.published import PoolKey, make_room
from scheduling.allocator.requests import RequestPlan
from scheduling.allocator.score import Fit, Score, most_packed
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

    def __init__(self, snapshot: Snapshot, nodes: Iterable[NodeView]) -> None:
        self.nodes = tuple(sorted(nodes, key=lambda one: one.name))
        self.features = snapshot.features
        self.devices = tuple(snapshot.on_node(node) for node in self.nodes)
        self.in_use: list[InUse] = [in_use(one, snapshot.usage, self.features) for one in self.devices]
        self.sharing = any(sharing(one, self.features) for one in self.devices)
        #: what was asked -> node number -> how often the node had changed when it was found not to fit
        self.refuted: dict[Hashable, dict[int, int]] = {}
        #: how often each node's free devices changed
        self.stamps = [0] * len(self.nodes)
        #: numbers of the nodes whose free devices changed, in order
        self.changes: list[int] = []
        self._numbers = {node.name: number for number, node in enumerate(self.nodes)}
        #: the last sequence of nodes that was asked for, and its set
        self._asked: tuple[Sequence[NodeView], int] = ((), 0)
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

    def knows(self, nodes: Sequence[NodeView]) -> bool:
        """Whether the index has all of these nodes, with the labels that they have now."""
        if self._asked[0] is nodes and isinstance(nodes, tuple):
            return True
        mask = 0
        for node in nodes:
            number = self._numbers.get(node.name)
            if number is None or (self.nodes[number] is not node and self.nodes[number] != node):
                return False
            mask |= 1 << number
        self._asked = (nodes, mask)
        return True

    def mask_of(self, nodes: Sequence[NodeView]) -> int:
        """The set of these nodes. Raises: KeyError for one that the index does not know."""
        if not self.knows(nodes):
            raise KeyError("unknown nodes")
        return self._asked[1]

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
                self.stamps[number] += 1
                self.changes.append(number)
        return True

    def refute(self, shape: Hashable, number: int) -> None:
        """Remember that the node does not fit, as it is now."""
        make_room(self.refuted)
        self.refuted.setdefault(shape, {})[number] = self.stamps[number]

    def is_refuted(self, shape: Hashable, number: int) -> bool:
        return self.refuted.get(shape, {}).get(number) == self.stamps[number]

    def counts(self, plan: RequestPlan) -> SignatureCounts:
        """The counts of the request's signature."""
        key = (plan.signature, plan.admin)
        known = self._signatures.get(key)
        if known is None:
            make_room(self._signatures)
            known = self._signatures[key] = SignatureCounts(plan, self)
        return known

    def best_first(self, among: int, score: Score) -> Iterator[int]:
        """The numbers of the nodes in `among`: highest score first, then by name."""
        if score is most_packed:
            for free in sorted(self._buckets):
                yield from bits(self._buckets[free] & among)
            return
        scored = {number: score(Fit(node=self.nodes[number], free=self._free[number])) for number in bits(among)}
        yield from sorted(scored, key=lambda number: -scored[number])

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
