"""Incidents: devices that were tainted, unhealthy, unreachable or without their pool together, the claims affected, and
who acknowledged them.

- `/incidents`: open ones that nobody has acknowledged first. `?state=open|acknowledged|closed`, `?node=`, `?class=`,
  `?cause=`, `?device=DRIVER/POOL/DEVICE` and `?within=` (a time in which it lasted) narrow the list.
- `/incidents/ID`: one, with each of its devices.
- `/incidents/ID/handle`, `/incidents/ID/comment`: POST of severity and assignee, and of a comment
  (`dashboard.inventory.handling`). `?severity=` and `?assignee=` narrow the list.
- `/incidents/ID/acknowledge`: POST, with an optional note; `withdraw` takes the acknowledgement back.

A taint rule, a node or a pool concerns every device of it that is published now, or was held at that time. Holders are
those of every span of a device, and are named as far as the person sees their namespaces.

All of this needs the verb `update` on the resource `incidents` of `manciple.dev`, which the API does not have: it
exists to be granted by roles. Administrators have it. Who did what is in the audit trail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.db.models import Case, Count, ExpressionWrapper, F, Min, Q, QuerySet, TextField, Value, When
from django.db.models import DurationField as Duration
from django.db.models.functions import Coalesce, Concat
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from claims.devices.cache import DeviceSnapshot, read_devices
from claims.devices.published import DeviceKey, Keyed
from claims.devices.states import DeviceState
from claims.models import Claim, Ending, PastAllocation
from dashboard.inventory import handling
from dashboard.inventory.devices.grid import ELSEWHERE, STATES, key_of, line_named
from dashboard.inventory.handling import NOBODY, SEVERITIES, CommentForm, HandlingForm
from dashboard.kit.forms import posted_from
from dashboard.kit.guards import listing
from dashboard.kit.lists import BulkAct, Filter, ListColumn, ListQuery, PageOfRows, Table, parameter, state_tabs
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.models import IncidentComment
from dashboard.templatetags.kit import claim_url, counted, incident_url, node_url, page_url, pod_url
from insight.selector_matches import class_selectors, judge
from inventory.models import Impairment, Incident, Node
from manciple.audit.sign_ins import note_change
from manciple.durations import duration
from manciple.gaps import lacking
from manciple.mirror.guard import findings
from manciple.people import Person, demand, person_of
from manciple.store import sql
from manciple.store.event_log import latest_revision
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import NODES, SLICES
from manciple.wire.validation import natural

INCIDENTS = "incidents.manciple.dev"
SOURCES = Impairment.Source
#: What says so -> the state of the devices, where it is always the same.
STATE_OF_SOURCE: Mapping[str, DeviceState] = {
    SOURCES.NODE: DeviceState.UNREACHABLE,
    SOURCES.POOL: DeviceState.UNPUBLISHED,
    SOURCES.CLAIM: DeviceState.RESERVED,
    SOURCES.GUARD: DeviceState.RESERVED,
}
#: What says so -> what an incident of it is called, where the state of the device does not tell.
NAME_OF_SOURCE: Mapping[str, str] = {SOURCES.CLAIM: "Held twice", SOURCES.GUARD: "Contested"}
#: Where an incident stands -> its label, the most urgent first.
STANDINGS: Mapping[str, str] = {"open": "Open", "acknowledged": "Acknowledged", "closed": "Closed"}
#: Devices of one incident that are described, and past allocations that are read for them.
DESCRIBED, PAST = 500, 1000
#: Allocations of a contested device that are shown.
WRITES = 20
#: Incidents on one page, and characters of a note.
PAGE, LONGEST_NOTE = 50, 1000
#: Open incidents of which the wall board knows, and incidents acknowledged together.
MOST_OPEN, MOST_PICKED = 5000, 500
#: Slices and rules, what pods hold, and the clock: no log has the acknowledgements of others.
TOPICS = "slices claims: pods: clock"
#: The days that a filter names -> how many before today they begin.
WITHIN: Mapping[str, int] = {"Today": 0, "Since yesterday": 1, "7 days": 6, "30 days": 29}
#: The cause of reports, which have no taint; of incidents of the guard.
REPORTED, CONTESTING = "reported by agents", "allocations of devices that other claims hold"


@dataclass(frozen=True, slots=True)
class ImpairedSpan:
    """One device, or all that a rule selects, from when to when."""

    row: Impairment

    @property
    def began(self) -> datetime:
        return self.row.began_at

    @property
    def ended(self) -> datetime | None:
        return self.row.ended_at

    @property
    def state_name(self) -> str:
        return NAME_OF_SOURCE.get(self.row.source) or STATES[self.state]

    @property
    def place(self) -> tuple[str, str, str]:
        """(driver, pool, device), "" for any."""
        return self.row.driver, self.row.pool, self.row.device

    @property
    def state(self) -> DeviceState:
        if self.row.source in STATE_OF_SOURCE:
            return STATE_OF_SOURCE[self.row.source]
        return DeviceState.UNHEALTHY if self.row.unhealthy else DeviceState.TAINTED

    def concerns(self, device: DeviceKey, node: str = "") -> bool:
        """A rule names no node, and a device of a pool of no single node may be impaired on one.

        node: of the device, where its pool is of no single node.
        """
        if self.row.source == SOURCES.NODE:
            return self.row.node == (device[3] or node)
        same_node = self.row.source == SOURCES.RULE or "" in (self.row.node, device[3]) or self.row.node == device[3]
        return same_node and all(wanted in ("", found) for wanted, found in zip(self.place, device[:3], strict=True))

    def overlaps(self, began: datetime, ended: datetime) -> bool:
        return ended > self.began and (self.ended is None or began < self.ended)

    @property
    def exact(self) -> bool:
        """Whether it names one device."""
        return all(self.place)

    @property
    def taint(self) -> str:
        """As kubectl writes it; "" for a report."""
        return taint_text(self.row.key, self.row.value, self.row.effect)

    @property
    def cause(self) -> str:
        """The taint without its effect, or the agent's message."""
        if self.row.source in STATE_OF_SOURCE:
            return self.row.message
        return taint_text(self.row.key, self.row.value) or self.row.message or "reported Unhealthy"

    @property
    def said_by(self) -> str:
        if self.row.source == SOURCES.RULE:
            return f"DeviceTaintRule {self.row.reporter}"
        if self.row.source == SOURCES.NODE:
            return f"the Lease of node {self.row.node}"
        if self.row.source == SOURCES.POOL:
            return "its ResourceSlices"
        if self.row.source in (SOURCES.CLAIM, SOURCES.GUARD):
            return "the claims" if self.row.source == SOURCES.CLAIM else "the guard"
        reported = self.row.source == SOURCES.REPORT
        return "the node's agent, with a pod that uses it" if reported else f"driver {self.row.driver}"


