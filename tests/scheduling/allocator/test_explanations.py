"""Why a request gets nothing: claim, request, class and the clause that dropped the last devices are named."""

from __future__ import annotations

from typing import Any

import pytest

from claims.causes.causes import DevicesInUse, Fault, Misconfigured, OfDevices, RequestsCompete
from claims.causes.messages import clause, message
from claims.causes.next_steps import NO_SINGLE_CHANGE, outside
from inventory.kinds.devices import ResourceSlice
from scheduling.allocator import Allocated, Inventory, Unallocatable, overall
from scheduling.allocator.outcome import cause_of
from tests.outlines import Outline
from tests.scheduling.allocator.cases import (
    GPU,
    Json,
    answer,
    device,
    make_claim,
    make_class,
    make_inventory,
    make_rule,
    make_slice,
    node,
    request,
)

ATTRIBUTES = 'device.attributes["gpu.example.com"]'
MODEL = ATTRIBUTES + '.model == "{}"'
MEMORY = f"{ATTRIBUTES}.memory"
CARDS = make_slice(
    device("d-0", model="A", memory=40, root="x"),
    device("d-1", model="A", memory=40, root="y"),
    device("d-2", model="B", memory=80),
)


def _no(inventory: Inventory, *requests: Json, on: str = "node-1", match: str = "") -> Unallocatable:
    outcome = answer(inventory, make_claim(*requests, match=match), node=node(on))
    assert isinstance(outcome, Unallocatable)
    return outcome


