"""The list of pods: `/pods`.

Those that wait come first, the longest waiting at the top, each with what keeps it. `?ns=`, `?state=`, `?node=` and
`?q=` (a part of the name) narrow it, and so do `?reason=` (a cause of the overview) and `?class=` (that a waiting pod
asks for); `?page=` turns the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.decorators import login_required
from django.db.models import Case, Count, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.models import Pod as PodRow
from claims.models import Reservation
from manciple.pages.lists import Filter, ListColumn, ListQuery, PageOfRows, Table, parameter, state_tabs
from manciple.pages.people import Person, person_of
from manciple.pages.rendering import ListContext, render_page
from manciple.store.tail import latest_revision
from scheduling.causes import decode
from scheduling.mendings import UNKNOWN, Mended, read_mendings
from scheduling.messages import brief
from scheduling.models import QueuedPod
from scheduling.pages.overview.waiting import REASONS, asking_for, begun, title_of, waiting_for

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
IS_WAITING = Q(node_name="", phase__in=("", "Pending"), deleting=False)
_IS_STARTING = Q(phase__in=("", "Pending"), deleting=False) & ~Q(node_name="")
#: state -> which rows are in it
CONDITIONS = {
    "Waiting": IS_WAITING,
    "Starting": _IS_STARTING,
    "Deleting": Q(deleting=True),
    **{phase: Q(phase=phase, deleting=False) for phase in ("Running", "Succeeded", "Failed", "Unknown")},
}
_WAITING_FIRST = Case(When(IS_WAITING, then=Value(0)), default=Value(1), output_field=IntegerField())


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
        words = [begun(title_of(self.reason, mended, person.sees) or "what is mended by now")] if self.reason else []
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

    namespace: str
    name: str
    state: str
    node: str
    reason: str
    since: datetime | None
    devices: int

    @property
    def icon(self) -> str:
        return STATES.get(self.state, "i-pod")


#: What the list tells of a pod. Its rows are sorted by the database: `sort` is a field of theirs.
COLUMNS = (
    ListColumn[PodLine](title="Pod", sort="name"),
    ListColumn[PodLine](title="Namespace", sort="namespace"),
    ListColumn[PodLine](title="Status"),
    ListColumn[PodLine](title="Node", sort="node_name"),
    ListColumn[PodLine](title="Devices", css="num"),
    ListColumn[PodLine](title="Why it waits"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsContext(ListContext):
    """waits_for: what the pods that are shown have in common, in words; waiting: how many wait."""

    query: PodQuery
    waits_for: str
    waiting: int
    may_create: bool


@login_required
@require_safe
def list_pods(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    query = PodQuery.read(request)
    person = person_of(request)
    seen = person.seen(PodRow.objects.all())
    mended = read_mendings() if query.reason else UNKNOWN
    chosen = query.chosen(seen, mended)
    counts = _counts(chosen)
    context = PodsContext(
        place="pods",
        revision=revision,
        query=query,
        waits_for=query.waits_for(mended, person),
        table=_table(query, chosen, counts, seen),
        waiting=counts.get("Waiting", 0),
        may_create=may_create(person),
    )
    return render_page(request, "pods/list.html", context)


def _table(
    query: PodQuery, chosen: QuerySet[PodRow], counts: Mapping[str, int], seen: QuerySet[PodRow]
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
    if sort.removeprefix("-") in {column.sort for column in COLUMNS if column.sort}:
        return rows.order_by(sort, "namespace", "name")
    since = QueuedPod.objects.filter(uid=OuterRef("uid")).values("created_at")[:1]
    return rows.annotate(since=Subquery(since)).order_by(_WAITING_FIRST, "since", "namespace", "name")


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
        namespace=row.namespace,
        name=row.name,
        state=state,
        node=row.node_name,
        reason=brief(decode(queued.cause), names_claim=False) if waits and queued else "",
        since=queued.created_at if waits and queued else None,
        devices=devices,
    )


def state_of(*, deleting: bool, phase: str, node: str) -> str:
    """What a pod's state is called, one of `STATES`."""
    if deleting:
        return "Deleting"
    if phase in ("", "Pending"):
        return "Starting" if node else "Waiting"
    return phase
