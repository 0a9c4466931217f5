"""Shared counters: what the devices of a pool draw on together.

A `CounterLedger` starts with what the allocated devices leave: each counter's value less the consumption of every
device of the pool that is allocated, wherever that device is visible. The search charges a device before it takes it
and refunds it when it lets go. Counters belong to (driver, pool); a device is checked against the counters that it
consumes alone. Admin access draws on counters too, though it does not count as in use once it is allocated.
"""

from __future__ import annotations

from manciple.wire.quantity import Quantity
from scheduling.allocator.pools import Generation, NodeDevices, PoolOnNode, bits
from scheduling.allocator.published import PoolKey, PublishedDevice
from scheduling.allocator.usage import UsageTable

#: (pool, counter set, counter)
CounterKey = tuple[PoolKey, str, str]


class CounterLedger:
    """What is left of each counter, in nanos, during one search."""

    def __init__(self, devices: NodeDevices, usage: UsageTable) -> None:
        self._devices = devices
        self._usage = usage
        self._left: dict[CounterKey, int] = {}
        self._opened: set[PoolKey] = set()

    def charge(self, position: int) -> bool:
        """Draw the device's counters, if there is enough of each."""
        needs = self._needs(position)
        if any(self._left.get(key, 0) < nanos for key, nanos in needs.items()):
            return False
        for key, nanos in needs.items():
            self._left[key] -= nanos
        return True

    def refund(self, position: int) -> None:
        for key, nanos in self._needs(position).items():
            self._left[key] += nanos

    def state(self) -> tuple[tuple[CounterKey, int], ...]:
        """A hashable picture of what is left."""
        return tuple(self._left.items())

    def _needs(self, position: int) -> dict[CounterKey, int]:
        view = self._devices.pools[self._devices.pool_index(position)]
        if view.key not in self._opened:
            self._open(view)
        return needs(self._devices.device(position))

    def _open(self, view: PoolOnNode) -> None:
        self._opened.add(view.key)
        for counter_set in view.counter_sets.values():
            for name, counter in counter_set.counters.items():
                self._left[(view.key, counter_set.name, name)] = Quantity.parse(counter.value).nanos
        for position in bits(self._allocated(view.generation)):
            for key, nanos in needs(view.generation.devices[position]).items():
                if key in self._left:
                    self._left[key] -= nanos

    def _allocated(self, generation: Generation) -> int:
        """Consuming devices in use; a shared one counts once, however many shares of it are out."""
        taken, shared_out = self._usage.get(generation.key).masks(generation)
        return (taken | shared_out) & generation.consuming


def needs(device: PublishedDevice) -> dict[CounterKey, int]:
    """What the device draws, in nanos."""
    drawn: dict[CounterKey, int] = {}
    for consumption in device.published.consumes_counters:
        for name, counter in consumption.counters.items():
            key = (device.key, consumption.counter_set, name)
            drawn[key] = drawn.get(key, 0) + Quantity.parse(counter.value).nanos
    return drawn
