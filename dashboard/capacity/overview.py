"""The overview: how much there is of everything, who waits for what, what happened last, and whether all is well.

`/overview`; `?class=NAME` draws the use of that class's devices over the last day instead of that of all.

Pods that wait are sorted by what they wait for. Where something in the cluster could be mended, the pods that would
start then stand under it, and no others: the rest stands under what it would wait for even so
(`scheduling.rehearsal.repairs`). The health of each part is one line, with what to do where it needs attention.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Min
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from claims.causes.causes import decode
from claims.causes.messages import brief
from claims.causes.next_steps import topic_of
from claims.devices.cache import DeviceSnapshot
from claims.devices.states import OUT_OF_USE, DeviceState
from claims.kinds.pod_strategy import DEFAULT_SCHEDULER
from claims.models import Pod
from dashboard.inventory.devices.grid import STATES, bar_of, in_words, lines_of
from dashboard.inventory.incidents import OpenIncidents, count_open
from dashboard.kit import charts
from dashboard.kit.guards import listing
from dashboard.kit.meters import IdleList, read_idle
from dashboard.kit.mirrored import agent
from dashboard.kit.rendering import PageContext, render_page
from dashboard.templatetags.kit import clock, counted, driver_url, known_count, known_figure, node_url, page_url
from dashboard.tools.events import EventQuery, ShownEvent, find
from dashboard.workloads.moves import ShownPlan, shown_plan
from dashboard.workloads.next_steps import first_button, step_lines
from dashboard.workloads.waiting import WaitingGroup, WaitingPod, by_topic
from insight.advice import Advice, advise_within
from insight.capacity import Census, ClassCount, read_census
from insight.how_many_fit import how_many
from insight.usage import ALL, UsageOfMoment, minute_of, nonzero, sampled_every, samples_since, stranded_now
from inventory.kinds.pools import PoolKey
from inventory.models import Node
from inventory.reachability import renewed_at
from manciple import layout
from manciple.controllers.coordination import SILENT_AFTER
from manciple.controllers.models import Heartbeat
from manciple.durations import duration
from manciple.gaps import lacking
from manciple.people import Person, person_of
from manciple.per_process import PerProcess
from manciple.renewals import renewals
from manciple.store import event_log, space, sql
from manciple.store.event_log import latest_revision
from manciple.store.history import last_change
from manciple.wire.resources import CLAIMS, CLASSES, NODES, SLICES
from manciple.wire.validation import natural
from scheduling.models import QueuedPod, UsageSample
from scheduling.rehearsal.move_proposals import UNKNOWN as UNPROPOSED
from scheduling.rehearsal.move_proposals import read_proposals
from scheduling.rehearsal.repairs import UNKNOWN, Mended, read_mendings

#: Events that are shown.
EVENTS = 8
#: Seconds for what moves would start them.
MOVES_BUDGET = 0.1
#: Causes of waiting that are shown.
CAUSES = 6
#: Claims with idle devices that are shown.
IDLE = 5
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
        raise PermissionDenied  # 403.html names the administrators
    census = read_census(person)
    whole = person.namespaces is None
    signs = read_signs(census.snapshot, person, now=now)
    health = lines(signs)
    mended = read_mendings() if census.waiting else UNKNOWN
    waiting = waiting_groups(person, mended)
    stranded = stranded_now(now)
    proposed = read_proposals(MOVES_BUDGET) if census.waiting and mended.complete else UNPROPOSED
    steps = FirstSteps(
        devices=bool(signs.nodes) and census.total > 0, classes=bool(census.classes), pods=Pod.objects.exists()
    )
    drivers = len({pool.key[0] for pool in census.snapshot.published_pools})
    published = len(census.snapshot.candidates)
    parts = f" ({published:,} published, with each partition)" if published > census.total else ""
    numbers = (
        known_count(len(signs.nodes), "node"), f"{known_count(census.total, 'device')}{parts}",
        known_count(drivers, "driver", of="devices"),
    )  # fmt: skip
    context = OverviewContext(
        place="overview",
        revision=revision,
        # First steps are for an installation where nobody has taken them; a mirror cannot tell.
        steps=None if settings.MIRROR or (steps.devices and steps.classes and steps.pods) else steps,
        counted=", ".join(numbers),
        total=census.total,
        figures=figures(census.totals, census.snapshot),
        classes=[capacity_row(one, stranded.get(one.name)) for one in census.classes],
        any_stranded=bool(stranded),
        any_blocked=any(one.counts.get(DeviceState.BLOCKED) for one in census.classes),
        reasons=waiting[:CAUSES],
        more_reasons=waiting[CAUSES:],
        rehearsing=bool(waiting) and (not mended.complete or any(not one.topic.next_step for one in waiting[:CAUSES])),
        plans=[shown for one in proposed.plans if (shown := shown_plan(one, person)) is not None],
        looking=bool(waiting) and not proposed.complete,
        outdated=bool(waiting) and (mended.outdated or proposed.outdated),
        waiting=census.waiting,
        oldest=signs.queue.oldest,
        events=find(EventQuery(), person, shown=EVENTS, reported=True).events,
        health=health,
        needing_attention=needing_attention(health),
        sees_all=whole,
        use=use_of_day(person, census, request.GET.get("class", ALL), now),
        idle=read_idle(person, now, most=IDLE),
    )
    return render_page(request, "capacity/overview.html", context)


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
    total: int
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
    idle: IdleList | None


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
_RARE = {"alloc", "blocked", "closed", "bad", "gone", "away", "unknown"}


def _asides(totals: Mapping[str, int], snapshot: DeviceSnapshot, total: int) -> dict[str, str]:
    """What stands beside a number."""
    fenced = {line.node for line in lines_of(snapshot) if line.node and line.counts[DeviceState.TAINTED]}
    short = sum(not pool.complete for pool in snapshot.published_pools)
    lost = {line.node for line in lines_of(snapshot) if line.unreachable}
    percent = round(100 * totals.get("reserved", 0) / total) if total else 0
    held: Counter[str] = Counter()
    for pool in snapshot.pools.values():
        held.update(pool.held_out_of_use)
    return {
        "free": f"of {total:,}",
        "reserved": f"{percent}%",
        "alloc": "no pod uses it" if totals.get("alloc") == 1 else "no pod uses them",
        "part": "room left in it" if totals.get("part") == 1 else "room left in all" if totals.get("part") else "",
        "taint": _with_held(f"on {counted(len(fenced), 'node')}" if fenced else "", held["taint"]),
        "bad": _with_held("", held["bad"]),
        "gone": _with_held(f"{counted(short, 'pool')} short" if short else "", held["gone"]),
        "away": _with_held(f"on {counted(len(lost), 'node')}" if lost else "", held["away"]),
    }


def _with_held(aside: str, held: int) -> str:
    """held: of these devices, those that a claim holds, which count as held as well."""
    told = "held not known" if lacking(CLAIMS) else f"{held:,} held" if held else ""
    return ", ".join(filter(None, (aside, told)))


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

    @property
    def said(self) -> str:
        """The chart in words."""
        held = "is" if self.held == 1 else "are"
        now = (
            f"{self.held:,} of {counted(self.total, 'device')} {held} held now, {counted(self.free, 'is', 'are')} free."
        )
        if self.chart is None:
            return now
        peak, at = self.chart.peak_held, timezone.localtime(self.chart.peak.at)
        return f"{now} The most held at once was {peak:,}, at {at:%H:%M}. The table below has every hour."


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
    parts = [one.stranded for one in past if one.stranded is not None]
    return UseOfDay(
        chart=charts.draw([*past, current], now),
        device_class=name,
        held=charts.held_of(counts),
        free=charts.total_of(counts, charts.FREE),
        total=sum(counts.values()),
        recorded=bool(past),
        stranded=" to ".join(dict.fromkeys(map(percent, (min(parts), max(parts))))) if parts else "",
    )


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
    groups = by_topic(pods, mended, person.sees)
    shown = [group for group in groups[:CAUSES] if not group.of and group.topic.key != "turn"]
    first = [(group.pods[0].uid, group.pods[0].namespace, group.pods[0].name) for group in shown]
    advice = advise_within(first)
    return [_advised(group, advice.get(group.pods[0].uid), person) if group in shown else group for group in groups]


def _advised(group: WaitingGroup, advice: Advice | None, person: Person) -> WaitingGroup:
    """With the cause and the next step of its first pod, as that pod's page has them; "" while they are looked for."""
    if advice is None or advice.subject is None or advice.subject.cause is None:
        return replace(group, topic=replace(group.topic, next_step=""))
    lines = step_lines(advice, person)
    button = first_button(lines)
    own = topic_of(advice.subject.cause)
    return replace(
        group,
        topic=replace(group.topic, title=own.title, next_step=advice.sentence(person.sees)),
        sentence=group.sentence if own.key == group.topic.key else brief(advice.subject.cause),
        button=(button.do_word, button.do_url) if button else ("", ""),
        dialog=bool(button and button.dialog),
    )


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


