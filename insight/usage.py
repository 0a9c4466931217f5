"""How the devices were used over time: once a minute a sample of how many were in which state, kept for some days.

An allocated device counts as held even if it is tainted.

Any worker may take the sample of a minute; the database keeps the first. A worker keeps a small cluster in memory from
one sample to the next. A large one is read for the sample and forgotten, less often and without its classes, so that
charts cost the scheduler neither memory nor much time.

The controller also removes processes without a recent heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum

from claims.devices import cache
from insight.capacity import read_census
from inventory.models import Pool
from manciple.controllers import coordination
from manciple.controllers.declaration import Controller
from manciple.per_process import PerProcess
from manciple.store.event_log import latest_revision, listed
from scheduling.cycle import scheduler
from scheduling.models import QueuedPod, UsageSample
from scheduling.placement.demands import FreeCapacity
from scheduling.placement.policies import free_by_class

#: How long samples are kept.
KEPT_FOR = timedelta(days=8)
#: The class of samples of all devices.
ALL = ""
#: The number of devices from which a cluster is large, and the intervals between samples.
LARGE = 20_000
EVERY, LARGE_EVERY = timedelta(minutes=1), timedelta(minutes=10)
#: Maximum age of a sample that pages show as the present.
LATELY = timedelta(minutes=5)
#: Maximum of writes since the last sample that are followed one by one; after more, everything is read again.
MOST_FOLLOWED = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOfMoment:
    """A sample as pages read it. counts: state -> devices."""

    at: datetime
    counts: Mapping[str, int]
    waiting: int
    #: the fraction of the free devices that is expected to stay unused, 0 to 1; None if unknown
    stranded: float | None = None


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def sample(now: datetime) -> int:
    """Take the sample of this minute unless there is one. Returns how many rows were written."""
    at = minute_of(now)
    every = sampled_every(Pool.objects.aggregate(total=Sum("device_count"))["total"] or 0)
    if UsageSample.objects.filter(at__gt=at - every, device_class=ALL).exists():
        return 0
    if every == EVERY:
        rows = _counted(at)
    else:  # all devices only, without keeping what is read
        counts = nonzero(listed(cache.DeviceCache).snapshot().by_use)
        rows = [UsageSample(at=at, device_class=ALL, counts=counts, waiting=QueuedPod.objects.count())]
    UsageSample.objects.bulk_create(rows, ignore_conflicts=True)
    prune(now)
    return len(rows)


def sampled_every(devices: int) -> timedelta:
    """How often a cluster with so many devices is sampled."""
    return LARGE_EVERY if devices >= LARGE else EVERY


_last_revision = PerProcess(int)


def _counted(at: datetime) -> list[UsageSample]:
    """All devices and each class."""
    if latest_revision() - _last_revision.value > MOST_FOLLOWED:
        cache.following.reset()
    census = read_census()
    _last_revision.value = census.revision
    rows = [UsageSample(at=at, device_class=ALL, counts=nonzero(census.snapshot.by_use), waiting=census.waiting)]
    rows += [
        UsageSample(at=at, device_class=one.name, counts=nonzero(one.by_use), waiting=one.waiting)
        for one in census.classes
    ]
    return rows


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    return {state: count for state, count in counts.items() if count}


def prune(now: datetime) -> int:
    """Delete samples that are too old for any page. Returns how many."""
    return UsageSample.objects.filter(at__lt=now - KEPT_FOR).delete()[0]


def samples_since(since: datetime, device_class: str = ALL) -> Sequence[UsageOfMoment]:
    """The samples in chronological order."""
    rows: Iterable[tuple[datetime, Mapping[str, int], int, float | None, float | None]] = (
        UsageSample.objects.filter(device_class=device_class, at__gte=since)
        .order_by("at")
        .values_list("at", "counts", "waiting", "free", "stranded")
    )
    return [
        UsageOfMoment(at=at, counts=counts, waiting=waiting, stranded=part_of(stranded, free))
        for at, counts, waiting, free, stranded in rows
    ]


def part_of(stranded: float | None, free: float | None) -> float | None:
    """The stranded fraction; None if nothing is free, or if it is unknown."""
    return stranded / free if stranded is not None and free else None


def stranded_now(now: datetime) -> dict[str, float]:
    """Class -> the fraction of its free devices that is expected to stay unused, by the latest sample with it."""
    rows = UsageSample.objects.filter(at__gte=now - LATELY, stranded__isnull=False).order_by("at")
    found = (
        (name, part_of(stranded, free)) for name, stranded, free in rows.values_list("device_class", "stranded", "free")
    )
    return {name: part for name, part in found if part is not None}


# The controller -------------------------------------------------------------------------------------------------------


#: Seconds after its start in which a process takes no samples: it lists the cluster for the scheduler, and pods wait.
WARMING_UP = 30.0
#: when the controller first ran in this process, by the monotonic clock
_asked_first = PerProcess(time.monotonic)


def reconcile(now: datetime) -> int:
    """Returns how many rows were added and removed."""
    first = _asked_first.value
    warm = time.monotonic() - first >= WARMING_UP
    sampled = sample(now) if warm else 0
    if sampled > 1:  # with its classes
        # Pods wait while this reads the scheduler's state (some milliseconds), not while it writes the rows.
        note_stranded(scheduler.worker.value.in_turn(free_by_class) or {}, now)
    return sampled + coordination.forget_stale(now)


def note_stranded(capacities: Mapping[str, FreeCapacity], now: datetime) -> None:
    """Add the stranded capacity of each class to the samples of this minute."""
    rows = list(UsageSample.objects.filter(at=minute_of(now), device_class__in=list(capacities)))
    for row in rows:
        row.free, row.stranded = capacities[row.device_class]
    UsageSample.objects.bulk_update(rows, ["free", "stranded"])


CONTROLLER = Controller(
    name="sample_usage",
    does="records once a minute how many devices are in which state; removes processes without a recent heartbeat",
    in_mirror=True,
    reconcile=reconcile,
    every=20,  # more often than needed, so that no minute is missed
)
