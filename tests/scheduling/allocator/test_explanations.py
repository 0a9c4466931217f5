"""Why a request gets nothing: claim, request, class and the clause that dropped the last devices are named."""

from __future__ import annotations

import pytest

from inventory.kinds.slices import ResourceSlice
from scheduling.allocator import Failed, Inventory, Unallocatable
from tests.scheduling.allocator.cases import (
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

MODEL = 'device.attributes["gpu.example.com"].model == "{}"'
CARDS = make_slice(device("d-0", model="A", root="x"), device("d-1", model="A", root="y"), device("d-2", model="B"))


def _no(inventory: Inventory, *requests: Json, on: str = "node-1", match: str = "") -> Unallocatable:
    outcome = answer(inventory, make_claim(*requests, match=match), node=node(on))
    assert isinstance(outcome, Unallocatable)
    return outcome


@pytest.mark.parametrize(
    ("published", "wanted", "text"),
    [
        pytest.param(
            (), request(), "1 wanted, but only 0 devices are published in the cluster", id="nothing published"
        ),
        pytest.param(
            (make_slice("d-0", count=2),),
            request(),
            "the resource pools are not usable (pool gpu.example.com/pool-1 is incomplete: "
            "1 of 2 slices of generation 1); 1 wanted, 0 left of 1",
            id="an incomplete pool",
        ),
        pytest.param(
            (make_slice("d-0", nodeName="node-2"),),
            request(),
            "node node-1 sees too few devices; 1 wanted, 0 left of 1",
            id="another node's devices",
        ),
        pytest.param(
            (CARDS,),
            request(where=MODEL.format("C")),
            f"request selector #0 matches too few devices ({MODEL.format('C')}); 1 wanted, 0 left of 3",
            id="a selector that matches nothing",
        ),
        pytest.param(
            (CARDS, make_slice(device("d-3", model="C"), pool="pool-2", count=2)),
            request(where=MODEL.format("C")),
            f"request selector #0 matches too few devices ({MODEL.format('C')}); 1 wanted, 0 left of 3; "
            "pool gpu.example.com/pool-2 is incomplete: 1 of 2 slices of generation 1",
            id="a selector that only a device of an incomplete pool matches",
        ),
        pytest.param(
            (CARDS, make_slice(device("d-3", model="D"), pool="pool-2", count=2)),
            request(where=MODEL.format("C")),
            f"request selector #0 matches too few devices ({MODEL.format('C')}); 1 wanted, 0 left of 3",
            id="a selector that no device of an incomplete pool matches",
        ),
        pytest.param(
            (CARDS,),
            request(count=3, where=MODEL.format("A")),
            f"request selector #0 matches too few devices ({MODEL.format('A')}); 3 wanted, 2 left of 3",
            id="a selector that matches too little",
        ),
        pytest.param(
            (CARDS,),
            request(device_class="b", count=2),
            f"class selector #0 of class b matches too few devices ({MODEL.format('B')}); 2 wanted, 1 left of 3",
            id="a class that matches too little",
        ),
    ],
)
def test_the_clause_that_dropped_the_last_devices_is_named(
    published: tuple[ResourceSlice, ...], wanted: Json, text: str
) -> None:
    inventory = make_inventory(*published, classes=(make_class(), make_class("b", MODEL.format("B"))))
    assert _no(inventory, wanted).message == f"cannot allocate all claims: claim default/claim, request r: {text}"


def test_taints_and_other_holders_are_told_apart() -> None:
    inventory = make_inventory(make_slice("d-0"))
    inventory.apply_taint_rule(make_rule("repair"))
    assert (
        "are tainted and the request does not tolerate it; 1 wanted, 0 left of 1" in _no(inventory, request()).message
    )
    inventory.remove_taint_rule("repair")
    taken = answer(inventory, make_claim(name="alice"))
    assert not isinstance(taken, (Unallocatable, Failed))
    inventory.assume([("alice", taken.results[0])])  # type: ignore[union-attr]
    assert "are in use, or have too little capacity left; 1 wanted, 0 left of 1" in _no(inventory, request()).message


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


def test_a_constraint_that_nothing_satisfies_is_named() -> None:
    outcome = _no(make_inventory(CARDS), request(count=2, where=MODEL.format("A")), match="gpu.example.com/root")
    assert outcome.reasons[0].text == (
        "claim default/claim: no devices that the requests match satisfy matchAttribute gpu.example.com/root together"
    )


def test_requests_that_compete_are_told_so() -> None:
    outcome = _no(make_inventory(CARDS), request("a", count=2), request("b", count=2))
    assert outcome.reasons[0].text == (
        "claim default/claim: each request has enough devices for itself, but not all of them together"
    )


def test_the_request_that_is_furthest_from_being_met_comes_first() -> None:
    inventory = make_inventory(CARDS)
    outcome = _no(inventory, request("a", count=4), request("b", where=MODEL.format("C")))
    assert [reason.request for reason in outcome.reasons] == ["b", "a"]


def test_an_invalid_pool_is_said_where_nothing_else_fits() -> None:
    outcome = answer(make_inventory(make_slice("d-0", "d-0")), make_claim())
    assert outcome == Failed(error="invalid resource pools were encountered", fatal_for_pod=False)