ALL = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
SHARED = {"name": "s-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}


def _because(inventory: Inventory, *requests: Json, match: str = "", nodes: tuple[str, ...] = ("node-1",)) -> OfDevices:
    """The cause of the first reason of these nodes together."""
    outcomes = [_no(inventory, *requests, on=one, match=match) for one in nodes]
    return cause_of([outcome.reasons[0] for outcome in outcomes])


def _give(inventory: Inventory, count: int, *, to: str = "alice", on: str = "node-1") -> None:
    """Let `to` hold so many devices of a node."""
    outcome = answer(inventory, make_claim(request(count=count), name=to), node=node(on))
    assert isinstance(outcome, Allocated)
    inventory.assume([(to, outcome.results[0])])


@pytest.mark.parametrize(
    ("published", "wanted", "cause", "step"),
    [
        pytest.param(
            (),
            request(),
            "request `r` needs 1; no device is published yet",
            "Start a driver for these devices on a node.",
            id="nothing published",
        ),
        pytest.param(
            (CARDS,),
            request(count=4),
            "request `r` needs 4; only 3 are published",
            NO_SINGLE_CHANGE,
            id="less published than wanted",
        ),
        pytest.param(
            (make_slice("d-0", count=2),),
            request(),
            "request `r` needs 1; the only match is unusable: pool `gpu.example.com/pool-1` is incomplete (1 of 2 …)",
            "Check driver `gpu.example.com`: slices of its pool are missing.",
            id="an incomplete pool",
        ),
        pytest.param(
            (make_slice("d-0", nodeName="node-2"),),
            request(),
            "request `r` needs 1; the only published device is on another node",
            NO_SINGLE_CHANGE,
            id="another node's devices",
        ),
        pytest.param(
            (CARDS,),
            request(where=MODEL.format("C")),
            "request `r` accepts none of the 3 devices that node `node-1` sees: "
            '`model == "C"` refuses all 3; they have "A" (2) and "B" (1)',
            NO_SINGLE_CHANGE,
            id="a selector that matches nothing",
        ),
        pytest.param(
            (CARDS,),
            request(device_class="cards", where=f"device.driver == 'gpu.example.com' && {MEMORY} >= 200"),
            "request `r` … of class `cards` … `memory >= 200` … the most is 80",
            NO_SINGLE_CHANGE,
            id="an amount that no device has",
        ),
        pytest.param(
            (CARDS,),
            request(device_class="cards", where=f"{MEMORY} < 30"),
            "request `r` … class `cards` … `memory < 30` … the least is 40",
            NO_SINGLE_CHANGE,
            id="an amount that every device exceeds",
        ),
        pytest.param(
            (CARDS,),
            request(where=f'"power" in {ATTRIBUTES}'),
            f'request `r` …3… `node-1` …: `"power" in {ATTRIBUTES}` …3',
            NO_SINGLE_CHANGE,
            id="a clause that compares nothing",
        ),
        pytest.param(
            (CARDS, make_slice(device("d-3", model="C", memory=1), pool="pool-2", count=2)),
            request(where=MODEL.format("C")),
            "request `r` … pool `gpu.example.com/pool-2` …",
            "…`gpu.example.com`…",
            id="a selector that only a device of an incomplete pool matches",
        ),
        pytest.param(
            (CARDS, make_slice(device("d-3", model="D"), pool="pool-2", count=2)),
            request(where=MODEL.format("C")),
            'request `r` …3… `node-1` …: `model == "C"` …3… "A" (2) … "B" (1)',
            NO_SINGLE_CHANGE,
            id="a selector that no device of an incomplete pool matches",
        ),
        pytest.param(
            (CARDS,),
            request(count=3, where=MODEL.format("A")),
            'request `r` accepts only 2 of the 3 devices … needs 3: `model == "A"` refuses the other 1; it has "B"',
            NO_SINGLE_CHANGE,
            id="a selector that matches too little",
        ),
        pytest.param(
            (CARDS,),
            request(device_class="b", count=2),
            'class `b` of request `r` selects … 1 … 3 … `node-1` … 2: `model == "B"` … 2; … "A"',
            NO_SINGLE_CHANGE,
            id="a class that matches too little",
        ),
        pytest.param(
            (make_slice(SHARED),),
            request(capacity={"requests": {"memory": "100Gi"}}),
            "request `r` needs 1 with 100Gi of `memory`; the only matching device has less",
            NO_SINGLE_CHANGE,
            id="a share larger than the device",
        ),
        pytest.param(
            (make_slice(SHARED),),
            request(capacity={"requests": {"memroy": "1Gi"}}),
            "request `r` needs 1 with 1Gi of `memroy`; no matching device publishes capacity `memroy`",
            "Ask for a capacity that devices publish.",
            id="a capacity that the device does not publish",
        ),
        pytest.param(
            (make_slice(SHARED, {**SHARED, "name": "s-1"}),),
            request(capacity={"requests": {"memory": "1Gi", "cores": "1", "lanes": "1"}}),
            "request `r` … 1 … `cores`, 1 … `lanes`, 1Gi … `memory`; … publishes capacity `cores` or `lanes`",
            "…",
            id="capacities that no device publishes",
        ),
    ],
)
def test_what_a_person_reads(published: tuple[ResourceSlice, ...], wanted: Json, cause: str, step: str) -> None:
    classes = (make_class(), make_class("b", MODEL.format("B")), make_class("cards", "device.driver != ''"))
    inventory = make_inventory(*published, classes=classes)
    found = _because(inventory, wanted)
    assert clause(found) == Outline(cause)
    assert outside(found) == Outline(step)


@pytest.mark.parametrize(
    ("held", "wanted", "cause"),
    [
        pytest.param(1, request(count=3), "request `r` needs 3; only 2 of 3 matching devices are free"),
        pytest.param(3, request(), "request `r` needs 1; all 3 matching devices are held"),
        pytest.param(1, ALL, "request `r` needs all; only 2 of 3 …"),
    ],
)
def test_devices_that_others_hold(held: int, wanted: Json, cause: str) -> None:
    inventory = make_inventory(CARDS)
    _give(inventory, held)
    found = _because(inventory, wanted)
    assert isinstance(found, DevicesInUse)
    assert clause(found) == Outline(cause)


def test_taints_are_named() -> None:
    inventory = make_inventory(CARDS)
    inventory.apply_taint_rule(make_rule("repair", device="d-0"))
    assert clause(_because(inventory, request(count=3))) == (
        "request `r` needs 3; only 2 of 3 matching devices are untainted "
        "(the others: `broken:NoSchedule` by DeviceTaintRule `repair`)"
    )
    inventory.apply_taint_rule(make_rule("repair"))
    found = _because(inventory, request(count=2))
    assert clause(found) == Outline(
        "request `r` needs 2; all 3 matching devices are tainted …`broken:NoSchedule` … `repair`)"
    )


def test_what_several_nodes_have_is_added_up_and_shared_devices_count_once() -> None:
    everywhere = make_slice("x", pool="net", allNodes=True)
    inventory = make_inventory(make_slice("a", "b"), make_slice("c", "d", pool="p2", nodeName="node-2"), everywhere)
    _give(inventory, 1)
    _give(inventory, 1, to="bob", on="node-2")
    assert clause(_because(inventory, request(count=3), nodes=("node-1", "node-2"))) == Outline(
        "request `r` needs 3 on one node; the best node has 2 free"
    )


def test_a_reason_names_claim_and_request() -> None:
    reason = _no(make_inventory(CARDS), request(where=MODEL.format("C"))).reasons[0]
    assert clause(reason.cause, names_claim=True).startswith("request `r` of claim `default/claim` ")
    assert (reason.claim, reason.request, reason.device_class) == ("default/claim", "r", "gpu")


def test_long_expressions_are_quoted_in_part() -> None:
    long = " || ".join(MODEL.format(f"X{number}") for number in range(100))
    text = message(_no(make_inventory(CARDS), request(where=long)).reasons[0].cause)
    assert "…`" in text
    assert len(text) < 400


def test_the_funnel_counts_what_is_left_after_each_question() -> None:
    inventory = make_inventory(
        CARDS, make_slice("x", pool="far", nodeName="node-2"), classes=(make_class("gpu", "true"),)
    )
    inventory.apply_taint_rule(make_rule("repair", device="d-0"))
    reason = _no(inventory, request(count=2, where=MODEL.format("A"))).reasons[0]
    assert [(stage.name, stage.left) for stage in reason.funnel] == [
        ("published", 4),
        ("in a complete pool", 4),
        ("visible from the node", 3),
        ("class selector #0", 3),
        ("request selector #0", 2),
        ("not tainted", 1),
        ("free", 1),
    ]
    assert reason.progress == 7


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        pytest.param(
            "gpu.example.com/root",
            "… `default/claim` needs 2 devices with the same `gpu.example.com/root`; no two free ones share a value",
            id="all differ",
        ),
        pytest.param(
            "gpu.example.com/nothing",
            "… `default/claim` needs 2 devices with the same `gpu.example.com/nothing`; no matching device has it",
            id="none has it",
        ),
    ],
)
def test_a_constraint_that_nothing_satisfies_is_named(attribute: str, text: str) -> None:
    outcome = _no(make_inventory(CARDS), request(count=2, where=MODEL.format("A")), match=attribute)
    assert clause(outcome.reasons[0].cause) == Outline(text)


