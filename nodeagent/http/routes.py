"""What the agent answers over HTTPS, and to whom.

/healthz                                      anybody
/metrics                                      whoever has a token of the API server
/containerLogs/NAMESPACE/POD/CONTAINER        the API server itself, and members of system:masters
/exec/NAMESPACE/POD/CONTAINER                 likewise; the connection becomes a session (`nodeagent.http.sessions`)
/attach/NAMESPACE/POD/CONTAINER
/portForward/NAMESPACE/POD?port=PORT
/usage                                        likewise: what the containers use of cpu and memory, as JSON
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from claims.kinds.pod_logs import PodLogOptions, read_options, wrong_options
from claims.kinds.pod_streams import checked_stream_options, port_of, read_stream_options
from claims.kinds.pods import ContainerStatus, Pod
from inventory.kinds.usage_metrics import UsageReport
from manciple.wire.channels import AGENT_PROTOCOL
from manciple.wire.errors import BadRequest
from manciple.wire.reviews import TokenReview, TokenReviewSpec, UserInfo
from nodeagent.api.client import TOKEN_REVIEWS, Client
from nodeagent.config import AgentConfig
from nodeagent.failures import AgentError, ContainerFailed, LogsUnavailable, StreamFailed, StreamRefused
from nodeagent.http.metrics import AgentMetrics
from nodeagent.http.server import AgentServer, HttpsAnswer, Request, Upgraded
from nodeagent.http.sessions import API_SERVER, Session, SessionCount, TooManySessions
from nodeagent.node.registration import LEASE_DURATION, Registration
from nodeagent.runtimes.conversations import Conversation
from nodeagent.runtimes.logs import LogQuery
from nodeagent.runtimes.protocol import Runtime
from nodeagent.storage import Disk

# Who calls the agent: the API server is asked whose token was shown (TokenReview), as kubelet does. Source: kubernetes
# pkg/kubelet/server/auth.go; apiserver/plugin/pkg/authenticator/token/webhook.

#: Seconds for which an answer is remembered; the API server's own tokens live a minute.
REMEMBERED = 30.0
#: Answers held in memory; beyond it the memory starts afresh.
MEMORY_LIMIT = 256
MASTERS = "system:masters"
#: Whom ordinary tokens are meant for.
API_AUDIENCE = "https://kubernetes.default.svc"


class TokenReviewer:
    """Thread-safe. certificate: the SHA-256 of this agent's. clock: monotonic seconds.

    A token of the API server is for who shows that certificate: one that somebody else was shown is refused here.
    """

    def __init__(
        self, client: Client, *, node: str, certificate: Callable[[], str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._node = node
        self._certificate = certificate
        self._clock = clock
        self._lock = threading.Lock()
        self._memory: dict[bytes, tuple[UserInfo, float]] = {}

    def user(self, token: str) -> UserInfo | None:
        """Whose token it is; None where nobody's, or not meant for this agent. Raises: ApiFailure."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self._memory.get(digest)
        if known is not None and known[1] > self._clock():
            return known[0]
        audiences = (f"system:node:{self._node}:{self._certificate()}", API_AUDIENCE)
        asked = TokenReview(spec=TokenReviewSpec(token=token, audiences=audiences))
        status = self._client.create(TOKEN_REVIEWS, asked).status
        if not status.authenticated or not set(status.audiences) & set(audiences):
            return None
        self._remember(digest, status.user)
        return status.user

    def _remember(self, digest: bytes, user: UserInfo) -> None:
        with self._lock:
            if len(self._memory) >= MEMORY_LIMIT:
                self._memory.clear()
            self._memory[digest] = (user, self._clock() + REMEMBERED)


def may_enter_pods(user: UserInfo) -> bool:
    """Only who has been let through by the API server's rules: itself, and administrators."""
    return user.username == API_SERVER or MASTERS in user.groups


# `/healthz`: is the agent doing its work. Asked without a token, so its answers tell no more than that. The layout is
# that of Kubernetes (apiserver/pkg/server/healthz): "ok", or with `?verbose` and on failure a line for every check.

#: Returns when all is well; raises Unhealthy otherwise.
Check = Callable[[], None]
#: Seconds for which the answer about the disk stands: anybody may ask, and each check writes.
DISK_SECONDS = 5.0


class Unhealthy(Exception):
    """Why a check fails, in words for anybody."""


