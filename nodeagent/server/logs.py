"""`/containerLogs/NAMESPACE/POD/CONTAINER`: the log of a container of this node, with kubelet's parameters and words.

Source: kubernetes pkg/kubelet/server/server.go (getContainerLogs), pkg/kubelet/kubelet_pods.go
(validateContainerLogStatus).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Literal

from claims.kinds.pod_logs import PodLogOptions, read_options, wrong_options
from claims.kinds.pods import ContainerStatus, Pod
from manciple.wire.errors import BadRequest
from nodeagent.failures import LogsUnavailable
from nodeagent.runtimes.logs import LogQuery
from nodeagent.runtimes.protocol import Runtime
from nodeagent.server.endpoint import Answer, Request

_STREAMS: dict[str, Literal["stdout", "stderr"]] = {"Stdout": "stdout", "Stderr": "stderr"}


class Logs:
    """pods: those of the node, as the API last showed them. clock: POSIX seconds."""

    def __init__(
        self, pods: Callable[[], Sequence[Pod]], runtime: Runtime, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._pods = pods
        self._runtime = runtime
        self._clock = clock

    def answer(self, namespace: str, name: str, container: str, request: Request) -> Answer:
        """400 for what cannot be shown, 404 for what is not on this node, 422 for options that break a rule."""
        try:
            options = read_options(request.query)
        except BadRequest as error:
            return Answer(code=400, body=error.message)
        if wrong := wrong_options(options):
            return Answer(code=422, body="; ".join(map(str, wrong)))
        pod = self._pod(namespace, name)
        if pod is None:
            return Answer(code=404, body=f'pod "{name}" does not exist')
        if container not in _names(pod):
            return Answer(code=404, body=f'container "{container}" not found in pod "{name}"')
        try:
            return Answer(body=self._pieces(pod, container, options, request))
        except LogsUnavailable as error:
            return Answer(code=400, body=str(error))

    def _pod(self, namespace: str, name: str) -> Pod | None:
        """Of several pods of one name the one that was made last: the others are on their way out."""
        found = [p for p in self._pods() if (p.metadata.namespace, p.metadata.name) == (namespace, name)]
        return max(found, key=lambda pod: pod.metadata.creation_timestamp or "", default=None)

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
    reported = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return next((status for status in reported if status.name == container), ContainerStatus())


def _awaits_restart(status: ContainerStatus) -> bool:
    return status.state.waiting is not None and status.last_state.terminated is not None


def _why_none(pod: str, container: str, status: ContainerStatus, *, previous: bool) -> str:
    """What kubelet says of a container that has no log (yet)."""
    which = f'container "{container}" in pod "{pod}"'
    if previous:
        return f"previous terminated {which} not found"
    if status.state.terminated is not None:
        return f"{which} is terminated"
    if status.state.waiting is not None:
        return f"{which} is waiting to start: {status.state.waiting.reason}"
    return f"{which} is waiting to start - no logs yet"
