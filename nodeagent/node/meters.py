"""Reports what the meters of the node's devices read, at a fixed pace, if a driver can read any.

A report costs the API server one small request and no event; without a `MeteredDriver` none is made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from inventory.kinds.device_readings import (
    GROUP,
    MOST_DEVICES,
    SUBRESOURCE,
    VERSION,
    DeviceReading,
    DeviceReadings,
    Meters,
)
from manciple.wire.base import ObjectMeta
from nodeagent.api.client import NODES, ApiResource, Client
from nodeagent.drivers.protocol import MeteredDriver
from nodeagent.failures import ApiFailure

log = logging.getLogger(__name__)

READINGS = ApiResource(DeviceReadings, f"{GROUP}/{VERSION}", "devicereadings", namespaced=False)

#: (driver, pool, device)
Readings = Mapping[tuple[str, str, str], Meters]


def read_meters(drivers: Iterable[object]) -> Readings:
    """What all drivers read now. A driver that fails is left out: its devices still work."""
    found: dict[tuple[str, str, str], Meters] = {}
    for driver in drivers:
        if isinstance(driver, MeteredDriver):
            try:
                found |= {(driver.name, *place): meters for place, meters in driver.meters().items()}
            except Exception:  # whatever a strange driver raises
                log.exception("driver %s: its meters could not be read", driver.name)
    return found


class MeterReports:
    """seconds: from one report to the next. clock: monotonic seconds."""

    def __init__(
        self, client: Client, *, node: str, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._node, self._seconds, self._clock = client, node, seconds, clock
        self._due = clock()
        self._complaint = ""

    def sync(self, drivers: Iterable[object]) -> float:
        """Report if a report is due. Returns the seconds until the next one. Raises: ApiFailure; call again later."""
        now = self._clock()
        if now >= self._due:
            self._due = now + self._seconds  # also if this report fails: the next one is as good
            if readings := read_meters(drivers):
                self._report(readings)
        return max(self._due - now, 0.0)

    def _report(self, readings: Readings) -> None:
        devices = tuple(
            DeviceReading(driver=driver, pool=pool, device=device, meters=meters)
            for (driver, pool, device), meters in list(readings.items())[:MOST_DEVICES]
        )
        report = DeviceReadings(metadata=ObjectMeta(name=self._node), devices=devices)
        complaint = ""
        try:
            self._client.post(NODES, SUBRESOURCE, READINGS, report)
        except ApiFailure as failure:
            if not (failure.not_found or failure.forbidden or failure.reason == "Invalid"):
                raise
            complaint = str(failure)  # such as of Kubernetes' own API server, which does not serve it
        if complaint and complaint != self._complaint:
            log.warning("node %s: the meters of its devices are not reported: %s", self._node, complaint)
        self._complaint = complaint
