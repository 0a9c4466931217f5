"""/api/docs: Swagger UI over the OpenAPI documents of the Kubernetes API and of /api/inventory/.

A browser that is signed in shows no token, so the documents of the Kubernetes API are served here to whoever is signed
in; requests that are sent from the page carry the token that is entered there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path, reverse
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import signed_in
from dashboard.rest.inventory import router
from dashboard.rest.serving import RestView
from manciple.api import discovery, openapi
from manciple.store.event_log import latest_revision

#: What most readers look for, first.
FIRST = ("apis/resource.k8s.io/v1", "api/v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentationContext(PageContext):
    documents: list[dict[str, str]]


@signed_in
@require_safe
def show_documentation(request: HttpRequest) -> HttpResponse:
    documents = [{"name": "Inventory (/api/inventory)", "url": reverse("inventory-schema")}]
    documents += [{"name": at, "url": reverse("api-docs-document", args=[at])} for at in _served()]
    context = DocumentationContext(place="api-docs", revision=latest_revision(), documents=documents)
    return render_page(request, "rest/documentation.html", context)


def _served() -> list[str]:
    """The API versions, as `apis/resource.k8s.io/v1`."""
    found = [
        f"apis/{group}/{version}" if group else f"api/{version}"
        for group, versions in discovery.group_versions().items()
        for version in versions
    ]
    return sorted(found, key=lambda at: (FIRST.index(at) if at in FIRST else len(FIRST), at))


@signed_in
@require_safe
def show_document(request: HttpRequest, at: str) -> HttpResponse:  # noqa: ARG001 - the signature is Django's
    """The OpenAPI document of one version. Raises: Http404."""
    kind, _, rest = at.partition("/")
    group, _, version = rest.rpartition("/") if kind == "apis" else ("", "", rest)
    document = openapi.document(group, version) if at in _served() else None
    if document is None:
        raise Http404(f"{at} is not served here.")
    return HttpResponse(document.content, content_type="application/json")


class InventorySchema(RestView):
    """The OpenAPI document of /api/inventory/."""

    renderer_classes = [JSONRenderer]

    def get(self, request: Request) -> Response:
        generator: Any = SchemaGenerator(patterns=[path("api/inventory/", include(router.urls))])  # type: ignore[no-untyped-call]
        return Response(generator.get_schema(request=request, public=True))
