"""What an index has shown of nodes none of which fits: nobody needs to search them again.

What was answered for a node is kept while its devices are in use as they were, for all claims that ask for the same:
pods that wait are tried again and again, and replicas wait in crowds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduling.allocator.index import NodeIndex
from scheduling.allocator.masks import InUse
from scheduling.allocator.nodeview import NodeView
from scheduling.allocator.outcome import Outcome, Reason, Unallocatable, Undecided
from scheduling.allocator.requests import ClaimPlan, RequestPlan
from scheduling.allocator.search import NoSolution
from scheduling.allocator.shapes import Shape

_NONE = NoSolution(trials=0)


class Refuted:
    """No node has a solution, but for those that are undecided."""

    def __init__(self, index: NodeIndex, shape: Shape, undecided: Mapping[str, Undecided]) -> None:
        """undecided: node name -> why its search was stopped."""
        self._index = index
        self._undecided = undecided
        self._kept = index.refusals_of(shape)
        #: the requests of other claims of this shape -> those of the claims that are refused now
        self._stand_ins: dict[int, Mapping[RequestPlan, RequestPlan]] = {}

    def verdict(self, node: NodeView) -> NoSolution | Undecided:
        return self._undecided.get(node.name) or _NONE

    def used_on(self, node: NodeView) -> InUse:
        return self._index.used_on(self._index.number_of(node))

    def known(self, node: NodeView, plans: Sequence[ClaimPlan]) -> Outcome | None:
        """What was answered when the node's devices were in use as they are now, as if these claims had asked."""
        number = self._index.number_of(node)
        kept = self._kept.get(number)
        if kept is None or kept[0] != self._index.stamps[number]:
            return None
        _, others, outcome = kept
        if not isinstance(outcome, Unallocatable) or _same(others, plans):
            return outcome
        if any(reason.conflict for reason in outcome.reasons):
            return None  # its words name the claims
        stand_in = self._stand_in(others, plans)
        return Unallocatable(reasons=tuple(_retold(reason, stand_in[reason.plan]) for reason in outcome.reasons))

    def keep(self, node: NodeView, plans: Sequence[ClaimPlan], outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Undecided):
            number = self._index.number_of(node)
            self._kept[number] = (self._index.stamps[number], plans, outcome)
        return outcome

    def _stand_in(self, others: Sequence[ClaimPlan], plans: Sequence[ClaimPlan]) -> Mapping[RequestPlan, RequestPlan]:
        known = self._stand_ins.get(id(others))
        if known is None:
            known = self._stand_ins[id(others)] = dict(zip(_requests(others), _requests(plans), strict=True))
        return known


def _same(others: Sequence[ClaimPlan], plans: Sequence[ClaimPlan]) -> bool:
    return others is plans or [one.name for one in others] == [one.name for one in plans]


def _requests(plans: Sequence[ClaimPlan]) -> list[RequestPlan]:
    return [one for claim in plans for options in claim.requests for one in options]


def _retold(reason: Reason, plan: RequestPlan) -> Reason:
    return Reason(plan=plan, node=reason.node, wanted=reason.wanted, funnel=reason.funnel)
