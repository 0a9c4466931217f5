"""What allocated devices draw from shared counters, as their allocations record it (`DrawnCounters`). PURE.

A driver may stop publishing a device that is allocated, or change what it publishes of it. Until the device is given
back it draws what it drew when it was allocated, or what is published of it if that is more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from claims.kinds.resource_claims import DrawnCounters
from manciple.wire.quantity import Quantity

Key = TypeVar("Key")


def recorded_draw(
    drawn: DrawnCounters, published: Collection[str], *, device_is_published: bool
) -> dict[tuple[str, str], int]:
    """(counter set, counter) -> nanos. published: the counter sets that the pool has now.

    A counter set that is gone may be any of those that were added since, unless the device is still published.
    """
    came = [] if device_is_published else [name for name in published if name not in drawn.counter_sets]
    found: dict[tuple[str, str], int] = {}
    for one in drawn.consumes:
        for name in (one.counter_set,) if one.counter_set in published else came:
            for counter, amount in one.counters.items():
                found[name, counter] = found.get((name, counter), 0) + Quantity.parse(amount.value).nanos
    return found


def highest(drawn: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    """Of each counter, the highest of the amounts."""
    found: dict[Key, int] = {}
    for one in drawn:
        for key, nanos in one.items():
            found[key] = max(nanos, found.get(key, 0))
    return found
