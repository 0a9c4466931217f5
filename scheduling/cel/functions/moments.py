"""Parts of timestamps and durations. Months, days of month, week and year count from 0, getDate() from 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from scheduling.cel.times import SECOND, Duration, Timestamp


def _part(read: Callable[[datetime], int]) -> Callable[..., int]:
    return lambda moment, zone="": read(moment.at(zone))


def _milliseconds(moment: Timestamp, zone: str = "") -> int:
    moment.at(zone)  # an unknown zone is an error here too
    return moment.nanos % SECOND // 1_000_000


def _whole(unit: int) -> Callable[[Duration], int]:
    return lambda duration: duration.whole(unit)


def _with_zone(name: str, read: Callable[..., int], *, zoned: str = "") -> dict[str, Callable[..., int]]:
    return {name: read, zoned or f"{name}_with_tz": read}


IMPLEMENTATIONS: Mapping[str, Callable[..., Any]] = {
    **_with_zone("timestamp_to_year", _part(lambda moment: moment.year)),
    **_with_zone("timestamp_to_month", _part(lambda moment: moment.month - 1)),
    **_with_zone("timestamp_to_day_of_year", _part(lambda moment: moment.timetuple().tm_yday - 1)),
    **_with_zone("timestamp_to_day_of_month", _part(lambda moment: moment.day - 1)),
    **_with_zone("timestamp_to_day_of_month_1_based", _part(lambda moment: moment.day)),
    **_with_zone("timestamp_to_day_of_week", _part(lambda moment: moment.isoweekday() % 7)),
    **_with_zone("timestamp_to_hours", _part(lambda moment: moment.hour)),
    **_with_zone("timestamp_to_minutes", _part(lambda moment: moment.minute)),
    **_with_zone("timestamp_to_seconds", _part(lambda moment: moment.second), zoned="timestamp_to_seconds_tz"),
    **_with_zone("timestamp_to_milliseconds", _milliseconds),
    "duration_to_hours": _whole(3600 * SECOND),
    "duration_to_minutes": _whole(60 * SECOND),
    "duration_to_seconds": _whole(SECOND),
    "duration_to_milliseconds": _whole(1_000_000),
}
