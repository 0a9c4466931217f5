"""Forms: Django's, with the inputs, and the places of errors, that our stylesheet and screen readers know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.forms.boundfield import BoundField


class PlacedField(BoundField):
    """A field whose errors stand in the element `error_id`."""

    @property
    def error_id(self) -> str:
        return f"{self.auto_id}-error"

    @property
    def aria_describedby(self) -> str | None:
        return self.error_id if self.errors else None


class PageForm(forms.Form):
    """ids: those of its fields' inputs, by the fields' names."""

    bound_field_class = PlacedField
    ids = "%s"

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, auto_id=self.ids)


def code_input(placeholder: str, **attributes: str | bool) -> forms.TextInput:
    """An input for names and values that machines read: nothing corrects what is typed."""
    plain: dict[str, str | bool] = {"autocapitalize": "none", "spellcheck": "false", "autocomplete": "off"}
    return forms.TextInput({"class": "input mono", "placeholder": placeholder} | plain | attributes)
