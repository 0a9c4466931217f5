"""Pages that take too much work: what stands in their place, and whose work it is.

Expressions and ranges of time in an address are chosen by whoever wrote the link. `manciple.api.request_work` limits
what they may cost. A page that can show a part of its answer does so; of any other, this one stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from manciple.api.request_work import WORK, RequestWork
from manciple.cel.time_limit import Deadline, TimeLimitExceeded, time_limit
from manciple.wire.errors import TooManyRequests
from manciple.wire.identity import Identity

GetResponse = Callable[[HttpRequest], HttpResponse]
#: Seconds after which it is worth trying again: what was judged by then is kept.
RETRY_AFTER = 2


class CostlyPages:
    """A middleware behind the one that finds out who is signed in."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        work: RequestWork | None = request.META.get(WORK)
        if work is None:  # no lane of ours: Django's own server, and tests
            with time_limit(Deadline.after_work(settings.PAGE_WORK_SECONDS)):
                return self._get_response(request)
        if request.user.is_authenticated:
            work.sender = Identity(request.user.get_username())
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, TimeLimitExceeded):
            return _page(request, busy=False, status=503, retry_after=RETRY_AFTER)
        if isinstance(error, TooManyRequests):
            seconds = int((error.details or {}).get("retryAfterSeconds", RETRY_AFTER))
            return _page(request, busy=True, status=error.code, retry_after=seconds)
        return None


def _page(request: HttpRequest, *, busy: bool, status: int, retry_after: int) -> HttpResponse:
    answer = render(request, "costly.html", {"busy": busy}, status=status)
    answer.headers["Retry-After"] = str(retry_after)
    answer.headers["Cache-Control"] = "no-store"
    return answer
