"""What an administrator types about people."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError

from dashboard.kit.forms import PageForm, code_input
from manciple.access.membership import Standing

_LONGEST = Group._meta.get_field("name").max_length or 0


class GroupNames(forms.CharField):
    """Names with commas or blanks between them, as a list in which each is once."""

    def clean(self, value: Any) -> Any:
        names = list(dict.fromkeys(super().clean(value).replace(",", " ").split()))
        for name in names:
            if len(name) > _LONGEST:
                raise ValidationError(f"A group's name has at most {_LONGEST} characters.")
        return names


def _groups() -> GroupNames:
    return GroupNames(max_length=5000, required=False, widget=code_input("namespace:vision, readers"))


class InvitationForm(PageForm):
    """Somebody who is new here."""

    ids = "invite-%s"

    name = forms.CharField(
        max_length=150, widget=code_input("alice"), error_messages={"required": "Enter the name for signing in."}
    )
    groups = _groups()
    administers = forms.BooleanField(required=False)


class StandingForm(PageForm):
    """What a person is to be."""

    ids = "person-%s"

    groups = _groups()
    administers = forms.BooleanField(required=False)
    active = forms.BooleanField(required=False)

    @property
    def standing(self) -> Standing:
        return Standing(**self.cleaned_data)
