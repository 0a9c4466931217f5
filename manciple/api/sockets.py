"""How often WebSockets may be opened, and those where none is served.

A WebSocket costs a connection, a look at the database and, where it is refused, an entry of the audit trail. So each
address has a rate of refused ones, and each session a rate of any. What is opened does not count for its address:
people behind one proxy may open many pages. `kubectl exec` and `port-forward` try one before they ask again.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from functools import partial

from manciple.api import door
from manciple.api.connection_table import network_of
from manciple.api.flow import RateLimits, digest
from manciple.api.lanes import credential_of
from manciple.api.streams import Application, Message, Receive, Scope, Send, in_reader, shown_in
from manciple.wire.errors import ApiError

#: Refused WebSockets a second of one address, and at once.
REFUSALS, REFUSALS_AT_ONCE = 2.0, 20.0
#: WebSockets a second of one session or token, and at once: after a restart a browser opens those of all its pages.
OPENED, OPENED_AT_ONCE = 5.0, 50.0
#: Seconds that those beyond it wait for their answer: a client that tries again at once is slowed down.
DELAY = 1.0


class SocketLimits:
    """Of one process. Used from one event loop."""

    def __init__(self, rate: float = REFUSALS, burst: float = REFUSALS_AT_ONCE, *, delay: float = DELAY) -> None:
        """rate, burst: of refused ones."""
        self._refused = RateLimits(rate, burst)
        self._opened = RateLimits(OPENED, OPENED_AT_ONCE)
        self._delay = delay

    async def serve(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        """The WebSocket, or 429. It counts as refused until `application` sends something through it."""
        client = scope.get("client")
        address = network_of(str(client[0] if client else ""))
        credential = credential_of(scope)
        after = self._opened.take(digest(credential)) if credential else 0.0
        after = after or self._refused.take(address)
        if after:
            await asyncio.sleep(self._delay)
            headers = [(b"retry-after", str(math.ceil(after)).encode()), (b"content-length", b"0")]
            await send({"type": "websocket.http.response.start", "status": 429, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": b"", "more_body": False})
            return
        counts = True

        async def note_opened(message: Message) -> None:
            nonlocal counts
            if counts and message["type"] == "websocket.send":
                counts = False
                self._refused.give_back(address)
            await send(message)

        await application(scope, receive, note_opened)


async def closed_door(scope: Scope, _receive: Receive, send: Send) -> None:
    """Refuses (HTTP 403). Who asked is found out for the audit trail alone."""
    with suppress(ApiError):
        await in_reader(partial(door.identify, shown_in(scope)))
    await send({"type": "websocket.close"})
