"""Sessions on subresources of objects: a WebSocket, or a connection upgraded to SPDY, for as long as both sides like.

    GET  .../pods/NAME/exec   Upgrade: websocket     -> needs the verbs `get` and `create` on the subresource
    POST .../pods/NAME/exec   Upgrade: SPDY/3.1      -> needs `create`

What such a subresource does is registered as `Upgraded`. Before the connection is accepted every refusal is a Status,
as for other requests. The session then lasts until its work is done, its client goes, the client may not have it any
more, or the server stops. It may take no more of the event loop than the watches of the same tenant (`SendingPace`,
which both share), and nobody has more than `MOST_EACH` of them, the connections that a session makes included.

Source: apiserver/pkg/endpoints/handlers/rest.go (ConnectResource); KEP-4006; kubernetes
pkg/registry/core/pod/rest/subresources.go (AuthorizePodWebsocketUpgradeCreatePermission).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from django.conf import settings

from manciple.access import authorization
from manciple.api import requests, subresources
from manciple.api.answers import error_answer, status_of
from manciple.api.door import Admission
from manciple.api.flow_control import flow_of
from manciple.api.requests import ResourcePath
from manciple.api.streams import (
    Hub,
    Receive,
    Scope,
    Send,
    SendingPace,
    admitted,
    in_reader,
    refuse_when_stopping,
    refused,
    stopping,
)
from manciple.api.subresources import SessionRequest, Upgraded
from manciple.wire.errors import ApiError, TooManyRequests
from manciple.wire.identity import Identity

logger = logging.getLogger(__name__)

#: Sessions of one person and connections of these to agents; of all people the part of the connections of a process.
MOST_EACH, MOST_PART = 64, 0.25
#: Seconds after which somebody with too many should try again.
RETRY_SECONDS = 5
#: Seconds that a client may take to close when all is said.
CLOSING_SECONDS = 5.0
_ENDED, _GOING_AWAY, _FAILED = 1000, 1001, 1011


class _Open:
    """Who has how many sessions open in this process. Used from one event loop."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    @contextmanager
    def one_more(self, owner: str) -> Iterator[None]:
        """Raises: TooManyRequests."""
        if self.counts[owner] >= MOST_EACH:
            raise _too_many(f"you have reached the limit of open sessions ({MOST_EACH}): end some first")
        if self.counts.total() >= max(MOST_EACH, settings.CONNECTIONS * MOST_PART):
            raise _too_many("the server has as many sessions as it may have: try again later")
        self.counts[owner] += 1
        try:
            yield
        finally:
            self.counts[owner] -= 1
            if not self.counts[owner]:
                del self.counts[owner]


_open = _Open()


def open_sessions(owner: str) -> int:
    """How many somebody has, with the connections that they make."""
    return _open.counts[owner]


def _too_many(message: str) -> TooManyRequests:
    return TooManyRequests(message, details={"retryAfterSeconds": RETRY_SECONDS})


class Session:
    """One connection, seen from the server: messages of a WebSocket, or the bytes of SPDY as they come.

    pace: of all that its owner's connections send and receive.
    """

    def __init__(self, receive: Receive, send: Send, *, owner: str, pace: SendingPace | None) -> None:
        self._receive, self._send = receive, send
        self._owner, self._pace = owner, pace
        self.accepted = self._closed = False

    async def accept(self, protocol: str) -> None:
        refuse_when_stopping()
        self.accepted = True
        await self._send({"type": "websocket.accept", "subprotocol": protocol or None})

    async def receive(self) -> str | bytes | None:
        """The next message; None when the client has gone."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self._closed = True
            return None
        found: str | bytes = message["bytes"] if message.get("bytes") is not None else message["text"]
        if self._pace is not None:
            await self._pace.wait(len(found))
        return found

    async def send(self, message: str | bytes) -> None:
        """Returns when the client takes more."""
        if self._pace is not None:
            await self._pace.wait(len(message))
        key = "text" if isinstance(message, str) else "bytes"
        await self._send({"type": "websocket.send", key: message})

    async def close(self, code: int = _ENDED) -> None:
        """Twice is once."""
        if not self._closed:
            self._closed = True
            await self._send({"type": "websocket.close", "code": code})

    async def until_gone(self) -> None:
        """Let the client take what was sent, and hang up first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                while await self.receive() is not None:
                    pass

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """A connection that this session makes. Raises: TooManyRequests."""
        with _open.one_more(self._owner):
            yield


def wanted(scope: Scope) -> tuple[Upgraded, ResourcePath] | None:
    """What this connection wants to be upgraded for; None for what is no session."""
    if not scope["path"].startswith("/api"):
        return None
    where = requests.parse_path(scope["path"])
    served = where.served() if where is not None and where.subresource else None
    if where is None or served is None:
        return None
    found = subresources.find(served.kind, where.subresource)
    return (found, where) if isinstance(found, Upgraded) else None


async def serve(upgraded: Upgraded, where: ResourcePath, scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of all sessions."""
    session: Session | None = None
    try:
        await receive()  # websocket.connect
        admission = await _admitted(scope)
        identity = admission.identity
        owner = flow_of(identity)
        session = Session(receive, send, owner=owner, pace=Hub.of_running_loop().pace_of(identity))
        with _open.one_more(owner):
            await _until_the_end(upgraded.serve(_request(where, scope, identity), session), admission)
    except Exception as error:
        if session is None or not session.accepted:
            await _refuse(status_of(error), send)
            return
        if not isinstance(error, ApiError | OSError):
            raise
        logger.info("%s of %s/%s was interrupted: %s", upgraded.name, where.namespace, where.name, error)
        with suppress(Exception):  # the client may be gone
            await session.close(_GOING_AWAY if stopping() else _FAILED)


async def _admitted(scope: Scope) -> Admission:
    """Raises: as `streams.admitted`. A WebSocket begins with a GET, and may do as much as a POST."""
    admission = await admitted(scope)
    if admission.wanted.verb == "create":
        return admission
    also = replace(admission, wanted=replace(admission.wanted, verb="create"))
    await in_reader(lambda: authorization.demand(also.identity, also.wanted))
    return also


def _request(where: ResourcePath, scope: Scope, identity: Identity) -> SessionRequest:
    query = scope["query_string"].decode("latin-1")
    return SessionRequest(
        namespace=where.namespace,
        name=where.name,
        query=parse_qs(query, keep_blank_values=True),
        protocols=tuple(scope.get("subprotocols", ())),
        is_spdy=scope.get("method", "GET") != "GET",
        identity=identity,
    )


async def _until_the_end(work: Coroutine[Any, Any, None], admission: Admission) -> None:
    """Raises: what the work raises; why the client may not go on; ServiceUnavailable where the server stops."""
    working = asyncio.ensure_future(work)
    ends = asyncio.ensure_future(Hub.of_running_loop().stopping.wait())
    revoked = asyncio.ensure_future(refused(admission))
    tasks: tuple[asyncio.Future[Any], ...] = (working, ends, revoked)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        elif revoked.done():
            raise revoked.result()
        else:
            refuse_when_stopping()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _refuse(error: ApiError, send: Send) -> None:
    answer = error_answer(error)
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    headers.append((b"content-length", str(len(answer.content)).encode()))
    await send({"type": "websocket.http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.content, "more_body": False})
