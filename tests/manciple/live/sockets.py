"""The front door's WebSockets, opened in the test's own event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from asgiref.testing import ApplicationCommunicator
from django.conf import settings

from manciple.access.authentication.chain import CONNECTION
from manciple.api.connections import ConnectionTable, OpenConnection
from manciple.asgi import application
from manciple.live.consumers import PATH

#: Seconds that a test waits for what must come.
PATIENCE = 20
PAGE = {"origin": "http://localhost", "host": "localhost"}


@dataclass
class Socket:
    """One connection, seen from the browser."""

    line: Any
    #: what the server knows of it
    connection: OpenConnection

    async def message(self) -> dict[str, Any]:
        """The next thing that the server does."""
        found: dict[str, Any] = await self.line.receive_output(timeout=PATIENCE)
        return found

    async def told(self) -> dict[str, Any]:
        """The next message of the page's line that tells something."""
        while "beat" in (found := await self._text()):
            pass
        return found

    async def beat(self) -> dict[str, Any]:
        """The next sign of life."""
        while "beat" not in (found := await self._text()):
            pass
        return found

    async def _text(self) -> dict[str, Any]:
        message = await self.message()
        assert message["type"] == "websocket.send", message
        found: dict[str, Any] = json.loads(message["text"])
        return found

    async def first_words(self) -> dict[str, Any]:
        """What it is told once it is open, topics left out."""
        assert (await self.message())["type"] == "websocket.accept"
        return {name: value for name, value in (await self.told()).items() if name != "topics"}

    async def hears_until(self, revision: int) -> set[str]:
        """All topics up to this revision of the log."""
        topics: set[str] = set()
        while True:
            told = await self.told()
            topics |= set(told["topics"])
            if told["revision"] >= revision:
                return topics

    async def ends(self) -> dict[str, Any]:
        """How the server closes it; what it says before is passed over."""
        while (message := await self.message())["type"] == "websocket.send":
            pass
        return message


@asynccontextmanager
async def opened(
    path: str = PATH, *, session: str = "", token: str = "", headers: Mapping[str, str] = MappingProxyType(PAGE)
) -> AsyncIterator[Socket]:
    """session: the key of a browser's; token: a bearer token."""
    shown = dict(headers)
    if session:
        shown["cookie"] = f"{settings.SESSION_COOKIE_NAME}={session}"
    if token:
        shown["authorization"] = f"Bearer {token}"
    path, _, query = path.partition("?")
    connection = ConnectionTable(100, descriptors=1000).add("192.0.2.7", descriptor=3)
    assert connection is not None
    scope = {
        CONNECTION: connection,
        "type": "websocket",
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in shown.items()],
        "subprotocols": [],
        "client": ("192.0.2.7", 4711),
    }
    line: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
    await line.send_input({"type": "websocket.connect"})
    try:
        yield Socket(line, connection)
    finally:
        await line.send_input({"type": "websocket.disconnect", "code": 1000})
        await line.wait(timeout=PATIENCE)
