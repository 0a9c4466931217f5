"""`/account`: what people change about their own account: tokens, password, sessions, time zone.

A new token is shown in the answer to the form that asked for it and never again, and is not kept in the session either.
Changing the password ends all other sessions. A wrong old password counts as a failed attempt to sign in, so that an
open browser is no place to try passwords.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate, password_validation, update_session_auth_hash
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest
from django.http.request import split_domain_port
from django.shortcuts import redirect
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from dashboard.kit.forms import PageForm, posted_from
from dashboard.kit.guards import signed_in, with_account
from dashboard.kit.preferences import choose, preferences_of, zone_names
from dashboard.kit.rendering import PageContext, render_page
from dashboard.templatetags.kit import counted
from manciple.access import sign_ins
from manciple.access.authentication import tokens
from manciple.access.authentication.tokens import LifetimeRefused, Purpose
from manciple.access.models import SignIn, Token
from manciple.access.people import groups_of_user, locked_for, stored_key
from manciple.api import kubeconfig
from manciple.api.kubeconfig import Server
from manciple.audit.budgets import SESSIONS
from manciple.audit.sign_ins import PEOPLE, TOKENS, note_change
from manciple.people import person_of
from manciple.store.event_log import latest_revision
from manciple.wire.quantity import whole


@signed_in
@posted_from("account")
def keep_zone(request: HttpRequest) -> HttpResponse:
    """`zone`: a name, or "" for that of the browser."""
    zone = request.POST.get("zone", "")
    if zone and zone not in zone_names():
        return HttpResponseBadRequest("There is no such time zone.")
    choose(request, time_zone=zone)
    messages.success(request, f"Times are now in {zone or 'the time zone of your browser'}.")
    return redirect("account")


@signed_in
@require_POST
def keep_toured(request: HttpRequest) -> HttpResponse:
    """`again` shows the tour once more; otherwise it is over for good."""
    if "again" in request.POST:
        choose(request, toured=False)
        return redirect("overview")
    choose(request, toured=True)
    return HttpResponse(status=204)


#: Lifetimes to choose from, in days, beside that of the settings.
DAYS = (1, 7, 30, 90, 180, 365)
NEVER = "never"


def lifetimes() -> list[tuple[str, str]]:
    """(value, words) of the lifetimes that the settings allow."""
    longest = settings.TOKEN_MAX_DAYS or float("inf")
    days = sorted({float(one) for one in DAYS if one <= longest} | {min(settings.TOKEN_DAYS, longest)})
    offered = [(f"{one:g}", f"{one:g} day{'' if one == 1 else 's'}") for one in days]
    return offered if settings.TOKEN_MAX_DAYS else [*offered, (NEVER, "until revoked")]


class NewTokenForm(PageForm):
    """A token, or a kubeconfig file with one."""

    ids = "token-%s"

    title = forms.CharField(
        max_length=100,
        widget=forms.TextInput({"class": "input", "placeholder": "laptop", "autocomplete": "off"}),
        error_messages={"required": "Enter what it is for."},
    )
    description = forms.CharField(
        max_length=1000, required=False, widget=forms.TextInput({"class": "input", "autocomplete": "off"})
    )
    days = forms.ChoiceField(widget=forms.Select({"class": "input"}))

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        field: Any = self.fields["days"]
        field.choices = lifetimes()
        field.initial = f"{settings.TOKEN_DAYS:g}"

    def clean_days(self) -> timedelta | None:
        given = self.cleaned_data["days"]
        try:
            return tokens.lifetime_of(None if given == NEVER else float(given))
        except LifetimeRefused as error:
            raise ValidationError(str(error)) from error

    @property
    def purpose(self) -> Purpose:
        return Purpose(title=self.cleaned_data["title"], description=self.cleaned_data["description"])


def _password_input(purpose: str) -> forms.PasswordInput:
    return forms.PasswordInput({"class": "input", "autocomplete": purpose})


class ChangePasswordForm(PageForm):
    """person: whose it is, for the rules that a new password must keep."""

    ids = "password-%s"

    old = forms.CharField(strip=False, widget=_password_input("current-password"))
    new = forms.CharField(strip=False, widget=_password_input("new-password"))
    again = forms.CharField(strip=False, widget=_password_input("new-password"))

    def __init__(self, data: Any = None, *, person: Any = None) -> None:
        super().__init__(data)
        self._person = person

    def clean(self) -> dict[str, Any]:
        found = self.cleaned_data
        if "new" in found and "again" in found and found["new"] != found["again"]:
            self.add_error("again", "The two passwords differ.")
        elif "new" in found:
            try:
                password_validation.validate_password(found["new"], self._person)
            except ValidationError as error:
                self.add_error("new", error)
        return found


UNPROCESSABLE = 422
#: Where the API listens unless the settings say otherwise.
API_PORT = 6443


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """One that was just made: its text is shown this once."""

    text: str
    row: Token


class ShownSignIn(NamedTuple):
    """Where the person is signed in. here: in the browser that asks."""

    row: SignIn
    browser: str
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountContext(PageContext):
    """made: the token that was just made, if any. zone: the time zone that the person chose, "" for none."""

    groups: Sequence[str]
    tokens: QuerySet[Token]
    sign_ins: Sequence[ShownSignIn]
    has_password: bool
    token_form: NewTokenForm
    password_form: ChangePasswordForm
    made: NewToken | None
    zone: str
    zones: Sequence[str]


@signed_in
@never_cache
@require_safe
def show_account(request: HttpRequest) -> HttpResponse:
    return _draw(request)


def _draw(
    request: HttpRequest,
    *,
    token_form: NewTokenForm | None = None,
    password_form: ChangePasswordForm | None = None,
    made: NewToken | None = None,
    status: int = 200,
) -> HttpResponse:
    user: Any = request.user
    here = stored_key(request.session.session_key or "")
    context = AccountContext(
        place="account",
        revision=latest_revision(),
        groups=person_of(request).identity.groups if settings.CLUSTER_USERS else groups_of_user(user),
        tokens=tokens.live().filter(person=user).order_by("-created"),
        sign_ins=[ShownSignIn(one, browser_of(one), one.session_key == here) for one in sign_ins.of_person(user)],
        has_password=user.has_usable_password(),
        token_form=token_form or NewTokenForm(),
        password_form=password_form or ChangePasswordForm(),
        made=made,
        zone=preferences_of(request).time_zone,
        zones=zone_names(),
    )
    return render_page(request, "people/account/page.html", context, status=status)


# Tokens ---------------------------------------------------------------------------------------------------------------


@with_account
@never_cache
@posted_from("account")
def make_token(request: HttpRequest) -> HttpResponse:
    """A token, or, with `kubeconfig` in the form, the file with one."""
    form = NewTokenForm(request.POST)
    if not form.is_valid():
        return _draw(request, token_form=form, status=UNPROCESSABLE)
    text, row = tokens.issue_for_person(
        request.user, lifetime=form.cleaned_data["days"], purpose=form.purpose, creator=request.user.get_username()
    )
    note_change(person_of(request).identity, "create", TOKENS, row.name)
    if "kubeconfig" in request.POST:
        # Without an API of the settings it is on the machine under whose name the dashboard was asked for.
        url = settings.API_URL or f"https://{split_domain_port(request.get_host())[0]}:{API_PORT}"
        server = Server(url=url, ca_pem=settings.CA_FILE.read_text() if settings.CA_FILE.is_file() else "")
        name = f"kubeconfig-{slugify(row.name)}-{slugify(row.title)}.yaml"
        return HttpResponse(
            kubeconfig.render(server, user=row.name, token=text),
            content_type="application/yaml",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )
    return _draw(request, made=NewToken(text=text, row=row))


@with_account
@posted_from("account")
def revoke_token(request: HttpRequest) -> HttpResponse:
    """Of the person's own; with `all` every one."""
    user: Any = request.user
    own = Token.objects.filter(person=user)
    found = own if "all" in request.POST else own.filter(pk=whole(request.POST.get("token", "")) or 0)
    ended = tokens.revoke_all(found)
    if not ended:
        raise Http404("That token is already revoked or never existed.")
    note_change(person_of(request).identity, "delete", TOKENS, user.get_username())
    messages.success(request, f"Revoked {counted(ended, 'token')}.")
    return redirect("account")


