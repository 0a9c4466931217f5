"""The front door: one ASGI application for the API, the pages, the watches and the browsers' sockets.

    HTTP, a watch      -> manciple.api.watch, an asynchronous stream
    HTTP, a log        -> manciple.api.subresources, likewise
    HTTP, all else     -> manciple.api.lanes: Django as WSGI, in threads (several times faster than Django's own ASGI
                          handler)
    WebSocket, SPDY    -> manciple.live by Channels for the pages', manciple.api.sockets for exec and the like;
                          any other is refused. Pages open logs and sessions, too (`manciple.api.streams.PAGES`)
    lifespan           -> the end of the process ends the streams and the log's tail

Any number of listeners may serve it (the API with TLS, the pages on plain loopback).
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
_django: Any = get_wsgi_application()  # sets Django up: what is imported below needs the apps

from manciple.api import sockets, subresources  # noqa: E402
from manciple.api.auditing import (  # noqa: E402
    Noting,
    NotingSocket,
    counted,
)
from manciple.api.faults import note, unavailable  # noqa: E402
from manciple.api.lanes import Intake, SocketLimits, closed_door  # noqa: E402
from manciple.api.streams import (  # noqa: E402
    Receive,
    Scope,
    Send,
    close_streams,
    entered,
    is_of_page,
    until_stopped,
)
from manciple.api.watch import is_watch, watch  # noqa: E402
from manciple.audit import trail  # noqa: E402
from manciple.live.consumers import NOT_SIGNED_IN, PATH, live  # noqa: E402
from manciple.live.origins import same_origin  # noqa: E402
from manciple.store.event_log import Tail  # noqa: E402

#: The close code of RFC 6455's registry for a server that cannot serve a socket now; pages reconnect.
TRY_AGAIN_LATER = 1013

import_module(settings.ROOT_URLCONF)  # a view without declared rights ends the process here, not at its first request

_pages_and_rest = Intake.of_settings(_django)
_pages_sockets: Any = same_origin(live)
_socket_limits = SocketLimits()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Hands each connection to the part that serves it."""
    if scope["type"] == "websocket":
        scope = entered(scope)
        await _serve_socket(scope, receive, NotingSocket(scope, send, unknown=NOT_SIGNED_IN))
    elif scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        if scope["method"] == "GET" and subresources.wanted(inner := entered(scope)):
            scope = inner
        noting = Noting(scope, send)
        with counted(scope, noting):
            await _answer(scope, receive, noting)


async def _answer(scope: Scope, receive: Receive, send: Noting) -> None:
    reads = scope["method"] == "GET"
    if reads and is_watch(scope):
        await until_stopped(watch, scope, receive, send)
    elif reads and (stream := subresources.wanted(scope)):
        await until_stopped(partial(subresources.serve, *stream), scope, receive, send)
    else:
        await until_stopped(_pages_and_rest, scope, receive, send)


async def _serve_socket(scope: Scope, receive: Receive, send: Send) -> None:
    serve = _pages_sockets if scope["path"] == PATH else closed_door
    if session := sockets.wanted(scope):
        serve = partial(sockets.serve, *session)
        if is_of_page(scope):
            serve = same_origin(serve)
    try:
        await _socket_limits.serve(serve, scope, receive, send)
    except Exception as error:
        if unavailable(error) is None:
            raise
        note(error)
        await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await close_streams()
            Tail.instance().stop()
            await asyncio.to_thread(trail.close)
            await send({"type": "lifespan.shutdown.complete"})
            return
