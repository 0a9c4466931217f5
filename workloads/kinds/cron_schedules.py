"""When a CronJob is due: the five fields of cron, "@hourly" and the like, and "@every 1h30m". PURE.

There is a library for this syntax, but none that takes and refuses what Kubernetes does, in its words: that is what
github.com/robfig/cron v3 (parser.go, spec.go, constantdelay.go; ParseStandard) takes. Differences that matter: where
both days are restricted one of them suffices, `?` is `*`, there is no `L`, `#` or `W`, names stand in ranges, a step
may be any number but 0, and "@every" counts from the last time.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

#: Years in which a schedule must be due once; the one of 30 February never is.
MOST_YEARS = 5

_MONTHS = dict(
    zip(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), range(1, 13), strict=True)
)
_DAYS = dict(zip(("sun", "mon", "tue", "wed", "thu", "fri", "sat"), range(7), strict=True))
#: (the lowest, the highest, names) of minute, hour, day of the month, month, day of the week
_FIELDS: tuple[tuple[int, int, Mapping[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_INTEGER = re.compile(r"[+-]?[0-9]+")
#: Go's durations.
_DURATION = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST = 2**63 / 1e9
_ZONE = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


class Schedule(Protocol):
    """next: the first time after `moment`, to the second; None where there is none within `MOST_YEARS`."""

    def next(self, moment: datetime) -> datetime | None: ...


class BadSchedule(ValueError):
    """The text of the error is robfig's."""


@dataclass(frozen=True, slots=True)
class Every:
    """Each so many seconds, at least one."""

    seconds: int

    def next(self, moment: datetime) -> datetime | None:
        try:
            return moment.replace(microsecond=0) + timedelta(seconds=self.seconds)
        except OverflowError:
            return None


