"""What claims hold, as quotas count it: what their allocations say, not what they might be given at most. PURE.

    manciple.dev/allocated.CLASS                        devices, a share of one like a whole one
    manciple.dev/allocated.CLASS_capacity.NAME          how much of the capacity NAME their shares consume
    manciple.dev/allocated.CLASS_capacity.NAME.DOMAIN   of the capacity DOMAIN/NAME
    manciple.dev/allocated.CLASS_counter.NAME           what their devices draw from counters of that name

A class's name has dots and never an underscore, so the first underscore ends it; a capacity's name has underscores and
never a dot, so the first dot after it begins its domain. A capacity without a domain is its driver's, and found under
both names. A key's name has at most 63 characters, "allocated." among them.

A claim that was made for a pod is in the scopes of that pod while it is there, one that was made by hand is in none.
A claim of a ResourceClass counts under the name of that class. Admin access holds nothing. A share draws no counters:
its device does, whoever shares it. What a device draws is kept with the allocation (`drawn_counters`); without that,
what is published of it now counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    class_of,
    node_of,
)
from inventory.kinds.devices import DeviceCounterConsumption
from manciple.wire.quantity import Quantity
from manciple.wire.validation import check_c_identifier, check_dns_label, check_dns_subdomain, check_driver_name

ALLOCATED = "manciple.dev/allocated"
PREFIX = f"{ALLOCATED}."
CAPACITY, COUNTER = "capacity", "counter"
GRAMMAR = (
    f"must be {PREFIX}CLASS (devices), {PREFIX}CLASS_capacity.NAME or {PREFIX}CLASS_capacity.NAME.DOMAIN (what shares "
    f"consume of a capacity), or {PREFIX}CLASS_counter.NAME (what devices draw from counters)"
)

#: What a published device draws from shared counters: by the name of the counter, over all sets of counters. It is
#: called with a result and the node of its allocation.
Draws = Callable[[DeviceRequestAllocationResult, str], Mapping[str, Quantity]]

_ONE, _NONE = Quantity.of(1), Quantity(0)


class AllocatedKey(NamedTuple):
    """A key, taken apart. measure: "" for devices, "capacity" or "counter". domain: "" for the driver's own."""

    device_class: str
    measure: str = ""
    name: str = ""
    domain: str = ""

    def __str__(self) -> str:
        measured = f"_{self.measure}.{self.name}" if self.measure else ""
        return f"{PREFIX}{self.device_class}{measured}" + (f".{self.domain}" if self.domain else "")


def is_allocated_key(key: str) -> bool:
    return key == ALLOCATED or key.startswith(PREFIX)


def read_key(key: str) -> AllocatedKey:
    """Raises: ValueError with what the key must be."""
    device_class, underscore, measured = key.removeprefix(PREFIX).partition("_")
    measure, _, name = measured.partition(".")
    domain = ""
    if measure == CAPACITY:
        name, dot, domain = name.partition(".")
        wrong = check_c_identifier(name) or (check_driver_name(domain) if dot else ())
    else:
        wrong = check_dns_label(name) if underscore else ()
    if not key.startswith(PREFIX) or check_dns_subdomain(device_class) or wrong:
        raise ValueError(GRAMMAR)
    if underscore and measure not in (CAPACITY, COUNTER):
        raise ValueError(GRAMMAR)
    return AllocatedKey(device_class, measure, name, domain)


def is_of_counter(key: str) -> bool:
    return key.startswith(PREFIX) and f"_{COUNTER}." in key


def draws_nothing(_result: DeviceRequestAllocationResult, _node: str) -> Mapping[str, Quantity]:
    """Where nobody asks for counters."""
    return {}


def drawn_by(consumes: Iterable[DeviceCounterConsumption]) -> Mapping[str, Quantity]:
    """What a device draws, by the name of the counter."""
    drawn: dict[str, Quantity] = {}
    for consumption in consumes:
        for name, counter in consumption.counters.items():
            drawn[name] = drawn.get(name, _NONE) + Quantity.parse(counter.value)
    return drawn


def allocated_usage(claim: ResourceClaim, draws: Draws = draws_nothing) -> dict[str, Quantity]:
    """What the claim counts by what it holds; nothing while it holds nothing."""
    allocation = claim.status.allocation
    return {} if allocation is None else usage_of_allocation(claim, allocation, draws)


def usage_of_allocation(
    claim: ResourceClaim, allocation: AllocationResult, draws: Draws = draws_nothing
) -> dict[str, Quantity]:
    """What the claim would count if it held this."""
    used: dict[str, Quantity] = {}
    node = node_of(allocation)
    recorded = {(one.driver, one.pool, one.device): one.consumes for one in allocation.drawn_counters}

    def drawn(result: DeviceRequestAllocationResult) -> Mapping[str, Quantity]:
        consumes = recorded.get((result.driver, result.pool, result.device))
        return draws(result, node) if consumes is None else drawn_by(consumes)

    for result in allocation.devices.results:
        if result.admin_access:
            continue
        # The requests of a claim of a ResourceClass are the scheduler's translation, and name no class of their own.
        device_class = claim.spec.resource_class_name or class_of(claim.spec.devices.requests, result.request)
        if device_class:
            for key, amount in _of_result(device_class, result, drawn):
                used[str(key)] = used.get(str(key), _NONE) + amount
    return used


def _of_result(
    device_class: str,
    result: DeviceRequestAllocationResult,
    drawn: Callable[[DeviceRequestAllocationResult], Mapping[str, Quantity]],
) -> Iterable[tuple[AllocatedKey, Quantity]]:
    yield AllocatedKey(device_class), _ONE
    if result.share_id is None:
        for name, amount in drawn(result).items():
            yield AllocatedKey(device_class, COUNTER, name), amount
    for qualified, text in result.consumed_capacity.items():
        domain, _, name = qualified.rpartition("/")
        amount = Quantity.parse(text)
        for one in {"", result.driver} if domain in ("", result.driver) else {domain}:
            yield AllocatedKey(device_class, CAPACITY, name, one), amount
