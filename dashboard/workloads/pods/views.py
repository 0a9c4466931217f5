"""The list of pods: `/pods`.

Those that wait come first, the longest waiting at the top, each with what keeps it. `?ns=`, `?state=`, `?node=` and
`?q=` (a part of the name) narrow it, and so do `?reason=` (a cause of the overview) and `?class=` (that a waiting pod
asks for); `?page=` turns the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, NullIf
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.causes.causes import decode
from claims.causes.messages import brief
from claims.models import Pod as PodRow
from claims.models import Reservation
from dashboard.capacity.overview import REASONS, asking_for, begun, title_of, waiting_for
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
from dashboard.kit.rendering import ListContext, show_list
from dashboard.kit.rights import namespaced
from dashboard.kit.saved_views import opens_as_usual
from dashboard.tools.bulk.acts import delete_act
from manciple.people import Person, person_of
from manciple.store import sql
from manciple.store.event_log import latest_revision
from manciple.wire.resources import NEW_PHASES, PODS
from scheduling.models import QueuedPod
from scheduling.rehearsal.repairs import UNKNOWN, Mended, read_mendings

#: Pods on one page.
PAGE = 100

#: What a pod's state is called -> the icon beside it. In the order of the filter.
STATES = {
    "Waiting": "i-wait",
    "Starting": "i-time",
    "Running": "i-ok",
    "Succeeded": "i-ok",
    "Failed": "i-alert",
    "Deleting": "i-x",
    "Unknown": "i-alert",
}

#: Neither bound nor over.
IS_WAITING = Q(node_name="", phase__in=NEW_PHASES, deleting=False)
_IS_STARTING = Q(phase__in=NEW_PHASES, deleting=False) & ~Q(node_name="")
#: state -> which rows are in it
CONDITIONS = {
    "Waiting": IS_WAITING,
    "Starting": _IS_STARTING,
    "Deleting": Q(deleting=True),
    **{phase: Q(phase=phase, deleting=False) for phase in ("Running", "Succeeded", "Failed", "Unknown")},
}
_WAITING_FIRST = Case(When(IS_WAITING, then=Value(0)), default=Value(1), output_field=IntegerField())
_SINCE = Subquery(QueuedPod.objects.filter(uid=OuterRef("uid")).values("created_at")[:1])
_DEVICES = Subquery(
    Reservation.objects.filter(uid=OuterRef("uid")).values("uid").annotate(held=Count("claim__devices")).values("held"),
    output_field=IntegerField(),
)
#: `sort` in the address -> what the database sorts by
_ORDERS: Mapping[str, Any] = {
    "name": F("name"),
    "namespace": F("namespace"),
    "status": Case(
        *(When(condition, then=Value(place)) for place, condition in enumerate(CONDITIONS.values())),
        output_field=IntegerField(),
    ),
    "since": _SINCE,
    "node_name": NullIf(F("node_name"), Value("")),
    "devices": Coalesce(_DEVICES, Value(0)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodQuery(ListQuery):
    """What of the list is wanted, as it stands in the address."""

    namespace: str = parameter("ns")
    state: str = parameter("state", known=STATES)
    node: str = parameter("node")
    text: str = parameter("q")
    reason: str = parameter("reason", known=REASONS)  # what waiting pods wait for: see `overview.waiting.key_of`
    device_class: str = parameter("class")  # that a waiting pod asks for

    def waits_for(self, mended: Mended, person: Person) -> str:
        """What the pods have in common that are shown, in words; empty where all are."""
        words = (
            [begun(title_of(self.reason, mended, person.sees) or "what has been fixed meanwhile")]
            if self.reason
            else []
        )
        words += [f"they ask for `{self.device_class}`"] if self.device_class else []
        return ", ".join(words)

    def chosen(self, rows: QuerySet[PodRow], mended: Mended) -> QuerySet[PodRow]:
        """All but the state, which the counts tell apart."""
        wanted = {"namespace": self.namespace, "node_name": self.node, "name__contains": self.text}
        found = rows.filter(**{name: value for name, value in wanted.items() if value})
        if self.reason:
            found = found.filter(uid__in=waiting_for(self.reason, mended))
        return found.filter(uid__in=asking_for(self.device_class)) if self.device_class else found


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    """One row of the list. since: from when it waits; devices: how many its claims hold."""

    uid: str
    namespace: str
    name: str
    state: str
    node: str
    reason: str
    since: datetime | None
    devices: int
    claims: tuple[str, ...]

    @property
    def icon(self) -> str:
        return STATES.get(self.state, "i-pod")

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


#: What the list tells of a pod. Its rows are sorted by the database: see `_ORDERS`.
COLUMNS = (
    ListColumn[PodLine](title="Pod", sort="name", text=lambda line: line.name),
    ListColumn[PodLine](title="Namespace", sort="namespace", text=lambda line: line.namespace),
    ListColumn[PodLine](title="Status", sort="status", text=lambda line: line.state),
    ListColumn[PodLine](title="Waits since", sort="since", extra=True, text=lambda line: _exact(line.since)),
    ListColumn[PodLine](title="Node", sort="node_name", text=lambda line: line.node),
    ListColumn[PodLine](title="Devices", css="num", sort="devices", text=lambda line: line.devices),
    ListColumn[PodLine](title="Claims", extra=True, text=lambda line: " ".join(line.claims)),
    ListColumn[PodLine](title="UID", extra=True, text=lambda line: line.uid),
    ListColumn[PodLine](title="Why it waits", text=lambda line: line.reason.replace("`", "")),
)
#: Rows of a file are read so many at a time.
BATCH = 1000


def _exact(at: datetime | None) -> str:
    return at.isoformat(timespec="seconds") if at else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsContext(ListContext):
    """waits_for: what the pods that are shown have in common, in words; waiting: how many wait."""

    query: PodQuery
    waits_for: str
    waiting: int
    may_create: bool


@namespaced()
@require_safe
@opens_as_usual
def list_pods(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    query = PodQuery.read(request)
    person = person_of(request)
    seen = PodRow.objects.restrict(person)
    mended = read_mendings() if query.reason else UNKNOWN
    chosen = query.chosen(seen, mended)
    counts = _counts(chosen)
    acts = delete_act(PODS) if person.may_somewhere("delete", PODS) else ()
    context = PodsContext(
        place="pods",
        revision=revision,
        query=query,
        waits_for=query.waits_for(mended, person),
        table=_table(query, chosen, counts, seen, acts=acts),
        waiting=counts.get("Waiting", 0),
        may_create=may_create(person),
    )
    return show_list(request, "workloads/pods/list.html", context)


def _table(
    query: PodQuery,
    chosen: QuerySet[PodRow],
    counts: Mapping[str, int],
    seen: QuerySet[PodRow],
    *,
    acts: Sequence[BulkAct],
) -> Table[PodLine]:
    page = PageOfRows(counts.get(query.state, 0) if query.state else sum(counts.values()), PAGE, query.page)
    rows = _ordered(chosen.filter(CONDITIONS[query.state]) if query.state else chosen, query.sort)
    namespaces = seen.order_by("namespace").values_list("namespace", flat=True).distinct()
    return Table(
        id="pods-list",
        topics="pods:",
        title="Pods",
        css="stack pods",
        query=query,
        columns=COLUMNS,
        rows=read_lines(rows[page.rows]),
        all_rows=lambda: _read_all(rows),
        acts=acts,
        page=page,
        filters=(
            Filter("q", "Name", query.text, hint="A part of the name"),
            Filter.of_namespaces(query.namespace, namespaces),
            Filter("node", "Node", query.node, hint="On node"),
        ),
        tabs=state_tabs(query, {}, [one for one in STATES if counts.get(one) or one == query.state], counts),
    )


def may_create(person: Person) -> bool:
    """Whether there is a namespace in which they may make pods."""
    return person.administers or bool(person.namespaces)


def _ordered(rows: QuerySet[PodRow], sort: str) -> QuerySet[PodRow]:
    """As is asked for; otherwise those that wait first, the longest first; then by name."""
    wanted = _ORDERS.get(sort.removeprefix("-"))
    if wanted is not None:
        first = wanted.desc(nulls_last=True) if sort.startswith("-") else wanted.asc(nulls_last=True)
        return rows.order_by(first, "namespace", "name")
    return rows.order_by(_WAITING_FIRST, _SINCE.asc(nulls_last=True), "namespace", "name")


def _read_all(rows: QuerySet[PodRow]) -> Iterator[PodLine]:
    for some in sql.chunks(rows.iterator(chunk_size=BATCH), BATCH):
        yield from read_lines(some)


def _counts(rows: QuerySet[PodRow]) -> dict[str, int]:
    """state -> how many are in it. One query."""
    grouped = rows.order_by().values_list("deleting", "phase", _HAS_NODE).annotate(number=Count("uid"))
    found: dict[str, int] = {}
    for deleting, phase, has_node, number in grouped:
        state = state_of(deleting=deleting, phase=phase, node="yes" if has_node else "")
        found[state] = found.get(state, 0) + number
    return found


_HAS_NODE = Case(When(node_name="", then=Value(0)), default=Value(1), output_field=IntegerField())


def read_lines(rows: Iterable[PodRow]) -> list[PodLine]:
    """Three queries, however many."""
    found = list(rows)
    uids = [row.uid for row in found]
    queued = {one.uid: one for one in QueuedPod.objects.filter(uid__in=uids).only("uid", "cause", "created_at")}
    held = _held(uids)
    return [_line(row, queued.get(row.uid), held.get(row.uid, 0)) for row in found]


def _held(uids: Sequence[str]) -> dict[str, int]:
    rows = Reservation.objects.filter(uid__in=uids).values_list("uid").annotate(number=Count("claim__devices"))
    return dict(rows)


def _line(row: PodRow, queued: QueuedPod | None, devices: int) -> PodLine:
    state = state_of(deleting=row.deleting, phase=row.phase, node=row.node_name)
    waits = state == "Waiting"
    return PodLine(
        uid=row.uid,
        namespace=row.namespace,
        name=row.name,
        state=state,
        node=row.node_name,
        reason=brief(decode(queued.cause), names_claim=False) if waits and queued else "",
        since=queued.created_at if waits and queued else None,
        devices=devices,
        claims=tuple(row.claim_names),
    )


def state_of(*, deleting: bool, phase: str, node: str) -> str:
    """What a pod's state is called, one of `STATES`."""
    if deleting:
        return "Deleting"
    if phase in NEW_PHASES:
        return "Starting" if node else "Waiting"
    return phase
