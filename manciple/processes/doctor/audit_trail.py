"""Examines the audit trail: is what it promises there, and will it be."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings

from manciple.audit import retention
from manciple.audit.models import Entry
from manciple.processes.doctor.diagnoses import Diagnosis, number_of, problem, warning

#: The part of a limit from which it is soon reached.
NEARLY_FULL: Final = 0.9
_FILE: Final = "ship the trail to a file that has no limit (`manciple audit follow`)"


def examine_audit_trail(now: datetime) -> Iterator[Diagnosis]:
    shortfalls = list(retention.shortfalls())
    for shortfall in shortfalls:
        who = shortfall.sender or "clients without a credential"
        yield problem(
            "audit trail",
            f"not all {_what(shortfall.wrote)} of {who} up to {shortfall.until:%Y-%m-%d %H:%M} are there: the limit "
            "was reached",
            f"see why there are so many (the Audit page); raise {_setting(shortfall.wrote)}, or {_FILE}",
        )
    for wrote, limit in ((True, settings.AUDIT_ENTRIES), (False, settings.AUDIT_REFUSALS)):
        if any(shortfall.wrote == wrote for shortfall in shortfalls):
            continue
        entries = Entry.objects.filter(wrote=wrote)
        oldest = entries.order_by("id").values_list("at", flat=True).first()
        count = entries.count()
        if oldest and count >= NEARLY_FULL * limit and now - oldest < timedelta(days=settings.AUDIT_DAYS):
            yield warning(
                "audit trail",
                f"has {count} of {limit} {_what(wrote)} after {number_of((now - oldest).days, 'day')}; "
                f"{settings.AUDIT_DAYS:g} are promised",
                f"raise {_setting(wrote)}, lower MANCIPLE_AUDIT_DAYS, or {_FILE}",
            )


def _what(wrote: bool) -> str:
    return "writes" if wrote else "refusals and reads"


def _setting(wrote: bool) -> str:
    return "MANCIPLE_AUDIT_ENTRIES" if wrote else "MANCIPLE_AUDIT_REFUSALS"
