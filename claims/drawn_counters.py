"""Keeps what allocated devices draw from shared counters after their drivers have changed or withdrawn them.

The scheduler records it in each allocation that it makes (`AllocationResult.drawn_counters`). Allocations by another
scheduler, or by an earlier version, lack the record: it is added here, in the transaction in which the driver changes
or withdraws the devices.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from msgspec import structs

from claims.kinds.resource_claims import DeviceRequestAllocationResult, DrawnCounters, ResourceClaim, names_of_counters
from claims.models import AllocatedDevice
from inventory.kinds.devices import CounterSet, ResourceSlice
from inventory.models import PublishedSlice
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.registry import registry

CLAIMS = "resourceclaims.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"


def register() -> None:
    hooks.register_rule(keep_draws, operations={"UPDATE", "DELETE"}, resources={SLICES})


def keep_draws(writer: Writer, write: Write) -> None:
    """Before a slice changes or is deleted."""
    old, new = write.old.spec, write.new.spec if write.new is not None else None
    now = {one.name: one.consumes_counters for one in new.devices} if new is not None else {}
    changed = {
        one.name: one for one in old.devices if one.consumes_counters and now.get(one.name) != one.consumes_counters
    }
    if not changed:
        return
    held = AllocatedDevice.objects.filter(driver=old.driver, pool=old.pool.name, device__in=changed, admin_access=False)
    if old.node_name:
        held = held.filter(node__in=(old.node_name, ""))
    kind, keys = registry.by_resource(CLAIMS), sorted(set(held.values_list("claim__namespace", "claim__name")))
    writer.load(kind, keys)
    counters: dict[str, tuple[str, ...]] | None = None
    for key in keys:
        claim: Any = writer.get(kind, *key)
        missing = _unrecorded(claim, write.old, changed) if claim is not None else []
        if not missing:
            continue
        if counters is None:
            counters = names_of_counters(_counter_sets(writer, write.old))
        drawn = (
            DrawnCounters(
                driver=result.driver,
                pool=result.pool,
                device=result.device,
                consumes=changed[result.device].consumes_counters,
                **counters,
            )
            for result in missing
        )
        allocation = claim.status.allocation
        allocation = structs.replace(allocation, drawn_counters=(*allocation.drawn_counters, *drawn))
        writer.update(kind, structs.replace(claim, status=structs.replace(claim.status, allocation=allocation)))


def _unrecorded(
    claim: ResourceClaim, published: ResourceSlice, changed: Container[str]
) -> list[DeviceRequestAllocationResult]:
    """The claim's results of changed devices of the slice whose draws its allocation does not record."""
    allocation, spec = claim.status.allocation, published.spec
    if allocation is None:
        return []
    recorded = {(drawn.driver, drawn.pool, drawn.device) for drawn in allocation.drawn_counters}
    return [
        result
        for result in allocation.devices.results
        if (result.driver, result.pool) == (spec.driver, spec.pool.name)
        and result.device in changed
        and not result.admin_access
        and (result.driver, result.pool, result.device) not in recorded
    ]


def _counter_sets(writer: Writer, published: ResourceSlice) -> list[CounterSet]:
    """Those that the slice's pool has."""
    kind, spec = registry.by_resource(SLICES), published.spec
    names = PublishedSlice.objects.filter(driver=spec.driver, pool=spec.pool.name).values_list("name", flat=True)
    keys = [("", name) for name in names]
    writer.load(kind, keys)
    found = (*(writer.get(kind, *key) for key in keys), published)
    of_pool = [one.spec for one in found if isinstance(one, ResourceSlice)]
    return [counter_set for one in of_pool for counter_set in one.shared_counters]
