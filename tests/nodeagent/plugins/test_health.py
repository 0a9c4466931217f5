"""The health that drivers behind sockets report: how long it holds, and how it reaches the status of a pod."""

from __future__ import annotations

import threading

import pytest
from msgspec import structs

from nodeagent.drivers.protocol import DeviceHealth
from nodeagent.plugins.protocol import Claim, DeviceIdentifier, DeviceReport, HealthReport, PreparedClaim
from nodeagent.plugins.streams import FORGET_SECONDS, HealthCache
from tests.nodeagent.machine import Clock
from tests.nodeagent.objects import NODE
from tests.nodeagent.plugins.conftest import PluginNode, until
from tests.nodeagent.plugins.plugin import cdi_device


def report(health: int = 1, *, device: str = "dev-0", seconds: int = 0, message: str = "") -> DeviceReport:
    identifier = DeviceIdentifier(pool_name=NODE, device_name=device)
    return DeviceReport(device=identifier, health=health, health_check_timeout_seconds=seconds, message=message)


def told(health: str, message: str = "", *, device: str = "dev-0") -> DeviceHealth:
    return DeviceHealth(pool=NODE, device=device, health=health, message=message)  # type: ignore[arg-type]  # a literal


@pytest.mark.parametrize(("number", "name"), [(0, "Unknown"), (1, "Healthy"), (2, "Unhealthy"), (7, "Unknown")])
def test_a_report_is_known_until_it_runs_out(number: int, name: str) -> None:
    clock = Clock(1000.0)
    cache = HealthCache(clock)
    assert cache.report([report(number, message="hot")])
    assert cache.current() == (told(name, "hot"),)
    clock.now += 29.9
    assert cache.current() == (told(name, "hot"),)
    clock.now += 0.1
    assert cache.current() == (told("Unknown"),)


@pytest.mark.parametrize(("given", "holds"), [(5, 5.0), (0, 30.0), (-4, 30.0), (600, 600.0)])
def test_a_report_holds_for_as_long_as_it_says(given: int, holds: float) -> None:
    clock = Clock(1000.0)
    cache = HealthCache(clock)
    cache.report([report(seconds=given)])
    clock.now += holds - 0.1
    assert cache.current() == (told("Healthy"),)
    clock.now += 0.2
    assert cache.current() == (told("Unknown"),)


def test_a_device_that_is_left_out_keeps_what_was_said_of_it_until_that_runs_out() -> None:
    clock = Clock(1000.0)
    cache = HealthCache(clock)
    cache.report([report(device="a"), report(device="b")])
    clock.now += 20
    assert not cache.report([report(device="a")])
    clock.now += 20
    assert cache.current() == (told("Healthy", device="a"), told("Unknown", device="b"))
    clock.now += FORGET_SECONDS
    assert cache.report([report(device="a")])
    assert cache.current() == (told("Healthy", device="a"),)


@pytest.mark.parametrize(
    ("second", "different"),
    [(report(), False), (report(2), True), (report(message="warm"), True), (report(seconds=60), True)],
)
def test_only_what_is_different_is_news(second: DeviceReport, different: bool) -> None:
    cache = HealthCache(Clock(1000.0))
    assert cache.report([report()])
    assert cache.report([second]) == different


def test_that_a_report_has_run_out_is_news_once() -> None:
    clock = Clock(1000.0)
    cache = HealthCache(clock)
    cache.report([report(device="a", seconds=10), report(0, device="b", seconds=10)])
    assert not cache.ran_out()
    clock.now += 11
    assert cache.ran_out()
    assert not cache.ran_out()
    assert cache.report([report(device="a")])


def test_long_messages_are_cut() -> None:
    cache = HealthCache(Clock(1000.0))
    cache.report([report(message="x" * 1024, device="a"), report(message="y" * 1025, device="b")])
    assert [one.message for one in cache.current()] == ["x" * 1024, "y" * 1021 + "..."]


