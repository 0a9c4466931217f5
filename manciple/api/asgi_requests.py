"""What the parts that are written for ASGI by hand have in common: reading a request, asking the database, refusing.

And the end of the server: what is still being answered when its time is up gets an end that its client understands.
Streams are ended in order, and new ones refused, as soon as a server stops (`fanout.close_streams`). Seconds later the
server cancels what still runs: a request that waits for a thread or for the database, a stream whose client takes
nothing. Left to itself, each of them would be an error with its trace in the log, and a plain 500 for the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from django.db import close_old_connections

from manciple.api import tokens
from manciple.api.answers import error_answer
from manciple.api.fanout import Hub, readers
from manciple.api.faults import unavailable_for
from manciple.api.tokens import bearer, identify_headers
from manciple.wire.errors import ApiError, GatewayTimeout, Unauthorized

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


Found = TypeVar("Found")


async def authenticate(headers: dict[str, str]) -> None:
    """Raises: Unauthorized; ServiceUnavailable while the server stops: what is opened now would be cut off."""
    refuse_when_stopping()
    known = tokens.remembered(bearer(headers.get("authorization", "")))
    if known is None:
        identity = await in_reader(lambda: identify_headers(headers))
    else:
        identity = identify_headers(headers, known=known)
    if identity is None:
        raise Unauthorized("Unauthorized")


def stopping() -> bool:
    """Whether the server of this event loop stops."""
    return Hub.of_running_loop().stopping.is_set()


def refuse_when_stopping() -> None:
    """Raises: ServiceUnavailable. To be asked again after whatever a stream waits for before it begins."""
    if stopping():
        raise unavailable_for("the server is shutting down: try again")


async def in_reader(read: Callable[[], Found]) -> Found:
    """What `read` finds, in a thread that may ask the database."""

    def run() -> Found:
        close_old_connections()  # a connection that broke since the last read must not fail this one
        return read()

    return await asyncio.get_running_loop().run_in_executor(readers, run)


async def refuse(error: ApiError, send: Send) -> None:
    """Answer with the Status of `error`. While the server stops, the connection ends with it."""
    await begin_refusal(error, send, last=stopping())
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def begin_refusal(error: ApiError, send: Send, *, last: bool) -> None:
    """Send the Status of `error`; who calls ends the response. last: the connection ends with it."""
    answer = error_answer(error)
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    headers.append((b"content-length", str(len(answer.content)).encode()))
    if last:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content, "more_body": True})


def headers_of(scope: Scope) -> dict[str, str]:
    """By names in lower case; a repeated one is one list (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]},{text}" if key in found else text
    return found


def query_of(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


# The end of the server ------------------------------------------------------------------------------------------------


_READING = ("GET", "HEAD", "OPTIONS")


async def until_stopped(serve: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """`serve`, cut off without a trace where the server stops."""
    begun = False

    async def note_start(message: Message) -> None:
        nonlocal begun
        begun = True
        await send(message)

    try:
        await serve(scope, receive, note_start)
    except asyncio.CancelledError:
        if not stopping():
            raise
        if not begun:
            with suppress(asyncio.CancelledError):
                await refuse(_cut_off(scope), send)


def _cut_off(scope: Scope) -> ApiError:
    """A thread that has begun goes on: whether a write was made is not known here."""
    if scope["method"] in _READING:
        return unavailable_for("the server is shutting down: try again")
    return GatewayTimeout(
        "the server shut down before it could answer: the change may have been made or not; look before you repeat it",
        details={},
    )
