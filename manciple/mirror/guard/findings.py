"""What the guard has found: kept for a while, and as incidents of the devices concerned while it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
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
#: Devices that have an incident at a time, and findings that are read for one.
MOST_DEVICES, MOST_READ = 500, 1000

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


def latest(
    devices: Iterable[tuple[str, str, str, str]], *, since: datetime, until: datetime | None, most: int
) -> list[GuardFinding]:
    """Of these (driver, pool, device, node), the newest first. since, until: of their incident, which begins late."""
    names = set(devices)
    drivers, pools, _, _ = (set(values) for values in zip(*names, strict=True)) if names else (set(), set(), (), ())
    rows = GuardFinding.objects.filter(at__gt=since - GOES_ON, driver__in=drivers, pool__in=pools).order_by("-id")
    if until is not None:
        rows = rows.filter(at__lte=until)
    found = (one for one in rows[:MOST_READ] if (one.driver, one.pool, one.device, one.node) in names)
    return list(islice(found, most))


def _message(writes: int, refused: int) -> str:
    """Without names, as whoever sees the device may read it; without numbers, as it stays what it was at first."""
    if refused == writes:
        return "other allocations are refused"
    return f"other allocations are {'refused or ' if refused else ''}let through: the guard only watches"
