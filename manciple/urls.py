"""Which view answers which path: the API's paths, then the pages of the apps."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from manciple.api.urls import urlpatterns as api_urls

urlpatterns: list[URLPattern | URLResolver] = [
    *api_urls,
    path("", RedirectView.as_view(pattern_name="overview"), name="home"),
    path("admin/", admin.site.urls),
    path("favicon.ico", RedirectView.as_view(url=static("manciple/logo.svg"))),
    path("login", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout", LogoutView.as_view(next_page="login"), name="logout"),
    path("", include("scheduling.urls")),
]

handler500 = "manciple.pages.outages.handle_uncaught"
