"""Sessions on subresources of objects: a WebSocket, or a connection upgraded to SPDY, for as long as both sides like.

    GET  .../pods/NAME/exec   Upgrade: websocket     -> needs the verbs `get` and `create` on the subresource
    POST .../pods/NAME/exec   Upgrade: SPDY/3.1      -> needs `create`
    GET  /sessions/api/v1/...  of a page             -> the same rights, of whoever is signed in

What such a subresource does is registered as `Upgraded`. Admission is asked about its options (CONNECT), and may change
them. Before the connection is accepted every refusal is a Status, as for other requests. The session then lasts until
its work is done, its client goes, the client may not have it any more, or the server stops. `manciple.api.sessions`
bounds what one may take. A browser tells no script why it was refused: a page's session is accepted first, and the
Status comes on its error channel.

Source: apiserver/pkg/endpoints/handlers/rest.go (ConnectResource); KEP-4006; kubernetes
pkg/registry/core/pod/rest/subresources.go (AuthorizePodWebsocketUpgradeCreatePermission).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from django.db import close_old_connections
from msgspec import structs

from manciple.access import authorization
from manciple.api import requests, subresources
from manciple.api.answers import error_answer, status_of, unknown_path
from manciple.api.auditing import REFUSAL
from manciple.api.door import ORIGIN, Admission
from manciple.api.flow_control import flow_of
from manciple.api.requests import ResourcePath
from manciple.api.sessions import ENDED, Session
from manciple.api.streams import (
    Hub,
    Receive,
    Scope,
    Send,
    admitted,
    in_reader,
    is_of_page,
    refuse_when_stopping,
    refused,
    stopping,
)
from manciple.api.subresources import SessionRequest, Upgraded
from manciple.store import hooks, records
from manciple.store.hooks import Write
from manciple.wire import channels
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError
from manciple.wire.identity import MASTERS, Identity

logger = logging.getLogger(__name__)

_GOING_AWAY, _FAILED = 1001, 1011
#: Asks admission, whose webhooks may take their time: they keep nobody else waiting.
_admitting = ThreadPoolExecutor(max_workers=4, thread_name_prefix="session-admission")


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
        limited, pace = MASTERS not in identity.groups, Hub.of_running_loop().pace_of(identity)
        session = Session(receive, send, owner=flow_of(identity), limited=limited, pace=pace)
        with session.one_more():
            request = await _request(upgraded, where, scope, identity)
            await _until_the_end(upgraded.serve(request, session), admission)
    except Exception as error:
        if session is None or not session.accepted:
            await (_refuse_page if is_of_page(scope) else _refuse)(status_of(error), scope, send)
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


async def _request(upgraded: Upgraded, where: ResourcePath, scope: Scope, identity: Identity) -> SessionRequest:
    """Raises: ApiError."""
    options = upgraded.read(parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    options = structs.replace(options, metadata=ObjectMeta(namespace=where.namespace, name=where.name))

    def ask() -> Any:
        close_old_connections()
        served = where.served()
        if served is None:
            raise unknown_path()
        write = Write(
            operation="CONNECT",
            kind=served.kind,
            new=options,
            subresource=upgraded.name,
            identity=identity,
            verb="connect",
            version=served.version,
        )
        with records.collecting(scope.get(ORIGIN)):
            return hooks.ask_all(write)

    return SessionRequest(
        namespace=where.namespace,
        name=where.name,
        options=await asyncio.get_running_loop().run_in_executor(_admitting, ask),
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


async def _refuse_page(error: ApiError, scope: Scope, send: Send) -> None:
    protocol = channels.chosen(scope.get("subprotocols", ()))
    answer = error_answer(error)
    if protocol is None or not protocol.has_status:
        await _refuse(error, scope, send)
        return
    refusal = {"code": answer.status_code, "body": answer.content}
    await send({"type": "websocket.accept", "subprotocol": protocol.name, REFUSAL: refusal})
    await send({"type": "websocket.send", "bytes": protocol.message(channels.ERROR, answer.content)})
    await send({"type": "websocket.close", "code": ENDED})


async def _refuse(error: ApiError, _scope: Scope, send: Send) -> None:
    answer = error_answer(error)
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    headers.append((b"content-length", str(len(answer.content)).encode()))
    await send({"type": "websocket.http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.content, "more_body": False})
