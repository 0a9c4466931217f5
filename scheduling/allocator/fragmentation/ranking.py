"""The nodes for one kind of pod, the best first: by how much more is expected to be stranded once it is there.

A `Ranking` keeps a score for every node and works out anew those of nodes that have changed since it was asked last.
Scores stand in blocks with the lowest of each block beside them, so that the best of thousands of nodes is found by
looking at some dozens of numbers. Of nodes that strand the same one is taken whose devices have no class of their own
of which there are few (`NodeIndex.levels`), then the one with the least free devices, with the least cpu left, the
first by name.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from math import inf
from typing import NamedTuple

from scheduling.allocator.fragmentation.demands import NodeNeeds
from scheduling.allocator.fragmentation.nodes import NodeOutlooks
from scheduling.allocator.fragmentation.picking import Picking
from scheduling.allocator.pools import bits
from scheduling.allocator.shapes import Variant

#: Scores in a block.
BLOCK = 64
#: Devices that make no difference.
HARDLY = 1e-3
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
        if self._have_levels_changed():
            stale = set(range(len(nodes.left)))
        if among != self._among:
            stale.update(bits(among & ~self._among))
            for number in bits(self._among & ~among):
                self._put(number, inf)
            self._among = among
        digits = f"{among:b}"[::-1].ljust(len(nodes.left), "0")
        numbers = [number for number in stale if digits[number] == "1"]
        scores = self._scores
        if len(numbers) < MANY:
            for number in numbers:
                scores[number] = self._score(number)
        else:
            known = dict[Hashable, float]()
            keys = list(zip(nodes.alike, self._handicaps, *self._picking.accepted(), strict=True))
            for number in numbers:
                score = known.get(keys[number])
                if score is None:
                    score = known[keys[number]] = self._score(number)
                scores[number] = score
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

    def _score(self, number: int) -> float:
        nodes, needs = self._nodes, self._needs
        sums = self._picking.sums_after(number)
        if sums is None:
            return inf
        cpu, memory = nodes.left[number]
        cpu, memory = max(0, cpu - needs[0]), max(0, memory - needs[1])
        grown = nodes.expected(sums, cpu, memory) - nodes.stranded[number]
        return grown + self._handicaps[number] + PER_DEVICE * sums.free + PER_CPU * cpu
