"""The usage of a day as a drawing: stepped layers of held, free and fenced-off devices, bars of pods that waited. Pure.

Coordinates are per mille of the width and of the height, from the upper left; words stand beside the drawing, in HTML,
so that they keep their size on every screen. What was not recorded stays empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduling.usage import UsageOfMoment

SPAN = timedelta(days=1)
#: The width of a step: what is drawn is its busiest minute, so that a peak shows however short it was.
STEP = timedelta(minutes=10)
#: The width of a bar of waiting pods, of a row of the table, and of a mark on the axis.
BAR, MARK = timedelta(hours=1), timedelta(hours=4)
#: States that count as held, as free, and as out of use; from the bottom of the drawing to its top.
HELD = ("reserved", "alloc", "prep", "part")
FREE = ("free",)
OUT_OF_USE = ("taint", "bad", "gone")
LAYERS = (
    ("held", HELD),
    ("blocked", ("blocked",)),
    ("free", FREE),
    ("taint", ("taint",)),
    ("bad", ("bad",)),
    ("gone", ("gone",)),
)
#: Lines across the drawing, at most.
LINES = 4
THOUSAND = 1000


def total_of(counts: Mapping[str, int], states: Sequence[str]) -> int:
    return sum(counts.get(state, 0) for state in states)


def held_of(counts: Mapping[str, int]) -> int:
    return total_of(counts, HELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One state's area, as an SVG path."""

    state: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HourBar:
    """The most pods that waited at once in an hour."""

    left: float
    width: float
    height: float  # per mille of the highest bar
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A word on an axis, `at` per mille from the left or the top."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The whole drawing. peak: the busiest sample; since: the first one, where the day is not recorded whole."""

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


def draw(samples: Sequence[UsageOfMoment], now: datetime) -> Chart | None:
    """The day that ends now; None where nothing of it is recorded."""
    begin = now - SPAN
    known = [one for one in samples if begin <= one.at <= now]
    if not known:
        return None
    steps = _busiest(known, begin, STEP)
    top = nice_top(max(sum(one.counts.values()) for one in known))
    hours = _busiest(known, begin, BAR)
    most = max(one.waiting for one in known)
    return Chart(
        layers=tuple(_layers(steps, top=top)),
        lines=_lines(top),
        times=_times(begin, now),
        bars=_bars(known, begin, most),
        rows=tuple(_row(one) for one in hours.values()),
        peak=max(known, key=lambda one: held_of(one.counts)),
        since=known[0].at if known[0].at - begin > BAR else None,
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


def _busiest(samples: Sequence[UsageOfMoment], begin: datetime, width: timedelta) -> dict[int, UsageOfMoment]:
    """Of each stretch that was recorded, the sample with most devices held (the last of equals)."""
    found: dict[int, UsageOfMoment] = {}
    for one in samples:
        place = int((one.at - begin) / width)
        known = found.get(place)
        if known is None or held_of(one.counts) >= held_of(known.counts):
            found[place] = one
    return found


def _layers(steps: Mapping[int, UsageOfMoment], *, top: int) -> list[Layer]:
    width = THOUSAND / (SPAN / STEP)
    floor = dict.fromkeys(steps, 0)
    layers = []
    for name, states in LAYERS:
        ceiling = {place: floor[place] + total_of(one.counts, states) for place, one in steps.items()}
        path = "".join(_area(run, floor, ceiling, width=width, top=top) for run in _runs(sorted(steps)))
        if ceiling != floor:
            layers.append(Layer(state=name, path=path))
        floor = ceiling
    return layers


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


def _lines(top: int) -> tuple[Tick, ...]:
    step = nice_step(top) if top > LINES else 1
    return tuple(Tick(at=THOUSAND - THOUSAND * value / top, word=str(value)) for value in range(0, top + 1, step))


def _times(begin: datetime, now: datetime) -> tuple[Tick, ...]:
    """Whole hours, far enough from the ends that no word runs into another."""
    first = begin.replace(minute=0, second=0, microsecond=0) + BAR
    ticks = []
    at = first
    while at < now:
        place = THOUSAND * ((at - begin) / SPAN)
        if at.hour % (MARK // BAR) == 0 and 30 < place < 930:  # noqa: PLR2004 - per mille
            ticks.append(Tick(at=place, word=f"{at:%H:%M}"))
        at += BAR
    return (*ticks, Tick(at=THOUSAND, word="now"))


def _bars(samples: Sequence[UsageOfMoment], begin: datetime, most: int) -> tuple[HourBar, ...]:
    if not most:
        return ()
    hours: dict[int, int] = {}
    for one in samples:
        place = min(int((one.at - begin) / BAR), SPAN // BAR - 1)
        hours[place] = max(hours.get(place, 0), one.waiting)
    width = THOUSAND / (SPAN / BAR)
    return tuple(
        HourBar(left=place * width + 2, width=width - 4, height=THOUSAND * waiting / most, waiting=waiting)
        for place, waiting in sorted(hours.items())
        if waiting
    )


def _row(one: UsageOfMoment) -> HourRow:
    counts = one.counts
    return HourRow(
        at=one.at,
        held=held_of(counts),
        free=total_of(counts, FREE),
        out_of_use=total_of(counts, OUT_OF_USE),
        waiting=one.waiting,
    )