def taint_text(key: str, value: str, effect: str = "") -> str:
    return f"{key}{f'={value}' if value else ''}{f':{effect}' if effect else ''}" if key else ""


def spans(rows: QuerySet[Impairment]) -> list[ImpairedSpan]:
    """The oldest first."""
    return [ImpairedSpan(row) for row in rows.order_by("began_at", "pk")]


def between(begin: datetime, end: datetime) -> QuerySet[Impairment]:
    """Impairments of a time window."""
    return Impairment.objects.filter(Q(ended_at=None) | Q(ended_at__gt=begin), began_at__lt=end)


def of_device(device: DeviceKey, begin: datetime, end: datetime, *, node: str = "") -> list[ImpairedSpan]:
    """What impaired one device in a time window. node: where it is, if its pool is of no single node. One query."""
    driver, pool, name, home = device
    rows = between(begin, end).filter(driver__in=("", driver), pool__in=("", pool), device__in=("", name))
    rows = rows.exclude(Q(source=SOURCES.NODE) & ~Q(node=home or node))
    return [span for span in spans(rows) if span.concerns(device, node)]


@dataclass(frozen=True, slots=True)
class ContestedWrite:
    """An allocation that the guard found to give a device twice. claim, author: "" if the person may not see it."""

    at: datetime
    device: str
    refused: bool
    namespace: str
    claim: str = ""
    author: str = ""


def contested_writes(person: Person, row: IncidentRow) -> list[ContestedWrite]:
    """The newest first."""
    if row.source != SOURCES.GUARD:
        return []
    devices = [(one.row.driver, one.row.pool, one.row.device, one.row.node) for one in row.spans]
    found = findings.latest(devices, since=row.began, until=row.ended, most=WRITES)
    return [
        ContestedWrite(one.at, one.device, one.refused, one.namespace, one.claim, one.author)
        if person.sees(one.namespace)
        else ContestedWrite(one.at, one.device, one.refused, one.namespace)
        for one in found
    ]


