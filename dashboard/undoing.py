"""`/undo`: takes back what the person has just done, or lets the offer go (see `manciple.pages.undo`)."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme

from manciple.pages import undo
from manciple.pages.people import person_of
from manciple.pages.posting import posted_from
from manciple.pages.rights import authorizes
from manciple.wire.errors import ApiError


@authorizes
@posted_from("overview")
def undo_act(request: HttpRequest) -> HttpResponse:
    """What it did is itself no offer: the audit trail and the History of the objects have both."""
    offer, asked = undo.offered(request), request.POST.get("offer", "")
    if request.POST.get("dismiss"):
        undo.dismiss(request)
    elif offer is None or offer.id != asked:
        messages.error(request, "Nothing was undone: too much time has passed, or something has changed since.")
    else:
        _take_back(request, offer)
    back = request.POST.get("back", "")
    known = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()})
    return redirect(back if known and back.startswith("/") else "/overview")


def _take_back(request: HttpRequest, offer: undo.UndoOffer) -> None:
    try:
        steps = undo.take_back(offer.steps, person_of(request).identity)
    except ApiError as refusal:
        messages.error(request, f"Nothing more was undone: {refusal.message}")
        return
    undo.dismiss(request)
    changes = "1 change" if len(steps) == 1 else f"{len(steps)} changes"
    messages.success(request, f"Undone ({changes}): “{offer.said}”")
