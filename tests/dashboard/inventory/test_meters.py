"""Utilization on the pages of devices, pods and namespaces, and idle devices: where reported, and nowhere else."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from pytest_django import Settings

from claims.models import AllocatedDevice, Claim
from dashboard.kit.meters import RANGES, MeterCharts, asked_window, draw
from insight import meters as use
from inventory.kinds.device_readings import Meters
from inventory.meters import SLOT, MeterPoint, keep
from inventory.models import DeviceMeter, Node
from tests.builders import DRIVER, make_claim, make_pod, make_request
from tests.dashboard.browsing import signed_in
from tests.scheduling.cluster import Cluster

BUSY = Meters(utilization=80, memory_used=20 << 30, memory_total=80 << 30, temperature=61, power=310)
QUIET = Meters(utilization=1, temperature=30, power=60)
DEVICE, POD, NAMESPACE = f"/devices/d/{DRIVER}/node-1/gpu-0", "/pods/default/train?tab=claims", "/namespaces/default"
METERED = {"device": DEVICE, "pod": POD, "namespace": NAMESPACE}
IDLE = {"overview": "/overview", "usage": "/usage", "device": DEVICE, "pod": POD}


@pytest.fixture
def admin(cluster: Cluster) -> Client:
    """An administrator's browser; pod `train` holds both GPUs of node-1."""
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_claim("train", requests=[make_request(count=2)]))
    cluster.create(make_pod("train", claims={"gpu": "train"}))
    cluster.settle()
    return signed_in("ada", staff=True)


def read(first: Meters, second: Meters, *, since: timedelta, until: timedelta = timedelta(0)) -> None:
    """The meters of both devices in that time before now."""
    now = datetime.now(UTC)
    at = now - since
    while at <= now - until:
        keep("node-1", {(DRIVER, "node-1", "gpu-0"): first, (DRIVER, "node-1", "gpu-1"): second}, now=at)
        use.reconcile(at)
        at += SLOT


def charts(client: Client, page: str) -> MeterCharts | None:
    found: MeterCharts | None = client.get(page).context["meters"]
    return found


@pytest.mark.parametrize("page", METERED.values(), ids=METERED)
def test_where_no_driver_reports_pages_say_nothing_about_it(admin: Client, page: str) -> None:
    assert charts(admin, page) is None
    assert "h-meters" not in admin.get(page).content.decode()


@pytest.mark.parametrize("page", IDLE.values(), ids=IDLE)
def test_where_nothing_is_idle_pages_do_not_speak_of_it(admin: Client, page: str) -> None:
    read(BUSY, BUSY, since=timedelta(hours=2))
    _held_for(timedelta(hours=3))
    answer = admin.get(page)
    assert answer.context["idle"] is None
    assert not re.search(r"[Ii]dle for|h-idle", answer.content.decode())


@pytest.mark.parametrize(
    ("page", "titles", "now"),
    [
        (DEVICE, ["Utilization", "Memory in use", "Temperature", "Power"], ["80 %", "25 %", "61 °C", "310 W"]),
        (
            POD,
            ["Utilization, mean", "Memory in use", "Temperature, highest", "Power, in all"],
            ["40 %", "25 %", "61 °C", "370 W"],
        ),
        (NAMESPACE, ["Utilization", "Memory in use", "Temperature", "Power"], ["40 %", "25 %", "61 °C", "370 W"]),
    ],
    ids=METERED,
)
def test_the_meters_are_drawn(admin: Client, page: str, titles: list[str], now: list[str]) -> None:
    read(BUSY, Meters(utilization=0, temperature=30, power=60), since=timedelta(minutes=6))
    _held_for(timedelta(hours=1))
    found = charts(admin, page)
    assert found is not None
    assert [chart.title for chart in found.charts] == titles
    assert [chart.now for chart in found.charts] == now
    text = admin.get(page).content.decode()
    assert text.count("<svg") - text.count('<svg class="i') >= len(titles)
    assert all(chart.path.startswith("M") for chart in found.charts)


def _held_for(time: timedelta) -> None:
    Claim.objects.update(allocated_at=datetime.now(UTC) - time)


def test_a_meter_that_a_device_does_not_have_has_no_chart(admin: Client) -> None:
    read(Meters(power=70), BUSY, since=timedelta(minutes=6))
    found = charts(admin, DEVICE)
    assert found is not None
    assert [chart.title for chart in found.charts] == ["Power"]