#: How far from its end the log is searched for the last change of a pool.
SEARCHED = 20_000
#: Pools whose last change is remembered.
REMEMBERED = 256

#: (driver, pool, generation, slices seen) -> when its slices last changed
_changes = PerProcess(dict[tuple[str, str, str, int, int], datetime | None])


def read_signs(snapshot: DeviceSnapshot, person: Person, *, now: datetime) -> HealthSigns:
    began = time.perf_counter()
    counter = sql.counter()
    ping, room = time.perf_counter() - began, space.measure()
    heard = renewed_at(now)
    waiting = QueuedPod.objects.waiting().restrict(person)
    return HealthSigns(
        now=now,
        # Nor of nodes that may not be read how they are.
        nodes=[]
        if lacking(NODES)
        else [
            NodeSign(
                name=name,
                ready=ready and name not in snapshot.unreachable,
                heard=heard.get(name),
                unreachable=name in snapshot.unreachable,
            )
            for name, ready in Node.objects.order_by("name").values_list("name", "ready")
        ],
        # Of slices that may not be read, a mirror cannot say that they are gone.
        drivers=[] if lacking(SLICES) else _drivers(snapshot, revision=counter.current),
        processes=[
            ProcessSign(name=name, seen=seen, **lately)
            for name, seen, lately in Heartbeat.objects.order_by("name").values_list("name", "seen_at", "lately")
        ],
        queue=QueueSign(**waiting.aggregate(length=Count("uid"), oldest=Min("created_at"))),
        incidents=count_open(),
        out_of_service=sum(snapshot.counts[state] for state in OUT_OF_USE),
        sampled=UsageSample.objects.filter(device_class=ALL).order_by("-at").values_list("at", flat=True).first(),
        sampled_every=sampled_every(len(snapshot.candidates)),
        silent_after=SILENT_AFTER,
        revision=counter.current,
        floor=counter.floor,
        log_bytes=counter.log_bytes,
        database="PostgreSQL" if sql.on_postgresql() else "SQLite",
        database_size=room.used,
        database_limit=room.limit,
        database_nearly_full=room.nearly_full,
        database_full=room.full,
        ping=ping,
        redis_away=not event_log.is_connected(),
        whole=person.namespaces is None,
        silent_scheduler=renewals.value.silent_since(DEFAULT_SCHEDULER),
    )


