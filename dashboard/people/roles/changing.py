"""Making a role, giving one to somebody and taking it away; each can be undone for a while."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from msgspec import structs

from dashboard.kit import undo
from dashboard.kit.forms import posted_from
from dashboard.kit.rights import authorizes
from dashboard.people.roles.forms import GiveForm, NewRoleForm
from dashboard.people.roles.reading import HeldRole
from dashboard.people.roles.views import draw_list, draw_role, find_role, give_form, new_form
from manciple.access.kinds import roles
from manciple.access.kinds.roles import AnyBinding, Subject
from manciple.api import verbs
from manciple.people import Person, demand
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.registry import Kind


@authorizes
@posted_from("roles")
def make_role(request: HttpRequest) -> HttpResponse:
    namespace = request.POST.get("namespace", "")
    kind = roles.ROLE if namespace else roles.CLUSTER_ROLE
    person = demand(request, "create roles", "create", kind.resource, namespace)
    form = new_form(person, request.POST)
    if form is None or not form.is_valid() or (made := _make(form, kind, person)) is None:
        return draw_list(request, form)
    undo.offer(request, f"Role {made.name} is created. Nobody has it yet.", [undo.UndoStep.of(kind, None, made.role)])
    return redirect(made.url)


def _make(form: NewRoleForm, kind: Kind, person: Person) -> HeldRole | None:
    wanted = form.role()
    try:
        made = verbs.create(kind, wanted, namespace=wanted.metadata.namespace, identity=person.identity)
    except ApiError as refusal:
        form.complain(refusal)
        return None
    return HeldRole(role=made)


@authorizes
@posted_from("role")
def give_role(request: HttpRequest, name: str) -> HttpResponse:
    """To one more; `?ns=` as of the role's page."""
    namespace = request.POST.get("namespace", "")
    kind = roles.ROLE_BINDING if namespace else roles.CLUSTER_ROLE_BINDING
    person = demand(request, "create bindings", "create", kind.resource, namespace)
    held, _ = find_role(request, name)
    form = give_form(person, held, request.POST)
    made = _give(form, held, kind, person) if form is not None and form.is_valid() else None
    if form is None or made is None:
        return draw_role(request, name, form)
    where = f"in {namespace}" if namespace else "everywhere"
    said = f"{form.cleaned_data['name']} has {name} {where}."
    undo.offer(request, said, [undo.UndoStep.of(kind, None, made)])
    return redirect(held.url)


def _give(form: GiveForm, held: HeldRole, kind: Kind, person: Person) -> AnyBinding | None:
    wanted = form.binding(held.role)
    try:
        made: AnyBinding = verbs.create(kind, wanted, namespace=wanted.metadata.namespace, identity=person.identity)
    except ApiError as refusal:
        form.complain(refusal)
        return None
    return made


@authorizes
@posted_from("role")
def take_role(request: HttpRequest, name: str) -> HttpResponse:
    """From one whom `binding` names; a binding that names nobody else is deleted."""
    where, binding = request.POST.get("where", ""), request.POST.get("binding", "")
    kind = roles.ROLE_BINDING if where else roles.CLUSTER_ROLE_BINDING
    person = demand(request, "delete bindings", "delete", kind.resource, where)
    held, _ = find_role(request, name)
    taken = Subject(
        kind=request.POST.get("kind", ""), name=request.POST.get("name", ""), namespace=request.POST.get("account", "")
    )
    try:
        step = _take(kind, where, binding, taken, person)
    except NotFound as gone:
        raise Http404(f"{taken.name} does not have {name} by {binding} any more.") from gone
    except ApiError as refusal:
        return draw_role(request, name, None, refusal.message)
    undo.offer(request, f"{name} was taken away from {taken.name}.", [step])
    return redirect(held.url)


def _take(kind: Kind, namespace: str, name: str, taken: Subject, person: Person) -> undo.UndoStep:
    """Raises: ApiError."""
    before: AnyBinding = verbs.current(kind, namespace, name)
    rest = tuple(one for one in before.subjects if _who(one) != _who(taken))
    if len(rest) == len(before.subjects):
        raise NotFound.of(kind.resource, name)
    if not rest:
        verbs.delete(kind, namespace=namespace, name=name, identity=person.identity)
        return undo.UndoStep.of(kind, before, None)

    def without(binding: AnyBinding) -> AnyBinding:
        return structs.replace(binding, subjects=rest)

    after = verbs.modify(kind, without, namespace=namespace, name=name, identity=person.identity).object
    return undo.UndoStep.of(kind, before, after)


def _who(subject: Subject) -> tuple[str, str, str]:
    return subject.kind, subject.name, subject.namespace
