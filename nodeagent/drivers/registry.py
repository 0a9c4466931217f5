"""The drivers of one node, by name, as they are now: those of this process, and those that come and go over sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from nodeagent.drivers.protocol import ClaimDriver


class DriverRegistry:
    """Thread-safe. A name has at most one driver at a time; putting another replaces it."""

    def __init__(self, drivers: Iterable[ClaimDriver] = ()) -> None:
        self._drivers = {driver.name: driver for driver in drivers}
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[], None]] = []

    def get(self, name: str) -> ClaimDriver | None:
        with self._lock:
            return self._drivers.get(name)

    def names(self) -> tuple[str, ...]:
        """Sorted."""
        with self._lock:
            return tuple(sorted(self._drivers))

    def all(self) -> tuple[ClaimDriver, ...]:
        with self._lock:
            return tuple(self._drivers.values())

    def put(self, driver: ClaimDriver) -> None:
        with self._lock:
            self._drivers[driver.name] = driver
        self._announce()

    def remove(self, name: str) -> None:
        with self._lock:
            self._drivers.pop(name, None)
        self._announce()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed`, from any thread, whenever a driver has come or gone."""
        self._subscribers.append(changed)

    def _announce(self) -> None:
        for changed in self._subscribers:
            changed()
