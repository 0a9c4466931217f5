"""The words of the funnel that a page draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from claims.kinds.resource_claims import DeviceConstraint, DeviceRequest
from dashboard.workloads.pods.why import LABELS, troubled_pools
from inventory.kinds.devices import Device, ResourceSlice
from inventory.kinds.pools import PoolKey
from manciple.wire.base import ApiObject
from scheduling.allocator import outcome as stages
from scheduling.allocator.outcome import PoolTrouble
from tests.builders import (
    DRIVER,
    make_claim,
    make_class,
    make_constraint,
    make_device,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.dashboard import texts
from tests.dashboard.browsing import signed_in, words
from tests.outlines import Outline
from tests.scheduling.cluster import Cluster


def trouble(name: str, what: str = "incomplete", *, matching: int = 0, driver: str = "gpu.example.com") -> PoolTrouble:
    return PoolTrouble(
        PoolKey(driver, name), what, "1 of 2 slices", devices=8, matching=matching, may_serve=bool(matching)
    )


def half_published(node: str) -> ResourceSlice:
    return make_slice(node=node, slices=2)


@pytest.mark.parametrize(
    ("troubles", "says"),
    [
        ([trouble("a")], "pool a is incomplete"),
        ([trouble("a"), trouble("b")], "pools a and b are incomplete"),
        ([trouble("a"), trouble("b"), trouble("c")], "… a, b … c …"),
        ([trouble(name) for name in "abcde"], "… a, b … 3 more …"),
        ([trouble("a"), trouble("b", "invalid")], "… a …; … b … invalid"),
        ([trouble("a"), trouble("b"), trouble("c"), trouble("d", matching=1)], "… d, a … 2 more …"),
        ([trouble("a"), trouble("a", driver="nic.example.com")], "… gpu.example.com/a … nic.example.com/a …"),
    ],
)
def test_all_pools_in_trouble_are_named_or_counted(troubles: list[PoolTrouble], says: str) -> None:
    assert troubled_pools(troubles) == Outline(says)


INDEX = f'device.attributes["{DRIVER}"].index'
CLASS_OF_TWO = make_class(expressions=["device.driver == 'other.example.com'", "size(device.driver) > 3"])
#: what there is -> (the objects, what the pod's claim asks of a device, what its page says)
WORLDS: dict[str, tuple[Sequence[ApiObject], Sequence[str], str]] = {
    "every incomplete pool is named": (
        [make_class(), *(make(node) for node in ("node-1", "node-2") for make in (make_node, half_published))],
        [],
        f"lost: {troubled_pools([trouble('node-1'), trouble('node-2')])}",
    ),
    "a node that takes no pod says so in the words of its page": (
        [make_class(), make_node(unschedulable=True), make_slice()], [], "node-1 2 2 2 Cordoned",
    ),
    "where nothing is left nothing more is lost": (
        [make_class(), make_node(), make_slice()], ["false"], "Not tainted 0 Not held 0",
    ),
    "each selector of a class is told by what it asks": (
        [CLASS_OF_TWO, make_node(), make_slice()], [], "size(driver) > 3 0",
    ),
    "without its class nothing was counted": ([make_node()], [], texts.FUNNEL_EMPTY),
    "what a selector loses is told in whole": (
        [make_class(), make_node(), make_slice(devices=make_devices(6))],
        [f"{INDEX} != 0 && {INDEX} > 9"],
        texts.FUNNEL_VALUES(5, 5, 1, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WORLDS)
def test_the_page_of_a_waiting_pod_says_what_each_step_leaves(cluster: Cluster, case: str) -> None:
    objects, expressions, told = WORLDS[case]
    for one in objects:
        cluster.create(one)
    cluster.create(make_claim("wants", requests=[make_request(expressions=expressions)]))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    cluster.settle()
    assert told in words(signed_in("admin", staff=True), "/pods/default/asks")


PCIE = "resource.kubernetes.io/pcieRoot"


def _rooted(*roots: str, prefix: str = "gpu") -> list[Device]:
    return [make_device(f"{prefix}-{at}", attributes={PCIE: root, "kind": prefix}) for at, root in enumerate(roots)]


def _of_kind(name: str, **asks: Any) -> DeviceRequest:
    return make_request(name, expressions=[f'device.attributes["{DRIVER}"].kind == "{name}"'], **asks)


#: what waits -> (devices of each node, requests, constraints, of each request: can be met, what its last step leaves)
TOGETHER: dict[str, tuple[Sequence[Sequence[Device]], Sequence[DeviceRequest], Sequence[DeviceConstraint], Any]] = {
    "no two devices have the same value": (
        [_rooted("a", "b"), _rooted("a", "b")], [make_request(count=2)], [make_constraint(PCIE)], [(False, 1)],
    ),
    "the best node decides how many have the same value": (
        [_rooted("a", "b", "c"), _rooted("a", "a", "b")],
        [make_request(count=3)],
        [make_constraint(PCIE)],
        [(False, 2)],
    ),
    "too few different values": (
        [_rooted("a", "a", "b")], [make_request(count=3)], [make_constraint(distinct=PCIE)], [(False, 2)],
    ),
    "a name that no device has": (
        [_rooted("a", "a")], [make_request(count=2)], [make_constraint(f"{PCIE[:-2]}t")], [(False, 0)],
    ),
    "two requests that a constraint keeps apart": (
        [[*_rooted("a"), *_rooted("b", prefix="nic")]],
        [_of_kind("gpu"), _of_kind("nic")],
        [make_constraint(PCIE)],
        [(False, 1), (False, 1)],
    ),
    "each request on another node": (
        [_rooted("a"), _rooted("b", prefix="nic")], [_of_kind("gpu"), _of_kind("nic")], [], [(False, 1), (False, 1)],
    ),
    "two requests for the same device": (
        [_rooted("a")], [make_request("one"), make_request("two")], [], [(False, 1), (False, 1)],
    ),
    "one request is short, the other is not": (
        [[*_rooted("a"), *_rooted("b", prefix="nic")]],
        [_of_kind("gpu"), _of_kind("nic", count=2)],
        [],
        [(False, 1), (True, None)],
    ),
    "constraints that fail only in combination": (
        [_rooted("a", "a", "b", "b")],
        [make_request(count=2)],
        [make_constraint(PCIE), make_constraint(distinct=PCIE)],
        [(False, 2)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TOGETHER)
def test_no_request_can_be_met_that_keeps_its_claim_waiting(cluster: Cluster, case: str) -> None:
    nodes, requests, constraints, leaves = TOGETHER[case]
    cluster.create(make_class())
    for number, devices in enumerate(nodes, 1):
        cluster.create(make_node(f"node-{number}"))
        cluster.create(make_slice(node=f"node-{number}", devices=devices))
    cluster.create(make_claim("wants", requests=requests, constraints=constraints))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    cluster.settle()
    drawn = signed_in("admin", staff=True).get("/pods/default/asks").context["why"].sections
    assert [(one.met, None if one.met else one.rows[-1].left) for one in drawn] == leaves
    assert not any(one.rows[-1].good for one in drawn if not one.met)
    assert all(one.short for one in drawn if not one.met)


@pytest.mark.parametrize("requests", [[make_request()], [make_request("one"), make_request("two")]])
def test_no_request_can_be_met_while_every_node_refuses_the_pod(
    cluster: Cluster, requests: Sequence[DeviceRequest]
) -> None:
    for one in (make_class(), make_node(unschedulable=True), make_slice()):
        cluster.create(one)
    cluster.create(make_claim("wants", requests=requests))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    cluster.settle()
    drawn = signed_in("admin", staff=True).get("/pods/default/asks").context["why"].sections
    assert [(one.met, bool(one.short)) for one in drawn] == [(False, True)] * len(requests)
    assert not any(row.good or row.label == LABELS[stages.VISIBLE] for one in drawn for row in one.rows)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (f"{PCIE[:-2]}t", PCIE),
        ("resource.kubernetes.io/pcieroot", PCIE),
        ("gpu.example.com/pcieRoot", PCIE),
        ("resource.kubernets.io/pcieRoot", PCIE),
        (f"{DRIVER}/knd", f"{DRIVER}/kind"),
        (f"{DRIVER}/temperature", ""),
    ],
)
@pytest.mark.parametrize("distinct", [False, True])
def test_an_attribute_that_is_typed_wrong_is_told_with_what_was_meant(
    cluster: Cluster, written: str, meant: str, *, distinct: bool
) -> None:
    cluster.create(make_class())
    cluster.create(make_node())
    cluster.create(make_slice(devices=_rooted("a", "a")))
    constraint = make_constraint(distinct=written) if distinct else make_constraint(written)
    cluster.create(make_claim("wants", requests=[make_request(count=2)], constraints=[constraint]))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    cluster.settle()
    said = words(signed_in("admin", staff=True), "/pods/default/asks")
    for text in (cluster.why_pending("asks").replace("`", ""), said):
        assert ("but they have" in text) == bool(meant)
        assert meant in text


def test_each_step_of_a_funnel_has_its_label() -> None:
    """The steps of selectors are labelled by their class and their number."""
    steps = {value for name, value in vars(stages).items() if name.isupper() and isinstance(value, str)}
    assert set(LABELS) == steps - {stages.CLASS_SELECTOR, stages.REQUEST_SELECTOR}