def test_a_pods_charts_begin_when_it_got_its_devices(admin: Client) -> None:
    read(BUSY, BUSY, since=timedelta(hours=3), until=timedelta(hours=1))
    _held_for(timedelta(minutes=30))
    assert charts(admin, POD) is None, "what was read before was others' work"
    assert charts(admin, DEVICE) is not None


def test_an_old_reading_is_not_shown_as_the_present(admin: Client) -> None:
    read(BUSY, BUSY, since=timedelta(hours=3), until=timedelta(hours=1))
    found = charts(admin, DEVICE)
    assert found is not None
    assert {chart.now for chart in found.charts} == {""}


def test_the_range_is_chosen_in_the_address(admin: Client) -> None:
    read(BUSY, BUSY, since=timedelta(hours=3), until=timedelta(hours=2))
    assert charts(admin, f"{DEVICE}?meters=1h") is None
    for asked in ("24h", "7d", "nonsense"):
        found = charts(admin, f"{DEVICE}?meters={asked}")
        assert found is not None
        assert [name for name, _, shown in found.ranges if shown] == [RANGES.get(asked, RANGES["24h"])[0]]


def test_a_line_ends_where_nothing_was_read() -> None:
    now = datetime.now(UTC)
    window = asked_window({"meters": "24h"}, now)

    def point(hours: float) -> MeterPoint:
        at = now - timedelta(hours=hours)
        return MeterPoint(at=at, utilization=50.0, memory=None, temperature=None, power=None)

    points = [point(hours / 20) for hours in (*range(200, 180, -1), *range(100, 80, -1))]
    drawn = draw([points], {}, window)
    assert drawn is not None
    (chart,) = drawn.charts
    assert chart.path.count("M") == 2
    assert chart.area.count("Z") == 2


# Idle devices ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def idle(admin: Client, settings: Settings) -> Client:
    """One of the two devices has done nothing for two hours."""
    settings.IDLE_MINUTES, settings.IDLE_PERCENT = 60.0, 5.0
    read(BUSY, BUSY, since=timedelta(0))
    now = datetime.now(UTC)
    DeviceMeter.objects.filter(device="gpu-0").update(quiet_since=now - timedelta(hours=2), utilization=1)
    _held_for(timedelta(hours=3))
    return admin


@pytest.mark.parametrize("page", IDLE.values(), ids=IDLE)
def test_an_idle_device_is_named_and_its_pod_offered_for_deletion_behind_the_usual_dialog(
    idle: Client, page: str
) -> None:
    text = idle.get(page).content.decode()
    (offer,) = re.findall(r'<a class="btn danger"\s+href="([^"]+)"\s+data-dialog\s+aria-label="Delete pod train"', text)
    preview = idle.get(offer)
    assert preview.status_code == 200
    assert AllocatedDevice.objects.count() == 2, "a look changes nothing"
    assert "train" in preview.content.decode()


def test_how_many_of_a_claims_devices_are_idle_is_said(idle: Client) -> None:
    ((found, _),) = idle.get("/usage").context["idle"].claims
    assert ([name for name, _ in found.devices], found.held) == (["gpu-0"], 2)
    assert idle.get(f"/devices/d/{DRIVER}/node-1/gpu-1").context["idle"] is None, "this one works"


def test_of_an_unreachable_node_nobody_knows_what_is_idle(idle: Client) -> None:
    Node.objects.update(condition="Unknown")
    for page in IDLE.values():
        assert "Delete pod train" not in idle.get(page).content.decode()


def test_who_may_not_delete_the_pod_sees_the_device_and_no_button(idle: Client) -> None:
    viewer = signed_in("vera", "viewers:default")
    listed = viewer.get("/usage").context["idle"]
    if listed is not None:  # what a stranger may not see is not listed at all
        assert [may for _, may in listed.claims] == [False]
    stranger = signed_in("sam", "namespace:elsewhere")
    assert stranger.get("/usage").context["idle"] is None
    assert stranger.get(DEVICE).context["idle"] is None


def test_filters_of_the_usage_narrow_the_idle_devices(idle: Client) -> None:
    assert idle.get("/usage?ns=default").context["idle"] is not None
    assert idle.get("/usage?ns=elsewhere").context["idle"] is None
