"""The front door (`manciple.asgi`) without a socket: what an ASGI server would hand it, as one identity."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson

from manciple.api.streams import Message, Scope, close_streams
from manciple.asgi import application
from manciple.store.event_log import Tail

#: Seconds for which a stream is listened to.
LISTENED = 0.02
#: Seconds that an answer may take.
PATIENCE = 60.0

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """As it goes over the wire. path: percent-encoded; query: without the question mark. Texts are latin-1."""

    method: str
    path: str
    query: str = ""
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What was answered. streamed: it went on when nobody listened any more."""

    code: int
    headers: dict[str, str]
    body: bytes
    streamed: bool

    @property
    def document(self) -> Any:
        """Raises: ValueError where it is no JSON."""
        return orjson.loads(self.body)


@dataclass(slots=True)
class _Exchange:
    """One request under way."""

    request: Request
    messages: list[Message] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    asked: bool = False

    async def receive(self) -> Message:
        """The whole body; then, when the answer has been listened to for long enough, the end of the connection."""
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": self.request.body, "more_body": False}
        await self.answered.wait()
        await asyncio.sleep(LISTENED)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        self.answered.set()

    def reply(self) -> Reply:
        start, *bodies = self.messages
        return Reply(
            code=start["status"],
            headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]},
            body=b"".join(one.get("body", b"") for one in bodies),
            streamed=not bodies or bool(bodies[-1].get("more_body", False)),
        )


class Front:
    """Sends requests as whoever a token belongs to; "" is nobody."""

    def __init__(self, loop: asyncio.AbstractEventLoop, token: str) -> None:
        self._loop, self._token = loop, token

    def ask(self, request: Request) -> Reply:
        """Raises: whatever the application raises, and TimeoutError."""
        exchange = _Exchange(request)
        answering = application(self._scope(request), exchange.receive, exchange.send)
        self._loop.run_until_complete(asyncio.wait_for(answering, PATIENCE))
        return exchange.reply()

    def _scope(self, request: Request) -> Scope:
        headers = [("host", "127.0.0.1"), ("content-length", str(len(request.body))), *request.headers]
        if self._token:
            headers.append(("authorization", f"Bearer {self._token}"))
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "https",
            "method": request.method,
            "path": unquote(request.path),
            "raw_path": request.path.encode("latin-1"),
            "root_path": "",
            "query_string": request.query.encode("latin-1"),
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 6443),
        }


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop for `Front`; its streams and the log's tail end with it."""
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        with suppress(RuntimeError):
            loop.run_until_complete(close_streams())
        Tail.instance().stop()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
