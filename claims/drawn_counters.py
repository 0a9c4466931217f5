"""What allocated devices draw from shared counters stays known when their drivers do not publish it any more.

The scheduler keeps it with each allocation that it makes (`AllocationResult.drawn_counters`). Allocations that others
wrote (another scheduler, an earlier version) lack it: they get it here, in the transaction in which a driver changes or
withdraws what it has published of their devices.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from claims.kinds.resource_claims import DrawnCounters, ResourceClaim
from claims.models import AllocatedDevice
from inventory.kinds.devices import Device, ResourceSlice
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
    """Before a slice changes or goes."""
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
    for key in sorted(set(held.values_list("claim__namespace", "claim__name"))):
        claim = writer.get(registry.by_resource(CLAIMS), *key)
        if isinstance(claim, ResourceClaim):
            _complete(writer, claim, write.old, changed)


def _complete(writer: Writer, claim: ResourceClaim, one: ResourceSlice, changed: Mapping[str, Device]) -> None:
    """Write what the claim's allocation does not tell of these devices of the slice."""
    allocation = claim.status.allocation
    if allocation is None:
        return
    known = {(drawn.driver, drawn.pool, drawn.device) for drawn in allocation.drawn_counters}
    missing = [
        result
        for result in allocation.devices.results
        if (result.driver, result.pool) == (one.spec.driver, one.spec.pool.name)
        and result.device in changed
        and not result.admin_access
        and (result.driver, result.pool, result.device) not in known
    ]
    if not missing:
        return
    counter_sets = _counter_sets(writer, one)
    drawn = (
        DrawnCounters(
            driver=result.driver,
            pool=result.pool,
            device=result.device,
            consumes=changed[result.device].consumes_counters,
            counter_sets=counter_sets,
        )
        for result in missing
    )
    allocation = replace(allocation, drawn_counters=(*allocation.drawn_counters, *drawn))
    writer.update(registry.by_resource(CLAIMS), replace(claim, status=replace(claim.status, allocation=allocation)))


def _counter_sets(writer: Writer, one: ResourceSlice) -> tuple[str, ...]:
    """The names of the counter sets that the slice's pool has."""
    spec = one.spec
    names = PublishedSlice.objects.filter(driver=spec.driver, pool=spec.pool.name).values_list("name", flat=True)
    found = [writer.get(registry.by_resource(SLICES), "", name) for name in names]
    of_pool = [other.spec for other in (*found, one) if isinstance(other, ResourceSlice)]
    return tuple(sorted({counter_set.name for other in of_pool for counter_set in other.shared_counters}))
