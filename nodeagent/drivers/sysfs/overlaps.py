"""A PCI function and what hangs on it, disks and interfaces, are the same hardware: nobody may get both.

Where both are offered, the function's shared counter holds one unit for each of them. Each takes one, the function
takes all: it is given only while none of them is, and none of them while it is. Source: KEP-4815.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence

import msgspec

from inventory.kinds.devices import Counter, CounterSet, Device, DeviceCounterConsumption
from nodeagent.drivers.sysfs.found import Found

_UNITS = "units"


def publish(offered: Sequence[Found]) -> tuple[tuple[Device, ...], tuple[CounterSet, ...]]:
    """The devices as they are published, and the counters that they draw from."""
    parts = Tally(found.function for found in offered if found.function and found.kind != "pci")
    shared = [found for found in offered if found.kind == "pci" and parts[found.function]]
    sets = {found.function: _counter_set(found, parts[found.function]) for found in shared}
    devices = tuple(_consuming(found, sets.get(found.function)) for found in offered)
    return devices, tuple(sets.values())


def _counter_set(function: Found, units: int) -> CounterSet:
    return CounterSet(name=function.device_name, counters={_UNITS: Counter(value=str(units))})


def _consuming(found: Found, counters: CounterSet | None) -> Device:
    if counters is None:
        return found.device()
    takes = counters.counters if found.kind == "pci" else {_UNITS: Counter(value="1")}
    use = DeviceCounterConsumption(counter_set=counters.name, counters=takes)
    return msgspec.structs.replace(found.device(), consumes_counters=(use,))
