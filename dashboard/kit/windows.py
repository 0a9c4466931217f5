"""The time that a chart shows: `?range=1h|24h|7d|30d`, or `?from=&to=` for moments of one's own.

An address says moments in UTC (`2026-11-20T10:00Z`), so that a link shows everybody the same. What a form sends, or a
person writes, without a zone means the reader's own: the page then leads on to the address that says so in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone

RANGES = {
    "1h": ("1 hour", timedelta(hours=1)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}
USUAL = "24h"
#: As long as the history is kept.
LONGEST = timedelta(days=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time that is shown. now: when the page was drawn; a live window ends there."""

    begin: datetime
    end: datetime
    now: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()

    @property
    def live(self) -> bool:
        return self.end >= self.now

    def place(self, at: datetime) -> float:
        """Where a moment is, in percent from the left; never outside."""
        return min(max(100 * (at - self.begin).total_seconds() / self.seconds, 0.0), 100.0)

    def wider(self) -> dict[str, str]:
        """The parameters of a window that reaches as far again on both sides."""
        length = self.end - self.begin
        begin, end = self.begin - length, min(self.end + length, self.now)
        return {"range": "", "from": in_address(begin), "to": in_address(end)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTime:
    """range: one of RANGES, or "" for the moments begin and end: in UTC where they could be read, else as written."""

    range: str = USUAL
    begin: str = ""
    end: str = ""

    @classmethod
    def read(cls, query: Mapping[str, str]) -> ChosenTime:
        """What is not understood is left out; moments that cannot be read are told by `window`."""
        chosen, begin, end = (query.get(name, "").strip() for name in ("range", "from", "to"))
        if begin or end:  # a form that sends both means the moments
            return cls(range="", begin=_canonical(begin), end=_canonical(end))
        return cls(range=chosen if chosen in RANGES else USUAL)

    def is_said_by(self, query: Mapping[str, str]) -> bool:
        """Whether the address says the same to everybody."""
        said = (query.get("from", "").strip(), query.get("to", "").strip())
        return bool(self.range) or said == (self.begin, self.end)

    @property
    def label(self) -> str:
        """`the last 24 hours`; "" for moments of one's own."""
        return f"the last {RANGES[self.range][0].removeprefix('1 ')}" if self.range else ""

    @property
    def parameters(self) -> dict[str, str]:
        return {"range": self.range, "from": self.begin, "to": self.end}

    def window(self, now: datetime) -> tuple[Window, str]:
        """The time asked for, and what is wrong with what was asked; then it is the usual one."""
        if self.range:
            return Window(begin=now - RANGES[self.range][1], end=now, now=now), ""
        usual = Window(begin=now - RANGES[USUAL][1], end=now, now=now)
        end = moment_of(self.end) if self.end else now
        begin = moment_of(self.begin) if self.begin else None if end is None else end - RANGES[USUAL][1]
        if begin is None or end is None:
            zone = timezone.get_current_timezone_name()
            return usual, f"Write a time as 2026-11-20T10:00, in {zone}. The last 24 hours are shown."
        end = min(end, now)
        if begin >= end:
            return (
                usual,
                "The first time has to be before the second, and not in the future. The last 24 hours are shown.",
            )
        if end - begin > LONGEST:
            return Window(begin=end - LONGEST, end=end, now=now), f"The history is kept for {LONGEST.days} days."
        return Window(begin=begin, end=end, now=now), ""

    @property
    def inputs(self) -> tuple[str, str]:
        """Both moments as an `<input type="datetime-local">` has them: in the reader's zone."""
        return _in_form(self.begin), _in_form(self.end)


def moment_of(text: str) -> datetime | None:
    """A time as an address, a form or a person writes it; in the reader's zone where it names none."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else timezone.make_aware(found)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def in_address(at: datetime) -> str:
    text = f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
    return f"{text.removesuffix(':00')}Z"


def _canonical(text: str) -> str:
    at = moment_of(text)
    return text if at is None else in_address(at)


def _in_form(text: str) -> str:
    at = moment_of(text)
    return text if at is None else f"{timezone.localtime(at):%Y-%m-%dT%H:%M}"


# The axis ------------------------------------------------------------------------------------------------------------


_MINUTES_OF_AXIS = (5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440, 2880, 7200, 10080, 20160)
_STEPS_OF_AXIS = tuple(timedelta(minutes=minutes) for minutes in _MINUTES_OF_AXIS)
#: Marks on the axis, at most.
_MARKS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisMark:
    """One label of the time axis."""

    place: float
    text: str


def axis(window: Window) -> list[AxisMark]:
    """Marks at the reader's round times, few enough to be read."""
    length = window.end - window.begin
    step = next((one for one in _STEPS_OF_AXIS if length / one <= _MARKS), _STEPS_OF_AXIS[-1])
    begin = timezone.localtime(window.begin)
    # Times of one zone are added and compared as its clocks show them: marks stay round where these are put forward.
    at = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    at += step * -(-(begin - at) // step)
    marks = []
    while at < timezone.localtime(window.end):
        marks.append(AxisMark(place=window.place(at.astimezone(UTC)), text=_mark(at, step, length)))
        at += step
    return marks


def _mark(at: datetime, step: timedelta, length: timedelta) -> str:
    if step >= timedelta(days=1):
        return f"{at:%a} {at.day}" if length <= timedelta(days=14) else f"{at.day} {at:%b}"
    return f"{at:%a} {at.day}" if (at.hour, at.minute) == (0, 0) else f"{at:%H:%M}"
