"""Devices and lines that are kept warm by the log are those that are read anew; only what changed is read."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from claims.devices import cache
from claims.devices.cache import DeviceSnapshot, read_devices
from claims.kinds.pods import PodStatus
from dashboard.inventory.devices.grid import GridLine, line_named, lines_of
from manciple.per_process import reset_all
from tests.builders import make_claim, make_device, make_device_taint, make_node, make_node_selector, make_slice
from tests.claims.devices.scene import DRIVER, hold, publish, put, remove, run

pytestmark = pytest.mark.django_db


def seen(snapshot: DeviceSnapshot) -> dict[str, Any]:
    """What a page would show."""
    return {
        line.name: [
            (tile.name, tile.state, not run, [holder.label for holder in tile.holders])
            for tile, run in zip(line.tiles, line.runs, strict=True)
        ]
        for line in lines_of(snapshot)
    }


def line(name: str) -> GridLine:
    found = line_named(read_devices(), name)
    assert found is not None
    return found


def states(name: str = "node-1") -> list[str]:
    return [tile.state for tile in line(name).tiles]


def test_the_lines_follow_what_happens() -> None:
    put(make_node())
    publish()
    assert states() == ["free", "free"]
    pod = run(phase="Pending")
    claim = hold(pods=[pod])
    assert states() == ["prep", "free"]
    put(structs.replace(pod, status=PodStatus(phase="Running")))
    assert states() == ["reserved", "free"]
    put(structs.replace(claim, status=structs.replace(claim.status, reserved_for=())))
    assert states() == ["alloc", "free"]
    put(make_claim("training", namespace="lab"))
    assert states() == ["free", "free"]


def test_a_taint_and_a_pool_that_is_a_slice_short_show_at_once() -> None:
    publish(devices=[make_device("gpu-0", taints=[make_device_taint("gpu.example.com/unhealthy")])])
    assert states() == ["bad"]
    assert line("node-1").trouble == "1 device is unhealthy."
    publish(slices=2)
    assert states() == ["gone", "gone"]
    assert "1 of 2 slices" in line("node-1").trouble


def test_a_device_that_is_held_though_nobody_publishes_it_any_more_stays_in_its_line() -> None:
    put(make_node())
    publish()
    hold("training", "gpu-1")
    publish(count=1)
    assert seen(read_devices()) == {
        "node-1": [("gpu-0", "free", False, []), ("gpu-1", "gone", False, ["lab/training"])]
    }


def test_a_pool_of_no_node_is_a_line_of_its_own() -> None:
    publish()
    put(make_slice("fabric", node=None, pool="fabric", all_nodes=True))
    shown = line(f"{DRIVER}/fabric")
    assert (shown.node, shown.topics) == ("", (f"pool:{DRIVER}/fabric",))
    assert line("node-1").node == "node-1"


def test_after_any_history_the_warm_lines_are_those_that_are_read_anew() -> None:
    draw = random.Random(5)
    read_devices()
    pods = [run(f"p{index}", phase="Pending") for index in range(3)]
    put(make_slice("zone", node=None, pool="zone", node_selector=make_node_selector({"zone": "a"})))
    for _ in range(90):
        node, claim = f"node-{draw.randrange(3)}", f"c{draw.randrange(4)}"
        match draw.randrange(6):
            case 0:
                taints = [make_device_taint()] if draw.random() < 0.3 else []
                publish(
                    node, devices=[make_device(f"gpu-{index}", taints=taints) for index in range(draw.randrange(4))]
                )
            case 1:
                put(make_claim(claim, namespace="lab"))
                hold(claim, f"gpu-{claim[1]}", node=node, pods=draw.sample(pods, draw.randrange(3)))
            case 2:
                put(make_claim(claim, namespace="lab"))
            case 3:
                pod = draw.choice(pods)
                put(structs.replace(pod, status=PodStatus(phase=draw.choice(["Pending", "Running"]))))
            case 4:
                remove(put(make_claim(claim, namespace="lab")))
            case 5:
                known = put(make_node(node, labels={"zone": draw.choice("ab")}, capacity={"pods": draw.choice("139")}))
                put(structs.replace(known, spec=structs.replace(known.spec, unschedulable=draw.random() < 0.3)))
                if draw.random() < 0.2:
                    remove(known)
        if draw.random() < 0.5:
            warm = read_devices()
            reset_all()
            anew = read_devices()
            assert seen(warm) == seen(anew)
            assert warm.counts == anew.counts
            assert [candidate.key for candidate in warm.candidates] == [candidate.key for candidate in anew.candidates]


def test_a_warm_cache_costs_one_query_whatever_its_size() -> None:
    """For what was written since; which nodes are unreachable is known until a Lease may be overdue."""
    for index in range(12):
        publish(f"node-{index}")
    read_devices()
    hold()
    with CaptureQueriesContext(connection) as queries:
        snapshot = read_devices()
    assert snapshot.counts["alloc"] == 1
    assert len(queries) == 1
    before = line("node-5")
    hold("other", "gpu-1")
    assert line("node-5") is before  # what nothing happened to is not drawn anew


def test_a_database_that_was_put_back_is_read_anew() -> None:
    publish()
    snapshot = read_devices()
    cache.following._followed.value.view.revision += 100  # type: ignore[union-attr]  # as of a later backup
    assert read_devices().revision == snapshot.revision


def cordon(name: str, *, cordoned: bool = True) -> None:
    node = make_node(name)
    put(structs.replace(node, spec=structs.replace(node.spec, unschedulable=cordoned)))


def test_a_cordoned_node_is_marked_and_so_is_its_release() -> None:
    publish()
    publish("node-2")
    cordon("node-2")
    assert [line.cordoned for line in lines_of(read_devices())] == [False, True]
    reset_all()
    assert [line.cordoned for line in lines_of(read_devices())] == [False, True]
    cordon("node-2", cordoned=False)
    cordon("node-1")
    assert [line.cordoned for line in lines_of(read_devices())] == [True, False]
    assert "node:node-1" in line("node-1").topics
    before = line("node-1")
    cordon("node-1")
    assert line("node-1") is before, "a report without news changes no line"
    remove(make_node("node-1"))
    assert not any(line.cordoned for line in lines_of(read_devices()))
