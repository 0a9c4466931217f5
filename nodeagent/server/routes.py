"""Which path of the agent's endpoint is answered by whom, and to whom.

/healthz                                      anybody
/metrics                                      whoever has a token of the API server
/containerLogs/NAMESPACE/POD/CONTAINER        the API server itself, and members of system:masters
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from manciple.wire.authentication import UserInfo
from nodeagent.failures import AgentError
from nodeagent.server.authentication import TokenReviewer, may_read_logs
from nodeagent.server.endpoint import Answer, Request
from nodeagent.server.health import Health
from nodeagent.server.logs import Logs

log = logging.getLogger(__name__)

#: The text format of Prometheus.
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Routes:
    """metrics: the text that Prometheus reads."""

    def __init__(self, *, health: Health, metrics: Callable[[], bytes], logs: Logs, reviewer: TokenReviewer) -> None:
        self._health = health
        self._metrics = metrics
        self._logs = logs
        self._reviewer = reviewer

    def respond(self, request: Request) -> Answer:
        """The answer to one request; it never raises."""
        try:
            return self._respond(request)
        except AgentError as error:
            log.warning("/%s: %s", "/".join(request.path), error)
            return Answer(code=500, body=f"the agent could not answer: {error}")
        except Exception as error:  # a fault in one request must not end the connection without a word
            log.exception("/%s", "/".join(request.path))
            return Answer(code=500, body=f"the agent could not answer: {error}")

    def _respond(self, request: Request) -> Answer:
        if request.path == ("healthz",):
            code, text = self._health.answer(verbose="verbose" in request.query)
            return Answer(code=code, body=text)
        user = self._reviewer.user(request.token) if request.token else None
        if user is None:
            return Answer(code=401, body="Unauthorized")
        return self._respond_to(user, request)

    def _respond_to(self, user: UserInfo, request: Request) -> Answer:
        match request.path:
            case ("metrics",):
                return Answer(body=self._metrics(), content_type=METRICS_TYPE)
            case ("containerLogs", namespace, pod, container):
                if not may_read_logs(user):
                    words = f"Forbidden (user={user.username}, verb=get, resource=nodes, subresource(s)=[proxy])"
                    return Answer(code=403, body=words)
                return self._logs.answer(namespace, pod, container, request)
        return Answer(code=404, body="404 page not found")
