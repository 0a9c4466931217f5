"""Deleting pods: what would follow, for one or many.

`/pods/NAMESPACE/NAME/delete` says it (GET), and does it (POST). The pod's page shows the same in a dialog. The form
carries the uid of the pod that was looked at, so that nobody deletes another one of its name. With `?force=1` the pod
goes at once, without asking its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from claims.kinds.pods import Pod
from dashboard.kit import links
from dashboard.kit.previews import ActionEffect, ActionPreview, consequences, show_preview
from dashboard.kit.rights import namespaced
from dashboard.workloads.whatif.query import NAMED, joined, named
from manciple.api import verbs
from manciple.people import Person, demand_edit, demand_sight
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.machinery import DeleteOptions, Preconditions
from manciple.wire.resources import PODS, kind
from scheduling.rehearsal.departures import ClaimFate, PodDeletion, StartedPod, what_if_gone


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def delete_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """What would follow; a POST does it."""
    demand_sight(request, namespace, f"Pod {name}")
    person = demand_edit(request, f"delete pods in namespace {namespace}", namespace, resource=PODS)
    revision = latest_revision()
    stored = objects.get(kind(PODS), namespace, name)
    if stored is None:
        raise Http404(f"Pod {name} does not exist in namespace {namespace}.")
    pod = decoded(stored, Pod)
    error, by_force = "", request.GET.get("force", "") == "1"
    if request.method == "POST":
        error = _delete(pod, request.POST.get("uid", ""), person, by_force=by_force)
        if not error:
            stays = pod.spec.node_name and not by_force
            messages.success(request, f"Pod {name} is being deleted." if stays else f"Deleted pod {name}.")
            # Not to its page: that may be gone before it is shown.
            return redirect(f"/pods?ns={quote(namespace)}")
    above = (("Pods", "/pods"), (namespace, f"/pods?ns={namespace}"), (name, links.pod_url(namespace, name)))
    effect = effect_of_deletion([pod], what_if_gone(pod), person, by_force=by_force)
    preview = ActionPreview(
        action="Delete",
        noun="pod",
        uid=pod.metadata.uid,
        above=above,
        effect=effect,
        error=error,
        by_force=by_force,
        query="?force=1" if by_force else "",
    )
    return show_preview(request, preview, place="pods", revision=revision)


def _delete(pod: Pod, uid: str, person: Person, *, by_force: bool) -> str:
    """Returns what stands against it, "" for nothing."""
    meta = pod.metadata
    if uid != meta.uid:
        return f"Another pod has the name {meta.name} by now. This is what deleting that one would do."
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
    """found: what would follow, of which the person is told what they may see."""
    lines = [("Frees", _frees(found, len(pods)))]
    if gone := [fate for fate in found.claims if fate.goes]:
        lines.append(("Removes", _removes(gone, len(pods))))
    lines += [("Keeps", _keeps(fate)) for fate in found.claims if not fate.goes]
    if found.started:
        lines.append(("Then", _starts([one for one in found.started if person.sees(one.namespace)], found)))
    elif found.frees and found.tried_all:
        lines.append(("Then", "No waiting pod would start by that alone."))
    lines += [("After", sentence) for sentence in _afterwards(pods)]
    if not by_force:
        lines += [("Stops", sentence) for sentence in _stops(pods)]
    return ActionEffect(consequences=consequences(lines), warning=_warning(pods[0]) if by_force else "")


def _afterwards(pods: Sequence[Pod]) -> Iterator[str]:
    owners = {(one.kind, one.name) for pod in pods for one in pod.metadata.owner_references if one.controller}
    titles = [f"{kind} {name}" for kind, name in sorted(owners)]
    if len(pods) == 1 and titles:
        yield f"{titles[0]} controls it and may make another."
    elif titles:
        yield f"{named(titles)} may make others in their place."


def _stops(pods: Sequence[Pod]) -> Iterator[str]:
    running = [(pod, grace) for pod in pods if pod.spec.node_name and (grace := kind(PODS).grace_seconds(pod))]
    if len(pods) == 1 and running:
        yield f"Its containers get {running[0][1]} s to end on node {pods[0].spec.node_name}."
    elif running:
        nodes = len({pod.spec.node_name for pod, _ in running})
        longest = max(grace for _, grace in running)
        where = f"{nodes} node{'' if nodes == 1 else 's'}"
        yield f"{len(running)} of them run, on {where}; their containers get up to {longest} s to end."


def _warning(pod: Pod) -> str:
    if not pod.spec.node_name:
        return ""
    return (
        f"{pod.spec.node_name} is not asked. What still runs there goes on, and may use a device that another pod is "
        "given. Do this only if the machine is off, or if you have checked that nothing of the pod runs on it."
    )


def _frees(found: PodDeletion, pods: int) -> str:
    if not found.frees:
        holds = any(fate.claim.status.allocation for fate in found.claims)
        its, it = ("its", "It holds") if pods == 1 else ("their", "They hold")
        return f"Nothing: others use {its} claims." if holds else f"Nothing. {it} no devices."
    pools: dict[str, list[str]] = {}
    for fate in found.claims:
        allocation = fate.claim.status.allocation
        for one in allocation.devices.results if allocation and fate.frees else ():
            pools.setdefault(one.pool, []).append(one.device)
    where = "; ".join(f"{', '.join(devices)} of {pool}" for pool, devices in pools.items())
    return f"{found.frees} device{'' if found.frees == 1 else 's'}: {where}."


def _removes(gone: list[ClaimFate], pods: int) -> str:
    names = named([fate.claim.metadata.name for fate in gone])
    count = len(gone)
    return f"{'The claim' if count == 1 else f'{count} claims'} created for {'it' if pods == 1 else 'them'}: {names}."


def _keeps(fate: ClaimFate) -> str:
    name = fate.claim.metadata.name
    if fate.others:
        return f"Claim {name} and its devices, for {named(fate.others)}."
    return f"Claim {name}, without devices until a pod uses it again." if fate.frees else f"Claim {name}."


def _starts(seen: list[StartedPod], found: PodDeletion) -> str:
    """What a person may know of those that would start."""
    hidden = len(found.started) - len(seen)
    parts = [f"{one.namespace}/{one.name} on {one.node}" for one in seen[:NAMED]]
    more = len(seen) - len(parts)
    if more:
        parts.append(f"{more} more")
    if hidden:
        parts.append(f"{hidden} pod{'' if hidden == 1 else 's'} of other namespaces")
    return f"{joined(parts)} would start."
