"""How the devices were used over time: a sample a minute of how many were in which state, kept for some days.

What is held counts as held, though it be tainted.

Any worker may take the sample of a minute; the database keeps the first. A worker keeps a small cluster in mind from
one sample to the next; a large one is read for the sample and forgotten, less often, and without its classes, so that
what places pods pays neither memory nor much time for a drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum

from claims.devices import cache
from insight.capacity import read_census
from inventory.models import Pool
from manciple.per_process import PerProcess
from manciple.store.event_log import latest_revision, listed
from scheduling.models import QueuedPod, UsageSample

#: How long samples are kept.
KEPT_FOR = timedelta(days=8)
#: The class of samples of all devices.
ALL = ""
#: Devices from which on a cluster is large, and how often it is sampled.
LARGE = 20_000
EVERY, LARGE_EVERY = timedelta(minutes=1), timedelta(minutes=10)
#: How old a sample may be that is shown as what is now.
LATELY = timedelta(minutes=5)
#: Writes since the last sample that are followed one by one; after more, everything is read anew.
MOST_FOLLOWED = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOfMoment:
    """A sample as pages read it. counts: state -> devices."""

    at: datetime
    counts: Mapping[str, int]
    waiting: int
    #: the part of what is free that is expected to stay unused, 0 to 1; None where that is not known
    stranded: float | None = None


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def sample(now: datetime) -> int:
    """Note how things stand in this minute, unless somebody has. Returns how many rows were written."""
    at = minute_of(now)
    every = sampled_every(_devices())
    if UsageSample.objects.filter(at__gt=at - every, device_class=ALL).exists():
        return 0
    rows = _counted(at) if every == EVERY else _counted_in_passing(at)
    UsageSample.objects.bulk_create(rows, ignore_conflicts=True)
    prune(now)
    return len(rows)


def sampled_every(devices: int) -> timedelta:
    """How often a cluster with so many devices is sampled."""
    return LARGE_EVERY if devices >= LARGE else EVERY


def _devices() -> int:
    found: int = Pool.objects.aggregate(total=Sum("device_count"))["total"] or 0
    return found


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


def _counted_in_passing(at: datetime) -> list[UsageSample]:
    """All devices; nothing that was read is kept."""
    counts = nonzero(listed(cache.DeviceCache).snapshot().by_use)
    return [UsageSample(at=at, device_class=ALL, counts=counts, waiting=QueuedPod.objects.count())]


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    return {state: count for state, count in counts.items() if count}


def prune(now: datetime) -> int:
    """Forget samples that are too old for any page. Returns how many."""
    return UsageSample.objects.filter(at__lt=now - KEPT_FOR).delete()[0]


def samples_since(since: datetime, device_class: str = ALL) -> Sequence[UsageOfMoment]:
    """In the order of time."""
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
    """None where nothing is free, or nobody knows."""
    return stranded / free if stranded is not None and free else None


def stranded_now(now: datetime) -> dict[str, float]:
    """class -> the part of what is free of it that is expected to stay unused, by the latest sample that says so."""
    rows = UsageSample.objects.filter(at__gte=now - LATELY, stranded__isnull=False).order_by("at")
    found = (
        (name, part_of(stranded, free)) for name, stranded, free in rows.values_list("device_class", "stranded", "free")
    )
    return {name: part for name, part in found if part is not None}
