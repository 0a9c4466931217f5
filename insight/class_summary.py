"""What a class has to give: its models, what is free, how much of it fits on one node, and how long claims wait for it.

For whoever chooses among classes. Three queries, and what is known of the devices already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from claims.devices.cache import DeviceSnapshot, read_devices
from insight.capacity import expressions_of
from insight.how_many_fit import count
from insight.selector_matches import passing
from insight.waiting_times import WaitFigures, by_class
from inventory.models import DeviceClass
from manciple.wire.limits import TimeLimitExceeded
from scheduling.cel import CompileError, Selector, compile_selector

#: Allocations from which the usual wait is told: the latest, of some days at most.
LOOKED_AT, WAITS_OF = 2_000, timedelta(days=7)
#: Models that are named.
NAMED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassStock:
    """largest: how many more claims fit on one node, on `node`; 0 where none do, or the devices are not one node's.

    waits: of the claims that were made for pods and allocated in the last days; None of none.
    """

    name: str
    models: tuple[str, ...]
    more_models: int
    devices: int
    free: int
    fits: int
    largest: int
    node: str
    waits: WaitFigures | None


def read_stock(now: datetime) -> list[ClassStock]:
    """Every class whose selectors can be used, and take no longer than there is time, by name."""
    snapshot, waits = read_devices(), by_class(now - WAITS_OF, latest=LOOKED_AT)
    found = []
    for name, selectors in DeviceClass.objects.order_by("name").values_list("name", "selectors"):
        expressions = expressions_of(selectors)
        try:
            found.append(_of_class(snapshot, name, expressions, waits.get(name)))
        except (CompileError, TimeLimitExceeded):
            continue
    return found


def _of_class(snapshot: DeviceSnapshot, name: str, expressions: Sequence[str], waits: WaitFigures | None) -> ClassStock:
    counted = count(snapshot, expressions)
    models = _models(snapshot, [compile_selector(one) for one in expressions])
    return ClassStock(
        name=name,
        models=models[:NAMED],
        more_models=max(len(models) - NAMED, 0),
        devices=counted.devices,
        free=counted.free,
        fits=counted.fits,
        largest=counted.largest,
        node=counted.node,
        waits=waits,
    )


def _models(snapshot: DeviceSnapshot, selectors: Sequence[Selector]) -> tuple[str, ...]:
    """Of the devices of the class, by name."""
    found: set[str] = set()
    for state in snapshot.pools.values():
        if match := passing(state.pool, selectors).match:
            found |= {one.model for place, one in enumerate(state.candidates) if match >> place & 1 and one.model}
    return tuple(sorted(found))
