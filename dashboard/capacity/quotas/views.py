"""Quotas: `/quotas`, and `/quotas/NAMESPACE/NAME` with one, what it keeps waiting, and other limits to try.

`?try=1&hard.KEY=AMOUNT` tells what these limits would refuse and writes nothing; only the button under that, for who
may update the quota, sets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from claims.kinds.quotas import RESOURCE_QUOTA, ResourceQuota
from claims.kinds.resource_usage import ALIASES, COUNT, QuotaLimits, Usage, parsed
from claims.quotas import count_for, extended_names
from dashboard.capacity.quotas.forms import LimitsForm, NewQuotaForm
from dashboard.capacity.quotas.reading import (
    ClassUse,
    QuotaLimit,
    QuotaLine,
    UnplacedPod,
    may_read,
    read_class_use,
    read_quotas,
    read_waiting,
)
from dashboard.capacity.quotas.rehearsal import CountedQuota, LimitsRehearsal, rehearse
from dashboard.kit import links, undo
from dashboard.kit.forms import posted_from
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, parameter, sorted_by
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.rights import namespaced
from dashboard.kit.saved_views import opens_as_usual
from dashboard.tools.objects import HistoryPage, asked, show_history
from inventory.kinds.devices import DeviceClass
from manciple.api import verbs
from manciple.people import Person, demand, demand_sight, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import listed
from manciple.wire.errors import ApiError
from manciple.wire.resources import CLASSES, NAMESPACES, QUOTAS, kind

#: Pods that are named.
NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaQuery(ListQuery):
    namespace: str = parameter("ns")


def _limit_in_words(limit: QuotaLimit) -> str:
    return f"{limit.key} {0 if limit.used is None else limit.used} of {limit.hard}"


#: What the list tells of a quota.
COLUMNS = (
    ListColumn[QuotaLine](
        title="Quota", sort="name", key=lambda line: (line.name, line.namespace), text=lambda line: line.name
    ),
    ListColumn[QuotaLine](
        title="Namespace",
        sort="namespace",
        key=lambda line: (line.namespace, line.name),
        text=lambda line: line.namespace,
    ),
    ListColumn[QuotaLine](
        title="Used of its limits",
        sort="used",
        key=lambda line: -line.fullest,
        text=lambda line: "; ".join(_limit_in_words(one) for one in line.limits),
    ),
    ListColumn[QuotaLine](
        title="Devices held",
        sort="held",
        key=lambda line: -sum(line.held.values()),
        text=lambda line: "; ".join(f"{name} {count}" for name, count in line.held.items()),
    ),
    ListColumn[QuotaLine](
        title="Waiting", css="num", sort="waiting", key=lambda line: line.waiting, text=lambda line: line.waiting
    ),
    ListColumn[QuotaLine](
        title="Kept waiting",
        css="num",
        sort="refused",
        key=lambda line: line.kept_waiting,
        text=lambda line: line.kept_waiting,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasContext(ListContext):
    """total: quotas that the person may read, whatever the filter; form: of a new one, None for who may make none."""

    query: QuotaQuery
    total: int
    form: NewQuotaForm | None
    namespaces: Sequence[str]
    classes: Sequence[str]


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
@opens_as_usual
def list_quotas(request: HttpRequest) -> HttpResponse:
    """The list; a POST makes a quota."""
    return _create(request) if request.method == "POST" else _draw_list(request)


def _create(request: HttpRequest) -> HttpResponse:
    namespace = request.POST.get("namespace", "").strip()
    person = demand(request, "create quotas", "create", QUOTAS, namespace)
    form = NewQuotaForm(request.POST)
    if form.is_valid():
        wanted = form.quota()
        try:
            made = verbs.create(RESOURCE_QUOTA, wanted, namespace=namespace, identity=person.identity)
        except ApiError as refusal:
            form.complain(refusal)
        else:
            step = undo.UndoStep.of(RESOURCE_QUOTA, None, made)
            undo.offer(request, f"Created quota {made.metadata.name}.", [step])
            return redirect(links.quota_url(namespace, made.metadata.name))
    return _draw_list(request, form)


def _draw_list(request: HttpRequest, form: NewQuotaForm | None = None) -> HttpResponse:
    revision, person = latest_revision(), person_of(request)
    query = QuotaQuery.read(request)
    found = read_quotas(person)
    chosen = [one for one in found if query.namespace in ("", one.namespace)]
    table = Table(
        id="quotas",
        topics="quotas: pods: claims: events:",
        title="Quotas",
        query=query,
        columns=COLUMNS,
        rows=sorted_by(COLUMNS, query.sort, chosen),
        filters=(Filter.of_namespaces(query.namespace, (one.namespace for one in found)),),
    )
    may_create = person.may_somewhere("create", QUOTAS)
    context = QuotasContext(
        place="quotas",
        revision=revision,
        query=query,
        table=table,
        total=len(found),
        form=(form or NewQuotaForm.in_namespace(query.namespace)) if may_create else None,
        namespaces=[one.name for one in objects.list(kind(NAMESPACES)).items if person.sees(one.name)],
        classes=[one.name for one in objects.list(kind(CLASSES)).items],
    )
    return show_list(request, "capacity/quotas/list.html", context, status=422 if form else 200)


@namespaced()
@require_safe
def show_quota(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """One quota; with `?try=1` what other limits would refuse."""
    quota = _quota(request, namespace, name)
    if asked(request):
        return _show_history(request, quota)
    return _draw(request, quota, LimitsForm(quota, request.GET if "try" in request.GET else None))


def _quota(request: HttpRequest, namespace: str, name: str) -> ResourceQuota:
    """Raises: Http404, also for who may not read it."""
    person = demand_sight(request, namespace, f"ResourceQuota {name}")
    stored = objects.get(RESOURCE_QUOTA, namespace, name) if may_read(person, namespace) else None
    if stored is None:
        raise Http404(f"ResourceQuota {name} does not exist.")
    return cast("ResourceQuota", objects.decode(RESOURCE_QUOTA, stored.text))


def _show_history(request: HttpRequest, quota: ResourceQuota) -> HttpResponse:
    namespace, name = quota.metadata.namespace, quota.metadata.name
    page = HistoryPage(
        place="quotas",
        crumbs=(("/quotas", "Quotas"), (f"/quotas?ns={namespace}", namespace)),
        word="Quota",
        name=name,
        url=links.quota_url(namespace, name),
        topics=f"quotas:{namespace}",
        yaml=links.yaml_url("resourcequotas", namespace, name),
    )
    return show_history(request, page, [quota.metadata.uid], namespace=namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaContext(PageContext):
    """rehearsal: what the limits in the form would refuse; None where none are tried. named: pods that are named."""

    line: QuotaLine
    namespace: str
    classes: Sequence[ClassUse]
    form: LimitsForm
    rehearsal: LimitsRehearsal | None
    may_edit: bool
    named: int = NAMED


def _draw(request: HttpRequest, quota: ResourceQuota, form: LimitsForm) -> HttpResponse:
    revision, person, namespace = latest_revision(), person_of(request), quota.metadata.namespace
    lines = read_quotas(person, namespace=namespace)
    line = next((one for one in lines if one.name == quota.metadata.name), None)
    if line is None:
        raise Http404(f"ResourceQuota {quota.metadata.name} does not exist.")
    waiting = read_waiting(namespace)
    context = QuotaContext(
        place="quotas",
        revision=revision,
        line=line,
        namespace=namespace,
        classes=read_class_use(namespace, [quota], waiting),
        form=form,
        rehearsal=_rehearsed(person, quota, form, lines, waiting) if form.is_bound and form.is_valid() else None,
        may_edit=person.may("update", QUOTAS, namespace),
    )
    return render_page(request, "capacity/quotas/page.html", context, status=422 if request.method == "POST" else 200)


def _rehearsed(
    person: Person, quota: ResourceQuota, form: LimitsForm, lines: list[QuotaLine], waiting: list[UnplacedPod]
) -> LimitsRehearsal:
    limits = QuotaLimits.of(form.wanted(quota))
    tried = CountedQuota(limits=limits, used=_used(person, quota, limits))
    others = [
        CountedQuota(limits=QuotaLimits.of(one.quota), used=parsed(one.quota.status.used))
        for one in lines
        if one.name != quota.metadata.name
    ]
    return rehearse(quota.spec.hard, tried, others, waiting, extended_names(listed(CLASSES, DeviceClass)[1]))


def _used(person: Person, quota: ResourceQuota, limits: QuotaLimits) -> Usage:
    """What the quota's status tells. What it does not tell of is counted, where `person` could count it themselves."""
    namespace, told = quota.metadata.namespace, parsed(quota.status.used)
    missing = {
        key: amount for key, amount in limits.hard.items() if key not in told and _may_count(person, namespace, key)
    }
    counted = count_for(namespace, replace(limits, hard=missing)) if missing else {}
    return {key: amount for key, amount in {**counted, **told}.items() if key in limits.hard}


def _may_count(person: Person, namespace: str, key: str) -> bool:
    resource = key.removeprefix(COUNT) if key.startswith(COUNT) else ALIASES.get(key, "")
    return not resource or person.may("list", resource, namespace)


@namespaced()
@posted_from("quota")
def change_quota(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """Set the limits that were tried."""
    quota = _quota(request, namespace, name)
    person = demand(request, "change quotas", "update", QUOTAS, namespace)
    form = LimitsForm(quota, request.POST)
    if not form.is_valid() or (after := _set(form, quota, person)) is None:
        return _draw(request, quota, form)
    said = f"The limits of quota {name} are set."
    undo.offer(request, said, [undo.UndoStep.of(kind(QUOTAS), quota, after)])
    return redirect(links.quota_url(namespace, name))


def _set(form: LimitsForm, quota: ResourceQuota, person: Person) -> ResourceQuota | None:
    meta = quota.metadata
    try:
        after: ResourceQuota = verbs.modify(
            kind(QUOTAS),
            form.wanted,
            namespace=meta.namespace,
            name=meta.name,
            identity=person.identity,
            verb="update",
        ).object
    except ApiError as refusal:
        form.refuse(refusal)
        return None
    return after
