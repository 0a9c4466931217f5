"""A waiting pod made anew as it was rehearsed: `/pods/NAMESPACE/NAME/replace?without=...&count....=...`.

A GET says what would be written (as a difference), what becomes of the template, and where the pod would start; a POST
does it: in one transaction the old pod goes, and with it a template that only it names; the new ones are made. What a
claim asks for, which claims a pod uses, and a template cannot be changed, so each of them is made anew. A template that
others name stays, and the pod gets one of another name; one that says the same already is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods
from msgspec import structs

from claims.causes.messages import clause
from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate
from dashboard.kit import links
from dashboard.kit.differences import DiffLine, difference, dump
from dashboard.kit.previews import ActionEffect, ActionPreview, consequences, not_changed, show_preview
from dashboard.kit.rights import namespaced
from dashboard.workloads.pods.manifest import free_name, manifest, stem_of
from dashboard.workloads.whatif.query import as_query, changes_of, in_words, meant, named
from manciple.api.verbs import replace_all
from manciple.people import Person, demand_edit, demand_sight
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.registry import Kind
from manciple.wire.resources import CLAIMS, PODS, TEMPLATES, kind
from scheduling.rehearsal.simulation import Question, simulate
from scheduling.rehearsal.workload import Changes, Workload, of_pod, written_anew


@dataclass(slots=True, kw_only=True)
class Replacement:
    """What goes, what comes, and what is said of each."""

    old: list[tuple[Kind, ApiObject]] = field(default_factory=list)
    new: list[tuple[Kind, ApiObject]] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    differences: list[tuple[str, Sequence[DiffLine]]] = field(default_factory=list)


def replacement(pod: Pod, workload: Workload, changes: Changes) -> Replacement:
    """The pod as it was rehearsed, with the templates and claims that it needs for that."""
    found = Replacement()
    entries = tuple(_entry(found, pod, entry, workload, changes) for entry in pod.spec.resource_claims)
    document = manifest(structs.replace(pod, spec=structs.replace(pod.spec, resource_claims=entries)))
    if changes.tolerate_nodes:
        document["spec"].setdefault("tolerations", []).append({"operator": "Exists"})
    found.old.insert(0, (kind(PODS), pod))
    found.new.append((kind(PODS), codec.decode_document(kind(PODS), document, strictness="Strict").object))
    if lines := difference(dump(manifest(pod)), dump(document)):
        found.differences.append((f"Pod {pod.metadata.name}", lines))
    return found


def _entry(
    found: Replacement, pod: Pod, entry: PodResourceClaim, workload: Workload, changes: Changes
) -> PodResourceClaim:
    """The entry of the new pod; what it needs besides is added to what is found."""
    claim = workload.claims.get(entry.name)
    if claim is None or claim.status.allocation is not None or not changes.concern(entry.name):
        return entry
    spec = written_anew(claim, entry.name, changes)
    if entry.resource_claim_template_name:
        name = _template(found, pod, entry.resource_claim_template_name, spec)
        return structs.replace(entry, resource_claim_template_name=name)
    return structs.replace(entry, resource_claim_name=_claim(found, pod, entry.resource_claim_name or "", spec))


def _template(found: Replacement, pod: Pod, name: str, spec: ResourceClaimSpec) -> str:
    """The name of a template of which such claims are made."""
    namespace = pod.metadata.namespace
    _, templates = objects.listed(TEMPLATES, ResourceClaimTemplate, namespace=namespace)
    known = {one.metadata.name: one for one in templates}
    old = known.get(name)
    if old is None:
        raise NotFound.of(TEMPLATES, name)
    wanted = structs.replace(old, spec=structs.replace(old.spec, spec=spec))
    series = stem_of(name)
    if same := next((o for o in templates if o.spec == wanted.spec and stem_of(o.metadata.name) == series), None):
        found.told.append(("Template", f"{same.metadata.name} says that already; the pod uses it."))
        lines = difference(dump(manifest(old)), dump(manifest(same)))
        found.differences.append((f"Template {same.metadata.name}", lines))
        return same.metadata.name
    others = _naming(namespace, name, besides=pod)
    new_name = free_name(name, known) if others else name
    if others:
        who = f"{'it' if len(others) == 1 else 'they'} {'names' if len(others) == 1 else 'name'}"
        also = "pod" if len(others) == 1 else "pods"
        found.told.append(
            ("Template", f"{new_name} is made. {name} stays: {also} {named(others)} {who.split()[1]} it.")
        )
    else:
        found.told.append(("Template", f"{name} is replaced. No other pod names it."))
        found.old.append((kind(TEMPLATES), old))
    document = manifest(wanted)
    document["metadata"]["name"] = new_name
    _make(found, TEMPLATES, document, manifest(old), f"Template {new_name}")
    return new_name


def _claim(found: Replacement, pod: Pod, name: str, spec: ResourceClaimSpec) -> str:
    """The name of a new claim: others may wait for the one that there is."""
    namespace = pod.metadata.namespace
    taken = {one.name for one in objects.list(kind(CLAIMS), namespace=namespace).items}
    stored = objects.get(kind(CLAIMS), namespace, name)
    if stored is None:
        raise NotFound.of(CLAIMS, name)
    old = decoded(stored, ResourceClaim)
    new_name = free_name(name, taken)
    document = manifest(structs.replace(old, spec=spec))
    document["metadata"]["name"] = new_name
    found.told.append(("Claim", f"{new_name} is made. {name} stays, without devices until a pod uses it."))
    _make(found, CLAIMS, document, manifest(old), f"Claim {new_name}")
    return new_name


def _make(found: Replacement, resource: str, document: dict[str, Any], before: dict[str, Any], title: str) -> None:
    found.new.append((kind(resource), codec.decode_document(kind(resource), document, strictness="Strict").object))
    found.differences.append((title, difference(dump(before), dump(document))))


def _naming(namespace: str, template: str, *, besides: Pod) -> list[str]:
    """The other pods that name the template."""
    _, pods = objects.listed(PODS, Pod, namespace=namespace)
    return [
        pod.metadata.name
        for pod in pods
        if pod.metadata.uid != besides.metadata.uid
        and any(entry.resource_claim_template_name == template for entry in pod.spec.resource_claims)
    ]


def replace_url(pod: Pod, changes: Changes) -> str:
    """Where it is done."""
    return f"{links.pod_url(pod.metadata.namespace, pod.metadata.name)}/replace{_query(changes)}"


def _query(changes: Changes) -> str:
    return f"?{urlencode(as_query(changes), safe='/:')}"


def why_not(pod: Pod) -> str:
    """Why a pod cannot be replaced from here; "" where it can."""
    if pod.spec.node_name:
        return f"it has a node by now, {pod.spec.node_name}"
    if pod.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    owner = next((one for one in pod.metadata.owner_references if one.controller), None)
    return f"{owner.kind} {owner.name} made it and would make another as it was; change that instead" if owner else ""


# The page ------------------------------------------------------------------------------------------------------------


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def replace_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """See the module's docstring."""
    demand_sight(request, namespace, f"Pod {name}")
    person = demand_edit(request, f"replace pods in namespace {namespace}", namespace, resource=PODS)
    revision = latest_revision()
    stored = objects.get(kind(PODS), namespace, name)
    if stored is None:
        raise Http404(f"Pod {name} does not exist in namespace {namespace}.")
    pod = decoded(stored, Pod)
    error = ""
    try:
        workload = of_pod(pod)
        changes = meant(changes_of(request.GET), workload.claims)
        wanted = replacement(pod, workload, changes)
        if request.method == "POST" and not (error := _replaced(request, pod, wanted, person)):
            messages.success(request, f"Replaced pod {name}.")
            return redirect(links.pod_url(namespace, name))
        effect = _effect(pod, workload, changes, wanted, person)
    except ApiError as refusal:
        raise Http404(refusal.message) from refusal
    above = (("Pods", "/pods"), (namespace, f"/pods?ns={namespace}"), (name, links.pod_url(namespace, name)))
    preview = ActionPreview(
        action="Replace",
        noun="pod",
        uid=pod.metadata.uid,
        above=above,
        effect=effect,
        error=error,
        query=_query(changes),
    )
    return show_preview(request, preview, place="pods", revision=revision)


