"""The pages of ResourceClaimTemplates.

- `/templates`: every template, how many claims were made from it, and how many of those wait.
- `/templates/NAMESPACE/NAME`: what it asks for, the pods that name it, the claims made from it.
- `/templates/NAMESPACE/NAME/delete`: what that would do (GET), and doing it (POST).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import DeviceRequest, ResourceClaimTemplate
from claims.pod_claims import is_done
from dashboard.kit import links
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, giving_way, parameter, sorted_by
from dashboard.kit.previews import ActionEffect, ActionPreview, consequences, not_changed, only_with, show_preview
from dashboard.kit.rendering import ListContext, ValueContext, render_page, show_list
from dashboard.kit.rights import namespaced
from dashboard.kit.saved_views import opens_as_usual
from dashboard.tools.bulk.acts import delete_act
from dashboard.tools.history import views as history
from dashboard.workloads.claims.queries import ClaimRow, read_claims
from dashboard.workloads.claims.sheet import AskedDevices, document_yaml
from manciple.api import verbs
from manciple.people import Person, demand_edit, demand_sight, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.store.records import Stored
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError
from manciple.wire.resources import PODS, TEMPLATES, Key, kind
from manciple.wire.validation import natural

#: Pods and claims that a template's page lists.
SHOWN = 100


@dataclass(slots=True)
class TemplateUse:
    """What became of one template: pods that name it, and the claims made for them."""

    pods: list[Pod] = field(default_factory=list)
    living: int = 0  # pods that have not ended
    unmade: list[str] = field(default_factory=list)  # living pods whose claim is not made yet
    claims: list[ClaimRow] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return sum(line.state == "pending" for line in self.claims)

    @property
    def devices(self) -> int:
        return sum(line.devices for line in self.claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateLine:
    """One row of the list."""

    namespace: str
    name: str
    template: ResourceClaimTemplate
    use: TemplateUse

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def requests(self) -> str:
        """`2 of gpu-hopper, all of nic`."""
        asked = self.template.spec.spec.devices.requests
        return ", ".join(_in_words(one) for one in asked)


def _in_words(request: DeviceRequest) -> str:
    exactly = request.exactly
    if exactly is None:
        return f"one of {len(request.first_available)} alternatives"
    return f"{'all' if exactly.allocation_mode == 'All' else exactly.count} of {exactly.device_class_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateQuery(ListQuery):
    text: str = parameter("q")
    namespace: str = parameter("ns")


#: What the list tells of a template.
COLUMNS = (
    ListColumn[TemplateLine](
        title="Template", sort="name", key=lambda line: natural(line.name), text=lambda line: line.key
    ),
    ListColumn[TemplateLine](
        title="Asks for", sort="asks", key=lambda line: line.requests, text=lambda line: line.requests
    ),
    ListColumn[TemplateLine](
        title="Pods", css="num", sort="pods", key=lambda line: len(line.use.pods), text=lambda line: len(line.use.pods)
    ),
    ListColumn[TemplateLine](
        title="Claims",
        css="num",
        sort="claims",
        key=lambda line: len(line.use.claims),
        text=lambda line: len(line.use.claims),
    ),
    ListColumn[TemplateLine](
        title="Waiting",
        css="num",
        sort="waiting",
        key=lambda line: line.use.waiting,
        text=lambda line: line.use.waiting,
    ),
    ListColumn[TemplateLine](
        title="Devices held",
        css="num",
        sort="devices",
        key=lambda line: line.use.devices,
        text=lambda line: line.use.devices,
    ),
    ListColumn[TemplateLine](
        title="Age",
        css="num",
        sort="age",
        key=lambda line: line.template.metadata.creation_timestamp or "",
        text=lambda line: line.template.metadata.creation_timestamp or "",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatesContext(ListContext):
    query: TemplateQuery


@namespaced()
@require_safe
@opens_as_usual
def list_templates(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    person = person_of(request)
    query = TemplateQuery.read(request)
    stored = [one for one in objects.list(kind(TEMPLATES)).items if person.sees(one.namespace)]
    uses = read_uses(person, namespace=query.namespace)
    lines = (
        TemplateLine(
            namespace=one.namespace,
            name=one.name,
            template=decoded(one, ResourceClaimTemplate),
            use=uses[one.namespace, one.name],
        )
        for one in stored
        if query.namespace in ("", one.namespace) and query.text in one.name
    )
    table = Table(
        id="templates",
        topics="template: claims: pods:",
        title="Templates",
        query=query,
        columns=COLUMNS,
        rows=sorted_by(COLUMNS, query.sort, lines),
        filters=(
            Filter("q", "Name", query.text, hint="Name"),
            Filter.of_namespaces(query.namespace, (one.namespace for one in stored)),
        ),
        acts=delete_act(TEMPLATES) if person.may_somewhere("delete", TEMPLATES) else (),
    )
    context = TemplatesContext(place="claims", revision=revision, query=query, table=table)
    return show_list(request, "workloads/templates/list.html", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatePage:
    """One template, for one person."""

    template: ResourceClaimTemplate
    use: TemplateUse
    yaml: str
    may_edit: bool

    @property
    def meta(self) -> ObjectMeta:
        return self.template.metadata

    @property
    def spec(self) -> AskedDevices:
        return AskedDevices.of(self.template.spec.spec.devices)

    @property
    def copies(self) -> list[tuple[str, str]]:
        """(key, value) of the labels and annotations that its claims get."""
        given = self.template.spec.metadata
        return sorted({**given.labels, **given.annotations}.items())

    @property
    def claims(self) -> list[ClaimRow]:
        """Those that are shown; what waits comes first."""
        return sorted(self.use.claims, key=lambda line: (line.state != "pending", line.created_at))[:SHOWN]

    @property
    def more(self) -> int:
        return max(0, len(self.use.claims) - SHOWN)


@namespaced()
@require_safe
def show_template(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """One template."""
    revision = latest_revision()
    person = demand_sight(request, namespace, f"ResourceClaimTemplate {name}")
    if history.asked(request):
        return _show_history(request, namespace, name)
    context = ValueContext(place="claims", revision=revision, page=_read_page(person, namespace, name))
    return render_page(request, "workloads/templates/page.html", context)


def _show_history(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    page = history.HistoryPage(
        place="claims",
        crumbs=(("/claims", "Claims"), ("/templates", "Templates"), (f"/templates?ns={namespace}", namespace)),
        word="Template",
        name=name,
        url=links.template_url(namespace, name),
        topics=f"template:{namespace}/{name}",
        yaml=links.yaml_url(TEMPLATES, namespace, name),
    )
    return history.show_history(request, page, [_stored(namespace, name).uid], namespace=namespace)


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def delete_template(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """What deleting it would do; a POST does it."""
    person = demand_sight(request, namespace, f"ResourceClaimTemplate {name}")
    demand_edit(request, f"delete templates in {namespace}", namespace, resource=TEMPLATES)
    revision = latest_revision()
    page = _read_page(person, namespace, name)
    if request.method != "POST":
        above = (("Claims", "/claims"), ("Templates", "/templates"), (name, links.template_url(namespace, name)))
        effect = effect_of_deletion(page.use)
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


def effect_of_deletion(use: TemplateUse) -> ActionEffect:
    """What deleting the template would do."""
    many = len(use.claims)
    kept = (
        "claims created from it stay, with what they hold"
        if many > 1
        else "claim created from it stays, with what it holds"
    )
    found = [
        ("Claims", f"{many} {kept}." if many else ""),
        *(
            ("Pods", f"Pod {name} has no claim from it yet, and would wait until the template exists again.")
            for name in use.unmade
        ),
        ("Pods", "A pod that is created later and names it waits until a template of that name exists again."),
    ]
    return ActionEffect(summary="It is removed immediately.", consequences=consequences(found))


def read_uses(person: Person, *, namespace: str = "") -> dict[Key, TemplateUse]:
    """Every template that a pod names -> its use. Reads the pods' documents and the claims' index once."""
    claims = {(line.namespace, line.name): line for line in read_claims(person)}
    found: dict[Key, TemplateUse] = defaultdict(TemplateUse)
    for pod in giving_way(_pods(person, namespace)):
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if not entry.resource_claim_template_name:
                continue
            use = found[pod.metadata.namespace, entry.resource_claim_template_name]
            use.pods.append(pod)
            use.living += not is_done(pod)
            line = claims.get((pod.metadata.namespace, made.get(entry.name) or ""))
            if line is not None:
                use.claims.append(line)
            elif entry.name not in made and not is_done(pod):
                use.unmade.append(pod.metadata.name)
    return found


def _pods(person: Person, namespace: str) -> Iterable[Pod]:
    spaces = [namespace] if namespace else sorted(person.namespaces) if person.namespaces is not None else [""]
    for space in spaces:
        if person.sees(space):
            yield from (decoded(stored, Pod) for stored in objects.list(kind(PODS), namespace=space).items)


def _stored(namespace: str, name: str) -> Stored:
    """Raises: Http404."""
    stored = objects.get(kind(TEMPLATES), namespace, name)
    if stored is None:
        raise Http404(f"ResourceClaimTemplate {namespace}/{name} does not exist.")
    return stored


def _read_page(person: Person, namespace: str, name: str) -> TemplatePage:
    """Raises: Http404."""
    stored = _stored(namespace, name)
    return TemplatePage(
        template=decoded(stored, ResourceClaimTemplate),
        use=read_uses(person, namespace=namespace)[namespace, name],
        yaml=document_yaml(stored.text),
        may_edit=person.may_edit(namespace),
    )
