"""What an action would do, said before it is done: the page `kit/preview.html`, which other pages show as a dialog.

A GET of the action's address says it, a POST of the form on it does it. The form carries the uid of the object that was
looked at, so that nobody deletes another one of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse

from dashboard.kit.differences import DiffLine
from dashboard.kit.forms import plain
from dashboard.kit.rendering import PageContext, render_page
from manciple.wire.errors import ApiError
from manciple.wire.machinery import DeleteOptions, Preconditions

#: (word, address)
Link = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """One thing that would follow. more: how many there are besides those that `links` name."""

    term: str
    sentences: tuple[str, ...]
    links: tuple[Link, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionEffect:
    """What would happen. summary: one sentence, "" for none; warning: what cannot be known from here."""

    summary: str = ""
    consequences: tuple[Consequence, ...]
    warning: str = ""
    refused: str = ""  # why it cannot be done now
    #: what would be written, for each object that is written anew: (which, the lines)
    differences: tuple[tuple[str, Sequence[DiffLine]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BelowAnObject:
    """above: the pages above this one, that of the object (its name and address) last."""

    above: tuple[Link, ...]

    @property
    def name(self) -> str:
        return self.above[-1][0]

    @property
    def back(self) -> str:
        """The page of the object itself."""
        return self.above[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPreview(BelowAnObject):
    """What is asked before `effect` is brought about by a POST to `url`, which lies below the object's page."""

    action: str
    noun: str
    uid: str
    effect: ActionEffect
    by_force: bool = False
    topics: str = ""  # what touches the effect
    error: str = ""  # why it was not done just now
    query: str = ""  # what else the address says, with its "?"

    @property
    def url(self) -> str:
        return f"{self.back}/{self.action.lower()}{self.query}"

    @property
    def button(self) -> str:
        return f"{self.action} {'by force' if self.by_force else self.noun}"

    @property
    def question(self) -> str:
        return f"{self.action} {self.noun} {self.name}{' by force' if self.by_force else ''}?"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewContext(PageContext):
    preview: ActionPreview


def show_preview(
    request: HttpRequest, preview: ActionPreview, *, place: str, revision: int, template: str = "kit/preview.html"
) -> HttpResponse:
    """place: the entry of the navigation that it is below."""
    context = PreviewContext(place=place, revision=revision, preview=preview)
    return render_page(request, template, context, status=HTTPStatus.CONFLICT if preview.error else HTTPStatus.OK)


def consequences(lines: Iterable[tuple[str, str]]) -> tuple[Consequence, ...]:
    """(term, sentence) -> the sentences of each term together, in the order of their first; empty ones left out."""
    found: dict[str, list[str]] = {}
    for term, sentence in lines:
        if sentence:
            found.setdefault(term, []).append(sentence)
    return tuple(Consequence(term=term, sentences=tuple(sentences)) for term, sentences in found.items())


def only_with(uid: str) -> DeleteOptions | None:
    """Deletes the object of this uid and no other. "": whichever has the name."""
    return DeleteOptions(preconditions=Preconditions(uid=uid)) if uid else None


def not_changed(refusal: ApiError, *, noun: str) -> str:
    """What the API says, with what to do next."""
    if refusal.reason == "Conflict":
        return f"Nothing was changed: {plain(refusal.message)}. Review the current {noun}."
    if refusal.reason == "NotFound":
        return f"Nothing was changed: the {noun} no longer exists."
    return f"Nothing was changed: {plain(refusal.message)}"
