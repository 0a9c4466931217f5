"""Durations in words, in two units at most, and the times of the API."""

from __future__ import annotations

from datetime import UTC, datetime

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
