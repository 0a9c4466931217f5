"""`pods/log`: what a container has printed, fetched from the agent of its node.

Source: kubernetes pkg/registry/core/pod/rest/log.go, pkg/registry/core/pod/strategy.go (LogLocation).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

from claims.kinds.pod_logs import PodLogOptions, agent_query, chosen_container, read_options, wrong_options
from claims.kinds.pods import Pod
from inventory import agents
from inventory.agents import AgentAddress
from manciple.api.streams import in_reader
from manciple.api.subresources import Streamed, StreamRequest
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.errors import Invalid, NotFound
from manciple.wire.registry import registry


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Where a log is. agent: None for a pod that has no node, and so no log yet."""

    agent: AgentAddress | None
    path: str
    options: PodLogOptions


def find(request: StreamRequest) -> LogPlace:
    """Raises: BadRequest, Invalid, NotFound, and ApiError for a node whose agent cannot be asked."""
    options = read_options(request.query)
    if wrong := wrong_options(options):
        raise Invalid.of(kind="PodLogOptions", group="", name=request.name, errors=wrong)
    stored = objects.get(registry.by_resource("pods"), request.namespace, request.name)
    if stored is None:
        raise NotFound.of("pods", request.name)
    pod = codec.decode_text(Pod, stored.text)
    container = chosen_container(pod, options.container)
    agent = agents.locate(pod.spec.node_name) if pod.spec.node_name else None
    path = "/".join(quote(part, safe="") for part in (request.namespace, request.name, container))
    return LogPlace(agent=agent, path=f"/containerLogs/{path}", options=options)


@asynccontextmanager
async def open_log(request: StreamRequest) -> AsyncIterator[AsyncIterator[bytes]]:
    """The pieces of a log. Raises: ApiError."""
    place = await in_reader(lambda: find(request))
    if place.agent is None:
        yield _nothing()
        return
    async with agents.ask(
        place.agent,
        place.path,
        agent_query(place.options),
        endless=place.options.follow,
        trusting=place.options.insecure_skip_tls_verify_backend,
        person=request.owner,
    ) as pieces:
        yield pieces


async def _nothing() -> AsyncIterator[bytes]:
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece


POD_LOG = Streamed(
    name="log",
    media="text/plain",
    parameters=(
        ("container", "string", "The container whose log to show; required if the pod has several."),
        ("follow", "boolean", "Follow the log."),
        ("insecureSkipTLSVerifyBackend", "boolean", "Skip TLS verification of the node's agent."),
        ("limitBytes", "integer", "The most bytes to send."),
        ("previous", "boolean", "The log of the container's previous run."),
        ("sinceSeconds", "integer", "Only lines of the last so many seconds."),
        ("sinceTime", "string", "Only lines since this time (RFC 3339)."),
        ("stream", "string", "All, Stdout or Stderr."),
        ("tailLines", "integer", "Lines from the end of the log to show."),
        ("timestamps", "boolean", "Each line begins with the time at which it was printed."),
    ),
    open=open_log,
)