# Password and sessions ------------------------------------------------------------------------------------------------


@with_account
@never_cache
@sensitive_post_parameters()
@posted_from("account")
def change_password(request: HttpRequest) -> HttpResponse:
    user: Any = request.user
    form = ChangePasswordForm(request.POST, person=user)
    if form.is_valid() and not authenticate(request, username=user.get_username(), password=form.cleaned_data["old"]):
        locked = locked_for(request)
        wait = f"Too many failed attempts. Try again in {-(-locked // 60)} minutes."
        form.add_error("old", wait if locked else "Wrong password.")
    if form.is_valid():
        user.set_password(form.cleaned_data["new"])
        user.save(update_fields=["password"])
        sign_ins.end_others(user, but=request.session.session_key)
        before = request.session.session_key
        update_session_auth_hash(request, user)
        sign_ins.follow(before, request.session.session_key or "")
        note_change(person_of(request).identity, "update", PEOPLE, user.get_username())
        messages.success(request, "Your password is changed. Other sessions are signed out.")
        return redirect("account")
    return _draw(request, password_form=form, status=UNPROCESSABLE)


@signed_in
@posted_from("account")
def end_sessions(request: HttpRequest) -> HttpResponse:
    """All but the one that asks."""
    ended = sign_ins.end_others(request.user, but=request.session.session_key)
    person = person_of(request)
    note_change(person.identity, "delete", SESSIONS, person.name)
    messages.success(request, f"Signed out of {counted(ended, 'other browser')}.")
    return redirect("account")


#: What browsers call themselves, in the order in which one is told from those that claim to be it.
_BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS X", "Linux")


def browser_of(found: SignIn) -> str:
    """`Firefox on Linux`; the first words of what it calls itself where it is none of those."""
    browser = next((name for mark, name in _BROWSERS if mark in found.agent), "")
    system = next((name for name in _SYSTEMS if name in found.agent), "").replace("Mac OS X", "macOS")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or found.agent[:40] or "unknown browser"
