"""A pool that is incomplete or invalid matters to a request for all devices only where it could have some of them."""

from __future__ import annotations

import pytest

from inventory.kinds.devices import ResourceSlice
from scheduling.allocator import Allocated, Unallocatable, place
from scheduling.allocator.requests import refuses_driver
from tests.scheduling.allocator.cases import (
    Json,
    answer,
    device,
    make_claim,
    make_class,
    make_inventory,
    make_slice,
    node,
    request,
)

NIC = "nic.example.com"


@pytest.mark.parametrize(
    ("expression", "refuses"),
    [
        ('device.driver == "gpu.example.com"', True),
        ('"gpu.example.com" == device.driver', True),
        ('device.driver.startsWith("gpu")', True),
        ('device.driver in ["gpu.example.com", "tpu.example.com"]', True),
        ('device.attributes["gpu.example.com"].model == "A" && (device.driver == "gpu.example.com" && true)', True),
        ("false", True),
        ('device.driver == "nic.example.com"', False),
        ('device.driver != "gpu.example.com"', False),
        ('device.driver == "gpu.example.com" || device.attributes["x"].model == "A"', False),
        ('device.attributes["gpu.example.com"].model == "A"', False),
        ("device.allowMultipleAllocations == true", False),
        ("true", False),
        ("this does not compile", False),
    ],
)
def test_a_selector_that_asks_for_another_driver_refuses_whatever_a_driver_has(expression: str, refuses: bool) -> None:
    assert refuses_driver(expression, NIC) == refuses


EVERYTHING: Json = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
GPUS = [make_slice("g-0", "g-1"), make_slice("g-2", name="far", pool="pool-2", nodeName="node-2")]
OF_MODEL = 'device.attributes["gpu.example.com"].?model.orValue("") == "A"'

#: a pool with a fault, the class's selector -> the nodes on which all devices can be had
FAULTS: dict[str, tuple[ResourceSlice, str, set[str]]] = {
    "other driver": (
        make_slice("n-0", pool="p", driver=NIC, count=2),
        'device.driver == "gpu.example.com"',
        {"1", "2"},
    ),
    "any driver": (make_slice("n-0", pool="p", driver=NIC, count=2), "true", {"2"}),
    "of another node": (make_slice("g-9", pool="p", count=2, nodeName="node-2"), "true", {"1"}),
    "of all nodes": (make_slice("g-9", pool="p", count=2, allNodes=True), "true", set()),
    "of a zone": (
        make_slice(
            "g-9",
            pool="p",
            count=2,
            nodeSelector={
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]
            },
        ),
        "true",
        {"1"},
    ),
    "counters of a zone": (
        make_slice(
            pool="p",
            count=2,
            sharedCounters=[{"name": "c", "counters": {"m": {"value": "1"}}}],
            nodeSelector={
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]
            },
        ),
        "true",
        {"1"},
    ),
    "devices that do not match, more to come": (
        make_slice(device("g-9", model="B"), pool="p", count=2),
        OF_MODEL,
        {"2"},
    ),
    "devices that do not match, twice": (
        make_slice(device("g-9", model="B"), device("g-9", model="B"), pool="p"),
        OF_MODEL,
        {"1", "2"},
    ),
    "devices that match, twice": (
        make_slice(device("g-9", model="A"), device("g-9", model="B"), pool="p"),
        OF_MODEL,
        {"2"},
    ),
}


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("admin", [False, True], ids=["devices", "admin access"])
def test_all_devices_are_had_on_the_nodes_that_the_fault_does_not_concern(what: str, admin: bool) -> None:
    fault, selector, expected = FAULTS[what]
    gpus = [make_slice(*(device(one.name, model="A") for one in gpu.spec.devices), **_same(gpu)) for gpu in GPUS]
    inventory = make_inventory(*gpus, fault, classes=[make_class("gpu", selector)])
    wanted = {**EVERYTHING, "exactly": {**EVERYTHING["exactly"], **({"adminAccess": True} if admin else {})}}
    nodes = (node("node-1", zone="a"), node("node-2", zone="b"))
    outcomes = {one.name[-1]: answer(inventory, make_claim(wanted), node=one) for one in nodes}
    assert {name for name, outcome in outcomes.items() if isinstance(outcome, Allocated)} == expected
    assert (place(inventory.snapshot(), [make_claim(wanted)], nodes).node is not None) == bool(expected)
    for outcome in outcomes.values():
        assert isinstance(outcome, Allocated) or (isinstance(outcome, Unallocatable) and outcome.pool_fault)


def _same(published: ResourceSlice) -> Json:
    spec = published.spec
    return {"name": published.metadata.name, "pool": spec.pool.name, "nodeName": spec.node_name}


def test_counted_devices_are_had_beside_a_fault() -> None:
    inventory = make_inventory(*GPUS, make_slice("g-9", pool="p", count=2))
    assert isinstance(answer(inventory, make_claim(request(count=2))), Allocated)
