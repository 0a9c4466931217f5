"""Tells the kubelet how the devices are: all of them at once, whenever one is different, and now and then anyway."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from nodeagent.drivers.protocol import ClaimDriver, DeviceHealth
from nodeagent.plugins.messages import DeviceIdentifier, DeviceReport, HealthReport

#: The kubelet takes what it has not heard for 30 s for unknown.
REPEAT_SECONDS: Final = 10.0

_STATES: Final = {"Unknown": 0, "Healthy": 1, "Unhealthy": 2}


class HealthFeed:
    """The reports of one driver to any number of watchers. repeat: seconds between reports when nothing happens."""

    def __init__(
        self, driver: ClaimDriver, *, repeat: float = REPEAT_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._driver = driver
        self._repeat = repeat
        self._clock = clock
        self._condition = threading.Condition()
        self._changes = 0
        self._closed = False

    def changed(self) -> None:
        """Health is different, or a watcher has left: whoever waits looks again."""
        with self._condition:
            self._changes += 1
            self._condition.notify_all()

    def close(self) -> None:
        """End all watches."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def reports(self, wanted: Callable[[], bool]) -> Iterator[HealthReport]:
        """Until closed, or not `wanted` any more; `changed` makes it ask. Raises: what the driver's `health` raises."""
        seen = -1
        while wanted():
            with self._condition:
                self._condition.wait_for(lambda: self._closed or self._changes != seen, self._repeat)  # noqa: B023
                if self._closed:
                    return
                seen = self._changes
            if wanted():
                yield self._report()

    def _report(self) -> HealthReport:
        now = int(self._clock())
        return HealthReport(devices=tuple(_device(one, now) for one in self._driver.health()))


def _device(one: DeviceHealth, now: int) -> DeviceReport:
    return DeviceReport(
        device=DeviceIdentifier(pool_name=one.pool, device_name=one.device),
        health=_STATES[one.health],
        last_updated_time=now,
        message=one.message,
    )