def _drivers(snapshot: DeviceSnapshot, *, revision: int) -> list[DriverSign]:
    pools = Counter(pool.key[0] for pool in snapshot.published_pools)
    unhealthy = Counter(
        candidate.driver
        for candidate in snapshot.candidates
        if candidate.fence is DeviceState.UNHEALTHY and candidate.node not in snapshot.unreachable
    )
    vanished: Counter[str] = Counter()
    for key, state in snapshot.pools.items():
        if not state.pool.slices and key.node not in snapshot.unreachable:
            vanished[key.driver] += len(state.holders)
    short: dict[str, list[ShortPool]] = {}
    lost: dict[str, list[str]] = {}
    for pool in sorted(snapshot.published_pools, key=lambda one: one.key):
        if pool.complete and pool.node in snapshot.unreachable:
            lost.setdefault(pool.key.driver, []).append(pool.node)
        if not pool.complete:
            driver, name, _ = pool.key
            known = short.setdefault(driver, [])
            # Those that are named are looked up; the others are counted.
            named = len(known) < NAMED
            changed = _last_change(pool.key, pool.generation, len(pool.slices), revision) if named else None
            known.append(
                ShortPool(
                    driver=driver,
                    name=name,
                    node=pool.node,
                    expected=pool.expected,
                    seen=len(pool.slices),
                    devices=sum(len(one.candidates) for one in pool.slices),
                    changed=changed,
                )
            )
    return [
        DriverSign(
            name=name,
            pools=count,
            short=tuple(short.get(name, ())),
            lost=tuple(lost.get(name, ())),
            unhealthy=unhealthy[name],
            vanished=vanished[name],
        )
        for name, count in sorted({**dict.fromkeys(vanished, 0), **pools}.items())
    ]


