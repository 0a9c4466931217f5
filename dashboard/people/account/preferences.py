"""What a person chooses for their own pages: the time zone, and whether they want the tour of the first visit."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from dashboard.kit.forms import posted_from
from dashboard.kit.preferences import choose, zone_names
from dashboard.kit.rights import signed_in


@signed_in
@posted_from("account")
def keep_zone(request: HttpRequest) -> HttpResponse:
    """`zone`: a name, or "" for that of the browser."""
    zone = request.POST.get("zone", "")
    if zone and zone not in zone_names():
        return HttpResponseBadRequest("There is no such time zone.")
    choose(request, time_zone=zone)
    messages.success(request, f"Times are shown in {zone or 'the time zone of your browser'} from now on.")
    return redirect("account")


@signed_in
@require_POST
def keep_toured(request: HttpRequest) -> HttpResponse:
    """`again` shows the tour once more; otherwise it is over for good."""
    if "again" in request.POST:
        choose(request, toured=False)
        return redirect("overview")
    choose(request, toured=True)
    return HttpResponse(status=204)
