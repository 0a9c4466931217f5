"""What a template is given: typed values, a dataclass for each page.

A view fills in the context of its page and hands it to `render_page`. The template knows each field by its name,
besides what `manciple.pages.context` gives to every template.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from manciple.pages.lists import CSV, Table

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
    """A page that extends `list.html`. Its `query` is the table's, under its own type."""

    table: Table[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueContext(PageContext, Generic[T]):
    """A page that shows one value, `page`."""

    page: T


def render_page(request: HttpRequest, template: str, context: TemplateContext, *, status: int = 200) -> HttpResponse:
    shown = {one.name: getattr(context, one.name) for one in fields(context)}
    return render(request, template, shown, status=status)


def show_list(request: HttpRequest, template: str, context: ListContext, *, status: int = 200) -> HttpResponse:
    """A list as a page, or as a file where the address ends so."""
    if request.path.endswith(CSV):
        return context.table.as_csv()
    return render_page(request, template, replace(context, table=context.table.in_pages()), status=status)
