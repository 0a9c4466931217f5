"""The History part of an object's page: `?tab=history`, `&before=ENTRY` for what was earlier, `&open=REVISION`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse

from dashboard.kit.rendering import PageContext, render_page
from dashboard.tools.history.reading import ObjectHistory, read_changes
from manciple.people import person_of
from manciple.store.event_log import latest_revision
from manciple.wire.quantity import whole

TAB = "history"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """A page whose history stands by itself. crumbs: (address, words) of what is above it; word: "Node".

    url: of the object's page; topics: what touches the object; yaml: its address as YAML, "" for what has none.
    """

    place: str
    crumbs: tuple[tuple[str, str], ...]
    word: str
    name: str
    url: str
    topics: str
    yaml: str = ""


def asked(request: HttpRequest) -> bool:
    """Whether the address asks for an object's history."""
    return request.GET.get("tab") == TAB


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownHistory:
    """What `tools/history/changes.html` shows. before: of which entry they are the earlier ones; 0: the newest.

    opened: the revision whose difference is shown; 0 for none. may_audit: whether the requests may be looked up.
    """

    changes: ObjectHistory
    before: int
    opened: int
    may_audit: bool


def history_of(request: HttpRequest, uids: Collection[str], *, namespace: str = "") -> ShownHistory:
    before, opened = _number(request, "before"), _number(request, "open")
    return ShownHistory(
        changes=read_changes(uids, before=before, opened=opened),
        before=before,
        opened=opened,
        may_audit=person_of(request).may_audit(namespace),
    )


def _number(request: HttpRequest, name: str) -> int:
    """0 for what is none."""
    return whole(request.GET.get(name, "")) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryContext(PageContext):
    page: HistoryPage
    history: ShownHistory


def show_history(
    request: HttpRequest, page: HistoryPage, uids: Collection[str], *, namespace: str = ""
) -> HttpResponse:
    """The history of an object whose page has no other parts."""
    revision, history = latest_revision(), history_of(request, uids, namespace=namespace)
    context = HistoryContext(place=page.place, revision=revision, page=page, history=history)
    return render_page(request, "tools/history/page.html", context)
