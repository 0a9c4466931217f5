"""The end of the server: what is still being answered when its time is up gets an end that its client understands.

Streams are ended in order, and new ones refused, as soon as a server stops (`fanout.close_streams`). Seconds later the
server cancels what still runs: a request that waits for a thread or for the database, a stream whose client takes
nothing. Left to itself, each of them would be an error with its trace in the log, and a plain 500 for the client.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from manciple.api.asgi_requests import refuse, stopping
from manciple.api.asgi_types import Application, Message, Receive, Scope, Send
from manciple.api.faults import unavailable_for
from manciple.wire.errors import ApiError, GatewayTimeout

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
