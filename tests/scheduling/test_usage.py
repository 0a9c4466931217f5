"""Samples of usage: one a minute and class, whoever takes it, in the states of the device grid."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from insight import usage
from insight.capacity import read_census
from manciple.controllers import tasks
from scheduling.models import UsageSample
from tests.builders import (
    CLASS,
    DRIVER,
    make_claim,
    make_class,
    make_container,
    make_device,
    make_device_taint,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.claims.devices.scene import signed_in
from tests.scheduling.cluster import Cluster


def _wants(cluster: Cluster, name: str, *, count: int = 1, device_class: str = CLASS) -> None:
    cluster.create(make_claim(name, requests=[make_request(count=count, device_class=device_class)]))
    cluster.create(make_pod(name, claims={"gpu": name}))


def test_a_sample_tells_the_devices_of_all_and_of_each_class_by_state(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=3)
    cluster.create(make_class("none", expressions=["false"]))
    _wants(cluster, "web", count=2)
    _wants(cluster, "late", count=2)
    cluster.settle()
    assert usage.sample(cluster.now) == 3
    found = {one.device_class: (one.counts, one.waiting) for one in UsageSample.objects.all()}
    assert found == {
        usage.ALL: ({"prep": 2, "free": 1}, 1),
        CLASS: ({"prep": 2, "free": 1}, 1),
        "none": ({}, 0),
    }


def test_of_several_workers_the_first_takes_the_sample_of_a_minute(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    start = cluster.now.replace(second=1)
    assert usage.sample(start) == 2
    assert usage.sample(start + timedelta(seconds=50)) == 0
    assert usage.sample(start + timedelta(seconds=60)) == 2
    assert UsageSample.objects.filter(device_class=usage.ALL).count() == 2


def test_a_worker_that_lost_the_race_for_a_minute_changes_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have looked before either has written."""
    cluster.with_gpus("node-1", each=1)
    census = read_census()

    def slow_census() -> object:
        if not UsageSample.objects.exists():
            UsageSample.objects.create(
                at=usage.minute_of(cluster.now), device_class=usage.ALL, counts={"bad": 1}, waiting=0
            )
        return census

    monkeypatch.setattr("insight.usage.read_census", slow_census)
    usage.sample(cluster.now)
    (kept,) = UsageSample.objects.filter(device_class=usage.ALL)
    assert kept.counts == {"bad": 1}


def test_samples_are_forgotten_after_eight_days(cluster: Cluster) -> None:
    for days in (7, 9):
        UsageSample.objects.create(at=cluster.now - timedelta(days=days), device_class="", counts={}, waiting=0)
    usage.sample(cluster.now)
    assert [one.at for one in usage.samples_since(cluster.now - timedelta(days=30))] == [
        cluster.now - timedelta(days=7),
        usage.minute_of(cluster.now),
    ]


def test_a_large_cluster_is_sampled_seldom_and_in_all(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.with_gpus("node-1", each=3)
    monkeypatch.setattr(usage, "LARGE", 3)
    start = usage.minute_of(cluster.now)
    taken = [usage.sample(start + timedelta(minutes=minute)) for minute in range(12)]
    assert taken == [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert set(UsageSample.objects.values_list("device_class", flat=True)) == {usage.ALL}


def test_a_sample_after_much_has_happened_is_right_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_FOLLOWED", 0)
    cluster.with_gpus("node-1", each=2)
    usage.sample(cluster.now)
    _wants(cluster, "web")
    cluster.settle()
    usage.sample(cluster.now + timedelta(minutes=1))
    latest = UsageSample.objects.filter(device_class=usage.ALL).latest("at")
    assert latest.counts == {"prep": 1, "free": 1}


def test_the_task_samples_once_its_process_has_had_time_for_the_scheduler(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1", each=1)
    monkeypatch.setattr(usage, "WARMING_UP", math.inf)
    tasks.run("sample_usage")
    assert not UsageSample.objects.exists()
    monkeypatch.setattr(usage, "WARMING_UP", 0.0)
    tasks.run("sample_usage")
    assert UsageSample.objects.filter(device_class=usage.ALL).count() == 1


def test_a_sample_says_what_is_stranded_of_each_class_and_the_overview_shows_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the pod is, of the two GPUs that are free one has no core beside it."""
    cluster.create(make_class())
    for node, cpu in (("node-1", "4"), ("node-2", "8")):
        cluster.create(make_node(node, capacity={"cpu": cpu, "memory": "64Gi", "pods": "110"}))
        cluster.create(make_slice(node=node, devices=make_devices(2 if node == "node-1" else 1)))
    cluster.create(make_claim("web"))
    container = make_container(claims=["gpu"], requests={"cpu": "4"})
    cluster.create(make_pod("web", claims={"gpu": "web"}, containers=[container]))
    cluster.settle()
    monkeypatch.setattr(usage, "WARMING_UP", 0.0)
    tasks.run("sample_usage")
    sample = UsageSample.objects.get(device_class=CLASS)
    assert sample.free == 2.0
    assert round(sample.stranded or 0, 1) == 1.0
    page = signed_in("ada", staff=True).get(f"/overview?class={CLASS}").content.decode()
    assert ">Stranded</th>" in page
    assert f'<td class="num not-phone">{round(50 * (sample.stranded or 0))}%</td>' in page


def test_states_are_those_of_the_grid(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    fenced = make_device("fenced", taints=[make_device_taint("example.com/maintenance")])
    cluster.create(make_slice(devices=[*make_devices(2), fenced]))
    _wants(cluster, "web")
    cluster.settle()
    census = read_census()
    assert (census.total, dict(census.totals)) == (3, {"prep": 1, "free": 1, "taint": 1})
    (counted,) = census.classes
    assert (counted.name, dict(counted.counts), counted.waiting) == (CLASS, dict(census.totals), 0)


def test_a_class_counts_only_what_its_selectors_accept(cluster: Cluster) -> None:
    cluster.create(make_class("large", expressions=[f'device.attributes["{DRIVER}"].model == "B"']))
    cluster.create(make_class("broken", expressions=['device.attributes["nothing"].model == "B"']))
    cluster.create(make_node("node-1"))
    devices = [make_device(f"gpu-{model.lower()}", attributes={"model": model}) for model in "AB"]
    cluster.create(make_slice(devices=devices))
    counted = {one.name: dict(one.counts) for one in read_census().classes}
    assert counted == {"large": {"free": 1}, "broken": {}}