@dataclass(frozen=True, slots=True)
class AffectedHolder:
    """A claim that held an impaired device. claim: "" if the person may not see it. lasts: it still holds it. url: of
    the claim, or of the record of how it ended; "" once there is none.
    """

    namespace: str
    claim: str = ""
    pods: tuple[str, ...] = ()
    lasts: bool = False
    url: str = ""

    @property
    def pod_links(self) -> list[str | tuple[str, str]]:
        """Pods with their addresses; once they are gone with that of the claim, whose record names theirs."""
        if not self.url:
            return list(self.pods)
        return [(pod, pod_url(self.namespace, pod) if self.lasts else self.url) for pod in self.pods]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpairedDevice(Keyed):
    """A device of an incident. spans: those that concern it, the oldest first; span: the one to show of them, an open
    one before closed ones.
    """

    key: DeviceKey = field()  # without it, the property that it stands for would count as its default
    node: str
    spans: tuple[ImpairedSpan, ...]
    holders: tuple[AffectedHolder, ...] = ()

    @property
    def span(self) -> ImpairedSpan:
        return max(self.spans, key=lambda one: (one.ended is None, one.began))

    @property
    def began(self) -> datetime:
        return self.spans[0].began

    @property
    def times(self) -> int:
        """How often it was impaired: a device that flaps has many spans."""
        return len({(one.began, one.ended) for one in self.spans})


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """An incident with its devices: at most DESCRIBED of the `total`."""

    incident: Incident
    spans: Sequence[ImpairedSpan]
    devices: tuple[ImpairedDevice, ...]
    total: int

    @property
    def began(self) -> datetime:
        return self.incident.began_at

    @property
    def ended(self) -> datetime | None:
        return self.incident.ended_at

    @property
    def state(self) -> str:
        if self.spans:
            return self.spans[0].state
        return DeviceState.UNHEALTHY if self.incident.unhealthy else DeviceState.TAINTED

    @property
    def state_name(self) -> str:
        return NAME_OF_SOURCE.get(self.source) or STATES[self.state]

    @property
    def standing_name(self) -> str:
        return STANDINGS[self.standing]

    @property
    def standing(self) -> str:
        """One of `STANDINGS`."""
        return "closed" if self.ended else "acknowledged" if self.incident.acknowledged_at else "open"

    @property
    def severity(self) -> str:
        """One of `SEVERITIES`."""
        return handling.severity_of(self.incident)

    @property
    def severity_name(self) -> str:
        return SEVERITIES[self.severity]

    @property
    def assignee(self) -> str:
        return handling.assignee_of(self.incident)

    @property
    def cause(self) -> str:
        if self.source == SOURCES.GUARD:
            return CONTESTING  # each device has a message of its own
        if self.source in STATE_OF_SOURCE:
            return self.spans[-1].cause
        return taint_text(self.incident.key, self.incident.value) or next((one.cause for one in self.spans), "")

    @property
    def source(self) -> str:
        return self.spans[0].row.source if self.spans else ""

    @property
    def said_by(self) -> list[str]:
        """The sources, each once."""
        return list(dict.fromkeys(one.said_by for one in self.spans))

    @property
    def messages(self) -> list[str]:
        """Agents' messages other than the cause."""
        return list(dict.fromkeys(one.row.message for one in self.spans if one.row.message not in ("", self.cause)))

    @property
    def nodes(self) -> list[str]:
        named = [self.incident.node] if self.source == SOURCES.NODE else []
        return sorted({*named, *(one.node for one in self.devices if one.node)}, key=natural)

    @property
    def node_links(self) -> list[tuple[str, str]]:
        return [(name, node_url(name)) for name in self.nodes]

    @property
    def holders(self) -> list[AffectedHolder]:
        return list(dict.fromkeys(holder for one in self.devices for holder in one.holders))

    @property
    def pods(self) -> int:
        return len({(one.namespace, pod) for one in self.holders for pod in one.pods})

    @property
    def seconds(self) -> float:
        """How long a closed one lasted."""
        return (self.incident.ended_at - self.incident.began_at).total_seconds() if self.incident.ended_at else 0.0

    @property
    def what(self) -> str:
        """`gpu-a09 / gpu-5`, `8 devices of gpu-a09`, `20 devices on 5 nodes`, `Node gpu-a09`, `Pool a of gpu.dev`."""
        if self.source == SOURCES.NODE:
            return f"Node {self.incident.node}"
        if self.source == SOURCES.POOL:
            on = f" on {self.incident.node}" if self.incident.node not in ("", self.incident.pool) else ""
            return f"Pool {self.incident.pool} of {self.incident.driver}{on}"
        if self.total == 1 and self.devices:
            return f"{self.devices[0].node or self.devices[0].pool} / {self.devices[0].name}"
        where = f" of {self.nodes[0]}" if len(self.nodes) == 1 else f" on {len(self.nodes)} nodes" if self.nodes else ""
        if not self.total:
            return "Devices that are not known" if lacking(SLICES) else "No published device"
        return f"{self.total:,} devices{where}"

    @property
    def shown_said(self) -> str:
        return f"the first {len(self.devices)}" if len(self.devices) < self.total else ""

    @property
    def title(self) -> str:
        """`8 devices of gpu-a09 tainted`, `Node gpu-a09 unreachable`, `Pool cards of gpu.dev incomplete`."""
        return f"{self.what} {'incomplete' if self.source == SOURCES.POOL else self.state_name.lower()}"


