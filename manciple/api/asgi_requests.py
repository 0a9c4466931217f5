"""What the parts that are written for ASGI by hand have in common: reading a request, asking the database, refusing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qsl

from django.db import close_old_connections

from manciple.api import tokens
from manciple.api.answers import error_answer
from manciple.api.asgi_types import Scope, Send
from manciple.api.authentication import bearer, identify_headers
from manciple.api.fanout import Hub, readers
from manciple.api.faults import unavailable_for
from manciple.wire.errors import ApiError, Unauthorized

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
