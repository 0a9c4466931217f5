"""What pods usually ask for: the mix of demands by which a placement is judged.

A `DemandMix` is a value. Whatever is derived of one is kept for as long as the mix is the same, so whoever learns a mix
makes a new one only now and then, when twice as many pods are known or so: `UsualDemands` of the pods that there are,
`DemandHistory` of all that ever came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, Protocol

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.requests import asked_key

#: Pods that are remembered: whenever there are twice as many, each counts for half.
WINDOW = 4_000
#: Different demands of a mix: the most frequent ones.
MOST_DEMANDS = 400
#: A demand with more requests and alternatives, selectors, or characters in these is not moderate.
MOST_OPTIONS, MOST_SELECTORS, MOST_TEXT = 64, 64, 16_384
#: Pods from which a mix is known well enough to be kept as long as what comes differs from it by chance only: by less
#: than so many standard deviations in every demand.
ENOUGH, DEVIATIONS = 2_000, 4.0
#: Weights that cannot be meant; and how rare a demand is, beside the most frequent one, that makes no difference.
MOST_WEIGHT, RARE = 1e100, 1e-9


class NodeNeeds(NamedTuple):
    """What a pod takes of its node beside devices, or what a node has left of it. cpu: thousandths; memory: MiB."""

    cpu: int = 0
    memory: int = 0


#: Of a pod of which nothing else is known.
NOTHING_ELSE = NodeNeeds()


class NodeRoom(Protocol):
    """What nodes have left of their own."""

    def left(self, name: str) -> NodeNeeds:
        """Of a node."""

    def changed_since(self, mark: int) -> tuple[Iterable[str] | None, int]:
        """(names of nodes of which more or less is left since then, None where any may be one; the mark of now)."""


class RoomTable:
    """The room of nodes whose changes are told."""

    def __init__(self, left: Mapping[str, NodeNeeds] | None = None) -> None:
        self._left = dict(left or {})
        self._changes: list[str] = []

    def left(self, name: str) -> NodeNeeds:
        return self._left.get(name, NodeNeeds())

    def take(self, name: str, needs: NodeNeeds, *, sign: int = 1) -> None:
        """Count a pod on the node (sign 1), or one that has left it (sign -1)."""
        before = self.left(name)
        self._left[name] = NodeNeeds(before.cpu - sign * needs.cpu, before.memory - sign * needs.memory)
        self._changes.append(name)

    def changed_since(self, mark: int) -> tuple[Iterable[str] | None, int]:
        return self._changes[mark:], len(self._changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What some pods ask for alike. weight: how many of them there are, compared with the other demands of a mix."""

    claims: tuple[ResourceClaim, ...]
    needs: NodeNeeds = NOTHING_ELSE
    weight: float = 1.0

    @property
    def namespace(self) -> str:
        return self.claims[0].metadata.namespace if self.claims else ""

    @property
    def is_moderate(self) -> bool:
        """Whether it is small enough to be compared with others and judged."""
        requests = [one for claim in self.claims for one in claim.spec.devices.requests]
        options = [exact for one in requests for exact in (one.first_available or (one.exactly,)) if exact]
        if len(options) > MOST_OPTIONS or sum(len(one.selectors) for one in options) > MOST_SELECTORS:
            return False
        return sum(len(one.cel.expression) for exact in options for one in exact.selectors if one.cel) <= MOST_TEXT


