"""How the devices were used over time: a sample a minute of how many were in which state, kept for some days.

Any worker may take the sample of a minute; the database keeps the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduling.models import UsageSample

#: How long samples are kept.
KEPT_FOR = timedelta(days=8)
#: The class of samples of all devices.
ALL = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A sample as pages read it. counts: state -> devices."""

    at: datetime
    counts: Mapping[str, int]
    waiting: int


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def sample(now: datetime) -> int:
    """Note how things stand in this minute, unless somebody has. Returns how many rows were written."""
    # Read where it is needed: a worker that takes no sample loads no page.
    from scheduling.capacity import read_census  # noqa: PLC0415

    at = minute_of(now)
    if UsageSample.objects.filter(at=at, device_class=ALL).exists():
        return 0
    census = read_census()
    rows = [UsageSample(at=at, device_class=ALL, counts=nonzero(census.totals), waiting=census.waiting)]
    rows += [
        UsageSample(at=at, device_class=one.name, counts=nonzero(one.counts), waiting=one.waiting)
        for one in census.classes
    ]
    UsageSample.objects.bulk_create(rows, ignore_conflicts=True)
    prune(now)
    return len(rows)


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    return {state: count for state, count in counts.items() if count}


def prune(now: datetime) -> int:
    """Forget samples that are too old for any page. Returns how many."""
    return UsageSample.objects.filter(at__lt=now - KEPT_FOR).delete()[0]


def samples_since(since: datetime, device_class: str = ALL) -> Sequence[Usage]:
    """In the order of time."""
    rows: Iterable[tuple[datetime, Mapping[str, int], int]] = (
        UsageSample.objects.filter(device_class=device_class, at__gte=since)
        .order_by("at")
        .values_list("at", "counts", "waiting")
    )
    return [Usage(at=at, counts=counts, waiting=waiting) for at, counts, waiting in rows]
