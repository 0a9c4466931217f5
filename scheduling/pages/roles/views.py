"""`/roles`: what roles allow and who has them, for whoever may list them; `/roles/NAME` one, a Role with `?ns=`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from manciple.access.kinds import roles
from manciple.pages.lists import Filter, ListColumn, ListQuery, Table, parameter, sorted_by
from manciple.pages.people import Person, person_of
from manciple.pages.rendering import ListContext, PageContext, render_page, show_list
from manciple.pages.saved_views import opens_as_usual
from manciple.store.tail import latest_revision
from scheduling.pages.access.views import may_ask
from scheduling.pages.roles.reading import HeldRole, gathered_from, read_roles

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
    """asks: whether the person may ask what others may do; system_url: with or without the system's own roles."""

    query: RoleQuery
    asks: bool
    system_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleContext(PageContext):
    """sources: the roles whose rules it gathers."""

    held: HeldRole
    sources: Sequence[HeldRole]
    asks: bool


@login_required
@require_safe
@opens_as_usual
def list_roles(request: HttpRequest) -> HttpResponse:
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
    )
    return show_list(request, "roles/list.html", context)


@login_required
@require_safe
def show_role(request: HttpRequest, name: str) -> HttpResponse:
    revision, person = latest_revision(), person_of(request)
    namespace, known = request.GET.get("ns", ""), _read(person)
    held = next((one for one in known if (one.namespace, one.name) == (namespace, name)), None)
    if held is None:
        where = f" in namespace {namespace}" if namespace else ""
        raise Http404(f"Role {name} does not exist{where}.")
    context = RoleContext(
        place="roles", revision=revision, held=held, sources=gathered_from(held.role, known), asks=may_ask(person)
    )
    return render_page(request, "roles/page.html", context)


def _read(person: Person) -> list[HeldRole]:
    """Raises: PermissionDenied for whoever may list none."""
    found = read_roles(person)
    if not found and not person.may("list", roles.CLUSTER_ROLE.resource):
        raise PermissionDenied("You may not list roles. Ask an administrator for a role that allows it.")
    return found