class AgentHealth:
    """`checks` by name, in the order in which they are told."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = {"ping": _ping, **checks}

    def answer(self, *, verbose: bool) -> tuple[int, str]:
        """(HTTP status, text)"""
        failures = {name: reason for name, check in self._checks.items() if (reason := _failure(check))}
        code = 500 if failures else 200
        if not verbose and not failures:
            return code, "ok"
        lines = [f"[-]{n} failed: {failures[n]}" if n in failures else f"[+]{n} ok" for n in self._checks]
        return code, "\n".join([*lines, f"healthz check {'failed' if failures else 'passed'}", ""])


def _ping() -> None:
    """The agent answers: that is all."""


def _failure(check: Check) -> str:
    try:
        check()
    except Unhealthy as error:
        return str(error)
    return ""


def threads_run(threads: Callable[[], Sequence[threading.Thread]]) -> Check:
    """The watches and the workers are there. threads: those that were started, none before that."""

    def check() -> None:
        started = threads()
        if not started:
            raise Unhealthy("the node is not registered yet")
        if ended := sum(not thread.is_alive() for thread in started):
            raise Unhealthy(f"{ended} of {len(started)} watches and workers have ended; restart the agent")

    return check


def lease_renewed(renewed_at: Callable[[], float | None], *, within: float) -> Check:
    """The API server hears of the node. renewed_at: monotonic seconds, None for never."""

    def check() -> None:
        last = renewed_at()
        if last is None:
            raise Unhealthy("the node's lease was never renewed")
        if (ago := time.monotonic() - last) > within:
            raise Unhealthy(f"the node's lease was last renewed {ago:.0f} s ago; is the API server reachable?")

    return check


def writable(folder: Path, disk: Disk, *, clock: Callable[[], float] = time.monotonic) -> Check:
    """A record can be written to `folder`; looked at once in a few seconds."""
    path = folder / ".healthz"
    lock = threading.Lock()
    known: list[tuple[float, str]] = []

    def check() -> None:
        with lock:
            if not known or known[0][0] <= clock():
                known[:] = [(clock() + DISK_SECONDS, _trial(path, disk))]
            if reason := known[0][1]:
                raise Unhealthy(reason)

    return check


def _trial(path: Path, disk: Disk) -> str:
    try:
        disk.write(path, b"ok")
        disk.remove(path)
    except OSError as error:
        return f"the checkpoint cannot be written: {error.strerror or error}"
    return ""


# `/containerLogs/NAMESPACE/POD/CONTAINER`: the log of a container of this node, with kubelet's parameters and words.
# Source: kubernetes pkg/kubelet/server/server.go (getContainerLogs), pkg/kubelet/kubelet_pods.go
# (validateContainerLogStatus).

_STREAMS: dict[str, Literal["stdout", "stderr"]] = {"Stdout": "stdout", "Stderr": "stderr"}


class Logs:
    """pods: those of the node, as the API last showed them. count: of what is open. clock: POSIX seconds."""

    def __init__(
        self,
        pods: Callable[[], Sequence[Pod] | None],
        runtime: Runtime,
        count: SessionCount,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._count = count
        self._pods = pods
        self._runtime = runtime
        self._clock = clock

    def answer(self, namespace: str, name: str, container: str, request: Request) -> HttpsAnswer:
        """400 for what cannot be shown, 404 for what is not on this node, 422 for options that break a rule, 429 for
        one log too many.
        """
        try:
            options = read_options(request.query)
        except BadRequest as error:
            return HttpsAnswer(code=400, body=error.message)
        if wrong := wrong_options(options):
            return HttpsAnswer(code=422, body="; ".join(map(str, wrong)))
        known = self._pods()
        pod = latest(known or (), namespace, name)
        if pod is None:
            return _no_pod(name, known)
        if container not in _names(pod):
            return HttpsAnswer(code=404, body=f'container "{container}" not found in pod "{name}"')
        try:
            with ExitStack() as stack:
                stack.enter_context(self._count.one_more(request.person, pod.metadata.uid))
                pieces = self._pieces(pod, container, options, request)
                return HttpsAnswer(body=pieces, held=stack.pop_all())
        except (TooManySessions, LogsUnavailable) as error:
            return HttpsAnswer(code=429 if isinstance(error, TooManySessions) else 400, body=str(error))

    def _pieces(self, pod: Pod, container: str, options: PodLogOptions, request: Request) -> Iterator[bytes]:
        """Raises: LogsUnavailable, before there are any."""
        status = _status(pod, container)
        run = self._runtime.runs(pod.metadata.uid).get(container)
        # Between two attempts the latest one has ended, and is the previous one already.
        previous = options.previous and not _awaits_restart(status)
        if run is None or (previous and run.previous is None):
            raise LogsUnavailable(_why_none(pod.metadata.name, container, status, previous=options.previous))
        query = _query(options, previous=previous, now=self._clock())
        pieces = self._runtime.logs(pod.metadata.uid, container, query, stop=request.hung_up)
        return pieces if query.follow else _begun(pieces)


def _no_pod(name: str, known: Sequence[Pod] | None) -> HttpsAnswer:
    """known: None where the agent has just started. A 404 would be final for the client, so that is a 503."""
    if known is None:
        return HttpsAnswer(code=503, body="the agent has just started and does not know its pods yet: try again")
    return HttpsAnswer(code=404, body=f'pod "{name}" does not exist')


def latest(pods: Sequence[Pod], namespace: str, name: str) -> Pod | None:
    """Of several pods of one name the one that was made last: the others are on their way out."""
    found = [pod for pod in pods if pod.key == (namespace, name)]
    return max(found, key=lambda pod: pod.metadata.creation_timestamp or "", default=None)


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces, the first one taken: what it raises is raised before the answer begins."""
    first = list(itertools.islice(pieces, 1))
    return itertools.chain(first, pieces)


