"""Reads pods: the rows of the list, and of one pod its claims, containers, events, log and negotiation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import quote, urlencode

from django.db.models import Case, Count, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, NullIf

from claims.causes.causes import ClaimNotCreated, QuotaUsedUp, decode
from claims.causes.messages import brief, sentence
from claims.devices.holdings import Other
from claims.event_recorder import CAUSE
from claims.kinds.pod_logs import agent_query
from claims.kinds.pods import ContainerState, Pod, listed_resources
from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim, names_controller, node_of
from claims.models import AllocatedDevice, Reservation
from claims.models import Pod as PodRow
from claims.pod_claims import ClaimReference, may_be_negotiated, references
from claims.pod_logs import LogPlace, find
from dashboard.kit.lists import ListColumn, ListQuery, parameter
from dashboard.kit.meters import MeterCharts, asked_window, draw
from dashboard.kit.previews import Link
from dashboard.templatetags.kit import claim_url, device_url, pod_url, said_by
from dashboard.tools.events import WARNING, EventQuery
from dashboard.tools.events import find as find_events
from dashboard.workloads.owners import Owner, makers_of, owners_of
from dashboard.workloads.waiting import REASONS, asking_for, begun, title_of, waiting_for
from insight.start_estimates import QueuePlace
from inventory import agents
from inventory.meters import SLOT, series_of
from inventory.meters import history as meter_history
from inventory.models import MeterBlock
from manciple.api.streams import PAGES
from manciple.api.subresources import StreamRequest
from manciple.durations import moment
from manciple.gaps import lacking_in
from manciple.people import Person
from manciple.store import history, objects
from manciple.store.objects import decoded
from manciple.store.records import author_of
from manciple.wire.base import ApiObject
from manciple.wire.deferred import deferred_function
from manciple.wire.errors import ApiError
from manciple.wire.machinery import Event
from manciple.wire.quantity import whole
from manciple.wire.resources import CLAIMS, EVENTS, FINISHED_PHASES, NEW_PHASES, kind
from scheduling.claims.extended_resources import ServedRequest
from scheduling.models import QueuedPod
from scheduling.rehearsal.repairs import Mended

#: Lines of a log that are shown by default, and at most; bytes that are read of it.
LINES, MOST_LINES, MOST_BYTES = 500, 5_000, 512 * 1024
#: What a log may be narrowed to, besides what its address says; seconds, at most a year.
LINE_CHOICES = (100, LINES, MOST_LINES)
SINCE_CHOICES = ((0, "any time"), (300, "the last 5 min"), (3600, "the last hour"), (86400, "the last day"))
LONGEST_SINCE = 366 * 86400
#: Seconds to wait for the agent: a person waits for the page.
AGENT_TIMEOUT = 5.0
#: Nodes of a negotiation that are not folded.
NODES = 8


#: Neither bound nor over.
IS_WAITING = Q(node_name="", phase__in=NEW_PHASES, deleting=False)
#: state -> its icon, in the order of the tabs
STATES: Mapping[str, str] = {
    "Waiting": "i-wait",
    "Starting": "i-time",
    "Running": "i-ok",
    "Unreachable": "i-alert",
    "Succeeded": "i-ok",
    "Failed": "i-alert",
    "Deleting": "i-x",
    "Unknown": "i-alert",
}
SINCE = Subquery(QueuedPod.objects.filter(uid=OuterRef("uid")).values("created_at")[:1])
#: Of reservations: devices that their claims hold. By admin access they only look at some.
HELD = Count("claim__devices", filter=Q(claim__devices__admin_access=False))
_DEVICES = Subquery(
    Reservation.objects.filter(uid=OuterRef("uid")).values("uid").annotate(held=HELD).values("held"),
    output_field=IntegerField(),
)
#: `sort` in the address -> what the database sorts by
_ORDERS: Mapping[str, Any] = {
    "name": F("name"),
    "namespace": F("namespace"),
    "since": SINCE,
    "node_name": NullIf(F("node_name"), Value("")),
    "devices": Coalesce(_DEVICES, Value(0)),
}


def state_of(*, deleting: bool, phase: str, node: str, unreachable: bool) -> str:
    """The name of a pod's state, one of `STATES`. unreachable: its node is, so what it does now is not known."""
    if deleting:
        return "Deleting"
    if unreachable and phase not in FINISHED_PHASES:
        return "Unreachable"
    if phase in NEW_PHASES:
        return "Starting" if node else "Waiting"
    return phase


