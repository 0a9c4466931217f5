"""What a person may type about their own account."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import password_validation
from django.core.exceptions import ValidationError

from dashboard.kit.forms import PageForm
from manciple.access.authentication import tokens
from manciple.access.authentication.tokens import LifetimeRefused, Purpose

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
        error_messages={"required": "Enter what it is for, so that you can recognise it later."},
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
            self.add_error("again", "This is not the same as the new password.")
        elif "new" in found:
            try:
                password_validation.validate_password(found["new"], self._person)
            except ValidationError as error:
                self.add_error("new", error)
        return found
