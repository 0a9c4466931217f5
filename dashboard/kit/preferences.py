"""A person's choices for their pages: the time zone in which these are drawn, and saved views.

**The time zone** is a person's own choice; without one it is the zone of their browser, which a script writes into a
cookie (`static/manciple/kit/theme.js`), and UTC where that is not known. Django's current zone is set for the length of
the request: the filters `clock` and `date` and the charts go by it. What machines read (CSV, JSON, the
`datetime` of a `<time>`) stays in UTC.

**Saved views** are a page's filters, order, columns and density, kept under a name. A view is a path and what stands
behind it in the address, and no more: opening it redirects to that address, with `saved=ID`, by which the page knows
which view it shows and whether it was changed since. Its owner may share it: then it stands in everybody's menu, and
its address opens it for everybody who is signed in; the page itself decides what they see there. One view of a page may
be its owner's usual one: the page opens so where its address says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any
from urllib.parse import parse_qsl, urlencode
from zoneinfo import ZoneInfo, available_timezones

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from dashboard.models import Preferences, SavedView

#: The cookie in which the browser says its zone.
ZONE_COOKIE = "time-zone"
UTC_NAME = "UTC"


def preferences_of(request: HttpRequest) -> Preferences:
    """Of who is signed in, read with their account. What is not kept yet is as a new row would be."""
    user: Any = request.user
    known: Preferences | None = getattr(user, "preferences", None)
    return known or Preferences(person=user)


def choose(request: HttpRequest, **chosen: Any) -> None:
    """Keep what the person chose from now on."""
    known = preferences_of(request)
    for name, value in chosen.items():
        setattr(known, name, value)
    known.save()


@lru_cache(maxsize=1)
def _all_zones() -> frozenset[str]:
    """Names in the machine's database of time zones, which takes a moment to read."""
    return frozenset(available_timezones())


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """All that may be chosen: places by continent, and UTC."""
    return (UTC_NAME, *sorted(name for name in _all_zones() if _is_a_place(name)))


def _is_a_place(name: str) -> bool:
    """Not the old names without a continent, nor those of POSIX."""
    continent, slash, _ = name.partition("/")
    return bool(slash) and continent not in ("Etc", "SystemV", "US", "Canada", "Brazil", "Chile", "Mexico")


def known_zone(name: str) -> ZoneInfo | None:
    """None for what is no zone: a cookie may say anything."""
    return ZoneInfo(name) if name in _all_zones() else None


def zone_of(request: HttpRequest) -> ZoneInfo:
    chosen = preferences_of(request).time_zone if request.user.is_authenticated else ""
    told = request.COOKIES.get(ZONE_COOKIE, "")
    return known_zone(chosen) or known_zone(told) or ZoneInfo(UTC_NAME)


class ReadersZone:
    """A middleware: what follows is drawn in the reader's time zone."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(zone_of(request)):
            return self._get_response(request)


# Saved views ----------------------------------------------------------------------------------------------------------


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
        raise ViewRefused(f"You have {MOST} saved views already. Delete one first.")
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
        raise ViewRefused(f"You share {MOST_SHARED} saved views already. Stop sharing one first.")


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