def _replaced(request: HttpRequest, pod: Pod, wanted: Replacement, person: Person) -> str:
    """Do it. Returns what stands against it, "" for nothing."""
    if request.POST.get("uid", "") != pod.metadata.uid:
        return f"Another pod has the name {pod.metadata.name} by now. This is what replacing that one would do."
    if refused := why_not(pod):
        return f"Nothing was changed: {refused}."
    try:
        replace_all(wanted.old, wanted.new, identity=person.identity)
    except ApiError as refusal:
        return not_changed(refusal, noun="pod")
    return ""


def _effect(pod: Pod, workload: Workload, changes: Changes, wanted: Replacement, person: Person) -> ActionEffect:
    refused = why_not(pod)
    if not changes.any:
        refused = "the address names no change of it"
    if not refused:
        refused = _refused_by_the_api(wanted, person)
    requests = sum(len(one.spec.devices.requests) for one in workload.claims.values())
    words = in_words(changes, requests=requests)
    lines = [
        ("Goes", "The pod as it is. It has no node, so nothing that runs is lost."),
        ("Comes", f"A pod of the same name, {words}." if words else ""),
        *wanted.told,
        ("Then", _then(workload, changes) if not refused else ""),
        ("Queue", "It is a new pod: those of its priority that wait already come before it."),
    ]
    return ActionEffect(consequences=consequences(lines), refused=refused, differences=tuple(wanted.differences))


def _refused_by_the_api(wanted: Replacement, person: Person) -> str:
    """What the API would say, by a full dry run."""
    try:
        replace_all(wanted.old, wanted.new, identity=person.identity, dry_run=True)
    except ApiError as refusal:
        return refusal.message.rstrip(".")
    return ""


def _then(workload: Workload, changes: Changes) -> str:
    answer = simulate(Question(workload=workload, changes=changes), timeout=1.0)
    if answer.placed:
        devices = ", ".join(one.device for one in answer.placed[0].devices)
        return f"It starts on {answer.placed[0].node}{f', with {devices}' if devices else ''}, if nobody is faster."
    return f"It would still wait{f' because {clause(answer.cause)}' if answer.cause else ''}.".replace("`", "")
