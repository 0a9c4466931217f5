"""Moving pods so that one that waits can start: `/pods/NAMESPACE/NAME/move`.

A GET says who would move, from where to where, and who would start then, rehearsed at that moment. A POST of the form
on it does it: the form names the very pods that were shown (`move`), and each is evicted with the person's identity,
only if a rehearsal at that moment still holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from claims.kinds.pods import Pod
from dashboard.inventory.nodes.changes import evict
from dashboard.kit import links
from dashboard.kit.previews import ActionEffect, ActionPreview, Consequence, show_preview
from dashboard.kit.rights import namespaced
from dashboard.tools.bulk import PickedObject, read_picked
from dashboard.workloads.moves.told import EVICTION, ShownPlan, told, why_not
from manciple.people import Person, demand_sight
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.wire.resources import NODES, PODS, SLICES, kind
from scheduling.rehearsal.departures import StartedPod
from scheduling.rehearsal.move_proposals import plan_for
from scheduling.rehearsal.moves import MOST, MovePlan
from scheduling.rehearsal.moving import MoveOutcome, carry_out

_AS_IT_IS = "This is what would do it now."


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePreview(ActionPreview):
    """What is asked before pods are moved. picks: them, as the form sends them."""

    picks: tuple[str, ...]
    whom: str

    @property
    def button(self) -> str:
        return _counted("Move", len(self.picks))

    @property
    def question(self) -> str:
        return f"{self.button} so that {self.whom} can start?" if self.picks else f"Move pods for {self.whom}?"


@namespaced(NODES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def move_pods(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """See the module's docstring."""
    person = demand_sight(request, namespace, f"Pod {name}")
    revision = latest_revision()
    stored = objects.get(kind(PODS), namespace, name)
    if stored is None:
        raise Http404(f"Pod {name} does not exist in namespace {namespace}.")
    pod, error = decoded(stored, Pod), ""
    if request.method == "POST":
        if not person.may_somewhere("create", EVICTION):
            raise PermissionDenied("You may not evict pods. Ask an administrator for a role that allows it.")
        error = _move(request, pod, request.POST.getlist("move"), person)
        if not error:
            return redirect(links.pod_url(namespace, name))
    preview = _preview(pod, plan_for(pod.metadata.uid), person, error)
    return show_preview(request, preview, place="pods", revision=revision, template="workloads/moves/preview.html")


def _preview(pod: Pod, plan: MovePlan | None, person: Person, error: str) -> MovePreview:
    namespace, name = pod.key
    shown = None if plan is None else told(plan, person)
    return MovePreview(
        action="Move",
        noun="pods",
        uid=pod.metadata.uid,
        above=(("Pods", "/pods"), (namespace, f"/pods?ns={namespace}"), (name, links.pod_url(namespace, name))),
        effect=_nothing(pod) if plan is None or shown is None else _effect(plan, shown, person),
        error=error,
        whom=f"gang {plan.gang}" if plan is not None and plan.gang else name,
        picks=tuple(_pick(one.pod) for one in plan.moves) if plan is not None and shown is not None else (),
    )


def _pick(pod: Pod) -> str:
    return PickedObject(resource=PODS, object=pod).pick


def _nothing(pod: Pod) -> ActionEffect:
    refused = "no few moves were found that would start it"
    if pod.spec.node_name:
        refused = f"it has its place on node {pod.spec.node_name}"
    return ActionEffect(consequences=(), refused=refused)


def _effect(plan: MovePlan, shown: ShownPlan, person: Person) -> ActionEffect:
    found = [
        Consequence(
            term="Moves",
            sentences=(
                f"From node {one.source} to {one.target}{f' ({one.devices})' if one.devices else ''}; "
                f"{one.owner} creates it again{f'; {one.budget}' if one.budget else ''}:",
            ),
            links=((one.title, one.url),),
        )
        for one in shown.moves
    ]
    if shown.hidden:
        found.append(Consequence(term="Moves", sentences=(f"{shown.hidden} of namespaces that you do not see.",)))
    found.append(_starting("Starts", plan.subject, shown.starts))
    if plan.others:
        found.append(_starting("Besides", plan.others, shown.others))
    return ActionEffect(
        summary="Before each eviction the move is rehearsed again: the pod that takes its place must still fit "
        "elsewhere, and what waits must still start.",
        consequences=tuple(found),
        warning="A pod that moves ends where it runs: what it has not saved is lost.",
        refused=why_not(plan, person),
    )


def _starting(term: str, pods: Sequence[StartedPod], seen: Sequence[tuple[str, str, str]]) -> Consequence:
    links_ = tuple((f"{title} on {node}", url) for title, url, node in seen)
    said = f"{_counted('', len(pods)).strip()}{':' if links_ else ' of namespaces that you do not see.'}"
    return Consequence(term=term, sentences=(said,), links=links_, more=len(pods) - len(links_) if links_ else 0)


# Doing it ------------------------------------------------------------------------------------------------------------


def _move(request: HttpRequest, pod: Pod, picks: Sequence[str], person: Person) -> str:
    """Returns why nothing was done, "" where something was."""
    if request.POST.get("uid", "") != pod.metadata.uid:
        return f"Another pod has the name {pod.metadata.name} by now. {_AS_IT_IS}"
    picked = read_picked(PODS, picks, person)
    victims = [one.object for one in picked.found]
    if picked.gone or not 0 < len(victims) <= MOST or any("@" not in one for one in picks):
        return f"Nothing was moved: the pods that were shown are not there any more. {_AS_IT_IS}"
    namespaces = {one.namespace for one in picked.found}
    refused = sorted(one for one in namespaces if not person.may("create", EVICTION, one))
    if refused:
        return f"Nothing was moved: you may not evict pods in namespace {', '.join(refused)}."
    outcome = carry_out(pod, victims, lambda victim: evict(victim, person.identity))
    if not outcome.moved:
        return f"Nothing was moved: {outcome.stopped}. {_AS_IT_IS}"
    _tell(request, pod, outcome)
    return ""


def _tell(request: HttpRequest, pod: Pod, outcome: MoveOutcome) -> None:
    done = _counted("Evicted", len(outcome.moved))
    if outcome.stopped:
        messages.error(request, f"{done}, then stopped: {outcome.stopped}.")
    else:
        ended = "it has ended" if len(outcome.moved) == 1 else "they have ended"
        messages.success(request, f"{done}: {pod.metadata.name} starts when {ended}.")


def _counted(word: str, number: int) -> str:
    return f"{word} {number} pod{'' if number == 1 else 's'}"
