"""Reads incidents and what belongs to them: spans of devices, who holds or held these meanwhile.

A rule concerns every device that its selector names; which these are is looked up among what is published now. Who held
a device is told as far as the person sees the namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.db.models import F, Min, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import DeviceKey, Keyed
from claims.devices.states import DeviceState
from claims.models import PastAllocation
from dashboard.inventory.devices.grid import ELSEWHERE, STATES, key_of
from dashboard.kit import links
from dashboard.kit.forms import posted_from
from dashboard.kit.lists import (
    BulkAct,
    Filter,
    ListColumn,
    ListQuery,
    PageOfRows,
    Table,
    parameter,
    state_tabs,
)
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.rights import listing
from dashboard.kit.saved_views import opens_as_usual
from insight.selector_matches import judge
from inventory.models import DeviceClass, Impairment, Incident, Node
from manciple.audit.sign_ins import note_change
from manciple.durations import duration
from manciple.people import Person, demand, person_of
from manciple.store.event_log import latest_revision
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import NODES, SLICES
from manciple.wire.validation import natural

#: Incidents that are looked through.
LOOKED_AT = 5000
#: Devices of one incident that are described, and rows of the past that are read for them.
DESCRIBED, PAST = 500, 4000

SOURCES = Impairment.Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpairedSpan:
    """One device, or all that a rule selects, from when to when. place: (driver, pool, device), "" for any.

    node: "" for any, or if it is not known.
    """

    incident: str
    place: tuple[str, str, str]
    node: str
    source: str
    reporter: str
    state: DeviceState
    key: str
    value: str
    effect: str
    message: str
    began: datetime
    ended: datetime | None

    def concerns(self, device: DeviceKey) -> bool:
        """A rule names no node, and a device of a pool of no single node may be impaired on one."""
        same_node = self.source == SOURCES.RULE or "" in (self.node, device[3]) or self.node == device[3]
        return same_node and all(wanted in ("", found) for wanted, found in zip(self.place, device[:3], strict=True))

    @property
    def exact(self) -> bool:
        """Whether it names one device."""
        return all(self.place)

    @property
    def state_name(self) -> str:
        return STATES[self.state]

    @property
    def taint(self) -> str:
        """As kubectl writes it; of a report nothing."""
        return taint_text(self.key, self.value, self.effect)

    @property
    def cause(self) -> str:
        """What it says for itself: the taint without its effect, or the agent's words."""
        return taint_text(self.key, self.value) or self.message or "reported Unhealthy"

    @property
    def said_by(self) -> str:
        match self.source:
            case SOURCES.RULE:
                return f"DeviceTaintRule {self.reporter}"
            case SOURCES.REPORT:
                return "the node's agent, with a pod that uses it"
        return f"driver {self.place[0]}"


def taint_text(key: str, value: str, effect: str = "") -> str:
    return f"{key}{f'={value}' if value else ''}{f':{effect}' if effect else ''}" if key else ""


def spans(rows: QuerySet[Impairment]) -> list[ImpairedSpan]:
    """The oldest first."""
    return [
        ImpairedSpan(
            incident=row.incident_id,
            place=(row.driver, row.pool, row.device),
            node=row.node,
            source=row.source,
            reporter=row.reporter,
            state=DeviceState.UNHEALTHY if row.unhealthy else DeviceState.TAINTED,
            key=row.key,
            value=row.value,
            effect=row.effect,
            message=row.message,
            began=row.began_at,
            ended=row.ended_at,
        )
        for row in rows.order_by("began_at", "pk")
    ]


def between(begin: datetime, end: datetime) -> QuerySet[Impairment]:
    """Those of a window of time."""
    return Impairment.objects.filter(Q(ended_at=None) | Q(ended_at__gt=begin), began_at__lt=end)


def of_device(device: DeviceKey, begin: datetime, end: datetime) -> list[ImpairedSpan]:
    """What impaired one device in a window of time. One query."""
    driver, pool, name, _ = device
    rows = between(begin, end).filter(driver__in=("", driver), pool__in=("", pool), device__in=("", name))
    return [span for span in spans(rows) if span.concerns(device)]


