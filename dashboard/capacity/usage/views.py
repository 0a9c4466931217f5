"""The usage: `/usage`, `?by=state|class|model|namespace`, the time as on the timeline, `?ns=` and `?class=`.

`/usage.csv`: the table of the same address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from dashboard.capacity.timeline.reading import STEPS, Timeline
from dashboard.capacity.usage.drawing import HeldUsage, IdleUse, WaitChart, held_usage, wait_chart
from dashboard.capacity.usage.query import STACKS, UsageQuery
from dashboard.kit import charts
from dashboard.kit.lists import csv_answer
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import listing
from dashboard.kit.windows import RANGES, AxisMark, Window, axis
from insight.usage import ALL, EVERY, UsageOfMoment
from manciple.people import Person, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.resources import CLASSES, NAMESPACES, SLICES, kind
from scheduling.models import UsageSample


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOfWindow:
    """Everything that the page shows. states: of devices, where these are asked for and were recorded."""

    held: HeldUsage
    waits: WaitChart | None
    states: charts.Chart | None


class UsageLink(NamedTuple):
    """One choice of a stack or a range."""

    label: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageContext(PageContext):
    """problem: what is wrong with the time that was asked for."""

    query: UsageQuery
    window: Window
    problem: str
    axis: Sequence[AxisMark]
    usage: UsageOfWindow
    stacks: Sequence[UsageLink]
    ranges: Sequence[UsageLink]
    namespaces: Sequence[str]
    classes: Sequence[str]
    csv_url: str
    wider_url: str


@listing(SLICES)
@require_safe
def show_usage(request: HttpRequest) -> HttpResponse:
    """The page."""
    revision = latest_revision()
    person, query = person_of(request), UsageQuery.from_query(request.GET)
    if not query.time.is_said_by(request.GET):
        return redirect(query.url())
    window, problem = query.time.window(datetime.now(UTC))
    context = UsageContext(
        place="usage",
        revision=revision,
        query=query,
        window=window,
        problem=problem,
        axis=axis(window),
        usage=_read(person, query, window),
        stacks=[UsageLink(label, query.url(by=name), name == query.by) for name, label in STACKS.items()],
        ranges=[
            UsageLink(label, query.url(range=name, to="", **{"from": ""}), name == query.time.range)
            for name, (label, _) in RANGES.items()
        ],
        namespaces=[one.name for one in objects.list(kind(NAMESPACES)).items if person.sees(one.name)],
        classes=[one.name for one in objects.list(kind(CLASSES)).items],
        csv_url=query.url("/usage.csv"),
        wider_url=query.url(**window.wider()) if not query.time.range else "",
    )
    return render_page(request, "capacity/usage/page.html", context)


def _read(person: Person, query: UsageQuery, window: Window) -> UsageOfWindow:
    timeline = Timeline(person, query.timeline, window)
    groups, waits = timeline.groups(), timeline.waits()
    held = timeline.levels(groups) if groups else {}
    return UsageOfWindow(
        held=held_usage(
            held,
            timeline.hours() if groups else {},
            waits,
            by=query.timeline.by,
            idle=_idle(timeline) if groups else None,
        ),
        waits=wait_chart(waits, window),
        states=_states(query, window) if query.by == "state" else None,
    )


def _idle(timeline: Timeline) -> IdleUse | None:
    hours = timeline.idle_hours()
    return IdleUse(hours=hours, levels=timeline.idle_levels()) if hours else None


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
    return csv_answer(name, _rows(held, query.timeline.by))


def _rows(held: HeldUsage, by: str) -> Iterator[tuple[Any, ...]]:
    yield (by, *HEADER)
    for one in held.groups:
        waits = one.waits
        waited = (waits.claims, waits.median, waits.ninety, waits.ninety_nine) if waits else (0, "", "", "")
        idle = f"{one.idle:.2f}" if one.idle is not None else ""
        yield (one.name, f"{one.hours:.2f}", idle, f"{one.share:.2f}", one.now, one.most, f"{one.mean:.2f}", *waited)
