"""The page that stands where a page should, while the database is away (503 with Retry-After) or full (507).

Most errors of views come by `process_exception`; those of other middleware (sessions are read and written there) by
Django's handler of what nobody caught. Neither asks the database for anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views import defaults

from manciple.api import faults
from manciple.pages.costly import answer_to
from manciple.wire.errors import ApiError, InsufficientStorage

GetResponse = Callable[[HttpRequest], HttpResponse]


class Outages:
    """A middleware (see Django's "process_exception")."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, _request: HttpRequest, error: Exception) -> HttpResponse | None:
        outage = faults.unavailable(error)
        if outage is None:
            return None
        faults.note(error)
        return _page(outage)


def handle_uncaught(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`: called while the error is being handled."""
    error = sys.exc_info()[1]
    if error is not None and (costly := answer_to(error)) is not None:
        return costly
    outage = faults.unavailable(error) if error is not None else None
    if error is None or outage is None:
        return defaults.server_error(request)
    faults.note(error)
    return _page(outage)


def _page(outage: ApiError) -> HttpResponse:
    full = outage.code == InsufficientStorage.code
    answer = HttpResponse(render_to_string("507.html" if full else "503.html"), status=outage.code)
    if not full:
        answer.headers["Retry-After"] = str(faults.RETRY_AFTER)
    answer.headers["Cache-Control"] = "no-store"
    return answer