@dataclass(frozen=True, slots=True)
class Fields:
    """The values of each field. either_day: both fields of days are restricted, and one of them suffices."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    zone: tzinfo

    def next(self, moment: datetime) -> datetime | None:
        """Hours and minutes are counted off as they pass, so those that the clock in `zone` shows twice are due twice,
        and those that it skips never.
        """
        at = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        last_year = at.astimezone(self.zone).year + MOST_YEARS
        while (wall := at.astimezone(self.zone)).year <= last_year:
            if wall.month not in self.months:
                days = monthrange(wall.year, wall.month)[1]
                following = self._midnight(wall.date() + timedelta(days=days - wall.day + 1))
            elif not self._is_day(wall):
                following = self._midnight(wall.date() + timedelta(days=1))
            elif wall.hour not in self.hours:
                following = at + timedelta(minutes=60 - wall.minute)
            elif wall.minute not in self.minutes:
                following = at + timedelta(minutes=1)
            else:
                return at
            at = max(following, at + timedelta(minutes=1))
        return None

    def _is_day(self, wall: datetime) -> bool:
        matches = (wall.day in self.days, wall.isoweekday() % 7 in self.weekdays)
        return any(matches) if self.either_day else all(matches)

    def _midnight(self, day: date) -> datetime:
        return datetime(day.year, day.month, day.day, tzinfo=self.zone).astimezone(UTC)


def parse(text: str, zone: str = "") -> Schedule:
    """zone: the name of a time zone, UTC where there is none. Raises: BadSchedule."""
    if text.startswith("@"):
        if text.startswith(_EVERY):
            return Every(max(1, int(_duration(text))))
        if text not in _DESCRIPTORS:
            raise BadSchedule(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise BadSchedule(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    found = [_field(one, *bounds) for one, bounds in zip(fields, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = (values for values, _ in found)
    either = not found[2][1] and not found[4][1]
    return Fields(minutes, hours, days, months, weekdays, either, zone_of(zone))


def _duration(text: str) -> float:
    """In seconds."""
    asked = text.removeprefix(_EVERY)
    sign, rest = (asked[:1], asked[1:]) if asked[:1] in ("-", "+") else ("", asked)
    parts = _DURATION.findall(rest)
    if rest == "0":
        return 0.0
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise BadSchedule(f'failed to parse duration {text}: time: invalid duration "{asked}"')
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds >= _LONGEST:
        raise BadSchedule(f'failed to parse duration {text}: time: invalid duration "{asked}"')
    return -seconds if sign == "-" else seconds


def _field(text: str, low: int, high: int, names: Mapping[str, int]) -> tuple[frozenset[int], bool]:
    """(its values, whether it is `*`)"""
    values: set[int] = set()
    is_open = False
    for part in text.split(","):
        if part:
            found, is_star = _range(part, low, high, names)
            values.update(found)
            is_open = is_open or is_star
    return frozenset(values), is_open


def _range(text: str, low: int, high: int, names: Mapping[str, int]) -> tuple[range, bool]:
    span, *steps = text.split("/")
    limits = span.split("-")
    is_star = limits[0] in ("*", "?")
    if is_star:
        first, last = low, high
    else:
        first = _number(limits[0], names)
        if limits[2:]:
            raise BadSchedule(f"too many hyphens: {text}")
        last = _number(limits[-1], names)
    if len(steps) > 1:
        raise BadSchedule(f"too many slashes: {text}")
    step = _number(steps[0], {}) if steps else 1
    if steps and len(limits) == 1:
        last = high
    if first < low:
        raise BadSchedule(f"beginning of range ({first}) below minimum ({low}): {text}")
    if last > high:
        raise BadSchedule(f"end of range ({last}) above maximum ({high}): {text}")
    if first > last:
        raise BadSchedule(f"beginning of range ({first}) beyond end of range ({last}): {text}")
    if not step:
        raise BadSchedule(f"step of range should be a positive number: {text}")
    return range(first, last + 1, step), is_star and step == 1


def _number(text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not _INTEGER.fullmatch(text):
        raise BadSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    number = int(text[:20])
    if not -(1 << 63) <= number < 1 << 63:
        raise BadSchedule(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": value out of range')
    if number < 0:
        raise BadSchedule(f"negative number ({number}) not allowed: {text}")
    return number


# Time zones -----------------------------------------------------------------------------------------------------------


def zone_of(name: str) -> tzinfo:
    """Raises: BadSchedule for a zone that is not known."""
    if not name or name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadSchedule(f"unknown time zone {name}") from None


def check_zone(name: str) -> tuple[str, ...]:
    """What is wrong with the name of a time zone."""
    if not name:
        return ("timeZone must be nil or non-empty string",)
    parts = name.split("/")
    if any(part in (".", "..") or part.startswith("-") or not _ZONE.fullmatch(part) for part in parts):
        return (f"unknown time zone {name}",)
    found: list[str] = []
    if name.lower() == "local":
        found.append("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
    try:
        if name != "Local":
            zone_of(name)
    except BadSchedule as error:
        found.append(str(error))
    return tuple(found)


# Due times ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Due:
    """since: from when on times were looked for. at: the last one that has come; None where none has. missed: about
    how many have.
    """

    since: datetime
    at: datetime | None
    missed: int


def due(schedule: Schedule, since: datetime, now: datetime) -> Due:
    """The last time that has come after `since`.

    Raises: BadSchedule for one whose times do not advance.
    Source: mostRecentScheduleTime (pkg/controller/cronjob/utils.go).
    """
    first = schedule.next(since)
    if first is None or now < first:
        return Due(since, None, 0)
    second = schedule.next(first)
    if second is None or now < second:
        return Due(since, first, 0)
    between = int((second - first).total_seconds())
    if between < 1:
        raise BadSchedule("time difference between two schedules is less than 1 second")
    missed = int((now - first).total_seconds()) // between + 1
    # Times may be unevenly far apart, so the last ones are counted off from a little before.
    found, at = None, schedule.next(first + timedelta(seconds=(missed - 2) * between))
    while at is not None and at <= now:
        found, at = at, schedule.next(at)
    return Due(since, found, missed)


def next_due(schedule: Schedule, since: datetime, now: datetime) -> datetime | None:
    """The first time that has not come yet. Source: nextScheduleTimeDuration."""
    try:
        last = due(schedule, since, now)
    except BadSchedule:
        return schedule.next(now)
    if last.at is not None:
        return schedule.next(last.at)
    return schedule.next(now if last.missed else last.since)
