"""`/roles`: what roles allow and who has them, for whoever may list them; `/roles/NAME` one, a Role with `?ns=`.

Their forms make a role, give one to somebody and take it away (`changing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.kit import links
from dashboard.kit.lists import Filter, ListColumn, ListQuery, Table, parameter, sorted_by
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.rights import authorizes
from dashboard.kit.saved_views import opens_as_usual
from dashboard.people.access.views import may_ask
from dashboard.people.roles.forms import GiveForm, NewRoleForm
from dashboard.people.roles.reading import HeldRole, gathered_from, read_roles
from manciple.access.kinds import roles
from manciple.people import Person, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.registry import registry
from manciple.wire.resources import NAMESPACES, kind

EVERYWHERE = "Everywhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleQuery(ListQuery):
    """`?system=1` shows also the roles of the system's own parts."""

    text: str = parameter("q")
    namespace: str = parameter("ns")
    system: str = parameter("system", known=("1",))

    def lets(self, held: HeldRole) -> bool:
        wanted = "" if self.namespace == EVERYWHERE else self.namespace
        return (
            self.text.lower() in held.name.lower()
            and (not self.namespace or held.namespace == wanted)
            and bool(self.system or self.text or not held.is_system)
        )


COLUMNS = (
    ListColumn[HeldRole](
        title="Role", sort="name", key=lambda held: (held.name, held.namespace), text=lambda held: held.name
    ),
    ListColumn[HeldRole](
        title="Defined",
        sort="ns",
        key=lambda held: (held.namespace, held.name),
        text=lambda held: held.namespace or EVERYWHERE,
    ),
    ListColumn[HeldRole](title="Allows", text=lambda held: held.short),
    ListColumn[HeldRole](
        title="Held by", css="num", sort="held", key=lambda held: held.subjects, text=lambda held: held.subjects
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolesContext(ListContext):
    """asks: whether the person may ask what others may do; system_url: with or without the system's own roles.
    form: of a new role, None for who may make none; resources: that it may name."""

    query: RoleQuery
    asks: bool
    form: NewRoleForm | None
    resources: Sequence[str]
    system_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleContext(PageContext):
    """sources: the roles whose rules it gathers. form: None for who may give it nowhere. yaml: "" of a role that is
    not stored. complaint: why it was not taken away from somebody."""

    held: HeldRole
    sources: Sequence[HeldRole]
    asks: bool
    form: GiveForm | None
    yaml: str
    complaint: str


@authorizes
@require_safe
@opens_as_usual
def list_roles(request: HttpRequest) -> HttpResponse:
    """The list."""
    return draw_list(request)


def draw_list(request: HttpRequest, form: NewRoleForm | None = None) -> HttpResponse:
    """form: that was refused."""
    revision, person = latest_revision(), person_of(request)
    query, found = RoleQuery.read(request), _read(person)
    namespaces = sorted({held.namespace for held in found if held.namespace})
    table = Table(
        id="roles",
        topics="",
        title="Roles",
        query=query,
        columns=COLUMNS,
        rows=sorted_by(COLUMNS, query.sort, (held for held in found if query.lets(held))),
        filters=(
            Filter("q", "Name", query.text, hint="Name"),
            Filter("ns", "Defined in", query.namespace, every="Defined anywhere", options=(EVERYWHERE, *namespaces)),
        ),
    )
    context = RolesContext(
        place="roles",
        revision=revision,
        query=query,
        table=table,
        asks=may_ask(person),
        system_url=query.url(system="" if query.system else "1"),
        form=form or new_form(person),
        resources=sorted({one.plural for one in registry}),
    )
    return show_list(request, "people/roles/list.html", context, status=422 if form else 200)


@authorizes
@require_safe
def show_role(request: HttpRequest, name: str) -> HttpResponse:
    """One."""
    return draw_role(request, name)


def draw_role(request: HttpRequest, name: str, form: GiveForm | None = None, complaint: str = "") -> HttpResponse:
    """form: that was refused."""
    revision, person = latest_revision(), person_of(request)
    held, known = find_role(request, name)
    of = roles.ROLE if held.namespace else roles.CLUSTER_ROLE
    stored = objects.get(of, held.namespace, name)
    context = RoleContext(
        place="roles",
        revision=revision,
        held=held,
        sources=gathered_from(held.role, known),
        asks=may_ask(person),
        form=form or give_form(person, held),
        yaml=links.yaml_url(of.resource, held.namespace, name) if stored else "",
        complaint=complaint,
    )
    return render_page(request, "people/roles/page.html", context, status=422 if form or complaint else 200)


def find_role(request: HttpRequest, name: str) -> tuple[HeldRole, Sequence[HeldRole]]:
    """That of the address, and all. Raises: Http404."""
    namespace, known = request.GET.get("ns", ""), _read(person_of(request))
    held = next((one for one in known if (one.namespace, one.name) == (namespace, name)), None)
    if held is None:
        where = f" in namespace {namespace}" if namespace else ""
        raise Http404(f"Role {name} does not exist{where}.")
    return held, known


def new_form(person: Person, data: Mapping[str, Any] | None = None) -> NewRoleForm | None:
    """None for who may make no role."""
    open_ = _places(person, roles.CLUSTER_ROLE.resource, roles.ROLE.resource)
    return NewRoleForm(data, namespaces=open_) if open_ else None


def give_form(person: Person, held: HeldRole, data: Mapping[str, Any] | None = None) -> GiveForm | None:
    """None for who may give it nowhere: a Role is given in its own namespace alone."""
    open_ = _places(person, roles.CLUSTER_ROLE_BINDING.resource, roles.ROLE_BINDING.resource)
    if held.namespace:
        open_ = [one for one in open_ if one == held.namespace]
    return GiveForm(data, namespaces=open_) if open_ else None


def _places(person: Person, everywhere: str, inside: str) -> list[str]:
    """Where the person may create one: "" for everywhere, and namespaces."""
    names = [one.name for one in objects.list(kind(NAMESPACES)).items if person.sees(one.name)]
    within = [name for name in names if person.may("create", inside, name)]
    return ["", *within] if person.may("create", everywhere) else within


def _read(person: Person) -> list[HeldRole]:
    """Raises: PermissionDenied for whoever may list none."""
    found = read_roles(person)
    if not found and not person.may("list", roles.CLUSTER_ROLE.resource):
        raise PermissionDenied("You may not list roles. Ask an administrator for a role that allows it.")
    return found