def _last_change(pool: PoolKey, generation: int, seen: int, revision: int) -> datetime | None:
    """Remembered as long as the pool stays as it is."""
    key = (*pool, generation, seen)
    changes = _changes.value
    if key not in changes:
        if len(changes) >= REMEMBERED:
            changes.clear()
        fields = {"spec.nodeName": pool.node, "spec.driver": pool.driver}
        changes[key] = last_change(SLICES, fields, after=max(0, revision - SEARCHED))
    return changes[key]


OK, WARN, ERR = "ok", "warn", "err"
#: Of many things in the same trouble, so many are named.
NAMED = 3
#: A sample of usage is taken at an interval; one that is later than this is missed.
LATE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warning:
    """What is wrong, as a sentence, and what to do about it."""

    what: str
    step: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLine:
    """One part. note: how we know; value: in a word or a number."""

    name: str
    note: str
    value: str = ""
    url: str = ""
    severity: str = OK
    troubles: tuple[Warning, ...] = ()

    @property
    def mark(self) -> str:
        return {OK: "✓", WARN: "!", ERR: "×"}[self.severity]  # noqa: RUF001 - the sign is meant

    @property
    def word(self) -> str:
        """The severity, for readers who do not see its mark."""
        return {OK: "Healthy", WARN: "Needs attention", ERR: "Broken"}[self.severity]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSign:
    """heard: when its agent was last heard of, None where that is not known. unreachable: it should have been since."""

    name: str
    ready: bool
    heard: datetime | None
    unreachable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortPool:
    """A pool that is not whole. changed: when one of its slices last came, changed or went."""

    driver: str
    name: str
    node: str
    expected: int
    seen: int
    devices: int
    changed: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSign:
    """short: its pools that lack slices. lost: its pools on unreachable nodes, by their nodes; short ones are not among
    them. unhealthy, vanished: devices; the latter are held, and no slice of their pools is published any more.
    """

    name: str
    pools: int
    short: tuple[ShortPool, ...] = ()
    lost: tuple[str, ...] = ()
    unhealthy: int = 0
    vanished: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSign:
    """A process that runs tasks; what it did in the minute before it was seen."""

    name: str
    seen: datetime
    tasks: int = 0
    failed: int = 0
    attempts: int = 0
    placed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSign:
    """The pods in the queue that the person sees; oldest: since when the first of them waits."""

    length: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSigns:
    """Everything that the lines are made of. whole: the person sees the queue and the rates of all namespaces.

    silent_scheduler: in a mirror, when its default scheduler last renewed its Lease, where that is overdue.
    """

    now: datetime
    nodes: Sequence[NodeSign] = ()
    drivers: Sequence[DriverSign] = ()
    processes: Sequence[ProcessSign] = ()
    queue: QueueSign = field(default_factory=QueueSign)
    incidents: OpenIncidents = field(default_factory=OpenIncidents)
    out_of_service: int = 0  # devices
    sampled: datetime | None = None
    sampled_every: timedelta = timedelta(minutes=1)
    silent_after: timedelta = timedelta(seconds=30)
    revision: int = 0
    floor: int = 0
    database: str = ""
    log_bytes: int = 0
    database_size: int = 0
    database_limit: int | None = None  # bytes; None where none is known
    database_nearly_full: bool = False
    database_full: bool = False
    ping: float = 0.0  # seconds
    redis_away: bool = False
    whole: bool = True
    silent_scheduler: datetime | None = None


