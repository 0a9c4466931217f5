"""The overview: how much there is of everything, who waits for what, what happened last, and whether all is well.

`/overview`; `?class=NAME` draws the use of that class's devices over the last day instead of that of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.causes.causes import decode
from claims.devices.pools import DeviceSnapshot
from claims.devices.states import DeviceState
from claims.models import Pod
from dashboard.capacity.overview.health import HealthLine, lines, needing_attention
from dashboard.capacity.overview.signs import read_signs
from dashboard.capacity.overview.waiting import WaitingGroup, WaitingPod, by_topic
from dashboard.inventory.devices.grid import STATES, bar_of, how_many, in_words, lines_of
from dashboard.kit import charts
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import listing
from dashboard.tools.events import ShownEvent, latest
from dashboard.workloads.moves import ShownPlan, shown_plan
from insight.capacity import Census, ClassCount, read_census
from insight.usage import ALL, UsageOfMoment, minute_of, nonzero, samples_since, stranded_now
from manciple.people import Person, person_of
from manciple.store.event_log import latest_revision
from manciple.wire.resources import CLASSES, NODES, SLICES
from scheduling.models import QueuedPod
from scheduling.rehearsal.move_proposals import UNKNOWN as UNPROPOSED
from scheduling.rehearsal.move_proposals import read_proposals
from scheduling.rehearsal.repairs import UNKNOWN, Mended, read_mendings

#: Events that are shown.
EVENTS = 8
#: Seconds for what moves would start them.
MOVES_BUDGET = 0.1
#: Causes of waiting that are shown.
CAUSES = 6
#: Waiting pods that are sorted by cause; of more, those that wait longest.
SORTED = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCount:
    """The devices in one state."""

    state: str
    name: str
    count: int
    aside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRow:
    """A class's devices as a bar and as numbers."""

    name: str
    parts: list[tuple[str, int]]  # (state, devices), as the bar shows them
    said: str  # the bar in words
    free: int
    blocked: int  # held by others in part
    fits: str  # how many more claims
    held: int
    out_of_use: int
    total: int
    waiting: int
    complaint: str
    stranded: str = ""  # the part of what is free that is expected to stay unused; "" where that is not known


