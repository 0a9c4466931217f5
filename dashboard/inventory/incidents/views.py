"""Incidents: devices that were tainted or unhealthy together, who was affected, who has seen to it.

- `/incidents`: what goes on and nobody has acknowledged first. `?state=open|acknowledged|closed`, `?node=`, `?class=`,
  `?cause=` and `?device=DRIVER/POOL/DEVICE` narrow it.
- `/incidents/ID`: one, with each of its devices.
- `/incidents/ID/acknowledge`: POST, with a note or without; with `withdraw`, nobody has acknowledged it any more.

Who may acknowledge is whom a role allows to `update` the resource `incidents` of `manciple.dev`. There is no such
resource in the API; it is there to be allowed. Administrators may. What they do is in the audit trail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import DeviceKey
from dashboard.inventory.devices.panel import key_of
from dashboard.inventory.devices.views import read_classes
from dashboard.inventory.incidents.reading import (
    STANDINGS,
    IncidentRow,
    concerned,
    described,
    newest,
    ordered,
    standing_of,
    taint_text,
)
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
from inventory.models import Incident, Node
from manciple.audit.sign_ins import note_change
from manciple.durations import duration
from manciple.people import Person, demand, person_of
from manciple.store.event_log import latest_revision
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import NODES, SLICES
from manciple.wire.validation import natural

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
    selectors = read_classes().get(device_class)
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
        Filter("class", "Class", query.device_class, every="All classes", options=sorted(read_classes())),
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