def lines(signs: HealthSigns) -> list[HealthLine]:
    """All lines, in the order of a request's way: from the machines to the database."""
    found = [_agents(signs)] if signs.nodes else []
    found += [_driver(driver, signs.now) for driver in signs.drivers]
    if signs.drivers or signs.incidents.total:
        found.append(_incidents(signs))
    if signs.silent_scheduler is not None:
        found.append(_silent(signs.now, signs.silent_scheduler))
    found += [_scheduler(signs), _workers(signs), _periodic(signs)]
    if signs.redis_away:
        found.append(REDIS_AWAY)
    return [*found, _log(signs), _database(signs)]


def needing_attention(found: Iterable[HealthLine]) -> int:
    return sum(line.severity != OK for line in found)


# Machines ------------------------------------------------------------------------------------------------------------


def _agents(signs: HealthSigns) -> HealthLine:
    ready = [node for node in signs.nodes if node.ready]
    ages = [signs.now - node.heard for node in ready if node.heard]
    away = [node for node in signs.nodes if not node.ready]
    each = "each of the others" if away else "each"
    lately = f"{each} reported in the last {duration(max(ages).total_seconds() + 1)}" if ages else ""
    # What the nodes of another cluster report without a change is not copied.
    silent = "all are ready" if settings.MIRROR else "none has reported yet"
    note = lately or ("some are not ready" if ready and away else "none is ready" if away else silent)
    troubles = [_away(node, signs.now) for node in away[:NAMED]]
    if len(away) > NAMED:
        rest = f"{len(away) - NAMED} more nodes are not Ready."
        url = f"{page_url('nodes')}?state=not-ready"
        troubles.append(Warning(what=rest, step="See all nodes.", url=url))
    return HealthLine(
        name="Kubelets" if settings.MIRROR else "Node agents",
        note=note,
        value=f"{len(ready)} of {len(signs.nodes)}",
        url=page_url("nodes"),
        severity=ERR if len(away) == len(signs.nodes) else WARN if away else OK,
        troubles=tuple(troubles),
    )


def _away(node: NodeSign, now: datetime) -> Warning:
    url = node_url(node.name)
    if not node.unreachable:
        return Warning(what=f"Node `{node.name}` is not Ready.", step="Its conditions say why.", url=url)
    heard = f": last heard of {duration((now - node.heard).total_seconds())} ago" if node.heard else ""
    step = f"Start its {agent()}."
    return Warning(what=f"Node `{node.name}` is unreachable{heard}.", step=step, url=url)


