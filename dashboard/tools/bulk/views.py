"""Acting on many rows of a list: `/bulk/RESOURCE/ACT`, with a `pick` for each.

What is shown first is what the act would do to all of them together, rehearsed as for one; the form under it does it,
through the API with the person's identity. What is refused of one does not hold up the others, and is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from dashboard.inventory.nodes.changes import evict, is_drained
from dashboard.inventory.nodes.queries import pods_on
from dashboard.kit import undo
from dashboard.kit.previews import ActionEffect, Link, only_with
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import authorizes
from dashboard.tools.bulk.effects import BulkEffect, changed_node, effect_of_bulk
from dashboard.tools.bulk.picked import Picked, PickedObject, read_picked
from inventory.kinds.nodes import Node
from manciple.api import verbs
from manciple.people import Person, demand, person_of
from manciple.store.event_log import latest_revision
from manciple.wire.errors import ApiError
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, TAINT_RULES, TEMPLATES, kind

#: Refusals that are told one by one.
TOLD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSubject:
    """Objects of one kind. place: the entry of the navigation; back: whether what was deleted can be made again."""

    one: str
    many: str
    title: str
    url: str
    place: str
    back: bool = False


SUBJECTS: Mapping[str, BulkSubject] = {
    PODS: BulkSubject(one="pod", many="pods", title="Pods", url="/pods", place="pods"),
    CLAIMS: BulkSubject(one="claim", many="claims", title="Claims", url="/claims", place="claims"),
    TEMPLATES: BulkSubject(
        one="template", many="templates", title="Templates", url="/templates", place="claims", back=True
    ),
    CLASSES: BulkSubject(one="class", many="classes", title="Classes", url="/classes", place="classes", back=True),
    TAINT_RULES: BulkSubject(
        one="taint rule", many="taint rules", title="Taint rules", url="/taint-rules", place="devices", back=True
    ),
    NODES: BulkSubject(one="node", many="nodes", title="Nodes", url="/nodes", place="nodes", back=True),
}
#: act -> (what the button says, the right that it needs, what was done)
ACTS = {
    "delete": ("Delete", "delete", "deleted"),
    "cordon": ("Cordon", "update", "cordoned"),
    "uncordon": ("Uncordon", "update", "open to new pods again"),
    "drain": ("Drain", "update", "drained"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPreview:
    """What `tools/bulk/preview.html` shows."""

    subject: BulkSubject
    act: str
    url: str
    picked: Picked
    bulk: BulkEffect
    return_to: str
    #: what has come of the preview of one: see `ActionPreview`
    error: str = ""
    topics: str = ""

    action = property(lambda self: ACTS[self.act][0])
    name = property(lambda self: counted(self.subject, len(self.picked.found)))
    button = property(lambda self: f"{self.action} {self.name}")
    question = property(lambda self: f"{self.action} {self.name}?")
    back = property(lambda self: self.return_to)

    @property
    def effect(self) -> ActionEffect:
        return self.bulk.whole

    @property
    def above(self) -> tuple[Link, ...]:
        return ((self.subject.title, self.subject.url),)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkContext(PageContext):
    preview: BulkPreview


def counted(subject: BulkSubject, number: int) -> str:
    return f"{number:,} {subject.one if number == 1 else subject.many}"


@authorizes
@require_http_methods(["GET", "HEAD", "POST"])
def act_on_picked(request: HttpRequest, resource: str, act: str) -> HttpResponse:
    """See the module's docstring."""
    subject = SUBJECTS.get(resource)
    if subject is None or act not in ACTS or (act == "delete") == (resource == NODES):
        raise Http404(f"There is no act {act} on {resource}.")
    person = _demand(request, subject, resource, act)
    data = request.POST if request.method == "POST" else request.GET
    picked = read_picked(resource, data.getlist("pick"), person)
    back = _return_to(request, data.get("back", ""), subject)
    if not picked.found:
        messages.error(request, f"No {subject.one} is chosen that still exists. Choose some in the list.")
        return redirect(back)
    if request.method == "POST" and data.get("sure"):
        _do(request, subject, act, picked, person)
        return redirect(back)
    preview = BulkPreview(
        subject=subject,
        act=act,
        url=request.path,
        picked=picked,
        bulk=effect_of_bulk(resource, act, picked.found, person),
        return_to=back,
    )
    context = BulkContext(place=subject.place, revision=latest_revision(), preview=preview)
    return render_page(request, "tools/bulk/preview.html", context)


