"""The paths that are no resource: health, version, discovery, OpenAPI, and the answer to all other paths."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from manciple.access.authorization import PUBLIC
from manciple.api import discovery, health, openapi
from manciple.api.answers import document_answer, unknown_path
from manciple.api.faults import RETRY_AFTER
from manciple.api.health import CheckedHealth
from manciple.api.views import ApiView
from manciple.wire.errors import NotAcceptable


class HealthCheckView(ApiView):
    """Single checks, below the paths of health."""

    endpoint = "readyz"

    def get(self, request: Request, check: str = "") -> HttpResponse:
        found = health.one(check) if check else self._health(request)
        if found is None:
            raise unknown_path()
        text = found.text(self.endpoint, verbose="verbose" in request.GET)
        answer = HttpResponse(text, status=found.code, content_type="text/plain; charset=utf-8")
        if found.outage:
            answer.headers["Retry-After"] = str(RETRY_AFTER)
        return answer

    def _health(self, request: Request) -> CheckedHealth:
        return health.live() if self.endpoint == "livez" else health.ready(request.GET.getlist("exclude"))


class HealthView(HealthCheckView):
    """/healthz, /livez and /readyz: they answer anybody, whatever the roles say (see `manciple.api.door`)."""

    rights = PUBLIC
    authentication_classes = []
    permission_classes = []


class VersionView(ApiView):
    def get(self, _request: Request) -> HttpResponse:
        return document_answer(discovery.version())


class CoreView(ApiView):
    """/api"""

    def get(self, request: Request) -> HttpResponse:
        if discovery.wants_aggregated(request.headers.get("Accept", "")):
            return _aggregated(core=True)
        return document_answer(discovery.core_versions(request.get_host()))


class GroupsView(ApiView):
    """/apis"""

    def get(self, request: Request) -> HttpResponse:
        if discovery.wants_aggregated(request.headers.get("Accept", "")):
            return _aggregated(core=False)
        return document_answer(discovery.group_list())


class GroupView(ApiView):
    """/apis/G"""

    def get(self, _request: Request, group: str) -> HttpResponse:
        return _found(discovery.group(group))


class GroupVersionView(ApiView):
    """/api/v1 and /apis/G/V"""

    def get(self, _request: Request, group: str = "", version: str = "v1") -> HttpResponse:
        return _found(discovery.resource_list(group, version))


class OpenApiIndexView(ApiView):
    """/openapi/v3"""

    def get(self, _request: Request) -> HttpResponse:
        return document_answer(openapi.index())


class OpenApiView(ApiView):
    """/openapi/v3/api/v1 and /openapi/v3/apis/G/V. The hash in its query makes an answer cacheable for good."""

    def get(self, request: Request, group: str = "", version: str = "v1") -> HttpResponse:
        document = openapi.document(group, version)
        if document is None:
            raise unknown_path()
        answer = HttpResponse(document.content, content_type="application/json")
        answer.headers["ETag"] = f'"{document.hash}"'
        if request.GET.get("hash") == document.hash:
            answer.headers["Cache-Control"] = "public, immutable"
        return answer


class OpenApiV2View(ApiView):
    """/openapi/v2, as JSON or as the gnostic protobuf that kubectl up to 1.28 reads."""

    def get(self, request: Request) -> HttpResponse:
        accept = request.headers.get("Accept", "")
        if "protobuf" in accept:
            content_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
            return HttpResponse(openapi.version_2_protobuf(), content_type=content_type)
        if accept and "json" not in accept and "*/*" not in accept:
            raise NotAcceptable("only application/json and gnostic protobuf are served here")
        return HttpResponse(openapi.version_2_json(), content_type="application/json")


class UnknownView(ApiView):
    """Every other path below /api, /apis and /openapi."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        raise unknown_path()


def _aggregated(*, core: bool) -> HttpResponse:
    answer = document_answer(discovery.aggregated(core=core))
    answer.headers["Content-Type"] = discovery.AGGREGATED
    return answer


def _found(document: dict[str, Any] | None) -> HttpResponse:
    if document is None:
        raise unknown_path()
    return document_answer(document)