def rows_by_state(unreachable: Collection[str]) -> dict[str, Q]:
    """`state_of` for rows, in the order of the tabs. unreachable: nodes."""
    lost = Q(node_name__in=unreachable) & ~Q(phase__in=FINISHED_PHASES)
    rows = {
        "Waiting": IS_WAITING,
        "Starting": Q(phase__in=NEW_PHASES) & ~Q(node_name="") & ~lost,
        "Running": Q(phase="Running") & ~lost,
        "Unreachable": lost,
        "Unknown": Q(phase="Unknown") & ~lost,
    }
    return {
        state: Q(deleting=True) if state == "Deleting" else rows.get(state, Q(phase=state)) & Q(deleting=False)
        for state in STATES
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PodQuery(ListQuery):
    """The filters of the list, and its order: waiting pods come first, the longest-waiting at the top."""

    namespace: str = parameter("ns")
    state: str = parameter("state", known=STATES)
    node: str = parameter("node")
    text: str = parameter("q")  # a part of the name
    reason: str = parameter("reason", known=REASONS)  # why pods wait: see `overview.waiting.key_of`
    device_class: str = parameter("class")  # that a waiting pod requests
    workload: str = parameter("workload")  # PLURAL/NAMESPACE/NAME of what made them

    def in_common(self, mended: Mended, person: Person) -> str:
        """What the pods that are shown wait for; "" where all pods are shown."""
        title = title_of(self.reason, mended, person.sees) or "what has been fixed meanwhile"
        asks = f"they ask for `{self.device_class}`" if self.device_class else ""
        return ", ".join(filter(None, (begun(title) if self.reason else "", asks)))

    def in_every_state(self, rows: QuerySet[PodRow], mended: Mended) -> QuerySet[PodRow]:
        """The rows that pass all filters but the state, which the tabs count."""
        wanted = {"namespace": self.namespace, "node_name": self.node, "name__contains": self.text}
        rows = rows.filter(**{name: value for name, value in wanted.items() if value})
        if self.workload:
            rows = rows.filter(controller_uid__in=makers_of(self.workload))
        if self.reason:
            rows = rows.filter(uid__in=waiting_for(self.reason, mended))
        return rows.filter(uid__in=asking_for(self.device_class)) if self.device_class else rows

    def in_order(self, rows: QuerySet[PodRow], unreachable: Collection[str]) -> QuerySet[PodRow]:
        by_state = rows_by_state(unreachable)
        if self.state:
            rows = rows.filter(by_state[self.state])
        column = self.sort.removeprefix("-")
        places = (When(found, then=Value(place)) for place, found in enumerate(by_state.values()))
        order = Case(*places, output_field=IntegerField()) if column == "status" else _ORDERS.get(column)
        if order is not None:
            first = order.desc(nulls_last=True) if self.sort.startswith("-") else order.asc(nulls_last=True)
            return rows.order_by(first, "namespace", "name")
        waiting_first = Case(When(IS_WAITING, then=Value(0)), default=Value(1), output_field=IntegerField())
        return rows.order_by(waiting_first, SINCE.asc(nulls_last=True), "namespace", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    """One row of the list. since: when it began to wait; devices: how many its claims hold. reason: why it waits, does
    not run or is not ready.
    """

    uid: str
    namespace: str
    name: str
    state: str
    node: str
    reason: str
    since: datetime | None
    devices: int
    claims: tuple[str, ...]
    owner: Owner | None = None
    place: QueuePlace | None = None

    @property
    def icon(self) -> str:
        return STATES.get(self.state, "i-pod")

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def claim_links(self) -> list[Link]:
        return [(name, claim_url(self.namespace, name)) for name in self.claims]


COLUMNS = (
    ListColumn[PodLine](title="Pod", sort="name", text=lambda line: line.name),
    ListColumn[PodLine](title="Namespace", sort="namespace", text=lambda line: line.namespace),
    ListColumn[PodLine](title="Status", sort="status", text=lambda line: line.state),
    ListColumn[PodLine](
        title="Waits since",
        sort="since",
        extra=True,
        text=lambda line: line.since.isoformat(timespec="seconds") if line.since else "",
    ),
    ListColumn[PodLine](
        title="Place in the queue",
        extra=True,
        text=lambda line: f"{line.place.position} of {line.place.of}" if line.place else "",
    ),
    ListColumn[PodLine](
        title="Estimated start",
        extra=True,
        text=lambda line: (
            line.place.starts_at.isoformat(timespec="seconds") if line.place and line.place.starts_at else ""
        ),
    ),
    ListColumn[PodLine](title="Workload", text=lambda line: line.owner.title if line.owner else ""),
    ListColumn[PodLine](title="Node", sort="node_name", text=lambda line: line.node),
    ListColumn[PodLine](title="Devices", css="num", sort="devices", text=lambda line: line.devices),
    ListColumn[PodLine](title="Claims", extra=True, text=lambda line: " ".join(line.claims)),
    ListColumn[PodLine](title="UID", extra=True, text=lambda line: line.uid),
    ListColumn[PodLine](title="Why it waits", text=lambda line: line.reason.replace("`", "")),
)
#: In these columns waiting pods have nothing.
_OF_PLACED = frozenset({"node", "devices"})


def columns_of(state: str) -> Sequence[ListColumn[PodLine]]:
    """The columns of one state's tab."""
    if state != "Waiting":
        return COLUMNS
    return [replace(one, extra=one.extra or one.name in _OF_PLACED) for one in COLUMNS]


def count_states(rows: QuerySet[PodRow], unreachable: Collection[str]) -> dict[str, int]:
    """state -> number of pods. unreachable: nodes. One query."""
    lost = [When(node_name__in=unreachable, then=Value("lost"))] if unreachable else []
    node = Case(When(node_name="", then=Value("")), *lost, default=Value("yes"))
    counts: dict[str, int] = {}
    for deleting, phase, on, number in (
        rows.order_by().values_list("deleting", "phase", node).annotate(number=Count("uid"))
    ):
        state = state_of(deleting=deleting, phase=phase, node=on, unreachable=on == "lost")
        counts[state] = counts.get(state, 0) + number
    return counts


#: Newest events that are looked at for what a quota refused.
REFUSALS_READ = 200
#: Columns that need the queue's places.
OF_QUEUE = frozenset({"place-in-the-queue", "estimated-start"})


def read_lines(
    rows: Iterable[PodRow],
    unreachable: Collection[str],
    person: Person,
    places: Mapping[str, QueuePlace] = MappingProxyType({}),
) -> list[PodLine]:
    """Five queries, however many rows; one or two more where a claim is still to be made. unreachable: nodes."""
    rows = list(rows)
    uids = [row.uid for row in rows]
    queued = {one.uid: one for one in QueuedPod.objects.filter(uid__in=uids).only("uid", "cause", "created_at")}
    reserved = Reservation.objects.filter(uid__in=uids).values_list("uid").annotate(number=HELD)
    held: dict[str, int] = dict(reserved)
    owners = owners_of((row.controller_uid for row in rows), person)
    causes = {uid: decode(one.cause) for uid, one in queued.items()}
    said = _refusals(person) if any(isinstance(one, ClaimNotCreated) for one in causes.values()) else {}
    lines = []
    for row in rows:
        state = state_of(
            deleting=row.deleting, phase=row.phase, node=row.node_name, unreachable=row.node_name in unreachable
        )
        waiting = queued.get(row.uid) if state == "Waiting" else None
        cause = causes[row.uid] if waiting else None
        if waiting and isinstance(cause, ClaimNotCreated):
            last, refusal = said.get((row.namespace, row.name), (None, cause))
            cause = refusal if last and last >= waiting.created_at else cause
        lines.append(
            PodLine(
                uid=row.uid,
                namespace=row.namespace,
                name=row.name,
                state=state,
                node=row.node_name,
                reason=brief(cause, names_claim=False) if waiting else row.trouble,
                since=waiting.created_at if waiting else None,
                devices=held.get(row.uid, 0),
                claims=tuple(row.claim_names),
                owner=owners.get(row.controller_uid),
                place=places.get(row.uid),
            )
        )
    return lines


def _refusals(person: Person) -> dict[tuple[str, str], tuple[datetime | None, QuotaUsedUp]]:
    """Pods -> when a quota last refused one of their claims, and why: the scheduler only knows that it is not made."""
    query = EventQuery(type=WARNING, kind="Pod", text="exceeded quota: ")
    found: dict[tuple[str, str], tuple[datetime | None, QuotaUsedUp]] = {}
    for event in find_events(query, person, shown=REFUSALS_READ).events:
        if isinstance(event.cause, QuotaUsedUp):
            found.setdefault((event.namespace, event.name), (moment(event.at), event.cause))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLine:
    """One entry of the pod's claims: the claim, if it exists, and the devices that it holds on `node`.

    serves: of the claim for its extended resources, which has no entry.
    """

    entry: str
    name: str  # "" before the claim is created
    template: str  # "" for a claim that the pod names
    state: str
    requests: int = 0
    devices: tuple[DeviceRequestAllocationResult, ...] = ()
    node: str = ""
    others: tuple[Other, ...] = ()  # its other users
    serves: tuple[ServedRequest, ...] = ()
    claim: ResourceClaim | None = None

    @property
    def icon(self) -> str:
        icons = {"Allocated": "i-ok", "Reserved": "i-ok", "Unreachable": "i-alert", "Does not exist": "i-alert"}
        return icons.get(self.state, "i-wait")

    @property
    def users(self) -> list[Link | str]:
        """Its other users: pods have pages."""
        namespace = self.claim.metadata.namespace if self.claim else ""
        return [(one.name, pod_url(namespace, one.name)) if one.resource == "pods" else str(one) for one in self.others]


def read_claims(
    pod: Pod, extended: tuple[ServedRequest, ...] = (), *, unreachable: bool = False
) -> tuple[ClaimLine, ...]:
    """One query. extended: what serves its extended resources, where devices do. unreachable: the pod's node is."""
    needed = [one for one in references(pod) if one.needed]
    special = ClaimReference(entry="", claim=extended[0].claim or None, generated=True) if extended else None
    keys = [(pod.metadata.namespace, one.claim) for one in (*needed, special) if one and one.claim]
    stored = {one.name: decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), keys)}
    templates = {entry.name: entry.resource_claim_template_name or "" for entry in pod.spec.resource_claims}
    lines = [_claim(pod, one, stored.get(one.claim or ""), templates[one.entry]) for one in needed]
    if special:
        lines.append(replace(_claim(pod, special, stored.get(special.claim or ""), ""), serves=extended))
    if unreachable:
        return tuple(replace(line, state="Unreachable") if line.devices else line for line in lines)
    return tuple(lines)


