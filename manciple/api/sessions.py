"""The connection of a session as what serves it sees it, and how many of them somebody may have at this server.

Logs count among them. Each server counts its own; over all of them, an agent counts (`nodeagent.http.sessions`).
A session may take no more of the event loop than the watches of the same tenant (`SendingPace`, which both share).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.conf import settings

from manciple.api.streams import Receive, Send, SendingPace, refuse_when_stopping
from manciple.wire.errors import TooManyRequests

#: Sessions of one person, administrators excepted, and connections of these to agents; of all people the part of the
#: connections of a process. A driver that is tested from outside keeps ten connections to each socket in its pods.
MOST_EACH, MOST_PART = 64, 0.25
#: Seconds after which somebody with too many should try again.
RETRY_SECONDS = 5
#: Seconds that a client may take to close when all is said.
CLOSING_SECONDS = 5.0
ENDED = 1000


class OpenSessions:
    """Who has how many sessions open in this process. Used from one event loop."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, owner: str) -> int:
        """Those of one person, with the connections that they make."""
        return self._counts[owner]

    @contextmanager
    def one_more(self, owner: str, *, limited: bool) -> Iterator[None]:
        """limited: no administrator's. Raises: TooManyRequests."""
        if limited and self._counts[owner] >= MOST_EACH:
            raise _too_many(f"you have reached the limit of open sessions and logs ({MOST_EACH}): end some first")
        if self._counts.total() >= max(MOST_EACH, settings.CONNECTIONS * MOST_PART):
            raise _too_many("the server has as many sessions and logs as it may have: try again later")
        self._counts[owner] += 1
        try:
            yield
        finally:
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]


OPEN = OpenSessions()


def _too_many(message: str) -> TooManyRequests:
    return TooManyRequests(message, details={"retryAfterSeconds": RETRY_SECONDS})


class Session:
    """One connection, seen from the server: messages of a WebSocket, or the bytes of SPDY as they come.

    owner: under whose name it is counted. limited: that is no administrator. pace: of all that the owner's connections
    send and receive.
    """

    def __init__(self, receive: Receive, send: Send, *, owner: str, limited: bool, pace: SendingPace | None) -> None:
        self._receive, self._send = receive, send
        self._owner, self._limited, self._pace = owner, limited, pace
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

    async def close(self, code: int = ENDED) -> None:
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
        """The session itself, or a connection that it makes. Raises: TooManyRequests."""
        with OPEN.one_more(self._owner, limited=self._limited):
            yield
