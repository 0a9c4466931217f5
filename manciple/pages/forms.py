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

    def text(self, name: str) -> str:
        """What stands in a field, good or not."""
        return str(self[name].value() or "").strip()


#: Nothing corrects what is typed.
_PLAIN: dict[str, object] = {"autocapitalize": "none", "spellcheck": "false", "autocomplete": "off"}


def code_input(placeholder: str, **attributes: object) -> forms.TextInput:
    """An input for names and values that machines read."""
    return forms.TextInput({"class": "input mono", "placeholder": placeholder} | _PLAIN | attributes)


def code_area(placeholder: str, **attributes: object) -> forms.Textarea:
    """The same of several lines, as wide as there is room."""
    area = forms.Textarea({"class": "input", "placeholder": placeholder} | _PLAIN | attributes)
    del area.attrs["cols"]
    return area