@dataclass(frozen=True, slots=True, eq=False)
class DemandMix:
    """Compared by identity. pods: how many of them it was learned from."""

    demands: tuple[Demand, ...] = ()
    pods: float = 0.0

    @classmethod
    def of(cls, demands: Iterable[Demand]) -> DemandMix:
        """The most frequent ones, those that are alike as one, in an order that does not depend on the order in which
        they are told. What has no weight is left out, and what hardly has any. Where there are too many, each
        namespace has as many of its own in it.
        """
        found: dict[tuple[bytes, NodeNeeds], Demand] = {}
        for one in demands:
            if not 0 < one.weight < MOST_WEIGHT:
                continue
            key = (asked_key(one.claims), one.needs)
            known = found.get(key)
            weight = one.weight + (known.weight if known else 0.0)
            found[key] = Demand(claims=one.claims, needs=one.needs, weight=weight)
        kept = sorted(found, key=lambda key: (-found[key].weight, key))
        if len(kept) > MOST_DEMANDS:
            before, rank = Counter[str](), dict[tuple[bytes, NodeNeeds], int]()
            for key in kept:
                rank[key] = before[found[key].namespace]
                before[found[key].namespace] += 1
            kept = sorted(sorted(kept, key=rank.__getitem__)[:MOST_DEMANDS], key=lambda key: (-found[key].weight, key))
        kept = [key for key in kept if found[key].weight > RARE * found[kept[0]].weight]
        return cls(tuple(found[key] for key in kept), sum(found[key].weight for key in kept))

    def or_known(self, known: DemandMix, pods: float) -> DemandMix:
        """`known` where this one says the same, or differs from it by no more than chance and `known` was learned from
        many pods. pods: from how many, by now.
        """
        if not known.pods or not self.pods:
            return self
        ours, theirs = self.shares(), known.shares()
        if ours == theirs:
            return known
        if pods < ENOUGH:
            return self
        chance = 1 / pods + 1 / self.pods
        pairs = ((ours.get(key, 0.0), theirs.get(key, 0.0)) for key in ours.keys() | theirs.keys())
        same = all(abs(one - other) < DEVIATIONS * sqrt((one + other) / 2 * chance) for one, other in pairs)
        return known if same else self

    def shares(self) -> dict[Hashable, float]:
        """Of all pods, how many ask for the same; by what they ask for."""
        return {(asked_key(one.claims), one.needs): one.weight / self.pods for one in self.demands}


#: Nobody knows what pods ask for.
NO_DEMANDS = DemandMix()


@dataclass(slots=True, eq=False)
class UsualDemands:
    """What the pods that there are ask for. Nothing of it is stored: every process that follows the log knows the same,
    and a worker that starts knows it at once.
    """

    _mix: DemandMix = NO_DEMANDS
    #: the largest number of pods that a mix was made of, and the last one's
    _pods: float = 0.0
    _asked: float = 0.0
    #: pods that have come since then
    _come: int = 0

    def note(self) -> None:
        """A pod has come."""
        self._come += 1

    def mix(self, asked: Callable[[], Iterable[Demand]]) -> DemandMix:
        """The same one as long as that will do. asked: what the pods that there are ask for, or the latest of them."""
        if self._come >= max(1, min(self._asked, WINDOW // 2)):
            self._come, known, learned = 0, self._mix, DemandMix.of(asked())
            self._asked = learned.pods
            self._mix = learned.or_known(known, self._pods)
            self._pods = max(self._pods, learned.pods) if self._mix is known else learned.pods
        return self._mix


class DemandHistory:
    """What pods have asked for lately. Those that have gone count for less and less."""

    def __init__(self) -> None:
        self._counts: dict[tuple[bytes, NodeNeeds], float] = {}
        self._claims: dict[bytes, tuple[ResourceClaim, ...]] = {}
        self._pods = 0.0
        self._mix = NO_DEMANDS
        #: of how many pods it was made, and how many have come since
        self._made_of, self._since = 0.0, 0

    def note(self, claims: Sequence[ResourceClaim], needs: NodeNeeds) -> None:
        """A pod came."""
        asked = asked_key(claims)
        self._claims.setdefault(asked, tuple(claims))
        key = (asked, needs)
        self._counts[key] = self._counts.get(key, 0.0) + 1.0
        self._pods += 1.0
        self._since += 1
        if self._pods >= 2 * WINDOW:
            self._forget_half()

    def mix(self) -> DemandMix:
        """Of all that came, give or take the last ones."""
        if self._since >= max(1, min(self._made_of, WINDOW)):
            self._since = 0
            demands = (
                Demand(claims=self._claims[asked], needs=needs, weight=count)
                for (asked, needs), count in self._counts.items()
            )
            made = DemandMix.of(demands)
            self._mix, self._made_of = made.or_known(self._mix, self._made_of), made.pods
        return self._mix

    def _forget_half(self) -> None:
        self._counts = {key: count / 2 for key, count in self._counts.items() if count > 1.0}
        asked = {key for key, _ in self._counts}
        self._claims = {key: claims for key, claims in self._claims.items() if key in asked}
        self._pods = sum(self._counts.values())