def _claim(pod: Pod, reference: ClaimReference, claim: ResourceClaim | None, template: str) -> ClaimLine:
    if claim is None:
        state = "Does not exist" if reference.claim else "Not created yet"
        if lacking_in(pod.metadata.namespace, CLAIMS):
            state = "Not known"
        return ClaimLine(entry=reference.entry, name=reference.claim or "", template=template, state=state)
    allocation = claim.status.allocation
    return ClaimLine(
        entry=reference.entry,
        name=claim.metadata.name,
        template=template,
        state="Pending" if not allocation else "Reserved" if claim.status.reserved_for else "Allocated",
        requests=len(claim.spec.devices.requests),
        devices=allocation.devices.results if allocation else (),
        node=node_of(allocation) if allocation else "",
        others=tuple(
            Other(one.full_resource, one.name) for one in claim.status.reserved_for if one.uid != pod.metadata.uid
        ),
        claim=claim,
    )


def read_meters(namespace: str, claims: Collection[str], query: Mapping[str, str]) -> MeterCharts | None:
    """What the meters of the devices of these claims read since they were allocated."""
    now = datetime.now(UTC)
    window = asked_window(query, now)
    rows = AllocatedDevice.objects.filter(claim__namespace=namespace, claim__name__in=claims).select_related("claim")
    since = {
        (row.node or row.pool, series_of((row.driver, row.pool, row.device))): row.claim.allocated_at or window.begin
        for row in rows
    }
    if not since:
        return None
    read = meter_history(MeterBlock.Owner.NODE, {node for node, _ in since}, since=window.begin, until=now)
    series = [[one for one in read.get(key, ()) if one.at + SLOT > begin] for key, begin in since.items()]
    return draw(series, query, window, keep="tab=claims&")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUse:
    """The devices that a container sees of one claim, of one request of it, or of one extended resource (`title`).

    given_by: the driver whose controller allocated it, which may name no devices.
    """

    title: str
    devices: list[Link]
    given_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLine:
    """One container: its state, and the devices that it sees. health: by resourceID, as reported by the driver."""

    name: str
    role: str  # "", "init" or "sidecar"
    image: str
    state: str
    detail: str
    since: str | None
    restarts: int
    uses: tuple[ContainerUse, ...]
    health: Mapping[str, str]