# Devices and who had them ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AffectedHolder:
    """A claim that held an impaired device. claim: "" where its namespace is not to be told. lasts: it has it still."""

    namespace: str
    claim: str = ""
    pods: tuple[str, ...] = ()
    lasts: bool = False

    @property
    def url(self) -> str:
        return links.claim_url(self.namespace, self.claim) if self.lasts and self.claim else ""

    @property
    def pod_urls(self) -> list[tuple[str, str]]:
        """(pod, its address, "" where it is gone)."""
        return [(pod, links.pod_url(self.namespace, pod) if self.lasts else "") for pod in self.pods]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpairedDevice(Keyed):
    """A device of an incident. span: the last one that concerns it."""

    key: DeviceKey = field()  # without it, the property that it stands for would count as its default
    node: str
    span: ImpairedSpan
    holders: tuple[AffectedHolder, ...] = ()

    @property
    def url(self) -> str:
        return links.device_url(*self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """One incident as a page tells it. devices: at most DESCRIBED; of these `total` there are."""

    id: str
    state: DeviceState
    key: str
    value: str
    began: datetime
    ended: datetime | None
    acknowledged_by: str
    acknowledged_at: datetime | None
    note: str
    spans: tuple[ImpairedSpan, ...]
    devices: tuple[ImpairedDevice, ...]
    total: int

    @property
    def url(self) -> str:
        return links.incident_url(self.id)

    @property
    def state_name(self) -> str:
        return STATES[self.state]

    @property
    def standing(self) -> str:
        """One of `STANDINGS`."""
        return standing_of(self.ended, self.acknowledged_at)

    @property
    def standing_name(self) -> str:
        return STANDINGS[self.standing]

    @property
    def cause(self) -> str:
        return taint_text(self.key, self.value) or next((one.cause for one in self.spans), "")

    @property
    def said_by(self) -> list[str]:
        """Who says so, each once."""
        return list(dict.fromkeys(one.said_by for one in self.spans))

    @property
    def messages(self) -> list[str]:
        """What agents said with it, where that is not the cause itself."""
        return list(dict.fromkeys(one.message for one in self.spans if one.message and one.message != self.cause))

    @property
    def nodes(self) -> list[str]:
        return sorted({one.node for one in self.devices if one.node}, key=natural)

    @property
    def holders(self) -> list[AffectedHolder]:
        return list(dict.fromkeys(holder for one in self.devices for holder in one.holders))

    @property
    def pods(self) -> int:
        return len({(one.namespace, pod) for one in self.holders for pod in one.pods})

    @property
    def seconds(self) -> float:
        """Of one that is over."""
        return (self.ended - self.began).total_seconds() if self.ended else 0.0

    @property
    def what(self) -> str:
        """`gpu-a09 / gpu-5`, `8 devices of gpu-a09`, `20 devices on 5 nodes`."""
        if self.total == 1 and self.devices:
            one = self.devices[0]
            return f"{one.node or one.key[1]} / {one.name}"
        where = f" of {self.nodes[0]}" if len(self.nodes) == 1 else f" on {len(self.nodes)} nodes" if self.nodes else ""
        return f"{self.total:,} devices{where}" if self.total else "No published device"

    @property
    def title(self) -> str:
        """The same with what is the matter: `8 devices of gpu-a09 tainted`."""
        return f"{self.what} {self.state_name.lower()}"


#: Where an incident stands -> what that is called, in the order of what asks for somebody.
STANDINGS: Mapping[str, str] = {"open": "Open", "acknowledged": "Acknowledged", "closed": "Closed"}


def standing_of(ended: datetime | None, acknowledged: datetime | None) -> str:
    return "closed" if ended else "acknowledged" if acknowledged else "open"


def ordered(incidents: Iterable[Incident]) -> list[Incident]:
    """What asks for somebody first, the newest first."""
    places = list(STANDINGS)
    return sorted(
        incidents,
        key=lambda one: (
            places.index(standing_of(one.ended_at, one.acknowledged_at)),
            -(one.ended_at or one.began_at).timestamp(),
            one.id,
        ),
    )


def newest() -> list[Incident]:
    """Those that go on, then those that ended last."""
    return list(Incident.objects.order_by(F("ended_at").desc(nulls_first=True), "-began_at")[:LOOKED_AT])


def concerned(
    *,
    node: str = "",
    device: DeviceKey | None = None,
    chosen: Collection[DeviceKey] | None = None,
    snapshot: DeviceSnapshot,
) -> set[str]:
    """The incidents in which something of the node, the device, or one of the chosen devices is impaired."""
    rows = Impairment.objects.all()
    if node:
        rows = rows.filter(node__in=("", node))
    if device is not None:
        driver, pool, name, on = device
        rows = rows.filter(driver__in=("", driver), pool__in=("", pool), device__in=("", name))
        if on:
            rows = rows.filter(Q(source=SOURCES.RULE) | Q(node__in=("", on)))
    found = set()
    columns = ("incident_id", "source", "node", "driver", "pool", "device")
    for incident, source, at, *place in rows.values_list(*columns).distinct():
        named = _named(source, (place[0], place[1], place[2]), at, snapshot)
        if any((not node or where == node) and (chosen is None or one in chosen) for one, where in named):
            found.add(incident)
    return found


def _named(
    source: str, place: tuple[str, str, str], node: str, snapshot: DeviceSnapshot
) -> list[tuple[DeviceKey, str]]:
    """(device, node) of what is impaired. A rule names no node, so it may be several devices of one name."""
    driver, pool, name = place
    if not all(place) or source == SOURCES.RULE:
        found = [
            (one.key, one.node)
            for one in snapshot.candidates
            if driver in ("", one.driver) and pool in ("", one.pool) and name in ("", one.name)
        ]
        if found or not all(place):
            return found
    return [(snapshot.find(*place, node), node)]


def described(person: Person, incidents: Sequence[Incident], snapshot: DeviceSnapshot) -> list[IncidentRow]:
    """Two queries for all of them."""
    of: dict[str, list[ImpairedSpan]] = {one.id: [] for one in incidents}
    for span in spans(Impairment.objects.filter(incident__in=list(of))):
        of[span.incident].append(span)
    named = {one.id: _devices(of[one.id], snapshot) for one in incidents}
    shown = {name: found[:DESCRIBED] for name, found in named.items()}
    holders = _holders(person, [one for found in shown.values() for one in found], snapshot)
    return [
        IncidentRow(
            id=one.id,
            state=DeviceState.UNHEALTHY if one.unhealthy else DeviceState.TAINTED,
            key=one.key,
            value=one.value,
            began=one.began_at,
            ended=one.ended_at,
            acknowledged_by=one.acknowledged_by,
            acknowledged_at=one.acknowledged_at,
            note=one.note,
            spans=tuple(of[one.id]),
            devices=tuple(
                ImpairedDevice(key=key, node=node, span=span, holders=tuple(holders(key, span)))
                for key, node, span in shown[one.id]
            ),
            total=len(named[one.id]),
        )
        for one in incidents
    ]


Named = tuple[DeviceKey, str, ImpairedSpan]  # device, node, the span that lasted longest


def _devices(found: Iterable[ImpairedSpan], snapshot: DeviceSnapshot) -> list[Named]:
    """Each device once, with the last of its spans that goes on, or the last one."""
    by_device: dict[DeviceKey, Named] = {}
    for span in sorted(found, key=lambda one: (one.ended is None, one.began)):
        for key, node in _named(span.source, span.place, span.node, snapshot):
            by_device[key] = (key, node, span)
    return sorted(by_device.values(), key=lambda one: (natural(one[1] or one[0][1]), natural(one[0][2])))


def _holders(
    person: Person, named: Collection[Named], snapshot: DeviceSnapshot
) -> Callable[[DeviceKey, ImpairedSpan], Iterator[AffectedHolder]]:
    """Who held a device during a span, told as the person may know it."""
    past: dict[tuple[str, str, str], list[Any]] = {}
    for row in _past(named):
        past.setdefault((row.driver, row.pool, row.device), []).append(row)

    def holders(key: DeviceKey, span: ImpairedSpan) -> Iterator[AffectedHolder]:
        for one in snapshot.held_by(key) if span.ended is None else ():
            seen = person.sees(one.namespace)
            yield AffectedHolder(one.namespace, one.claim, one.pods, True) if seen else AffectedHolder(ELSEWHERE)
        for row in past.get(key[:3], ()):
            same_node = "" in (key[3], row.node) or key[3] == row.node
            if same_node and row.ended_at > span.began and (span.ended is None or row.began_at < span.ended):
                seen = person.sees(row.namespace)
                yield AffectedHolder(row.namespace, row.claim, tuple(row.pods)) if seen else AffectedHolder(ELSEWHERE)

    return holders


def _past(named: Collection[Named]) -> Iterable[Any]:
    """What was given back while it was impaired, the latest."""
    if not named:
        return ()
    began = min(span.began for _, _, span in named)
    keys = {key for key, _, _ in named}
    rows = PastAllocation.objects.filter(
        ended_at__gt=began, admin_access=False, pool__in={key[1] for key in keys}, device__in={key[2] for key in keys}
    )
    return rows.order_by("-ended_at")[:PAST]


# In a few words -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenIncidents:
    """Those that go on. unseen: that nobody has acknowledged; since: when the first of these began."""

    total: int = 0
    unseen: int = 0
    since: datetime | None = None


def count_open() -> OpenIncidents:
    """Two queries."""
    going_on = Incident.objects.filter(ended_at=None)
    unseen = going_on.filter(acknowledged_at=None)
    first = unseen.aggregate(since=Min("began_at"))["since"]
    return OpenIncidents(total=going_on.count(), unseen=unseen.count(), since=first)


INCIDENTS = "incidents.manciple.dev"
#: Incidents on one page, and characters of a note.
PAGE, LONGEST_NOTE = 50, 1000
#: Incidents that are acknowledged together.
MOST_PICKED = 500
#: What touches them: slices and rules, what pods hold, and acknowledgements by others, of which no log tells.
TOPICS = "slices claims: pods: clock"
#: What stands for the cause of reports, which have no taint.
REPORTED = "reported by agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentQuery(ListQuery):
    """What the list's address asks for."""

    state: str = parameter("state", known=STANDINGS)
    node: str = parameter("node")
    device_class: str = parameter("class")
    cause: str = parameter("cause")
    device: str = parameter("device")


def _affected(row: IncidentRow) -> str:
    return " ".join(f"{one.namespace}/{one.claim}" if one.claim else one.namespace for one in row.holders)


COLUMNS = (
    ListColumn[IncidentRow](title="Incident", text=lambda row: row.what),
    ListColumn[IncidentRow](title="Cause", sort="cause", text=lambda row: f"{row.state_name}: {row.cause}"),
    ListColumn[IncidentRow](title="Affected", css="affected", text=_affected),
    ListColumn[IncidentRow](
        title="Since", css="num", sort="since", text=lambda row: row.began.isoformat(timespec="seconds")
    ),
    ListColumn[IncidentRow](
        title="Lasted",
        css="num",
        sort="lasted",
        text=lambda row: duration(row.seconds) if row.ended else "still lasts",
    ),
    ListColumn[IncidentRow](title="Acknowledged", css="seen", text=lambda row: row.acknowledged_by),
)
#: `sort` in the address -> by what
_ORDERS: Mapping[str, Callable[[Incident], Any]] = {
    "cause": lambda one: (one.key, one.value),
    "since": lambda one: one.began_at,
    "lasted": lambda one: (one.ended_at or datetime.now(UTC)) - one.began_at,
}
ACTS = (BulkAct("Acknowledge", "/incidents/acknowledge"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentsContext(ListContext):
    """matching: incidents in any state; any: whether there is one at all; here: the address to come back to."""

    query: IncidentQuery
    any: bool
    matching: int
    may_acknowledge: bool
    here: str


@listing(SLICES)
@require_safe
@opens_as_usual
def list_incidents(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision, person, query = latest_revision(), person_of(request), IncidentQuery.read(request)
    snapshot, known = read_devices(), newest()
    matching = [one for one in _concerning(query, known, snapshot) if query.cause in ("", cause_of(one))]
    counts = Counter(standing_of(one.ended_at, one.acknowledged_at) for one in matching)
    chosen = [one for one in matching if query.state in ("", standing_of(one.ended_at, one.acknowledged_at))]
    page = PageOfRows(len(chosen), PAGE, query.page)
    in_order = _in_order(query.sort, chosen)
    context = IncidentsContext(
        place="incidents",
        revision=revision,
        query=query,
        table=Table(
            id="incidents",
            topics=TOPICS,
            title="Incidents",
            css="stack incidents",
            query=query,
            columns=COLUMNS,
            rows=described(person, in_order[page.rows], snapshot),
            all_rows=lambda: described(person, in_order, snapshot),
            page=page,
            filters=_filters(query, known),
            tabs=state_tabs(query, STANDINGS, STANDINGS, counts, alarming="open"),
            acts=ACTS if may_acknowledge(person) else (),
        ),
        any=bool(known),
        matching=len(matching),
        may_acknowledge=may_acknowledge(person),
        here=request.get_full_path(),
    )
    return show_list(request, "inventory/incidents/list.html", context)


def _in_order(sort: str, chosen: Sequence[Incident]) -> list[Incident]:
    key = _ORDERS.get(sort.removeprefix("-"))
    return sorted(chosen, key=key, reverse=sort.startswith("-")) if key else ordered(chosen)


def _concerning(query: IncidentQuery, known: Sequence[Incident], snapshot: DeviceSnapshot) -> Sequence[Incident]:
    """Those of `known` of the node, class and device that the address asks for."""
    if not (query.node or query.device_class or query.device):
        return known
    chosen = _chosen(query.device_class, snapshot) if query.device_class else None
    device = (key_of(query.device, snapshot) or ("", "", "-", "")) if query.device else None
    wanted = concerned(node=query.node, device=device, chosen=chosen, snapshot=snapshot)
    return [one for one in known if one.id in wanted]


def _chosen(device_class: str, snapshot: DeviceSnapshot) -> frozenset[DeviceKey]:
    """The published devices that the class accepts; none of a class that there is not. Raises: TimeLimitExceeded."""
    selectors = DeviceClass.expressions().get(device_class)
    if selectors is None:
        return frozenset()
    verdict = judge(selectors, snapshot.published)
    if verdict.unjudged:
        raise TimeLimitExceeded
    return frozenset(one.key for one in verdict.matching)


def cause_of(incident: Incident) -> str:
    """As the filter names it."""
    return taint_text(incident.key, incident.value) or REPORTED


def _filters(query: IncidentQuery, known: Sequence[Incident]) -> tuple[Filter, ...]:
    nodes = sorted({*Node.objects.values_list("name", flat=True), *filter(None, [query.node])}, key=natural)
    causes = sorted({*map(cause_of, known), *filter(None, [query.cause])})
    return (
        Filter("node", "Node", query.node, every="All nodes", options=nodes),
        Filter("class", "Class", query.device_class, every="All classes", options=sorted(DeviceClass.expressions())),
        Filter("cause", "Cause", query.cause, every="All causes", options=causes),
        Filter("device", "Device", query.device, hint="driver/pool/device"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentContext(PageContext):
    row: IncidentRow
    may_cordon: bool
    may_acknowledge: bool
    topics: str = TOPICS
    longest_note: int = LONGEST_NOTE


@listing(SLICES)
@require_safe
def show_incident(request: HttpRequest, name: str) -> HttpResponse:
    """The page. Raises: Http404."""
    revision, person = latest_revision(), person_of(request)
    row = described(person, [_incident(name)], read_devices())[0]
    context = IncidentContext(
        place="incidents",
        revision=revision,
        row=row,
        may_cordon=person.may("update", NODES),
        may_acknowledge=may_acknowledge(person),
    )
    return render_page(request, "inventory/incidents/page.html", context)


@listing(SLICES)
@posted_from("incident")
def acknowledge(request: HttpRequest, name: str) -> HttpResponse:
    """Raises: Http404; PermissionDenied."""
    person = demand(request, "acknowledge incidents", "update", INCIDENTS)
    incident = _incident(name)
    if "withdraw" in request.POST:
        incident.acknowledged_by, incident.acknowledged_at, incident.note = "", None, ""
        _keep(incident, person)
    else:
        _acknowledge(incident, person, request.POST.get("note", "").strip()[:LONGEST_NOTE])
    messages.success(request, "Acknowledged." if incident.acknowledged_at else "The acknowledgement is withdrawn.")
    return redirect(_back(request) or links.incident_url(name))


@listing(SLICES)
@posted_from("incidents")
def acknowledge_picked(request: HttpRequest) -> HttpResponse:
    """Those that were picked in the list and nobody has acknowledged. Raises: PermissionDenied."""
    person = demand(request, "acknowledge incidents", "update", INCIDENTS)
    open_ones = Incident.objects.filter(id__in=request.POST.getlist("pick"), acknowledged_at=None, ended_at=None)
    found = list(open_ones[:MOST_PICKED])
    for incident in found:
        _acknowledge(incident, person, "")
    if found:
        messages.success(request, f"Acknowledged {len(found)} incident{'' if len(found) == 1 else 's'}.")
    else:
        messages.error(request, "Nothing was acknowledged: all that were picked are over, or acknowledged already.")
    return redirect(_back(request) or "/incidents")


def _acknowledge(incident: Incident, person: Person, note: str) -> None:
    incident.acknowledged_by, incident.acknowledged_at, incident.note = person.name, datetime.now(UTC), note
    _keep(incident, person)


def _keep(incident: Incident, person: Person) -> None:
    incident.save(update_fields=["acknowledged_by", "acknowledged_at", "note"])
    note_change(person.identity, "update", INCIDENTS, incident.id)


def _back(request: HttpRequest) -> str:
    """The list that the button stood in; nowhere else."""
    back = request.POST.get("back", "")
    return back if back == "/incidents" or back.startswith("/incidents?") else ""


def may_acknowledge(person: Person) -> bool:
    return person.may("update", INCIDENTS)


def _incident(name: str) -> Incident:
    found = Incident.objects.filter(id=name).first()
    if found is None:
        raise Http404(f"Incident {name} does not exist. Incidents are kept for 90 days after they end.")
    return found
