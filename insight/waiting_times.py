"""How long claims waited for their devices, from the moment that a pod requested them until they were allocated.

Only claims generated for a pod count, from their creation: a pod may name a claim that a person created days before,
whose age says nothing about the wait. Current allocations come from the claims, past ones from the history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import FloatField, Func, QuerySet
from django.db.models.functions import Round

from claims.models import AllocatedDevice, PastAllocation

#: The maximum of allocations; if there are more, the latest.
LATEST = 20_000


class Epoch(Func):
    """A moment as seconds since 1970, to a tenth of a millisecond, computed by the database.

    On SQLite, Django subtracts and reads moments in Python, row by row: for a day of a large cluster that costs more
    than the query itself.
    """

    output_field = FloatField()
    arity = 1
    template = "CAST(EXTRACT(EPOCH FROM %(expressions)s) AS DOUBLE PRECISION)"

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(
            compiler, connection, template="((julianday(%(expressions)s) - 2440587.5) * 86400.0)", **extra
        )


class Wait(NamedTuple):
    """The wait of one claim for one group of devices. at: when it was allocated."""

    group: str
    at: datetime
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFigures:
    """The waits of several claims, in seconds; the percentiles are actual waits."""

    claims: int
    median: float
    ninety: float
    ninety_nine: float
    longest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> WaitFigures:
        """seconds: at least one."""
        ordered = sorted(seconds)
        return cls(
            claims=len(ordered),
            median=percentile(ordered, 50),
            ninety=percentile(ordered, 90),
            ninety_nine=percentile(ordered, 99),
            longest=ordered[-1],
        )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The least value that `percent` of the values do not exceed."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def by_class(since: datetime, *, latest: int = LATEST) -> Mapping[str, WaitFigures]:
    """The waits of what was allocated since then."""
    now = AllocatedDevice.objects.filter(admin_access=False, claim__allocated_at__gte=since)
    past = PastAllocation.objects.filter(admin_access=False, began_at__gte=since)
    found: dict[str, list[float]] = {}
    for one in waits_of(now, past, column="device_class", latest=latest):
        found.setdefault(one.group, []).append(one.seconds)
    return {name: WaitFigures.of(seconds) for name, seconds in found.items()}


def waits_of(now: QuerySet[Any], past: QuerySet[Any], *, column: str, latest: int = LATEST) -> list[Wait]:
    """The waits in rows of AllocatedDevice and PastAllocation, grouped by a column of both; the latest first."""
    present = now.filter(claim__allocated_at__isnull=False).exclude(claim__source="").order_by("-claim__allocated_at")
    ended = past.filter(asked_at__isnull=False).order_by("-began_at")
    rows = [
        *_waits(present, "claim_id", "claim__created_at", "claim__allocated_at", column=column)[:latest],
        *_waits(ended, "claim_uid", "asked_at", "began_at", column=column)[:latest],
    ]
    found = [Wait(group, at, max(seconds, 0.0)) for group, _, at, seconds in rows]
    return sorted(found, key=lambda one: one.at, reverse=True)[:latest]


def _waits(rows: QuerySet[Any], claim: str, asked: str, allocated: str, *, column: str) -> QuerySet[Any, Any]:
    """One row for each claim and group, with the seconds between the two moments."""
    seconds = Round(Epoch(allocated) - Epoch(asked), precision=3)
    found: QuerySet[Any, Any] = rows.annotate(waited=seconds).values_list(column, claim, allocated, "waited").distinct()
    return found
