"""What a pod's containers have printed, on its page and as plain text: the last lines, asked of the agent of its node.

`?container=` chooses, `?previous=1` asks for the attempt before the latest, `?lines=` how many lines. The plain text
(`/pods/NAMESPACE/NAME/log`) is what the page follows, a few times a minute; it is no endless answer, because each of
those would keep a thread of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.kinds.pod_logs import agent_query
from claims.kinds.pods import Pod
from claims.pod_logs import LogPlace, find
from dashboard.kit.rights import namespaced
from inventory import agents
from manciple.api.subresources import StreamRequest
from manciple.people import Person, demand_sight
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.errors import ApiError
from manciple.wire.quantity import whole
from manciple.wire.resources import PODS, kind

#: Lines that are shown unless the address asks for others, and the most that can be asked for.
LINES, MOST_LINES = 500, 5_000
#: Bytes of a log that are read at most.
MOST_BYTES = 512 * 1024
#: Seconds after which the agent's answer is given up: a person waits for the page.
PATIENCE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What the page shows. error: why there is nothing to show, in words."""

    containers: tuple[str, ...]
    container: str
    previous: bool
    restarted: bool
    lines: int
    text: str = ""
    error: str = ""
    waiting: bool = False


@namespaced()
@require_safe
def show_log(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """The plain text; 502 with the reason where the agent does not give it."""
    if not may_read_log(demand_sight(request, namespace, f"Pod {name}"), namespace, name):
        raise PermissionDenied(f"You may not read logs in {namespace}. Ask an administrator for a role that allows it.")
    stored = objects.get(kind(PODS), namespace, name)
    if stored is None:
        raise Http404(f"Pod {name} does not exist in namespace {namespace}.")
    log = read_log(decoded(stored, Pod), request.GET)
    return HttpResponse(
        log.error or log.text, status=502 if log.error else 200, content_type="text/plain; charset=utf-8"
    )


def may_read_log(person: Person, namespace: str, name: str) -> bool:
    return person.may("get", "pods/log", namespace, name)


def read_log(pod: Pod, query: Mapping[str, str]) -> Log:
    """Never fails: what the agent says against it is in the answer."""
    names = tuple(one.name for one in (*pod.spec.containers, *pod.spec.init_containers))
    container = query.get("container", "")
    container = container if container in names else names[0]
    previous = query.get("previous", "") not in ("", "0")
    asked = whole(query.get("lines", ""))
    lines = LINES if asked is None else min(max(asked, 1), MOST_LINES)
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    restarted = any(one.name == container and one.restart_count for one in statuses)
    log = Log(containers=names, container=container, previous=previous, restarted=restarted, lines=lines)
    if not pod.spec.node_name:
        return replace(log, waiting=True)
    wanted = {"container": container, "tailLines": str(lines), "limitBytes": str(MOST_BYTES)}
    if previous:
        wanted["previous"] = "true"
    meta = pod.metadata
    try:
        place = find(StreamRequest(namespace=meta.namespace, name=meta.name, query=wanted))
        return replace(log, text=asyncio.run(_read(place)))
    except ApiError as refusal:
        return replace(log, error=refusal.message)
    except TimeoutError:
        return replace(log, error=f"the agent of node {pod.spec.node_name} did not answer within {PATIENCE:g} s")


async def _read(place: LogPlace) -> str:
    """Raises: ApiError, TimeoutError."""
    if place.agent is None:
        return ""
    found = bytearray()
    async with asyncio.timeout(PATIENCE), agents.ask(place.agent, place.path, agent_query(place.options)) as pieces:
        async for piece in pieces:
            found += piece
            if len(found) >= MOST_BYTES:
                break
    return bytes(found[:MOST_BYTES]).decode(errors="replace")
