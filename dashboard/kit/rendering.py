"""What a template is given: typed values, a dataclass for each page, and `person` for all of them.

A view fills in the context of its page and hands it to `render_page`. The template knows each field by its name,
besides what the context processor `person` gives to every template. `Loader` leaves out indentation, which people need
and browsers do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template import Origin
from django.template.loaders import filesystem

from dashboard.kit import mirrored, undo
from dashboard.kit.lists import Table, is_file
from dashboard.kit.navigation import MORE, OWN, PLACES, places_of
from dashboard.kit.preferences import preferences_of, views_of
from manciple.access.membership import administrators
from manciple.people import person_of
from manciple.wire.resources import PODS

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateContext:
    """What a template is given: of a page, or of a part of one that a script fetches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext(TemplateContext):
    """What every page has. place: its entry in the navigation; revision: the log is shown up to here, and followed."""

    place: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListContext(PageContext):
    """A page that extends `kit/list.html`. Its `query` is the table's, under its own type."""

    table: Table[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueContext(PageContext, Generic[T]):
    """A page that shows one value, `page`."""

    page: T


def render_page(request: HttpRequest, template: str, context: TemplateContext, *, status: int = 200) -> HttpResponse:
    shown = {one.name: getattr(context, one.name) for one in fields(context)}
    response = render(request, template, shown, status=status)
    if settings.MIRROR and mirrored.show_warnings(request):  # forms are tried while they are drawn
        response = render(request, template, shown, status=status)
    return response


def show_list(request: HttpRequest, template: str, context: ListContext, *, status: int = 200) -> HttpResponse:
    """A list as a page, or as a file where the address ends so."""
    if is_file(request):
        return context.table.as_file(request)
    return render_page(request, template, replace(context, table=context.table.in_pages()), status=status)


def person(request: HttpRequest) -> dict[str, Any]:
    """`person`: who is signed in; `places`, `more_places`, `own_places`: where they may go; `submits`: whether they may
    create pods; `administrators`: whom to ask; `undo`: what they may take back; `views`: those of the page that are
    saved; `tour`: whether the page begins with the tour of a first visit; `mirror`: the cluster whose mirror this is.

    Nothing where nobody is signed in.
    """
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    return {
        "person": person_of(request),
        "places": cache(partial(places_of, PLACES, person_of(request))),
        "more_places": cache(partial(places_of, MORE, person_of(request))),
        "own_places": cache(partial(places_of, OWN, person_of(request))),
        "submits": partial(person_of(request).may_somewhere, "create", PODS),
        "administrators": administrators,
        "undo": partial(undo.offered, request) if undo.SESSION_KEY in request.session else None,
        "views": partial(views_of, request),
        "tour": partial(wants_tour, request),
        "mirror": mirrored.header() if settings.MIRROR else None,
    }


#: Where people come first.
_ENTRANCES = ("/overview", "/devices")


def wants_tour(request: HttpRequest) -> bool:
    # It shows what one can do, which is nothing in a mirror.
    return not settings.MIRROR and request.path in _ENTRANCES and not preferences_of(request).toured


#: A line's end with what is blank around it, and lines that are. One line break is left: inline elements stay apart.
_LINE_END = re.compile(r"[ \t]*\n\s*")


class Loader(filesystem.Loader):
    """Reads from the folders of `TEMPLATES`; behind Django's cached loader, so each template is stripped once."""

    def get_contents(self, origin: Origin) -> str:
        return _LINE_END.sub("\n", super().get_contents(origin))
