"""What pods usually ask for: the mix of demands by which the policy `fragmentation` judges a placement.

A `DemandMix` is a value. What is derived from a mix is cached for as long as the mix is the same, so `UsualDemands`,
which learns it from the pods that there are, replaces it only now and then: when the number of pods has doubled, or so.
A file (`MANCIPLE_DEMANDS`) may declare a mix instead:

- share: 3                 # how many of all pods, compared with the others; 1 by default
  cpu: "8"                 # what such a pod takes of its node
  memory: 32Gi
  claims:                  # specs of ResourceClaims
  - devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import yaml
from django.core.exceptions import ImproperlyConfigured

from claims.kinds.resource_claims import ResourceClaim
from manciple.wire.codec import decode_document
from manciple.wire.errors import ApiError
from manciple.wire.quantity import Quantity
from manciple.wire.resources import CLAIMS, kind
from scheduling.allocator.requests import asked_key

#: New pods after which a mix is learned again, at the latest.
MOST_NEW = 2_000
#: Most demands of a mix: the most frequent ones.
MOST_DEMANDS = 400
#: A demand with more requests and alternatives, selectors, or characters in its selectors is not moderate.
MOST_OPTIONS, MOST_SELECTORS, MOST_TEXT = 64, 64, 16_384
#: A mix that was learned from this many pods is kept while later pods differ from it only by chance: by fewer standard
#: deviations than this, in every demand.
ENOUGH, DEVIATIONS = 2_000, 4.0
#: Weights from here on are mistakes; demands that are rarer than this, compared with the most frequent, are left out.
MOST_WEIGHT, RARE = 1e100, 1e-9


class NodeNeeds(NamedTuple):
    """The cpu (thousandths) and memory (MiB) that a pod takes of its node, or that a node has left."""

    cpu: int = 0
    memory: int = 0

    @classmethod
    def of(cls, requests: Mapping[str, int]) -> NodeNeeds:
        """Rounded up. requests: nanos by resource name."""
        return cls(-(-requests.get("cpu", 0) // 10**6), -(-requests.get("memory", 0) // (10**9 << 20)))


class FreeCapacity(NamedTuple):
    """In devices. stranded: how much of what is free is expected to stay unused, by what pods usually ask for."""

    free: float = 0.0
    stranded: float = 0.0


#: The needs of a pod without cpu and memory requests.
NOTHING_ELSE = NodeNeeds()


class NodeRoom(Protocol):
    """The cpu and memory that nodes have left."""

    def left(self, name: str) -> NodeNeeds:
        """What a node has left."""

    def changed_since(self, mark: int) -> tuple[Iterable[str] | None, int]:
        """(nodes of which more or less is left since that mark, None if that may be any; the present mark)."""


class RoomTable:
    """A `NodeRoom` that is told of every pod that comes or goes."""

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
    """What some pods ask for. weight: how many such pods there are, compared with the other demands of a mix."""

    claims: tuple[ResourceClaim, ...]
    needs: NodeNeeds = NOTHING_ELSE
    weight: float = 1.0

    @property
    def namespace(self) -> str:
        return self.claims[0].metadata.namespace if self.claims else ""

    @property
    def is_moderate(self) -> bool:
        """Whether it is small enough to be part of a mix."""
        requests = [one for claim in self.claims for one in claim.spec.devices.requests]
        options = [exact for one in requests for exact in (one.first_available or (one.exactly,)) if exact]
        if len(options) > MOST_OPTIONS or sum(len(one.selectors) for one in options) > MOST_SELECTORS:
            return False
        return sum(len(one.cel.expression) for exact in options for one in exact.selectors if one.cel) <= MOST_TEXT


@dataclass(frozen=True, slots=True, eq=False)
class DemandMix:
    """Compared by identity. pods: how many it was learned from."""

    demands: tuple[Demand, ...] = ()
    pods: float = 0.0

    @classmethod
    def of(cls, demands: Iterable[Demand]) -> DemandMix:
        """The most frequent demands, equal ones as one, in an order that does not depend on that of `demands`. Demands
        with no weight, or hardly any, are left out. If there are too many, every namespace gets the same number.
        """
        merged: dict[tuple[bytes, NodeNeeds], Demand] = {}
        for one in demands:
            if not 0 < one.weight < MOST_WEIGHT:
                continue
            key = (asked_key(one.claims), one.needs)
            same = merged.get(key)
            weight = one.weight + (same.weight if same else 0.0)
            merged[key] = Demand(claims=one.claims, needs=one.needs, weight=weight)
        kept = sorted(merged, key=lambda key: (-merged[key].weight, key))
        if len(kept) > MOST_DEMANDS:
            before, rank = Counter[str](), dict[tuple[bytes, NodeNeeds], int]()
            for key in kept:
                rank[key] = before[merged[key].namespace]
                before[merged[key].namespace] += 1
            kept = sorted(sorted(kept, key=rank.__getitem__)[:MOST_DEMANDS], key=lambda key: (-merged[key].weight, key))
        kept = [key for key in kept if merged[key].weight > RARE * merged[kept[0]].weight]
        return cls(tuple(merged[key] for key in kept), sum(merged[key].weight for key in kept))

    def or_last(self, last: DemandMix, pods: float) -> DemandMix:
        """`last` if this mix is equal to it, or if `last` was learned from many pods and the difference may be chance.
        pods: from how many `last` was learned, by now.
        """
        if not last.pods or not self.pods:
            return self
        ours, theirs = self.shares(), last.shares()
        if ours == theirs:
            return last
        if pods < ENOUGH:
            return self
        chance = 1 / pods + 1 / self.pods
        pairs = ((ours.get(key, 0.0), theirs.get(key, 0.0)) for key in ours.keys() | theirs.keys())
        is_chance = all(abs(one - other) < DEVIATIONS * sqrt((one + other) / 2 * chance) for one, other in pairs)
        return last if is_chance else self

    def shares(self) -> dict[Hashable, float]:
        """By what pods ask for, the share of all pods that do."""
        return {(asked_key(one.claims), one.needs): one.weight / self.pods for one in self.demands}


#: The mix while nothing is known.
NO_DEMANDS = DemandMix()


@dataclass(slots=True, eq=False)
class UsualDemands:
    """What the pods that there are ask for. Nothing is stored: every process that follows the log learns the same mix,
    and a worker that starts knows it at once.
    """

    _mix: DemandMix = NO_DEMANDS
    #: the largest number of pods that a mix was learned from, and the last one's
    _pods: float = 0.0
    _asked: float = 0.0
    #: pods that have come since the last learning
    _come: int = 0

    def note(self) -> None:
        """A pod has come."""
        self._come += 1

    def mix(self, asked: Callable[[], Iterable[Demand]]) -> DemandMix:
        """The last mix while that will do. asked: what the pods that there are ask for, or the latest of them."""
        if self._come >= max(1, min(self._asked, MOST_NEW)):
            self._come, last, learned = 0, self._mix, DemandMix.of(asked())
            self._asked = learned.pods
            self._mix = learned.or_last(last, self._pods)
            self._pods = max(self._pods, learned.pods) if self._mix is last else learned.pods
        return self._mix


@lru_cache(maxsize=1)
def declared_demands(path: str) -> DemandMix:
    """The mix that a file declares, read once. Raises: ImproperlyConfigured."""
    try:
        listed = yaml.safe_load(Path(path).read_text())
        return DemandMix.of(map(_declared, listed))
    except (OSError, yaml.YAMLError, ApiError, KeyError, TypeError, ValueError, AttributeError) as error:
        expected = "a list of {share, cpu, memory, claims: [specs of ResourceClaims]}"
        raise ImproperlyConfigured(f"MANCIPLE_DEMANDS: {path} is not {expected}: {error}") from error


def _declared(one: Mapping[str, Any]) -> Demand:
    share = float(one.get("share", 1))
    if not 0 < share < MOST_WEIGHT:
        raise ValueError(f"a share must be more than 0, not {share}")
    return Demand(
        claims=tuple(map(_claim, one.get("claims", ()))),
        needs=NodeNeeds.of({name: Quantity.parse(str(one.get(name, "0"))).nanos for name in ("cpu", "memory")}),
        weight=share,
    )


def _claim(spec: Mapping[str, Any]) -> ResourceClaim:
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "declared"}, "spec": spec}
    claims = kind(CLAIMS)
    return cast("ResourceClaim", claims.prepare_create(decode_document(claims, body, strictness="Strict").object))
