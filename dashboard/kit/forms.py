"""Forms: Django's, with the inputs, and the places of errors, that our stylesheet and screen readers know.

`posted_from` marks a view that only handles a form: whoever opens its address (after signing in again, or reloading a
refused form) is sent to the page with the form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.forms.boundfield import BoundField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from manciple.wire.errors import ApiError
from manciple.wire.quantity import FORMAT_MESSAGE

#: How the API quotes a regular expression: behind examples, alone, and for the names of sysctls.
_PATTERN = re.compile(r",? *regex used for validation is '.*?'(?=\))")
_SYSCTL = re.compile(r" and match regex \^\S*\$")


def plain(error: str) -> str:
    """What the API says against a value, without the regular expressions that it quotes."""
    error = error.replace(FORMAT_MESSAGE, "write an amount such as 8, 500m or 10Gi")
    error = _SYSCTL.sub(", in lower case: letters, digits, '-', '_', '.' and '/'", error)
    return _PATTERN.sub("", error).replace(" (e.g.)", "").replace(" ()", "").replace("',  or '", "' or '")


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

    def add_error(self, field: Any, error: Any) -> None:
        super().add_error(field, plain(error) if isinstance(error, str) else error)

    def text(self, name: str) -> str:
        """What stands in a field, good or not."""
        return str(self[name].value() or "").strip()

    def add_refusal(self, refusal: ApiError, message: str = "") -> None:
        """Show what the API has against an object at the fields that it names. message: if it names none."""
        for cause in (refusal.details or {}).get("causes") or [{"message": message or refusal.message}]:
            end, text = str(cause.get("field", "")).rpartition(".")[2], plain(str(cause.get("message", "")))
            field = end if end in self.fields else None
            if text not in self.errors.get(field or NON_FIELD_ERRORS, []):
                self.add_error(field, text)


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


View = Callable[..., HttpResponse]


def posted_from(page: str) -> Callable[[View], View]:
    """The view hears POST alone; GET leads to the page with the form. page: its URL's name, of the same parameters."""

    def decorate(view: View) -> View:
        @wraps(view)
        def heard(request: HttpRequest, **parameters: str) -> HttpResponse:
            if request.method == "POST":
                return view(request, **parameters)
            return HttpResponseRedirect(reverse(page, kwargs=parameters))

        return require_http_methods(["GET", "HEAD", "POST"])(heard)

    return decorate