def container_lines(pod: Pod, claims: Iterable[ClaimLine], *, unreachable: bool) -> tuple[ContainerLine, ...]:
    """In the order in which they run. unreachable: the node is, so what it last reported may be out of date."""
    by_entry = {claim.entry: claim for claim in claims}
    statuses = {one.name: one for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    first = [(one, "sidecar" if one.restart_policy == "Always" else "init") for one in pod.spec.init_containers]
    lines = []
    for container, role in (*first, *((one, "") for one in pod.spec.containers)):
        status = statuses.get(container.name)
        state, detail, since = _state(status.state if status else ContainerState())
        if unreachable and state not in FINISHED_PHASES:
            state, detail, since = "Unknown", f"{state} when the node was last heard from", None
        uses = []
        for use in container.resources.claims:
            line = by_entry.get(use.name)
            allocation = line.claim.status.allocation if line and line.claim else None
            title = f"{use.name} / {use.request}" if use.request else use.name
            given_by = allocation.controller_name if allocation else ""
            uses.append(ContainerUse(title=title, devices=_visible(line, use.request), given_by=given_by))
        special, extended = by_entry.get(""), dict[str, list[Link]]()
        for one in special.serves if special else ():
            if one.container == container.name:
                extended.setdefault(one.resource, []).extend(_visible(special, one.request))
        lines.append(
            ContainerLine(
                name=container.name,
                role=role,
                image=container.image,
                state=state,
                detail=detail,
                since=since,
                restarts=status.restart_count if status else 0,
                uses=(*uses, *(ContainerUse(title=name, devices=devices) for name, devices in extended.items())),
                health={
                    one.resource_id: "Unknown" if unreachable else one.health
                    for resource in (status.allocated_resources_status if status else ())
                    for one in resource.resources
                },
            )
        )
    return tuple(lines)


def _visible(claim: ClaimLine | None, request: str) -> list[Link]:
    """The devices of the claim that a container sees: all, or those of one request and its alternatives."""
    return [
        (f"{one.pool} / {one.device}", device_url(one.driver, one.pool, one.device, claim.node))
        for one in (claim.devices if claim else ())
        if claim and (not request or one.request.partition("/")[0] == request)
    ]


def _state(state: ContainerState) -> tuple[str, str, str | None]:
    """(word, detail, since when)."""
    if state.running is not None:
        return "Running", "", state.running.started_at
    if state.terminated is not None:
        ended = state.terminated
        why = ended.reason if ended.reason not in ("Completed", "Error", "") else ""
        parts = [why, f"exit code {ended.exit_code}" if ended.exit_code else "", ended.message]
        return "Succeeded" if not ended.exit_code else "Failed", "; ".join(filter(None, parts)), ended.finished_at
    waiting = state.waiting
    return "Not started", "; ".join(filter(None, (waiting.reason, waiting.message))) if waiting else "", None


#: Reasons of events that say why something waits.
_WAITING = frozenset({"FailedScheduling", "FailedResourceClaimCreation", "Unhealthy", "BackOff"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One thing that happened. count: how often; about: the claim, unless it is about the pod itself."""

    at: str | None
    text: str
    first: str | None = None
    reason: str = ""
    source: str = ""
    about: str = ""
    count: int = 1
    warning: bool = False


class _About:
    """Selects the Events about one pod and some claims of its namespace."""

    def __init__(self, uid: str, claims: Collection[str]) -> None:
        self._uid, self._claims = uid, claims

    def matches(self, values: Any, /) -> bool:
        if values.get("involvedObject.uid") == self._uid:
            return True
        return values.get("involvedObject.kind") == "ResourceClaim" and values["involvedObject.name"] in self._claims

    @property
    def mentions(self) -> Collection[str]:
        return (self._uid, *self._claims)


def read_moments(about: ApiObject, claims: Collection[str] = ()) -> list[Moment]:
    """What events say of a pod and its claims, or of a workload; the oldest first."""
    meta = about.metadata
    page = objects.list(kind(EVENTS), namespace=meta.namespace, fields=_About(meta.uid, claims))
    notes = history.notes([one.revision for one in page.items])
    owner = next((f" by {one.kind} {one.name}" for one in meta.owner_references if one.controller), "")
    created = Moment(at=meta.creation_timestamp, text=f"{about.kind} created{owner}")
    moments = [created]
    for stored in page.items:
        event = decoded(stored, Event)
        last = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
        cause = decode(event.metadata.annotations.get(CAUSE, ""))
        component = event.source.component or event.reporting_component
        subject, waits = event.involved_object, event.reason in _WAITING
        moments.append(
            Moment(
                at=last,
                text=f"Waits: {brief(cause, names_claim=False)}" if cause else sentence(event.message.strip()),
                first=event.first_timestamp if event.count > 1 and event.first_timestamp != last else None,
                reason=event.reason,
                source=said_by(component, author_of(notes.get(stored.revision, "")).outsider),
                about=subject.name if subject.uid != meta.uid else "",
                count=max(event.count, 1),
                warning=waits or event.type == "Warning",
            )
        )
    return sorted(moments, key=lambda one: (one.at or "", one is not created, one.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """since: lines of the last so many seconds, 0 for all. follow_url: the log as it grows; download_url: all of it.

    error: why there is no log to show, in words.
    """

    containers: tuple[str, ...]
    container: str
    previous: bool
    timestamps: bool
    lines: int
    since: int
    follow_url: str
    download_url: str
    text: str = ""
    error: str = ""
    waiting: bool = False

    @property
    def choices_of_lines(self) -> Sequence[int]:
        return sorted({*LINE_CHOICES, self.lines})

    @property
    def choices_of_time(self) -> Sequence[tuple[int, str]]:
        own = [] if self.since in dict(SINCE_CHOICES) else [(self.since, f"the last {self.since} s")]
        return (*SINCE_CHOICES, *own)


def read_log(pod: Pod, query: Mapping[str, str]) -> Log:
    """The last lines of a container, from the agent of its node. Never fails: a refusal is the log's `error`.

    `container` chooses, `previous=1` asks for the attempt before the latest, `lines` for a number of lines, `since` for
    those of so many seconds, `timestamps=1` for when each was printed.
    """
    spec, meta = pod.spec, pod.metadata
    names = tuple(one.name for one in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers))
    container = query.get("container", "")
    container = container if container in names else names[0]
    previous, timestamps = (query.get(name, "") not in ("", "0") for name in ("previous", "timestamps"))
    number = whole(query.get("lines", ""))
    lines = LINES if number is None else min(max(number, 1), MOST_LINES)
    since = min(max(whole(query.get("since", "")) or 0, 0), LONGEST_SINCE)
    options = {"container": container}
    if previous:
        options["previous"] = "true"
    if timestamps:
        options["timestamps"] = "true"
    if since:
        options["sinceSeconds"] = str(since)
    shown = {**options, "tailLines": str(lines)}
    log = Log(
        containers=names,
        container=container,
        previous=previous,
        timestamps=timestamps,
        lines=lines,
        since=since,
        follow_url="" if previous else opened_by_page(pod, "log", {**shown, "follow": "true"}),
        download_url=opened_by_page(pod, "log", options),
    )
    if not spec.node_name:
        return replace(log, waiting=True)
    shown["limitBytes"] = str(MOST_BYTES)
    try:
        place = find(StreamRequest(namespace=meta.namespace, name=meta.name, query=shown))
        return replace(log, text=asyncio.run(_read(place)))
    except ApiError as refusal:
        return replace(log, error=refusal.message)
    except TimeoutError:
        return replace(log, error=f"the agent of node {pod.spec.node_name} did not answer within {AGENT_TIMEOUT:g} s")


async def _read(place: LogPlace) -> str:
    """Raises: ApiError, TimeoutError."""
    if place.agent is None:
        return ""
    text = bytearray()
    async with asyncio.timeout(AGENT_TIMEOUT), agents.ask(place.agent, place.path, agent_query(place.options)) as parts:
        async for part in parts:
            text += part
            if len(text) >= MOST_BYTES:
                break
    return bytes(text[:MOST_BYTES]).decode(errors="replace")


def opened_by_page(pod: Pod, subresource: str, query: Mapping[str, str]) -> str:
    """The address under which a page opens this stream or session of the pod."""
    namespace, name = (quote(part, safe="") for part in pod.key)
    return f"{PAGES}/api/v1/namespaces/{namespace}/pods/{name}/{subresource}?{urlencode(query)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """containers: those that run. url: where the page opens a session, without its options."""

    containers: tuple[str, ...]
    container: str
    url: str


def read_terminal(pod: Pod, query: Mapping[str, str]) -> Terminal:
    status = pod.status
    statuses = (
        *status.container_statuses,
        *status.ephemeral_container_statuses,
        *status.init_container_statuses,
    )
    running = tuple(one.name for one in statuses if one.state.running is not None)
    wanted = query.get("container", "")
    container = wanted if wanted in running else next(iter(running), "")
    return Terminal(containers=running, container=container, url=opened_by_page(pod, "exec", {}))


Step = Literal["offers", "selects", "withdraws", "answers", "allocates", "asks back", "gives back", "binds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiationTurn:
    """One step. took: since the step that it answers, or else since the step before; "" if one write was both."""

    at: datetime
    who: str
    what: Step
    text: str
    entry: str = ""
    refuses: bool = False
    took: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedTurn:
    """A step that the negotiation waits for. since: None if the log does not reach back that far."""

    who: str
    text: str
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedNode:
    """refused_by: (driver, entry of the claim)."""

    name: str
    selected: bool
    refused_by: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """nodes: the selected one first, refused ones last. earlier: whether there were steps before the first shown."""

    awaited: tuple[AwaitedTurn, ...]
    nodes: tuple[OfferedNode, ...]
    steps: tuple[NegotiationTurn, ...]
    earlier: bool
    node: str
    lasted: str = ""

    @property
    def shown_nodes(self) -> tuple[OfferedNode, ...]:
        return self.nodes[:NODES]

    @property
    def folded_nodes(self) -> tuple[OfferedNode, ...]:
        return self.nodes[NODES:]

    @property
    def refused(self) -> int:
        return sum(bool(one.refused_by) for one in self.nodes)


#: (pod, entry -> a claim that names its driver's controller, or a resource class). KEP-3063 and its first draft are
#: read by a module that only pods with such claims import.
_read_classic: Callable[[Pod, Mapping[str, ResourceClaim]], Conversation | None] = deferred_function(
    "dashboard.workloads.pods.negotiation:read_classic_conversation"
)
_read_draft: Callable[[Pod], Conversation | None] = deferred_function(
    "dashboard.workloads.pods.negotiation:read_draft_conversation"
)


def read_conversation(pod: Pod, lines: Sequence[ClaimLine]) -> Conversation | None:
    """None unless a driver's controller has a part in it; no query unless a claim names a controller or a class."""
    if not may_be_negotiated(pod, [line.claim for line in lines if line.claim is not None]):
        return None
    classic = {line.entry: line.claim for line in lines if line.claim is not None and names_controller(line.claim)}
    if classic and (conversation := _read_classic(pod, classic)):
        return conversation
    return _read_draft(pod) if listed_resources(pod) else None
