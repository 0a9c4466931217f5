"""Acting on many rows of a list: `/bulk/RESOURCE/ACT`, with a `pick` for each.

A GET, and the POST of a list, show what the act would do: to all objects together where they concern each other, else
to each. The form on that page does it, through the API with the person's identity. One refusal does not stop the rest.

A `pick` is `NAMESPACE/NAME` or `NAME`, followed by `@UID` once the object was shown, so that nobody acts on another
object that has the name by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from claims.devices.cache import read_devices
from claims.models import Claim
from dashboard.inventory.classes import views as classes
from dashboard.inventory.nodes.changes import NodeChange, What, changed, evict, is_drained
from dashboard.inventory.nodes.queries import pods_on
from dashboard.inventory.taint_rules import RuleChange, effect_of
from dashboard.kit import undo
from dashboard.kit.evictions import Leaving, kept_back, read_kept, told_of
from dashboard.kit.forms import plain
from dashboard.kit.guards import authorizes
from dashboard.kit.previews import ActionEffect, Consequence, Link, only_with
from dashboard.kit.rendering import PageContext, render_page
from dashboard.templatetags.kit import counted, listed, object_url
from dashboard.workloads import templates
from dashboard.workloads.claims import views as claims
from dashboard.workloads.claims.queries import read_claims
from dashboard.workloads.pods.actions import effect_of_deletion
from inventory.kinds.nodes import Node
from manciple.api import verbs
from manciple.people import Person, demand, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.errors import ApiError
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, TAINT_RULES, TEMPLATES, kind
from scheduling.rehearsal.changes import Imagined, what_if_changed
from scheduling.rehearsal.departures import what_if_gone

#: Objects that are acted on together.
MOST = 500
#: Refusals that get a message each; names of objects that are gone.
TOLD = 5


@dataclass(frozen=True, slots=True)
class BulkSubject:
    """Objects of one kind. url_name: of their list; place: its entry in the navigation; undoes: whether a deleted one
    can be created again.
    """

    one: str
    many: str
    url_name: str
    place: str
    undoes: bool

    def counted(self, number: int) -> str:
        return counted(number, self.one, self.many)


SUBJECTS: Mapping[str, BulkSubject] = {
    PODS: BulkSubject("pod", "pods", "pods", "pods", undoes=False),
    CLAIMS: BulkSubject("claim", "claims", "claims", "claims", undoes=False),
    TEMPLATES: BulkSubject("template", "templates", "templates", "claims", undoes=True),
    CLASSES: BulkSubject("class", "classes", "classes", "classes", undoes=True),
    TAINT_RULES: BulkSubject("taint rule", "taint rules", "taint-rules", "devices", undoes=True),
    NODES: BulkSubject("node", "nodes", "nodes", "nodes", undoes=True),
}
#: act -> (the right that it needs, what was done)
ACTS = {
    "delete": ("delete", "deleted"),
    "cordon": ("update", "cordoned"),
    "uncordon": ("update", "open to new pods again"),
    "drain": ("update", "drained"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedObject:
    """An object as it is stored now."""

    resource: str
    object: Any

    @property
    def namespace(self) -> str:
        return str(self.object.metadata.namespace)

    @property
    def name(self) -> str:
        return str(self.object.metadata.name)

    @property
    def uid(self) -> str:
        return str(self.object.metadata.uid)

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def url(self) -> str:
        return object_url(self.resource, self.namespace, self.name)

    @property
    def pick(self) -> str:
        """As a form sends it again."""
        return f"{self.title}@{self.uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """gone: the names of objects that no longer exist, or that are others by now."""

    found: tuple[PickedObject, ...]
    gone: tuple[str, ...]


def read_picked(resource: str, texts: Iterable[str], person: Person) -> Picked:
    """What the person may not see counts as gone. One query."""
    uids: dict[tuple[str, str], str] = {}
    for text in texts:
        title, _, uid = text.partition("@")
        namespace, _, name = title.rpartition("/")
        if name and person.sees(namespace):
            uids.setdefault((namespace, name), uid)
    keys = list(uids)[:MOST]
    stored = {(one.namespace, one.name): one for one in objects.get_many(kind(resource), keys)}
    there = [key for key in keys if key in stored and uids[key] in ("", stored[key].uid)]
    decoded = (objects.decode(kind(resource), stored[key].text) for key in there)
    return Picked(
        found=tuple(PickedObject(resource=resource, object=one) for one in decoded),
        gone=tuple("/".join(filter(None, key)) for key in keys if key not in there),
    )


Picks = Sequence[PickedObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkEffect:
    """whole: of all together; each: what follows from one of them."""

    whole: ActionEffect
    each: Sequence[tuple[PickedObject, Sequence[Consequence]]] = ()


def effect_of_deleting(resource: str, picked: Picks, person: Person) -> BulkEffect:
    """Claims and templates that went meanwhile are left out."""
    stored = [one.object for one in picked]
    if resource == PODS:
        return BulkEffect(whole=effect_of_deletion(stored, what_if_gone(*stored), person))
    if resource == TAINT_RULES:
        changes = [RuleChange(before=rule) for rule in stored]
        return BulkEffect(whole=effect_of(changes, person, read_devices(), datetime.now(UTC)))
    effects: dict[str, ActionEffect] = {}
    if resource == CLAIMS:
        rows = Claim.objects.restrict(person).filter(uid__in=[one.uid for one in picked])
        lines = {line.uid: line for line in read_claims(rows)}
        effects = {one.uid: claims.effect_of_deletion(one.object, lines[one.uid]) for one in picked if one.uid in lines}
    elif resource == TEMPLATES:
        of_names = templates.effects_of_deletion([(one.namespace, one.name) for one in picked])
        effects = {one.uid: of_names[key] for one in picked if (key := (one.namespace, one.name)) in of_names}
    else:
        effects = {one.uid: classes.effect_of_deletion(one.object, person) for one in picked}
    each = [(one, effects[one.uid].consequences) for one in picked if one.uid in effects]
    return BulkEffect(whole=ActionEffect(consequences=()), each=each)


#: act on nodes -> (the change, what it does, why a node stays as it is)
_OF_NODES: Mapping[str, tuple[What, str, str]] = {
    "cordon": ("cordon", "No new pods; running ones stay.", "they are cordoned already"),
    "uncordon": ("uncordon", "New pods may start there.", "they are not cordoned"),
    "drain": (
        "drain",
        "Cordons them and evicts their pods; those of DaemonSets stay.",
        "they are cordoned already",
    ),
}


def _of_nodes(act: str, picked: Picks, person: Person) -> BulkEffect:
    nodes: list[Node] = [one.object for one in picked]
    _, summary, idle = _OF_NODES[act]
    after = [(node, _changed(node, act)) for node in nodes]
    moving = [(node, then) for node, then in after if node.spec != then.spec]
    there = pods_on([node.metadata.name for node in nodes]) if act == "drain" else {}
    drained = [pod for on in there.values() for pod in on.pods if is_drained(pod)]
    if not moving and not drained:
        return BulkEffect(whole=ActionEffect(consequences=(), refused=f"nothing would change: {idle}"))
    kept = read_kept(drained)
    stay = {one.pod.metadata.uid for one in kept}
    leaving = [Leaving(pod=pod) for pod in drained if pod.metadata.uid not in stay]
    imagined = [Imagined(resource=NODES, before=node, after=then) for node, then in moving]
    rehearsed = what_if_changed(imagined, [one.pod for one in leaving])
    consequences = [*told_of(leaving, rehearsed, person), *kept_back(kept, person)]
    if same := len(nodes) - len(moving):
        consequences.append(Consequence(term="As before", sentences=(f"{same} of them: {idle}.",)))
    return BulkEffect(whole=ActionEffect(summary=summary, consequences=tuple(consequences)))


def _changed(node: Node, act: str) -> Node:
    return changed(node, NodeChange(what=_OF_NODES[act][0]), datetime.now(UTC))


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPreview:
    """What `tools/bulk/preview.html` shows: the fields of an `ActionPreview`, and the picked objects."""

    subject: BulkSubject
    act: str
    url: str
    picked: Picked
    each: Sequence[tuple[PickedObject, Sequence[Consequence]]]
    effect: ActionEffect
    back: str
    error: str = ""
    topics: str = ""

    @property
    def action(self) -> str:
        return self.act.capitalize()

    @property
    def name(self) -> str:
        return self.subject.counted(len(self.picked.found))

    @property
    def button(self) -> str:
        return f"{self.action} {self.name}"

    @property
    def question(self) -> str:
        return f"{self.button}?"

    @property
    def above(self) -> tuple[Link, ...]:
        return ((self.subject.many.capitalize(), reverse(self.subject.url_name)),)

    @property
    def left_out(self) -> str:
        gone = self.picked.gone
        if not gone:
            return ""
        are = "it is gone or another object" if len(gone) == 1 else "they are gone or another object"
        return f"Left out, because {are}: {listed(gone, TOLD)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkContext(PageContext):
    preview: BulkPreview


@authorizes
@require_http_methods(["GET", "HEAD", "POST"])
def act_on_picked(request: HttpRequest, resource: str, act: str) -> HttpResponse:
    """Raises: PermissionDenied for people who may do it to nothing that they see; each write is authorized again."""
    subject = SUBJECTS.get(resource)
    if subject is None or act not in ACTS or (act == "delete") == (resource == NODES):
        raise Http404(f"There is no act {act} on {resource}.")
    person, verb = person_of(request), ACTS[act][0]
    if not any(person.may(verb, resource, namespace) for namespace in person.namespaces or ()):
        demand(request, f"{act} {subject.many}", verb, resource)
    data = request.POST if request.method == "POST" else request.GET
    picked = read_picked(resource, data.getlist("pick"), person)
    back = data.get("back", "")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}) or not back.startswith("/"):
        back = reverse(subject.url_name)
    if not picked.found:
        messages.error(request, f"No {subject.one} is chosen that still exists.")
        return redirect(back)
    if request.method == "POST" and data.get("sure"):
        _do(request, subject, act, picked.found, person)
        return redirect(back)
    of = (
        _of_nodes(act, picked.found, person)
        if resource == NODES
        else effect_of_deleting(resource, picked.found, person)
    )
    preview = BulkPreview(
        subject=subject, act=act, url=request.path, picked=picked, each=of.each, effect=of.whole, back=back
    )
    context = BulkContext(place=subject.place, revision=latest_revision(), preview=preview)
    return render_page(request, "tools/bulk/preview.html", context)


#: What was written, None if nothing; and the refusal, "" without one.
Outcome = tuple[undo.UndoStep | None, str]


def _do(request: HttpRequest, subject: BulkSubject, act: str, picked: Picks, person: Person) -> None:
    does: Callable[[PickedObject, Person, str], Outcome] = _delete if act == "delete" else _change_node
    outcomes = [(one, *does(one, person, act)) for one in picked]
    refused = [(one, why) for one, _, why in outcomes if why]
    if act == "drain":
        refused += _evict_from([one for one, _, why in outcomes if not why], person)
    for one, why in refused[:TOLD]:
        messages.error(request, f"{one.title}: {why}")
    if len(refused) > TOLD:
        messages.error(request, f"{len(refused) - TOLD} more were refused.")
    if done := sum(not why for _, _, why in outcomes):
        said = f"{subject.counted(done)} {'is' if done == 1 else 'are'} {ACTS[act][1]}."
        said += " Undo removes only the cordons." if act == "drain" else ""
        steps = [step for _, step, _ in outcomes if step is not None]
        if steps and subject.undoes:
            undo.offer(request, said, steps)
        else:
            messages.success(request, said)


def _delete(one: PickedObject, person: Person, _act: str) -> Outcome:
    try:
        options, identity = only_with(one.uid), person.identity
        verbs.delete(kind(one.resource), namespace=one.namespace, name=one.name, identity=identity, options=options)
    except ApiError as refusal:
        return None, "" if refusal.reason == "NotFound" else plain(refusal.message)
    return undo.UndoStep.of(kind(one.resource), one.object, None), ""


def _change_node(one: PickedObject, person: Person, act: str) -> Outcome:
    try:
        after = verbs.modify(kind(NODES), partial(_changed, act=act), name=one.name, identity=person.identity).object
    except ApiError as refusal:
        return None, plain(refusal.message)
    same = one.object.metadata.resource_version == after.metadata.resource_version
    return None if same else undo.UndoStep.of(kind(NODES), one.object, after), ""


def _evict_from(nodes: Picks, person: Person) -> list[tuple[PickedObject, str]]:
    """Evicts the pods of drained nodes. Returns (node, refusal) of each pod that stays."""
    there = pods_on([one.name for one in nodes])
    return [
        (one, f"pod {pod.metadata.namespace}/{pod.metadata.name} was not evicted: {why}")
        for one in nodes
        for pod in there[one.name].pods
        if is_drained(pod) and (why := evict(pod, person.identity))
    ]
