"""Held devices that do nothing are found by their meters or by what drivers say, and what namespaces do is kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from claims.models import AllocatedDevice, UseSpell
from insight import meters
from insight.meters import IdleClaim, idle_claims
from inventory.kinds.device_readings import Meters
from inventory.meters import FRESH, SLOT, history, keep
from inventory.models import DeviceMeter, MeterBlock
from manciple.people import ALL_NAMESPACES, Person
from manciple.wire.identity import MASTERS, Identity
from tests.builders import DRIVER, make_claim, make_pod, make_request
from tests.scheduling.cluster import Cluster

ADMIN = Person(Identity("ada", (MASTERS,)), ALL_NAMESPACES)
MINUTE = timedelta(minutes=1)
BUSY, QUIET = Meters(utilization=70, power=300), Meters(utilization=2, power=60)


@pytest.fixture(autouse=True)
def _an_hour_is_long(settings: Settings) -> None:
    settings.IDLE_MINUTES = 60.0
    settings.IDLE_PERCENT = 5.0


class Scene:
    """Two GPUs on node-1, of which pod `train` holds as many as the test says; `now` is the latest reading."""

    def __init__(self, cluster: Cluster, *, count: int = 1, namespace: str = "default") -> None:
        self.cluster, self.namespace = cluster, namespace
        cluster.with_gpus("node-1", each=2)
        cluster.create(make_claim("train", namespace=namespace, requests=[make_request(count=count)]))
        cluster.create(make_pod("train", namespace=namespace, claims={"gpu": "train"}))
        cluster.settle()
        self.devices = sorted(AllocatedDevice.objects.values_list("device", flat=True))
        assert len(self.devices) == count
        self.start = self.now = cluster.now

    def read(self, minutes: int, **by_device: Meters) -> None:
        """The meters read this for so many minutes."""
        for _ in range(0, minutes, int(SLOT / MINUTE)):
            self.now += SLOT
            readings = {(DRIVER, "node-1", name.replace("_", "-")): one for name, one in by_device.items()}
            keep("node-1", readings, now=self.now)

    def idle(self, person: Person = ADMIN, *, after: timedelta = timedelta(0)) -> list[tuple[str, list[str]]]:
        """(claim, its idle devices)"""
        return [(one.claim, [name for name, _ in one.devices]) for one in idle_claims(person, self.now + after)]

    def claim(self) -> IdleClaim:
        (found,) = idle_claims(ADMIN, self.now)
        return found


def test_a_held_device_whose_meters_show_no_work_for_the_set_time_is_idle(cluster: Cluster) -> None:
    scene = Scene(cluster)
    device = scene.devices[0].replace("-", "_")
    scene.read(60, **{device: QUIET})
    assert scene.idle() == []
    scene.read(4, **{device: QUIET})
    assert scene.idle() == [("train", scene.devices)]
    found = scene.claim()
    assert (found.namespace, found.pods, found.held, found.since) == ("default", ("train",), 1, scene.start + SLOT)
    scene.read(2, **{device: BUSY})
    assert scene.idle() == []


def test_a_device_that_nobody_holds_is_free_not_idle(cluster: Cluster) -> None:
    scene = Scene(cluster)
    free = {"gpu-0", "gpu-1"} - set(scene.devices)
    scene.read(120, **{name.replace("-", "_"): QUIET for name in free})
    assert scene.idle() == []


def test_the_time_before_it_was_held_does_not_count(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    key = (DRIVER, "node-1", "gpu-0")
    for minute in range(0, 200, 2):
        keep("node-1", {key: QUIET}, now=cluster.now - timedelta(minutes=200 - minute))
    cluster.create(make_claim("train"))
    cluster.create(make_pod("train", claims={"gpu": "train"}))
    cluster.settle()
    assert idle_claims(ADMIN, cluster.now + MINUTE) == []
    assert len(idle_claims(ADMIN, cluster.now + 5 * MINUTE)) == 0


def test_what_both_thresholds_are_is_set(cluster: Cluster, settings: Settings) -> None:
    settings.IDLE_MINUTES, settings.IDLE_PERCENT = 10.0, 1.0
    scene = Scene(cluster)
    device = scene.devices[0].replace("-", "_")
    scene.read(20, **{device: QUIET})
    assert scene.idle() == [], "2 % is work"
    settings.IDLE_PERCENT = 3.0
    scene.read(14, **{device: QUIET})
    assert scene.idle() == [("train", scene.devices)]


def test_a_device_whose_meters_are_silent_is_not_called_idle(cluster: Cluster) -> None:
    scene = Scene(cluster)
    scene.read(70, **{scene.devices[0].replace("-", "_"): QUIET})
    assert scene.idle(after=FRESH - MINUTE) != []
    assert scene.idle(after=FRESH + MINUTE) == [], "its node, or its driver, has gone"


def test_only_the_idle_ones_of_a_claims_devices_are_named(cluster: Cluster) -> None:
    scene = Scene(cluster, count=2)
    scene.read(70, gpu_0=BUSY, gpu_1=QUIET)
    assert scene.idle() == [("train", ["gpu-1"])]
    assert scene.claim().held == 2


def spell(scene: Scene, *, idle: bool, minutes: int) -> None:
    held = AllocatedDevice.objects.get(device=scene.devices[0])
    fields: dict[str, Any] = {
        "driver": held.driver, "pool": held.pool, "device": held.device, "share_id": "", "device_class": "",
        "claim_uid": held.claim_id, "namespace": scene.namespace,
    }  # fmt: skip
    UseSpell.objects.create(**fields, idle=idle, began_at=scene.now - timedelta(minutes=minutes))


def test_what_a_driver_without_meters_calls_idle_counts_as_well(cluster: Cluster) -> None:
    scene = Scene(cluster)
    scene.now += timedelta(hours=3)
    spell(scene, idle=False, minutes=150)
    assert scene.idle() == []
    UseSpell.objects.all().delete()
    spell(scene, idle=True, minutes=50)
    assert scene.idle() == []
    UseSpell.objects.all().delete()
    spell(scene, idle=True, minutes=90)
    assert scene.idle() == [("train", scene.devices)]


def test_meters_that_show_work_outweigh_a_driver_that_calls_it_idle(cluster: Cluster) -> None:
    scene = Scene(cluster)
    spell(scene, idle=True, minutes=0)
    scene.read(80, **{scene.devices[0].replace("-", "_"): BUSY})
    assert scene.idle() == []


def test_a_person_sees_those_of_their_namespaces(cluster: Cluster) -> None:
    scene = Scene(cluster, namespace="vision")
    scene.read(70, **{scene.devices[0].replace("-", "_"): QUIET})
    assert scene.idle(Person(Identity("ann"), frozenset({"vision"}))) == [("train", scene.devices)]
    assert scene.idle(Person(Identity("bob"), frozenset({"speech"}))) == []


def test_where_nothing_is_reported_finding_none_costs_two_small_queries(cluster: Cluster) -> None:
    Scene(cluster)
    with CaptureQueriesContext(connection) as made:
        assert idle_claims(ADMIN, cluster.now) == ()
    assert len(made) == 2


# Namespaces -----------------------------------------------------------------------------------------------------------


def of_namespace(scene: Scene) -> list[tuple[float | None, float | None, float | None, float | None]]:
    found = history(MeterBlock.Owner.NAMESPACE, [scene.namespace], since=scene.start, until=scene.now)
    return [(one.utilization, one.memory, one.temperature, one.power) for one in found.get((scene.namespace, ""), [])]


def test_of_a_namespace_the_mean_utilization_and_the_whole_power_of_what_it_holds_are_kept(cluster: Cluster) -> None:
    scene = Scene(cluster, count=2)
    gib = 1 << 30
    one = Meters(utilization=100, memory_used=80 * gib, memory_total=80 * gib, temperature=70, power=400)
    other = Meters(utilization=50, memory_used=0, memory_total=80 * gib, temperature=40, power=100)
    scene.read(2, gpu_0=one, gpu_1=other)
    meters.reconcile(scene.now)
    assert of_namespace(scene) == [(75, 50, 70, 500)]


def test_what_a_namespace_does_not_hold_and_what_was_read_long_ago_is_not_counted(cluster: Cluster) -> None:
    scene = Scene(cluster)
    (free,) = {"gpu-0", "gpu-1"} - set(scene.devices)
    scene.read(2, **{free.replace("-", "_"): BUSY})
    meters.reconcile(scene.now)
    assert of_namespace(scene) == []
    scene.read(2, **{scene.devices[0].replace("-", "_"): QUIET})
    scene.now += FRESH + SLOT
    meters.reconcile(scene.now)
    assert of_namespace(scene) == []


def test_without_readings_the_controller_writes_nothing(cluster: Cluster) -> None:
    scene = Scene(cluster)
    assert meters.reconcile(scene.now) == 0
    assert not MeterBlock.objects.exists()
    assert not DeviceMeter.objects.exists()
