"""Addresses that forms are sent to and that show nothing by themselves.

Somebody comes there by GET all the same: who had to sign in again first, or who reloads what a refused form answered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

View = Callable[..., HttpResponse]


def posted_from(page: str) -> Callable[[View], View]:
    """The view hears POST alone; GET leads to the page with the form. page: its URL's name, of the same parameters."""

    def decorate(view: View) -> View:
        @wraps(view)
        def heard(request: HttpRequest, **parameters: str) -> HttpResponse:
            if request.method == "POST":
                return view(request, **parameters)
            return HttpResponseRedirect(reverse(page, kwargs=parameters))

        return require_http_methods(["GET", "HEAD", "POST"])(heard)

    return decorate
