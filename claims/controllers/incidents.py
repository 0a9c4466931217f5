"""Opens and closes the incidents that no write tells of: nodes that fell silent, pools that stay incomplete, devices
that a copied cluster has allocated twice.

    a node is unreachable (`inventory.reachability`)          -> its incident is open, since its Lease was overdue
    a pool has not had all of its slices for SETTLING         -> its incident is open, since it was first seen so
    claims hold devices of a pool without any slice           -> the same
    several copied claims hold a device, each as a whole      -> its incident is open
    the node is heard of again, the pool is complete or gone, one claim is left -> closed

What drivers, rules and agents say is recorded with the write that says it (`inventory.impairments`). A driver publishes
the slices of a pool one after the other, so a pool that lacks some is no incident yet.

Which pools lack slices is asked of all, which held devices nobody publishes, and which several claims hold, of all that
are held: again when a slice or claim was written, while there are any, and otherwise once a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, OuterRef

from claims.kinds.resource_claims import pools_in_use
from claims.models import AllocatedDevice, DeviceKey
from claims.projectors import pools_by_device
from inventory import impairments
from inventory.kinds.pools import PoolKey
from inventory.models import Pool
from inventory.reachability import GRACE, nodes_with_leases, unreachable_nodes
from manciple.controllers.declaration import Controller
from manciple.per_process import PerProcess
from manciple.store import event_log, sql
from manciple.wire.resources import CLAIMS, DELETED, MODIFIED, NODES, SLICES

#: How long a driver may take to publish the rest of a pool.
SETTLING = timedelta(seconds=10)

#: How long it is believed that all held devices are published, and held once, while nothing is written.
BELIEVED = timedelta(minutes=1)

#: (driver, pool, node, slices that are published, slices that should be, generation)
InPart = tuple[str, str, str, int, int, int]
#: (driver, pool, node, devices) of a pool without any slice, of which claims hold so many devices
Unpublished = tuple[str, str, str, int]

FoundT = TypeVar("FoundT")


@dataclass(frozen=True, slots=True)
class _Look(Generic[FoundT]):
    """What was found. written: the newest revision of what it depends on that was announced before."""

    at: datetime
    written: int
    found: FoundT

    def is_over(self, now: datetime, written: int) -> bool:
        """Whether to look again. written: the newest revision that is announced by now."""
        return bool(self.found) or self.written != written or not self.at <= now < self.at + BELIEVED


#: of this process: the pools that were incomplete at the last look -> since when
_incomplete = PerProcess(dict[PoolKey, datetime])
_last_look = PerProcess[_Look[Sequence[Unpublished]] | None](lambda: None)
_last_look_at_pools = PerProcess[_Look[Sequence[InPart]] | None](lambda: None)
_last_look_at_claims = PerProcess[_Look[Mapping[DeviceKey, str]] | None](lambda: None)


def reconcile(now: datetime) -> int:
    """Returns 0: incidents are no objects of the API."""
    nodes, pools = _unreachable_nodes(now), _incomplete_pools(now)
    devices = _held_twice(now) if settings.MIRROR else {}  # elsewhere the index refuses it
    with transaction.atomic():
        impairments.record_unreachable(nodes, at=now)
        impairments.record_incomplete(pools, at=now)
        impairments.record_held_twice(devices, at=now)
    return 0


def _unreachable_nodes(now: datetime) -> Mapping[str, datetime]:
    """name -> since when: the moment at which its Lease was overdue."""
    if not (names := unreachable_nodes(now)):
        return {}
    rows = nodes_with_leases().filter(name__in=names).values_list("name", "renewed_at")
    return {name: min(renewed_at + GRACE, now) if renewed_at else now for name, renewed_at in rows}


def _incomplete_pools(now: datetime) -> Mapping[PoolKey, tuple[datetime, str]]:
    missing: dict[PoolKey, str] = {}
    for driver, name, node, seen, expected, generation in _in_part(now):
        missing[PoolKey(driver, name, node)] = f"{seen} of {expected} slices of generation {generation} are published"
    for driver, name, node, devices in _unpublished(now):
        held = f"{devices} {'device is' if devices == 1 else 'devices are'} held"
        missing[PoolKey(driver, name, node)] = f"no slice is published, and {held}"
    since = _incomplete.value = {pool: _incomplete.value.get(pool, now) for pool in missing}
    return {pool: (since[pool], what) for pool, what in missing.items() if now - since[pool] >= SETTLING}


def _in_part(now: datetime) -> Sequence[InPart]:
    look, written = _last_look_at_pools.value, event_log.newest((SLICES,))
    if look is None or look.is_over(now, written):
        columns = ("driver", "name", "node_name", "slices_seen", "slices_expected", "generation")
        found = list(Pool.objects.filter(complete=False).values_list(*columns))
        look = _last_look_at_pools.value = _Look(now, written, found)
    return look.found


def _unpublished(now: datetime) -> Sequence[Unpublished]:
    look, written = _last_look.value, event_log.newest((SLICES,))
    if look is None or look.is_over(now, written):
        look = _last_look.value = _Look(now, written, list(_held_unpublished()))
    return look.found


def _held_unpublished() -> Iterable[Unpublished]:
    published = Pool.objects.filter(driver=OuterRef("driver"), name=OuterRef("pool"))
    held = AllocatedDevice.objects.filter(~Exists(published), admin_access=False, controller="").order_by()
    return held.values_list("driver", "pool", "node").annotate(devices=Count("pk"))


def _held_twice(now: datetime) -> Mapping[DeviceKey, str]:
    look, written = _last_look_at_claims.value, event_log.newest((CLAIMS, SLICES))
    if look is None or look.is_over(now, written):
        look = _last_look_at_claims.value = _Look(now, written, _held_by_several())
    return look.found


def _held_by_several() -> Mapping[DeviceKey, str]:
    """Where they differ in the node alone, the pools say whether it is one device. Rows that are not exclusive though
    neither admin access, nor a share, nor of a controller, are copied ones.
    """
    whole = AllocatedDevice.objects.filter(exclusive=False, admin_access=False, share_id="", controller="").order_by()
    several = whole.values_list("driver", "pool", "device").annotate(claims=Count("claim", distinct=True))
    devices = [key[:3] for key in several.filter(claims__gt=1)]
    columns = ["driver", "pool", "device", "node", "claim_id", "admin_access", "share_id", "controller"]
    found = sql.select(AllocatedDevice, columns, columns[:3], devices)
    rows = [(row[:4], row[4]) for row in found if not any(row[5:])]
    pools = pools_by_device({key for key, _ in rows}, pools_in_use)
    holders: dict[tuple[str, PoolKey], set[str]] = {}
    for key, claim in rows:
        for pool in pools[key]:
            holders.setdefault((key[2], pool), set()).add(claim)
    return {
        (pool.driver, pool.name, device, pool.node): f"{len(claims)} claims hold it, each as a whole"
        for (device, pool), claims in holders.items()
        if len(claims) > 1
    }


CONTROLLER = Controller(
    name="record_incidents",
    does="opens and closes incidents of unreachable nodes, incomplete pools and devices held twice",
    in_mirror=True,
    reconcile=reconcile,
    every=5,
    wakes_on=frozenset({(NODES, MODIFIED), (NODES, DELETED)}),
)
