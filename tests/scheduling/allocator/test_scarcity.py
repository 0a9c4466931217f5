"""Under `fragmentation` what others depend on is left to them, by what is free now and however that came about."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims.kinds.resource_claims import ResourceClaim
from manciple.copying import copy_of
from scheduling.allocator import Allocated, Inventory, NodeView, place
from scheduling.allocator.index import NodeIndex
from scheduling.placement.demands import Demand, DemandMix, NodeNeeds, RoomTable
from scheduling.placement.fragmentation.policy import Fragmentation, NodeOutlooks
from tests.examples import some
from tests.scheduling.allocator.cases import GPU, Json, device, make_claim, make_inventory, make_slice, request


def shared(name: str, model: str) -> Json:
    return device(name, model=model) | {
        "allowMultipleAllocations": True,
        "capacity": {"milli": {"value": "1000"}},
    }


def share(milli: int, model: str = "") -> ResourceClaim:
    where = f'device.attributes["{GPU}"].model == "{model}"' if model else ""
    return make_claim(request(where=where, capacity={"requests": {"milli": str(milli)}}))


def cluster(*nodes: Sequence[Json]) -> tuple[Inventory, tuple[NodeView, ...]]:
    """A node for each list of devices."""
    slices = [make_slice(*devices, pool=f"n-{at}", nodeName=f"n-{at}") for at, devices in enumerate(nodes)]
    return make_inventory(*slices), tuple(NodeView(f"n-{at}") for at in range(len(nodes)))


def several(model: str, count: int) -> list[Json]:
    return [shared(f"{model}-{at}", model) for at in range(count)]


def mix_of(*claims: tuple[float, ResourceClaim]) -> DemandMix:
    return DemandMix.of(Demand(claims=(claim,), weight=1000 * weight) for weight, claim in claims)


def put(inventory: Inventory, claim: ResourceClaim, nodes: Sequence[NodeView], score: Fragmentation, uid: str) -> str:
    """The device that it gets; "" where it gets none."""
    found = place(inventory.snapshot(), [claim], nodes, score=score)
    if not isinstance(found.outcome, Allocated):
        return ""
    inventory.assume([(uid, found.outcome.results[0])])
    return found.outcome.results[0].devices.results[0].device


@pytest.mark.parametrize(("held", "other"), ["ab", "ba"])
def test_of_two_models_the_one_is_taken_of_which_more_is_free_for_those_who_accept_nothing_else(
    held: str, other: str
) -> None:
    inventory, nodes = cluster(*([shared("a", "a")] for _ in range(8)), *([shared("b", "b")] for _ in range(8)))
    mix = mix_of((2, share(1000)), (1, share(1000, "a")), (1, share(1000, "b")))
    policy = Fragmentation(mix=mix)
    for number in range(5):
        assert put(inventory, share(1000, held), nodes, policy, f"held-{number}") == held
    taken = [put(inventory, share(1000), nodes, policy, f"any-{number}") for number in range(4)]
    assert taken == [other] * 4, "of the other there were eight, of this one three"


def test_one_model_is_left_alone_on_a_node_that_has_two() -> None:
    inventory, nodes = cluster([shared("rare", "rare"), *several("usual", 3)])
    mix = mix_of((2, share(1000)), (1, share(1000, "rare")))
    taken = [put(inventory, share(1000), nodes, Fragmentation(mix=mix), f"any-{at}") for at in range(4)]
    assert taken[-1] == "rare"


def test_the_fewer_whole_nodes_there_are_the_rather_they_are_left_to_those_who_need_one() -> None:
    inventory, nodes = cluster(*(several("a", 4) for _ in range(4)), *([shared("b", "b")] for _ in range(12)))
    mix = mix_of((8, share(1000)), (1, make_claim(request(count=4, capacity={"requests": {"milli": "1000"}}))))
    taken = [put(inventory, share(1000), nodes, Fragmentation(mix=mix), f"any-{at}") for at in range(12)]
    assert taken == ["b"] * 12


@settings(max_examples=some(30), deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_every_node_is_scored_as_if_it_had_always_been_as_it_is(seed: int) -> None:
    draw = random.Random(seed)
    inventory, nodes = cluster(
        *([*several("a", draw.choice((1, 4))), *several("b", draw.choice((0, 2)))] for _ in range(6)), several("b", 4)
    )
    wide = make_claim(request(count=4, capacity={"requests": {"milli": "1000"}}))
    claims = [share(300), share(1000), share(500, "a"), share(1000, "b"), wide]
    mix = mix_of(*((draw.random() + 0.1, claim) for claim in claims))
    room = RoomTable({node.name: NodeNeeds(16_000, 65_536) for node in nodes})
    held: list[tuple[str, str]] = []
    for number in range(25):
        policy = Fragmentation(mix=mix, room=room, needs=NodeNeeds(draw.choice((500, 4000)), 2048))
        if held and draw.random() < 0.4:
            uid, name = held.pop(draw.randrange(len(held)))
            inventory.forget([uid])
            room.take(name, NodeNeeds(2000, 2048), sign=-1)
        claim = draw.choice(claims)
        found = place(inventory.snapshot(), [claim], nodes, score=policy)
        assert scores(inventory, claim, nodes, policy) == scores(copy_of(inventory), claim, nodes, policy)
        if found.node is not None and isinstance(found.outcome, Allocated):
            inventory.assume([(f"uid-{number}", found.outcome.results[0])])
            room.take(found.node.name, NodeNeeds(2000, 2048))
            held.append((f"uid-{number}", found.node.name))


def scores(inventory: Inventory, claim: ResourceClaim, nodes: Sequence[NodeView], policy: Fragmentation) -> object:
    """Of every node, to the last bit, as they are kept; prices included."""
    snapshot = inventory.snapshot()
    place(snapshot, [claim], nodes, score=policy)
    indexed = NodeIndex.of(snapshot, nodes)
    assert indexed is not None
    index, among = indexed
    outlooks = index.memo[NodeOutlooks]
    assert isinstance(outlooks, NodeOutlooks)
    ranking = next(reversed(outlooks.rankings.values()))
    return [(ranking.name_of(one.number), one.stranded) for one in ranking.best_first(among)]
