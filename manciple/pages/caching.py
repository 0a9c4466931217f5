"""Pages are stored nowhere: not by proxies, and not by a browser that somebody else uses next."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

GetResponse = Callable[[HttpRequest], HttpResponse]


def no_store(get_response: GetResponse) -> GetResponse:
    """A middleware. An answer that says how long it may be kept is left as it is; static files come before it."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return answer
