"""What allocated devices draw from shared counters, as their allocations record it (`DrawnCounters`). PURE.

A driver may stop publishing a device that is allocated, or change what it publishes of it. Until the device is given
back it draws what it drew when it was allocated, or what is published of it if that is more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from claims.kinds.resource_claims import DrawnCounters
from inventory.kinds.devices import CounterSet
from manciple.wire.quantity import Quantity

Key = TypeVar("Key")


def recorded_draw(
    drawn: DrawnCounters, published: Mapping[str, Collection[str]], *, device_is_published: bool
) -> dict[tuple[str, str], int]:
    """(counter set, counter) -> nanos. published: the counter sets that the pool has now, with the names of their
    counters.

    A counter set or counter that is gone may be any that was added since, unless the device is still published. For
    counters this needs the record of those that there were, which earlier versions did not write.
    """
    counters_recorded = bool(drawn.counters) and not device_is_published
    came = [] if device_is_published else [name for name in published if name not in drawn.counter_sets]
    found: dict[tuple[str, str], int] = {}
    for one in drawn.consumes:
        for name in (one.counter_set,) if one.counter_set in published else came:
            added = [
                counter
                for counter in published[name]
                if counters_recorded and f"{one.counter_set}/{counter}" not in drawn.counters
            ]
            for counter, amount in one.counters.items():
                for charged in (counter,) if counter in published[name] else added:
                    found[name, charged] = found.get((name, charged), 0) + Quantity.parse(amount.value).nanos
    return found


def names_of_counters(counter_sets: Iterable[CounterSet]) -> dict[str, tuple[str, ...]]:
    """`counter_sets` and `counters` of a `DrawnCounters`, in a pool with these sets."""
    known = {one.name: one.counters for one in counter_sets}
    counters = (f"{name}/{counter}" for name in known for counter in known[name])
    return {"counter_sets": tuple(sorted(known)), "counters": tuple(sorted(counters))}


def highest(drawn: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    """Of each counter, the highest of the amounts."""
    found: dict[Key, int] = {}
    for one in drawn:
        for key, nanos in one.items():
            found[key] = max(nanos, found.get(key, 0))
    return found
