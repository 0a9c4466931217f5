"""The WebSocket of an open page: says which parts of it are out of date.

Server to browser: {"revision": N, "topics": [...]}; {"revision": N, "everything": true} after too long an absence.
Browser to server: nothing; it reconnects with `?after=REVISION` of the page it shows.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from asgiref.sync import sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer, AsyncWebsocketConsumer
from django.urls import path, re_path

from manciple.live.topics import Relay, TopicChange, heard_by, relay

#: Changes within this time go out as one message (seconds): 50 changes/s become at most 25 messages/s.
GATHERING_TIME = 0.04
#: Close code for somebody who is not signed in; the page then asks to sign in again instead of reconnecting.
NOT_SIGNED_IN = 4401


class ClosedDoor(AsyncWebsocketConsumer):
    """Refuses (HTTP 403) whoever opens a socket where none is served: `kubectl exec` tries one before it asks again."""

    async def connect(self) -> None:
        await self.close()


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """One page's connection."""

    async def connect(self) -> None:
        await self.accept()
        user = self.scope["user"]
        if user is None or not user.is_authenticated:
            await self.close(NOT_SIGNED_IN)
            return
        self._loop = asyncio.get_running_loop()
        self._topics: set[str] = set()
        self._revision = 0
        self._due: asyncio.TimerHandle | None = None
        self._heard = await sync_to_async(heard_by)(user)
        self._relay: Relay = await sync_to_async(relay)()
        missed = self._relay.join(self._hear, after=_after(self.scope["query_string"]))
        await self.send_json(self._message(missed))

    async def disconnect(self, code: int) -> None:  # noqa: ARG002 - the signature is Channels'
        if hasattr(self, "_relay"):
            self._relay.leave(self._hear)
            if self._due:
                self._due.cancel()

    def _hear(self, change: TopicChange) -> None:
        """Called in the tail's thread."""
        self._loop.call_soon_threadsafe(self._gather, change)

    def _gather(self, change: TopicChange) -> None:
        self._topics.update(self._heard(change.topics))
        self._revision = change.revision
        if self._due is None:
            self._due = self._loop.call_later(GATHERING_TIME, lambda: asyncio.ensure_future(self._flush()))

    async def _flush(self) -> None:
        self._due = None
        change = TopicChange(self._revision, frozenset(self._topics))
        self._topics.clear()
        with suppress(OSError):  # the page has been closed meanwhile; `disconnect` follows
            await self.send_json(self._message(change))

    def _message(self, change: TopicChange) -> dict[str, Any]:
        message: dict[str, Any] = {"revision": change.revision, "topics": sorted(self._heard(change.topics))}
        if change.everything:
            message["everything"] = True
        return message


def _after(query: bytes) -> int:
    """The revision of what the page shows; -1 where it does not say."""
    given = parse_qs(query.decode()).get("after", ["-1"])[0]
    return int(given) if given.isdigit() else -1


#: Where browsers connect.
websocket_urlpatterns = [
    path("live", LiveConsumer.as_asgi()),  # type: ignore[arg-type]  # Channels routes by Django's path()
    re_path("", ClosedDoor.as_asgi()),  # type: ignore[arg-type]
]