@listing(NODES, SLICES, CLASSES)
@require_safe
def show_overview(request: HttpRequest) -> HttpResponse:
    """The page."""
    revision = latest_revision()
    now, person = datetime.now(UTC), person_of(request)
    if person.has_no_role:
        raise PermissionDenied  # the page says whom to ask
    census = read_census(person)
    whole = person.namespaces is None
    signs = read_signs(census.snapshot, person, now=now)
    health = lines(signs)
    mended = read_mendings() if census.waiting else UNKNOWN
    waiting = waiting_groups(person, mended)
    stranded = stranded_now(now)
    proposed = read_proposals(MOVES_BUDGET) if census.waiting and mended.complete else UNPROPOSED
    context = OverviewContext(
        place="overview",
        revision=revision,
        steps=_first_steps(census, nodes=bool(signs.nodes)),
        counted=_counted(len(signs.nodes), census),
        figures=figures(census.totals, census.snapshot),
        classes=[capacity_row(one, stranded.get(one.name)) for one in census.classes],
        any_stranded=bool(stranded),
        any_blocked=any(one.counts.get(DeviceState.BLOCKED) for one in census.classes),
        reasons=waiting[:CAUSES],
        more_reasons=waiting[CAUSES:],
        rehearsing=bool(waiting) and not mended.complete,
        plans=[shown for one in proposed.plans if (shown := shown_plan(one, person)) is not None],
        looking=bool(waiting) and not proposed.complete,
        outdated=bool(waiting) and (mended.outdated or proposed.outdated),
        waiting=census.waiting,
        oldest=signs.queue.oldest,
        events=latest(person, shown=EVENTS),
        health=health,
        needing_attention=needing_attention(health),
        sees_all=whole,
        use=use_of_day(person, census, request.GET.get("class", ALL), now),
    )
    return render_page(request, "capacity/overview/page.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewContext(PageContext):
    """The page for one person.

    any_blocked: whether a class has devices that others hold in part; any_stranded: whether it is known of a class
    which part of what is free is expected to stay unused; rehearsing: what would start the pods is not
    known yet; plans: moves that would start some of them; looking: whether more may be found; outdated: something has
    happened since all this was found; oldest: since when the first pod waits.
    """

    steps: FirstSteps | None
    counted: str
    figures: Sequence[StateCount]
    classes: Sequence[CapacityRow]
    any_blocked: bool
    any_stranded: bool
    reasons: Sequence[WaitingGroup]
    more_reasons: Sequence[WaitingGroup]
    rehearsing: bool
    plans: Sequence[ShownPlan]
    looking: bool
    outdated: bool
    waiting: int
    oldest: datetime | None
    events: Sequence[ShownEvent]
    health: Sequence[HealthLine]
    needing_attention: int
    sees_all: bool
    use: UseOfDay


def figures(totals: Mapping[str, int], snapshot: DeviceSnapshot) -> list[StateCount]:
    """One figure for every state that the grid knows; those that are rare only where there are any."""
    total = sum(totals.values())
    asides = _asides(totals, snapshot, total)
    return [
        StateCount(state=state, name=name, count=totals.get(state, 0), aside=asides.get(state, ""))
        for state, name in STATES.items()
        if totals.get(state, 0) or state not in _RARE
    ]


#: States that are left out where no device is in them.
_RARE = {"alloc", "blocked", "bad", "gone"}


def _asides(totals: Mapping[str, int], snapshot: DeviceSnapshot, total: int) -> dict[str, str]:
    """What stands beside a number."""
    fenced = {line.node for line in lines_of(snapshot) if line.node and line.counts[DeviceState.TAINTED]}
    short = sum(not pool.complete for pool in snapshot.published_pools)
    percent = round(100 * totals.get("reserved", 0) / total) if total else 0
    return {
        "free": f"of {total:,}",
        "reserved": f"{percent}%",
        "alloc": "no pod uses it" if totals.get("alloc") == 1 else "no pod uses them",
        "part": "room left in it" if totals.get("part") == 1 else "room left in all" if totals.get("part") else "",
        "taint": f"on {_count(len(fenced), 'node')}" if fenced else "",
        "gone": f"{_count(short, 'pool')} short" if short else "",
    }


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _counted(nodes: int, census: Census) -> str:
    """`40 nodes, 395 devices, 3 drivers`."""
    drivers = len({pool.key[0] for pool in census.snapshot.published_pools})
    return ", ".join((_count(nodes, "node"), _count(census.total, "device"), _count(drivers, "driver")))


def capacity_row(one: ClassCount, stranded: float | None = None) -> CapacityRow:
    """stranded: the part of what is free that is expected to stay unused."""
    counts = one.counts
    return CapacityRow(
        name=one.name,
        parts=bar_of(counts),
        said=in_words(counts),
        fits=how_many(one.fits),
        free=counts.get("free", 0),
        blocked=counts.get("blocked", 0),
        held=charts.held_of(one.by_use),
        out_of_use=charts.total_of(one.by_use, charts.OUT_OF_USE),
        total=sum(counts.values()),
        waiting=one.waiting,
        complaint=one.complaint,
        stranded="" if stranded is None else percent(stranded),
    )


def percent(part: float) -> str:
    return f"{round(100 * part)}%"


# The last day --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UseOfDay:
    """The last day of all devices, or of those of a class. recorded: whether more of it is known than this minute."""

    chart: charts.Chart | None
    device_class: str
    held: int
    free: int
    total: int
    recorded: bool
    stranded: str = ""  # `8% to 15%`: the part of what was free that was expected to stay unused


def use_of_day(person: Person, census: Census, asked: str, now: datetime) -> UseOfDay:
    """Of the class of that name, if it exists; else of all devices."""
    counts: Mapping[str, int] = census.snapshot.by_use
    waiting = census.waiting
    found = next((one for one in census.classes if one.name == asked), None)
    if found is not None:
        counts, waiting = found.by_use, found.waiting
    name = found.name if found else ALL
    # This minute is not over: it is drawn as it is now.
    current = UsageOfMoment(at=minute_of(now), counts=nonzero(counts), waiting=waiting)
    past = [one for one in samples_since(now - charts.SPAN, name) if one.at < current.at]
    if person.namespaces is not None:
        # How many pods of other namespaces waited is theirs to know.
        past = [UsageOfMoment(at=one.at, counts=one.counts, waiting=0) for one in past]
        current = UsageOfMoment(at=current.at, counts=current.counts, waiting=0)
    return UseOfDay(
        chart=charts.draw([*past, current], now),
        device_class=name,
        held=charts.held_of(counts),
        free=charts.total_of(counts, charts.FREE),
        total=sum(counts.values()),
        recorded=bool(past),
        stranded=_range([one.stranded for one in past if one.stranded is not None]),
    )


def _range(parts: Sequence[float]) -> str:
    if not parts:
        return ""
    least, most = percent(min(parts)), percent(max(parts))
    return least if least == most else f"{least} to {most}"


# Why pods wait -------------------------------------------------------------------------------------------------------


def waiting_groups(person: Person, mended: Mended) -> Sequence[WaitingGroup]:
    columns = ("uid", "namespace", "name", "created_at", "cause")
    rows: Iterable[tuple[str, str, str, datetime, str]] = (
        QueuedPod.objects.waiting().restrict(person).order_by("created_at").values_list(*columns)[:SORTED]
    )
    pods = (
        WaitingPod(uid=uid, namespace=namespace, name=name, since=since, cause=decode(cause))
        for uid, namespace, name, since, cause in rows
    )
    return by_topic(pods, mended, person.sees)


# An empty cluster ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSteps:
    """What a new cluster still lacks; each is done or to be done."""

    devices: bool
    classes: bool
    pods: bool

    @property
    def number(self) -> int:
        """The first one that is to be done, counted from 1."""
        return (self.devices, self.classes, self.pods).index(False) + 1


def _first_steps(census: Census, *, nodes: bool) -> FirstSteps | None:
    """None where somebody has begun to work with it."""
    steps = FirstSteps(devices=nodes and census.total > 0, classes=bool(census.classes), pods=Pod.objects.exists())
    return None if steps.devices and steps.classes and steps.pods else steps