@pytest.mark.parametrize(
    ("attribute", "has"),
    [("model", "the free ones have only 1 value"), ("nothing", "no free one has it")],
)
def test_devices_that_do_not_differ_are_named(attribute: str, has: str) -> None:
    different = [{"distinctAttribute": f"{GPU}/{attribute}"}]
    claim = make_claim(request(count=2, where=MODEL.format("A")), constraints=different)
    outcome = answer(make_inventory(CARDS), claim)
    assert isinstance(outcome, Unallocatable)
    assert clause(outcome.reasons[0].cause) == (Outline(f"…`default/claim` … 2 … `gpu.example.com/{attribute}`; {has}"))


def test_constraints_that_only_together_cannot_be_met_are_named_together() -> None:
    cards = make_slice(
        device("d-0", root="x", numa=0), device("d-1", root="x", numa=1), device("d-2", root="y", numa=1)
    )
    rules = [{"matchAttribute": f"{GPU}/root"}, {"matchAttribute": f"{GPU}/numa"}]
    outcome = answer(make_inventory(cards), make_claim(request(count=2), constraints=rules))
    assert isinstance(outcome, Unallocatable)
    assert clause(outcome.reasons[0].cause) == (
        "no devices that claim `default/claim` accepts satisfy `matchAttribute: gpu.example.com/root` "
        "and `matchAttribute: gpu.example.com/numa` together"
    )


