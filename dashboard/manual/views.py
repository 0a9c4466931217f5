"""`/manual` and `/manual/NAME`: the documentation that comes with the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from manciple.pages.manual import NAMES, ManualPage, read
from manciple.pages.rendering import PageContext, render_page
from manciple.pages.rights import signed_in
from manciple.store.event_log import latest_revision


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualContext(PageContext):
    """page: the document that is shown; others: all of them."""

    page: ManualPage
    others: Sequence[ManualPage]


@signed_in
@require_safe
def show_manual(request: HttpRequest) -> HttpResponse:  # noqa: ARG001 - the signature is Django's
    return redirect("manual-page", name=NAMES[0])


@signed_in
@require_safe
def show_manual_page(request: HttpRequest, name: str) -> HttpResponse:
    page = read(name)
    if page is None:
        raise Http404(f"There is no page of the manual called {name}.")
    others = [one for one in map(read, NAMES) if one is not None]
    context = ManualContext(place="manual", revision=latest_revision(), page=page, others=others)
    return render_page(request, "manual/page.html", context)
