"""What drivers behind sockets tell in streams, each followed in a thread: the health of their devices, and, those of
Kubernetes 1.30, what they have.

A report of health holds for as long as it says, 30 s where it does not; then the device's health is unknown until the
next. A driver that is away is not forgotten at once: what it said runs out by itself. Source: KEP-4680, kubernetes
pkg/kubelet/cm/dra/healthinfo.go; v1.30 pkg/kubelet/cm/dra/plugin/noderesources.go.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from inventory.kinds.named_resources import NamedResourcesResources
from nodeagent.drivers.protocol import DeviceHealth, Health
from nodeagent.plugins.protocol import (
    LIST_RESOURCES,
    CallFailed,
    Channel,
    DeviceReport,
    Empty,
    HealthRequest,
    HealthService,
)

log = logging.getLogger(__name__)

#: Seconds that a report holds which does not say; and after which a device that nobody reports is forgotten.
REPORT_SECONDS: Final = 30.0
FORGET_SECONDS: Final = 3600.0
#: Longer messages are cut, as the kubelet does.
LONGEST_MESSAGE: Final = 1024
#: Seconds between attempts to follow a driver's reports.
FIRST_DELAY, LONGEST_DELAY = 1.0, 30.0

_NAMES: Final[dict[int, Health]] = {1: "Healthy", 2: "Unhealthy"}


class _Known(NamedTuple):
    health: Health
    message: str
    seconds: float  # that the report holds
    until: float


class HealthCache:
    """The devices of one driver. Thread-safe. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], _Known] = {}
        self._looked = clock()

    def report(self, devices: Sequence[DeviceReport]) -> bool:
        """Take a report, of all devices or some; returns whether anything is different now."""
        now = self._clock()
        with self._lock:
            before = self._known
            told = {(d.device.pool_name, d.device.device_name): _known(d, now) for d in devices}
            kept = {key: known for key, known in before.items() if now - known.until < FORGET_SECONDS}
            self._known = {**kept, **told}
            return any(_differs(before.get(key), known, now) for key, known in told.items())

    def current(self) -> tuple[DeviceHealth, ...]:
        now = self._clock()
        with self._lock:
            known = tuple(self._known.items())
        return tuple(_device_health(key, one, now) for key, one in known)

    def ran_out(self) -> bool:
        """Whether a report has run out since this was last asked, without another one."""
        now = self._clock()
        with self._lock:
            since, self._looked = self._looked, now
            return any(since < known.until <= now and known.health != "Unknown" for known in self._known.values())


def _known(report: DeviceReport, now: float) -> _Known:
    given = report.health_check_timeout_seconds
    seconds = float(given) if given > 0 else REPORT_SECONDS
    message = report.message
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 3] + "..."
    return _Known(_NAMES.get(report.health, "Unknown"), message, seconds, now + seconds)


def _differs(before: _Known | None, after: _Known, now: float) -> bool:
    return before is None or before.until <= now or before[:3] != after[:3]


def _device_health(key: tuple[str, str], known: _Known, now: float) -> DeviceHealth:
    pool, device = key
    if known.until <= now:
        return DeviceHealth(pool=pool, device=device, health="Unknown")
    return DeviceHealth(pool=pool, device=device, health=known.health, message=known.message)


class Following:
    """Follows a stream of one instance of a driver in a thread, until stopped; one that it does not know, no longer."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._stopped = threading.Event()
        self._again = threading.Event()

    def start(self, channel: Channel) -> None:
        threading.Thread(target=self._run, args=(channel,), name=self._what, daemon=True).start()

    def try_now(self) -> None:
        """Do not wait any longer for the next attempt: the driver is back."""
        self._again.set()

    def stop(self) -> None:
        """The channel's end ends what is being followed; this, that it is tried again."""
        self._stopped.set()
        self._again.set()

    def _run(self, channel: Channel) -> None:
        delay = FIRST_DELAY
        while not self._stopped.is_set():
            try:
                if self._follow(channel):
                    delay = FIRST_DELAY
            except CallFailed as failure:
                if failure.unimplemented:
                    if self._has_older():
                        continue
                    return
                log.debug("%s: %s; trying again in %.0f s", self._what, failure, delay)
            self._again.wait(delay)
            self._again.clear()
            delay = min(delay * 2, LONGEST_DELAY)

    def _follow(self, channel: Channel) -> bool:
        """Until the stream ends; returns whether anything came. Raises: CallFailed."""
        raise NotImplementedError

    def _has_older(self) -> bool:
        """Whether there is another version of the stream, to be followed in place of one that is not known."""
        return False


class HealthWatch(Following):
    """Follows the reports of one instance of a driver.

    services: those to try, newest first; one that the driver does not know is not asked for again. changed: called
    when the cache would answer differently.
    """

    def __init__(
        self, endpoint: str, services: Sequence[HealthService], cache: HealthCache, changed: Callable[[], None]
    ) -> None:
        super().__init__(f"health of {endpoint}")
        self._services = list(services)
        self._cache = cache
        self._changed = changed

    def _has_older(self) -> bool:
        self._services.pop(0)
        return bool(self._services)

    def _follow(self, channel: Channel) -> bool:
        came = False
        for report in channel.stream(self._services[0].watch, HealthRequest()):
            came = True
            if self._cache.report(report.devices):
                self._changed()
        return came


#: What drivers of Kubernetes 1.30 publish through the agent: each becomes a ResourceSlice of v1alpha2.
Models = tuple[NamedResourcesResources, ...]


class ResourceWatch(Following):
    """Tells `has` of all that one instance of a driver has, whenever it says so. Later drivers do not know the call."""

    def __init__(self, endpoint: str, has: Callable[[Models], None]) -> None:
        super().__init__(f"resources of {endpoint}")
        self._has = has

    def _follow(self, channel: Channel) -> bool:
        came = False
        for answer in channel.stream(LIST_RESOURCES, Empty()):
            came = True
            self._has(tuple(one.named_resources for one in answer.resources if one.named_resources is not None))
        return came