def _driver(driver: DriverSign, now: datetime) -> HealthLine:
    whole = driver.pools - len(driver.short) - len(driver.lost)
    troubles = [_short(pool, now) for pool in driver.short[:NAMED]]
    if len(driver.short) > NAMED:
        rest = f"{len(driver.short) - NAMED} more of its pools are incomplete."
        troubles.append(Warning(what=rest, step="See the driver's page.", url=driver_url(driver.name)))
    if driver.lost:
        what = f"{counted(len(driver.lost), 'pool is', 'pools are')} on unreachable nodes; no device of them is free."
        nodes = sorted(set(driver.lost), key=natural)
        url = node_url(nodes[0]) if len(nodes) == 1 else f"{page_url('nodes')}?state=unreachable"
        troubles.append(Warning(what=what, step=f"Start the {agent()}s there.", url=url))
    if driver.vanished:
        what = counted(driver.vanished, "device is", "devices are")
        what = f"{what} held by claims, and no longer published."
        troubles.append(Warning(what=what, step="Check the driver there.", url=driver_url(driver.name)))
    if driver.unhealthy:
        what = counted(driver.unhealthy, "device is unhealthy", "devices are unhealthy")
        url = f"{page_url('devices')}?state=bad"
        troubles.append(Warning(what=f"{what}.", step="See who holds them.", url=url))
    return HealthLine(
        name=f"Driver {driver.name}",
        note="some pools are incomplete"
        if driver.short
        else "some pools are out of reach"
        if driver.lost
        else "some pools are gone"
        if driver.vanished
        else "every pool is complete",
        value=f"{whole} of {driver.pools}",
        url=driver_url(driver.name),
        severity=WARN if troubles else OK,
        troubles=tuple(troubles),
    )


def _short(pool: ShortPool, now: datetime) -> Warning:
    missing = pool.expected - pool.seen
    devices = "its device is" if pool.devices == 1 else f"its {pool.devices} devices are"
    if missing > 0:
        count = "a slice" if missing == 1 else f"{missing} slices"
        what = f"Pool `{pool.name}` is {count} short; {devices} not allocatable."
    else:
        what = f"Pool `{pool.name}` has {counted(-missing, 'slice')} too many; {devices} not allocatable."
    if pool.changed:
        what += f" Its slices last changed at {clock(pool.changed, now=now)}."
    where = f" on {pool.node}" if pool.node else ""
    step = f"See the driver's log{where}."
    return Warning(what=what, step=step, url=node_url(pool.node) if pool.node else driver_url(pool.driver))


# Processes -----------------------------------------------------------------------------------------------------------


def _alive(signs: HealthSigns) -> list[ProcessSign]:
    return [one for one in signs.processes if signs.now - one.seen <= signs.silent_after]


def _scheduler(signs: HealthSigns) -> HealthLine:
    alive, queue = _alive(signs), signs.queue
    troubles = []
    if not alive:
        last = max((one.seen for one in signs.processes), default=None)
        since = f" since {clock(last, now=signs.now)}" if last else ""
        what = f"No worker has run{since}; no pod is placed."
        troubles.append(Warning(what=what, step=_start_again()))
    placed, attempts = sum(one.placed for one in alive), sum(one.attempts for one in alive)
    waiting = f"queue {queue.length}"
    if queue.oldest:
        waiting += f", oldest {duration((signs.now - queue.oldest).total_seconds())}"
    rates = f"{counted(attempts, 'attempt')} in the last minute, " if signs.whole else ""
    return HealthLine(
        name="Rehearsals" if settings.MIRROR else "Scheduler",
        note=f"{rates}{waiting}",
        value=f"{placed}/min" if signs.whole and not settings.MIRROR else "",
        severity=OK if alive else ERR,
        troubles=tuple(troubles),
    )


def _silent(now: datetime, since: datetime) -> HealthLine:
    what = f"`{DEFAULT_SCHEDULER}` last renewed its Lease {duration((now - since).total_seconds())} ago."
    return HealthLine(
        name="Scheduler there",
        note="its Lease is overdue",
        value="silent",
        severity=ERR,
        troubles=(Warning(what=what, step="No pod is placed until it runs."),),
    )


def _workers(signs: HealthSigns) -> HealthLine:
    alive = _alive(signs)
    troubles = [
        Warning(
            what=f"Process `{one.name}` was last seen {duration((signs.now - one.seen).total_seconds())} ago.",
            step="Start it again; a stopped one is forgotten after 10 min.",
        )
        for one in signs.processes
        if one not in alive
    ]
    failed = sum(one.failed for one in alive)
    if failed:
        troubles.append(
            Warning(what=f"{counted(failed, 'task')} failed in the last minute.", step="See the worker's log.")
        )
    seen = [f"{one.name} seen {duration((signs.now - one.seen).total_seconds())} ago" for one in alive]
    more = f", and {len(seen) - NAMED} more" if len(seen) > NAMED else ""
    return HealthLine(
        name="Workers",
        note=", ".join(seen[:NAMED]) + more if seen else "none is running",
        value=f"{len(alive)} of {len(signs.processes)}" if signs.processes else "0",
        severity=ERR if not alive else WARN if troubles else OK,
        troubles=tuple(troubles),
    )


