"""The policy as a score for `placement.place`: what the worker knows, and what one pod asks of its node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from manciple.wire.limits import Deadline, TimeLimitExceeded, time_limit
from scheduling.allocator.index import Fit, NodeIndex
from scheduling.allocator.shapes import Variant
from scheduling.allocator.snapshot import Snapshot
from scheduling.placement.fragmentation.demands import NOTHING_ELSE, DemandMix, NodeNeeds, NodeRoom
from scheduling.placement.fragmentation.nodes import NodeOutlooks
from scheduling.placement.fragmentation.ranking import RankedNode, Ranking

#: Kinds of pods whose rankings are kept.
MOST_RANKINGS = 256
#: Seconds for evaluating the selectors of the mix, once in so many seconds. Their estimated cost is limited
#: (`reading.SelectorBudget`), so this cuts in only where they look at many thousands of different devices.
MIX_SECONDS, MIX_EVERY = 0.1, 1.0
#: Binary digits of an amount that are told apart: pods that ask for nearly the same have one ranking.
DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fragmentation:
    """Prefers the node on which the least is stranded, by what pods usually ask for.

    needs: of the pod. room: what nodes have left of their own; None where nobody knows. preference: of nodes by name,
    what comes before all of this. Where every node has to be searched, or the mix is not evaluated yet, it prefers the
    most packed one.
    """

    mix: DemandMix
    room: NodeRoom | None = None
    needs: NodeNeeds = NOTHING_ELSE
    preference: Callable[[str], int] | None = None

    def __call__(self, fit: Fit) -> float:
        preferred = self.preference(fit.node.name) * 10**12 if self.preference is not None else 0
        return preferred - fit.free

    def ranking(self, index: NodeIndex, snapshot: Snapshot, variant: Variant | None) -> Ranking | None:
        """The nodes for such pods, caught up with `snapshot`, which the index has followed. None: see `outlooks`."""
        nodes = self.outlooks(index, snapshot)
        if nodes is None:
            return None
        key = (variant, NodeNeeds(coarse(self.needs.cpu), coarse(self.needs.memory)))
        known = nodes.rankings.pop(key, None)
        if not isinstance(known, Ranking):
            known = Ranking(nodes, variant, key[1])
        nodes.rankings[key] = known  # the last is the one that was asked for last
        if len(nodes.rankings) > MOST_RANKINGS:
            del nodes.rankings[next(iter(nodes.rankings))]
        return known

    def outlooks(self, index: NodeIndex, snapshot: Snapshot) -> NodeOutlooks | None:
        """What is expected of each node, caught up with `snapshot`, which the index has followed.

        None while evaluating the selectors of the mix takes too long: the verdicts so far are kept, and it goes on
        after a while.
        """
        nodes = index.outlooks
        if isinstance(nodes, Deadline) and not nodes.has_passed:
            return None
        deadline, index.outlooks = Deadline.after(MIX_SECONDS), None  # half-made ones are not to be found
        try:
            with time_limit(deadline):
                if not (
                    isinstance(nodes, NodeOutlooks)
                    and nodes.is_of(self.mix, self.room, snapshot)
                    and nodes.follow(snapshot)
                ):
                    nodes = NodeOutlooks(index, snapshot, self.mix, self.room)
        except TimeLimitExceeded as error:
            if error.deadline is not deadline:
                raise
            index.outlooks = Deadline.after(MIX_EVERY)
            return None
        index.outlooks = nodes
        return nodes

    def best_first(self, ranking: Ranking, among: int) -> Iterator[RankedNode]:
        """The nodes in `among`; those whose units do not seem to have what is asked for come last."""
        if self.preference is None:
            yield from ranking.best_first(among)
            return
        preference = self.preference
        yield from sorted(ranking.best_first(among), key=lambda one: -preference(ranking.name_of(one.number)))

    def next_best(self, ranking: Ranking, number: int, following: RankedNode | None) -> tuple[str, float] | None:
        """What is told of the node that comes after the one that was chosen; None where that is less welcome."""
        if following is None or following.stranded == inf:
            return None
        chosen, name = ranking.name_of(number), ranking.name_of(following.number)
        if self.preference is not None and self.preference(name) != self.preference(chosen):
            return None
        return name, following.stranded


def coarse(amount: int) -> int:
    """The next amount that is told apart."""
    spare = max(0, amount.bit_length() - DIGITS)
    return -(-amount >> spare) << spare
