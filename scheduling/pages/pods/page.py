"""One pod: `/pods/NAMESPACE/NAME`, in parts that `?tab=` names.

- `why`: why it waits, with a rehearsal where the address asks for one (see `pod_why`); only while it waits
- `claims`: its claims and their devices, its containers with what they were given
- `events`, `logs`, `yaml`, `history`

`/pods/NAMESPACE/NAME/delete` says what deleting it would do (GET), and does it (POST). The page shows the same in a
dialog. The form carries the uid of the pod that was looked at, so that nobody deletes another one of its name. With
`?force=1` the pod goes at once, without asking its node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

import yaml
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from claims.kinds.pods import Pod
from manciple.api import verbs
from manciple.pages import links
from manciple.pages.people import Person, demand_edit, demand_sight
from manciple.pages.rendering import PageContext, render_page
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.store.tail import latest_revision
from manciple.wire import codec
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.machinery import DeleteOptions, Preconditions
from scheduling.explanations.current import explain_pod
from scheduling.explanations.documents import Explanation
from scheduling.models import QueuedPod
from scheduling.pages.history.views import TAB, ShownHistory, history_of
from scheduling.pages.pods.conversation import Conversation, read_conversation
from scheduling.pages.pods.draft_conversation import read_draft_conversation
from scheduling.pages.pods.logs import Log, may_read_log, read_log
from scheduling.pages.pods.reading import (
    ClaimLine,
    ContainerLine,
    Moment,
    container_lines,
    latest,
    read_claims,
    read_moments,
)
from scheduling.pages.pods.views import STATES, state_of
from scheduling.pages.pods.why import PodVerdict, Why, read_stay, read_why, waits, what_if_url
from scheduling.pages.previews import ActionEffect, ActionPreview, consequences, show_preview
from scheduling.pages.quotas.reading import quotas_refusing
from scheduling.pages.whatif.query import NAMED, changes_of, joined, named
from scheduling.resources import PODS, kind
from scheduling.simulation_departures import ClaimFate, PodDeletion, StartedPod, what_if_gone


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTab:
    """One part of the page. number: what stands beside the word, "" for nothing."""

    name: str
    word: str
    number: str = ""
    current: bool = False

    @property
    def url(self) -> str:
        return f"?tab={self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext(PageContext):
    """refusing: quotas that keep it without claims; moments: all that happened to it; latest: the last of that.

    stay: what keeps it although it is being deleted. conversation, why, log, text, history: of the `tab` that shows
    them.
    """

    pod: Pod
    namespace: str
    name: str
    state: str
    icon: str
    waits: bool
    owners: Sequence[str]
    queued: QueuedPod | None
    gone_by: str | None
    tabs: Sequence[PodTab]
    tab: str
    claims: Sequence[ClaimLine]
    refusing: Sequence[str]
    containers: Sequence[ContainerLine]
    moments: Sequence[Moment]
    latest: Sequence[Moment]
    stay: PodVerdict | None
    may_edit: bool
    what_if_url: str
    topics: str
    conversation: Conversation | None
    why: Why | None
    log: Log | None
    text: str
    history: ShownHistory | None


@login_required
@require_safe
def show_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """See the module's docstring."""
    person = demand_sight(request, namespace, f"Pod {name}")
    try:
        explained = explain_pod(namespace, name)
    except NotFound as missing:
        raise Http404(f"Pod {name} does not exist in namespace {namespace}.") from missing
    pod = explained.about
    assert isinstance(pod, Pod)  # noqa: S101 - explain_pod explains pods
    claims = read_claims(pod, explained.extended)
    moments = read_moments(pod, [claim.name for claim in claims])
    waiting = waits(explained)
    tabs = _tabs(
        request.GET.get("tab", ""),
        waiting=waiting,
        claims=len(claims),
        moments=len(moments),
        logs=may_read_log(person, namespace, name),
    )
    tab = next(one.name for one in tabs if one.current)
    changes = changes_of(request.GET)
    speaks = tab in ("why", "claims")
    context = PodContext(
        place="pods",
        revision=explained.revision,
        pod=pod,
        namespace=namespace,
        name=name,
        state=state(explained, pod),
        icon=STATES.get(state(explained, pod), "i-wait"),
        waits=waiting,
        owners=[f"{owner.kind} {owner.name}" for owner in pod.metadata.owner_references],
        queued=QueuedPod.objects.filter(uid=pod.metadata.uid).first(),
        gone_by=pod.metadata.deletion_timestamp,
        tabs=tabs,
        tab=tab,
        claims=claims,
        refusing=quotas_refusing(person, namespace, name) if any(not claim.name for claim in claims) else (),
        containers=container_lines(pod, claims),
        moments=moments,
        latest=latest(moments),
        stay=read_stay(pod, claims, moments, datetime.now(UTC), person),
        may_edit=person.may_edit(namespace),
        what_if_url=what_if_url(pod, changes),
        topics=_topics(namespace, name, waiting=waiting),
        conversation=(read_conversation(pod, claims) or read_draft_conversation(pod)) if speaks else None,
        why=read_why(explained, person, changes) if tab == "why" else None,
        log=read_log(pod, request.GET) if tab == "logs" else None,
        text=as_yaml(pod) if tab == "yaml" else "",
        history=history_of(request, [pod.metadata.uid], namespace=namespace) if tab == TAB else None,
    )
    return render_page(request, "pods/page.html", context)


