"""/metrics: of this process and of the state of the cluster; with `?processes=all`, of every process. And
/metrics/resources: of every pod.
"""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.request import Request

from manciple.api.faults import unavailable_for
from manciple.api.views import ApiView
from manciple.telemetry import metrics, processes
from manciple.wire.errors import BadRequest


class MetricsView(ApiView):
    """Whoever may get the path `/metrics`, as members of system:monitoring may."""

    def get(self, request: Request) -> HttpResponse:
        """Raises: BadRequest; ServiceUnavailable where all are asked for and Redis is away."""
        wanted = request.GET.get("processes", "")
        if wanted not in ("", "all"):
            raise BadRequest(f'processes: "{wanted}" is not known, only "all" is')
        collector = processes.AllProcesses() if wanted else metrics.REGISTRY
        try:
            told = metrics.text(metrics.Together(collector, metrics.CLUSTER))
        except processes.RedisAway as error:
            raise unavailable_for("the metrics of other processes cannot be read: Redis is not available") from error
        return HttpResponse(told, content_type=metrics.CONTENT_TYPE)


class ResourceMetricsView(ApiView):
    """What each pod of any namespace requests and may take, for whoever may get `/metrics/resources`."""

    def get(self, _request: Request) -> HttpResponse:
        return HttpResponse(metrics.text(metrics.PodMetrics()), content_type=metrics.CONTENT_TYPE)
