"""The pages of drivers as the server draws them."""

from __future__ import annotations

import re
from collections import Counter

from django.test import Client

from dashboard.inventory.drivers import _range, _span
from tests.builders import (
    CLASS,
    DRIVER,
    make_allocation,
    make_claim,
    make_class,
    make_device,
    make_device_taint,
    make_devices,
    make_node,
    make_result,
    make_slice,
)
from tests.dashboard import texts
from tests.dashboard.browsing import admin, viewer, words
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

PAGE = f"/drivers/{DRIVER}"


def test_a_driver_that_is_well_until_a_pool_is_incomplete(viewer: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=2)
    cluster.create_allocated(make_claim("training"), make_allocation(make_result("gpu-1")))
    assert re.search(texts.DRIVER_ROW("gpu.example.com 2 2", r"3 \w+ \w+ 4 "), words(viewer, "/drivers"))
    text = words(viewer, PAGE)
    assert "No problems found" in text
    assert texts.DRIVER_SUMMARY(2, 2, 1, 3, 4) in text
    assert "index 0, 1" in text
    assert f"{CLASS} 4 devices" in text
    assert texts.CLAIM_OF_DRIVER_ROW("training default", 1) in text
    cluster.create(make_node("node-9"))
    cluster.create(make_slice(node="node-9", slices=3, generation=4))
    assert "1 of 3 incomplete" in words(viewer, "/drivers")
    text = words(viewer, PAGE)
    assert texts.DRIVER_POOLS_INCOMPLETE("1 pool", "2 devices") in text
    assert texts.NEXT_RESTART_DRIVER in text
    assert texts.SLICES_THERE(1, 3, 4) in text
    assert text.index("node-9 node-9") < text.index("node-1 node-1"), "what is wrong comes first"
    assert "generation 1 to 4" in text


def test_what_shows_that_it_is_unwell(viewer: Client, cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1", ready=False))
    broken = make_device("gpu-0", taints=[make_device_taint(f"{DRIVER}/unhealthy")])
    cluster.create(make_slice(node="node-1", devices=[broken]))
    cluster.create(make_slice(node="node-2", devices=make_devices(1)))
    cluster.create_allocated(make_claim("orphan"), make_allocation(make_result("gpu-7")))
    text = words(viewer, PAGE)
    assert texts.DRIVERS_NODE_NOT_READY("1 node") in text
    assert texts.DRIVERS_NODE_MISSING("node-2") in text
    assert texts.DRIVERS_DEVICE_UNHEALTHY("1 device", f"{DRIVER}/unhealthy") in text
    assert texts.DRIVERS_DEVICE_HELD_UNPUBLISHED("1 device") in text


def test_no_class_for_it_is_said_and_capacities_are_told_by_amount(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_node())
    sizes = ("80Gi", "500Mi", "9Gi", "1Ti")
    devices = [make_device(f"gpu-{index}", capacity={"memory": size}) for index, size in enumerate(sizes)]
    cluster.create(make_slice(devices=devices))
    text = words(admin, PAGE)
    assert texts.DRIVER_IN_NO_CLASS in text
    assert "memory 500Mi to 1Ti" in text


VALUES = {
    ("A100", "H100"): "A100, H100",
    tuple(str(number) for number in range(8)): "0 to 7",
    tuple("abcdefgh"): "a, b, c, d, e and 3 more",
    tuple(f"GPU-0000000000000000000{number}" for number in range(8)): "8 different, such as GPU-00000000000000000000",
}


def test_many_values_are_told_as_a_range() -> None:
    for values, told in VALUES.items():
        numbers = [int(value) for value in values if value.isdigit()]
        assert _range(Counter(values), numbers) == told
    assert _span(["40Gi", "80Gi"]) == "40Gi, 80Gi"
    assert _span(["1Gi", "2Gi", "3Gi", "4Gi"]) == "1Gi to 4Gi"
