"""What a class has to give: its models, what is free, the most that one node has free, and how long claims wait for it.

For whoever chooses among classes. Three queries, and what is known of the devices already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from claims.devices.states import DeviceState
from claims.models import AllocatedDevice
from inventory.models import DeviceClass
from scheduling.capacity import expressions_of
from scheduling.cel import CompileError, Selector, compile_selector
from scheduling.fitting import count
from scheduling.judging import passing

#: Allocations from which the usual wait is told: the latest.
LOOKED_AT = 2_000
#: Models that are named.
NAMED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassStock:
    """largest: the most devices that are free on one node that takes pods, on `node`.

    wait: seconds from a claim to its devices, the median of the `waits` claims that hold some now; None of none.
    """

    name: str
    models: tuple[str, ...]
    more_models: int
    devices: int
    free: int
    fits: int
    largest: int
    node: str
    wait: float | None
    waits: int


def read_stock() -> list[ClassStock]:
    """Every class whose selectors can be used, by name."""
    snapshot, waits = read_devices(), _waits()
    found = []
    for name, selectors in DeviceClass.objects.order_by("name").values_list("name", "selectors"):
        expressions = expressions_of(selectors)
        try:
            found.append(_of_class(snapshot, name, expressions, waits.get(name, ())))
        except CompileError:
            continue
    return found


def _of_class(snapshot: DeviceSnapshot, name: str, expressions: Sequence[str], waits: Sequence[float]) -> ClassStock:
    counted = count(snapshot, expressions)
    free: dict[str, int] = {}
    models: set[str] = set()
    for node, number, found in _pools(snapshot, [compile_selector(one) for one in expressions]):
        models |= found
        if node and number and node not in snapshot.cordoned:
            free[node] = free.get(node, 0) + number
    best = min(free, key=lambda node: (-free[node], node), default="")
    return ClassStock(
        name=name,
        models=tuple(sorted(models)[:NAMED]),
        more_models=max(len(models) - NAMED, 0),
        devices=counted.devices,
        free=counted.free,
        fits=counted.fits,
        largest=free.get(best, 0),
        node=best,
        wait=median(waits) if waits else None,
        waits=len(waits),
    )


def _pools(snapshot: DeviceSnapshot, selectors: Sequence[Selector]) -> Iterator[tuple[str, int, set[str]]]:
    """(node, devices that are free, models) of each pool that has some of the class."""
    for state in snapshot.pools.values():
        match = passing(state.pool, selectors).match
        if not match:
            continue
        free = (match & state.masks.get(DeviceState.FREE, 0)).bit_count()
        models = {one.model for place, one in enumerate(state.candidates) if match >> place & 1 and one.model}
        yield state.pool.node, free, models


def _waits() -> Mapping[str, list[float]]:
    """class -> how long the claims waited that have devices of it."""
    columns = ("device_class", "claim_id", "claim__created_at", "claim__allocated_at")
    rows = AllocatedDevice.objects.filter(claim__allocated_at__isnull=False, admin_access=False)
    found: dict[str, dict[str, float]] = {}
    for name, claim, created, allocated in rows.order_by("-claim__allocated_at").values_list(*columns)[:LOOKED_AT]:
        found.setdefault(name, {})[claim] = max((allocated - created).total_seconds(), 0.0)
    return {name: list(waits.values()) for name, waits in found.items()}