def _tabs(wanted: str, *, waiting: bool, claims: int, moments: int, logs: bool) -> list[PodTab]:
    found = [PodTab(name="why", word="Why it waits")] if waiting else []
    found += [
        PodTab(name="claims", word="Claims and containers" if not waiting else "Claims", number=str(claims or "")),
        PodTab(name="events", word="Events", number=str(moments)),
        *((PodTab(name="logs", word="Logs"),) if logs else ()),
        PodTab(name="yaml", word="YAML"),
        PodTab(name=TAB, word="History"),
    ]
    chosen = wanted if wanted in {tab.name for tab in found} else found[0].name
    return [PodTab(name=tab.name, word=tab.word, number=tab.number, current=tab.name == chosen) for tab in found]


def _topics(namespace: str, name: str, *, waiting: bool) -> str:
    """What touches the page: a pod that waits waits for almost anything."""
    own = f"pod:{namespace}/{name} claims:{namespace} events:{namespace}"
    return f"{own} pool: slices classes nodes" if waiting else own


def state(explained: Explanation, pod: Pod) -> str:
    """What the pod's state is called on its page."""
    if explained.state == "Schedulable":
        return "Being scheduled"
    if explained.state in ("Waiting", "Deleting"):
        return explained.state
    return state_of(deleting=False, phase=pod.status.phase, node=pod.spec.node_name)


def as_yaml(pod: Pod) -> str:
    """The object as `kubectl get -o yaml` shows it: without managedFields."""
    document = codec.to_builtins(pod)
    document.get("metadata", {}).pop("managedFields", None)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)


# Deleting a pod ------------------------------------------------------------------------------------------------------


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def delete_pod(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """What would follow; a POST does it."""
    demand_sight(request, namespace, f"Pod {name}")
    person = demand_edit(request, f"delete pods in namespace {namespace}", namespace)
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
    effect = effect_of_deletion(pod, what_if_gone(pod), person, by_force=by_force)
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


def effect_of_deletion(pod: Pod, found: PodDeletion, person: Person, *, by_force: bool = False) -> ActionEffect:
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
    if pod.spec.node_name and grace and not by_force:
        lines.append(("Stops", f"Its containers get {grace} s to end on node {pod.spec.node_name}."))
    return ActionEffect(consequences=consequences(lines), warning=_warning(pod) if by_force else "")


def _warning(pod: Pod) -> str:
    if not pod.spec.node_name:
        return ""
    return (
        f"{pod.spec.node_name} is not asked. What still runs there goes on, and may use a device that another pod is "
        "given. Do this only where the machine is off, or where you have seen that nothing of the pod runs on it."
    )


def _frees(found: PodDeletion) -> str:
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
    return f"{'The claim' if count == 1 else f'{count} claims'} created for it: {names}."


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
