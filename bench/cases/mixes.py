"""Made-up mixes of requests for partitions of cards, and for pairs of linked GPUs, played under a policy; and what the
best policy could have made of a small one.

`fill`: requests come until 130% of the capacity has been asked for, none leaves. `churn`: at a load of 70% requests
come and go; then come as many of the largest kind as find a place: what is left free then is stranded for them.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from cases.demand_history import DemandHistory
from cases.demands import DRIVER, Json, exactly, where
from cases.trace import ASKED, POLICIES
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import DeviceClass, ResourceSlice
from manciple.wire.codec import decode_value
from scheduling.allocator import Allocated, Inventory, NodeView, place
from scheduling.placement.demands import NodeNeeds
from scheduling.placement.fragmentation.policy import Fragmentation

#: MIG profiles of an A100: compute slices, memory slices, where the memory may begin.
PROFILES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "1g": (1, 1, tuple(range(7))),
    "2g": (2, 2, (0, 2, 4)),
    "3g": (3, 4, (0, 4)),
    "4g": (4, 4, (0,)),
    "7g": (7, 8, (0,)),
}
COMPUTE, MEMORY = 7, 8


@dataclass(frozen=True, kw_only=True)
class MixedRequest:
    """weight: how often it comes. size: of the capacity that is counted."""

    name: str
    weight: float
    size: int
    devices: Json


@dataclass(frozen=True, kw_only=True)
class SyntheticMix:
    """published: the slices of a node, by its name. capacity: of a node."""

    requests: tuple[MixedRequest, ...]
    published: Callable[[str], list[ResourceSlice]]
    capacity: int
    nodes: int

    @property
    def mean(self) -> float:
        return sum(one.weight * one.size for one in self.requests) / sum(one.weight for one in self.requests)


def mig_mix(weights: dict[str, float], *, nodes: int, cards: int = 2) -> SyntheticMix:
    requests = tuple(
        MixedRequest(name=name, weight=weight, size=PROFILES[name][0], devices=_one_of(name))
        for name, weight in weights.items()
    )
    return SyntheticMix(
        requests=requests, published=lambda node: _cards(node, cards), capacity=COMPUTE * cards, nodes=nodes
    )


def pair_mix(single: float, pair: float, *, nodes: int, gpus: int = 8) -> SyntheticMix:
    linked = {"requests": [{"name": "gpu", "exactly": exactly(2)}]}
    linked["constraints"] = [{"matchAttribute": f"{DRIVER}/link"}]
    requests = (
        MixedRequest(
            name="single", weight=single, size=1, devices={"requests": [{"name": "gpu", "exactly": exactly()}]}
        ),
        MixedRequest(name="pair", weight=pair, size=2, devices=linked),
    )
    return SyntheticMix(requests=requests, published=lambda node: [_linked(node, gpus)], capacity=gpus, nodes=nodes)


def _one_of(profile: str) -> Json:
    selectors = where(f'device.attributes["{DRIVER}"].profile == "{profile}"')
    return {"requests": [{"name": "gpu", "exactly": exactly(selectors=selectors)}]}


def _cards(node: str, cards: int) -> list[ResourceSlice]:
    """Every place of every profile is a device, which draws on its slices of the memory, and on the compute slices."""
    counters = {f"memory-{at}": {"value": "1"} for at in range(MEMORY)} | {"compute": {"value": str(COMPUTE)}}
    devices = [
        {
            "name": f"gpu-{card}-{name}-{begin}",
            "attributes": {"profile": {"string": name}},
            "consumesCounters": [
                {
                    "counterSet": f"gpu-{card}",
                    "counters": {f"memory-{at}": {"value": "1"} for at in range(begin, begin + memory)}
                    | {"compute": {"value": str(compute)}},
                }
            ],
        }
        for card in range(cards)
        for name, (compute, memory, begins) in PROFILES.items()
        for begin in begins
    ]
    parts: list[Json] = [{"sharedCounters": [{"name": f"gpu-{card}", "counters": counters} for card in range(cards)]}]
    parts += [{"devices": devices[at : at + 128]} for at in range(0, len(devices), 128)]
    return [_slice(node, number, len(parts), part) for number, part in enumerate(parts)]


def _linked(node: str, gpus: int) -> ResourceSlice:
    devices = [{"name": f"gpu-{at}", "attributes": {"link": {"int": at // 2}}} for at in range(gpus)]
    return _slice(node, 0, 1, {"devices": devices})


def _slice(node: str, number: int, count: int, part: Json) -> ResourceSlice:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, **part}
    made: ResourceSlice = decode_value(ResourceSlice, {"metadata": {"name": f"{node}-{number}"}, "spec": spec})
    return made


# Playing -------------------------------------------------------------------------------------------------------------


class MixPlayer:
    """A cluster to which requests of a mix come. before: so many have come and gone; the policy has heard of them."""

    def __init__(self, mix: SyntheticMix, policy: str, *, before: int = 0) -> None:
        self._policy = policy
        self._inventory = Inventory()
        self._inventory.apply_class(decode_value(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {}}))
        self._nodes = tuple(NodeView(f"node-{number:03}") for number in range(mix.nodes))
        for node in self._nodes:
            for one in mix.published(node.name):
                self._inventory.apply_slice(one)
        self._history = DemandHistory()
        self._come = 0
        draw = random.Random(before)
        for number in range(before):
            self._history.note((_claim(arriving(mix, draw), number),), NodeNeeds())

    def place(self, request: MixedRequest) -> str:
        """The uid of its claim; "" where there was no place."""
        self._come += 1
        claims = (_claim(request, self._come),)
        uid = claims[0].metadata.uid
        score = POLICIES[self._policy]
        if score is None:
            self._history.note(claims, NodeNeeds())
            score = Fragmentation(mix=self._history.mix())
        found = place(self._inventory.snapshot(), claims, self._nodes, score=score)
        if found.node is None or not isinstance(found.outcome, Allocated):
            return ""
        self._inventory.assume(((uid, found.outcome.results[0]),))
        return uid

    def leave(self, uid: str) -> None:
        self._inventory.forget((uid,))


def _claim(request: MixedRequest, number: int) -> ResourceClaim:
    meta = {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-{number}"}
    made: ResourceClaim = decode_value(ResourceClaim, {"metadata": meta, "spec": {"devices": request.devices}})
    return made


def arriving(mix: SyntheticMix, draw: random.Random) -> MixedRequest:
    return draw.choices(mix.requests, [one.weight for one in mix.requests])[0]


def sequence(mix: SyntheticMix, seed: int) -> list[MixedRequest]:
    """Until 130% of the capacity has been asked for."""
    draw, found, asked = random.Random(seed), list[MixedRequest](), 0
    while asked < ASKED * mix.capacity * mix.nodes:
        found.append(arriving(mix, draw))
        asked += found[-1].size
    return found


def fill(mix: SyntheticMix, *, policy: str, seed: int, before: int = 0) -> float:
    """The part of the capacity that is stranded. before: how many requests came before, and have gone."""
    player, total = MixPlayer(mix, policy, before=before), mix.capacity * mix.nodes
    return 1 - sum(one.size for one in sequence(mix, seed) if player.place(one)) / total


def churn(mix: SyntheticMix, *, policy: str, seed: int, load: float = 0.7, lives: float = 4.0) -> float:
    """The part of the capacity that is stranded. lives: how long requests come and go, in their mean lifetimes."""
    player, draw, total = MixPlayer(mix, policy), random.Random(seed), mix.capacity * mix.nodes
    now, used, ends = 0.0, 0, list[tuple[float, str, int]]()
    while now < lives:
        now += draw.expovariate(load * total / mix.mean)
        while ends and ends[0][0] <= now:
            _, uid, size = heapq.heappop(ends)
            player.leave(uid)
            used -= size
        request, life = arriving(mix, draw), draw.expovariate(1.0)
        if uid := player.place(request):
            used += request.size
            heapq.heappush(ends, (now + life, uid, request.size))
    largest = mix.requests[-1]
    while player.place(largest):
        used += largest.size
    return 1 - used / total


# The best there is ---------------------------------------------------------------------------------------------------


def best_mig(requests: Sequence[MixedRequest], cards: int) -> float:
    """The part of the capacity that is stranded if every request that finds a place gets the best of its places: of all
    ways to place them in this order, the one that leaves least. Tries them all.
    """

    @cache
    def most(at: int, free: tuple[tuple[int, int], ...]) -> int:
        """free: of each card, its memory slices that are free, a bit each, and how many compute slices."""
        if at == len(requests):
            return 0
        compute, memory, begins = PROFILES[requests[at].name]
        found = -1
        for number, (slots, left) in enumerate(free):
            if left >= compute and (slots, left) not in free[:number]:
                for begin in begins:
                    taken = ((1 << memory) - 1) << begin
                    if slots & taken == taken:
                        after = (*free[:number], (slots & ~taken, left - compute), *free[number + 1 :])
                        found = max(found, compute + most(at + 1, tuple(sorted(after))))
        return most(at + 1, free) if found < 0 else found

    whole = ((1 << MEMORY) - 1, COMPUTE)
    return 1 - most(0, (whole,) * cards) / (COMPUTE * cards)


def best_mig_unforeseen(mix: SyntheticMix, cards: int) -> float:
    """The part of the capacity that is stranded, as expected, by the best policy that knows how often what comes
    but not what comes next: no other policy can do better. Tries everything (two cards: a second).
    """
    whole, total = ((1 << MEMORY) - 1, COMPUTE), sum(one.weight for one in mix.requests)

    @cache
    def after(card: tuple[int, int], name: str) -> tuple[tuple[int, int], ...]:
        compute, memory, begins = PROFILES[name]
        spans = [((1 << memory) - 1) << begin for begin in begins if card[1] >= compute]
        return tuple({(card[0] & ~span, card[1] - compute) for span in spans if card[0] & span == span})

    @cache
    def most(asked: int, free: tuple[tuple[int, int], ...]) -> float:
        if asked >= ASKED * COMPUTE * cards:
            return 0.0
        expected = 0.0
        for one in mix.requests:
            states = {
                tuple(sorted((*free[:number], state, *free[number + 1 :])))
                for number, card in enumerate(free)
                for state in after(card, one.name)
            }
            best = max((one.size + most(asked + one.size, state) for state in states), default=-1.0)
            expected += one.weight / total * (most(asked + one.size, free) if best < 0 else best)
        return expected

    return 1 - most(0, (whole,) * cards) / (COMPUTE * cards)


def best_pairs(requests: Sequence[MixedRequest], gpus: int) -> float:
    """As `best_mig`, for pairs: it is enough to count those that are whole and those of which one is left."""

    @cache
    def most(at: int, whole: int, half: int) -> int:
        if at == len(requests):
            return 0
        if requests[at].name == "pair":
            return most(at + 1, whole, half) if not whole else 2 + most(at + 1, whole - 1, half)
        ways = []
        if half:
            ways.append(1 + most(at + 1, whole, half - 1))
        if whole:
            ways.append(1 + most(at + 1, whole - 1, half + 1))
        return max(ways) if ways else most(at + 1, whole, half)

    return 1 - most(0, gpus // 2, 0) / gpus


def best_churned(mix: SyntheticMix, seed: int, *, load: float = 0.7, lives: float = 4.0) -> float:
    """As `churn`, for pairs, of the best policy that moves nothing and does not know who stays how long: singles go to
    pairs of which one is left. It has no other choice: whole pairs are all alike, and so are those who stay.
    """
    draw, total = random.Random(seed), mix.capacity * mix.nodes
    free = dict.fromkeys(range(total // 2), 2)
    now, used, ends = 0.0, 0, list[tuple[float, int, int]]()

    def find(size: int) -> int | None:
        return next((pair for left in range(size, 3) for pair, has in free.items() if has == left), None)

    while now < lives:
        now += draw.expovariate(load * total / mix.mean)
        while ends and ends[0][0] <= now:
            _, pair, size = heapq.heappop(ends)
            free[pair] += size
            used -= size
        request, life = arriving(mix, draw), draw.expovariate(1.0)
        found = find(request.size)
        if found is not None:
            free[found] -= request.size
            used += request.size
            heapq.heappush(ends, (now + life, found, request.size))
    return 1 - (used + 2 * sum(left == 2 for left in free.values())) / total
