"""Acting on many rows of a list: `/bulk/RESOURCE/ACT`, with a `pick` for each.

What is shown first is what the act would do to all of them together, rehearsed as for one; the form under it does it,
through the API with the person's identity. What is refused of one does not hold up the others, and is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from claims.devices.cache import read_devices
from dashboard.inventory.classes import views as classes
from dashboard.inventory.classes.queries import users_of
from dashboard.inventory.nodes.changes import NodeChange, What, changed, evict, is_drained
from dashboard.inventory.nodes.reading import pods_on
from dashboard.inventory.taint_rules.effects import RuleChange, effect_of
from dashboard.kit import undo
from dashboard.kit.evictions import Leaving, kept_back, read_kept, told_of
from dashboard.kit.links import object_url
from dashboard.kit.previews import ActionEffect, Consequence, Link, only_with
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import authorizes
from dashboard.workloads.claims import actions as claim_actions
from dashboard.workloads.claims.reading import read_claims
from dashboard.workloads.pods.deletion import effect_of_deletion
from dashboard.workloads.templates import views as templates_pages
from inventory.kinds.nodes import Node
from manciple.api import verbs
from manciple.people import Person, demand, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.errors import ApiError
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, TAINT_RULES, TEMPLATES, kind
from scheduling.rehearsal.changes import Imagined, what_if_changed
from scheduling.rehearsal.departures import what_if_gone

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


#: Objects that are acted on together.
MOST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedObject:
    """One of them."""

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
    """Those that are there, and the names of those that are gone or are other objects by now."""

    found: tuple[PickedObject, ...]
    gone: tuple[str, ...]


def read_picked(resource: str, texts: Iterable[str], person: Person) -> Picked:
    """What the person may not see counts as gone. One query."""
    wanted: dict[tuple[str, str], str] = {}
    for text in texts:
        title, _, uid = text.partition("@")
        namespace, _, name = title.rpartition("/")
        if name and person.sees(namespace):
            wanted.setdefault((namespace, name), uid)
    keys = list(wanted)[:MOST]
    stored = objects.get_many(kind(resource), keys)
    there = {(one.namespace, one.name): one for one in stored}
    found = tuple(
        PickedObject(resource=resource, object=objects.decode(kind(resource), there[key].text))
        for key in keys
        if key in there and wanted[key] in ("", there[key].uid)
    )
    known = {(one.namespace, one.name) for one in found}
    return Picked(found=found, gone=tuple("/".join(filter(None, key)) for key in keys if key not in known))


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkEffect:
    """whole: of all together; each: what follows from one of them."""

    whole: ActionEffect
    each: Sequence[tuple[PickedObject, Sequence[Consequence]]] = ()


Picks = Sequence[PickedObject]


def effect_of_bulk(resource: str, act: str, picked: Picks, person: Person) -> BulkEffect:
    if resource == NODES:
        return BulkEffect(whole=_of_nodes(_WHATS[act], [one.object for one in picked], person))
    return _OF_DELETION[resource](picked, person)


# Deletion ------------------------------------------------------------------------------------------------------------


def _of_pods(picked: Picks, person: Person) -> BulkEffect:
    pods = [one.object for one in picked]
    return BulkEffect(whole=effect_of_deletion(pods, what_if_gone(*pods), person))


def _of_claims(picked: Picks, person: Person) -> BulkEffect:
    lines = {line.uid: line for line in read_claims(person)}
    known = [one for one in picked if one.uid in lines]
    return _each((one, claim_actions.effect_of_deletion(one.object, lines[one.uid])) for one in known)


def _of_templates(picked: Picks, person: Person) -> BulkEffect:
    uses = templates_pages.read_uses(person)
    return _each((one, templates_pages.effect_of_deletion(uses[one.namespace, one.name])) for one in picked)


def _of_classes(picked: Picks, person: Person) -> BulkEffect:
    return _each((one, classes.effect_of_deletion(one.object, users_of(one.name, person))) for one in picked)


def _of_rules(picked: Picks, person: Person) -> BulkEffect:
    changes = [RuleChange(before=one.object) for one in picked]
    return BulkEffect(whole=effect_of(changes, person, read_devices(), datetime.now(UTC)))


def _each(found: Iterable[tuple[PickedObject, ActionEffect]]) -> BulkEffect:
    each = [(one, effect.consequences) for one, effect in found]
    return BulkEffect(whole=ActionEffect(consequences=()), each=each)


_OF_DELETION: Mapping[str, Callable[[Picks, Person], BulkEffect]] = {
    PODS: _of_pods,
    CLAIMS: _of_claims,
    TEMPLATES: _of_templates,
    CLASSES: _of_classes,
    TAINT_RULES: _of_rules,
}


# Nodes ---------------------------------------------------------------------------------------------------------------

_WHATS: Mapping[str, What] = {"cordon": "cordon", "uncordon": "uncordon", "drain": "drain"}


def _of_nodes(what: What, nodes: Sequence[Node], person: Person) -> ActionEffect:
    now, change = datetime.now(UTC), NodeChange(what=what)
    after = [(node, changed(node, change, now)) for node in nodes]
    moving = [(node, then) for node, then in after if node.spec != then.spec]
    there = pods_on([node.metadata.name for node in nodes]) if what == "drain" else {}
    drained = [pod for on in there.values() for pod in on.pods if is_drained(pod)]
    kept = read_kept(drained)
    stay = {one.pod.metadata.uid for one in kept}
    leaving = [Leaving(pod=pod) for pod in drained if pod.metadata.uid not in stay]
    if not moving and not drained:
        return ActionEffect(consequences=(), refused=f"nothing would change: {_IDLE[what]}")
    imagined = [Imagined(resource=NODES, before=node, after=then) for node, then in moving]
    found = what_if_changed(imagined, [one.pod for one in leaving])
    told = (*told_of(leaving, found, person), *kept_back(kept, person))
    idle = len(nodes) - len(moving)
    same = (Consequence(term="As before", sentences=(f"{idle} of them: {_IDLE[what]}.",)),) if idle else ()
    return ActionEffect(summary=_DOES[what], consequences=(*told, *same))


_DOES = {
    "cordon": "No new pod comes to them; what runs there goes on.",
    "uncordon": "New pods come to them again.",
    "drain": "They are cordoned, and their pods are evicted; those of DaemonSets stay.",
}
_IDLE = {
    "cordon": "they are cordoned already",
    "uncordon": "they are not cordoned",
    "drain": "they are cordoned already",
}


def changed_node(node: Node, act: str) -> Node:
    """As the act leaves it."""
    return changed(node, NodeChange(what=_WHATS[act]), datetime.now(UTC))