@dataclass(frozen=True, slots=True)
class OpenIncidents:
    """unseen: not acknowledged; since: when the first of those began."""

    total: int = 0
    unseen: int = 0
    since: datetime | None = None


# Queries -------------------------------------------------------------------------------------------------------------


def count_open() -> OpenIncidents:
    """One query."""
    unseen = Q(acknowledged_at=None)
    found = Incident.objects.filter(ended_at=None).aggregate(
        total=Count("pk"), unseen=Count("pk", filter=unseen), since=Min("began_at", filter=unseen)
    )
    return OpenIncidents(**found)


def going_on() -> list[Incident]:
    """Those that have not ended: what nobody has acknowledged first, and of that what is broken or unreachable."""
    severity = Case(When(handling.BROKEN, then=Value(0)), default=Value(1))
    return list(incidents().filter(ended_at=None).order_by("urgency", severity, "-began_at", "id")[:MOST_OPEN])


def incidents() -> QuerySet[Any]:
    """All of them with `standing`, its place in `STANDINGS`, and `urgency`, which sorts them by it."""
    closed, acknowledged = Q(ended_at__isnull=False), Q(acknowledged_at__isnull=False)
    return Incident.objects.annotate(
        standing=Case(
            When(closed, then=Value("closed")), When(acknowledged, then=Value("acknowledged")), default=Value("open")
        ),
        urgency=Case(When(closed, then=Value(2)), When(acknowledged, then=Value(1)), default=Value(0)),
    )


def lasting_since(days: int, now: datetime) -> Q:
    """Those that had not ended when a day of the reader's zone began. days: how many before today that day is."""
    midnight = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    return Q(ended_at=None) | Q(ended_at__gte=midnight - timedelta(days=days))


def with_cause(rows: QuerySet[Any], cause: str) -> QuerySet[Any]:
    """cause: as the filter names it (`causes`)."""
    named = Case(
        When(key="", then=Value(REPORTED, output_field=TextField())),
        When(value="", then=F("key")),
        default=Concat("key", Value("=", output_field=TextField()), "value"),
    )
    chosen: QuerySet[Any] = rows.annotate(cause=named).filter(cause=cause)
    return chosen


def counted_by_cause(chosen: Q) -> Mapping[str, Counter[str]]:
    """cause, of all incidents -> how many of the chosen ones are in each state."""
    found: dict[str, Counter[str]] = {}
    columns = incidents().order_by().values_list("standing", "key", "value")
    for standing, key, value, count in columns.annotate(count=Count("pk", filter=chosen)):
        found.setdefault(taint_text(key, value) or REPORTED, Counter())[standing] += count
    return found


def ordered(rows: QuerySet[Any], sort: str) -> QuerySet[Any]:
    """The most urgent and severe first, then the newest, unless the address sorts by a column."""
    lasted = ExpressionWrapper(Coalesce("ended_at", Value(datetime.now(UTC))) - F("began_at"), Duration())
    by_severity = [handling.urgency()]
    columns = {"severity": by_severity, "cause": [F("key"), F("value")], "since": [F("began_at")], "lasted": [lasted]}
    keys: Any = columns.get(sort.removeprefix("-"))
    if keys is None:
        severity = Case(When(ended_at=None, then=handling.urgency()), default=Value(0))
        return rows.order_by("urgency", severity.desc(), Coalesce("ended_at", "began_at").desc(), "id")
    directed = (key.desc() if sort.startswith("-") else key.asc() for key in keys)
    return rows.order_by(*directed, F("ended_at").desc(nulls_first=True), "-began_at", "id")


