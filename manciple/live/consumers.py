"""The WebSocket of an open page: says which parts of it are out of date.

Server to browser: {"revision": N, "topics": [...]}; {"revision": N, "everything": true} after too long an absence, and
when what its person may see has changed; {"notice": {...}} for what its person asked to be told (`notices`); every five
seconds a sign of life, {"beat": SECONDS, "at": SECONDS}: how far behind the log it may be, and the time by a clock that
only goes on, by which the page tells how long it was on its way.
Without one for some time the page says that it is not live (`static/manciple/kit/live.js`). Browser to server: nothing;
it reconnects with `?after=REVISION` of the page it shows. The socket ends with the session: signing out, a new
password, an account that is closed.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.sessions import CookieMiddleware
from django.conf import settings
from django.db import Error

from manciple.access.authentication.chain import CERTIFICATE, CONNECTION, PEER, Credentials, Rounds, asked_again
from manciple.live import notices
from manciple.live.topics import HeardTopics, Relay, TopicChange, heard_in, relay
from manciple.store.event_log import Tail
from manciple.wire.quantity import whole

#: Where browsers connect.
PATH = "/live"
#: Changes within this time go out as one message (seconds): 50 changes/s become at most 25 messages/s.
GATHERING_TIME = 0.04
#: Seconds after which it is asked who listens even where nothing is known to have changed: sessions grow old.
ASKED_AGAIN = 60.0
#: Seconds between two signs of life. `static/manciple/kit/live.js` knows them.
BEAT = 5.0
#: Seconds after which what could not be told for lack of the database is tried again.
RETRY = 1.0
#: Close code of RFC 6455's registry for who has as many pages open as one may have; the page tries again now and then.
TOO_MANY = 1013
#: Close code for somebody who is not signed in; the page then asks to sign in again instead of reconnecting.
NOT_SIGNED_IN = 4401


#: Open pages of this process, by the name of their person.
_open: Counter[str] = Counter()


class Beats:
    """The signs of life of one event loop: one timer and one text for all of its pages, and none while none is open."""

    _of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Beats]] = WeakKeyDictionary()
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._pages: set[LiveConsumer] = set()
        self.timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None

    @classmethod
    def of_running_loop(cls) -> Beats:
        with cls._guard:
            return cls._of_loops.setdefault(asyncio.get_running_loop(), cls())

    def join(self, page: LiveConsumer) -> None:
        self._pages.add(page)
        self._plan()

    def leave(self, page: LiveConsumer) -> None:
        self._pages.discard(page)
        if not self._pages and self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _plan(self) -> None:
        if self.timer is None:
            self.timer = asyncio.get_running_loop().call_later(BEAT, self._beat)

    def _beat(self) -> None:
        late = asyncio.get_running_loop().time() - self.timer.when() if self.timer is not None else 0.0
        self.timer = None
        behind = round(max(late, Tail.instance().behind), 1)
        text = json.dumps({"beat": behind, "at": round(time.monotonic(), 3)})
        for page in self._pages:
            page.beat(text)
        if self._pages:
            self._plan()
            if self._telling is None or self._telling.done():
                self._telling = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        """Hand out what people are to be told: one question for all of them."""
        pages = [page for page in self._pages if page.person]
        with suppress(Error):  # the database is away: what is due stays due
            told = await database_sync_to_async(notices.fresh)({page.person for page in pages})
            for page in pages:
                for notice in told.get(page.person, ()):
                    await page.tell(notice)


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """One page's connection. Everything but `_hear` runs in its event loop."""

    async def connect(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._telling = asyncio.Lock()
        self._heard: HeardTopics | None = None
        self._counted = ""
        self._topics: set[str] = set()
        self._revision = 0
        self._everything = False
        self._asks = True
        self._due: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._relay: Relay = await database_sync_to_async(lambda: relay.value)()
        self._next = self._loop.call_later(asked_again(ASKED_AGAIN), self._ask)
        missed = self._relay.join(self._hear, after=_after(self.scope["query_string"]))
        Rounds.of_running_loop().join(self._ask)
        self._take(missed)
        try:
            async with self._telling:  # nothing is sent, and nobody sent away, until it is known who listens
                heard = await self._look()
                await self.accept()  # whoever is not signed in, too: a browser tells no reason for what was never open
            if heard is not None and not self._count(heard.name):
                await self.close(TOO_MANY)
                return
            await self._tell()
            Beats.of_running_loop().join(self)
        except BaseException:
            self._leave()
            raise

    def beat(self, text: str) -> None:
        """Send a sign of life, unless the last one is still on its way: who takes nothing costs nothing more."""
        if self._beating is None or self._beating.done():
            self._beating = asyncio.ensure_future(self._send_beat(text))

    @property
    def person(self) -> str:
        """The name of whoever has the page open; "" before that is known."""
        return self._counted

    async def tell(self, notice: Mapping[str, Any]) -> None:
        """Say what the person asked to be told."""
        with suppress(OSError, RuntimeError):  # the page has been closed meanwhile; `disconnect` follows
            await self.send_json({"notice": notice})

    async def _send_beat(self, text: str) -> None:
        with suppress(OSError, RuntimeError):  # the page has been closed meanwhile; `disconnect` follows
            await self.send(text_data=text)

    async def disconnect(self, code: int) -> None:  # noqa: ARG002 - the signature is Channels'
        if hasattr(self, "_relay"):
            self._leave()

    def _leave(self) -> None:
        self._relay.leave(self._hear)
        Rounds.of_running_loop().leave(self._ask)
        Beats.of_running_loop().leave(self)
        self._next.cancel()
        if self._due:
            self._due.cancel()

        if self._counted:
            _open[self._counted] -= 1
            if not _open[self._counted]:
                del _open[self._counted]
            self._counted = ""

    def _count(self, name: str) -> bool:
        """Whether this page is none too many."""
        if _open[name] >= settings.IDENTITY_WATCHES:
            return False
        _open[name] += 1
        self._counted = name
        connection: Any = self.scope.get(CONNECTION)
        if connection is not None:
            connection.claim("workload", name)
        return True

    def _hear(self, change: TopicChange) -> None:
        """Called in the tail's thread."""
        self._loop.call_soon_threadsafe(self._gather, change)

    def _gather(self, change: TopicChange) -> None:
        self._take(change)
        self._plan()

    def _take(self, change: TopicChange) -> None:
        self._topics |= change.topics
        # A database that was restored begins below the revision of the page.
        self._revision = change.revision if change.everything else max(self._revision, change.revision)
        self._everything |= change.everything
        self._asks |= change.rights

    def _ask(self) -> None:
        """Whoever opened the page may have gone, or may hear less."""
        self._asks = True
        self._next.cancel()
        self._next = self._loop.call_later(asked_again(ASKED_AGAIN), self._ask)
        self._plan()

    def _plan(self, *, after: float = GATHERING_TIME) -> None:
        if self._due is None:
            self._due = self._loop.call_later(after, lambda: asyncio.ensure_future(self._flush()))

    async def _flush(self) -> None:
        self._due = None
        try:
            with suppress(OSError, RuntimeError):  # the page has been closed meanwhile; `disconnect` follows
                await self._tell()
        except Error:  # the database is away: what is gathered is told when it is back
            self._plan(after=RETRY)

    async def _tell(self) -> None:
        """Say what is gathered, to who may hear it now. Raises: django.db.Error, and keeps it."""
        async with self._telling:
            while self._asks:
                await self._look()
            if self._heard is None:
                await self.close(NOT_SIGNED_IN)
                return
            message: dict[str, Any] = {"revision": self._revision, "topics": sorted(self._heard(self._topics))}
            if self._everything:
                message["everything"] = True
            self._topics, self._everything = set(), False
            await self.send_json(message)

    async def _look(self) -> HeardTopics | None:
        session = self.scope["cookies"].get(settings.SESSION_COOKIE_NAME, "")
        self._asks, before = False, self._heard
        try:
            self._heard = await database_sync_to_async(heard_in)(session, _shown(self.scope))
        except BaseException:
            self._asks = True
            raise
        self._everything |= before is not None and before != self._heard
        return self._heard


def _after(query: bytes) -> int:
    """The revision of what the page shows; -1 where it does not say."""
    after = whole(parse_qs(query.decode("latin-1")).get("after", [""])[0])
    return -1 if after is None else after


def _shown(scope: Any) -> Credentials:
    client = scope.get("client")
    return Credentials(
        headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]},
        certificate=scope.get(CERTIFICATE),
        address=client[0] if client else "",
        peer=scope.get(PEER, ""),
    )


#: The ASGI application of these sockets.
live: Any = CookieMiddleware(LiveConsumer.as_asgi())
