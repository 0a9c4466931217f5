"""WebSockets where none is served: `kubectl exec` and `port-forward` try one before they ask again."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from manciple.api import door
from manciple.api.streams import Receive, Scope, Send, in_reader, shown_in
from manciple.wire.errors import ApiError


async def closed_door(scope: Scope, _receive: Receive, send: Send) -> None:
    """Refuses (HTTP 403). Who asked is found out for the audit trail alone."""
    with suppress(ApiError):
        await in_reader(partial(door.identify, shown_in(scope)))
    await send({"type": "websocket.close"})