def concerned(
    *, node: str, device: DeviceKey | None, chosen: Collection[DeviceKey] | None, snapshot: DeviceSnapshot
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
    # A node is impaired itself, whatever is published there.
    found = set(rows.filter(source=SOURCES.NODE, node=node).values_list("incident_id", flat=True)) if node else set()
    columns = ("incident_id", "source", "node", "driver", "pool", "device")
    for incident, source, at, *place in rows.values_list(*columns).distinct():
        named = _named(source, (place[0], place[1], place[2]), at, snapshot)
        if device is not None and source in STATE_OF_SOURCE:
            named = [(device, at)] if device[3] == at or (device, at) in named else []
        if any((not node or where == node) and (chosen is None or one in chosen) for one, where in named):
            found.add(incident)
    return found


def accepted_by(device_class: str, snapshot: DeviceSnapshot) -> frozenset[DeviceKey]:
    """The published devices that the class accepts; none for a class that does not exist. Raises: TimeLimitExceeded."""
    selectors = class_selectors().get(device_class)
    if selectors is None:
        return frozenset()
    verdict = judge(selectors, snapshot.published)
    if verdict.unjudged:
        raise TimeLimitExceeded
    return frozenset(one.key for one in verdict.matching)


def _named(
    source: str, place: tuple[str, str, str], node: str, snapshot: DeviceSnapshot
) -> list[tuple[DeviceKey, str]]:
    """(device, node) of what is impaired. A rule names no node, so it may be several devices of one name."""
    if source == SOURCES.NODE:
        line = line_named(snapshot, node)
        return [(one.key, node) for tile in line.tiles for one in tile.candidates] if line is not None else []
    if source == SOURCES.POOL:
        return [(one.key, one.node) for one in snapshot.named(*place) if one.key[3] == node]
    if not all(place) or source == SOURCES.RULE:
        found = [(one.key, one.node) for one in snapshot.named(*place)]
        if found or not all(place):
            return found
    return [(snapshot.find(*place, node), node)]


def described(person: Person, incidents: Iterable[Incident], snapshot: DeviceSnapshot) -> list[IncidentRow]:
    """Three queries for all of them; a fourth where nodes, pools or rules are impaired as a whole, and two more where
    devices were given back.
    """
    incidents = list(incidents)
    of: dict[str, list[ImpairedSpan]] = {one.id: [] for one in incidents}
    for span in spans(Impairment.objects.filter(incident__in=list(of))):
        of[span.row.incident_id].append(span)
    past = _past_holders(of)
    left = _addresses({row.claim_uid for held in past.values() for rows in held.values() for row in rows})

    def seen(namespace: str, *rest: Any) -> AffectedHolder:
        return AffectedHolder(namespace, *rest) if person.sees(namespace) else AffectedHolder(ELSEWHERE)

    def holders(incident: str, one: ImpairedDevice) -> Iterator[AffectedHolder]:
        """Those that hold it now and did so in one of its spans, then the latest that gave it back."""
        for holder in snapshot.held_by(one.key):
            if any(span.ended is None or holder.since is None or holder.since < span.ended for span in one.spans):
                url = claim_url(holder.namespace, holder.claim)
                yield seen(holder.namespace, holder.claim, holder.pods, True, url)
        for row in past.get(incident, {}).get(one.key[:3], ()):
            same_node = "" in (one.key[3], row.node) or one.key[3] == row.node
            if same_node and any(span.overlaps(row.began_at, row.ended_at) for span in one.spans):
                yield seen(row.namespace, row.claim, tuple(row.pods), False, left.get(row.claim_uid, ""))

    found = []
    for incident in incidents:
        devices = _devices(of[incident.id], past.get(incident.id, {}), snapshot)
        shown = (replace(one, holders=tuple(dict.fromkeys(holders(incident.id, one)))) for one in devices[:DESCRIBED])
        found.append(IncidentRow(incident=incident, spans=of[incident.id], devices=tuple(shown), total=len(devices)))
    return found


def _addresses(uids: Collection[str]) -> Mapping[str, str]:
    """uid of a claim -> its page, or the record of how it ended."""
    found: dict[str, str] = {}
    for part in sql.chunks(uids, sql.PARAMETERS):
        living = Claim.objects.filter(uid__in=part).values_list("uid", "namespace", "name")
        found.update((uid, claim_url(namespace, name)) for uid, namespace, name in living)
        ended = Ending.objects.filter(uid__in=part).values_list("uid", flat=True)
        found.update((uid, page_url("ending", uid)) for uid in ended)
    return found


#: (driver, pool, device) -> the rows of `PastAllocation`, the last first
PastHolders = Mapping[tuple[str, str, str], Sequence[Any]]


def _devices(found: Iterable[ImpairedSpan], past: PastHolders, snapshot: DeviceSnapshot) -> list[ImpairedDevice]:
    """Each device once, with all of its spans. What a node, a pool or a rule concerns is what is published of it now,
    and what was held meanwhile, though it is not published any more.
    """
    by_device: dict[DeviceKey, tuple[str, list[ImpairedSpan]]] = {}
    for span in found:
        named = _named(span.row.source, span.place, span.row.node, snapshot)
        if not span.exact:
            held = ((snapshot.find(*place, row.node), row) for place, rows in past.items() for row in rows)
            known = {key for key, _ in named}
            named += [
                (key, row.node)
                for key, row in dict(held).items()
                if key not in known and span.concerns(key, row.node) and span.overlaps(row.began_at, row.ended_at)
            ]
        for key, node in named:
            by_device.setdefault(key, (node, []))[1].append(span)
    devices = [ImpairedDevice(key=key, node=node, spans=tuple(own)) for key, (node, own) in by_device.items()]
    return sorted(devices, key=lambda one: (natural(one.node or one.pool), natural(one.name)))


_MEANWHILE = "p.ended_at > i.began_at AND (i.ended_at IS NULL OR p.began_at < i.ended_at) AND NOT p.admin_access"
_SAME_DEVICE = "p.driver = i.driver AND p.pool = i.pool AND p.device = i.device"
_SAME_PLACE = (
    "(i.driver = '' OR i.pool = '' OR i.device = '') AND i.driver IN ('', p.driver) AND i.pool IN ('', p.pool) "
    "AND i.device IN ('', p.device) AND (i.source <> 'node' OR i.node = p.node)"
)


def _past_holders(of: Mapping[str, Sequence[ImpairedSpan]]) -> Mapping[str, PastHolders]:
    """incident -> who held its devices during one of its spans and gave them back: the last `PAST` of each incident.

    An incident of long ago must not lose them to later holders of busy devices, so the database compares the times.
    """
    incidents_of: dict[int, list[str]] = {}
    exact = [name for name, found in of.items() if any(one.exact for one in found)]
    whole = [name for name, found in of.items() if not all(one.exact for one in found)]
    for names, matching in ((exact, _SAME_DEVICE), (whole, _SAME_PLACE)):
        for chunk in sql.chunks(names, PAGE):
            given = ", ".join(["%s"] * len(chunk))
            numbered = (
                "SELECT i.incident_id AS incident, p.id AS id, ROW_NUMBER() OVER (PARTITION BY i.incident_id "  # noqa: S608 - our names
                f"ORDER BY MAX(p.ended_at) DESC) AS place FROM {Impairment._meta.db_table} i "
                f"CROSS JOIN {PastAllocation._meta.db_table} p WHERE i.incident_id IN ({given}) "
                f"AND {matching} AND {_MEANWHILE} GROUP BY i.incident_id, p.id"
            )
            statement = f"SELECT incident, id FROM ({numbered}) numbered WHERE place <= %s"  # noqa: S608 - the same
            for incident, number in sql.fetch(statement, [*chunk, PAST]):
                incidents_of.setdefault(number, []).append(incident)
    past: dict[str, dict[tuple[str, str, str], list[Any]]] = {}
    where, holder = ("driver", "pool", "device", "node"), ("claim_uid", "namespace", "claim", "pods")
    for part in sql.chunks(incidents_of, sql.PARAMETERS):
        rows = PastAllocation.objects.filter(pk__in=part).order_by("-ended_at", "-pk")
        for row in rows.values_list("pk", *where, *holder, "began_at", "ended_at", named=True):
            for incident in incidents_of[row.pk]:
                place = (row.driver, row.pool, row.device)
                past.setdefault(incident, {}).setdefault(place, []).append(row)
    return past


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentQuery(ListQuery):
    state: str = parameter("state", known=STANDINGS)
    node: str = parameter("node")
    device_class: str = parameter("class")
    cause: str = parameter("cause")
    device: str = parameter("device")
    severity: str = parameter("severity", known=SEVERITIES)
    assignee: str = parameter("assignee")
    within: str = parameter("within", known=WITHIN)


def _affected(row: IncidentRow) -> str:
    return " ".join(f"{one.namespace}/{one.claim}" if one.claim else one.namespace for one in row.holders)


Column = ListColumn[IncidentRow]
COLUMNS = (
    Column(title="Incident", text=lambda row: row.what),
    Column(title="Cause", sort="cause", text=lambda row: f"{row.state_name}: {row.cause}"),
    Column(title="Severity", sort="severity", text=lambda row: row.severity_name),
    Column(title="Affected", css="affected", text=_affected),
    Column(title="Since", css="num", sort="since", text=lambda row: row.began.isoformat(timespec="seconds")),
    Column(
        title="Lasted",
        css="num",
        sort="lasted",
        text=lambda row: duration(row.seconds) if row.ended else "still lasts",
    ),
    Column(title="Assignee", text=lambda row: row.assignee),
    Column(title="Acknowledged", css="seen", text=lambda row: row.incident.acknowledged_by),
)


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
    revision, person, query = latest_revision(), person_of(request), IncidentQuery.read(request)
    snapshot, matching, may_acknowledge = read_devices(), Q(), person.may("update", INCIDENTS)
    if query.node or query.device_class or query.device:
        chosen = accepted_by(query.device_class, snapshot) if query.device_class else None
        device = (key_of(query.device, snapshot) or ("", "", "-", "")) if query.device else None
        matching = Q(id__in=concerned(node=query.node, device=device, chosen=chosen, snapshot=snapshot))
    if query.severity:
        matching &= handling.rated(query.severity)
    if query.assignee:
        matching &= handling.assigned(query.assignee)
    if query.within:
        matching &= lasting_since(WITHIN[query.within], datetime.now(UTC))
    by_cause, rows = counted_by_cause(matching), incidents().filter(matching).select_related("handling")
    if query.cause:
        rows = with_cause(rows, query.cause)
    counts = by_cause.get(query.cause, Counter()) if query.cause else sum(by_cause.values(), Counter[str]())
    total = sum(counts.values())
    rows = ordered(rows.filter(standing=query.state) if query.state else rows, query.sort)
    page = PageOfRows(counts.get(query.state, 0) if query.state else total, PAGE, query.page)
    named = {*by_cause, *filter(None, [query.cause])}
    nodes = {*Node.objects.values_list("name", flat=True), *filter(None, [query.node])}
    table = Table(
        id="incidents",
        topics=TOPICS,
        title="Incidents",
        css="stack incidents",
        query=query,
        columns=COLUMNS,
        read=lambda part: described(person, rows[part], snapshot),
        page=page,
        filters=(
            Filter("within", "Within", query.within, every="At any time", options=list(WITHIN)),
            Filter("node", "Node", query.node, every="All nodes", options=sorted(nodes, key=natural)),
            Filter("class", "Class", query.device_class, every="All classes", options=list(class_selectors())),
            Filter("cause", "Cause", query.cause, every="All causes", options=sorted(named)),
            Filter("device", "Device", query.device, hint="driver/pool/device"),
            Filter("severity", "Severity", query.severity, every="Every severity", options=list(SEVERITIES)),
            Filter("assignee", "Assignee", query.assignee, every="Anybody's", options=[NOBODY, *handling.assignees()]),
        ),
        tabs=state_tabs(query, STANDINGS, STANDINGS, counts, alarming="open"),
        acts=(BulkAct("Acknowledge", reverse("incidents-acknowledge")),) if may_acknowledge else (),
    )
    context = IncidentsContext(
        place="incidents",
        revision=revision,
        query=query,
        table=table,
        any=bool(named),
        matching=total,
        may_acknowledge=may_acknowledge,
        here=request.get_full_path(),
    )
    return show_list(request, "inventory/incidents/list.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentContext(PageContext):
    row: IncidentRow
    writes: Sequence[ContestedWrite]
    may_cordon: bool
    may_acknowledge: bool
    rated: bool
    comments: Sequence[IncidentComment]
    handling: HandlingForm
    comment: CommentForm
    topics: str = TOPICS
    longest_note: int = LONGEST_NOTE


@listing(SLICES)
@require_safe
def show_incident(request: HttpRequest, name: str) -> HttpResponse:
    return _draw(request, name)


def _draw(
    request: HttpRequest, name: str, *, form: HandlingForm | None = None, comment: CommentForm | None = None
) -> HttpResponse:
    """form, comment: that was refused."""
    revision, person = latest_revision(), person_of(request)
    incident = _incident(name)
    row = described(person, [incident], read_devices())[0]
    context = IncidentContext(
        place="incidents",
        revision=revision,
        row=row,
        writes=contested_writes(person, row),
        # Other writers would go on to give devices twice, of other nodes.
        may_cordon=person.may("update", NODES) and row.source != SOURCES.GUARD,
        may_acknowledge=person.may("update", INCIDENTS),
        rated=handling.is_rated(incident),
        comments=list(incident.comments.all()),
        handling=form or HandlingForm.of(incident),
        comment=comment or CommentForm(),
    )
    return render_page(request, "inventory/incidents/page.html", context, status=422 if form or comment else 200)


@listing(SLICES)
@posted_from("incident")
def acknowledge(request: HttpRequest, name: str) -> HttpResponse:
    """Raises: Http404; PermissionDenied."""
    person = demand(request, "acknowledge incidents", "update", INCIDENTS)
    incident, note = _incident(name), request.POST.get("note", "").strip()[:LONGEST_NOTE]
    if "withdraw" in request.POST:
        _note(incident, person, by="", at=None, note="")
        messages.success(request, "The acknowledgement is withdrawn.")
    else:
        _note(incident, person, by=person.name, at=datetime.now(UTC), note=note)
        messages.success(request, "Acknowledged.")
    return redirect(_back(request) or incident_url(name))


@listing(SLICES)
@posted_from("incidents")
def acknowledge_picked(request: HttpRequest) -> HttpResponse:
    """The open ones among those picked in the list. Raises: PermissionDenied."""
    person = demand(request, "acknowledge incidents", "update", INCIDENTS)
    picked = Incident.objects.filter(id__in=request.POST.getlist("pick"), acknowledged_at=None, ended_at=None)
    found = list(picked[:MOST_PICKED])
    for incident in found:
        _note(incident, person, by=person.name, at=datetime.now(UTC), note="")
    if found:
        messages.success(request, f"Acknowledged {counted(len(found), 'incident')}.")
    else:
        messages.error(request, "Nothing to acknowledge: all are over or acknowledged.")
    return redirect(_back(request) or reverse("incidents"))


@listing(SLICES)
@posted_from("incident")
def handle(request: HttpRequest, name: str) -> HttpResponse:
    """Its severity and who is on it; `mine` puts the person on it. Raises: Http404; PermissionDenied."""
    person = demand(request, "act on incidents", "update", INCIDENTS)
    incident = _incident(name)
    mine = {"assignee": person.name} if "mine" in request.POST else {}
    form = HandlingForm(request.POST.dict() | mine)
    if not form.is_valid():
        return _draw(request, name, form=form)
    form.keep(incident)
    note_change(person.identity, "update", INCIDENTS, name)
    messages.success(request, f"{form.cleaned_data['assignee'] or 'Nobody'} is on it.")
    return redirect(incident_url(name))


@listing(SLICES)
@posted_from("incident")
def comment_on(request: HttpRequest, name: str) -> HttpResponse:
    """Raises: Http404; PermissionDenied."""
    person = demand(request, "comment on incidents", "update", INCIDENTS)
    incident, form = _incident(name), CommentForm(request.POST)
    if not form.is_valid() or not form.keep(incident, person.name):
        return _draw(request, name, comment=form)
    note_change(person.identity, "create", INCIDENTS, name)
    messages.success(request, "Your comment is kept.")
    return redirect(incident_url(name))


def _note(incident: Incident, person: Person, *, by: str, at: datetime | None, note: str) -> None:
    incident.acknowledged_by, incident.acknowledged_at, incident.note = by, at, note
    incident.save(update_fields=["acknowledged_by", "acknowledged_at", "note"])
    note_change(person.identity, "update", INCIDENTS, incident.id)


def _back(request: HttpRequest) -> str:
    """The list that the button was in, and nowhere else."""
    back, here = request.POST.get("back", ""), reverse("incidents")
    return back if back == here or back.startswith(f"{here}?") else ""


def _incident(name: str) -> Incident:
    found = Incident.objects.filter(id=name).first()
    if found is None:
        raise Http404(f"Incident {name} does not exist, or is older than 90 days.")
    return found
