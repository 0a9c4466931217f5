"""Sends pages, and what they load, compressed."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware


class Compression(GZipMiddleware):
    """All but files that are written as they are read: Django would pack each piece of those by itself, and browsers
    unpack the first one alone."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if response.streaming and getattr(response, "is_async", False):
            return response
        return super().process_response(request, response)
