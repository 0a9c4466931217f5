"""The pages of ResourceClaimTemplates.

- `/templates`: every template, how many claims were made from it, and how many of those wait.
- `/templates/NAMESPACE/NAME`: what it asks for, the pods that name it, the claims made from it.
- `/templates/NAMESPACE/NAME/delete`: what that would do (GET), and doing it (POST).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import Case, Count, Exists, F, OrderBy, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from claims.kinds.resource_claims import DeviceRequest, ResourceClaimTemplate
from claims.models import AllocatedDevice, Claim, PodClaim, Template
from dashboard.kit.guards import namespaced
from dashboard.kit.lists import (
    Filter,
    ListColumn,
    ListQuery,
    Natural,
    PageOfRows,
    Table,
    bulk_acts,
    giving_way,
    parameter,
)
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.previews import ActionEffect, ActionPreview, consequences, not_changed, only_with, show_preview
from dashboard.kit.rendering import ListContext, ValueContext, render_page, show_list
from dashboard.templatetags.kit import page_url, template_url, yaml_url
from dashboard.tools import objects as history
from dashboard.workloads.claims.queries import ClaimRow, read_claims
from dashboard.workloads.claims.sheet import configurations, document_yaml
from manciple.api import verbs
from manciple.people import Person, demand_edit, demand_sight, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.store.records import Stored
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError
from manciple.wire.resources import FINISHED_PHASES, TEMPLATES, Key, kind

#: Claims that a template's page lists.
SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRow:
    """One template, and what became of it. pods: entries of pods that name it; waiting, devices: of its claims."""

    namespace: str
    name: str
    created_at: datetime
    asks: str
    requests: Sequence[DeviceRequest]
    pods: int
    claims: int
    waiting: int
    devices: int

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateQuery(ListQuery):
    text: str = parameter("q")
    namespace: str = parameter("ns")


#: What the list tells of a template.
COLUMNS = (
    ListColumn[TemplateRow](title="Template", sort="name", text=lambda row: row.key),
    ListColumn[TemplateRow](title="Asks for", sort="asks", text=lambda row: row.asks),
    ListColumn[TemplateRow](title="Pods", css="num", sort="pods", text=lambda row: row.pods),
    ListColumn[TemplateRow](title="Claims", css="num", sort="claims", text=lambda row: row.claims),
    ListColumn[TemplateRow](title="Waiting", css="num", sort="waiting", text=lambda row: row.waiting),
    ListColumn[TemplateRow](title="Devices in claims", css="num", sort="devices", text=lambda row: row.devices),
    ListColumn[TemplateRow](
        title="Age", css="num", sort="age", text=lambda row: f"{row.created_at:%Y-%m-%dT%H:%M:%SZ}"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatesContext(ListContext):
    query: TemplateQuery


@namespaced()
@require_safe
@opens_as_usual
def list_templates(request: HttpRequest) -> HttpResponse:
    revision, person, query = latest_revision(), person_of(request), TemplateQuery.read(request)
    seen = Template.objects.restrict(person)
    chosen = seen.filter(name__contains=query.text)
    if query.namespace:
        chosen = chosen.filter(namespace=query.namespace)
    page = PageOfRows.unless_few(chosen.count(), query.page)
    ordered = _with_use(chosen).order_by(*_order(query.sort), "namespace", "name")
    table = Table(
        id="templates",
        topics="template: claims: pods:",
        title="Templates",
        query=query,
        columns=COLUMNS,
        read=lambda part: _rows(ordered[part]),
        page=page,
        filters=(
            Filter("q", "Name", query.text, hint="Name"),
            Filter.of_namespaces(query.namespace, seen.order_by().values_list("namespace", flat=True).distinct()),
        ),
        acts=bulk_acts(TEMPLATES, "delete") if person.may_somewhere("delete", TEMPLATES) else (),
    )
    context = TemplatesContext(place="claims", revision=revision, query=query, table=table)
    return show_list(request, "workloads/templates/list.html", context)


def _order(sort: str) -> Sequence[OrderBy]:
    """As the address asks; else by name, as the API lists them."""
    columns: Mapping[str, Any] = {
        "name": Natural("name"), "asks": F("requests"), "age": F("created_at"), "pods": F("pods"),
        "claims": F("claims"), "waiting": F("waiting"), "devices": F("devices"),
    }  # fmt: skip
    column = columns.get(sort.removeprefix("-"))
    return () if column is None else (OrderBy(column, descending=sort.startswith("-")),)


def _made() -> QuerySet[Claim]:
    named = PodClaim.objects.filter(
        namespace=OuterRef("namespace"), claim=OuterRef("name"), template=OuterRef(OuterRef("name"))
    )
    return Claim.objects.filter(Exists(named), namespace=OuterRef("namespace")).order_by()


def _number(rows: QuerySet[Any, Any]) -> Coalesce:
    return Coalesce(Subquery(rows.values("namespace").values(number=Count("pk"))), 0)


def _with_use(templates: QuerySet[Template]) -> QuerySet[Template]:
    named = PodClaim.objects.filter(namespace=OuterRef("namespace"), template=OuterRef("name"), claim="").order_by()
    of_claim = PodClaim.objects.filter(
        namespace=OuterRef("claim__namespace"), claim=OuterRef("claim__name"), template=OuterRef(OuterRef("name"))
    )
    held = AllocatedDevice.objects.filter(Exists(of_claim), claim__namespace=OuterRef("namespace"), admin_access=False)
    devices = held.order_by().values("claim__namespace").values(number=Count("pk"))
    return templates.annotate(
        pods=_number(named),
        claims=_number(_made()),
        waiting=_number(_made().filter(allocated=False, deleting=False)),
        devices=Coalesce(Subquery(devices), 0),
    )


def _rows(templates: Iterable[Any]) -> list[TemplateRow]:
    """With what the documents of these templates ask for. templates: with their use."""
    listed = list(templates)
    stored = objects.get_many(kind(TEMPLATES), {(row.namespace, row.name) for row in listed}) if listed else ()
    documents = {(one.namespace, one.name): decoded(one, ResourceClaimTemplate) for one in stored}
    return [
        TemplateRow(
            namespace=row.namespace,
            name=row.name,
            created_at=row.created_at,
            asks=row.requests,
            requests=documents[row.namespace, row.name].spec.spec.devices.requests,
            pods=row.pods,
            claims=row.claims,
            waiting=row.waiting,
            devices=row.devices,
        )
        for row in giving_way(listed)
        if (row.namespace, row.name) in documents
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatePage:
    """One template, for one person. living: pods that name it and have not ended; unmade: those of them without their
    claim; made: claims from it, of which some are waiting; devices: that these hold; claims: those that are shown, what
    waits first.
    """

    template: ResourceClaimTemplate
    living: int
    unmade: Sequence[str]
    made: int
    waiting: int
    devices: int
    claims: Sequence[ClaimRow]
    yaml: str
    may_edit: bool

    @property
    def meta(self) -> ObjectMeta:
        return self.template.metadata

    @property
    def configurations(self) -> list[tuple[tuple[str, ...], str, str]]:
        return configurations(self.template.spec.spec.devices)

    @property
    def copies(self) -> list[tuple[str, str]]:
        """(key, value) of the labels and annotations that its claims get."""
        given = self.template.spec.metadata
        return sorted({**given.labels, **given.annotations}.items())

    @property
    def more(self) -> int:
        return self.made - len(self.claims)


@namespaced()
@require_safe
def show_template(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    revision = latest_revision()
    person = demand_sight(request, namespace, f"ResourceClaimTemplate {name}")
    if history.asked(request):
        return _show_history(request, namespace, name)
    context = ValueContext(place="claims", revision=revision, page=_read_page(person, namespace, name))
    return render_page(request, "workloads/templates/page.html", context)


def _show_history(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    claims, templates = page_url("claims"), page_url("templates")
    page = history.HistoryPage(
        place="claims",
        crumbs=((claims, "Claims"), (templates, "Templates"), (f"{templates}?ns={namespace}", namespace)),
        word="Template",
        name=name,
        url=template_url(namespace, name),
        topics=f"template:{namespace}/{name}",
        yaml=yaml_url(TEMPLATES, namespace, name),
    )
    return history.show_history(request, page, [_stored(namespace, name).uid], namespace=namespace)


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def delete_template(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    person = demand_sight(request, namespace, f"ResourceClaimTemplate {name}")
    demand_edit(request, f"delete templates in {namespace}", namespace, resource=TEMPLATES)
    revision = latest_revision()
    page = _read_page(person, namespace, name)
    if request.method != "POST":
        lists = ("Claims", page_url("claims")), ("Templates", page_url("templates"))
        above = (*lists, (name, template_url(namespace, name)))
        effect = effect_of_deletion(page.made, page.unmade)
        preview = ActionPreview(action="Delete", noun="template", uid=page.meta.uid, above=above, effect=effect)
        return show_preview(request, preview, place="claims", revision=revision)
    options = only_with(request.POST.get("uid", ""))
    try:
        verbs.delete(kind(TEMPLATES), namespace=namespace, name=name, identity=person.identity, options=options)
    except ApiError as refusal:
        messages.error(request, not_changed(refusal, noun="template"))
        context = ValueContext(place="claims", revision=revision, page=page)
        return render_page(request, "workloads/templates/page.html", context, status=refusal.code)
    messages.success(request, f"Deleted template {name}.")
    return redirect("templates")


def effect_of_deletion(claims: int, unmade: Iterable[str]) -> ActionEffect:
    """What deleting a template would do. claims: made from it; unmade: pods that have none from it yet."""
    stay = "claim created from it stays, with what it holds"
    if claims != 1:
        stay = "claims created from it stay, with what they hold"
    waits = "would wait until the template exists again."
    lines = [
        ("Claims", f"{claims} {stay}." if claims else ""),
        *(("Pods", f"Pod {name} {waits}") for name in unmade),
        ("Pods", "New pods that name it wait until it exists again."),
    ]
    return ActionEffect(consequences=consequences(lines))


def effects_of_deletion(keys: Sequence[Key]) -> Mapping[Key, ActionEffect]:
    return {
        (row.namespace, row.name): effect_of_deletion(row.claims, _using(row.namespace, row.name)[1])
        for namespace, name in keys
        for row in _rows(_with_use(Template.objects.filter(namespace=namespace, name=name)))
    }


def _using(namespace: str, name: str) -> tuple[Sequence[str], Sequence[str]]:
    """The pods that name a template and have not ended, and those of them without a claim from it."""
    named = PodClaim.objects.filter(namespace=namespace, template=name)
    living = named.exclude(pod__phase__in=FINISHED_PHASES).exclude(pod__deleting=True, pod__node_name="")
    rows = list(living.order_by("pod__name").values_list("pod_id", "pod__name", "claim"))
    served = {pod for pod, _, claim in rows if claim}
    using = [(pod, title) for pod, title, claim in rows if not claim]
    return [title for _, title in using], [title for pod, title in using if pod not in served]


def _stored(namespace: str, name: str) -> Stored:
    """Raises: Http404."""
    stored = objects.get(kind(TEMPLATES), namespace, name)
    if stored is None:
        raise Http404(f"ResourceClaimTemplate {namespace}/{name} does not exist.")
    return stored


def _read_page(person: Person, namespace: str, name: str) -> TemplatePage:
    """Raises: Http404."""
    stored = _stored(namespace, name)
    named = PodClaim.objects.filter(namespace=namespace, template=name).exclude(claim="")
    made = Claim.objects.filter(namespace=namespace, name__in=named.values("claim")).order_by()
    waits = Q(allocated=False, deleting=False)
    numbers = made.aggregate(made=Count("pk"), waiting=Count("pk", filter=waits))
    urgent = made.order_by(Case(When(waits, then=0), default=1), "created_at").values_list("uid", flat=True)[:SHOWN]
    claims = read_claims(Claim.objects.filter(uid__in=list(urgent)))
    living, unmade = _using(namespace, name)
    return TemplatePage(
        template=decoded(stored, ResourceClaimTemplate),
        living=len(living),
        unmade=unmade,
        **numbers,
        devices=AllocatedDevice.objects.filter(claim__in=made.values("uid"), admin_access=False).count(),
        claims=sorted(claims, key=lambda row: (row.state != "pending", row.created_at)),
        yaml=document_yaml(stored.text),
        may_edit=person.may_edit(namespace),
    )
