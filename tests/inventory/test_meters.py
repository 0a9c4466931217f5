"""Readings of devices' meters: who may report them, how large and how often, what is kept of them and what it costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from inventory import meters
from inventory.kinds.device_readings import MOST_DEVICES, Meters
from inventory.meters import FRESH, HOUR, LEAST_INTERVAL, SLOT, keep, slot_of
from inventory.models import DeviceMeter, MeterBlock
from manciple.access.authentication import tokens
from manciple.store import event_log
from manciple.wire.identity import AUTHENTICATED, NODES
from tests.builders import DRIVER, make_device, make_node, make_slice
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.manciple.audit.reading import look
from tests.scheduling.cluster import Cluster
from tests.scheduling.conftest import cluster

__all__ = ["api", "cluster"]

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
BUSY = Meters(utilization=80, memory_used=20 << 30, memory_total=80 << 30, temperature=61, power=310)
QUIET = Meters(utilization=1, memory_used=0, memory_total=80 << 30, temperature=30, power=60)
KEY = (DRIVER, "node-1", "gpu-0")


def path(node: str = "node-1") -> str:
    return f"/api/v1/nodes/{node}/devicereadings"


def report(*names: str, **read: Any) -> dict[str, Any]:
    meters = read or {"utilization": 80, "temperature": 61}
    devices = [{"driver": DRIVER, "pool": "node-1", "device": name, "meters": meters} for name in names]
    return {"apiVersion": "manciple.dev/v1alpha1", "kind": "DeviceReadings", "devices": devices}


def agent(node: str) -> Api:
    return Api(tokens.issue(f"system:node:{node}", [NODES, AUTHENTICATED]))


@pytest.fixture
def nodes(api: Api, cluster: Cluster) -> Api:
    """Two nodes with a GPU each, and an administrator of them."""
    for name in ("node-1", "node-2"):
        cluster.create(make_node(name))
        cluster.create(make_slice(f"s-{name}", node=name, devices=[make_device("gpu-0")]))
    return api


def points(since: datetime = NOON - HOUR, until: datetime = NOON + HOUR) -> list[meters.MeterPoint]:
    found = meters.history(MeterBlock.Owner.NODE, ["node-1"], since=since, until=until)
    return found.get(("node-1", meters.series_of(KEY)), [])


# Who may report -------------------------------------------------------------------------------------------------------


def test_a_node_reports_its_own_devices_and_no_other_nodes(nodes: Api) -> None:
    assert agent("node-1").post(path(), report("gpu-0")).code == 201
    stranger = agent("node-2").post(path(), report("gpu-0", utilization=0))
    assert (stranger.code, stranger.reason) == (403, "Forbidden")
    pretender = agent("node-2").post(path("node-2"), report("gpu-0", utilization=0))
    assert pretender.code == 201, "devices of node-1 in a report of node-2 are not known there"
    (read,) = DeviceMeter.objects.all()
    assert (read.node, read.device, read.utilization, read.temperature) == ("node-1", "gpu-0", 80, 61)


@pytest.mark.parametrize("token", ["", "bob"], ids=["nobody", "a user"])
def test_others_need_a_role(nodes: Api, token: str) -> None:
    other = Api(tokens.issue(token, [AUTHENTICATED]) if token else "")
    assert other.post(path(), report("gpu-0")).code in (401, 403)
    assert not DeviceMeter.objects.exists()


def test_of_devices_that_the_node_does_not_publish_nothing_is_kept(nodes: Api) -> None:
    assert agent("node-1").post(path(), report("gpu-0", "gpu-1")).code == 201
    assert [one.device for one in DeviceMeter.objects.all()] == ["gpu-0"]


# What is refused ------------------------------------------------------------------------------------------------------


def test_a_report_has_a_bound_on_its_devices(nodes: Api) -> None:
    answer = nodes.post(path(), report(*(f"gpu-{number}" for number in range(MOST_DEVICES + 1))))
    assert (answer.code, answer.causes) == (422, {("FieldValueTooMany", "devices")})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("utilization", 101), ("utilization", -1), ("temperature", 1000), ("power", -5), ("power", 10**6),
        ("memoryUsed", -1), ("memoryTotal", 2**60),
    ],
)  # fmt: skip
def test_readings_out_of_bounds_are_refused_by_name(nodes: Api, field: str, value: int) -> None:
    answer = nodes.post(path(), report("gpu-0", **{field: value}))
    assert (answer.code, answer.causes) == (422, {("FieldValueInvalid", f"devices[0].meters.{field}")})
    assert not DeviceMeter.objects.exists()


def test_a_device_is_named_in_full_and_once(nodes: Api) -> None:
    twice = nodes.post(path(), report("gpu-0", "gpu-0"))
    assert twice.causes == {("FieldValueDuplicate", "devices[1]")}
    unnamed = nodes.post(path(), report(""))
    assert unnamed.causes == {("FieldValueRequired", "devices[0].device")}


def test_a_node_that_reports_without_pause_is_told_to_wait(nodes: Api) -> None:
    assert nodes.post(path(), report("gpu-0")).code == 201
    answer = nodes.post(path(), report("gpu-0"))
    assert (answer.code, answer.json["details"]["retryAfterSeconds"]) == (429, LEAST_INTERVAL.total_seconds())


def test_readings_of_a_node_that_is_not_there_are_refused(nodes: Api) -> None:
    assert nodes.post(path("gone"), report("gpu-0")).code == 404


# What it costs --------------------------------------------------------------------------------------------------------


def test_a_report_makes_no_event_and_no_audit_entry_but_a_refusal_does(nodes: Api) -> None:
    revision, entries = event_log.latest_revision(), len(look())
    assert agent("node-1").post(path(), report("gpu-0")).code == 201
    assert (event_log.latest_revision(), len(look())) == (revision, entries)
    agent("node-2").post(path(), report("gpu-0"))
    assert [one.code for one in look()][: len(look()) - entries] == [403]


def test_a_report_costs_as_many_statements_for_hundreds_of_devices_as_for_one(nodes: Api, cluster: Cluster) -> None:
    names = [f"gpu-{number}" for number in range(100)]
    cluster.create(make_node("large"))
    cluster.create(make_slice("s-large", node="large", devices=[make_device(name) for name in names]))

    def statements(node: str, devices: list[str], at: datetime) -> int:
        with CaptureQueriesContext(connection) as made:
            keep(node, {(DRIVER, node, name): BUSY for name in devices}, now=at)
        return len(made)

    assert statements("node-1", ["gpu-0"], NOON) <= 7, "the first report"
    assert statements("node-1", ["gpu-0"], NOON + SLOT) <= 6
    assert statements("large", names, NOON) <= 8
    assert statements("large", names, NOON + SLOT) <= 7
    assert DeviceMeter.objects.count() == 101


def test_the_rows_of_a_node_do_not_grow_with_its_reports(nodes: Api) -> None:
    for minute in range(0, 60, 3):
        keep("node-1", {KEY: BUSY}, now=NOON + timedelta(minutes=minute))
    assert (DeviceMeter.objects.count(), MeterBlock.objects.count()) == (1, 1)
    assert len(points()) == 20


def test_what_is_old_is_deleted(nodes: Api) -> None:
    keep("node-1", {KEY: BUSY}, now=NOON)
    keep("node-1", {KEY: BUSY}, now=NOON + HOUR)
    meters.prune(NOON + meters.KEPT_FOR + HOUR / 2)
    assert [one.begin for one in MeterBlock.objects.all()] == [NOON + HOUR]
    meters.prune(NOON + meters.KEPT_FOR + 2 * HOUR)
    assert not MeterBlock.objects.exists()
    assert not DeviceMeter.objects.exists()


# What is kept ---------------------------------------------------------------------------------------------------------


def test_the_history_is_what_was_read_in_the_time_that_is_asked_for(nodes: Api) -> None:
    for hours, read in ((0, BUSY), (1, QUIET), (2, Meters(power=100))):
        keep("node-1", {KEY: read}, now=NOON + hours * HOUR)
    assert [(one.at, one.utilization, one.temperature, one.power) for one in points(until=NOON + 2 * HOUR)] == [
        (NOON, 80, 61, 310), (NOON + HOUR, 1, 30, 60), (NOON + 2 * HOUR, None, None, 100)
    ]  # fmt: skip
    assert [one.at for one in points(NOON + SLOT, NOON + HOUR)] == [NOON + HOUR]
    assert points(NOON + 5 * HOUR, NOON + 6 * HOUR) == []


@given(
    st.builds(
        Meters,
        utilization=st.none() | st.integers(0, 100),
        memory_used=st.none() | st.integers(0, 2**53),
        memory_total=st.none() | st.integers(0, 2**53),
        temperature=st.none() | st.integers(-100, 200),
        power=st.none() | st.integers(0, 100_000),
    )
)
def test_every_reading_fits_its_slot_and_comes_back(read: Meters) -> None:
    (point,) = [*meters._points(NOON, slot_of(read)), None][:1]
    known = read.memory_used is not None and bool(read.memory_total)
    if point is None:
        assert (read.utilization, read.temperature, read.power, known) == (None, None, None, False)
        return
    assert (point.utilization, point.power) == (read.utilization, read.power)
    assert (point.temperature is None) == (read.temperature is None)
    if read.temperature is not None and point.temperature is not None:
        assert point.temperature == min(max(read.temperature, -55), 199)
    assert (point.memory is None) == (not known)
    if point.memory is not None and read.memory_used is not None and read.memory_total:
        assert abs(point.memory - 100 * min(read.memory_used / read.memory_total, 1)) < 0.5


def test_a_device_is_quiet_since_its_first_reading_below_the_threshold(nodes: Api) -> None:
    def quiet_since(minute: int, read: Meters) -> datetime | None:
        keep("node-1", {KEY: read}, now=NOON + timedelta(minutes=minute))
        return DeviceMeter.objects.get().quiet_since

    assert quiet_since(0, BUSY) is None
    assert quiet_since(2, QUIET) == NOON + timedelta(minutes=2)
    assert quiet_since(4, QUIET) == NOON + timedelta(minutes=2)
    assert quiet_since(6, BUSY) is None
    assert quiet_since(8, QUIET) == NOON + timedelta(minutes=8)
    late = 8 + int(FRESH / timedelta(minutes=1)) + 1
    assert quiet_since(late, QUIET) == NOON + timedelta(minutes=late), "nobody knows what it did meanwhile"
    assert quiet_since(late + 2, Meters(power=60)) is None, "nobody knows what it does"
