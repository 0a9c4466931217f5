"""What identifies a pool, and when all of it is published. PURE.

Drivers may give the pools of all their nodes one name, so a pool whose slices name a node belongs to that node: it has
nothing in common with equally named pools of other nodes. The slices without `spec.nodeName` make up one more pool.

A driver may also spread one pool over several nodes: each slice names its node, and `resourceSliceCount` counts all of
them. So the slices of a node that are too few, or too many, are counted together with those of other nodes in the same
state. A node whose own slices add up is never affected by another node's slices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: The generation of pools that are published as NodeResourceSlices (KEP-4381, first draft): below every one that a
#: driver writes.
DRAFT_GENERATION = -1


class PoolKey(NamedTuple):
    """node: what its slices name in `spec.nodeName`; "" for a pool of several nodes."""

    driver: str
    name: str
    node: str = ""

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


class SliceTally(NamedTuple):
    """How many slices a pool has in its newest generation, and how many there should be."""

    generation: int
    expected: int
    seen: int

    @property
    def adds_up(self) -> bool:
        return self.seen == self.expected

    def is_complete(self, namesakes: Iterable[SliceTally]) -> bool:
        """namesakes: the counts of the other pools with the same driver and name."""
        return self.adds_up or self.expected == self.seen + sum(
            other.seen for other in namesakes if other.generation == self.generation and not other.adds_up
        )
