"""Deleting a pod: `/pods/NAMESPACE/NAME/delete` says what would follow (GET), and does it (POST).

The page shows the same in a dialog. The form carries the uid of the pod that was looked at, so that nobody deletes
another one that took its name meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from claims.kinds.pods import Pod
from manciple.api import verbs
from manciple.pages.people import Person, demand_edit, demand_sight
from manciple.store import objects
from manciple.store.tail import latest_revision
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.machinery import DeleteOptions, Preconditions
from scheduling.pages.whatif.query import joined
from scheduling.resources import PODS, decoded, kind
from scheduling.simulation_departures import ClaimFate, Deletion, Started, what_if_gone

#: Names that are told in one line.
NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would follow, as lines of (term, sentence)."""

    lines: tuple[tuple[str, str], ...]
    grace: int


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def delete_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """See the module's docstring."""
    demand_sight(request, namespace, f"Pod {name}")
    person = demand_edit(request, f"delete pods in namespace {namespace}", namespace)
    revision = latest_revision()
    stored = objects.get(kind(PODS), namespace, name)
    if stored is None:
        raise Http404(f"Pod {name} does not exist in namespace {namespace}.")
    pod = decoded(stored, Pod)
    error = ""
    if request.method == "POST":
        error = _delete(pod, request.POST.get("uid", ""), person)
        if not error:
            messages.success(request, f"Pod {name} is being deleted." if pod.spec.node_name else f"Deleted pod {name}.")
            # Not to its page: that may be gone before it is shown.
            return redirect(f"/pods?ns={quote(namespace)}")
    preview = preview_of(pod, what_if_gone(pod), person)
    context = {
        "place": "pods",
        "revision": revision,
        "pod": pod,
        "namespace": namespace,
        "name": name,
        "preview": preview,
        "error": error,
    }
    return render(request, "pods/delete.html", context, status=409 if error else 200)


def _delete(pod: Pod, uid: str, person: Person) -> str:
    """Returns what stands against it, "" for nothing."""
    meta = pod.metadata
    if uid != meta.uid:
        return f"Another pod has the name {meta.name} by now. This is what deleting that one would do."
    options = DeleteOptions(preconditions=Preconditions(uid=meta.uid))
    try:
        verbs.delete(kind(PODS), namespace=meta.namespace, name=meta.name, identity=person.identity, options=options)
    except NotFound:
        return ""
    except ApiError as refusal:
        return refusal.message
    return ""


def preview_of(pod: Pod, found: Deletion, person: Person) -> Preview:
    """found: what would follow, of which the person is told what they may see."""
    grace = kind(PODS).grace_seconds(pod)
    lines = [("Frees", _frees(found))]
    if gone := [fate for fate in found.claims if fate.goes]:
        lines.append(("Removes", _removes(gone)))
    lines += [("Keeps", _keeps(fate)) for fate in found.claims if not fate.goes]
    if found.started:
        lines.append(("Then", _starts([one for one in found.started if person.sees(one.namespace)], found)))
    elif found.frees and found.tried_all:
        lines.append(("Then", "No waiting pod would start by that alone."))
    if owner := next((one for one in pod.metadata.owner_references if one.controller), None):
        lines.append(("After", f"{owner.kind} {owner.name} controls it and may make another."))
    if pod.spec.node_name and grace:
        lines.append(("Stops", f"Its containers get {grace} s to end on node {pod.spec.node_name}."))
    return Preview(lines=tuple(lines), grace=grace)


def _frees(found: Deletion) -> str:
    if not found.frees:
        holds = any(fate.claim.status.allocation for fate in found.claims)
        return "Nothing: others use its claims." if holds else "Nothing. It holds no devices."
    pools: dict[str, list[str]] = {}
    for fate in found.claims:
        allocation = fate.claim.status.allocation
        for one in allocation.devices.results if allocation and fate.frees else ():
            pools.setdefault(one.pool, []).append(one.device)
    where = "; ".join(f"{', '.join(devices)} of {pool}" for pool, devices in pools.items())
    return f"{found.frees} device{'' if found.frees == 1 else 's'}: {where}."


def _removes(gone: list[ClaimFate]) -> str:
    names = named([fate.claim.metadata.name for fate in gone])
    count = len(gone)
    return f"{'The claim' if count == 1 else f'{count} claims'} made for it: {names}."


def _keeps(fate: ClaimFate) -> str:
    name = fate.claim.metadata.name
    if fate.others:
        return f"Claim {name} and its devices, for {named(fate.others)}."
    return f"Claim {name}, without devices until a pod uses it again." if fate.frees else f"Claim {name}."


def _starts(seen: list[Started], found: Deletion) -> str:
    """What a person may know of those that would start."""
    hidden = len(found.started) - len(seen)
    parts = [f"{one.namespace}/{one.name} on {one.node}" for one in seen[:NAMED]]
    more = len(seen) - len(parts)
    if more:
        parts.append(f"{more} more")
    if hidden:
        parts.append(f"{hidden} pod{'' if hidden == 1 else 's'} of other namespaces")
    return f"{joined(parts)} would start."


def named(names: list[str] | tuple[str, ...]) -> str:
    """The first few, and how many more."""
    more = len(names) - NAMED
    return joined([*names[:NAMED], *([f"{more} more"] if more > 0 else [])])
