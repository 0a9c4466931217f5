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
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Concat, NullIf, StrIndex
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import Resolver404, resolve, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_safe

from dashboard.kit.forms import posted_from
from dashboard.kit.guards import signed_in
from dashboard.kit.lists import ListQuery
from dashboard.kit.preferences import ViewRefused, change_view, save_view, url_of, visible_view
from dashboard.kit.rendering import PageContext, render_page
from dashboard.models import SavedView
from dashboard.templatetags.kit import page_url
from manciple.audit.sign_ins import SAVED_VIEWS, note_change
from manciple.people import person_of
from manciple.store.event_log import latest_revision

#: URL names of the pages that have saved views, in the order of the list -> their titles
PAGES = {
    name: name.replace("-", " ").capitalize()
    for name in (
        *(
            "devices",
            "claims",
            "templates",
            "pods",
            "workloads",
            "autoscalers",
            "classes",
            "nodes",
            "quotas",
            "timeline",
            "incidents",
            "ended",
        ),
        *("taint-rules", "drivers", "namespaces", "events", "audit", "roles", "people"),
    )
}
#: Views on a page.
ROWS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedView:
    """One view in the list. parameters: (name, value) of its filters and order."""

    view: SavedView
    mine: bool

    @property
    def parameters(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in parse_qsl(self.view.query) if name not in ("cols", "dense")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedViewsContext(PageContext):
    """groups: the views of each page of the dashboard; before, after: addresses of the neighbouring pages of views."""

    groups: Sequence[tuple[str, Sequence[ListedView]]]
    before: str
    after: str


@signed_in
@require_safe
def list_views(request: HttpRequest) -> HttpResponse:
    """In the order of `PAGES`, the person's own first."""
    query = ListQuery.read(request)
    views = SavedView.objects.filter(Q(owner=request.user.pk) | Q(shared=True))
    titles = {page_url(name): title for name, title in PAGES.items()}
    pages = Value("\n".join(("", *titles, "")))
    place = NullIf(StrIndex(pages, Concat(Value("\n"), "path", Value("\n"))), Value(0)).asc(nulls_last=True)
    others = Case(When(owner=request.user.pk, then=0), default=1)
    first = (query.page - 1) * ROWS
    shown = list(views.select_related("owner").order_by(place, others, "name", "id")[first : first + ROWS + 1])
    groups = [
        (name, [ListedView(view=view, mine=view.owner_id == request.user.pk) for view in those])
        for name, those in groupby(shown[:ROWS], key=lambda view: titles.get(view.path, ""))
    ]
    context = SavedViewsContext(
        place="views",
        revision=latest_revision(),
        groups=groups,
        before=query.url(page=query.page - 1) if query.page > 1 else "",
        after=query.url(page=query.page + 1) if len(shown) > ROWS else "",
    )
    return render_page(request, "tools/saved_views/list.html", context)


@signed_in
@require_safe
def open_view(request: HttpRequest, name: str) -> HttpResponse:
    view = visible_view(request, name)
    if view is None:
        raise Http404("This view does not exist or is not shared.")
    return redirect(url_of(view))


@signed_in
@posted_from("views")
def keep_view(request: HttpRequest) -> HttpResponse:
    """Save what a page shows now, and show it again."""
    path, query = request.POST.get("path", ""), request.POST.get("query", "").removeprefix("?")
    if not _page_of(path):
        raise Http404(f"Views of {path} cannot be saved.")
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
    """Only the person's own."""
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
    is_ours = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()})
    return back if is_ours and back.startswith("/") else reverse("views")


def _page_of(path: str) -> str:
    """The name of the page at `path`; "" if no view of it can be saved."""
    try:
        return PAGES.get(resolve(path).url_name or "", "")
    except Resolver404:
        return ""
