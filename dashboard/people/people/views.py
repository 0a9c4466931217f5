"""`/people`: who may sign in, for administrators; `?who=NAME` shows one, with what can be changed about them.

Somebody new is made with an invitation: a link, shown in the answer to the form and nowhere again, with which they set
their password. The same link serves whoever has forgotten theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboard.kit.forms import posted_from
from dashboard.kit.lists import Filter, ListColumn, Table
from dashboard.kit.rendering import ListContext, show_list
from dashboard.kit.rights import administrators_only
from dashboard.kit.saved_views import opens_as_usual
from dashboard.people.people.forms import InvitationForm, StandingForm
from dashboard.people.people.reading import (
    ADMINISTRATORS,
    CLOSED,
    PeopleQuery,
    PersonRow,
    all_groups,
    find_people,
    read_person,
    tokens_of,
)
from manciple.access import membership
from manciple.access.authentication import tokens
from manciple.access.invitations import GroupRefused, NameRefused, invite
from manciple.access.membership import ChangeRefused
from manciple.access.models import Token
from manciple.audit.sign_ins import PEOPLE, TOKENS, note_change
from manciple.people import Person, person_of
from manciple.store.event_log import latest_revision

UNPROCESSABLE = 422
_KUBECONFIG = ", so HOME/kubeconfig lets nobody in now"
COLUMNS = (
    ListColumn[PersonRow](title="Name", sort="name", text=lambda row: row.name),
    ListColumn[PersonRow](title="Groups", text=lambda row: " ".join(row.groups)),
    ListColumn[PersonRow](title="Last sign-in", sort="seen", text=lambda row: row.seen),
    ListColumn[PersonRow](title="Tokens", css="num", sort="tokens", text=lambda row: row.tokens),
)


@administrators_only
@never_cache
@require_safe
@opens_as_usual
def list_people(request: HttpRequest) -> HttpResponse:
    _demand(request)
    return _draw(request)


def _demand(request: HttpRequest) -> Person:
    """Raises: PermissionDenied for whoever is no administrator."""
    person = person_of(request)
    if not person.administers:
        raise PermissionDenied("You may not manage people. Ask an administrator.")
    return person


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleContext(ListContext):
    """shown: the person that is open, with their tokens and what can be changed of them (`standing`)."""

    query: PeopleQuery
    shown: PersonRow | None
    tokens: Iterable[Token]
    standing: StandingForm | None
    invitation: InvitationForm
    link: str
    close_url: str


def _draw(
    request: HttpRequest,
    *,
    who: str = "",
    invitation: InvitationForm | None = None,
    standing: StandingForm | None = None,
    link: str = "",
) -> HttpResponse:
    """who: the person that is shown, where it is not the address that says so. link: to be handed on, this once."""
    query = PeopleQuery.read(request)
    page, rows, everybody = find_people(query)
    shown = read_person(who or query.who)
    table = Table(
        id="people",
        topics="",
        title="People",
        query=query,
        columns=COLUMNS,
        rows=rows,
        all_rows=everybody,
        page=page,
        filters=(
            Filter("q", "Name", query.text, hint="Name"),
            Filter("kind", "Which", query.kind, every="Everybody", options=(ADMINISTRATORS, CLOSED)),
            Filter("group", "Group", query.group, every="Any group", options=all_groups()),
        ),
    )
    context = PeopleContext(
        place="people",
        revision=latest_revision(),
        query=query,
        table=table,
        shown=shown,
        tokens=tokens_of(shown.user) if shown else (),
        standing=standing or (_standing(shown) if shown else None),
        invitation=invitation or InvitationForm(),
        link=link,
        close_url=query.url(who=""),
    )
    refused = bool((invitation and invitation.errors) or (standing and standing.errors))
    return show_list(request, "people/people/list.html", context, status=UNPROCESSABLE if refused else 200)


def _standing(row: PersonRow) -> StandingForm:
    form = StandingForm()
    form.initial = {
        "groups": ", ".join(row.groups),
        "administers": row.user.is_staff,
        "active": row.user.is_active,
    }
    return form


@administrators_only
@never_cache
@posted_from("people")
def invite_person(request: HttpRequest) -> HttpResponse:
    """Make somebody, with a link for their password; with `again` in the form, a new link for who is here already."""
    person = _demand(request)
    if "again" in request.POST:
        row = _named(request)
        note_change(person.identity, "update", PEOPLE, row.name)
        return _draw(request, who=row.name, link=request.build_absolute_uri(invite(row.name).path))
    form = InvitationForm(request.POST)
    if form.is_valid() and read_person(form.cleaned_data["name"]) is not None:
        form.add_error("name", "A person of that name already exists. Choose another name.")
    made = _invited(form) if form.is_valid() else None
    if made is None:
        return _draw(request, invitation=form)
    note_change(person.identity, "create", PEOPLE, made.person.get_username())
    if made.warning:
        messages.warning(request, made.warning)
    return _draw(request, who=made.person.get_username(), link=request.build_absolute_uri(made.path))


def _invited(form: InvitationForm) -> Any:
    """The invitation; None, with the reason in the form, where the name or a group is refused."""
    asked = form.cleaned_data
    try:
        return invite(asked["name"], groups=asked["groups"], administers=asked["administers"])
    except NameRefused as error:
        form.add_error("groups" if isinstance(error, GroupRefused) else "name", str(error))
        return None


@administrators_only
@never_cache
@posted_from("people")
def change_person(request: HttpRequest) -> HttpResponse:
    """Groups, whether they administer, whether they may come in."""
    person, row, form = _demand(request), _named(request), StandingForm(request.POST)
    named = tokens.named(row.name).count()
    if form.is_valid():
        try:
            membership.change(row.user, form.standing, by=person.name)
        except ChangeRefused as error:
            form.add_error(None, str(error))
    if form.errors:
        return _draw(request, who=row.name, standing=form)
    note_change(person.identity, "update", PEOPLE, row.name)
    if form.standing.active or not named:
        messages.success(request, f"Changed {row.name}. The change is in effect now, for their tokens too.")
    else:
        count = f"{named} token{'' if named == 1 else 's'}"
        effect = _KUBECONFIG if row.name == "admin" else ""
        messages.success(request, f"Closed {row.name}. Also revoked: {count} issued to that name{effect}.")
    return redirect(row.url)


@administrators_only
@never_cache
@posted_from("people")
def revoke_tokens(request: HttpRequest) -> HttpResponse:
    """One of a person's; with `all` every one."""
    person = _demand(request)
    row = _named(request)
    own = tokens.of_person(row.user)
    given = request.POST.get("token", "")
    found = own if "all" in request.POST else own.filter(pk__in=[one.pk for one in own if str(one.pk) == given])
    ended = tokens.revoke_all(found)
    if not ended:
        raise Http404("That token does not exist, or was revoked before.")
    note_change(person.identity, "delete", TOKENS, row.name)
    messages.success(request, f"Revoked {ended} token{'' if ended == 1 else 's'} of {row.name}.")
    return redirect(row.url)


def _named(request: HttpRequest) -> PersonRow:
    """Raises: Http404."""
    row = read_person(request.POST.get("who", ""))
    if row is None:
        raise Http404("This person does not exist.")
    return row
