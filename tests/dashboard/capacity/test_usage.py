"""The usage: what was held by class, model and namespace, how long claims waited, and who sees what of it."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone

from claims.models import PastAllocation, UseSpell
from dashboard.kit.charts import UNKNOWN, ChosenTime, Layer, axis, levels, stacked
from insight.usage import minute_of
from scheduling.models import UsageSample
from tests.builders import make_devices, make_node, make_slice
from tests.dashboard import texts
from tests.dashboard.browsing import signed_in, words
from tests.scheduling.cluster import Cluster

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the test begins: on a busy machine the module was imported half an hour ago."""
    monkeypatch.setitem(globals(), "NOW", datetime.now(UTC))


@pytest.fixture
def admin(cluster: Cluster) -> Client:
    """An administrator's browser, on a cluster with two models."""
    for node, model in (("node-1", "A100"), ("node-2", "H100")):
        cluster.create(make_node(node))
        cluster.create(make_slice(node=node, devices=make_devices(2, attributes={"model": model})))
    return signed_in("ada", staff=True)


def held(
    pool: str, *, hours: tuple[float, float], device: str = "gpu-0", waited: float | None = 60.0, **fields: Any
) -> None:
    """A device that was held; hours before now."""
    began = NOW - timedelta(hours=hours[0])
    values = {
        "driver": "gpu.example.com", "pool": pool, "device": device, "device_class": "gpu", "namespace": "vision",
        "claim_uid": f"{pool}-{device}-{hours}", "claim": "train", "pods": ["job"], "admin_access": False,
        "share_id": "", "consumed_capacity": {}, "began_at": began, "ended_at": NOW - timedelta(hours=hours[1]),
        "asked_at": None if waited is None else began - timedelta(seconds=waited),
    }  # fmt: skip
    PastAllocation.objects.create(**values | fields)


def rows(client: Client, query: str) -> dict[str, dict[str, str]]:
    """The exported table, by its first column."""
    text = client.get(f"/usage.csv?{query}").content.decode()
    read = csv.DictReader(io.StringIO(text, newline=""))
    assert read.fieldnames
    return {row[read.fieldnames[0]]: row for row in read}


STACKED = {
    "class": {"gpu": 7, "big": 1},
    "model": {"A100": 4, "H100": 3, "gpu.example.com": 1},
    "namespace": {"vision": 6, "speech": 2},
}


def test_device_hours_are_summed_by_class_model_and_namespace(admin: Client) -> None:
    held("node-1", hours=(6, 2))
    held("node-2", hours=(3, 1), namespace="speech")
    held("node-2", hours=(30, 23), device="gpu-1", device_class="big")
    held("gone", hours=(2, 1))
    hours = {
        by: {name: round(float(row["device_hours"])) for name, row in rows(admin, f"by={by}").items()} for by in STACKED
    }
    assert hours == STACKED
    assert rows(admin, "by=model&class=big")["H100"]["share_percent"] == "100.00"
    assert rows(admin, "by=class&ns=speech") == rows(admin, "by=class&ns=speech&range=24h")


def test_waits_are_told_as_percentiles_of_claims_made_for_pods(admin: Client) -> None:
    for number, seconds in enumerate((10.0, 20.0, 30.0, 7200.0, None)):
        held("node-1", hours=(2 + number / 10, 1), device=f"gpu-{number}", waited=seconds)
    shown = words(admin, "/usage")
    assert texts.CLAIMS_MADE_FOR_PODS("4 claims") in shown
    assert texts.WAITING_TIMES("20 s", "2 h", "2 h", "2 h") in shown
    (row,) = rows(admin, "").values()
    assert (row["claims"], row["wait_median_seconds"], row["wait_90_percent_seconds"]) == ("4", "20.0", "7200.0")


def test_who_sees_one_namespace_reads_hours_of_others_without_names_and_no_waits(admin: Client) -> None:
    held("node-1", hours=(4, 2), namespace="team-a")
    held("node-2", hours=(4, 1), namespace="secret", waited=3600)
    member = signed_in("ann", "namespace:team-a")
    assert {name: row["claims"] for name, row in rows(member, "by=namespace").items()} == {
        "team-a": "1", "Other namespaces": "0"
    }  # fmt: skip
    page = member.get("/usage?by=class").content.decode()
    assert "secret" not in page
    assert "1 claim " in words(member, "/usage?by=class")


