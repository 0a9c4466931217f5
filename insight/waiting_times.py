"""How long claims waited for their devices, from the moment that a pod asked for them until they were allocated.

Of claims that were made for a pod, with its creation: a claim that somebody made by hand may be named by a pod days
later, and says nothing about the wait. What is held now is told by the claims, what was given back by the history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.db.models.functions import Round

from claims.models import AllocatedDevice, PastAllocation
from insight.epochs import Epoch

#: Allocations that are looked at; of more, the latest.
LATEST = 20_000


class Wait(NamedTuple):
    """Of one claim for one group of devices. at: when it was allocated."""

    group: str
    at: datetime
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFigures:
    """Of several claims, in seconds; the percentiles are waits that there were."""

    claims: int
    median: float
    ninety: float
    ninety_nine: float
    longest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> WaitFigures:
        """Of one wait at least."""
        ordered = sorted(seconds)
        return cls(
            claims=len(ordered),
            median=percentile(ordered, 50),
            ninety=percentile(ordered, 90),
            ninety_nine=percentile(ordered, 99),
            longest=ordered[-1],
        )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The least of the values that so many percent of them do not exceed."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def by_class(since: datetime, *, latest: int = LATEST) -> Mapping[str, WaitFigures]:
    """Of what was allocated since then."""
    now = AllocatedDevice.objects.filter(admin_access=False, claim__allocated_at__gte=since)
    past = PastAllocation.objects.filter(admin_access=False, began_at__gte=since)
    found: dict[str, list[float]] = {}
    for one in waits_of(now, past, column="device_class", latest=latest):
        found.setdefault(one.group, []).append(one.seconds)
    return {name: WaitFigures.of(seconds) for name, seconds in found.items()}


def waits_of(now: QuerySet[Any], past: QuerySet[Any], *, column: str, latest: int = LATEST) -> list[Wait]:
    """Of rows of AllocatedDevice and PastAllocation, grouped by a column that both have; the latest first."""
    present = now.filter(claim__allocated_at__isnull=False).exclude(claim__source="").order_by("-claim__allocated_at")
    ended = past.filter(asked_at__isnull=False).order_by("-began_at")
    rows = [
        *_waits(present, "claim_id", "claim__created_at", "claim__allocated_at", column=column)[:latest],
        *_waits(ended, "claim_uid", "asked_at", "began_at", column=column)[:latest],
    ]
    found = [Wait(group, at, max(seconds, 0.0)) for group, _, at, seconds in rows]
    return sorted(found, key=lambda one: one.at, reverse=True)[:latest]


def _waits(rows: QuerySet[Any], claim: str, asked: str, allocated: str, *, column: str) -> QuerySet[Any, Any]:
    """One for each claim and group, with the seconds between the two moments."""
    seconds = Round(Epoch(allocated) - Epoch(asked), precision=3)
    found: QuerySet[Any, Any] = rows.annotate(waited=seconds).values_list(column, claim, allocated, "waited").distinct()
    return found