def _query(options: PodLogOptions, *, previous: bool, now: float) -> LogQuery:
    since = datetime.fromisoformat(options.since_time).timestamp() if options.since_time else None
    if options.since_seconds is not None:
        since = now - options.since_seconds
    return LogQuery(
        previous=previous,
        tail_lines=options.tail_lines,
        since=since,
        timestamps=options.timestamps,
        limit_bytes=options.limit_bytes,
        follow=options.follow,
        stream=_STREAMS.get(options.stream),
    )


def _names(pod: Pod) -> frozenset[str]:
    spec = pod.spec
    return frozenset(one.name for one in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers))


def _status(pod: Pod, container: str) -> ContainerStatus:
    shown = pod.status
    reported = (*shown.init_container_statuses, *shown.container_statuses, *shown.ephemeral_container_statuses)
    return next((status for status in reported if status.name == container), ContainerStatus())


def _awaits_restart(status: ContainerStatus) -> bool:
    return status.state.waiting is not None and status.last_state.terminated is not None


#: What kubelet says instead of a reason.
_UNPULLED = {"ErrImagePull": "image can't be pulled", "ImagePullBackOff": "trying and failing to pull image"}


def _why_none(pod: str, container: str, status: ContainerStatus, *, previous: bool) -> str:
    """What kubelet says of a container that has no log (yet)."""
    which = f'container "{container}" in pod "{pod}"'
    if previous:
        return f"previous terminated {which} not found"
    if status.state.terminated is not None:
        return f"{which} is terminated"
    if status.state.waiting is not None:
        reason = status.state.waiting.reason
        return f"{which} is waiting to start: {_UNPULLED.get(reason, reason)}"
    return f"{which} is waiting to start - no logs yet"


# `/exec`, `/attach` and `/portForward`. Source: kubernetes pkg/kubelet/server/server.go (getExec, getAttach,
# getPortForward), pkg/kubelet/kubelet_pods.go (GetExec).


class Streams:
    """pods: those of the node, as the API last showed them. count: of what is open."""

    def __init__(self, pods: Callable[[], Sequence[Pod] | None], runtime: Runtime, count: SessionCount) -> None:
        self._pods = pods
        self._runtime = runtime
        self._count = count

    def enter(
        self, namespace: str, name: str, container: str, request: Request, *, attach: bool
    ) -> HttpsAnswer | Upgraded:
        try:
            options = checked_stream_options(read_stream_options(request.parameters, attach=attach))
        except BadRequest as error:
            return HttpsAnswer(code=400, body=error.message)
        known = self._pods()
        pod = latest(known or (), namespace, name)
        if pod is None:
            return _no_pod(name, known)
        uid = pod.metadata.uid

        def begin() -> Conversation:
            run = self._runtime.runs(uid).get(container)
            if run is None or not run.running or container not in _names(pod):
                raise StreamFailed(f'container not found ("{container}")')
            start = self._runtime.attach if attach else self._runtime.execute
            return start(uid, container, options)

        return self._session(request, uid, begin)

    def connect(self, namespace: str, name: str, request: Request) -> HttpsAnswer | Upgraded:
        try:
            port = port_of(next(iter(request.parameters.get("port", ())), ""))
        except BadRequest as error:
            return HttpsAnswer(code=400, body=error.message)
        known = self._pods()
        pod = latest(known or (), namespace, name)
        if pod is None:
            return _no_pod(name, known)
        uid = pod.metadata.uid
        return self._session(request, uid, lambda: self._runtime.connect(uid, port))

    def _session(self, request: Request, pod_uid: str, begin: Callable[[], Conversation]) -> HttpsAnswer | Upgraded:
        """What is wrong with it is answered before the connection becomes a session."""
        if request.upgrade != AGENT_PROTOCOL:
            return HttpsAnswer(code=400, body="Upgrade request required")
        try:
            with ExitStack() as stack:
                stack.enter_context(self._count.one_more(request.person, pod_uid))
                conversation = begin()
                stack.callback(conversation.close)
                held = stack.pop_all()
        except TooManySessions as error:
            return HttpsAnswer(code=429, body=str(error))
        except StreamRefused as error:
            return HttpsAnswer(code=400, body=str(error))
        except (StreamFailed, ContainerFailed) as error:
            return HttpsAnswer(code=409, body=str(error))
        return Upgraded(
            AGENT_PROTOCOL,
            lambda connection, stopping: Session(connection, conversation, stopping=stopping).run(),
            held=held,
        )


