"""The usage as values: a stacked chart with a legend that is its table, and waits as bars over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.capacity.timeline.drawing import called, page_of
from dashboard.capacity.timeline.reading import STEPS
from dashboard.kit import charts
from dashboard.kit.charts import Layer, Tick, levels, lines, nice_top, stacked
from dashboard.kit.windows import Window
from insight.waiting_times import Wait, WaitFigures

#: Groups with an area of their own, the busiest; the others are one.
SHOWN = 8
OTHERS = "others"
#: Stretches of time of which the waits are summed up.
BARS = 48
#: Lines across the waits: the scale is logarithmic, from a second to a week.
LEAST, MOST = 1.0, 7 * 86400.0
_MARKS = ((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (36_000, "10 h"), (604_800, "7 d"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUsage:
    """One class, model or namespace. colour: of its area, "" for one among the others; waits: None of none.

    idle: device-hours that were held and not used, as far as drivers tell it; None where none does.
    """

    name: str
    url: str
    colour: str
    hours: float
    share: float  # percent of all device-hours
    now: int
    most: int
    mean: float
    levels: str
    waits: WaitFigures | None
    idle: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedChart:
    """Layers from the bottom up, each by its colour, and the numbers of the lines across. idle: how many of the devices
    were held idle, a line over the layers; None where no driver tells it."""

    layers: tuple[Layer, ...]
    lines: tuple[Tick, ...]
    idle: Layer | None = None
    steps: int = STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleUse:
    """What drivers tell of held devices that nothing used. hours: by group; levels: devices at each of the STEPS."""

    hours: Mapping[str, float]
    levels: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUsage:
    """What was held, by groups: the busiest first. idle: device-hours; None where no driver tells it."""

    groups: tuple[GroupUsage, ...]
    chart: StackedChart
    hours: float
    idle: float | None
    others: int  # groups without an area of their own


def held_usage(
    held: Mapping[str, Sequence[int]],
    hours: Mapping[str, float],
    waits: Sequence[Wait],
    *,
    by: str,
    idle: IdleUse | None,
) -> HeldUsage:
    """held: group -> devices at each of the STEPS; hours: group -> device-hours."""
    names = sorted(held, key=lambda name: (-hours.get(name, 0.0), name))
    waited: dict[str, list[float]] = {}
    for one in waits:
        waited.setdefault(one.group, []).append(one.seconds)
    total = sum(hours.values())
    groups = tuple(
        GroupUsage(
            name=called(name, by),
            url=page_of(name, by),
            colour=f"g{place + 1}" if place < SHOWN else "",
            hours=hours.get(name, 0.0),
            share=100 * hours.get(name, 0.0) / total if total else 0.0,
            now=held[name][-1],
            most=max(held[name]),
            mean=sum(held[name]) / len(held[name]),
            levels=levels(held[name]),
            waits=WaitFigures.of(waited[name]) if name in waited else None,
            idle=idle.hours.get(name) if idle is not None else None,
        )
        for place, name in enumerate(names)
    )
    return HeldUsage(
        groups=groups,
        chart=_stack(names, held, idle),
        hours=total,
        idle=sum(idle.hours.values()) if idle is not None else None,
        others=max(len(names) - SHOWN, 0),
    )


def _stack(names: Sequence[str], held: Mapping[str, Sequence[int]], idle: IdleUse | None) -> StackedChart:
    series = [(f"g{place + 1}", _by_step(held[name])) for place, name in enumerate(names[:SHOWN])]
    if rest := names[SHOWN:]:
        summed: Counter[int] = Counter()
        for name in rest:
            summed.update(_by_step(held[name]))
        series.append((OTHERS, {step: summed[step] for step in range(STEPS)}))
    top = nice_top(max((sum(one) for one in zip(*(held[name] for name in names), strict=True)), default=1))
    return StackedChart(
        layers=tuple(stacked(series, steps=STEPS, top=top)),
        lines=lines(top),
        idle=charts.line("idle", idle.levels, top=top) if idle is not None else None,
    )


def _by_step(counts: Sequence[int]) -> dict[int, int]:
    return dict(enumerate(counts))


# Waits ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitBar:
    """The claims that were allocated in a stretch of time: from their median up to what nine in ten did not exceed.

    Places in per mille from the left and from the foot.
    """

    left: float
    width: float
    foot: float
    height: float
    figures: WaitFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitChart:
    bars: tuple[WaitBar, ...]
    lines: tuple[Tick, ...]
    figures: WaitFigures


def wait_chart(waits: Sequence[Wait], window: Window) -> WaitChart | None:
    """None where nothing was allocated."""
    if not waits:
        return None
    found: dict[int, list[float]] = {}
    for one in waits:
        place = min(int(window.place(one.at) * BARS / 100), BARS - 1)
        found.setdefault(place, []).append(one.seconds)
    figures = WaitFigures.of([one.seconds for one in waits])
    top = next((mark for mark, _ in _MARKS if mark >= figures.ninety_nine), MOST)
    bars = tuple(_wait_bar(place, seconds, top) for place, seconds in sorted(found.items()))
    marks = tuple(Tick(at=charts.THOUSAND - _height(mark, top), word=word) for mark, word in _MARKS if mark <= top)
    return WaitChart(bars=bars, lines=marks, figures=figures)


def _wait_bar(place: int, seconds: Sequence[float], top: float) -> WaitBar:
    width = charts.THOUSAND / BARS
    figures = WaitFigures.of(seconds)
    foot = _height(figures.median, top)
    height = max(_height(figures.ninety, top) - foot, 0.0)
    return WaitBar(left=place * width + 1.5, width=width - 3, foot=foot, height=height, figures=figures)


def _height(seconds: float, top: float) -> float:
    """Per mille of the height: a second or less is at the foot."""
    return charts.THOUSAND * math.log(max(seconds, LEAST)) / math.log(max(top, 2.0)) if seconds > LEAST else 0.0
