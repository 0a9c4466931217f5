"""Moving pods so that a waiting one can start: `/pods/NAMESPACE/NAME/move`.

A GET shows the pods that would move, from which node to which, and the pods that would start then, rehearsed at that
moment. A POST of the form does it: the form names the pods that were shown (`move`), and each is evicted with the
person's identity, only if a rehearsal at that moment still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from claims.kinds.pods import Pod
from dashboard.inventory.nodes.changes import evict
from dashboard.kit.guards import namespaced
from dashboard.kit.previews import ActionEffect, ActionPreview, Consequence, show_preview
from dashboard.templatetags.kit import counted, page_url, pod_url
from dashboard.tools.bulk import PickedObject, read_picked
from dashboard.workloads.pods.actions import pages_above, stored_pod
from manciple.people import Person, demand_sight, denied
from manciple.store.event_log import latest_revision
from manciple.wire.resources import NODES, PODS, SLICES
from scheduling.rehearsal.departures import StartedPod
from scheduling.rehearsal.move_proposals import plan_for
from scheduling.rehearsal.moves import MOST, MovePlan
from scheduling.rehearsal.moving import carry_out

#: Pods that one line names.
NAMED = 6
EVICTION = "pods/eviction"
_CURRENT = "This is what would do it now."


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMove:
    """One pod that moves. budget: "disruption budget web lets 2 go now", "" if none counts it."""

    title: str
    url: str
    source: str
    target: str
    devices: str
    owner: str
    budget: str


#: (pod, its address, node)
ShownStart = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPlan:
    """A plan as one person sees it. title: what would start; url: where it is reviewed, "" if it cannot be started.

    Pods of namespaces that the person does not see are only counted.
    """

    title: str
    moves: tuple[ShownMove, ...]
    hidden: int
    starts: tuple[ShownStart, ...]
    others: tuple[ShownStart, ...]
    others_hidden: int
    url: str

    @property
    def count(self) -> int:
        return len(self.moves) + self.hidden


def shown_plan(plan: MovePlan, person: Person, *, url: str | None = None) -> ShownPlan | None:
    """None if the person does not see the pods that would start. url: in place of that of the pod it is made for."""
    first = plan.subject[0]
    if not all(person.sees(one.namespace) for one in plan.subject):
        return None
    moves = []
    for move in plan.moves:
        meta = move.pod.metadata
        if person.sees(meta.namespace):
            moves.append(
                ShownMove(
                    title=f"{meta.namespace}/{meta.name}",
                    url=pod_url(*move.pod.key),
                    source=move.source,
                    target=move.target,
                    devices=", ".join(move.devices),
                    owner=move.owner,
                    budget=f"disruption budget {move.budget[0]} lets {move.budget[1]} go now" if move.budget else "",
                )
            )
    if settings.MIRROR:  # it makes none
        url = ""
    others = _starts([one for one in plan.others if person.sees(one.namespace)])
    return ShownPlan(
        title=f"gang {plan.gang}" if plan.gang else f"{first.namespace}/{first.name}",
        moves=tuple(moves),
        hidden=len(plan.moves) - len(moves),
        starts=_starts(plan.subject),
        others=others,
        others_hidden=len(plan.others) - len(others),
        url=page_url("pod-move", first.namespace, first.name) if url is None else url,
    )


def _starts(pods: Sequence[StartedPod]) -> tuple[ShownStart, ...]:
    return tuple((f"{one.namespace}/{one.name}", pod_url(one.namespace, one.name), one.node) for one in pods[:NAMED])


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePreview(ActionPreview):
    """Shown before pods are moved. picks: the pods, as the form sends them; subject: the pod or gang that starts."""

    picks: tuple[str, ...]
    subject: str

    @property
    def button(self) -> str:
        return f"Move {counted(len(self.picks), 'pod')}"

    @property
    def question(self) -> str:
        return f"{self.button} so that {self.subject} can start?" if self.picks else f"Move pods for {self.subject}?"


@namespaced(NODES, SLICES)
@require_http_methods(["GET", "HEAD", "POST"])
def move_pods(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    person = demand_sight(request, namespace, f"Pod {name}")
    revision, pod, error = latest_revision(), stored_pod(namespace, name), ""
    if (request.method == "POST" or settings.MIRROR) and not person.may_somewhere("create", EVICTION):
        raise denied(request, "evict pods", "create", EVICTION)
    if request.method == "POST":
        error = _move(request, pod, request.POST.getlist("move"), person)
        if not error:
            return redirect(pod_url(namespace, name))
    plan = plan_for(pod.metadata.uid)
    shown = shown_plan(plan, person) if plan else None
    refused = "no few moves would start it"
    if pod.spec.node_name:
        refused = f"it is already on node {pod.spec.node_name}"
    preview = MovePreview(
        action="Move",
        noun="pods",
        uid=pod.metadata.uid,
        above=pages_above(namespace, name),
        effect=_effect(plan, shown, person) if plan and shown else ActionEffect(consequences=(), refused=refused),
        error=error,
        subject=f"gang {plan.gang}" if plan and plan.gang else name,
        picks=tuple(PickedObject(resource=PODS, object=one.pod).pick for one in plan.moves) if plan and shown else (),
    )
    return show_preview(request, preview, place="pods", revision=revision, template="workloads/moves/preview.html")


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
        found.append(Consequence(term="Moves", sentences=(f"{shown.hidden} that you do not see.",)))
    for term, pods, starts in (("Starts", plan.subject, shown.starts), ("Besides", plan.others, shown.others)):
        ends = ":" if starts else " of namespaces that you do not see."
        if pods:
            found.append(
                Consequence(
                    term=term,
                    sentences=(f"{counted(len(pods), 'pod')}{ends}",),
                    links=tuple((f"{title} on {node}", url) for title, url, node in starts),
                    more=len(pods) - len(starts) if starts else 0,
                )
            )
    namespaces = {one.pod.metadata.namespace for one in plan.moves}
    refused = _refused(namespaces, person)
    if refused:
        refused = f"{refused}: ask an administrator for a role"
    if not all(map(person.sees, namespaces)):
        refused = "it moves pods of namespaces that you do not see: ask an administrator"
    return ActionEffect(
        summary="Rehearsed again before each eviction.",
        consequences=tuple(found),
        warning="A moved pod loses what it has not saved.",
        refused=refused,
    )


def _refused(namespaces: Iterable[str], person: Person) -> str:
    """Why the person may not evict pods there, "" if they may. The writer of each eviction checks it again."""
    refused = sorted(one for one in namespaces if not person.may("create", EVICTION, one))
    return f"you may not evict pods in namespace {', '.join(refused)}" if refused else ""


def _move(request: HttpRequest, pod: Pod, picks: Sequence[str], person: Person) -> str:
    """Returns why nothing was moved, "" if something was."""
    if request.POST.get("uid", "") != pod.metadata.uid:
        return f"Another pod is now called {pod.metadata.name}. {_CURRENT}"
    picked = read_picked(PODS, picks, person)
    victims = [one.object for one in picked.found]
    if picked.gone or not 0 < len(victims) <= MOST or any("@" not in one for one in picks):
        return f"Nothing was moved: the pods shown no longer exist. {_CURRENT}"
    if refused := _refused({one.namespace for one in picked.found}, person):
        return f"Nothing was moved: {refused}."
    outcome = carry_out(pod, victims, lambda victim: evict(victim, person.identity))
    if not outcome.moved:
        return f"Nothing was moved: {outcome.stopped}. {_CURRENT}"
    evicted = f"Evicted {counted(len(outcome.moved), 'pod')}"
    if outcome.stopped:
        messages.error(request, f"{evicted}, then stopped: {outcome.stopped}.")
    else:
        ended = "it has ended" if len(outcome.moved) == 1 else "they have ended"
        messages.success(request, f"{evicted}: {pod.metadata.name} starts when {ended}.")
    return ""
