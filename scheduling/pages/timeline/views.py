"""The timeline: who held which device when, now included.

- `/timeline`: `?by=device|class|namespace`, `?range=1h|24h|7d|30d` or `?from=&to=`, `?ns=`, `?class=`, `?driver=`,
  `?node=` and `?page=`; `?view=table` shows the same as a table.
- `/timeline.csv`: every allocation that the same address shows, and those that its page left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from claims.models import Claim
from inventory.models import Device, Node, Pool
from manciple.pages.people import Person, person_of
from manciple.store import objects
from manciple.store.tail import latest_revision
from manciple.wire.validation import natural
from scheduling.pages.timeline import drawing, export
from scheduling.pages.timeline.query import GROUPINGS, RANGES, TimelineQuery, Window
from scheduling.pages.timeline.reading import BARS, Holding, Timeline
from scheduling.resources import CLASSES, NAMESPACES, kind

#: Lanes on one page.
DEVICES, GROUPS = 48, 12


@login_required
@require_safe
def show_timeline(request: HttpRequest) -> HttpResponse:
    """The page."""
    revision = latest_revision()
    person, query = person_of(request), TimelineQuery.from_query(request.GET)
    window, problem = query.window(datetime.now(UTC))
    timeline = Timeline(person, query, window)
    nodes = _nodes()
    drawn = _by_device(timeline, query, window, nodes) if query.by == "device" else _by_group(timeline, query, window)
    context = {
        "place": "timeline",
        "revision": revision,
        "query": query,
        "window": window,
        "problem": problem,
        "axis": drawing.axis(window),
        "groupings": [(name, label, query.url(by=name), name == query.by) for name, label in GROUPINGS.items()],
        "ranges": [
            (name, label, query.url(range=name, to="", **{"from": ""}), name == query.range)
            for name, (label, _) in RANGES.items()
        ],
        "csv_url": query.url("/timeline.csv", page=1, view=""),
        "table_url": query.url(view="table"),
        "chart_url": query.url(view=""),
        "count": timeline.count(),
        **_choices(person),
        **drawn,
    }
    return render(request, "timeline/page.html", context)


@login_required
@require_safe
def export_timeline(request: HttpRequest) -> HttpResponseBase:
    """The file."""
    person, query = person_of(request), TimelineQuery.from_query(request.GET)
    window, _ = query.window(datetime.now(UTC))
    nodes = _nodes()
    pieces = export.parts(Timeline(person, query, window), lambda row: export.cells(row, person, nodes, window.now))
    answer = StreamingHttpResponse(export.streamed(pieces), content_type="text/csv; charset=utf-8; header=present")
    name = f"allocations-{window.begin:%Y%m%dT%H%M}Z-{window.end:%Y%m%dT%H%M}Z.csv"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _by_device(
    timeline: Timeline, query: TimelineQuery, window: Window, nodes: dict[tuple[str, str], str]
) -> dict[str, Any]:
    keys = sorted(timeline.devices(), key=lambda key: (natural(nodes.get(key[:2]) or key[1]), key[0], natural(key[2])))
    page = _page(query, len(keys), DEVICES)
    shown = keys[page["first"] : page["first"] + DEVICES]
    holdings = _latest(timeline.of_devices(shown)) if shown else []
    lanes = drawing.device_lanes(shown, holdings, window, nodes=nodes, living=_living(holdings))
    never = 0 if query.narrows else max(Device.objects.count() - len(keys), 0)
    return page | _drawn(lanes, holdings) | {"never": never}


def _by_group(timeline: Timeline, query: TimelineQuery, window: Window) -> dict[str, Any]:
    groups = timeline.groups()
    names = sorted(groups, key=lambda name: (not name, natural(name)))
    page = _page(query, len(names), GROUPS)
    shown = names[page["first"] : page["first"] + GROUPS]
    holdings = _latest(timeline.of_groups(shown)) if shown else []
    lanes = drawing.group_lanes(
        shown, holdings, timeline.levels(shown) if shown else {}, window, by=query.by, living=_living(holdings)
    )
    return page | _drawn(lanes, holdings)


def _page(query: TimelineQuery, total: int, size: int) -> dict[str, Any]:
    pages = max(1, -(-total // size))
    page = min(query.page, pages)
    return {
        "first": (page - 1) * size,
        "first_shown": (page - 1) * size + 1,
        "last_shown": min(page * size, total),
        "total": total,
        "more": max(0, total - page * size),
        "previous_url": query.url(page=page - 1) if page > 1 else "",
        "next_url": query.url(page=page + 1) if page < pages else "",
    }


def _latest(holdings: list[Holding]) -> list[Holding]:
    """What is held now, and the latest of the past, as many as are drawn."""
    return sorted(holdings, key=lambda one: (one.ended is None, one.ended or one.began), reverse=True)[: BARS + 1]


def _drawn(lanes: list[drawing.Lane], holdings: list[Holding]) -> dict[str, Any]:
    return {"lanes": lanes, "capped": len(holdings) > BARS, "bars": BARS}


def _living(holdings: list[Holding]) -> set[str]:
    """Those of the claims that still exist."""
    uids = {one.claim_uid for one in holdings if one.claim_uid}
    return set(Claim.objects.filter(uid__in=uids).values_list("uid", flat=True)) if uids else set()


def _nodes() -> dict[tuple[str, str], str]:
    rows = Pool.objects.exclude(node_name="").values_list("driver", "name", "node_name")
    return {(driver, pool): node for driver, pool, node in rows}


def _choices(person: Person) -> dict[str, Any]:
    """What the form candidates."""
    namespaces = [stored.name for stored in objects.list(kind(NAMESPACES)).items if person.sees(stored.name)]
    return {
        "namespaces": namespaces,
        "classes": [stored.name for stored in objects.list(kind(CLASSES)).items],
        "drivers": Pool.objects.order_by("driver").values_list("driver", flat=True).distinct(),
        "nodes": sorted(Node.objects.values_list("name", flat=True), key=natural),
    }
