"""What the guard has found: kept for a while, and as incidents of the devices concerned while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Count, Max, Q

from inventory import impairments
from manciple.mirror.guard.reviews import ClaimWrite
from manciple.mirror.models import GuardFinding
from manciple.store import sql
from scheduling.allocator.ledger import Overlap

#: How long they are kept, and how many.
KEPT_FOR, KEPT_ROWS = timedelta(days=90), 100_000
#: How long after the last one the incident of a device stays open.
GOES_ON: Final = timedelta(minutes=10)
#: Devices that have an incident at a time.
MOST_DEVICES: Final = 500

_COLUMNS = ("at", "namespace", "claim", "author", "refused", "driver", "pool", "node", "device", "message")


def record(write: ClaimWrite, found: Sequence[tuple[Overlap, str]], *, refused: bool, at: datetime) -> None:
    """found: with what is said of each."""
    rows = [
        (at, write.namespace, write.name, write.author, refused, *one.pool, one.device, message)
        for one, message in found
    ]
    sql.insert(GuardFinding, _COLUMNS, rows)


def keep(at: datetime) -> None:
    """Open and close incidents, and forget what is old."""
    with sql.in_turn(), transaction.atomic():
        recent = GuardFinding.objects.filter(at__gt=at - GOES_ON).values_list("driver", "pool", "device", "node")
        counted = recent.annotate(writes=Count("pk"), refused=Count("pk", filter=Q(refused=True))).order_by("-writes")
        devices = {
            (driver, pool, device, node): _message(writes, refused)
            for driver, pool, device, node, writes, refused in counted[:MOST_DEVICES]
        }
        impairments.record_contested(devices, at=at)
        newest = GuardFinding.objects.aggregate(newest=Max("id"))["newest"] or 0
        GuardFinding.objects.filter(Q(at__lt=at - KEPT_FOR) | Q(id__lte=newest - KEPT_ROWS)).delete()


def _message(writes: int, refused: int) -> str:
    """Without names: whoever sees the device may read it."""
    said, gave = ("allocations", "give") if writes > 1 else ("allocation", "gives")
    if refused == writes:
        return f"the guard refused {writes} {said} that would have given it twice"
    return f"{writes} {said} {gave} it twice; the guard, which only watches, let {writes - refused} through"
