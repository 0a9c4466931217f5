"""Charts over time: the window that they show, stacked layers in steps, lines, bars and axes.

The window is `?range=1h|24h|7d|30d`, or `?from=&to=` for moments of one's own. An address says moments in UTC
(`2026-11-20T10:00Z`), so that a link shows everybody the same. What a form sends, or a person writes, without a zone
means the reader's own: the page then leads on to the address that says so in UTC.

Coordinates are per mille of the width and of the height, from the upper left; words stand beside the drawing, in HTML,
so that they keep their size on every screen. What was not recorded stays empty. Times are told in Django's current
zone, the reader's. Besides its path each layer has its levels, for whoever reads the chart moment by moment
(`static/manciple/kit/chart.js`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby
from operator import attrgetter
from typing import NamedTuple

from django.utils import timezone

from dashboard.inventory.devices.grid import STATES
from insight.usage import UsageOfMoment

SPAN = timedelta(days=1)
#: The width of a step of that: what is drawn is its busiest minute, so that a peak shows however short it was.
STEP = timedelta(minutes=10)
#: The width of a bar of waiting pods, of a row of the table, and of a mark on the axis.
BAR, MARK = timedelta(hours=1), timedelta(hours=4)
#: States that count as held, as free, and as out of use; from the bottom of the drawing to its top.
HELD = ("reserved", "alloc", "prep", "part")
FREE = ("free",)
OUT_OF_USE = ("closed", "taint", "bad", "gone", "away")
LAYERS = (
    ("held", HELD),
    ("blocked", ("blocked",)),
    ("free", FREE),
    ("closed", ("closed",)),
    ("taint", ("taint",)),
    ("bad", ("bad",)),
    ("gone", ("gone",)),
    ("away", ("away",)),
    ("unknown", ("unknown",)),
)
#: Lines across the drawing, at most.
LINES = 4
THOUSAND = 1000
#: The level of a step that was not recorded.
UNKNOWN = "\N{EN DASH}"


def total_of(counts: Mapping[str, int], states: Sequence[str]) -> int:
    return sum([counts[state] for state in states if state in counts])


def held_of(counts: Mapping[str, int]) -> int:
    return total_of(counts, HELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The area of one state or group, as an SVG path. levels: "12x30 13x5", 30 steps with 12 and then 5 with 13."""

    state: str
    path: str
    levels: str

    @property
    def word(self) -> str:
        """The state's, as the grid has it; what a claim holds counts as held here, whatever its state."""
        word = STATES.get(self.state, "Held")
        return f"{word}, not held" if self.state in ("taint", "bad", "gone") else word

    @property
    def last(self) -> str:
        """The level of the last step that was recorded."""
        runs = (run.partition("x")[0] for run in reversed(self.levels.split(" ")))
        return next((level for level in runs if level != UNKNOWN), UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourBar:
    """The most pods that waited at once in an hour."""

    left: float
    width: float
    height: float  # per mille of the highest bar
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A word on an axis, `at` per mille from the left or the top (of `axis`: percent)."""

    at: float
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRow:
    """A row of the table behind the drawing: the busiest minute of an hour."""

    at: datetime
    held: int
    free: int
    out_of_use: int
    waiting: int

    @classmethod
    def of(cls, one: UsageOfMoment) -> HourRow:
        held, free, out = (total_of(one.counts, states) for states in (HELD, FREE, OUT_OF_USE))
        return cls(at=one.at, held=held, free=free, out_of_use=out, waiting=one.waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The whole drawing. peak: the busiest sample; since: the first one, where not all of the time is recorded."""

    begin: datetime
    seconds: float
    steps: int
    layers: tuple[Layer, ...]
    lines: tuple[Tick, ...]
    times: tuple[Tick, ...]
    bars: tuple[HourBar, ...]
    rows: tuple[HourRow, ...]
    peak: UsageOfMoment
    since: datetime | None
    most_waiting: int

    @property
    def peak_held(self) -> int:
        return held_of(self.peak.counts)


def draw(
    samples: Sequence[UsageOfMoment], end: datetime, *, span: timedelta = SPAN, step: timedelta = STEP
) -> Chart | None:
    """The time that ends then; None where nothing of it is recorded."""
    begin, bar = end - span, span / (SPAN / BAR)
    known = [Sample(one, held_of(one.counts), one.at - begin) for one in samples if begin <= one.at <= end]
    if not known:
        return None
    top = nice_top(max([sum(one.usage.counts.values()) for one in known]))
    steps, number = _busiest(known, step), math.ceil(span / step)
    # The last step is the present, which stands on the page beside the chart.
    latest = {min(known[-1].after // step, number - 1): known[-1].usage}
    steps = {at: one for at, one in steps.items() if at < number} | latest
    by_state = [(name, {at: total_of(one.counts, states) for at, one in steps.items()}) for name, states in LAYERS]
    most = max([one.usage.waiting for one in known])
    return Chart(
        begin=begin,
        seconds=span.total_seconds(),
        steps=number,
        layers=tuple(stacked(by_state, steps=number, top=top)),
        lines=lines(top),
        times=_times(begin, end),
        bars=_bars(known, bar, most),
        rows=tuple(map(HourRow.of, _busiest(known, bar).values())),
        peak=max(known, key=attrgetter("held")).usage,
        since=known[0].usage.at if known[0].after > bar else None,
        most_waiting=most,
    )


def nice_top(most: int) -> int:
    """The height of the drawing in devices: `most`, or a little more, so that the lines across are at round numbers."""
    if most <= LINES:
        return max(1, most)
    step = nice_step(most)
    return math.ceil(most / step) * step


def nice_step(most: int) -> int:
    """A round distance of which at most LINES fit."""
    least = most / LINES
    size = 10 ** math.floor(math.log10(least)) if least >= 1 else 1
    return next(
        int(factor * size) for factor in (1, 2, 2.5, 4, 5, 8, 10) if factor * size >= least and factor * size % 1 == 0
    )


class Sample(NamedTuple):
    """A sample of the time that is drawn. held: devices; after: since the beginning of that time."""

    usage: UsageOfMoment
    held: int
    after: timedelta


def _busiest(samples: Sequence[Sample], width: timedelta) -> dict[int, UsageOfMoment]:
    """Of each stretch that was recorded, the sample with most devices held (the last of equals)."""
    found: dict[int, Sample] = {}
    for one in samples:
        place = one.after // width
        if place not in found or one.held >= found[place].held:
            found[place] = one
    return {place: one.usage for place, one in found.items()}


def stacked(series: Sequence[tuple[str, Mapping[int, int]]], *, steps: int, top: int) -> list[Layer]:
    """Layers on each other, the first at the bottom. series: name -> step -> devices, of the same steps each; what has
    none anywhere is left out.
    """
    width = THOUSAND / steps
    places = sorted(series[0][1]) if series else []
    floor = dict.fromkeys(places, 0)
    layers = []
    for name, counts in series:
        ceiling = {place: floor[place] + counts[place] for place in places}
        if ceiling != floor:
            path = "".join(_area(run, floor, ceiling, width=width, top=top) for run in _runs(places))
            layers.append(Layer(state=name, path=path, levels=levels([counts.get(at) for at in range(steps)])))
        floor = ceiling
    return layers


def line(name: str, counts: Sequence[int], *, top: int) -> Layer:
    """What is drawn over the layers: a line in steps."""
    width = THOUSAND / len(counts)
    runs = [(count, len(list(run))) for count, run in groupby(counts)]
    ends = accumulate(length for _, length in runs)
    along = "".join(
        f"V{_number(THOUSAND - THOUSAND * count / top)}H{_number(min(THOUSAND, end * width))}"
        for (count, _), end in zip(runs, ends, strict=True)
    )
    return Layer(state=name, path=f"M0 {_number(THOUSAND - THOUSAND * counts[0] / top)}{along}", levels=levels(counts))


def levels(values: Sequence[int | None]) -> str:
    """One for each step, as charts read them; None where nothing was recorded."""
    return " ".join(f"{UNKNOWN if one is None else one}x{len(list(run))}" for one, run in groupby(values))


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Neighbouring stretches together."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _area(run: Sequence[int], floor: Mapping[int, int], ceiling: Mapping[int, int], *, width: float, top: int) -> str:
    """From the lower left up, along the steps of the ceiling, down, and back along those of the floor."""

    def y(devices: int) -> str:
        return _number(THOUSAND - THOUSAND * devices / top)

    def x(place: int) -> str:
        return _number(min(THOUSAND, place * width))

    along = "".join(f"V{y(ceiling[place])}H{x(place + 1)}" for place in run)
    back = "".join(f"V{y(floor[place])}H{x(place)}" for place in reversed(run))
    return f"M{x(run[0])} {y(floor[run[0]])}{along}{back}Z"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def lines(top: int) -> tuple[Tick, ...]:
    """The lines across, with their numbers of devices."""
    step = nice_step(top) if top > LINES else 1
    return tuple(Tick(at=THOUSAND - THOUSAND * value / top, word=f"{value:,}") for value in range(0, top + 1, step))


def _times(begin: datetime, now: datetime) -> tuple[Tick, ...]:
    """Whole hours of the reader's, far enough from the ends that no word runs into another."""
    past_the_hour = timezone.localtime(begin).minute
    at = begin.replace(second=0, microsecond=0) + BAR - timedelta(minutes=past_the_hour)
    ticks = []
    while at < now:
        local, place = timezone.localtime(at), THOUSAND * ((at - begin) / (now - begin))
        if local.hour % (MARK // BAR) == 0 and 30 < place < 930:  # noqa: PLR2004 - per mille
            ticks.append(Tick(at=place, word=f"{local:%H:%M}"))
        at += BAR
    return (*ticks, Tick(at=THOUSAND, word="now"))


def _bars(samples: Sequence[Sample], bar: timedelta, most: int) -> tuple[HourBar, ...]:
    if not most:
        return ()
    hours: dict[int, int] = {}
    last = SPAN // BAR - 1
    for one in samples:
        place = one.after // bar
        place = last if place > last else place
        if one.usage.waiting > hours.get(place, 0):
            hours[place] = one.usage.waiting
    width = THOUSAND / (SPAN / BAR)
    return tuple(
        HourBar(left=place * width + 2, width=width - 4, height=THOUSAND * waiting / most, waiting=waiting)
        for place, waiting in sorted(hours.items())
        if waiting
    )


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
                "The first time must be before the second, and in the past. The last 24 hours are shown.",
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


def axis(window: Window) -> list[Tick]:
    """Marks, in percent from the left, at the reader's round times, few enough to be read."""
    length = window.end - window.begin
    step = next((one for one in _STEPS_OF_AXIS if length / one <= _MARKS), _STEPS_OF_AXIS[-1])
    begin = timezone.localtime(window.begin)
    # Times of one zone are added and compared as its clocks show them: marks stay round where these are put forward.
    at = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    at += step * -(-(begin - at) // step)
    marks = []
    while at < timezone.localtime(window.end):
        marks.append(Tick(at=window.place(at.astimezone(UTC)), word=_mark(at, step, length)))
        at += step
    return marks


def _mark(at: datetime, step: timedelta, length: timedelta) -> str:
    if step >= timedelta(days=1):
        return f"{at:%a} {at.day}" if length <= timedelta(days=14) else f"{at.day} {at:%b}"
    return f"{at:%a} {at.day}" if (at.hour, at.minute) == (0, 0) else f"{at:%H:%M}"
