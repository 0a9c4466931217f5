"""The usage: how many devices were held, by class, model or namespace, or in which state; and how long claims waited.

`/usage`, `?by=state|class|model|namespace`, the time as on the timeline, `?ns=` and `?class=`; `/usage.csv` is the
table of the same address. A stacked chart has a legend that is its table; waits are bars over time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from dashboard.capacity.timeline import STEPS, ChartQuery, Timeline, TimelineQuery, called, page_of
from dashboard.kit import charts
from dashboard.kit.charts import (
    Layer,
    Tick,
    Window,
    axis,
    levels,
    lines,
    nice_top,
    stacked,
)
from dashboard.kit.guards import listing
from dashboard.kit.lists import file_answer
from dashboard.kit.meters import IdleList, read_idle
from dashboard.kit.rendering import PageContext, render_page
from insight.usage import ALL, EVERY, UsageOfMoment
from insight.waiting_times import Wait, WaitFigures
from manciple.people import Person, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.resources import CLASSES, NAMESPACES, SLICES, kind
from scheduling.models import UsageSample


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery(ChartQuery):
    """The states of devices are those of everybody's: a namespace narrows the others."""

    route = "usage"
    groupings: ClassVar = {"state": "States", "class": "Classes", "model": "Models", "namespace": "Namespaces"}
    usual = "class"

    by: str = usual

    @property
    def narrowing(self) -> dict[str, str]:
        """What the held devices are narrowed to, as columns of `AllocatedDevice`."""
        asked = {"claim__namespace": self.namespace, "device_class": self.device_class}
        return {column: value for column, value in asked.items() if value}

    @property
    def timeline(self) -> TimelineQuery:
        """The holdings that are asked for; by states they are summed by class."""
        by = self.usual if self.by == "state" else self.by
        return TimelineQuery(by=by, time=self.time, namespace=self.namespace, device_class=self.device_class)


#: Groups with an area of their own, the busiest; the others are one.
SHOWN = 8
OTHERS = "others"
#: Claims with idle devices that are listed.
IDLE = 100
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOfWindow:
    """Everything that the page shows. states: of devices, where these are asked for and were recorded."""

    held: HeldUsage
    waits: WaitChart | None
    states: charts.Chart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageContext(PageContext):
    """problem: what is wrong with the time that was asked for. chart: None where there is nothing to draw."""

    query: UsageQuery
    window: Window
    problem: str
    axis: Sequence[Tick]
    wider_url: str
    usage: UsageOfWindow
    chart: charts.Chart | StackedChart | None
    namespaces: Sequence[str]
    classes: Sequence[str]
    idle: IdleList | None


@listing(SLICES)
@require_safe
def show_usage(request: HttpRequest) -> HttpResponse:
    """The page."""
    revision = latest_revision()
    person, query = person_of(request), UsageQuery.from_query(request.GET)
    if not query.time.is_said_by(request.GET):
        return redirect(query.url())
    window, problem = query.time.window(datetime.now(UTC))
    usage = _read(person, query, window)
    held_chart = usage.held.chart if usage.held.groups else None
    context = UsageContext(
        place="usage",
        revision=revision,
        query=query,
        window=window,
        problem=problem,
        axis=axis(window),
        wider_url="" if query.time.range else query.url(**window.wider()),
        usage=usage,
        chart=usage.states if query.by == "state" else held_chart,
        namespaces=[one.name for one in objects.list(kind(NAMESPACES)).items if person.sees(one.name)],
        classes=[one.name for one in objects.list(kind(CLASSES)).items],
        idle=read_idle(person, window.now, most=IDLE, **query.narrowing),
    )
    return render_page(request, "capacity/usage.html", context)


def _read(person: Person, query: UsageQuery, window: Window) -> UsageOfWindow:
    timeline = Timeline(person, query.timeline, window)
    groups, waits = timeline.groups(), timeline.waits()
    held, hours = (timeline.levels(groups), timeline.hours()) if groups else ({}, {})
    idle_hours = timeline.idle_hours() if groups else {}
    idle = IdleUse(hours=idle_hours, levels=timeline.idle_levels()) if idle_hours else None
    return UsageOfWindow(
        held=held_usage(held, hours, waits, by=query.timeline.by, idle=idle),
        waits=wait_chart(waits, window),
        states=_states(query, window) if query.by == "state" else None,
    )


def _states(query: UsageQuery, window: Window) -> charts.Chart | None:
    """From the samples that are taken every minute and kept for some days."""
    rows = UsageSample.objects.filter(
        device_class=query.device_class or ALL, at__gte=window.begin, at__lte=window.end
    ).order_by("at")
    samples = [
        UsageOfMoment(at=at, counts=counts, waiting=0) for at, counts in rows.values_list("at", "counts").iterator()
    ]
    span = window.end - window.begin
    return charts.draw(samples, window.end, span=span, step=max(span / STEPS, EVERY))


# The export ----------------------------------------------------------------------------------------------------------


HEADER = (
    "device_hours", "idle_device_hours", "share_percent", "devices_at_the_end", "devices_at_most", "devices_on_average",
    "claims", "wait_median_seconds", "wait_90_percent_seconds", "wait_99_percent_seconds",
)  # fmt: skip


@listing(SLICES)
@require_safe
def export_usage(request: HttpRequest) -> HttpResponse:
    """The file."""
    person, query = person_of(request), UsageQuery.from_query(request.GET)
    window, _ = query.time.window(datetime.now(UTC))
    held = _read(person, query, window).held
    name = f"usage-{window.begin:%Y%m%dT%H%M}Z-{window.end:%Y%m%dT%H%M}Z"
    return file_answer(request, name, _rows(held, query.timeline.by))


def _rows(held: HeldUsage, by: str) -> Iterator[tuple[Any, ...]]:
    yield (by, *HEADER)
    for one in held.groups:
        waits = one.waits
        waited = (waits.claims, waits.median, waits.ninety, waits.ninety_nine) if waits else (0, "", "", "")
        idle = f"{one.idle:.2f}" if one.idle is not None else ""
        yield (one.name, f"{one.hours:.2f}", idle, f"{one.share:.2f}", one.now, one.most, f"{one.mean:.2f}", *waited)
