"""When a schedule is due is what robfig/cron v3 says, in its words where it refuses one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from workloads.kinds.cron_schedules import BadSchedule, check_zone, due, next_due, parse

SUNDAY = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # in Berlin, the hour after this one is shown twice

#: what it is about -> (schedule, zone, the next three times in UTC)
TIMES = {
    "every minute": ("* * * * *", "", ["25 00:31", "25 00:32", "25 00:33"]),
    "steps": ("*/20 * * * *", "", ["25 00:40", "25 01:00", "25 01:20"]),
    "steps from a number": ("5/30 * * * *", "", ["25 00:35", "25 01:05", "25 01:35"]),
    "ranges and lists": ("0 6-8,12 * * *", "", ["25 06:00", "25 07:00", "25 08:00"]),
    "names in any case": ("0 9 * Oct-DEC mon-Wed", "", ["26 09:00", "27 09:00", "28 09:00"]),
    "a question mark": ("0 0 ? * ?", "", ["26 00:00", "27 00:00", "28 00:00"]),
    "either day": ("0 0 27 * 1", "", ["26 00:00", "27 00:00", "02 00:00"]),
    "both days where one is open": ("0 0 */1 * 1", "", ["26 00:00", "02 00:00", "09 00:00"]),
    "a step is no star": ("0 0 */2 * 1", "", ["26 00:00", "27 00:00", "29 00:00"]),
    "a month's end": ("0 0 31 * *", "", ["31 00:00", "31 00:00", "31 00:00"]),
    "a leap day": ("0 0 29 2 *", "", ["29 00:00"]),
    "hourly": ("@hourly", "", ["25 01:00", "25 02:00", "25 03:00"]),
    "weekly": ("@weekly", "", ["01 00:00", "08 00:00", "15 00:00"]),
    "yearly": ("@yearly", "", ["01 00:00"]),
    "every 90 seconds": ("@every 1m30s", "", ["25 00:31", "25 00:33", "25 00:34"]),
    "in a zone": ("0 9 * * *", "Europe/Berlin", ["25 08:00", "26 08:00", "27 08:00"]),
    "an hour shown twice is due twice": ("15 2 * * *", "Europe/Berlin", ["25 01:15", "26 01:15", "27 01:15"]),
    "never": ("0 0 31 2 *", "", []),
    "an empty field": (", * * * *", "", []),
}


@pytest.mark.parametrize(("text", "zone", "times"), TIMES.values(), ids=TIMES)
def test_the_next_times(text: str, zone: str, times: list[str]) -> None:
    schedule, found, at = parse(text, zone), [], SUNDAY
    for _ in range(max(1, len(times))):
        following = schedule.next(at)
        if following is None:
            break
        assert following > at
        at = following
        found.append(at.strftime("%d %H:%M"))
    assert found == times


def test_a_skipped_hour_is_never_due_and_a_repeated_one_twice() -> None:
    daily = parse("30 2 * * *", "Europe/Berlin")
    before = datetime(2027, 3, 27, 12, tzinfo=UTC)
    assert daily.next(before) == datetime(2027, 3, 29, 0, 30, tzinfo=UTC)
    first = daily.next(datetime(2026, 10, 24, 12, tzinfo=UTC))
    assert first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert first is not None
    assert daily.next(first) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


#: schedule -> what is said of it
REFUSED = {
    "": "expected exactly 5 fields, found 0: []",
    "* * * *": "expected exactly 5 fields, found 4: [* * * *]",
    "0 * * * * *": "expected exactly 5 fields, found 6: [0 * * * * *]",
    "@reboot": "unrecognized descriptor: @reboot",
    "@every 5": 'failed to parse duration @every 5: time: invalid duration "5"',
    "0 0 L * *": 'failed to parse int from L: strconv.Atoi: parsing "L": invalid syntax',
    "60 * * * *": "end of range (60) above maximum (59): 60",
    "* * 0 * *": "beginning of range (0) below minimum (1): 0",
    "* * * * 7": "end of range (7) above maximum (6): 7",
    "5-1 * * * *": "beginning of range (5) beyond end of range (1): 5-1",
    "*/0 * * * *": "step of range should be a positive number: */0",
    "1-2-3 * * * *": "too many hyphens: 1-2-3",
    "1/2/3 * * * *": "too many slashes: 1/2/3",
    "-1 * * * *": 'failed to parse int from : strconv.Atoi: parsing "": invalid syntax',
    "9999999999999999999999 * * * *": "value out of range",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items())
def test_what_is_no_schedule_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadSchedule) as refusal:
        parse(text)
    assert message in str(refusal.value)


def test_zones_are_those_of_the_tz_database() -> None:
    assert [name for name in ("UTC", "Etc/UTC", "Europe/Berlin", "EST5EDT") if check_zone(name)] == []
    wrong = ("", "Mars/Base", "europe/berlin", "UTC+1", "../x", "/etc/passwd", "America", "Local", "local", "-x", "a b")
    assert [name for name in wrong if not check_zone(name)] == []


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, 27, hour, minute, tzinfo=UTC)


def test_the_last_time_that_has_come_and_how_many_were_missed() -> None:
    hourly = parse("@hourly")
    none = due(hourly, at(8), at(8, 59))
    assert (none.at, none.missed, next_due(hourly, at(8), at(8, 59))) == (None, 0, at(9))
    one = due(hourly, at(8), at(9, 30))
    assert (one.at, next_due(hourly, at(8), at(9, 30))) == (at(9), at(10))
    many = due(hourly, at(8), at(12, 30))
    assert (many.at, many.missed, next_due(hourly, at(8), at(12, 30))) == (at(12), 4, at(13))
    assert due(parse("* * * * *"), at(8), at(12)).missed > 100
    # Unevenly far apart: the last one is found all the same.
    assert due(parse("30 6-16/4 * * 1-5"), at(5), at(15)).at == at(14, 30)
    assert due(parse("0 0 31 2 *"), at(8), at(12)).at is None
