"""The nodes for one kind of pod, the best first: by how much more is expected to be stranded once it is there.

A `Ranking` keeps a score for every node and works out anew those of nodes that have changed since it was asked last.
Where prices have changed (`scarcity`), what is taken of each node is paid for anew, and nothing else is worked out.
Scores stand in blocks with the lowest of each block beside them, so that the best of thousands of nodes is found by
looking at some dozens of numbers. Of nodes that strand the same one is taken whose devices have no class of their own
of which there are few (`NodeIndex.levels`), then the one with the least free devices, with the least cpu left, the
first by name.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from math import inf
from operator import add, mul, sub
from typing import NamedTuple

from scheduling.allocator.pools import bits
from scheduling.allocator.shapes import Variant
from scheduling.placement.fragmentation.demands import NodeNeeds
from scheduling.placement.fragmentation.nodes import NodeOutlooks
from scheduling.placement.fragmentation.outlooks import Taken
from scheduling.placement.fragmentation.picking import Picking

#: Scores in a block.
BLOCK = 64
#: Devices that make no difference.
HARDLY = 1e-3
#: Different amounts that are taken of nodes, and paid for, before all nodes are scored again.
MOST_TAKEN = 4_096
#: Nodes of which it pays to find out which of them are in the same state.
MANY = 100
#: What a node is put back by: for each level of rarity, each device that is left free there, each thousandth of a core.
PER_LEVEL, PER_DEVICE, PER_CPU = 1e-3, 1e-7, 1e-14


class RankedNode(NamedTuple):
    """stranded: how many devices more are expected to be stranded with the pod there; infinite where it may not fit."""

    number: int
    stranded: float


class Ranking:
    """For one variant of a pod's claims, and what the pod takes of its node."""

    def __init__(self, nodes: NodeOutlooks, variant: Variant | None, needs: NodeNeeds) -> None:
        """variant: None for a pod without claims."""
        self._nodes = nodes
        self._variant = variant
        self._needs = needs
        self._picking = Picking(nodes, variant)
        size = len(nodes.left)
        self._levels: tuple[int, ...] = ()
        self._handicaps: list[float] = []
        #: by node, the score without what is taken, and what is: a number of `_taken`. Prices change more often
        self._bare = array("d", [inf]) * size
        self._takes = [0] * size
        self._taken: dict[tuple[Taken, tuple[int, ...]], int] = {((), ()): 0}
        #: by number of what is taken, what that costs
        self._costs = [0.0]
        self._prices = nodes.scarcity.changes
        self._scores = array("d", [inf]) * size
        self._lowest = [inf] * -(-size // BLOCK)
        self._among = 0
        self._changes, self._read = nodes.changes, 0

    def best_first(self, among: int) -> Iterator[RankedNode]:
        """The nodes in `among`; those whose units do not seem to have what is asked for come last."""
        self._follow(among)
        passed: list[tuple[int, float]] = []
        try:
            while (found := self._best()).stranded < inf:
                passed.append(found)
                self._put(found.number, inf)
                yield found
            seen = sum(1 << number for number, _ in passed)
            for number in bits(among & ~seen):
                yield RankedNode(number, inf)
        finally:
            for number, score in passed:
                self._put(number, score)

    def as_good_as_the_best(self, among: int) -> list[int]:
        """The nodes in `among` on which hardly more is stranded than on the best one."""
        self._follow(among)
        most = min(self._lowest, default=inf) + HARDLY
        return [number for number, score in enumerate(self._scores) if score <= most < inf]

    def name_of(self, number: int) -> str:
        return self._nodes.index.nodes[number].name

    def devices(self, number: int) -> list[int] | None:
        """Per want, the devices of the node by which least is stranded; None where the units do not tell."""
        return self._picking.devices(number)

    def is_certain(self, number: int) -> bool:
        """Whether a node on which the pod does not seem to fit cannot have it."""
        return self._picking.is_certain(number)

    def _best(self) -> RankedNode:
        score = min(self._lowest, default=inf)
        if score == inf:
            return RankedNode(-1, inf)
        start = self._lowest.index(score) * BLOCK
        return RankedNode(self._scores.index(score, start), score)

    def _follow(self, among: int) -> None:
        nodes = self._nodes
        changes = nodes.changes
        stale = set(changes[self._read :]) if changes is self._changes else set(range(len(nodes.left)))
        self._changes, self._read = changes, len(changes)
        if len(self._costs) > MOST_TAKEN:
            self._taken, self._costs = {((), ()): 0}, [0.0]
            stale = set(range(len(nodes.left)))
        if self._have_levels_changed():
            stale = set(range(len(nodes.left)))
        if self._prices != nodes.scarcity.changes:
            self._prices = nodes.scarcity.changes
            stale.update(self._reprice())
        if among != self._among:
            stale.update(bits(among & ~self._among))
            for number in bits(self._among & ~among):
                self._bare[number] = inf
                self._put(number, inf)
            self._among = among
        digits = f"{among:b}"[::-1].ljust(len(nodes.left), "0")
        numbers = [number for number in stale if digits[number] == "1"]
        scores, bare, takes = self._scores, self._bare, self._takes
        if len(numbers) < MANY:
            for number in numbers:
                scores[number], bare[number], takes[number] = self._score(number)
        else:
            known = dict[Hashable, tuple[float, float, int]]()
            keys = list(zip(nodes.alike, self._handicaps, *self._picking.accepted(), strict=True))
            for number in numbers:
                score = known.get(keys[number])
                if score is None:
                    score = known[keys[number]] = self._score(number)
                scores[number], bare[number], takes[number] = score
        for block in {number // BLOCK for number in numbers}:
            self._lowest[block] = min(scores[block * BLOCK : (block + 1) * BLOCK])

    def _have_levels_changed(self) -> bool:
        """Whether other nodes are put back than before."""
        levels = self._variant.levels(by_size=False) if self._variant is not None else self._nodes.index.one_level
        if levels == self._levels:
            return False
        self._levels = levels
        self._handicaps = [0.0] * len(self._nodes.left)
        for level, members in enumerate(levels[1:], 1):
            for number in bits(members):
                self._handicaps[number] = level * PER_LEVEL
        return True

    def _put(self, number: int, score: float) -> None:
        block = number // BLOCK
        self._scores[number] = score
        self._lowest[block] = min(self._scores[block * BLOCK : (block + 1) * BLOCK])

    def _reprice(self) -> Iterator[int]:
        """What is taken costs something else than before. The nodes on which other units may be taken now."""
        costs = [self._cost(taken, lost) for taken, lost in self._taken]
        if costs != self._costs:
            self._costs = costs
            scores = self._scores = array("d", map(add, self._bare, map(costs.__getitem__, self._takes)))
            self._lowest = [min(scores[at : at + BLOCK]) for at in range(0, len(scores), BLOCK)]
        return filter(self._picking.chooses, self._nodes.various)

    def _score(self, number: int) -> tuple[float, float, int]:
        """With what is taken and without it, and the number of that."""
        nodes, needs = self._nodes, self._needs
        served = self._picking.served(number)
        if served is None:
            return inf, inf, 0
        sums, taken = served
        cpu, memory = nodes.left[number]
        cpu, memory = max(0, cpu - needs[0]), max(0, memory - needs[1])
        grown = nodes.expected(sums, cpu, memory) - nodes.stranded[number]
        score = grown + self._handicaps[number] + PER_DEVICE * sums.free + PER_CPU * cpu
        lost: tuple[int, ...] = ()
        if (before := nodes.wide[number]) is not nodes.nothing_wide:
            after = nodes.for_wide(sums.whole, cpu, memory)
            lost = () if before == after else tuple(map(sub, before, after))
        takes = self._number_of(taken, lost)
        return score + self._costs[takes], score, takes

    def _number_of(self, taken: Taken, lost: tuple[int, ...]) -> int:
        """lost: of each demand for several devices of one node, so many that those cannot use any more."""
        number = self._taken.setdefault((taken, lost), len(self._costs))
        if number == len(self._costs):
            self._costs.append(self._cost(taken, lost))
        return number

    def _cost(self, taken: Taken, lost: tuple[int, ...]) -> float:
        cost = 0.0
        for kind, amount in taken:
            cost += kind.price * amount
        return cost + sum(map(mul, lost, self._nodes.scarcity.wide_prices)) if lost else cost
