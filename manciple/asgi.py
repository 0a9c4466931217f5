"""The front door: one ASGI application for the API, the pages, the watches and the browsers' sockets.

    HTTP, a watch      -> manciple.api.watch, an asynchronous stream
    HTTP, a log        -> manciple.api.streams, likewise
    HTTP, all else     -> Django as WSGI, in a pool of threads (several times faster than Django's own ASGI handler)
    WebSocket          -> Channels
    lifespan           -> the end of the process ends the streams and the log's tail

Any number of listeners may serve it (the API with TLS, the pages on plain loopback). Bodies are read whole before a
thread is taken for them, so a slow client holds no thread.
"""

from __future__ import annotations

import os
from typing import Any, cast

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
_django: Any = get_wsgi_application()  # sets Django up: what is imported below needs the apps

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402
from django.conf import settings  # noqa: E402

from manciple.api import streams  # noqa: E402
from manciple.api.answers import BODY_LIMIT, body_too_large, error_answer  # noqa: E402
from manciple.api.asgi_types import Application, Receive, Scope, Send  # noqa: E402
from manciple.api.fanout import close_streams  # noqa: E402
from manciple.api.threads import ThreadedWsgi  # noqa: E402
from manciple.api.watch import is_watch, watch  # noqa: E402
from manciple.live.routing import websocket_urlpatterns  # noqa: E402
from manciple.store.tail import Tail  # noqa: E402
from manciple.wire.errors import TooLarge  # noqa: E402

_routes: Any = websocket_urlpatterns
_pages_and_rest = ThreadedWsgi(_django, workers=settings.API_THREADS)
_sockets = cast("Application", AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(_routes))))


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Hands each connection to the part that serves it."""
    if scope["type"] == "websocket":
        await _sockets(scope, receive, send)
    elif scope["type"] == "lifespan":
        await _live(receive, send)
    elif is_watch(scope):
        await watch(scope, receive, send)
    elif stream := streams.wanted(scope):
        await streams.serve(*stream, scope, receive, send)
    else:
        await _serve_whole(scope, receive, send)


async def _serve_whole(scope: Scope, receive: Receive, send: Send) -> None:
    """A request that is taken to a thread once its body is in hand."""
    try:
        body = await _read_body(scope, receive)
    except TooLarge as error:
        await _answer_too_large(error, send)
        return
    await _pages_and_rest(scope, body, send)


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    """Raises: TooLarge, before reading where the request tells its length."""
    announced = next((value for name, value in scope["headers"] if name.lower() == b"content-length"), b"0")
    if announced.isdigit() and int(announced) > BODY_LIMIT:
        raise body_too_large()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > BODY_LIMIT:
            raise body_too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _answer_too_large(error: TooLarge, send: Send) -> None:
    answer = error_answer(error)
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content, "more_body": False})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await close_streams()
            Tail.instance().stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
