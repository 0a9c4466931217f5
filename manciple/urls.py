"""Which view answers which path: the API's paths, then the pages of the apps."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

from manciple.api.urls import urlpatterns as api_urls

urlpatterns: list[URLPattern | URLResolver] = [*api_urls]
