"""`/people`: who may sign in, for administrators; `?who=NAME` shows one person, with what can be changed about them.

A new person gets an invitation: a link, shown in the answer to the form and never again, with which they set their
password. The same link serves people who have forgotten theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboard.kit.forms import code_input, posted_from
from dashboard.kit.guards import administrators_only
from dashboard.kit.lists import Filter, ListColumn, ListQuery, PageOfRows, Table, parameter
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.rendering import ListContext, show_list
from dashboard.kit.suggestions import NamingForm
from dashboard.people import known_names
from dashboard.templatetags.kit import counted, person_url
from manciple.access import membership
from manciple.access.authentication import tokens
from manciple.access.invitations import GroupRefused, NameRefused, invite
from manciple.access.membership import ChangeRefused, Standing
from manciple.access.models import Token
from manciple.audit.sign_ins import PEOPLE, TOKENS, note_change
from manciple.people import person_of
from manciple.store.event_log import latest_revision
from manciple.wire.identity import NAMESPACE_GROUP

#: People on a page.
SHOWN = 100
ADMINISTRATORS, CLOSED = "Administrators", "Closed accounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleQuery(ListQuery):
    """who: the one that is shown above the list."""

    text: str = parameter("q")
    kind: str = parameter("kind", known=(ADMINISTRATORS, CLOSED))
    group: str = parameter("group")
    who: str = parameter("who", selects=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRow:
    """One person in the list. user: a user of Django's, its groups fetched; tokens: of theirs and of their name, that
    have not expired."""

    user: Any
    tokens: int

    @property
    def name(self) -> str:
        return str(self.user.get_username())

    @property
    def groups(self) -> list[str]:
        return sorted(group.name for group in self.user.groups.all())

    @property
    def seen(self) -> str:
        return self.user.last_login.isoformat(timespec="seconds") if self.user.last_login else ""

    @property
    def url(self) -> str:
        return person_url(self.name)


#: `sort` in the address -> the order
_ORDERS = {
    "name": F("username").asc(),
    "-name": F("username").desc(),
    "seen": F("last_login").asc(nulls_first=True),
    "-seen": F("last_login").desc(nulls_last=True),
    "tokens": F("token_count").asc(),
    "-tokens": F("token_count").desc(),
}


def find_people(query: PeopleQuery) -> tuple[PageOfRows, Callable[[slice], list[PersonRow]]]:
    """Which of the people that the query lets through are on the page, and how some of them are read."""
    found: QuerySet[Any] = get_user_model()._default_manager.filter(username__icontains=query.text)
    if query.group:
        found = found.filter(groups__name=query.group)
    if query.kind:
        found = found.filter(is_staff=True) if query.kind == ADMINISTRATORS else found.filter(is_active=False)
    page = PageOfRows(total=found.count(), size=SHOWN, asked=query.page)
    theirs = Q(person=OuterRef("pk")) | Q(person=None, name=OuterRef("username"))
    together = tokens.live().filter(theirs).annotate(all=Value(1)).values("all")
    count = Subquery(together.annotate(count=Count("pk")).values("count"))
    counted = found.annotate(token_count=Coalesce(count, 0)).prefetch_related("groups")
    order = _ORDERS.get(query.sort, _ORDERS["name"])
    ordered = counted.order_by(order, "pk")
    return page, lambda part: _rows(ordered[part])


def _rows(found: QuerySet[Any]) -> list[PersonRow]:
    return [PersonRow(user=one, tokens=one.token_count) for one in found]


def read_person(name: str) -> PersonRow | None:
    found = get_user_model()._default_manager.filter(username=name).prefetch_related("groups").first()
    return PersonRow(user=found, tokens=tokens_of(found).count()) if found else None


def tokens_of(user: Any) -> QuerySet[Token]:
    """Theirs and those of their name that have not expired, the newest first."""
    return (tokens.of_person(user) & tokens.live()).order_by("-created")


_LONGEST = Group._meta.get_field("name").max_length or 0


class GroupNames(forms.CharField):
    """Names with commas or blanks between them, as a list in which each is once."""

    def __init__(self) -> None:
        super().__init__(max_length=5000, required=False, widget=code_input("namespace:vision, readers"))

    def clean(self, value: Any) -> Any:
        names = list(dict.fromkeys(super().clean(value).replace(",", " ").split()))
        for name in names:
            if len(name) > _LONGEST:
                raise ValidationError(f"A group's name has at most {_LONGEST} characters.")
        return names


class _GroupsForm(NamingForm):
    """A form with groups, typed or chosen from those that there are (`add`)."""

    groups = GroupNames()
    add = forms.CharField(required=False, widget=forms.Select({"class": "input"}))

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        opening, other = list[tuple[str, str]](), list[tuple[str, str]]()
        for name in known_names.groups():
            opens = name.startswith(NAMESPACE_GROUP)
            (opening if opens else other).append((name, name.removeprefix(NAMESPACE_GROUP)))
        choices = [("", "Add a group"), ("Groups", other), ("Work in namespace", opening)]
        cast("forms.Select", self.fields["add"].widget).choices = choices

    def clean(self) -> dict[str, Any]:
        found = self.cleaned_data
        added, named = found.pop("add", ""), found.get("groups", [])
        found.pop("sure", None)
        if "groups" not in self.errors:
            found["groups"] = list(dict.fromkeys([*named, *filter(None, [added])]))
            messages = filter(None, map(known_names.unknown_group, found["groups"]))
            self.refuse("groups", " ".join(messages))
        return found


class InvitationForm(_GroupsForm):
    """Somebody who is new here."""

    ids = "invite-%s"

    name = forms.CharField(
        max_length=150, widget=code_input("alice"), error_messages={"required": "Enter the name for signing in."}
    )
    administers = forms.BooleanField(required=False)

    @classmethod
    def into(cls, group: str) -> InvitationForm:
        form = cls()
        form.initial = {"groups": group}
        return form


class StandingForm(_GroupsForm):
    """What a person is to be."""

    ids = "person-%s"

    administers = forms.BooleanField(required=False)
    active = forms.BooleanField(required=False)

    @classmethod
    def of(cls, row: PersonRow) -> StandingForm:
        form = cls()
        form.initial = {"groups": ", ".join(row.groups), "administers": row.user.is_staff, "active": row.user.is_active}
        return form

    @property
    def standing(self) -> Standing:
        return Standing(**self.cleaned_data)


_KUBECONFIG = ", so HOME/kubeconfig no longer works"
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
    return _draw(request)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleContext(ListContext):
    """shown: the person that is open, with their tokens and what can be changed of them (`standing`); unknown: that the
    address names nobody, and who is probably meant.
    """

    query: PeopleQuery
    shown: PersonRow | None
    unknown: str
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
    page, read = find_people(query)
    shown = read_person(who or query.who)
    groups = Group.objects.filter(user__isnull=False).distinct().order_by("name").values_list("name", flat=True)
    table = Table(
        id="people",
        topics="",
        title="People",
        query=query,
        columns=COLUMNS,
        read=read,
        page=page,
        filters=(
            Filter("q", "Name", query.text, hint="Name"),
            Filter("kind", "Which", query.kind, every="Everybody", options=(ADMINISTRATORS, CLOSED)),
            Filter("group", "Group", query.group, every="Any group", options=list(groups)),
        ),
    )
    context = PeopleContext(
        place="people",
        revision=latest_revision(),
        query=query,
        table=table,
        shown=shown,
        unknown="" if shown or not query.who else known_names.unknown_person(query.who),
        tokens=tokens_of(shown.user) if shown else (),
        standing=standing or (StandingForm.of(shown) if shown else None),
        invitation=invitation or InvitationForm.into(query.group),
        link=link,
        close_url=query.url(who=""),
    )
    refused = bool((invitation and invitation.errors) or (standing and standing.errors))
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refused else HTTPStatus.NOT_FOUND if context.unknown else HTTPStatus.OK
    return show_list(request, "people/people/list.html", context, status=status)


@administrators_only
@never_cache
@posted_from("people")
def invite_person(request: HttpRequest) -> HttpResponse:
    """Make somebody, with a link for their password; with `again` in the form, a new link for who is here already."""
    person = person_of(request)
    if "again" in request.POST:
        row = _named(request)
        note_change(person.identity, "update", PEOPLE, row.name)
        return _draw(request, who=row.name, link=request.build_absolute_uri(invite(row.name).path))
    form = InvitationForm(request.POST)
    if form.is_valid() and read_person(form.cleaned_data["name"]) is not None:
        form.add_error("name", "That name is taken. Choose another.")
    if form.is_valid():
        try:
            made = invite(**form.cleaned_data)
        except NameRefused as error:
            form.add_error("groups" if isinstance(error, GroupRefused) else "name", str(error))
    if not form.is_valid():
        return _draw(request, invitation=form)
    note_change(person.identity, "create", PEOPLE, made.person.get_username())
    if made.warning:
        messages.warning(request, made.warning)
    return _draw(request, who=made.person.get_username(), link=request.build_absolute_uri(made.path))


@administrators_only
@never_cache
@posted_from("people")
def change_person(request: HttpRequest) -> HttpResponse:
    """Groups, whether they administer, whether they may come in."""
    person, row, form = person_of(request), _named(request), StandingForm(request.POST)
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
        messages.success(request, f"Changed {row.name}, and their tokens.")
    else:
        effect = _KUBECONFIG if row.name == "admin" else ""
        revoked = f"{counted(named, 'token')} issued to that name{effect}"
        messages.success(request, f"Closed {row.name}. Also revoked: {revoked}.")
    return redirect(row.url)


@administrators_only
@never_cache
@posted_from("people")
def revoke_tokens(request: HttpRequest) -> HttpResponse:
    """One of a person's; with `all` every one."""
    person = person_of(request)
    row = _named(request)
    own = tokens.of_person(row.user)
    given = request.POST.get("token", "")
    found = own if "all" in request.POST else own.filter(pk__in=[one.pk for one in own if str(one.pk) == given])
    ended = tokens.revoke_all(found)
    if not ended:
        raise Http404("That token is already revoked or never existed.")
    note_change(person.identity, "delete", TOKENS, row.name)
    messages.success(request, f"Revoked {counted(ended, 'token')} of {row.name}.")
    return redirect(row.url)


def _named(request: HttpRequest) -> PersonRow:
    """Raises: Http404."""
    row = read_person(request.POST.get("who", ""))
    if row is None:
        raise Http404("This person does not exist.")
    return row