log = logging.getLogger(__name__)

#: The text format of Prometheus.
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Routes:
    """metrics: the text that Prometheus reads. usage: of the node's containers."""

    def __init__(
        self,
        *,
        health: AgentHealth,
        metrics: Callable[[], bytes],
        logs: Logs,
        streams: Streams,
        usage: Callable[[], UsageReport],
        reviewer: TokenReviewer,
    ) -> None:
        self._usage = usage
        self._health = health
        self._metrics = metrics
        self._logs = logs
        self._streams = streams
        self._reviewer = reviewer

    def respond(self, request: Request) -> HttpsAnswer | Upgraded:
        """The answer to one request; it never raises."""
        try:
            return self._respond(request)
        except AgentError as error:
            log.warning("/%s: %s", "/".join(request.path), error)
            return HttpsAnswer(code=500, body=f"the agent could not answer: {error}")
        except Exception as error:  # a fault in one request must not end the connection without a word
            log.exception("/%s", "/".join(request.path))
            return HttpsAnswer(code=500, body=f"the agent could not answer: {error}")

    def _respond(self, request: Request) -> HttpsAnswer | Upgraded:
        if request.path == ("healthz",):
            code, text = self._health.answer(verbose="verbose" in request.query)
            return HttpsAnswer(code=code, body=text)
        user = self._reviewer.user(request.token) if request.token else None
        if user is None:
            return HttpsAnswer(code=401, body="Unauthorized")
        return self._respond_to(user, request)

    def _respond_to(self, user: UserInfo, request: Request) -> HttpsAnswer | Upgraded:
        match request.path:
            case (("containerLogs" | "exec" | "attach" | "portForward" | "usage"), *_) if not may_enter_pods(user):
                words = f"Forbidden (user={user.username}, verb=get, resource=nodes, subresource(s)=[proxy])"
                return HttpsAnswer(code=403, body=words)
            case (("metrics" | "usage") as what,):
                return self._figures(what)
            case ("containerLogs", namespace, pod, container):
                return self._logs.answer(namespace, pod, container, request)
            case (("exec" | "attach") as what, namespace, pod, container):
                return self._streams.enter(namespace, pod, container, request, attach=what == "attach")
            case ("portForward", namespace, pod):
                return self._streams.connect(namespace, pod, request)
        return HttpsAnswer(code=404, body="404 page not found")

    def _figures(self, what: str) -> HttpsAnswer:
        if what == "metrics":
            return HttpsAnswer(body=self._metrics(), content_type=METRICS_TYPE)
        return HttpsAnswer(body=msgspec.json.encode(self._usage()), content_type="application/json")


# The agent's endpoint, put together from the parts of the agent that it tells about.
def make_server(
    config: AgentConfig,
    *,
    client: Client,
    registration: Registration,
    threads: Callable[[], Sequence[threading.Thread]],
    pods: Callable[[], Sequence[Pod] | None],
    runtime: Runtime,
    usage: Callable[[], UsageReport],
    metrics: AgentMetrics,
    disk: Disk,
    clock: Callable[[], float],
) -> AgentServer | None:
    """None where the configuration wants none. threads: the watches and workers, once they are started."""
    if config.listen is None:
        return None
    checks = {
        "watches": threads_run(threads),
        "checkpoint": writable(config.state_dir / "claims", disk),
        "lease": lease_renewed(lambda: registration.renewed_at, within=LEASE_DURATION),
    }
    hosts = tuple(dict.fromkeys((config.node_name, config.node_ip, config.listen.host)))
    count = SessionCount()
    routes = Routes(
        health=AgentHealth(checks),
        metrics=metrics.text,
        logs=Logs(pods, runtime, count, clock=clock),
        streams=Streams(pods, runtime, count),
        usage=usage,
        reviewer=TokenReviewer(client, node=config.node_name, certificate=lambda: server.fingerprint),
    )
    server = AgentServer(config.listen, routes.respond, folder=config.state_dir / "serving", hosts=hosts)
    return server
