"""The pages of workloads: the list, one workload in tabs, and what can be done to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from claims.models import AllocatedDevice, Reservation
from dashboard.kit.guards import namespaced
from dashboard.kit.lists import Filter, PageOfRows, Table, state_tabs
from dashboard.kit.notifying import notify_url
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.previews import Link
from dashboard.kit.rendering import ListContext, PageContext, ValueContext, render_page, show_list
from dashboard.kit.undo import UndoStep, offer
from dashboard.templatetags.kit import counted, page_url, workload_url, yaml_url
from dashboard.tools.objects import TAB, ShownHistory, history_of
from dashboard.workloads.autoscalers import scaled_by
from dashboard.workloads.owners import WORDS, Owner, owner_of
from dashboard.workloads.pods import queries as pods
from dashboard.workloads.pods.queries import Moment
from dashboard.workloads.workloads import actions, queries
from dashboard.workloads.workloads.actions import ACTS, NotAsked, WorkloadPreview
from dashboard.workloads.workloads.queries import (
    ICONS,
    ConditionLine,
    CronRuns,
    JobProgress,
    OwnedPod,
    RevisionLine,
    WorkloadLine,
    WorkloadQuery,
)
from dashboard.workloads.workloads.why import WorkloadVerdict, read_verdict
from insight.start_estimates import QueuePlace, read_queue
from inventory.reachability import lost_nodes
from manciple.notifications.models import Happening
from manciple.people import Person, demand_sight, denied, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.registry import Kind, registry
from workloads.kinds.jobs import JOB
from workloads.kinds.summaries import SUMMARIES, State, Summary, summary_of
from workloads.models import Autoscaler, Workload

#: Workloads on one page of the list.
PAGE = 100
#: What every address of a workload begins with -> its resource.
_PLURALS: Mapping[str, str] = {resource.partition(".")[0]: resource for resource in SUMMARIES}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadsContext(ListContext):
    query: WorkloadQuery
    may_create: bool


@namespaced()
@require_safe
@opens_as_usual
def list_workloads(request: HttpRequest) -> HttpResponse:
    revision, query, person = latest_revision(), WorkloadQuery.read(request), person_of(request)
    seen = Workload.objects.restrict(person)
    in_every_state = query.in_every_state(seen)
    counts = dict(in_every_state.order_by().values_list("state").annotate(Count("pk")))
    rows = query.in_order(in_every_state)
    table = Table[WorkloadLine](
        id="workloads",
        topics="workloads: pods:",
        title="Workloads",
        query=query,
        columns=queries.COLUMNS,
        read=lambda part: queries.read_workloads(rows[part]),
        page=PageOfRows(counts.get(query.state, 0) if query.state else sum(counts.values()), PAGE, query.page),
        filters=(
            Filter("q", "Name", query.text, hint="A part of the name"),
            Filter("kind", "Kind", query.kind, every="All kinds", options=sorted(queries.RESOURCES)),
            Filter.of_namespaces(query.namespace, seen.order_by().values_list("namespace", flat=True).distinct()),
        ),
        tabs=state_tabs(
            query,
            {},
            [state for state in State if counts.get(state) or state == query.state],
            counts,
            alarming=State.STUCK,
        ),
    )
    may_create = person.may_somewhere("create", JOB.resource)
    context = WorkloadsContext(place="workloads", revision=revision, query=query, table=table, may_create=may_create)
    return show_list(request, "workloads/workloads/list.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPage:
    """One workload, for one person. counts: state of pods -> how many. number: of its pods. devices: that they hold.

    tabs: (name, word, number beside it or ""). acts: (last part of the address, button, whether it destroys). shown,
    conditions, runs, revisions, moments, history: of the `tab` that shows them. above: what controls it; scaled_by: its
    autoscalers. notify_url: where somebody asks to be told of Jobs that end, "" for who has.
    """

    object: Any
    kind: str
    plural: str
    summary: Summary
    above: Owner | None
    scaled_by: Sequence[Autoscaler]
    number: int
    devices: int
    counts: Sequence[tuple[str, int]]
    pods_url: str
    tabs: Sequence[tuple[str, str, str]]
    tab: str
    acts: Sequence[tuple[str, str, bool]]
    why: WorkloadVerdict | None
    place: QueuePlace | None
    shown: Sequence[OwnedPod] = ()
    conditions: Sequence[ConditionLine] = ()
    revisions: Sequence[RevisionLine] = ()
    may_undo: bool = False
    moments: Sequence[Moment] = ()
    progress: JobProgress | None = None
    runs: CronRuns | None = None
    children: Sequence[WorkloadLine] = ()
    may_read_logs: bool = False
    notify_url: str = ""
    history: ShownHistory | None = None

    @property
    def meta(self) -> Any:
        return self.object.metadata

    @property
    def icon(self) -> str:
        return ICONS[self.summary.state]

    @property
    def ready_words(self) -> str:
        """`2 of 3 pods ready`; of a Job, completions."""
        if self.kind == "CronJob":
            return f"{counted(self.summary.ready, 'Job')} running"
        what = "completions done" if self.kind == "Job" else "pods ready"
        return f"{self.summary.ready:,} of {self.summary.wanted:,} {what}"

    @property
    def url(self) -> str:
        return workload_url(self.plural, self.meta.namespace, self.meta.name)

    @property
    def extend_url(self) -> str:
        """Where the time limit is extended; "" for who may not."""
        return f"{self.url}/extend" if any(key == "extend" for key, *_ in self.acts) else ""

    @property
    def yaml(self) -> str:
        return yaml_url(_PLURALS[self.plural], self.meta.namespace, self.meta.name)

    @property
    def topics(self) -> str:
        namespace = self.meta.namespace
        topics = f"workloads:{namespace} pods:{namespace} claims:{namespace} events:{namespace}"
        return f"{topics} slices classes nodes" if self.why is not None else topics

    @property
    def more(self) -> int:
        return self.number - len(self.shown)


@namespaced()
@require_safe
def show_workload(request: HttpRequest, resource: str, namespace: str, name: str) -> HttpResponse:
    """`/workloads/RESOURCE/NAMESPACE/NAME`, in parts that `?tab=` names: pods, rollout, events, history."""
    revision = latest_revision()
    person, kind, one = _stored(request, resource, namespace, name)
    summary, rows = summary_of(kind.resource, one), queries.pods_of(one.metadata.uid)
    now = datetime.now(UTC)
    unreachable = lost_nodes(now)
    counts = pods.count_states(rows, unreachable)
    number = sum(counts.values())
    tabs = [
        ("pods", "Pods", f"{number:,}"),
        *([("rollout", "Revisions", "")] if kind.kind in queries.REVISED else []),
        ("events", "Events", ""),
        (TAB, "History", ""),
    ]
    tab = next((word for word, _, _ in tabs if word == request.GET.get("tab")), "pods")
    why = read_verdict(one, summary, rows, unreachable, person)
    held = Reservation.objects.filter(uid__in=rows.values("uid")).values("claim")
    page = WorkloadPage(
        object=one,
        kind=kind.kind,
        plural=resource,
        summary=summary,
        above=owner_of(one, person),
        scaled_by=scaled_by(kind.kind, namespace, name, person) if kind.kind in actions.SCALED else (),
        number=number,
        devices=AllocatedDevice.objects.filter(claim__in=held, admin_access=False).count(),
        counts=[(state, counts[state]) for state in pods.STATES if counts.get(state)],
        pods_url=f"{page_url('pods')}?{urlencode({'workload': f'{resource}/{namespace}/{name}'}, safe='/')}",
        tabs=tabs,
        tab=tab,
        acts=[
            (key, actions.word_of(key, one), act.destroys)
            for key, act in ACTS.items()
            if key != "undo" and act.offers(one) and act.is_allowed(person, kind, namespace, name)
        ],
        why=why,
        place=read_queue(now).get(why.of[0]) if why and why.of and why.waits else None,
        progress=queries.read_progress(one, now),
        runs=queries.read_runs(one, now),
        children=queries.read_children(one, person) if tab == "pods" else (),
        may_read_logs=person.may("get", "pods/log", namespace),
        notify_url=_notify_url(one, person),
        shown=queries.read_pods(rows, unreachable, person) if tab == "pods" else (),
        conditions=queries.condition_lines(one) if tab in ("pods", "rollout") else (),
        revisions=queries.read_revisions(one) if tab == "rollout" else (),
        may_undo=person.may("patch", kind.resource, namespace, name),
        moments=pods.read_moments(one) if tab == "events" else (),
        history=history_of(request, [one.metadata.uid], namespace=namespace) if tab == TAB else None,
    )
    context = ValueContext(place="workloads", revision=revision, page=page)
    return render_page(request, "workloads/workloads/page.html", context)


def _notify_url(one: Any, person: Person) -> str:
    if one.kind != JOB.kind or one.status.is_finished:
        return ""
    return notify_url(person, Happening.JOB_ENDED, one.metadata.namespace)


def _stored(request: HttpRequest, resource: str, namespace: str, name: str) -> tuple[Person, Kind, Any]:
    """Raises: Http404 where there is no such workload, or the person may not know of it."""
    known = _PLURALS.get(resource)
    word = WORDS[known] if known else "Workload"
    person = demand_sight(request, namespace, f"{word} {name}")
    stored = None
    if known is not None and person.may("list", known, namespace):
        stored = objects.get(registry.by_resource(known), namespace, name)
    if stored is None or known is None:
        raise Http404(f"{word} {name} does not exist in namespace {namespace}.")
    kind = registry.by_resource(known)
    return person, kind, objects.decode(kind, stored.text)


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def act_on_workload(request: HttpRequest, resource: str, namespace: str, name: str, act: str) -> HttpResponse:
    """A GET shows what would follow, a POST does it."""
    revision = latest_revision()
    person, kind, one = _stored(request, resource, namespace, name)
    known = ACTS.get(act)
    if known is None or kind.kind not in known.kinds:
        raise Http404(f"{kind.kind}s have no such act.")
    if not known.is_allowed(person, kind, namespace, name):
        what = f"{known.word.lower()} {kind.plural} in namespace {namespace}"
        raise denied(request, what, known.verb, known.resources[0] or kind.resource, namespace)
    values = request.POST if request.method == "POST" else request.GET
    asked = values.get(known.asks, "").strip() if known.asks else ""
    url = workload_url(resource, namespace, name)
    preview = WorkloadPreview(
        key=act,
        act=known,
        word=actions.word_of(act, one),
        noun=kind.kind,
        uid=one.metadata.uid,
        above=(*_pages_above(namespace), (name, url)),
        effect=None,
        asked=asked,
        scaled_by=scaled_by(kind.kind, namespace, name, person) if act == "scale" else (),
        topics=f"workloads:{namespace} pods:{namespace}",
    )
    try:
        planned = actions.plan(act, one, asked, person)
    except NotAsked as missing:
        if act == "undo":
            raise Http404(str(missing)) from missing
        preview = replace(preview, asked=asked or actions.usual(act, one), complaint=str(missing))
        return _show(request, preview, revision, status=422 if missing.args[0] else 200)
    helpless = bool(planned.effect.refused) and planned.change is None  # whatever is asked
    preview = replace(preview, effect=planned.effect, asked="" if helpless else asked or actions.usual(act, one))
    if request.method != "POST":
        return _show(request, preview, revision)
    if planned.effect.refused:
        return _show(request, preview, revision, status=409)
    error, after = actions.carry_out(act, planned, kind=kind, one=one, uid=values.get("uid", ""), person=person)
    if error:
        return _show(request, replace(preview, error=error), revision, status=409)
    said = actions.done(act, kind, one, after)
    may_undo = act in actions.UNDONE and person.may("patch", kind.resource, namespace, name)
    if after is not None and planned.change is not None and may_undo:
        offer(request, said, [UndoStep.of(kind, one, after)])
    else:
        messages.success(request, said)
    if act == "delete":
        return redirect(page_url("workloads"))
    return redirect(workload_url("jobs" if act in actions.MAKES_JOB else resource, namespace, after.metadata.name))


def _pages_above(namespace: str) -> tuple[Link, ...]:
    url = page_url("workloads")
    return (("Workloads", url), (namespace, f"{url}?{urlencode({'ns': namespace})}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActContext(PageContext):
    preview: WorkloadPreview


def _show(request: HttpRequest, preview: WorkloadPreview, revision: int, *, status: int = 200) -> HttpResponse:
    context = ActContext(place="workloads", revision=revision, preview=preview)
    return render_page(request, "workloads/workloads/act.html", context, status=status)
