"""Timestamps and durations, to the nanosecond, as Go's time package parses and prints them, and their parts.

Months, days of month, week and year count from 0, getDate() from 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from manciple.cel.errors import EvaluationError

SECOND = 10**9
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_MAX_DURATION = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_SECONDS = int((datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
_MAX_SECONDS = int((datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH).total_seconds())
_DAY = timedelta(hours=24)
_MINUTES = range(60)
_PIECE = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_RFC3339 = re.compile(r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,}))?(Z|[+-]\d{2}:\d{2})", re.ASCII)
_OFFSET = re.compile(r"([+-]?)(\d{2}):(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanos: int

    def __post_init__(self) -> None:
        if not -_MAX_DURATION - 1 <= self.nanos <= _MAX_DURATION:
            raise EvaluationError("duration overflow")

    def text(self) -> str:
        """Seconds, as a plain decimal with "s"."""
        seconds, nanos = divmod(abs(self.nanos), SECOND)
        fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
        return f"{'-' if self.nanos < 0 else ''}{seconds}{fraction}s"

    def whole(self, unit: int) -> int:
        """Whole units, towards zero."""
        return abs(self.nanos) // unit * (1 if self.nanos >= 0 else -1)


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Nanoseconds since 1970-01-01T00:00:00Z, within the years 1 to 9999."""

    nanos: int

    def __post_init__(self) -> None:
        if not _MIN_SECONDS <= self.nanos // SECOND <= _MAX_SECONDS:
            raise EvaluationError("timestamp overflow")

    def text(self) -> str:
        moment = self.at("")
        fraction = f".{self.nanos % SECOND:09d}".rstrip("0") if self.nanos % SECOND else ""
        return f"{moment.year:04d}{moment.strftime('-%m-%dT%H:%M:%S')}{fraction}Z"

    def at(self, zone: str) -> datetime:
        """The wall clock in a zone ("" is UTC, else an IANA name or an offset like -02:00), without the fraction."""
        moment = _EPOCH + timedelta(seconds=self.nanos // SECOND)
        try:
            return moment.astimezone(_zone(zone))
        except OverflowError:
            raise EvaluationError("timestamp overflow") from None


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        delta = timedelta(hours=int(hours), minutes=int(minutes))
        if delta < _DAY:
            return timezone(-delta if sign == "-" else delta)
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise EvaluationError(f"unknown time zone {name}") from None


def parse_duration(text: str) -> Duration:
    """Go's ParseDuration: "1h30m", "-1.5s". Raises: ValueError."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    nanos = 0
    end = 0
    while match := _PIECE.match(rest, end):
        whole, fraction, unit = match.groups()
        if not (whole or fraction):
            raise ValueError(f"invalid duration {text!r}")
        digits = fraction or ""
        nanos += int((whole or "0") + digits) * _UNITS[unit] // 10 ** len(digits)
        end = match.end()
    if not rest or end != len(rest) or nanos > _MAX_DURATION:
        raise ValueError(f"invalid duration {text!r}")
    return Duration(sign * nanos)


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339. Raises: ValueError."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"invalid timestamp {text!r}")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - _offset_seconds(match.group(8))
    nanos = int((match.group(7) or "0")[:9].ljust(9, "0"))
    return Timestamp(seconds * SECOND + nanos)


def _offset_seconds(text: str) -> int:
    if text == "Z":
        return 0
    hours, minutes = int(text[1:3]), int(text[4:6])
    if timedelta(hours=hours, minutes=minutes) >= _DAY or minutes not in _MINUTES:
        raise ValueError("time zone offset out of range")
    return (hours * 3600 + minutes * 60) * (-1 if text[0] == "-" else 1)


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
