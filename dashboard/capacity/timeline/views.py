"""The timeline: who held which device when, now included.

- `/timeline`: `?by=device|class|model|namespace`, `?range=` or `?from=&to=` (`dashboard.kit.windows`), `?ns=`,
  `?class=`, `?driver=`, `?node=` and `?page=`; `?view=table` shows the same as a table.
- `/timeline.csv`: what the same address shows, with the allocations that its page left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from claims.devices.published import DeviceKey
from claims.models import Claim
from dashboard.capacity.timeline import drawing
from dashboard.capacity.timeline.query import GROUPINGS, TimelineQuery
from dashboard.capacity.timeline.reading import BARS, HeldSpan, Timeline
from dashboard.inventory.incidents import ImpairedSpan
from dashboard.kit.lists import CONTENT_TYPE, PageOfRows, csv_cell, csv_lines
from dashboard.kit.middleware import begin_costly
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import listing
from dashboard.kit.windows import RANGES, AxisMark, Window, axis
from inventory.models import Device, Node, Pool
from manciple.people import Person, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.resources import CLASSES, NAMESPACES, SLICES, kind
from manciple.wire.validation import natural

#: Lanes on one page.
DEVICES, GROUPS = 48, 12


class TimelineLink(NamedTuple):
    """One choice of a grouping or range. name: as the address has it."""

    name: str
    label: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineContext(PageContext):
    """problem: what is wrong with the time that was asked for. count, impaired: allocations and impairments in it.

    bars: how many allocations are drawn at most.
    """

    query: TimelineQuery
    window: Window
    problem: str
    axis: Sequence[AxisMark]
    groupings: Sequence[TimelineLink]
    ranges: Sequence[TimelineLink]
    usage_url: str
    csv_url: str
    table_url: str
    chart_url: str
    wider_url: str
    count: int
    impaired: int
    choices: TimelineChoices
    drawn: DrawnTimeline
    previous_url: str
    next_url: str
    bars: int = BARS


@listing(SLICES)
@require_safe
def show_timeline(request: HttpRequest) -> HttpResponse:
    """The page."""
    revision = latest_revision()
    person, query = person_of(request), TimelineQuery.from_query(request.GET)
    if not query.time.is_said_by(request.GET):
        return redirect(query.url())
    window, problem = query.window(datetime.now(UTC))
    timeline = Timeline(person, query, window)
    drawn = _by_device(timeline, query, window) if query.by == "device" else _by_group(timeline, query, window)
    context = TimelineContext(
        place="timeline",
        revision=revision,
        query=query,
        window=window,
        problem=problem,
        axis=axis(window),
        groupings=[
            TimelineLink(name, label, query.url(by=name), name == query.by) for name, label in GROUPINGS.items()
        ],
        ranges=[
            TimelineLink(name, label, query.url(range=name, to="", **{"from": ""}), name == query.time.range)
            for name, (label, _) in RANGES.items()
        ],
        usage_url=usage_url(query),
        csv_url=query.url("/timeline.csv", page=1, view=""),
        table_url=query.url(view="table"),
        chart_url=query.url(view=""),
        wider_url=query.url(**window.wider()) if not query.time.range else "",
        count=timeline.count(),
        impaired=len(timeline.impaired) if query.by == "device" else 0,
        choices=_choices(person),
        drawn=drawn,
        previous_url=query.url(page=drawn.page.number - 1) if drawn.page.number > 1 else "",
        next_url=query.url(page=drawn.page.number + 1) if drawn.page.last < drawn.page.total else "",
    )
    return render_page(request, "capacity/timeline/page.html", context)


def usage_url(query: TimelineQuery) -> str:
    """The usage of the same time, of the groups that are shown."""
    by = "" if query.by == "device" else query.by
    return query.url("/usage", by=by, driver="", node="", view="", page="")


@listing(SLICES)
@require_safe
def export_timeline(request: HttpRequest) -> HttpResponseBase:
    """The file."""
    person, query = person_of(request), TimelineQuery.from_query(request.GET)
    window, _ = query.window(datetime.now(UTC))
    begin_costly(request, seconds=FILE_SECONDS)
    timeline = Timeline(person, query, window)
    impaired = (impaired_cells(*row, window.now) for row in timeline.rows_impaired())
    pieces = chain(parts(timeline, lambda row: cells(row, person, window.now)), map(line, impaired))
    answer = StreamingHttpResponse(streamed(pieces), content_type=CONTENT_TYPE)
    name = f"allocations-{window.begin:%Y%m%dT%H%M}Z-{window.end:%Y%m%dT%H%M}Z.csv"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTimeline:
    """What stands on one page. capped: only the latest allocations are drawn. never: devices that nobody held."""

    page: PageOfRows
    lanes: list[drawing.Lane]
    capped: bool
    never: int = 0


def _by_device(timeline: Timeline, query: TimelineQuery, window: Window) -> DrawnTimeline:
    keys = sorted(timeline.devices(), key=lambda key: (natural(key[3] or key[1]), key[:2], natural(key[2])))
    page = PageOfRows(len(keys), DEVICES, query.page)
    shown = keys[page.rows]
    holdings = _latest(timeline.of_devices(shown)) if shown else []
    lanes = drawing.device_lanes(shown, holdings, window, living=_living(holdings), impaired=timeline.impaired)
    never = 0 if query.narrows else max(Device.objects.count() - len(keys), 0)
    return DrawnTimeline(page=page, lanes=lanes, capped=len(holdings) > BARS, never=never)


def _by_group(timeline: Timeline, query: TimelineQuery, window: Window) -> DrawnTimeline:
    groups = timeline.groups()
    names = sorted(groups, key=lambda name: (not name, natural(name)))
    page = PageOfRows(len(names), GROUPS, query.page)
    shown = names[page.rows]
    holdings = _latest(timeline.of_groups(shown)) if shown else []
    lanes = drawing.group_lanes(
        shown,
        holdings,
        timeline.levels(shown) if shown else {},
        window,
        by=query.by,
        living=_living(holdings),
        hours=timeline.hours(),
    )
    return DrawnTimeline(page=page, lanes=lanes, capped=len(holdings) > BARS)


def _latest(holdings: list[HeldSpan]) -> list[HeldSpan]:
    """What is held now, and the latest of the past, as many as are drawn."""
    return sorted(holdings, key=lambda one: (one.ended is None, one.ended or one.began), reverse=True)[: BARS + 1]


def _living(holdings: list[HeldSpan]) -> set[str]:
    """Those of the claims that still exist."""
    uids = {one.claim_uid for one in holdings if one.claim_uid}
    return set(Claim.objects.filter(uid__in=uids).values_list("uid", flat=True)) if uids else set()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineChoices:
    """What may be chosen."""

    namespaces: list[str]
    classes: list[str]
    drivers: list[str]
    nodes: list[str]


def _choices(person: Person) -> TimelineChoices:
    namespaces = [stored.name for stored in objects.list(kind(NAMESPACES)).items if person.sees(stored.name)]
    return TimelineChoices(
        namespaces=namespaces,
        classes=[stored.name for stored in objects.list(kind(CLASSES)).items],
        drivers=list(Pool.objects.order_by("driver").values_list("driver", flat=True).distinct()),
        nodes=sorted(Node.objects.values_list("name", flat=True), key=natural),
    )


# The export ----------------------------------------------------------------------------------------------------------


HEADER = (
    "driver", "pool", "device", "node", "class", "namespace", "claim", "claim_uid", "pods", "share_id",
    "consumed_capacity", "from", "to", "seconds", "state", "cause",
)  # fmt: skip
#: The state of a device in a line of somebody who has it; the others are those of devices that are out of order.
HELD = "held"
#: Rows of the past that are read at a time.
BATCH = 2000
#: Rows of the past in one file; it is made in memory, in some seconds of processor time.
LONGEST_FILE, FILE_SECONDS = 100_000, 10.0
#: Who holds a device whose namespace the person does not see.
HIDDEN = "another namespace"


def moment_text(at: datetime | None) -> str:
    """RFC 3339 in UTC; empty while it goes on."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if at else ""