def test_counters_that_are_drawn_up_are_said() -> None:
    drawn = [{"counterSet": "card", "counters": {"memory": {"value": "30Gi"}}}]
    parts = [{"name": name, "consumesCounters": drawn} for name in ("p-0", "p-1")]
    counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
    inventory = make_inventory(
        make_slice(*parts, name="parts", count=2), make_slice(name="counters", count=2, sharedCounters=counters)
    )
    assert clause(_no(inventory, request(count=2)).reasons[0].cause) == (
        "shared counters have no room for 2 of the 2 devices that request `r` accepts"
    )
    _give(inventory, 1)
    assert clause(_no(inventory, request()).reasons[0].cause) == Outline(
        "shared counters have no room for the only device that request `r` accepts"
    )


def test_requests_that_compete_are_told_so() -> None:
    outcome = _no(make_inventory(CARDS), request("a", count=2), request("b", count=2))
    assert clause(outcome.reasons[0].cause) == "its requests need 4 devices; only 3 free devices serve them"


MONITORED = {
    "a request and a monitor": (request("a"), request("m", adminAccess=True)),
    "two monitors": (request("m", adminAccess=True), request("n", adminAccess=True)),
}


@pytest.mark.parametrize("which", MONITORED)
@pytest.mark.parametrize("drawing", [False, True], ids=["plain", "drawing on counters"])
def test_a_claim_gets_no_device_twice_with_admin_access_either(which: str, drawing: bool) -> None:
    card: dict[str, Any] = {"name": "card"}
    slices = [make_slice(card, count=1 + drawing)]
    if drawing:
        card["consumesCounters"] = [{"counterSet": "set", "counters": {"memory": {"value": "20Gi"}}}]
        counters = [{"name": "set", "counters": {"memory": {"value": "40Gi"}}}]
        slices = [make_slice(card, count=2), make_slice(name="counters", count=2, sharedCounters=counters)]
    outcome = _no(make_inventory(*slices), *MONITORED[which])
    assert outcome.reasons[0].cause == RequestsCompete(2, 1, claim="default/claim")


def test_the_request_that_is_furthest_from_being_met_comes_first() -> None:
    inventory = make_inventory(CARDS)
    outcome = _no(inventory, request("a", count=4), request("b", where=MODEL.format("C")))
    assert [reason.request for reason in outcome.reasons] == ["b", "a"]


def test_an_invalid_pool_is_said_where_nothing_else_fits() -> None:
    outcome = _no(make_inventory(make_slice("d-0", "d-0")), request())
    assert outcome.pool_fault == Misconfigured(Fault.POOL, "invalid resource pools were encountered")
    assert clause(outcome.reasons[0].cause) == Outline(
        "request `r` … the 2 matches are unusable: … `gpu.example.com/pool-1` is invalid (duplicate device name d-0)"
    )


def test_of_very_many_devices_some_are_asked_in_passing_and_all_for_an_explanation() -> None:
    crowd = make_slice(*(device(f"d-{number}", memory=number) for number in range(600)))
    reasons = _no(make_inventory(crowd), request(where=f"{MEMORY} >= 1000")).reasons
    assert clause(cause_of(reasons)).endswith(" 600")
    assert clause(cause_of(reasons, asked=1000)).endswith(" 599")


def test_a_request_that_is_short_on_some_of_the_nodes_only_says_on_how_many() -> None:
    inventory = make_inventory(
        make_slice(device("a", model="A")),
        make_slice(device("b", model="B"), pool="p2", nodeName="node-2"),
        classes=(make_class("gpu", MODEL.format("A")), make_class("other", MODEL.format("B"))),
    )
    _give(inventory, 1)
    wants = (request("a"), request("b", device_class="other"))
    refusals = [_no(inventory, *wants, on=one) for one in ("node-1", "node-2")]
    found = overall(refusals)
    assert found is not None
    assert clause(found).endswith("(on 1 of 2 nodes)")
    assert overall([]) is None