def _start_again() -> str:
    """A mirror is one process, which takes up what is late within a minute of its start."""
    return "Start the mirror again." if settings.MIRROR else f"Start a worker: `{layout.WORKER_COMMAND}`."


def _periodic(signs: HealthSigns) -> HealthLine:
    """Judged by the samples of usage, which nothing but their interval asks for."""
    late = signs.sampled is not None and signs.now - signs.sampled > signs.sampled_every + LATE
    trouble = Warning(
        what=f"Periodic tasks are late since {clock(signs.sampled, now=signs.now)}.",
        step=_start_again() if settings.MIRROR else f"{_start_again()} Else see `{layout.COMMAND} doctor`.",
    )
    last = f"last sample {clock(signs.sampled, now=signs.now)}" if signs.sampled else "no sample yet"
    return HealthLine(
        name="Periodic tasks",
        note=last,
        severity=WARN if late else OK,
        value="late" if late else "on time" if signs.sampled else "",
        troubles=(trouble,) if late else (),
    )


REDIS_AWAY = HealthLine(
    name="Redis",
    note="does not answer",
    value="away",
    severity=WARN,
    troubles=(
        Warning(
            what="Pods and pages are a second or two late.",
            step="Start Redis; nothing is lost.",
        ),
    ),
)


def _incidents(signs: HealthSigns) -> HealthLine:
    """What goes on; that nobody has seen to it asks for somebody."""
    found = signs.incidents
    acknowledged, out = found.total - found.unseen, signs.out_of_service
    notes = [
        f"the first since {clock(found.since, now=signs.now)}" if found.since else "",
        f"{acknowledged} acknowledged" if acknowledged else "",
    ]
    none = f"{counted(out, 'device is', 'devices are')} out of service" if out else "no device is out of service"
    if lacking(SLICES):
        none = ""
    return HealthLine(
        name="Incidents",
        note=", ".join(filter(None, notes)) or none,
        value=f"{known_figure(found.unseen, 'incidents')} open",
        url=page_url("incidents"),
        severity=WARN if found.unseen else OK,
    )


# Data ----------------------------------------------------------------------------------------------------------------


def _log(signs: HealthSigns) -> HealthLine:
    return HealthLine(
        name="Event log",
        note=(f"reaches back to revision {signs.floor:,}" if signs.floor else "complete, nothing is pruned")
        + (f", {size(signs.log_bytes)}" if signs.log_bytes else ""),
        value=f"revision {signs.revision:,}",
    )


def _database(signs: HealthSigns) -> HealthLine:
    used, limit = signs.database_size, signs.database_limit
    step = "Delete objects, enlarge the disk, or raise MANCIPLE_DATABASE_BYTES."
    trouble = None
    if signs.database_full:
        trouble = Warning(what="The database is full and accepts only deletions.", step=step)
    elif limit and signs.database_nearly_full:
        what = f"The database is {used / limit:.0%} full; once full, it accepts only deletions."
        trouble = Warning(what=what, step=step)
    of_limit = f" of {size(limit)}" if limit is not None and trouble else ""
    return HealthLine(
        name="Database",
        note=f"{signs.database}, {size(used)}{of_limit}",
        value=f"{max(signs.ping * 1000, 0.1):.1f} ms",
        severity=ERR if signs.database_full else WARN if trouble else OK,
        troubles=(trouble,) if trouble else (),
    )


def size(count: float) -> str:
    """Bytes as a person reads them: `34 MiB`."""
    unit = ""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":  # noqa: PLR2004 - a kibibyte
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"  # noqa: PLR2004
