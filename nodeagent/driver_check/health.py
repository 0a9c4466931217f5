"""Checks of the health stream (KEP-4680), for drivers that list the service."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from nodeagent.driver_check.report import DriverCheck
from nodeagent.driver_check.subject import CheckFailed, DriverUnderTest, NotChecked
from nodeagent.plugins.protocol import CallFailed, Channel, DeviceReport, HealthRequest

#: What the protocol numbers: unknown, healthy, unhealthy.
STATES: Final = (0, 1, 2)


def reports_health(subject: DriverUnderTest) -> None:
    first_report(subject)


def reports_its_devices(subject: DriverUnderTest) -> None:
    published = {(one.pool, one.name) for one in subject.devices()}
    reported = first_report(subject)
    if not reported:
        raise CheckFailed("its first report tells of no device")
    strange = sorted({(one.device.pool_name, one.device.device_name) for one in reported} - published)
    if strange:
        raise CheckFailed(
            f"it reports on devices that are not published: {', '.join('/'.join(one) for one in strange)}"
        )


def reports_known_states(subject: DriverUnderTest) -> None:
    if wrong := sorted({one.health for one in first_report(subject)} - set(STATES)):
        raise CheckFailed(f"it reports the health {wrong[0]}; there are 0 (unknown), 1 (healthy) and 2 (unhealthy)")


def reports_to_whoever_comes_back(subject: DriverUnderTest) -> None:
    for _ in range(2):
        first_report(subject)


def first_report(subject: DriverUnderTest) -> Sequence[DeviceReport]:
    """Of a watch that is ended then. Raises: NotChecked, CheckFailed."""
    services = subject.health_services()
    if not services:
        raise NotChecked("it lists no DRAResourceHealth service, which is optional")
    channel = Channel(str(subject.endpoint))
    seconds = subject.options.wait_seconds
    impatience = threading.Timer(seconds, channel.close)
    impatience.daemon = True
    impatience.start()
    try:
        for report in channel.stream(services[0].watch, HealthRequest()):
            return report.devices
    except CallFailed as error:
        raise CheckFailed(f"{services[0].name}: within {seconds:g} s it reported nothing: {error}") from error
    finally:
        impatience.cancel()
        channel.close()
    raise CheckFailed(f"{services[0].name}: it ends the stream before it has reported anything")


_STREAMS = ("health.stream",)

CHECKS: Final = (
    DriverCheck(
        id="health.stream",
        title="reports the health of its devices",
        advice="send a report as soon as somebody watches, and keep the stream open",
        run=reports_health,
        needs=("slices.published",),
    ),
    DriverCheck(
        id="health.devices",
        title="reports on the devices that it publishes",
        advice="name pool and device as in its ResourceSlices",
        run=reports_its_devices,
        needs=_STREAMS,
    ),
    DriverCheck(
        id="health.states",
        title="reports states that there are",
        advice="report 0, 1 or 2",
        run=reports_known_states,
        needs=_STREAMS,
    ),
    DriverCheck(
        id="health.again",
        title="reports again to a kubelet that was away",
        advice="begin each watch with a report of all devices",
        run=reports_to_whoever_comes_back,
        needs=_STREAMS,
    ),
)