def cells(row: Sequence[Any], person: Person, now: datetime) -> list[str]:
    """One line of the file, from the columns of `reading.EXPORTED`."""
    driver, pool, device, node, device_class, namespace, claim, uid, pods, share, consumed, began, ended = row
    if not person.sees(namespace):
        namespace, claim, uid, pods, share, consumed = HIDDEN, "", "", (), "", {}
    amounts = " ".join(f"{name}={amount}" for name, amount in consumed.items())
    lasted = int(((ended or now) - began).total_seconds())
    return [
        *map(csv_cell, (driver, pool, device, node, device_class, namespace, claim, uid)),
        csv_cell(" ".join(pods)), csv_cell(share), csv_cell(amounts),
        moment_text(began), moment_text(ended), str(max(lasted, 0)), HELD, "",
    ]  # fmt: skip


def impaired_cells(key: DeviceKey, span: ImpairedSpan, now: datetime) -> list[str]:
    """One line of the file: a device that was out of order, and why."""
    lasted = int(((span.ended or now) - span.began).total_seconds())
    return [
        *map(csv_cell, key), *[""] * 7,
        moment_text(span.began), moment_text(span.ended), str(max(lasted, 0)), span.state_name.lower(),
        csv_cell(span.taint or span.cause),
    ]  # fmt: skip


def line(row: Sequence[str]) -> str:
    return csv_lines([row])


def parts(timeline: Timeline, drawn: Callable[[Sequence[Any]], list[str]]) -> Iterator[str]:
    """The file, piece by piece: header, what is held now, then the past in batches."""
    yield csv_lines([HEADER])
    yield csv_lines(drawn(row) for row in timeline.rows_now())
    after = written = 0
    while rows := timeline.rows_past(after=after, limit=BATCH):
        after = rows[-1][0]
        yield csv_lines(drawn(row) for _, row in rows)
        written += len(rows)
        if written >= LONGEST_FILE:
            yield csv_lines([["Incomplete: ask for a shorter time, or for one class, node or namespace."]])
            return


async def streamed(pieces: Iterator[str]) -> AsyncIterator[bytes]:
    """`pieces` without holding up the server: each is made in a thread, when the reader wants it."""
    following = sync_to_async(lambda: next(pieces, None))
    while (piece := await following()) is not None:
        yield piece.encode()