def health_of(node: PluginNode, name: str = "p") -> list[tuple[str, str, str | None]]:
    statuses = (node.api.find("pods", name) or {}).get("status", {}).get("containerStatuses", [])
    return [
        (one["resourceID"], one["health"], one.get("message"))
        for status in statuses
        for resource in status.get("allocatedResourcesStatus", [])
        for one in resource["resources"]
    ]


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_reports_device_health_with_custom_messages(node: PluginNode, version: str) -> None:
    node.start()
    plugin = node.registered(health=[version])
    node.come()
    node.runs()
    device = cdi_device("claim-of-p")
    plugin.report(HealthReport(devices=(report(1, message="cool"),)))
    node.eventually(lambda: health_of(node) == [(device, "Healthy", "cool")])
    plugin.report(HealthReport(devices=(report(2, message="it is too hot"),)))
    node.eventually(lambda: health_of(node) == [(device, "Unhealthy", "it is too hot")])


@pytest.mark.parametrize("switched_on", [True, False])
def test_unhealthy_devices_are_tainted_by_rules_where_that_is_switched_on(node: PluginNode, switched_on: bool) -> None:
    node.taints_unhealthy = switched_on
    node.start()
    plugin = node.registered(health=["v1"])
    node.come()
    node.runs()
    plugin.report(HealthReport(devices=(report(2, message="it is too hot"),)))
    device = cdi_device("claim-of-p")
    if switched_on:
        node.eventually(lambda: node.api.all("devicetaintrules"))
        plugin.report(HealthReport(devices=(report(1),)))
        node.eventually(lambda: not node.api.all("devicetaintrules"))
    node.eventually(lambda: bool(health_of(node)) and health_of(node)[0][0] == device)
    assert not any("devicetaintrules" in request for request in node.api.requests) or switched_on


def test_health_that_nobody_vouches_for_any_more_is_unknown_in_the_status(node: PluginNode) -> None:
    node.start()
    plugin = node.registered(health=["v1"])
    node.come()
    node.runs()
    plugin.report(HealthReport(devices=(report(seconds=1),)))
    device = cdi_device("claim-of-p")
    node.eventually(lambda: health_of(node) == [(device, "Healthy", None)])
    node.eventually(lambda: health_of(node) == [(device, "Unknown", None)])


def test_devices_of_one_cdi_device_are_one_entry_of_the_status(node: PluginNode) -> None:
    """Kubernetes takes no list that names a resource twice."""
    node.start()
    plugin = node.registered(health=["v1"])
    well = plugin.prepare

    def two(claim: Claim) -> PreparedClaim | None:
        answer = well(claim)
        return answer and PreparedClaim(devices=(*answer.devices, structs.replace(answer.devices[0], device_name="x")))

    plugin.prepare = two
    node.come()
    node.runs()
    plugin.report(HealthReport(devices=(report(),)))
    node.eventually(lambda: health_of(node) == [(cdi_device("claim-of-p"), "Healthy", None)])


def test_a_stream_of_health_is_taken_up_again_when_the_driver_is_back(node: PluginNode) -> None:
    node.start()
    plugin = node.registered(health=["v1"])
    plugin.wait_for(lambda: plugin.watchers == 1)
    plugin.crash(plugin.endpoint)
    plugin.start(registration=False)
    plugin.wait_for(lambda: plugin.watchers == 2)
    node.come()
    node.runs()
    plugin.report(HealthReport(devices=(report(2),)))
    node.eventually(lambda: health_of(node) == [(cdi_device("claim-of-p"), "Unhealthy", None)])


def test_a_driver_without_the_health_service_is_not_asked_again(node: PluginNode) -> None:
    node.start()
    plugin = node.registered()
    until(lambda: not any(thread.name == f"health of {plugin.endpoint}" for thread in threading.enumerate()))
    node.come()
    node.runs()
    assert health_of(node) == [(cdi_device("claim-of-p"), "Unknown", None)]
