"""Charts of what devices' meters read (`kit/meters.html`), and the held devices that do nothing (`kit/idle.html`).

Pages have them where a driver reports readings (`inventory.meters`), and nothing where none does. Of several devices
utilization and memory are their mean, the temperature is the highest, the power the sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from dashboard.kit.charts import THOUSAND, Tick, Window, axis, nice_step, nice_top
from insight.meters import IdleClaim, idle_claims
from inventory.meters import SLOT, MeterPoint
from manciple.durations import duration
from manciple.people import Person

#: `?meters=` -> how it is called, and how long it is.
RANGES: Mapping[str, tuple[str, timedelta]] = {
    "1h": ("1 hour", timedelta(hours=1)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
}
USUAL = "24h"
#: Points of a line, and words below it, at most.
STEPS, MARKS = 240, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """How one meter is shown. field: of `MeterPoint`; top: of the axis, 0 where that depends on what was read."""

    field: str
    name: str
    of_several: str
    unit: str
    top: int = 0


METERS = (
    Meter(field="utilization", name="Utilization", of_several="mean", unit="%", top=100),
    Meter(field="memory", name="Memory in use", of_several="mean", unit="%", top=100),
    Meter(field="temperature", name="Temperature", of_several="highest", unit="°C"),
    Meter(field="power", name="Power", of_several="in all", unit="W"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterChart:
    """One line over time. path, area: of an SVG, per mille; now: "" where the last reading is old."""

    key: str
    title: str
    path: str
    area: str
    lines: tuple[Tick, ...]
    now: str
    mean: str
    most: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterCharts:
    """All of a page. ranges: (name, address, whether it is shown)."""

    charts: tuple[MeterChart, ...]
    axis: Sequence[Tick]
    ranges: Sequence[tuple[str, str, bool]]
    label: str
    again: int = int(SLOT.total_seconds())


def asked_window(query: Mapping[str, str], now: datetime) -> Window:
    return Window(begin=now - RANGES[_asked(query)][1], end=now, now=now)


def _asked(query: Mapping[str, str]) -> str:
    asked = query.get("meters", "")
    return asked if asked in RANGES else USUAL


def draw(
    series: Collection[Sequence[MeterPoint]], query: Mapping[str, str], window: Window, *, keep: str = ""
) -> MeterCharts | None:
    """series: of each device its points; None where there are none. keep: other parameters of the page's address."""
    if not any(series):
        return None
    asked = _asked(query)
    width = max((window.end - window.begin) / STEPS, SLOT)
    steps = -(-(window.end - window.begin) // width)
    marks = axis(window)
    drawn = (_chart(meter, series, window, width=width, steps=steps) for meter in METERS)
    return MeterCharts(
        charts=tuple(chart for chart in drawn if chart is not None),
        axis=marks[:: -(-len(marks) // MARKS)],
        ranges=[(name, f"?{keep}meters={key}#meters", key == asked) for key, (name, _) in RANGES.items()],
        label=f"the last {RANGES[asked][0].removeprefix('1 ')}",
    )


def _chart(
    meter: Meter, series: Iterable[Sequence[MeterPoint]], window: Window, *, width: timedelta, steps: int
) -> MeterChart | None:
    """None where no device has this meter."""
    found: list[dict[int, float]] = []  # of each device: step -> mean
    for points in series:
        values: dict[int, list[float]] = {}
        for point in points:
            value = getattr(point, meter.field)
            if value is not None:
                values.setdefault(min((point.at - window.begin) // width, steps - 1), []).append(value)
        if values:
            found.append({step: sum(many) / len(many) for step, many in values.items()})
    if not found:
        return None
    levels = {
        step: _together(meter, [one[step] for one in found if step in one])
        for step in sorted({step for one in found for step in one})
    }
    most = max(levels.values())
    top = meter.top or nice_top(max(round(most), 1))
    last = max(levels)
    several = f", {meter.of_several}" if len(found) > 1 else ""
    return MeterChart(
        key=meter.field,
        title=f"{meter.name}{several}",
        path=_line(levels, steps, top),
        area=_area(levels, steps, top),
        lines=_lines(top, meter.unit),
        now=_worded(levels[last], meter.unit) if last >= steps - 1 - (3 * SLOT) // width else "",
        mean=_worded(sum(levels.values()) / len(levels), meter.unit),
        most=_worded(most, meter.unit),
    )


def _together(meter: Meter, values: Sequence[float]) -> float:
    if meter.field == "temperature":
        return max(values)
    return sum(values) if meter.field == "power" else sum(values) / len(values)


def _worded(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}"


def _lines(top: int, unit: str) -> tuple[Tick, ...]:
    """The lowest, the highest and one between."""
    step = top // 2 if top % 2 == 0 else nice_step(top)
    values = range(0, top + 1, max(step, 1))
    return tuple(
        Tick(at=THOUSAND - THOUSAND * one / top, word=f"{one:,} {unit}" if one == top else f"{one:,}") for one in values
    )


def _runs(levels: Mapping[int, float]) -> list[list[int]]:
    """Neighbouring steps together; one that is missing between two is a reading that came late."""
    runs: list[list[int]] = []
    for step in levels:
        if runs and step - runs[-1][-1] <= 2:  # noqa: PLR2004
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _place(step: float, value: float, steps: int, top: int) -> str:
    return f"{THOUSAND * step / steps:.1f} {THOUSAND - THOUSAND * min(value / top, 1):.1f}"


def _line(levels: Mapping[int, float], steps: int, top: int) -> str:
    """A reading that stands alone is as wide as its step."""
    parts = []
    for run in _runs(levels):
        places = [_place(step + 0.5, levels[step], steps, top) for step in run]
        if len(run) == 1:
            places = [_place(run[0] + edge, levels[run[0]], steps, top) for edge in (0, 1)]
        parts.append(f"M{'L'.join(places)}")
    return "".join(parts)


def _area(levels: Mapping[int, float], steps: int, top: int) -> str:
    parts = []
    for run in _runs(levels):
        ends = (run[0], run[0] + 1) if len(run) == 1 else (run[0] + 0.5, run[-1] + 0.5)
        along = [(ends[0], levels[run[0]]), *((step + 0.5, levels[step]) for step in run), (ends[1], levels[run[-1]])]
        foot = [_place(ends[1], 0, steps, top), _place(ends[0], 0, steps, top)]
        parts.append(f"M{'L'.join([*(_place(step, value, steps, top) for step, value in along), *foot])}Z")
    return "".join(parts)


# Idle devices ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleList:
    """claims: each with whether the person may delete its pods; more: how many are not shown."""

    claims: Sequence[tuple[IdleClaim, bool]]
    more: int
    devices: int

    @property
    def meaning(self) -> str:
        minutes = duration(60 * settings.IDLE_MINUTES)
        return f"Idle: utilization below {settings.IDLE_PERCENT:g} % for {minutes}, or so reported by the driver."


def read_idle(person: Person, now: datetime, *, most: int, **where: str) -> IdleList | None:
    """Those that the person sees. where: columns of `AllocatedDevice` that narrow it; None where there are none."""
    found = idle_claims(person, now, **where)
    if not found:
        return None
    return IdleList(
        claims=[(one, person.may_edit(one.namespace)) for one in found[:most]],
        more=max(len(found) - most, 0),
        devices=sum(len(one.devices) for one in found),
    )
