"""Subresources of other floors: worked out when somebody asks, or streamed. Nothing is stored.

Those above the API register theirs from `AppConfig.ready()`, as `explain` and `log` of pods. They are listed in
discovery and in the OpenAPI documents, and asked for like any other: `kubectl get --raw .../pods/NAME/explain`. A
streamed one sends bytes as they come, and no thread waits; it ends by itself, with its client, or when the server
stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from manciple.api import requests
from manciple.api.answers import status_of
from manciple.api.asgi_requests import (
    Receive,
    Scope,
    Send,
    authenticate,
    headers_of,
    query_of,
    refuse,
    refuse_when_stopping,
)
from manciple.api.fanout import Hub
from manciple.wire.registry import Kind

logger = logging.getLogger(__name__)

#: Seconds a client may take to accept a piece before it counts as gone.
SEND_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """Of which object what is asked."""

    namespace: str
    name: str
    query: Mapping[str, str]


#: Entered, it has found what is to be streamed, and gives the pieces. Raises: ApiError on entering.
Open = Callable[[StreamRequest], AbstractAsyncContextManager[AsyncIterator[bytes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """One that is streamed. media: of its answers; parameters: (name, OpenAPI type, description) of its query."""

    name: str
    media: str
    parameters: tuple[tuple[str, str, str], ...]
    open: Open


#: (namespace, name) of the object -> the document. Raises: ApiError, NotFound for an object that is not there.
Answer = Callable[[str, str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """One that is worked out. group, version and kind are those of the document that it answers."""

    name: str
    group: str
    version: str
    kind: str
    answer: Answer


_registered: dict[str, dict[str, Computed | Streamed]] = {}


def register(resource: str, subresource: Computed | Streamed) -> None:
    """Serve it below every object of `resource` ("pods", "resourceclaims.resource.k8s.io"), in all versions."""
    _registered.setdefault(resource, {})[subresource.name] = subresource


def find(kind: Kind, name: str) -> Computed | Streamed | None:
    """What is registered as subresource `name` of `kind`; None where nothing is."""
    return _registered.get(kind.resource, {}).get(name)


def of(kind: Kind) -> Iterable[Computed | Streamed]:
    """All that is registered below `kind`, in that order."""
    return _registered.get(kind.resource, {}).values()


def wanted(scope: Scope) -> tuple[Streamed, StreamRequest] | None:
    """What this HTTP request wants streamed; None for any other request."""
    if scope["method"] != "GET" or not scope["path"].startswith(("/api/", "/apis/")):
        return None
    path = requests.parse_path(scope["path"])
    served = path.served() if path is not None and path.subresource else None
    streamed = find(served.kind, path.subresource) if path is not None and served is not None else None
    if path is None or not isinstance(streamed, Streamed):
        return None
    return streamed, StreamRequest(namespace=path.namespace, name=path.name, query=query_of(scope))


async def serve(streamed: Streamed, request: StreamRequest, scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of all streams but the watches."""
    begun = False
    try:
        await authenticate(headers_of(scope))
        async with streamed.open(request) as pieces:
            refuse_when_stopping()  # it may have begun meanwhile
            headers = [(b"content-type", streamed.media.encode()), (b"cache-control", b"no-cache, private")]
            begun = True
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            # An empty piece makes the server send the headers: the client learns that there is something to wait for.
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            await _until_the_end(_send_all(pieces, send), receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    except Exception as error:
        if not begun:
            await refuse(status_of(error), send)
        else:
            # Leaving without an end closes the connection: the client sees that something is missing.
            logger.warning("%s of %s/%s broke off: %s", streamed.name, request.namespace, request.name, error)


async def _send_all(pieces: AsyncIterator[bytes], send: Send) -> None:
    async for piece in pieces:
        async with asyncio.timeout(SEND_TIMEOUT):
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _until_the_end(sending: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Until all is sent, the client has gone or the server stops. Raises: what sending raises."""
    sender = asyncio.create_task(sending)
    gone = asyncio.create_task(_gone(receive))
    stopped = asyncio.create_task(_stopped())
    tasks = (sender, gone, stopped)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if sender.done():
            sender.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stopped() -> None:
    await Hub.of_running_loop().stopping.wait()


async def _gone(receive: Receive) -> None:
    """Returns when the client has."""
    while (await receive())["type"] != "http.disconnect":
        pass
