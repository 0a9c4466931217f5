"""The drivers of one node, by name, as they are now: those of this process, and those that come and go over sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from nodeagent.drivers.protocol import ClaimDriver


class DriverRegistry:
    """Thread-safe. A name has at most one driver at a time; putting another replaces it."""

    def __init__(self, drivers: Iterable[ClaimDriver] = ()) -> None:
        self._drivers = {driver.name: driver for driver in drivers}
        self._departed: dict[str, ClaimDriver] = {}
        self._expected: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[], None]] = []

    def get(self, name: str) -> ClaimDriver | None:
        with self._lock:
            return self._drivers.get(name)

    def names(self) -> frozenset[str]:
        """Of all that are here, were here, or are expected: each may have prepared claims."""
        with self._lock:
            return self._expected | self._drivers.keys() | self._departed.keys()

    def all(self) -> tuple[ClaimDriver, ...]:
        with self._lock:
            return tuple(self._drivers.values())

    def expect(self, names: Iterable[str]) -> None:
        """Drivers that were here before the agent's last start, and may have prepared claims."""
        self._expected = frozenset(names)

    def health_sources(self) -> tuple[ClaimDriver, ...]:
        """Also those that have left: what they said of their devices holds for a while."""
        with self._lock:
            return (*self._drivers.values(), *self._departed.values())

    def put(self, driver: ClaimDriver) -> None:
        with self._lock:
            self._departed.pop(driver.name, None)
            self._drivers[driver.name] = driver
        self.announce()

    def remove(self, name: str) -> None:
        with self._lock:
            if (driver := self._drivers.pop(name, None)) is not None:
                self._departed[name] = driver
        self.announce()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed`, from any thread, whenever a driver has come or gone, or its health is different."""
        self._subscribers.append(changed)

    def announce(self) -> None:
        """Something about a driver has changed."""
        for changed in self._subscribers:
            changed()
