"""How times and durations read on a page: exact, in two units at most, never guessed.

Times of day are those of Django's current zone, which is the reader's while a page is drawn (`preferences`).
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from django.utils import timezone

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """`8 s`, `46 min`, `3 h 12 min`, `2 d 4 h`."""
    whole = max(0, int(seconds))
    for size, unit, next_size, next_unit in ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min")):
        if whole >= size:
            rest = whole % size // next_size
            return f"{whole // size} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{whole // _MINUTE} min" if whole >= _MINUTE else f"{whole} s"


def moment(value: datetime | str | None) -> datetime | None:
    """A time of the API (RFC 3339) or of the database, in UTC; None where there is none."""
    if not value:
        return None
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def age(value: datetime | str | None, *, now: datetime | None = None) -> str:
    """How long ago; empty where no time is known."""
    since = moment(value)
    return duration(((now or datetime.now(UTC)) - since).total_seconds()) if since else ""


def clock(value: datetime | str | None, *, now: datetime | None = None) -> str:
    """`10:20:04` today, `Thu 10:20` within a week, `2026-11-13 10:20` before."""
    at = moment(value)
    if at is None:
        return ""
    at = timezone.localtime(at)
    days = (timezone.localtime(now or datetime.now(UTC)).date() - at.date()).days
    if days == 0:
        return f"{at:%H:%M:%S}"
    return f"{at:%a %H:%M}" if 0 < days < 7 else f"{at:%Y-%m-%d %H:%M}"  # noqa: PLR2004 - days of a week


def zone_label(zone: tzinfo, *, now: datetime) -> str:
    """`Europe/Berlin (UTC+1)`, `Asia/Kolkata (UTC+5:30)`, `UTC`."""
    name, difference = str(zone), offset(now.astimezone(zone))
    return name if name == difference else f"{name} ({difference})"


def offset(at: datetime) -> str:
    """How far a time is from UTC: `UTC`, `UTC+1`, `UTC-3:30`."""
    minutes = round((at.utcoffset() or UTC.utcoffset(at)).total_seconds() / 60)
    if not minutes:
        return "UTC"
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{'+' if minutes > 0 else '-'}{hours}" + (f":{rest:02}" if rest else "")
