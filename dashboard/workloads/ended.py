"""What ended: `/ended`, the pods and claims that were deleted, and `/ended/UID`, one of them: why, when and by whom.

The records are `claims.endings`; people see those of namespaces that they see. Links to deleted pods and claims lead
here by way of the page "not found" (`dashboard.tools.missing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims import endings, models
from claims.models import Ending, PastAllocation
from dashboard.kit.guards import namespaced
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Natural, PageOfRows, Table, parameter, state_tabs
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.templatetags.kit import object_url, page_url
from dashboard.tools.objects import Author, ShownHistory, history_of
from inventory.models import device_url
from manciple.durations import duration
from manciple.people import Person, person_of
from manciple.store import sql
from manciple.store.event_log import latest_revision
from manciple.wire.resources import CLAIMS, PODS

#: Records on one page, and those that a CSV file reads at a time.
SHOWN, BATCH = 100, 1000
#: Devices, and records of the same name, on the page of one.
MOST_DEVICES, NAMESAKES = 100, 10
#: What records are called, by their resource.
NOUNS = {PODS: "Pod", CLAIMS: "Claim"}
#: The list's tabs -> the resource.
STATES = {"Pods": PODS, "Claims": CLAIMS}
REASONS = {str(label): value for value, label in Ending.Reason.choices}
#: What is said of how long records are kept.
KEPT = f"{endings.KEPT_FOR.days} days, and of each namespace the newest {endings.MOST:,}"


@dataclass(frozen=True, slots=True)
class EndingLine:
    """One record, for people."""

    row: Ending

    @property
    def noun(self) -> str:
        return NOUNS[self.row.resource]

    @property
    def title(self) -> str:
        return f"{self.row.namespace}/{self.row.name}"

    @property
    def url(self) -> str:
        return self.row.get_absolute_url()

    @property
    def author(self) -> Author:
        return Author(self.row.author or "")

    @property
    def why(self) -> str:
        return self.row.get_reason_display()

    @property
    def lived(self) -> str:
        return duration((self.row.ended_at - self.row.created_at).total_seconds())

    @property
    def sentence(self) -> str:
        """`Preempted: default-scheduler: preempting to accommodate a higher priority pod. Deleted by Scheduler.`"""
        said = f"{self.why}: {self.row.message}" if self.row.message else self.why
        by = f"Deleted by {self.author.label}" if self.row.author else "The audit trail does not say who deleted it"
        return f"{said.rstrip('.')}. {by}."


ORDERS: Mapping[str, tuple[Any, ...]] = {
    "name": (Natural("namespace"), Natural("name")),
    "ended": (F("ended_at"),),
    "why": (F("reason"),),
    "by": (F("author"),),
    "node": (Natural("node"),),
}
COLUMNS = (
    ListColumn[EndingLine](title="Name", sort="name", text=lambda line: line.row.name),
    ListColumn[EndingLine](title="Kind", text=lambda line: line.noun),
    ListColumn[EndingLine](title="Namespace", extra=True, text=lambda line: line.row.namespace),
    ListColumn[EndingLine](title="Why", sort="why", text=lambda line: line.why),
    ListColumn[EndingLine](title="By", sort="by", text=lambda line: line.row.author or ""),
    ListColumn[EndingLine](title="Node", css="not-phone", sort="node", text=lambda line: line.row.node),
    ListColumn[EndingLine](title="Lived", css="num not-phone", text=lambda line: line.lived),
    ListColumn[EndingLine](title="Details", extra=True, text=lambda line: line.row.message),
    ListColumn[EndingLine](title="UID", extra=True, text=lambda line: line.row.uid),
    ListColumn[EndingLine](
        title="Ended", css="num", sort="ended", text=lambda line: line.row.ended_at.isoformat(timespec="seconds")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedQuery(ListQuery):
    state: str = parameter("state", known=STATES)
    namespace: str = parameter("ns")
    reason: str = parameter("why", known=REASONS)
    author: str = parameter("by")
    text: str = parameter("q")

    def in_every_state(self, seen: QuerySet[Ending]) -> QuerySet[Ending]:
        wanted = {
            "namespace": self.namespace,
            "reason": REASONS.get(self.reason, ""),
            "author__icontains": self.author,
            "name__icontains": self.text,
        }
        return seen.filter(**{field: value for field, value in wanted.items() if value})

    def in_order(self, rows: QuerySet[Ending]) -> QuerySet[Ending]:
        falling = self.sort.startswith("-") or not self.sort
        order = ORDERS.get(self.sort.removeprefix("-"), ORDERS["ended"])
        return rows.order_by(*(part.desc() if falling else part.asc() for part in order), "-pk")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedContext(ListContext):
    """kept: how long records are kept."""

    query: EndedQuery
    kept: str


@namespaced()
@require_safe
@opens_as_usual
def list_ended(request: HttpRequest) -> HttpResponse:
    revision, person, query = latest_revision(), person_of(request), EndedQuery.read(request)
    endings.note_authors()
    seen = Ending.objects.restrict(person)
    matching = query.in_every_state(seen)
    by_resource = dict(matching.order_by().values_list("resource").annotate(Count("pk")))
    counts = {state: by_resource.get(resource, 0) for state, resource in STATES.items()}
    chosen = matching.filter(resource=STATES[query.state]) if query.state else matching
    ordered = query.in_order(chosen)
    table = Table[EndingLine](
        id="ended",
        topics="pods: claims:",
        title="Records",
        query=query,
        columns=COLUMNS,
        read=lambda part: (
            EndingLine(row)
            for some in sql.chunks(ordered.iterator(BATCH) if part == slice(None) else ordered[part], BATCH)
            for row in some
        ),
        page=PageOfRows(counts[query.state] if query.state else sum(counts.values()), SHOWN, query.page),
        filters=(
            Filter("q", "Name", query.text, hint="A part of the name"),
            Filter.of_namespaces(query.namespace, seen.order_by().values_list("namespace", flat=True).distinct()),
            Filter("why", "Why", query.reason, every="Every reason", options=list(REASONS)),
            Filter("by", "Deleted by", query.author, hint="Deleted by"),
        ),
        tabs=state_tabs(query, {}, STATES, counts),
    )
    context = EndedContext(place="ended", revision=revision, query=query, table=table, kept=KEPT)
    return show_list(request, "workloads/ended/list.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherThing:
    """A pod or claim that belonged to the one that ended. url: of its page, or of its record."""

    name: str
    url: str
    exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingContext(PageContext):
    """others: its claims, or the pods that used it. devices: that it held, or its claims did. living: the page of an
    object of the same name that exists now, "" where there is none. namesakes: records of earlier and later ones.
    """

    line: EndingLine
    others_title: str
    others: Sequence[OtherThing]
    devices: Sequence[tuple[PastAllocation, str]]
    living: str
    namesakes: Sequence[EndingLine]
    history: ShownHistory
    kept: str


@namespaced()
@require_safe
def show_ending(request: HttpRequest, name: str) -> HttpResponse:
    """name: the UID. Raises: Http404."""
    revision, person = latest_revision(), person_of(request)
    endings.note_authors()
    seen = Ending.objects.restrict(person)
    row = seen.filter(uid=name).order_by("-pk").first()
    if row is None:
        raise Http404(f"No record of what ended has the UID {name}: records are kept for {KEPT}.")
    live = models.Pod if row.resource == PODS else models.Claim
    exists = live.objects.filter(namespace=row.namespace, name=row.name).exists()
    held = PastAllocation.objects.filter(namespace=row.namespace, began_at__lte=row.ended_at)
    if row.resource == CLAIMS:
        held = held.filter(claim_uid=row.uid)
    else:
        held = held.filter(claim__in=row.others, ended_at__gte=row.created_at)
    context = EndingContext(
        place="ended",
        revision=revision,
        line=EndingLine(row),
        others_title="Its claims" if row.resource == PODS else "Pods that used it",
        others=_others(row),
        devices=[
            (one, device_url(one.driver, one.pool, one.device, one.node))
            for one in held.order_by("driver", "pool", "device", "began_at")[:MOST_DEVICES]
        ],
        living=object_url(row.resource, row.namespace, row.name) if exists else "",
        namesakes=[one for one in called(person, row.resource, row.namespace, row.name) if one.row.pk != row.pk],
        history=history_of(request, [row.uid], namespace=row.namespace),
        kept=KEPT,
    )
    return render_page(request, "workloads/ended/page.html", context)


def _others(row: Ending) -> list[OtherThing]:
    """Two queries."""
    resource, live = (CLAIMS, models.Claim) if row.resource == PODS else (PODS, models.Pod)
    alike = {"namespace": row.namespace, "name__in": row.others}
    living = set(live._default_manager.filter(**alike).values_list("name", flat=True))
    gone = Ending.objects.filter(resource=resource, ended_at__gte=row.created_at, **alike).order_by("pk")
    records = dict(gone.values_list("name", "uid"))
    return [
        OtherThing(
            name=name,
            exists=name in living,
            url=object_url(resource, row.namespace, name)
            if name in living or name not in records
            else page_url("ending", records[name]),
        )
        for name in row.others
    ]


def called(person: Person, resource: str, namespace: str, name: str) -> list[EndingLine]:
    """The records of this name that they see, the latest first."""
    rows = Ending.objects.restrict(person).filter(resource=resource, namespace=namespace, name=name)
    return [EndingLine(row) for row in rows.order_by("-pk")[:NAMESAKES]]
