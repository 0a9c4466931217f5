"""The pages of HorizontalPodAutoscalers: `/autoscalers`, and `/autoscalers/NAMESPACE/NAME` in tabs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Count, F, IntegerField, Value, When
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.kit.guards import demand_copied, namespaced
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Natural, PageOfRows, Table, parameter, state_tabs
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.previews import Link
from dashboard.kit.rendering import ListContext, ValueContext, render_page, show_list
from dashboard.templatetags.kit import workload_url, yaml_url
from dashboard.tools.objects import TAB, ShownHistory, history_of
from dashboard.workloads.owners import WORDS
from dashboard.workloads.pods.queries import Moment, read_moments
from manciple.people import Person, demand_sight, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from workloads.kinds import autoscaler_summaries
from workloads.kinds.autoscaler_summaries import AutoscalerState, AutoscalerSummary, MetricLine
from workloads.kinds.horizontal_pod_autoscalers import HORIZONTAL_POD_AUTOSCALER, HorizontalPodAutoscaler
from workloads.kinds.summaries import SUMMARIES
from workloads.models import Autoscaler

#: Autoscalers on one page of the list.
PAGE = 100
ICONS: Mapping[str, str] = {
    AutoscalerState.UNABLE: "i-alert",
    AutoscalerState.LIMITED: "i-alert",
    AutoscalerState.ACTIVE: "i-ok",
    AutoscalerState.OFF: "i-x",
    AutoscalerState.NEW: "i-wait",
}
#: What a condition is about, in the order of the page.
_CONDITIONS = {"AbleToScale": "Scaling", "ScalingActive": "Metrics", "ScalingLimited": "Limits"}
#: `Deployment` -> `deployments`
_PLURALS = {WORDS[resource]: resource.partition(".")[0] for resource in SUMMARIES}
_BY_STATE = Case(
    *(When(state=state, then=Value(place)) for place, state in enumerate(AutoscalerState)), output_field=IntegerField()
)
_ORDERS: Mapping[str, Any] = {
    "name": Natural("name"),
    "namespace": F("namespace"),
    "target": Natural("target_name"),
    "state": _BY_STATE,
    "pods": F("replicas"),
    "scaled": F("last_scaled_at"),
}


def target_url(row: Autoscaler) -> str:
    """ "" for what has no page."""
    plural = _PLURALS.get(row.target_kind, "")
    return workload_url(plural, row.namespace, row.target_name) if plural else ""


def scaled_by(kind: str, namespace: str, name: str, person: Person) -> list[Autoscaler]:
    """The autoscalers of a workload."""
    rows = Autoscaler.objects.restrict(person).filter(namespace=namespace, target_kind=kind, target_name=name)
    return list(rows.order_by("name"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerLine:
    """One row of the list."""

    row: Autoscaler

    @property
    def target(self) -> Link:
        return f"{self.row.target_kind} {self.row.target_name}", target_url(self.row)

    @property
    def icon(self) -> str:
        return ICONS.get(self.row.state, "i-wait")

    @property
    def pods(self) -> str:
        """Now, and between which numbers: `3 (1 to 8)`."""
        return f"{self.row.replicas:,} ({self.row.least:,} to {self.row.most:,})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerQuery(ListQuery):
    namespace: str = parameter("ns")
    state: str = parameter("state", known=tuple(AutoscalerState))
    text: str = parameter("q")  # a part of its name, or of its target's


COLUMNS = (
    ListColumn[AutoscalerLine](title="Autoscaler", sort="name", text=lambda line: line.row.name),
    ListColumn[AutoscalerLine](title="Namespace", sort="namespace", text=lambda line: line.row.namespace),
    ListColumn[AutoscalerLine](title="Scales", sort="target", text=lambda line: line.target[0]),
    ListColumn[AutoscalerLine](title="State", sort="state", text=lambda line: line.row.state),
    ListColumn[AutoscalerLine](title="Metrics", text=lambda line: line.row.metrics),
    ListColumn[AutoscalerLine](title="Pods", css="num", sort="pods", text=lambda line: line.pods),
    ListColumn[AutoscalerLine](
        title="Last scaled",
        css="num",
        sort="scaled",
        text=lambda line: line.row.last_scaled_at.isoformat(timespec="seconds") if line.row.last_scaled_at else "",
    ),
    ListColumn[AutoscalerLine](title="Why", text=lambda line: line.row.reason),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalersContext(ListContext):
    query: AutoscalerQuery


@namespaced()
@require_safe
@opens_as_usual
def list_autoscalers(request: HttpRequest) -> HttpResponse:
    demand_copied("autoscalers")
    revision, query, person = latest_revision(), AutoscalerQuery.read(request), person_of(request)
    seen = Autoscaler.objects.restrict(person)
    rows = seen.filter(name__icontains=query.text) | seen.filter(target_name__icontains=query.text)
    if query.namespace:
        rows = rows.filter(namespace=query.namespace)
    counts = dict(rows.order_by().values_list("state").annotate(Count("pk")))
    if query.state:
        rows = rows.filter(state=query.state)
    order = _ORDERS.get(query.sort.removeprefix("-"))
    first = (_BY_STATE,) if order is None else (order.desc() if query.sort.startswith("-") else order.asc(),)
    ordered = rows.order_by(*first, "namespace", Natural("name"))
    table = Table[AutoscalerLine](
        id="autoscalers",
        topics="autoscalers:",
        title="Autoscalers",
        query=query,
        columns=COLUMNS,
        read=lambda part: (AutoscalerLine(row=row) for row in ordered[part]),
        page=PageOfRows(counts.get(query.state, 0) if query.state else sum(counts.values()), PAGE, query.page),
        filters=(
            Filter("q", "Name", query.text, hint="Its name, or its target's"),
            Filter.of_namespaces(query.namespace, seen.order_by().values_list("namespace", flat=True).distinct()),
        ),
        tabs=state_tabs(
            query,
            {},
            [state for state in AutoscalerState if counts.get(state) or state == query.state],
            counts,
            alarming=AutoscalerState.UNABLE,
        ),
    )
    context = AutoscalersContext(place="autoscalers", revision=revision, query=query, table=table)
    return show_list(request, "workloads/autoscalers/list.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionLine:
    """word: what it is about; text: what it says; good: whether that is as it should be."""

    word: str
    text: str
    since: str | None
    good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerPage:
    """target: (word, address). moments, history: of the `tab` that shows them."""

    object: HorizontalPodAutoscaler
    summary: AutoscalerSummary
    target: Link
    metrics: Sequence[MetricLine]
    conditions: Sequence[ConditionLine]
    tabs: Sequence[tuple[str, str]]
    tab: str
    moments: Sequence[Moment] = ()
    history: ShownHistory | None = None

    @property
    def meta(self) -> Any:
        return self.object.metadata

    @property
    def kind(self) -> str:
        return HORIZONTAL_POD_AUTOSCALER.kind

    @property
    def icon(self) -> str:
        return ICONS[self.summary.state]

    @property
    def least(self) -> int:
        return 1 if self.object.spec.min_replicas is None else self.object.spec.min_replicas

    @property
    def yaml(self) -> str:
        return yaml_url(HORIZONTAL_POD_AUTOSCALER.resource, self.meta.namespace, self.meta.name)

    @property
    def topics(self) -> str:
        return f"autoscalers:{self.meta.namespace} events:{self.meta.namespace}"


@namespaced()
@require_safe
def show_autoscaler(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    demand_copied("autoscalers")
    revision, word = latest_revision(), f"Autoscaler {name}"
    person = demand_sight(request, namespace, word)
    row = Autoscaler.objects.restrict(person).filter(namespace=namespace, name=name).first()
    stored = objects.get(HORIZONTAL_POD_AUTOSCALER, namespace, name) if row is not None else None
    if row is None or stored is None:
        raise Http404(f"{word} does not exist in namespace {namespace}.")
    one = decoded(stored, HorizontalPodAutoscaler)
    tabs = [("now", "Metrics"), ("events", "Events"), (TAB, "History")]
    tab = next((key for key, _ in tabs if key == request.GET.get("tab")), "now")
    by_type = {condition.type: condition for condition in one.status.conditions}
    page = AutoscalerPage(
        object=one,
        summary=autoscaler_summaries.summary_of(one),
        target=(f"{row.target_kind} {row.target_name}", target_url(row)),
        metrics=autoscaler_summaries.metrics_of(one),
        conditions=[
            ConditionLine(
                word=word,
                text=autoscaler_summaries.meaning(known),
                since=known.last_transition_time,
                good=known.status == ("False" if type_ == "ScalingLimited" else "True"),
            )
            for type_, word in _CONDITIONS.items()
            if (known := by_type.get(type_)) is not None
        ],
        tabs=tabs,
        tab=tab,
        moments=read_moments(one) if tab == "events" else (),
        history=history_of(request, [one.metadata.uid], namespace=namespace) if tab == TAB else None,
    )
    context = ValueContext(place="autoscalers", revision=revision, page=page)
    return render_page(request, "workloads/autoscalers/page.html", context)
