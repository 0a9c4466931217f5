"""Deleting and replacing pods: what would follow, and doing it.

A pod is replaced as it was rehearsed: in one transaction the old pod goes, with a template that only it names, and the
new ones are created. What a claim requests, the claims of a pod, and a template cannot be changed, so each is created
anew. A template that other pods name stays, and the pod gets one of another name; an equal one is reused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.http import Http404
from msgspec import structs

from claims.causes.messages import clause
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate, node_of
from dashboard.kit.differences import DiffLine, difference, dump
from dashboard.kit.evictions import lost_with, what_stays
from dashboard.kit.forms import plain
from dashboard.kit.previews import ActionEffect, Link, consequences, not_changed
from dashboard.templatetags.kit import counted, joined, page_url, pod_url
from dashboard.workloads.changes import kept_as_it_is
from dashboard.workloads.pods.forms import free_name, manifest, stem_of
from insight.advice import in_words
from manciple.api import verbs
from manciple.api.destination import Successor
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.machinery import DeleteOptions, Preconditions
from manciple.wire.registry import Kind
from manciple.wire.resources import CLAIMS, PODS, TEMPLATES, kind
from manciple.wire.validation import natural
from scheduling.rehearsal.departures import PodDeletion
from scheduling.rehearsal.simulation import Question, simulate
from scheduling.rehearsal.workload import Changes, Workload, spoken, written_anew

#: Names that one sentence lists.
NAMED = 4


def stored_pod(namespace: str, name: str) -> Pod:
    """Raises: Http404."""
    stored = objects.get(kind(PODS), namespace, name)
    if stored is None:
        raise Http404(f"Pod {name} does not exist in namespace {namespace}.")
    return decoded(stored, Pod)


def pages_above(namespace: str, name: str) -> tuple[Link, ...]:
    return (("Pods", page_url("pods")), (namespace, pods_url(namespace)), (name, pod_url(namespace, name)))


def pods_url(namespace: str) -> str:
    return f"{page_url('pods')}?{urlencode({'ns': namespace})}"


def delete(pod: Pod, uid: str, person: Person, *, by_force: bool) -> str:
    """Delete the pod, if it is the one with this uid. Returns why not; "" if it is deleted, or gone already."""
    meta = pod.metadata
    if uid != meta.uid:
        return f"Another pod is now called {meta.name}. This is what deleting it would do."
    options = DeleteOptions(preconditions=Preconditions(uid=uid), grace_period_seconds=0 if by_force else None)
    try:
        verbs.delete(kind(PODS), namespace=meta.namespace, name=meta.name, identity=person.identity, options=options)
    except NotFound:
        return ""
    except ApiError as refusal:
        return refusal.message
    return ""


def effect_of_deletion(
    pods: Sequence[Pod], found: PodDeletion, person: Person, *, by_force: bool = False
) -> ActionEffect:
    """found: what would follow; pods of namespaces that the person does not see are only counted."""
    lost = {} if by_force else lost_with(pods)
    lines = [*_claims_lines(found, len(pods), lost)]
    if found.started:
        seen = [one for one in found.started if person.sees(one.namespace)]
        parts = [f"{one.namespace}/{one.name} on {one.node}" for one in seen[:NAMED]]
        if len(seen) > len(parts):
            parts.append(f"{len(seen) - len(parts)} more")
        if hidden := len(found.started) - len(seen):
            parts.append(f"{counted(hidden, 'pod')} of other namespaces")
        lines.append(("Then", f"{joined(parts)} would start."))
    elif found.frees and found.tried_all:
        lines.append(("Then", "No waiting pod would start."))
    owners = {(one.kind, one.name) for pod in pods for one in pod.metadata.owner_references if one.controller}
    if titles := [f"{kind} {name}" for kind, name in sorted(owners)]:
        one = f"{titles[0]} may create another."
        lines.append(("After", one if len(pods) == 1 else f"{joined(titles, NAMED)} may create others."))
    warning = ""
    if not by_force:
        lines.append(("Stops", _stops([pod for pod in pods if pod.spec.node_name not in lost])))
        lines += [("Stays", sentence) for sentence in what_stays(lost)]
    elif node := pods[0].spec.node_name:
        warning = (
            f"The pod may keep running on {node}, on a device that another pod gets. Do this only "
            "if the machine is off or runs nothing of the pod."
        )
    return ActionEffect(consequences=consequences(lines), warning=warning)


def _claims_lines(found: PodDeletion, pods: int, lost: Collection[str]) -> Iterator[tuple[str, str]]:
    """What happens to the devices and claims. lost: unreachable nodes, whose devices stay held."""
    its, it, them = ("its", "It holds", "it") if pods == 1 else ("their", "They hold", "them")
    pools: dict[str, list[str]] = {}
    for fate in found.claims:
        allocation = fate.claim.status.allocation
        for device in allocation.devices.results if allocation and fate.frees else ():
            if allocation and node_of(allocation) not in lost:
                pools.setdefault(device.pool, []).append(device.device)
    where = "; ".join(f"{', '.join(sorted(pools[pool], key=natural))} of {pool}" for pool in sorted(pools, key=natural))
    frees = sum(map(len, pools.values()))
    nothing = f"Nothing. {it} no devices."
    if found.frees:
        nothing = "Nothing yet."
    elif any(fate.claim.status.allocation for fate in found.claims):
        nothing = f"Nothing: others use {its} claims."
    yield "Frees", f"{counted(frees, 'device')}: {where}." if frees else nothing
    if gone := [fate.claim.metadata.name for fate in found.claims if fate.goes]:
        claims = "The claim" if len(gone) == 1 else f"{len(gone)} claims"
        yield "Removes", f"{claims} created for {them}: {joined(gone, NAMED)}."
    for fate in [fate for fate in found.claims if not fate.goes]:
        kept = f"Claim {fate.claim.metadata.name}"
        if fate.others:
            yield "Keeps", f"{kept} and its devices, for {joined(fate.others, NAMED)}."
        else:
            yield "Keeps", f"{kept}, without devices." if fate.frees else f"{kept}."


def _stops(pods: Sequence[Pod]) -> str:
    running = [(pod, grace) for pod in pods if pod.spec.node_name and (grace := kind(PODS).grace_seconds(pod))]
    if not running:
        return ""
    if len(pods) == 1:
        return f"It gets {running[0][1]} s to end on node {pods[0].spec.node_name}."
    where = counted(len({pod.spec.node_name for pod, _ in running}), "node")
    longest = max(grace for _, grace in running)
    return f"{len(running)} of them run, on {where}; they get up to {longest} s to end."


@dataclass(slots=True, kw_only=True)
class Replacement:
    """The objects that go and that come, with what is said of them: sentences and differences."""

    old: list[tuple[Kind, ApiObject]] = field(default_factory=list)
    new: list[Successor] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    differences: list[tuple[str, Sequence[DiffLine]]] = field(default_factory=list)

    def create(self, resource: str, written: ApiObject, name: str, before: ApiObject) -> None:
        """Create `written` under this name, in the place of `before`."""
        document = manifest(written)
        document["metadata"]["name"] = name
        made = codec.decode_document(kind(resource), document, strictness="Strict").object
        self.new.append(Successor(kind(resource), made, of=before))
        if lines := difference(dump(manifest(before)), dump(document)):
            self.differences.append((f"{_TITLES[resource]} {name}", lines))


_TITLES = {PODS: "Pod", TEMPLATES: "Template", CLAIMS: "Claim"}


def replacement(pod: Pod, workload: Workload, changes: Changes) -> Replacement:
    """The pod as it was rehearsed, with the templates and claims that it needs. Raises: NotFound."""
    found = Replacement()
    entries = []
    for entry in pod.spec.resource_claims:
        claim = workload.claims.get(entry.name)
        if claim is None or claim.status.allocation is not None or not changes.concern(entry.name):
            entries.append(entry)
            continue
        spec = written_anew(claim, entry.name, changes)
        if entry.resource_claim_template_name:
            name = _template(found, pod, entry.resource_claim_template_name, spec)
            entries.append(structs.replace(entry, resource_claim_template_name=name))
        else:
            name = _claim(found, pod, entry.resource_claim_name or "", spec)
            entries.append(structs.replace(entry, resource_claim_name=name))
    changed = workload.changed(changes).pod  # with its tolerations
    written = structs.replace(changed, spec=structs.replace(changed.spec, resource_claims=tuple(entries)))
    found.old.insert(0, (kind(PODS), pod))
    found.create(PODS, written, pod.metadata.name, pod)
    return found


def _template(found: Replacement, pod: Pod, name: str, spec: ResourceClaimSpec) -> str:
    """The name of a template for such claims: an equal one of the same series, or a new one."""
    namespace = pod.metadata.namespace
    _, templates = objects.listed(TEMPLATES, ResourceClaimTemplate, namespace=namespace)
    existing = {one.metadata.name: one for one in templates}
    old = existing.get(name)
    if old is None:
        raise NotFound.of(TEMPLATES, name)
    new = structs.replace(old, spec=structs.replace(old.spec, spec=spec))
    for one in templates:
        if one.spec == new.spec and stem_of(one.metadata.name) == stem_of(name):
            found.lines.append(("Template", f"{one.metadata.name} already has that content; the pod uses it."))
            lines = difference(dump(manifest(old)), dump(manifest(one)))
            found.differences.append((f"Template {one.metadata.name}", lines))
            return one.metadata.name
    _, pods = objects.listed(PODS, Pod, namespace=namespace)
    others = [
        other.metadata.name
        for other in pods
        if other.metadata.uid != pod.metadata.uid
        and any(entry.resource_claim_template_name == name for entry in other.spec.resource_claims)
    ]
    new_name = free_name(name, existing) if others else name
    if others:
        names = f"pod {others[0]} names" if len(others) == 1 else f"pods {joined(others, NAMED)} name"
        found.lines.append(("Template", f"{new_name} is created. {name} stays: {names} it."))
    else:
        found.lines.append(("Template", f"{name} is replaced."))
        found.old.append((kind(TEMPLATES), old))
    found.create(TEMPLATES, new, new_name, old)
    return new_name


def _claim(found: Replacement, pod: Pod, name: str, spec: ResourceClaimSpec) -> str:
    """The name of a new claim: other pods may wait for the old one."""
    namespace = pod.metadata.namespace
    stored = objects.get(kind(CLAIMS), namespace, name)
    if stored is None:
        raise NotFound.of(CLAIMS, name)
    old = decoded(stored, ResourceClaim)
    new_name = free_name(name, {one.name for one in objects.list(kind(CLAIMS), namespace=namespace).items})
    found.lines.append(("Claim", f"{new_name} is created. {name} stays, without devices."))
    found.create(CLAIMS, structs.replace(old, spec=spec), new_name, old)
    return new_name


def replace(pod: Pod, uid: str, found: Replacement, person: Person) -> str:
    """Replace the pod, if it is the one with this uid. Returns why not, "" if it is done."""
    if uid != pod.metadata.uid:
        return f"Another pod is now called {pod.metadata.name}. This is what replacing it would do."
    if refused := kept_as_it_is(pod):
        return f"Nothing was changed: {refused}."
    try:
        verbs.replace_all(found.old, found.new, identity=person.identity)
    except ApiError as refusal:
        return not_changed(refusal, noun="pod")
    return ""


def effect_of_replacement(
    pod: Pod, workload: Workload, changes: Changes, found: Replacement, person: Person
) -> ActionEffect:
    """What replacing the pod would do: the API is asked by a full dry run, and the scheduler by a rehearsal."""
    refused = kept_as_it_is(pod) if changes.any else "the link names no change"
    if not refused:
        try:
            verbs.replace_all(found.old, found.new, identity=person.identity, dry_run=True)
        except ApiError as refusal:
            refused = plain(refusal.message).rstrip(".")
    then = ""
    if not refused:
        answer = simulate(Question(workload=workload, changes=changes), timeout=1.0)
        then = f"It would still wait{f' because {spoken(clause(answer.cause))}' if answer.cause else ''}.".replace(
            "`", ""
        )
        if answer.placed:
            devices = ", ".join(one.device for one in answer.placed[0].devices)
            with_devices = f", with {devices}" if devices else ""
            then = f"It starts on {answer.placed[0].node}{with_devices}, if still free."
    words = in_words(changes, workload.claims)
    lines = [
        ("Goes", "This pod."),
        ("Comes", f"A pod of the same name, {words}." if words else ""),
        *found.lines,
        ("Then", then),
        ("Queue", "Older pods of its priority come first."),
    ]
    return ActionEffect(consequences=consequences(lines), refused=refused, differences=tuple(found.differences))
