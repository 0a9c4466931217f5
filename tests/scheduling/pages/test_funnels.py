"""The words of the funnel that a page draws."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inventory.kinds.pools import PoolKey
from scheduling.allocator.stages import PoolTrouble
from scheduling.pages.funnels import troubled_pools
from tests.builders import DRIVER, make_claim, make_class, make_node, make_pod, make_request, make_slice
from tests.scheduling.cluster import Cluster
from tests.scheduling.pages import texts
from tests.scheduling.pages.browsing import signed_in, words


def trouble(name: str, what: str = "incomplete", *, matching: int = 0, driver: str = "gpu.example.com") -> PoolTrouble:
    return PoolTrouble(
        PoolKey(driver, name), what, "1 of 2 slices", devices=8, matching=matching, may_serve=bool(matching)
    )


def page_of_pod(cluster: Cluster, *, expressions: Sequence[str] = ()) -> str:
    """The words on the page of a pod that wants one device, once the scheduler has looked at it."""
    cluster.create(make_claim("wants", requests=[make_request(expressions=expressions)]))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    cluster.settle()
    return words(signed_in("admin", staff=True), "/pods/default/asks")


@pytest.mark.parametrize(
    ("troubles", "says"),
    [
        ([trouble("a")], "pool a is incomplete"),
        ([trouble("a"), trouble("b")], "pools a and b are incomplete"),
        ([trouble("a"), trouble("b"), trouble("c")], "pools a, b and c are incomplete"),
        ([trouble(name) for name in "abcde"], "pools a, b and 3 more are incomplete"),
        ([trouble("a"), trouble("b", "invalid")], "pool a is incomplete; pool b is invalid"),
        ([trouble("a"), trouble("b"), trouble("c"), trouble("d", matching=1)], "pools d, a and 2 more are incomplete"),
        (
            [trouble("a"), trouble("a", driver="nic.example.com")],
            "pools gpu.example.com/a and nic.example.com/a are incomplete",
        ),
    ],
)
def test_all_pools_in_trouble_are_named_or_counted(troubles: list[PoolTrouble], says: str) -> None:
    assert troubled_pools(troubles) == says


def test_the_page_of_a_waiting_pod_names_every_incomplete_pool(cluster: Cluster) -> None:
    cluster.create(make_class())
    for node in ("node-1", "node-2"):
        cluster.create(make_node(node))
        cluster.create(make_slice(node=node, slices=2))
    shown = page_of_pod(cluster)
    assert texts.FUNNEL_POOLS_INCOMPLETE("node-1", "node-2") in shown


def test_a_node_that_takes_no_pod_says_so_in_the_words_of_its_page(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1", unschedulable=True))
    cluster.create(make_slice(node="node-1"))
    assert "node-1 2 2 2 Cordoned" in page_of_pod(cluster)


def test_where_nothing_is_left_nothing_more_is_said_to_be_lost(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    shown = page_of_pod(cluster, expressions=["false"])
    assert "Not tainted 0 Free 0" in shown


def test_each_selector_of_a_class_with_several_is_told_by_what_it_asks(cluster: Cluster) -> None:
    cluster.create(make_class(expressions=["device.driver == 'other.example.com'", "size(device.driver) > 3"]))
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(node="node-1"))
    shown = page_of_pod(cluster)
    assert "size(driver) > 3 0" in shown


def test_a_pod_whose_class_does_not_exist_says_that_nothing_was_counted(cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    shown = page_of_pod(cluster)
    assert texts.FUNNEL_EMPTY_WITH_ADVICE in shown


def test_a_pod_that_runs_is_not_said_to_wait_for_anything(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    assert texts.FUNNEL_EMPTY not in page_of_pod(cluster)


def test_what_a_selector_loses_is_told_in_whole_not_for_a_part(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=6)
    index = f'device.attributes["{DRIVER}"].index'
    shown = page_of_pod(cluster, expressions=[f"{index} != 0 && {index} > 9"])
    assert texts.FUNNEL_VALUES(5, 5, 1, 0) in shown
