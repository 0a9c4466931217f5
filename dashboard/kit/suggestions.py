"""Names that are not known: what somebody probably meant, and forms that refuse them.

Such a name may be meant all the same: people and groups of a sign-in provider appear when they first come, namespaces
and classes are made later. A form refuses it once, with what is like it, and takes it where `sure` is ticked
(`kit/doubts.html`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from dashboard.kit.forms import PageForm

#: Code of a refusal that ticking `sure` overrules.
UNKNOWN = "unknown"
#: Names that are compared; comparing more takes too long.
MOST = 5_000


def closest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like it, "" for none."""
    by_lower: dict[str, str] = {}
    for number, one in enumerate(known):
        if number >= MOST:
            break
        by_lower.setdefault(one.lower(), one)
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """To be appended to a sentence: " Did you mean team-a?"; "" where nothing is like it."""
    near = closest(name, known)
    return f" Did you mean {near}?" if near else ""


class NamingForm(PageForm):
    """A form that names what should exist."""

    sure = forms.BooleanField(required=False)

    @property
    def doubts(self) -> bool:
        """Whether a name was refused that may be meant all the same."""
        found: Mapping[str, Any] = self.errors.as_data()
        return any(error.code == UNKNOWN for errors in found.values() for error in errors)

    def refuse(self, field: str, message: str) -> None:
        """Unless they are sure. message: "" for a name that is known."""
        if message and not self.data.get("sure"):
            self.add_error(field, ValidationError(message, code=UNKNOWN))