def test_states_come_from_the_samples_of_every_minute(admin: Client) -> None:
    at = minute_of(NOW) - timedelta(minutes=30)
    for minute in range(30):
        counts = {"reserved": 1, "free": 3}
        UsageSample.objects.create(at=at + timedelta(minutes=minute), device_class="", counts=counts, waiting=0)
    page = admin.get("/usage?by=state&range=1h").content.decode()
    assert re.search(r'data-steps="60"', page), "no step is shorter than the minute of a sample"
    assert re.search(rf'data-levels="{UNKNOWN}x\d+ 1x30 ?[{UNKNOWN}x0-9]*"', page)


# What is drawn -------------------------------------------------------------------------------------------------------


def test_layers_stand_on_each_other_and_say_their_levels() -> None:
    series = [("g1", {0: 1, 1: 1}), ("g2", {0: 0, 1: 0}), ("g3", {0: 1, 1: 3})]
    low, high = stacked(series, steps=2, top=4)
    assert (low.state, low.path, low.levels) == ("g1", "M0 1000V750H500V750H1000V1000H500V1000H0Z", "1x2")
    assert (high.state, high.levels, high.last) == ("g3", "1x1 3x1", "3")
    assert Layer(state="free", path="", levels=f"2x5 {UNKNOWN}x1").last == "2", "what is not recorded yet"
    assert levels([None, None, 2]) == f"{UNKNOWN}x2 2x1"


# The time that is shown ----------------------------------------------------------------------------------------------


def test_what_is_written_without_a_zone_is_the_readers_time_and_the_link_says_utc(admin: Client) -> None:
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        time = ChosenTime.read({"from": "2026-11-20T10:00", "to": "2026-11-20T03:00Z"})
        assert (time.begin, time.end) == ("2026-11-20T01:00Z", "2026-11-20T03:00Z")
        assert time.inputs == ("2026-11-20T10:00", "2026-11-20T12:00")
        window, problem = time.window(datetime(2026, 11, 21, tzinfo=UTC))
        assert (window.seconds, problem) == (7200, "")
        assert "10:30" in [mark.word for mark in axis(window)]
    admin.cookies["time-zone"] = "Asia/Tokyo"
    for page in ("/usage", "/timeline"):
        answer = admin.get(f"{page}?from=2026-11-20T10:00&to=2026-11-20T12:00")
        assert answer.headers["Location"] == f"{page}?from=2026-11-20T01%3A00Z&to=2026-11-20T03%3A00Z"
        assert admin.get(answer.headers["Location"]).status_code == 200


# What drivers tell of use --------------------------------------------------------------------------------------------


def used(pool: str, *, hours: tuple[float, float | None], idle: bool, **fields: Any) -> None:
    """What a driver told of gpu-0 of a pool; hours before now."""
    began, ended = (None if one is None else NOW - timedelta(hours=one) for one in hours)
    values = {
        "driver": "gpu.example.com", "pool": pool, "device": "gpu-0", "share_id": "", "device_class": "gpu",
        "claim_uid": "c", "namespace": "vision", "idle": idle, "began_at": began, "ended_at": ended,
    }  # fmt: skip
    UseSpell.objects.create(**values | fields)


def test_idle_hours_are_shown_where_a_driver_tells_them_and_nowhere_else(admin: Client) -> None:
    held("node-1", hours=(6, 1))
    held("node-2", hours=(3, 1), device_class="big", namespace="speech")
    assert "idle" not in words(admin, "/usage"), "no driver tells"
    assert {row["idle_device_hours"] for row in rows(admin, "by=class").values()} == {""}
    used("node-1", hours=(6, 4), idle=False)
    assert rows(admin, "by=class")["gpu"]["idle_device_hours"] == "0.00", "it was never idle"
    used("node-1", hours=(4, 2), idle=True)
    used("node-1", hours=(40, 30), idle=True)
    used("node-1", hours=(2, None), idle=False)
    for by, name, other in (("class", "gpu", "big"), ("model", "A100", "H100"), ("namespace", "vision", "speech")):
        idle = {group: row["idle_device_hours"] for group, row in rows(admin, f"by={by}").items()}
        assert idle == {name: "2.00", other: ""}
    shown = words(admin, "/usage?by=class")
    assert "of which 2 idle" in shown
    assert "not reported" in shown
    page = admin.get("/usage?by=class").content.decode()
    (told,) = re.findall(r'data-levels="([^"]+)">\s*<i class="swatch of-idle">', page)
    assert re.fullmatch(r"0x(199|200) 1x20 0x2[01]", told), "an hour is ten of the steps of a day"
    assert rows(admin, "by=class&ns=speech")["big"]["idle_device_hours"] == ""
