"""How an extension takes part in placing one pod. PURE.

An `Extension` (`scheduling.state.extensions`) returns a `Negotiation` for each pod that concerns it. The cycle asks:

    left         which claims the scheduler allocates itself
    restricted   Filter: which nodes are left, or why no node can be chosen yet
    preferred    Score: which of them are tried first
    next         once a node is chosen: what is written with the binding, or why the pod still waits
    awaited      where nodes refuse the pod: what may help it, besides what nodes wait for
    giving_back  where the pod gives back idle allocations: what is written with that

The defaults change nothing, so a subclass overrides what it needs. The writes belong to the transaction of the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from claims.kinds.resource_claims import ResourceClaim
from manciple.wire.base import ApiObject
from scheduling.allocator import NodeView
from scheduling.queue.reasons import Hold
from scheduling.state.nodes import FilterResult, NodeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiationWrite:
    """An object that is written with a verdict.

    before: the object as the verdict saw it; if it has changed since, the commit fails. None: the object is created.
    after: None: the object is deleted once the pod is bound.
    """

    resource: str
    before: ApiObject | None = None
    after: ApiObject | None = None
    subresource: str = ""


NegotiationWrites = tuple[NegotiationWrite, ...]
#: At most so many nodes that would take the pod, by name.
PossibleNodes = Callable[[int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StillNegotiating:
    """The pod waits. writes: for the drivers for which it waits."""

    hold: Hold
    writes: NegotiationWrites = ()


class Negotiation:
    """See the module's docstring."""

    __slots__ = ()

    @property
    def awaited(self) -> frozenset[str]:
        """Keys of queueing hints; empty where no event of the extension helps a pod that nodes refuse."""
        return frozenset()

    def left(self, wanting: Iterable[ResourceClaim]) -> tuple[ResourceClaim, ...]:
        return tuple(wanting)

    def restricted(self, filtered: FilterResult, nodes: NodeTable) -> FilterResult | StillNegotiating:  # noqa: ARG002
        """`filtered` without the nodes that the extension refuses."""
        return filtered

    def preferred(self, fitting: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
        """The same nodes where it prefers none."""
        return fitting

    def next(self, node: str, possible: PossibleNodes) -> StillNegotiating | NegotiationWrites:  # noqa: ARG002
        """node: the scheduler's choice. possible: searches on each node, so ask only if needed."""
        return ()

    def giving_back(self, claims: Iterable[ResourceClaim]) -> NegotiationWrites:  # noqa: ARG002
        return ()


def restricted(
    negotiations: Iterable[Negotiation], filtered: FilterResult, nodes: NodeTable
) -> FilterResult | StillNegotiating:
    """`filtered` without the nodes that any of them refuses, or the first that cannot tell yet."""
    for negotiation in negotiations:
        left = negotiation.restricted(filtered, nodes)
        if isinstance(left, StillNegotiating):
            return left
        filtered = left
    return filtered


def agreed(
    negotiations: Iterable[Negotiation], node: str, possible: PossibleNodes
) -> StillNegotiating | NegotiationWrites:
    """Whether every extension accepts the chosen node: all that is written with the binding, or the first that makes
    the pod wait.
    """
    writes: NegotiationWrites = ()
    for negotiation in negotiations:
        step = negotiation.next(node, possible)
        if isinstance(step, StillNegotiating):
            return step
        writes += step
    return writes
