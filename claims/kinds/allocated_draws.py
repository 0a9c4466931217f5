"""What allocated devices draw from shared counters, as their allocations tell (`DrawnCounters`). PURE.

A driver may stop publishing a device that is allocated, or change what it publishes of it. Until the device is given
back it draws what it drew when it was allocated, or what is published of it if that is more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from claims.kinds.resource_claims import DrawnCounters
from manciple.wire.quantity import Quantity

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class RecordedDraw:
    """What one allocation of a device drew when it was made.

    amounts: (counter set, counter, nanos). counter_sets: those that the pool had.
    """

    amounts: tuple[tuple[str, str, int], ...]
    counter_sets: frozenset[str]

    @classmethod
    def of(cls, drawn: DrawnCounters) -> RecordedDraw:
        amounts = (
            (consumption.counter_set, name, Quantity.parse(counter.value).nanos)
            for consumption in drawn.consumes
            for name, counter in consumption.counters.items()
        )
        return cls(tuple(amounts), frozenset(drawn.counter_sets))

    def from_sets(self, published: Collection[str], *, device_is_published: bool) -> dict[tuple[str, str], int]:
        """(counter set, counter) -> nanos, by the counter sets that the pool has now. One that is gone may be each of
        those that came since, unless the device itself tells from which it draws.
        """
        came = [] if device_is_published else [name for name in published if name not in self.counter_sets]
        drawn: dict[tuple[str, str], int] = {}
        for counter_set, counter, nanos in self.amounts:
            for one in (counter_set,) if counter_set in published else came:
                drawn[one, counter] = drawn.get((one, counter), 0) + nanos
        return drawn


def highest(drawn: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    """Of each counter, the highest of the amounts."""
    found: dict[Key, int] = {}
    for one in drawn:
        for key, nanos in one.items():
            found[key] = max(nanos, found.get(key, 0))
    return found
