"""Choosing one of many nodes."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from claims.causes.messages import message
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.pools import PoolKey
from scheduling.allocator import (
    Allocated,
    AllocationFailed,
    Fit,
    Inventory,
    NodePlacement,
    NodeScore,
    NodeView,
    Snapshot,
    Unallocatable,
    Undecided,
    allocate,
    place,
)
from tests.examples import some
from tests.scheduling.allocator.cases import (
    GPU,
    device,
    make_claim,
    make_class,
    make_inventory,
    make_slice,
    request,
)


def _cluster(*sizes: int) -> tuple[Inventory, tuple[NodeView, ...]]:
    """One pool a node, of so many devices in two groups."""
    nodes = tuple(NodeView(f"node-{number}") for number in range(len(sizes)))
    slices = [
        make_slice(*(device(f"d-{index}", group=index // 2) for index in range(size)), pool=one.name, nodeName=one.name)
        for one, size in zip(nodes, sizes, strict=True)
    ]
    return make_inventory(*slices), nodes


def _where(placement: NodePlacement) -> str:
    assert placement.node is not None
    return placement.node.name


def test_the_node_with_the_fewest_free_devices_wins_and_then_the_first_by_name() -> None:
    inventory, nodes = _cluster(4, 2, 3, 2)
    assert _where(place(inventory.snapshot(), [make_claim()], nodes)) == "node-1"
    assert _where(place(inventory.snapshot(), [make_claim(request(count=3))], nodes)) == "node-2"


def test_another_score_chooses_another_node() -> None:
    inventory, nodes = _cluster(4, 2, 3)

    def most_free(fit: Fit) -> float:
        return fit.free

    assert _where(place(inventory.snapshot(), [make_claim()], nodes, score=NodeScore(most_free))) == "node-0"


def test_an_earlier_alternative_beats_a_better_score() -> None:
    inventory, nodes = _cluster(4, 2)
    group = 'device.attributes["gpu.example.com"].group == {}'
    listed = [
        {"name": f"sub-{number}", **request(where=group.format(wanted))["exactly"]}
        for number, wanted in enumerate((1, 0))
    ]
    claim = make_claim({"name": "r", "firstAvailable": listed})
    assert _where(place(inventory.snapshot(), [claim], nodes)) == "node-0"


def test_an_error_on_one_node_holds_the_pod_though_another_node_would_do() -> None:
    inventory, nodes = _cluster(1, 1)
    inventory.apply_slice(make_slice(device("odd", other=1), pool="node-1", nodeName="node-1"))
    inventory.apply_class(make_class("gpu", 'device.attributes["gpu.example.com"].group == 0'))
    for order in (nodes, nodes[::-1], list(nodes)):
        for _ in range(3):
            placement = place(inventory.snapshot(), [make_claim()], order)
            assert isinstance(placement.outcome, AllocationFailed)
            assert "node-1/odd: CEL runtime error: no such key: group" in placement.outcome.error


def test_where_no_node_fits_every_node_says_why() -> None:
    inventory, nodes = _cluster(1, 2)
    placement = place(inventory.snapshot(), [make_claim(request(count=3))], nodes)
    assert placement.node is None
    assert isinstance(placement.outcome, Unallocatable)
    assert {
        name: f"`{name}` sees" in message(one.reasons[0].cause)
        for name, one in placement.refusals.items()
        if isinstance(one, Unallocatable)
    } == {
        "node-0": True,
        "node-1": True,
    }


def test_no_nodes_at_all_is_a_no() -> None:
    inventory, _ = _cluster(1)
    assert place(inventory.snapshot(), [make_claim()], ()).outcome == Unallocatable()


def test_the_same_nodes_in_part_or_with_others_are_answered_alike() -> None:
    inventory, nodes = _cluster(1, 1, 1)
    for few in (nodes, nodes[1:], nodes[::-1], nodes[2:], nodes):
        assert _where(place(inventory.snapshot(), [make_claim()], few)) == min(node.name for node in few)


def test_a_node_with_new_labels_is_looked_at_again() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]
    inventory = make_inventory(make_slice("d-0", nodeSelector={"nodeSelectorTerms": terms}))
    snapshot = inventory.snapshot()
    assert place(snapshot, [make_claim()], [NodeView("n", {"zone": "a"})]).node is None
    assert _where(place(snapshot, [make_claim()], [NodeView("n", {"zone": "b"})])) == "n"


def test_an_older_snapshot_is_answered_as_it_was() -> None:
    inventory, nodes = _cluster(1)
    before = inventory.snapshot()
    outcome = place(before, [make_claim()], nodes).outcome
    assert isinstance(outcome, Allocated)
    inventory.assume([("alice", outcome.results[0])])
    assert place(inventory.snapshot(), [make_claim()], nodes).node is None
    assert _where(place(before, [make_claim()], nodes)) == "node-0"


def test_a_search_that_was_stopped_is_undecided_where_no_other_node_fits() -> None:
    inventory, nodes = _cluster(4, 1)
    claim = make_claim(request(count=2), constraints=[{"distinctAttribute": "gpu.example.com/group"}])
    assert isinstance(place(inventory.snapshot(), [claim], nodes, limit=1).outcome, Undecided)
    assert isinstance(allocate(inventory.snapshot(), [claim], nodes[0], limit=3), Allocated)


def _shapes() -> list[ResourceClaim]:
    group = 'device.attributes["gpu.example.com"].group == {}'
    listed = [{"name": f"sub-{number}", **request(count=2, where=group.format(number))["exactly"]} for number in (1, 0)]
    return [
        make_claim(),
        make_claim(request(count=2)),
        make_claim(request("a"), request("b", count=2), match="gpu.example.com/group"),
        make_claim(request(where=group.format(1))),
        make_claim(request(adminAccess=True)),
        make_claim({"name": "r", "firstAvailable": listed}),
        make_claim({"name": "r", "firstAvailable": listed}, request("s"), match="gpu.example.com/group"),
    ]


def _asking_every_node(snapshot: Snapshot, claim: ResourceClaim, nodes: tuple[NodeView, ...]) -> str:
    """The rule by itself: the fewest alternatives passed over, then the fewest free devices, then the name."""
    fitting = []
    for node in nodes:
        outcome = allocate(snapshot, [claim], node)
        if isinstance(outcome, Allocated):
            passed = any(one.request == "r/sub-0" for one in outcome.results[0].devices.results)
            held = len(snapshot.pool_usage(PoolKey(GPU, node.name, node.name)).taken)
            fitting.append((passed, snapshot.on_node(node).visible.bit_count() - held, node.name))
    return min(fitting)[2] if fitting else ""


@settings(max_examples=some(40), deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_the_index_gives_the_answer_of_asking_every_node(seed: int, sizes: list[int]) -> None:
    draw = random.Random(seed)
    inventory, nodes = _cluster(*sizes)
    held: list[str] = []
    for number in range(25):
        if held and draw.random() < 0.3:
            inventory.forget([held.pop(draw.randrange(len(held)))])
        claim = draw.choice(_shapes())
        snapshot = inventory.snapshot()
        placement = place(snapshot, [claim], nodes)
        assert (placement.node.name if placement.node else "") == _asking_every_node(snapshot, claim, nodes)
        if placement.node is not None and isinstance(placement.outcome, Allocated):
            assert placement.outcome.results == allocate(snapshot, [claim], placement.node).results  # type: ignore[union-attr]
            inventory.assume([(f"uid-{number}", placement.outcome.results[0])])
            held.append(f"uid-{number}")
