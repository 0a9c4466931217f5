"""When waiting pods will probably start: the estimate as a function, and what it is made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.pods import Affinity, NodeAffinity
from claims.models import PastAllocation, Pod
from insight import start_estimates
from insight.start_estimates import (
    Alike,
    HeldDevices,
    WaitingEntry,
    end_of,
    estimate_starts,
    read_queue,
    share,
    time_left,
)
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint
from manciple.wire.base import timestamp
from tests.builders import make_claim, make_devices, make_node, make_pod, make_request, make_slice
from tests.scheduling.cluster import Cluster

GPU, NIC, BOTH = frozenset({"gpu"}), frozenset({"nic"}), frozenset({"gpu", "any"})


def wait(uid: str, count: int = 1, *, of: str = "gpu", lasts: float | None = None, **more: int) -> WaitingEntry:
    return WaitingEntry(uid, ((of, count), *sorted(more.items())), lasts)


def hold(left: float | None, count: int = 1, *, on: str = "a", of: Alike = GPU) -> HeldDevices:
    return HeldDevices(on, {of: count}, left)


def at(entry: WaitingEntry, *places: str) -> WaitingEntry:
    return dataclasses.replace(entry, places=frozenset(places))


def until(seconds: float, entry: WaitingEntry) -> WaitingEntry:
    return dataclasses.replace(entry, until=seconds)


Free = Mapping[str, Mapping[Alike, int]]
#: phrase -> (the queue, what is held, what is free, when they start)
CASES: dict[str, tuple[Sequence[WaitingEntry], Sequence[HeldDevices], Free, dict[str, float]]] = {
    "nobody waits": ([], [hold(5)], {}, {}),
    "the first in the queue gets what comes free first": (
        [wait("x"), wait("y")],
        [hold(9), hold(5)],
        {},
        {"x": 5, "y": 9},
    ),
    "those behind wait for those before": (
        [wait("x", lasts=100), wait("y", lasts=1), wait("z")],
        [hold(5)],
        {},
        {"x": 5, "y": 105, "z": 106},
    ),
    "what lasts nobody knows how long is not given back": ([wait("x"), wait("y")], [hold(5)], {}, {"x": 5}),
    "what nobody gives back is waited for in vain": ([wait("x")], [hold(None)], {}, {}),
    "all have to be on one node": (
        [wait("x", 2)],
        [hold(5, on="a"), hold(6, on="b"), hold(9, on="b")],
        {},
        {"x": 9},
    ),
    "with what is free there already": ([wait("x", 2)], [hold(5, on="a"), hold(7, on="b")], {"b": {GPU: 1}}, {"x": 7}),
    "a small one overtakes a large one that does not fit": (
        [wait("large", 2), wait("small")],
        [hold(5), hold(9, 2)],
        {},
        {"small": 5, "large": 9},
    ),
    "what fits already waits for something else": ([wait("x"), wait("y", 2)], [hold(5)], {"a": {GPU: 1}}, {"y": 5}),
    "several kinds at a time": (
        [wait("x", 1, nic=1)],
        [hold(5), hold(7, of=NIC)],
        {},
        {"x": 7},
    ),
    "what fewer can use is taken first": (
        [wait("x", of="any"), wait("y", of="gpu")],
        [HeldDevices("a", {BOTH: 1, frozenset({"any"}): 1}, 5)],
        {},
        {"x": 5, "y": 5},
    ),
    "a class of which there is nothing": ([wait("x", of="tpu")], [hold(5)], {}, {}),
    "what comes free at once": ([wait("x")], [hold(0)], {}, {"x": 0}),
    "on nodes that it may use": (
        [at(wait("x", lasts=9), "b"), wait("y")],
        [hold(5, on="a"), hold(7, on="b")],
        {},
        {"x": 7, "y": 5},
    ),
    "what is free elsewhere is no help": ([at(wait("x"), "b")], [hold(5, on="b")], {"a": {GPU: 1}}, {"x": 5}),
    "what is free where it may go": ([at(wait("x"), "a", "b")], [hold(5, on="b")], {"a": {GPU: 1}}, {}),
    "devices of no node are for all": ([at(wait("x"), "b")], [hold(5, on="")], {}, {"x": 5}),
    "no node will do": ([at(wait("x")), wait("y")], [hold(5)], {}, {"y": 5}),
    "whose time is over by then takes nothing": (
        [until(4, wait("x", lasts=100)), wait("y")],
        [hold(5)],
        {},
        {"x": 5, "y": 5},
    ),
    "a limit that began before the start ends it": (
        [until(8, wait("x", lasts=100)), until(90, wait("y")), wait("z")],
        [hold(5)],
        {},
        {"x": 5, "y": 8, "z": 90},
    ),
}


@pytest.mark.parametrize("phrase", CASES)
def test_when_waiting_pods_start(phrase: str) -> None:
    waiting, held, free, expected = CASES[phrase]
    assert estimate_starts(waiting, held, free) == expected


def test_pods_that_are_alike_are_spread_over_what_is_known() -> None:
    """Of many the first ends long before the median; of one nothing else is known."""
    past = [float(seconds) for seconds in range(1, 1002)]
    assert time_left(0.0, past, None) == time_left(0.0, past, None, share(0)) == 501
    spread = sorted(time_left(0.0, past, None, share(number)) or 0.0 for number in range(100))
    assert spread[0] < 25
    assert spread[-1] > 975
    assert max(later - sooner for sooner, later in pairwise(spread)) < 25, "evenly"
    assert time_left(0.0, past, 30.0, share(1)) == 30, "a time limit is kept"


def test_ten_thousand_ends_and_pods_take_no_long_time() -> None:
    waiting = [wait(str(number), 1 + number % 3, lasts=50.0) for number in range(2_000)]
    held = [hold(float(number), on=f"node-{number % 100}") for number in range(10_000)]
    began = datetime.now(UTC)
    assert len(estimate_starts(waiting, held, {})) == len(waiting)
    assert (datetime.now(UTC) - began).total_seconds() < 5


#: phrase -> (elapsed, past, limit, left)
LEFT: dict[str, tuple[float, list[float], float | None, float | None]] = {
    "nothing known": (5, [], None, None),
    "only a limit": (5, [], 60, 55),
    "the limit is over": (70, [], 60, 0),
    "the median of what lasted longer": (5, [1, 10, 20, 30], None, 15),
    "of two, the shorter": (5, [10, 20], None, 5),
    "longer than all others: as long again": (40, [1, 10, 20], None, 40),
    "as long as one of them: the next": (10, [10, 20], None, 10),
    "never more than the limit allows": (5, [100], 60, 55),
    "less than the limit": (5, [10], 60, 5),
    "just begun": (0, [10, 20, 30], None, 20),
}


@pytest.mark.parametrize("phrase", LEFT)
def test_how_long_a_pod_goes_on(phrase: str) -> None:
    elapsed, past, limit, expected = LEFT[phrase]
    assert time_left(elapsed, past, limit) == expected


# From what there is --------------------------------------------------------------------------------------------------


def asks(cluster: Cluster, name: str, *, limit: int | None = None, **request: object) -> None:
    cluster.create(make_claim(name, requests=[make_request(**request)]))  # type: ignore[arg-type]
    pod = make_pod(name, claims={"gpu": name})
    cluster.create(replace(pod, spec=replace(pod.spec, active_deadline_seconds=limit)))
    cluster.settle()


def runs_since(cluster: Cluster, name: str, seconds: float) -> None:
    pod, began = cluster.pod(name), cluster.now - timedelta(seconds=seconds)
    cluster.update(replace(pod, status=replace(pod.status, phase="Running", start_time=timestamp(began))))


def test_the_queue_is_read_with_places_and_starts(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    asks(cluster, "first", limit=600)
    asks(cluster, "second", limit=60)
    runs_since(cluster, "first", 100)
    runs_since(cluster, "second", 30)
    for name in ("third", "fourth", "fifth"):
        asks(cluster, name, limit=1000)
    asks(cluster, "strange", device_class="other")
    cluster.create(make_pod("plain", node="nowhere"))
    found = {cluster_name(uid): place for uid, place in read_queue(cluster.now).items()}
    assert {name: (one.position, one.of) for name, one in found.items()} == {
        "third": (1, 3),
        "fourth": (2, 3),
        "fifth": (3, 3),
        "strange": (1, 1),
    }
    starts = {name: one.starts_at and (one.starts_at - cluster.now).total_seconds() for name, one in found.items()}
    assert starts == {"third": 30, "fourth": 500, "fifth": 1030, "strange": None}


def cluster_name(uid: str) -> str:
    return Pod.objects.get(uid=uid).name


def test_without_limits_past_allocations_of_the_namespace_say_how_long(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    asks(cluster, "first")
    runs_since(cluster, "first", 100)
    asks(cluster, "second")
    (place,) = read_queue(cluster.now).values()
    assert place.starts_at is None
    told = {"driver": "d", "pool": "p", "device": "g", "device_class": "c", "admin_access": False, "share_id": ""}
    PastAllocation.objects.bulk_create(
        PastAllocation(
            claim_uid=str(seconds), namespace="default", claim="c", pods=["x"], consumed_capacity={},
            began_at=cluster.now - timedelta(seconds=seconds), ended_at=cluster.now, **told,
        )
        for seconds in (50, 130, 300, 1000)
    )  # fmt: skip
    asks(cluster, "third")  # the queue is read again where something has changed
    second, third = read_queue(cluster.now).values()
    assert (second.starts_at, third.starts_at) == (
        cluster.now + timedelta(seconds=200),
        cluster.now + timedelta(seconds=200 + 130),
    )


def test_selectors_of_requests_count(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    asks(cluster, "first", limit=60)
    asks(cluster, "second", limit=600)
    runs_since(cluster, "first", 0)
    runs_since(cluster, "second", 0)
    held = cluster.devices(cluster.claim("second"))[0].partition("/")[2]
    index = held.rpartition("-")[2]
    asks(cluster, "picky", expressions=[f'device.attributes["gpu.example.com"].index == {index}'])
    (place,) = read_queue(cluster.now).values()
    assert place.starts_at == cluster.now + timedelta(seconds=600)


HOST = "kubernetes.io/hostname"
_ON_SECOND = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=HOST, operator="In", values=("node-2",)),))
CHOICES: dict[str, dict[str, Any]] = {
    "by a label": {"node_selector": {HOST: "node-2"}},
    "by affinity": {
        "affinity": Affinity(
            node_affinity=NodeAffinity(
                required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=(_ON_SECOND,))
            )
        )
    },
}


def held_by_two(cluster: Cluster) -> None:
    """A GPU each on two nodes: that of node-1 is given back after 60 s, the other after 600."""
    cluster.with_gpus("node-1", "node-2", each=1)
    for name, limit, node in (("first", 60, "node-1"), ("second", 600, "node-2")):
        waits_at(cluster, name, active_deadline_seconds=limit, node_selector={HOST: node})
        runs_since(cluster, name, 0)


def waits_at(cluster: Cluster, name: str, **spec: Any) -> None:
    cluster.create(make_claim(name, requests=[make_request()]))
    pod = make_pod(name, claims={"gpu": name})
    cluster.create(replace(pod, spec=replace(pod.spec, **spec)))
    cluster.settle()


def starts_in(cluster: Cluster) -> dict[str, float | None]:
    places = read_queue(cluster.now).values()
    return {one.name: (one.starts_at - cluster.now).total_seconds() if one.starts_at else None for one in places}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_pod_starts_on_the_nodes_that_it_may_use(choice: str, cluster: Cluster) -> None:
    held_by_two(cluster)
    waits_at(cluster, "picky", **CHOICES[choice])
    waits_at(cluster, "any")
    assert starts_in(cluster) == {"picky": 600, "any": 60}


def test_what_is_free_on_a_node_that_no_pod_may_use_is_not_expected_to_help(cluster: Cluster) -> None:
    """Before, a pod that waits for devices elsewhere had no estimate: it seemed to fit already."""
    held_by_two(cluster)
    node = make_node("node-3")
    taint = Taint(key="team", value="a", effect="NoSchedule")
    cluster.create(replace(node, spec=replace(node.spec, taints=(taint,))))
    cluster.create(make_slice(node="node-3", devices=make_devices(1)))
    waits_at(cluster, "shy")
    waits_at(cluster, "closed", node_selector={HOST: "node-3"})
    assert starts_in(cluster) == {"shy": 60, "closed": None}


def test_of_very_many_choices_of_nodes_nothing_is_said(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_estimates, "MOST_CHOICES", 1)
    held_by_two(cluster)
    waits_at(cluster, "any")
    waits_at(cluster, "picky", node_selector={HOST: "node-2"})
    assert starts_in(cluster) == {"any": 60, "picky": None}


def test_a_time_limit_beyond_any_calendar_is_none(cluster: Cluster) -> None:
    """It would cost every page that shows the queue."""
    cluster.with_gpus("node-1", each=1)
    asks(cluster, "first")
    runs_since(cluster, "first", 0)
    Pod.objects.filter(name="first").update(time_limit=2**62)
    asks(cluster, "second")
    assert starts_in(cluster) == {"second": None}
    assert end_of(cluster.now, 2**62) is None