def _demand(request: HttpRequest, subject: BulkSubject, resource: str, act: str) -> Person:
    """Raises: PermissionDenied for whoever may do it to nothing that they see. Each write is asked about again."""
    person, verb = person_of(request), ACTS[act][1]
    if not any(person.may(verb, resource, namespace) for namespace in person.namespaces or ()):
        demand(request, f"{act} {subject.many}", verb, resource)
    return person


def _return_to(request: HttpRequest, there: str, subject: BulkSubject) -> str:
    known = url_has_allowed_host_and_scheme(there, allowed_hosts={request.get_host()})
    return there if known and there.startswith("/") else subject.url


# Doing it ------------------------------------------------------------------------------------------------------------

#: What was written, and what stands against it, "" for nothing.
Outcome = tuple[undo.UndoStep | None, str]


def _do(request: HttpRequest, subject: BulkSubject, act: str, picked: Picked, person: Person) -> None:
    does: Callable[[PickedObject, Person, str], Outcome] = _delete if act == "delete" else _change_node
    outcomes = [(one, *does(one, person, act)) for one in picked.found]
    refused = [(one, why) for one, _, why in outcomes if why]
    if act == "drain":
        refused += _evict_from([one for one, _, why in outcomes if not why], person)
    for one, why in refused[:TOLD]:
        messages.error(request, f"{one.title}: {why}")
    if len(refused) > TOLD:
        messages.error(request, f"{len(refused) - TOLD} more were refused.")
    done = sum(not why for _, _, why in outcomes)
    if done:
        said = f"{counted(subject, done).capitalize()} {'is' if done == 1 else 'are'} {ACTS[act][2]}."
        steps = [step for _, step, _ in outcomes if step is not None]
        _tell(request, said, steps if subject.back else [])


def _tell(request: HttpRequest, said: str, steps: Sequence[undo.UndoStep]) -> None:
    if steps:
        undo.offer(request, said, steps)
    else:
        messages.success(request, said)


def _delete(one: PickedObject, person: Person, _act: str) -> Outcome:
    try:
        verbs.delete(
            kind(one.resource),
            namespace=one.namespace,
            name=one.name,
            identity=person.identity,
            options=only_with(one.uid),
        )
    except ApiError as refusal:
        return None, "" if refusal.reason == "NotFound" else refusal.message
    return undo.UndoStep.of(kind(one.resource), one.object, None), ""


def _change_node(one: PickedObject, person: Person, act: str) -> Outcome:
    def change(node: Node) -> Node:
        return changed_node(node, act)

    try:
        after = verbs.modify(kind(NODES), change, name=one.name, identity=person.identity).object
    except ApiError as refusal:
        return None, refusal.message
    same = one.object.metadata.resource_version == after.metadata.resource_version
    return None if same else undo.UndoStep.of(kind(NODES), one.object, after), ""


def _evict_from(nodes: Sequence[PickedObject], person: Person) -> list[tuple[PickedObject, str]]:
    """Whom a drain evicts; (node, what stands against it) of each pod that stays."""
    there = pods_on([one.name for one in nodes])
    return [
        (one, f"pod {pod.metadata.namespace}/{pod.metadata.name} was not evicted: {why}")
        for one in nodes
        for pod in there[one.name].pods
        if is_drained(pod) and (why := evict(pod, person.identity))
    ]
