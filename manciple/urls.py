"""Which view answers which path: the API's paths, then the pages of the apps."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from dashboard.kit import signing_in as outside
from dashboard.kit.guards import public
from dashboard.kit.navigation import go_home
from dashboard.kit.signing_in import SetPasswordPage, SignInPage
from manciple.access.authorization import demand_declarations
from manciple.api.urls import urlpatterns as api_urls

urlpatterns: list[URLPattern | URLResolver] = [
    *api_urls,
    path("", go_home, name="home"),
    path("favicon.ico", public(RedirectView.as_view(url=static("manciple/logo.svg")))),
    path("login", public(SignInPage.as_view()), name="login"),
    path("welcome/<uidb64>/<token>", public(SetPasswordPage.as_view()), name="welcome"),
    path("enter", outside.enter, name="enter"),
    path("login/oidc", outside.begin, name="oidc"),
    path("login/oidc/return", outside.finish, name="oidc-return"),
    path("logout", public(LogoutView.as_view(next_page="login")), name="logout"),
    path("", include("dashboard.urls")),
]

# A view without declared rights ends the start of every process that serves pages.
demand_declarations(urlpatterns)

handler404 = "dashboard.tools.missing.show_missing"
handler500 = "dashboard.kit.guards.handle_uncaught"
