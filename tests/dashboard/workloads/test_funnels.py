"""The words of the funnel that a page draws."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dashboard.workloads.pods.why import LABELS, troubled_pools
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.pools import PoolKey
from manciple.wire.base import ApiObject
from scheduling.allocator import outcome as stages
from scheduling.allocator.outcome import PoolTrouble
from tests.builders import DRIVER, make_claim, make_class, make_devices, make_node, make_pod, make_request, make_slice
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


def test_each_step_of_a_funnel_has_its_label() -> None:
    """The steps of selectors are labelled by their class and their number."""
    steps = {value for name, value in vars(stages).items() if name.isupper() and isinstance(value, str)}
    assert set(LABELS) == steps - {stages.CLASS_SELECTOR, stages.REQUEST_SELECTOR}
