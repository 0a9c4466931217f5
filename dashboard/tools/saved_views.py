"""Saved views: `/views` lists a person's own and what others share; `/views/ID` opens one.

POST `/views/save` keeps what a page shows now; `/views/ID/change` renames or shares a view, makes it the usual one or
deletes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import parse_qsl

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import Resolver404, resolve
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_safe

from dashboard.kit.forms import posted_from
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import signed_in
from dashboard.kit.saved_views import ViewRefused, change_view, save_view, url_of, visible_view
from dashboard.models import SavedView
from manciple.audit.sign_ins import SAVED_VIEWS, note_change
from manciple.people import person_of
from manciple.store.event_log import latest_revision

#: URL name of a page of which views are saved -> what it is called
PAGES = {
    "devices": "Devices",
    "claims": "Claims",
    "templates": "Templates",
    "pods": "Pods",
    "classes": "Classes",
    "nodes": "Nodes",
    "quotas": "Quotas",
    "timeline": "Timeline",
    "incidents": "Incidents",
    "taint-rules": "Taint rules",
    "drivers": "Drivers",
    "namespaces": "Namespaces",
    "events": "Events",
    "audit": "Audit",
    "roles": "Roles",
    "people": "People",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedView:
    """One view in the list. says: what it asks for, as (name, value)."""

    view: SavedView
    page: str
    mine: bool

    @property
    def says(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in parse_qsl(self.view.query) if name not in ("cols", "dense")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedViewsContext(PageContext):
    """groups: the views of each page."""

    groups: Sequence[tuple[str, Sequence[ListedView]]]


@signed_in
@require_safe
def list_views(request: HttpRequest) -> HttpResponse:
    """The page."""
    found = SavedView.objects.filter(Q(owner=request.user.pk) | Q(shared=True)).select_related("owner")
    order = list(PAGES.values())
    listed = [
        ListedView(view=one, page=_page_of(one.path), mine=one.owner_id == request.user.pk)
        for one in found.order_by("name")
    ]
    listed.sort(key=lambda one: (order.index(one.page) if one.page in order else len(order), not one.mine))
    groups: list[tuple[str, Sequence[ListedView]]] = [
        (page, list(views)) for page, views in groupby(listed, key=lambda one: one.page)
    ]
    context = SavedViewsContext(place="views", revision=latest_revision(), groups=groups)
    return render_page(request, "tools/saved_views/list.html", context)


@signed_in
@require_safe
def open_view(request: HttpRequest, name: str) -> HttpResponse:
    view = visible_view(request, name)
    if view is None:
        raise Http404("This view does not exist, or its owner does not share it.")
    return redirect(url_of(view))


@signed_in
@posted_from("views")
def keep_view(request: HttpRequest) -> HttpResponse:
    """What a page shows now, under a name; then the page again."""
    path, query = request.POST.get("path", ""), request.POST.get("query", "").removeprefix("?")
    if not _page_of(path):
        raise Http404(f"Of {path} no view can be saved.")
    asked = {name: name in request.POST for name in ("shared", "usual")}
    try:
        view = save_view(request.user, path, request.POST.get("name", ""), query, **asked)
    except ViewRefused as refusal:
        messages.error(request, str(refusal))
        return redirect(f"{path}?{query}" if query else path)
    _note(request, "create", view)
    messages.success(request, f"Saved view {view.name}.")
    return redirect(url_of(view))


@signed_in
@posted_from("view")
def alter_view(request: HttpRequest, name: str) -> HttpResponse:
    """Of the person's own alone."""
    view = SavedView.objects.filter(owner=request.user.pk, id=name).first()
    if view is None:
        raise Http404("This view does not exist, or is somebody else's.")
    if "delete" in request.POST:
        view.delete()
        _note(request, "delete", view)
        messages.success(request, f"Deleted view {view.name}.")
        return redirect(_back(request))
    asked = {one: one in request.POST for one in ("shared", "usual")}
    try:
        change_view(view, name=request.POST.get("name", ""), **asked)
    except ViewRefused as refusal:
        messages.error(request, str(refusal))
    else:
        _note(request, "update", view)
        messages.success(request, f"Changed view {view.name}.")
    return redirect(_back(request))


def _note(request: HttpRequest, verb: str, view: SavedView) -> None:
    person = person_of(request)
    note_change(person.identity, verb, SAVED_VIEWS, f"{person.name}/{view.name}")


def _back(request: HttpRequest) -> str:
    back = request.POST.get("back", "")
    known = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()})
    return back if known and back.startswith("/") else "/views"


def _page_of(path: str) -> str:
    """What the page at `path` is called; "" where no view of it can be saved."""
    try:
        return PAGES.get(resolve(path).url_name or "", "")
    except Resolver404:
        return ""
