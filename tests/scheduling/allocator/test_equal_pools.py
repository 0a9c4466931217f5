"""Pools of several nodes with one name: usage, shared capacity and counters are each node's own."""

from __future__ import annotations

from typing import Any

import pytest

from claims.kinds.resource_claims import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.pools import PoolKey
from scheduling.allocator import Allocated, Inventory, NodeView, allocate, place
from scheduling.allocator.allocation import only_on
from tests.scheduling.allocator.cases import GPU, answer, make_claim, make_inventory, make_slice, names, node, request

ONE, TWO = node("node-1"), node("node-2")
NODES = (ONE, TWO)


def on(view: NodeView, *devices: Any, **spec: Any) -> ResourceSlice:
    return make_slice(*devices, pool="p", name=f"of-{view.name}", nodeName=view.name, **spec)


def network(*devices: Any, **spec: Any) -> ResourceSlice:
    return make_slice(*devices, pool="p", name="network", allNodes=True, **spec)


def held(inventory: Inventory, uid: str, device: str, view: NodeView | None) -> None:
    result = DeviceRequestAllocationResult(request="r", driver=GPU, pool="p", device=device)
    selector = only_on(view) if view else None
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)), node_selector=selector)
    inventory.assume([(uid, allocation)])


def free(inventory: Inventory) -> list[str]:
    """The nodes on which a claim finds a device."""
    return [one.name for one in NODES if isinstance(answer(inventory, make_claim(request()), node=one), Allocated)]


def test_each_node_gives_its_own_device_and_takes_its_own_back() -> None:
    inventory = make_inventory(on(ONE, "d0"), on(TWO, "d0", generation=2**63 - 1))
    placed = []
    for number in range(3):
        found = place(inventory.snapshot(), [make_claim(request(), name=f"c{number}")], NODES)
        if isinstance(found.outcome, Allocated):
            placed.append(found.node.name if found.node else "")
            inventory.assume([(f"uid-{number}", found.outcome.results[0])])
    assert sorted(placed) == ["node-1", "node-2"]
    inventory.forget([f"uid-{placed.index('node-1')}"])
    assert free(inventory) == ["node-1"]
    found = place(inventory.snapshot(), [make_claim(request(), name="again")], NODES)
    assert found.node == ONE


def test_an_allocation_without_a_node_is_in_use_on_all() -> None:
    inventory = make_inventory(on(ONE, "d0"), on(TWO, "d0"))
    held(inventory, "by-hand", "d0", None)
    assert free(inventory) == []
    inventory.remove_slice("of-node-2")
    assert free(inventory) == []
    inventory.apply_slice(on(TWO, "d0"))
    assert free(inventory) == []
    inventory.forget(["by-hand"])
    assert free(inventory) == ["node-1", "node-2"]


def test_what_may_be_of_a_pool_of_all_nodes_is_in_use_there_too() -> None:
    inventory = make_inventory(network({"name": "d0", "bindsToNode": True}))
    held(inventory, "bound", "d0", ONE)
    assert free(inventory) == []
    inventory.apply_slice(on(ONE, "d0", generation=9))
    assert free(inventory) == []
    inventory.remove_slice("network")
    inventory.apply_slice(on(TWO, "d0"))
    assert free(inventory) == ["node-2"]
    inventory.apply_slice(network("d0"))
    assert (free(inventory), inventory.snapshot().pool_usage(PoolKey(GPU, "p")).taken) == (["node-2"], {"d0": 1})
    inventory.forget(["bound"])
    assert free(inventory) == ["node-1", "node-2"]


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_a_node_sees_the_newer_of_its_own_pool_and_that_of_all_nodes(generation: int) -> None:
    inventory = make_inventory(on(ONE, "own", generation=2), network("all", generation=generation))
    outcome = answer(inventory, make_claim(request()), node=ONE)
    assert names(outcome) == [["all" if generation > 2 else "own"]]
    assert names(answer(inventory, make_claim(request()), node=TWO)) == [["all"]]


COUNTERS: dict[str, Any] = {"sharedCounters": [{"name": "c", "counters": {"memory": {"value": "4"}}}], "count": 2}


def drawing(name: str, amount: str) -> dict[str, Any]:
    return {"name": name, "consumesCounters": [{"counterSet": "c", "counters": {"memory": {"value": amount}}}]}


def test_counters_are_each_nodes_own() -> None:
    slices = [on(one, drawing("half", "2"), drawing("most", "3"), count=2) for one in NODES]
    sets = [make_slice(pool="p", name=f"sets-{one.name}", nodeName=one.name, **COUNTERS) for one in NODES]
    inventory = make_inventory(*slices, *sets)
    held(inventory, "first", "half", ONE)
    assert free(inventory) == ["node-2"]
    held(inventory, "second", "most", TWO)
    assert free(inventory) == []
    inventory.forget(["first"])
    assert free(inventory) == ["node-1"]


def test_the_rest_of_a_shared_device_is_each_nodes_own() -> None:
    shared = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "2"}}}
    inventory = make_inventory(on(ONE, shared), on(TWO, shared))
    wanted = request(capacity={"requests": {"memory": "1"}})
    for number, expected in enumerate([NODES] * 2 + [(TWO,)] * 2 + [()]):
        possible = tuple(
            one
            for one in NODES
            if isinstance(answer(inventory, make_claim(wanted, name=f"c{number}"), node=one), Allocated)
        )
        assert possible == expected
        if possible:
            claim = make_claim(wanted, name=f"c{number}")
            outcome = allocate(inventory.snapshot(), [claim], possible[0])
            assert isinstance(outcome, Allocated)
            inventory.assume([(f"uid-{number}", outcome.results[0])])


def test_parts_of_a_pool_complete_each_other_and_nothing_else() -> None:
    inventory = make_inventory(on(ONE, "d0", count=2))
    assert free(inventory) == []
    inventory.apply_slice(on(TWO, "d0"))
    assert free(inventory) == ["node-2"]
    inventory.apply_slice(on(TWO, "d0", count=2))
    assert free(inventory) == ["node-1", "node-2"]
    inventory.apply_slice(make_slice("d0", pool="p", name="third", nodeName="node-3"))
    assert free(inventory) == ["node-1", "node-2"]
    inventory.remove_slice("of-node-1")
    assert free(inventory) == []
