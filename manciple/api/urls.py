"""The API's paths. What they mean below /api/v1 and /apis/G/V is `manciple.api.requests`' business."""

from __future__ import annotations

from collections.abc import Iterator

from django.urls import URLPattern, path, re_path

from manciple.api import computed, operations, reviews, service_account_tokens, views
from manciple.api.metrics_view import MetricsView, ResourceMetricsView

_VERSION = "<str:group>/<str:version>"


def _health_paths() -> Iterator[URLPattern]:
    for endpoint in ("healthz", "livez", "readyz"):
        yield path(endpoint, operations.HealthView.as_view(endpoint=endpoint))
        yield path(f"{endpoint}/<str:check>", operations.HealthCheckView.as_view(endpoint=endpoint))


def _discovery_paths() -> Iterator[URLPattern]:
    found = (
        ("api", operations.CoreView),
        ("apis", operations.GroupsView),
        ("api/v1", operations.GroupVersionView),
        ("apis/<str:group>", operations.GroupView),
        (f"apis/{_VERSION}", operations.GroupVersionView),
        ("openapi/v2", operations.OpenApiV2View),
        ("openapi/v3", operations.OpenApiIndexView),
        ("openapi/v3/api/v1", operations.OpenApiView),
        (f"openapi/v3/apis/{_VERSION}", operations.OpenApiView),
    )
    for route, view in found:
        yield path(route, view.as_view())
        yield path(f"{route}/", view.as_view())


def _review_paths() -> Iterator[URLPattern]:
    for (group, version, plural), kind in reviews.REVIEWS.items():
        below = "namespaces/<str:namespace>/" if kind.namespaced else ""
        view = views.ReviewView.as_view()
        yield path(f"apis/{group}/{version}/{below}{plural}", view, {"kind": kind})


def _computed_paths() -> Iterator[URLPattern]:
    for (group, version, plural), found in computed.COMPUTED.items():
        view, asked, base = views.ComputedView.as_view(), {"computed": found}, f"apis/{group}/{version}/"
        below = f"{base}namespaces/<str:namespace>/{plural}" if found.kind.namespaced else f"{base}{plural}"
        for route in dict.fromkeys((f"{base}{plural}", below, f"{below}/<str:name>")):
            yield path(route, view, asked)


#: The first that fits answers, so what is asked most stands first. A name may hold anything, even the end of a line.
urlpatterns: list[URLPattern] = [
    *_review_paths(),
    *_computed_paths(),
    path("api/v1/namespaces/<str:namespace>/bindings", views.BindingsView.as_view()),
    re_path(r"^api/v1/[\s\S]", views.ResourceView.as_view()),
    re_path(r"^apis/[^/]+/[^/]+/[\s\S]", views.ResourceView.as_view()),
    *_health_paths(),
    path("version", operations.VersionView.as_view()),
    path("version/", operations.VersionView.as_view()),
    *_discovery_paths(),
    path(service_account_tokens.CONFIGURATION_PATH, service_account_tokens.IssuerView.as_view()),
    path(service_account_tokens.KEYS_PATH, service_account_tokens.KeysView.as_view()),
    path("metrics", MetricsView.as_view()),
    path("metrics/resources", ResourceMetricsView.as_view()),
    re_path(r"^(api(?!/(inventory|docs)\b)|apis|openapi)/", operations.UnknownView.as_view()),
]
