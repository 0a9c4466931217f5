"""How `place` tells which of several nodes that fit is the best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scheduling.allocator.outcome import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A node on which the claims can be met, for a score to judge."""

    node: NodeView
    #: devices that the node sees and nobody holds, before this allocation
    free: int


Score = Callable[[Fit], float]


def most_packed(fit: Fit) -> float:
    """Prefers the node with the fewest free devices, so that others stay whole for larger claims."""
    return -fit.free
