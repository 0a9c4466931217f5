"""Saved views: what somebody chose on a page (filters, order, columns, density), kept under a name.

A view is a path and what stands behind it in the address, and no more: whoever opens it is redirected to that address,
with `saved=ID`, by which the page knows what it was opened as and whether it was changed since. Its owner may share it:
then it stands in everybody's menu, and its address opens it for whoever is signed in. What they see there is decided by
the page itself. One view of a page may be its owner's usual one: the page opens so where its address says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from dashboard.models import SavedView

#: Of one person, at most; and of these, in everybody's menu.
MOST, MOST_SHARED = 200, 20
#: What an address says besides a view: which page, which row is open, which view it was opened as.
_PASSING = frozenset({"page", "saved", "at", "entry", "before", "who"})
_LONGEST_NAME, _LONGEST_QUERY = 80, 4000

Page = Callable[..., HttpResponse]


class ViewRefused(ValueError):
    """A view that cannot be kept, and why."""


def canonical(query: str) -> str:
    """What of an address's query belongs to a view, in one order."""
    kept = [(name, value) for name, value in parse_qsl(query) if name not in _PASSING]
    return urlencode(sorted(kept, key=lambda one: one[0]), safe=",")


def url_of(view: SavedView) -> str:
    """The page as the view says."""
    return f"{view.path}?{view.query}&saved={view.id}" if view.query else f"{view.path}?saved={view.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageViews:
    """The views of one page for one person. query: what the page shows now."""

    path: str
    query: str
    own: Sequence[SavedView] = ()
    shared: Sequence[SavedView] = ()  # of others
    current: SavedView | None = None  # as which it was opened

    @property
    def changed(self) -> bool:
        """Whether the page shows something else than the view that it was opened as."""
        return self.current is not None and self.current.query != self.query

    @property
    def is_own(self) -> bool:
        return self.current in self.own


def views_of(request: HttpRequest) -> PageViews:
    """Those of the page that is asked for. One query."""
    path, found = request.path, _read(request)
    own = [one for one in found if one.owner_id == request.user.pk]
    shared = [one for one in found if one.owner_id != request.user.pk]
    chosen = request.GET.get("saved", "")
    return PageViews(
        path=path,
        query=canonical(request.META.get("QUERY_STRING", "")),
        own=own,
        shared=shared,
        current=next((one for one in found if one.id == chosen), None),
    )


def _read(request: HttpRequest) -> list[SavedView]:
    """Once for a request."""
    known: list[SavedView] | None = getattr(request, "manciple_views", None)
    if known is None:
        mine_or_shared = Q(owner=request.user.pk) | Q(shared=True)
        views = SavedView.objects.filter(mine_or_shared, path=request.path).select_related("owner")
        known = sorted(views, key=lambda one: (one.name.casefold(), one.id))
        request.manciple_views = known  # type: ignore[attr-defined]  # kept for the rest of the request
    return known


def opens_as_usual(page: Page) -> Page:
    """The page opens as the person's usual view where its address says nothing. They are signed in."""

    @wraps(page)
    def opened(request: HttpRequest, *arguments: Any, **parameters: Any) -> HttpResponse:
        if request.method in ("GET", "HEAD") and not request.META.get("QUERY_STRING"):
            usual = next((one for one in _read(request) if one.usual and one.owner_id == request.user.pk), None)
            if usual is not None:
                return redirect(url_of(usual))
        return page(request, *arguments, **parameters)

    return opened


def visible_view(request: HttpRequest, name: str) -> SavedView | None:
    """The view of this id that the person may open."""
    return SavedView.objects.filter(Q(owner=request.user.pk) | Q(shared=True), id=name).first()


def save_view(owner: Any, path: str, name: str, query: str, *, shared: bool, usual: bool) -> SavedView:
    """Keep it; one of the same name is replaced, and keeps its address. Raises: ViewRefused."""
    name, query = " ".join(name.split()), canonical(query)
    if not name:
        raise ViewRefused("A view needs a name.")
    if len(name) > _LONGEST_NAME or len(query) > _LONGEST_QUERY:
        raise ViewRefused("That is too long to be saved." if len(name) <= _LONGEST_NAME else "That name is too long.")
    if SavedView.objects.filter(owner=owner).exclude(path=path, name=name).count() >= MOST:
        raise ViewRefused(f"You have {MOST} saved views. Delete one first.")
    if shared:
        _check_shared(SavedView.objects.filter(owner=owner).exclude(path=path, name=name))
    with transaction.atomic():
        values = {"query": query, "shared": shared, "usual": usual}
        view, _ = SavedView.objects.update_or_create(owner=owner, path=path, name=name, defaults=values)
        if usual:
            SavedView.objects.filter(owner=owner, path=path).exclude(id=view.id).update(usual=False)
    return view


def _check_shared(others: QuerySet[SavedView]) -> None:
    """others: of the person who wants to share one more. Raises: ViewRefused."""
    if others.filter(shared=True).count() >= MOST_SHARED:
        raise ViewRefused(f"You share {MOST_SHARED} saved views with everybody. Stop sharing one first.")


def change_view(view: SavedView, *, name: str, shared: bool, usual: bool) -> None:
    """Raises: ViewRefused."""
    name = " ".join(name.split())[:_LONGEST_NAME]
    if not name:
        raise ViewRefused("A view needs a name.")
    if shared and not view.shared:
        _check_shared(SavedView.objects.filter(owner=view.owner_id))
    view.name, view.shared, view.usual = name, shared, usual
    try:
        with transaction.atomic():
            view.save(update_fields=["name", "shared", "usual"])
            if usual:
                SavedView.objects.filter(owner=view.owner_id, path=view.path).exclude(id=view.id).update(usual=False)
    except IntegrityError as taken:
        raise ViewRefused(f"You have a view {name} already.") from taken
