"""What the parts that are written for ASGI by hand have in common: reading a request, asking the database, refusing.

The event log is fanned out to the watches of one event loop. The process's one `Tail` reads the log in its own thread.
The `Hub` of a loop subscribes to it once, carries each batch into the loop (`call_soon_threadsafe`), and there puts
every event into the queues of the watches of its resource. An event is shaped once per form, however many watches want
it (`SharedEvent`), and after every few watches the other tasks of the loop have their turn. A watch that joins learns
the revision up to which it must read the log: later events will arrive in its queue. So nothing is skipped and nothing
needs a lock. A watch whose client does not keep up is closed when its queue is full, or when the watches of its
identity hold too many bytes that were not read; the client comes back with the revision that it has seen last.

And the end of the server: what is still being answered when its time is up gets an end that its client understands.
Streams are ended in order, and new ones refused, as soon as a server stops (`close_streams`). Seconds later the server
cancels what still runs: a request that waits for a thread or for the database, a stream whose client takes nothing.
Left to itself, each of them would be an error with its trace in the log, and a plain 500 for the client.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar
from urllib.parse import parse_qsl

from django.conf import settings
from django.db import close_old_connections

from manciple.access import rbac
from manciple.access.authentication.chain import CONNECTION, Credentials, Rounds, asked_again
from manciple.api.answers import error_answer
from manciple.api.door import CERTIFICATE, ORIGIN, PEER, Admission, PageAdmission, attributes_of
from manciple.api.faults import unavailable_for
from manciple.api.flow_control import LIMITED, flow_of, level_of
from manciple.store import event_log
from manciple.store.event_log import Tail
from manciple.store.records import EventRecord, EventType
from manciple.wire.errors import ApiError, GatewayTimeout, TooManyRequests
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.selectors import FieldRequirement

if TYPE_CHECKING:  # at runtime it would load uvicorn into processes that serve nothing
    from manciple.api.connections import OpenConnection

# The fan-out of the log -----------------------------------------------------------------------------------------------


#: Events that a watch may lie behind the log before it is closed.
QUEUE_LIMIT = 10_000
#: Watches that get their events before the event loop does something else: each of them wakes a task.
TURN = 20
#: Bytes of events that the watches of one identity may hold before those that have not sent theirs for so many seconds
#: are closed, the slowest first.
UNREAD_LIMIT, SLOW = 16 << 20, 1.0
#: What the watches of one tenant may take of the event loop's time together: a part of it; what a message is estimated
#: to take, in seconds, and how many bytes of it a second; and how far ahead of this the watches may be, in seconds.
SENDING_SHARE, MESSAGE_SECONDS, SENDING_SPEED, SENDING_AHEAD = 0.25, 0.0001, 200e6, 0.005
#: Watches that a node or a part of the control plane may have open; `MANCIPLE_IDENTITY_WATCHES` if that is more.
SYSTEM_WATCHES = 1000
#: Seconds after which somebody with too many watches should try again.
RETRY_WATCH = 10

#: Seconds after which it is asked again whether a stream's client is still who it was, and still may have it.
ASKED_AGAIN = 60.0

#: Answers from here on say that the question could not be answered.
INTERNAL_ERROR = 500

#: Where a scope keeps its headers once they were read.
HEADERS = "manciple.headers"
#: Threads in which watches read the database: few, because every thread keeps a connection.
readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="watch-reader")


#: Resources whose objects define others, which are called by their names -> the versions in which what such an object
#: defines is served. With its version ends a watch.
DEFINING: dict[str, Callable[[EventRecord], Collection[str]]] = {}


class Selection(Protocol):
    """What a watch selects. Equal ones have equal hashes."""

    def sees(self, record: EventRecord) -> EventType | None:
        """How `record` appears to the watch; None if it does not."""
        ...


class SharedEvent:
    """An event of the log, with what was worked out of it for earlier watches; used from one event loop only."""

    __slots__ = ("_appearances", "_texts", "record", "size")

    def __init__(self, record: EventRecord, size: int = 0) -> None:
        self.record = record
        self.size = size  # in bytes, about
        self._texts: dict[object, bytes] = {}
        self._appearances: dict[Selection, EventType | None] = {}

    def seen_by(self, selection: Selection) -> EventType | None:
        """How it appears in the selection; evaluated once for equal ones."""
        try:
            return self._appearances[selection]
        except KeyError:
            return self._appearances.setdefault(selection, selection.sees(self.record))

    def shaped(self, key: object, shape: Callable[[EventRecord], bytes]) -> bytes:
        """What `shape` makes of the record; made once per `key`."""
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = shape(self.record)
        return text


class SendingPace:
    """The pace at which the watches of one tenant send. Used from one event loop.

    Encrypting what is sent takes the time of the loop that serves everybody, and one small patch of a large object is
    sent to each of a tenant's watches.
    """

    __slots__ = ("__weakref__", "_free_at", "_turn")

    def __init__(self) -> None:
        self._free_at = 0.0
        self._turn = asyncio.Lock()

    async def wait(self, size: int) -> None:
        """Returns when so many bytes may be sent: messages go in the order of these calls."""
        async with self._turn:  # a loop that is late makes up for nothing: the others come after their own pause
            pause = self._free_at - time.monotonic()
            if pause > SENDING_AHEAD:
                await asyncio.sleep(pause)
            takes = (MESSAGE_SECONDS + size / SENDING_SPEED) / SENDING_SHARE
            self._free_at = max(self._free_at, time.monotonic()) + takes


class Watcher:
    """One watch's place in the hub: a bounded queue of events of one resource, which it shows in one version.

    topic: a field and the value that it must have, or have had, in all events that concern this watch; None for any.
    """

    def __init__(
        self, resource: str, limit: int, version: str = "", owner: str = "", topic: FieldRequirement | None = None
    ) -> None:
        self.resource = resource
        self.version = version
        self.topic = topic
        self.owner = owner  # the name of its identity
        self.closed = False
        #: its version is not served any more: it ends when what is queued is sent
        self.ending = False
        #: why its client may not watch any more
        self.refused: ApiError | None = None
        #: bytes of the events that are queued, or were taken and not sent yet; since when there are any
        self.unread = 0
        self.unread_since = 0.0
        #: while something is sent to its client
        self.sending: asyncio.Timeout | None = None
        #: None: what it sends is not limited
        self.pace: SendingPace | None = None
        #: held while this watch, or another one of its owner, reads the database
        self.turn = asyncio.Lock()
        self._limit = limit
        self._queue: list[SharedEvent] = []
        self._taken = 0  # bytes of the events that were taken last
        self._ready = asyncio.Event()

    def enqueue(self, event: SharedEvent) -> None:
        """Called by the hub. A full queue closes the watch: its client has lost touch."""
        if self.closed:
            return
        if len(self._queue) >= self._limit:
            self._queue = []
            self.close()
            return
        self._queue.append(event)
        if not self.unread:
            self.unread_since = time.monotonic()
        self.unread += event.size
        self._ready.set()

    @property
    def waiting(self) -> int:
        """Events that were queued and not taken yet."""
        return len(self._queue)

    def close(self) -> None:
        self.closed = True
        self._ready.set()

    def drop(self) -> None:
        """Close it though its client takes nothing, and forget what it was to send."""
        self._queue, self.unread = [], 0
        self.close()
        if self.sending is not None and not self.sending.expired():
            self.sending.reschedule(asyncio.get_running_loop().time())

    def end(self) -> None:
        self.ending = True
        self._ready.set()

    async def take(self, *, seconds: float) -> list[SharedEvent]:
        """All waiting events, after waiting up to `seconds` for the first one; empty after that time.

        Those that were taken before were sent.
        """
        self.unread, self._taken = max(0, self.unread - self._taken), 0
        self.unread_since = time.monotonic()
        if not self._queue and not self.closed:
            try:
                async with asyncio.timeout(seconds):
                    await self._ready.wait()
            except TimeoutError:
                return []
        taken, self._queue = self._queue, []
        self._taken = self.unread
        if not self.closed:
            self._ready.clear()
        return taken


class Hub:
    """The fan-out of one event loop. Everything but `_receive` and `_lose` runs in that loop."""

    _hubs: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub]] = weakref.WeakKeyDictionary()
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        #: resource -> field -> value -> those of that topic; under the field "" those that have none
        self._topics: defaultdict[str, dict[str, dict[str, set[Watcher]]]] = defaultdict(dict)
        #: by the name of whose they are
        self.open_watches: Counter[str] = Counter()
        self._started: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        #: every event up to this revision was queued for the watchers
        self.position = 0
        #: and up to this one for those who joined before
        self._begun = 0
        self._arrived: deque[EventRecord] = deque()
        self._serving: Iterator[None] | None = None
        self._by_owner: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._paces: weakref.WeakValueDictionary[str, SendingPace] = weakref.WeakValueDictionary()
        #: called when a role or binding was written
        self._rights: set[Callable[[], None]] = set()
        #: the server stops: whatever is streamed ends
        self.stopping = asyncio.Event()

    @classmethod
    def of_running_loop(cls) -> Hub:
        loop = asyncio.get_running_loop()
        with cls._guard:
            if loop not in cls._hubs:
                cls._hubs[loop] = cls(loop)
            return cls._hubs[loop]

    def check_watches(self, identity: Identity) -> None:
        """Raises: TooManyRequests for who has as many open as one may have; administrators may have any number."""
        most = settings.IDENTITY_WATCHES
        if level_of(identity) == "system":
            most = max(most, min(SYSTEM_WATCHES, settings.CONNECTIONS // 4))
        if MASTERS not in identity.groups and self.open_watches[flow_of(identity)] >= most:
            raise TooManyRequests(
                f"you have reached the limit of open watches ({most}): close some first",
                details={"retryAfterSeconds": RETRY_WATCH},
            )

    async def join(
        self,
        resource: str,
        *,
        limit: int = QUEUE_LIMIT,
        version: str = "",
        owner: str = "",
        topic: FieldRequirement | None = None,
    ) -> tuple[Watcher, int]:
        """A new watcher, and the revision above which events will be in its queue."""
        await self.follow()
        watcher = Watcher(resource, limit, version, owner, topic)
        watcher.turn = self._turns.setdefault(owner, watcher.turn)
        self._watchers[resource].add(watcher)
        field, value = _place(watcher)
        self._topics[resource].setdefault(field, {}).setdefault(value, set()).add(watcher)
        self.open_watches[owner] += 1
        self._by_owner[owner].add(watcher)
        return watcher, self._begun

    def pace_of(self, identity: Identity) -> SendingPace | None:
        """Of all watches of this identity; None for administrators, nodes and parts of the control plane."""
        if level_of(identity) not in LIMITED:
            return None
        return self._paces.setdefault(flow_of(identity), SendingPace())

    async def follow(self) -> None:
        """Hear of the log from now on, if that is not so already."""
        if self._started is None:
            self._started = self._loop.create_task(self._start())
        await asyncio.shield(self._started)

    @contextmanager
    def telling_of_rights(self, tell: Callable[[], None]) -> Iterator[None]:
        """Have `tell` called when a role or binding was written."""
        self._rights.add(tell)
        try:
            yield
        finally:
            self._rights.discard(tell)

    def leave(self, watcher: Watcher) -> None:
        self._watchers[watcher.resource].discard(watcher)
        field, value = _place(watcher)
        by_value = self._topics[watcher.resource].get(field, {})
        if found := by_value.get(value):
            found.discard(watcher)
            if not found:
                del by_value[value]
        self._by_owner[watcher.owner].discard(watcher)
        if not self._by_owner[watcher.owner]:
            del self._by_owner[watcher.owner]
        self.open_watches[watcher.owner] -= 1
        if not self.open_watches[watcher.owner]:
            del self.open_watches[watcher.owner]

    def close(self) -> None:
        """End all watches and the subscription; the next watch starts anew."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.close()
        self._watchers.clear()
        self._topics.clear()
        self._arrived.clear()
        self._serving = None
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._unsubscribe, self._started = None, None

    async def _start(self) -> None:
        try:
            self.position = self._begun = await self._loop.run_in_executor(readers, event_log.latest_revision)
            self._unsubscribe = await self._loop.run_in_executor(readers, self._subscribe, self.position)
        except BaseException:
            self._started = None
            raise

    def _subscribe(self, after: int) -> Callable[[], None]:
        return Tail.instance().subscribe(self._receive, after=after, on_expired=self._lose, quick=True)

    def _receive(self, records: Sequence[EventRecord]) -> None:
        """Called in another thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._dispatch, records)

    def _lose(self, _error: Exception) -> None:
        """Called in the tail's thread when the log was pruned past this hub: every watch has to start over."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close)

    def _dispatch(self, records: Sequence[EventRecord]) -> None:
        rights = [record.revision for record in records if record.resource in rbac.RESOURCES]
        if rights:
            rbac.expect(rights[-1])
            for tell in tuple(self._rights):
                tell()
        self._arrived.extend(records)
        if self._serving is None:
            self._serving = self._served()
            self._serve(self._serving)

    def _serve(self, serving: Iterator[None]) -> None:
        """Goes on with `serving`; what else the loop has to do comes between."""
        if serving is not self._serving:
            return  # the hub was closed meanwhile
        try:
            for _ in serving:
                self._loop.call_soon(self._serve, serving)
                return
        except BaseException:
            self._serving = self._served()  # without the event that could not be served
            self._loop.call_soon(self._serve, self._serving)
            raise
        self._serving = None

    def _served(self) -> Iterator[None]:
        """Gives each event to all watches that it concerns, in the order of the log; stops after every few of them."""
        count = 0
        while self._arrived:
            record = self._arrived.popleft()
            self._begun = record.revision
            if self._watchers.get(record.resource):
                event = SharedEvent(record, len(record.document or ""))
                owners: set[str] = set()
                for watcher in tuple(self._concerned(record)):
                    watcher.enqueue(event)
                    owners.add(watcher.owner)
                    count += 1
                    if count % TURN == 0:
                        yield
                for owner in owners:
                    self._close_slow(owner)
            defined = self._watchers.get(record.name) if record.resource in DEFINING else None
            if defined:
                served = DEFINING[record.resource](record)
                for watcher in tuple(defined):
                    if watcher.version not in served:
                        watcher.end()
            self.position = record.revision

    def _close_slow(self, owner: str) -> None:
        """Close the slowest watches of an identity whose watches hold too much."""
        watchers = self._by_owner.get(owner, ())
        unread = sum(watcher.unread for watcher in watchers)
        if unread <= UNREAD_LIMIT:
            return
        since = time.monotonic() - SLOW
        for watcher in sorted(watchers, key=lambda one: one.unread_since):
            if watcher.unread and watcher.unread_since <= since:
                unread -= watcher.unread
                watcher.drop()
                if unread <= UNREAD_LIMIT:
                    return

    def _concerned(self, record: EventRecord) -> Iterator[Watcher]:
        """Thousands of agents watch the pods of their node: an event wakes those whose node it concerns, not all."""
        for field, by_value in self._topics[record.resource].items():
            for value in _values(record, field) if field else ("",):
                yield from by_value.get(value, ())


def _place(watcher: Watcher) -> tuple[str, str]:
    """Field and value of its topic."""
    return (watcher.topic.field, watcher.topic.value) if watcher.topic else ("", "")


def _values(record: EventRecord, field: str) -> set[str]:
    """That the field has, and had before."""
    return {record.fields.get(field, ""), (record.previous_fields or {}).get(field, "")}


async def close_streams() -> None:
    """End what is streamed on this event loop, so that a server can stop without waiting for its clients."""
    hub = Hub.of_running_loop()
    hub.close()
    hub.stopping.set()


# Requests -------------------------------------------------------------------------------------------------------------


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


Found = TypeVar("Found")


#: How the paths begin under which pages open streams and sessions, before the API's. _OF_PAGE: in their scopes.
PAGES, _OF_PAGE = "/sessions", "manciple.of_page"


def entered(scope: Scope) -> Scope:
    """The scope of what a page opens, under the API's path; any other as it is."""
    path = scope["path"].removeprefix(PAGES)
    if path == scope["path"] or not path.startswith("/api"):
        return scope
    return {**scope, "path": path, _OF_PAGE: True}


def is_of_page(scope: Scope) -> bool:
    return _OF_PAGE in scope


async def admitted(scope: Scope) -> Admission:
    """Who may have the stream that this request asks for; that of a page is its browser's session's.

    Raises: as `door.admit`; ServiceUnavailable while the server stops: what is opened now would be cut off.
    """
    refuse_when_stopping()
    method = scope.get("method", "GET")  # a WebSocket begins with one
    shown, wanted = shown_in(scope), attributes_of(method, scope["path"], query_of(scope))
    way = PageAdmission if is_of_page(scope) else Admission
    admission = await in_reader(lambda: way.of(shown, wanted))
    claim_connection(scope, admission.identity)
    return admission


def claim_connection(scope: Scope, identity: Identity | None) -> None:
    """Count the request's connection for the identity that sent it, if both are known."""
    connection: OpenConnection | None = scope.get(CONNECTION)
    if connection is not None:
        connection.claim_for(identity)


async def refused(admission: Admission) -> ApiError:
    """Returns when whoever has a stream may have it no longer: why."""
    hub, doubt = Hub.of_running_loop(), _Doubt()
    await hub.follow()
    with hub.telling_of_rights(doubt.of_rights), Rounds.of_running_loop().asking(doubt.of_credentials):
        while True:
            identified = await doubt.arises()
            error = await in_reader(partial(admission.refused, identified=identified))
            # Where another cluster has to be asked, who cannot be confirmed may not stay.
            if error is not None and (error.code < INTERNAL_ERROR or settings.CLUSTER_USERS):
                return error


class _Doubt:
    """Whether a stream's client is still who it was, and may still have it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._identified = True

    def of_rights(self) -> None:
        self._event.set()

    def of_credentials(self) -> None:
        self._identified = False
        self._event.set()

    async def arises(self) -> bool:
        """Returns whether what the client showed need not be looked at again."""
        try:
            # Not wait_for: in Python 3.11 it returns, and the task goes on, when it is cancelled at that very moment.
            async with asyncio.timeout(asked_again(ASKED_AGAIN)):
                await self._event.wait()
        except TimeoutError:
            self._identified = False
        identified, self._identified = self._identified, True
        self._event.clear()
        return identified


def shown_in(scope: Scope) -> Credentials:
    """What the request of this scope shows of its sender."""
    client = scope.get("client")
    return Credentials(
        headers=headers_of(scope),
        certificate=scope.get(CERTIFICATE),
        peer=scope.get(PEER, ""),
        address=client[0] if client else "",
        origin=scope.get(ORIGIN),
    )


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
    """By names in lower case; a repeated one is one list (RFC 9110, 5.3), of lines where somebody is impersonated:
    names may have commas. The scope keeps them from then on.
    """
    known: dict[str, str] | None = scope.get(HEADERS)
    if known is not None:
        return known
    values: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    found = scope[HEADERS] = {
        name: ("\n" if name.startswith("impersonate-") else ",").join(some) for name, some in values.items()
    }
    return found


def query_of(scope: Scope) -> dict[str, str]:
    if not scope["query_string"]:
        return {}
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


# The end of the server ------------------------------------------------------------------------------------------------


_READING = ("GET", "HEAD", "OPTIONS")


class Answering(Protocol):
    """The `send` of a request."""

    #: of the answer; 0 until it begins
    code: int

    async def __call__(self, message: Message, /) -> None: ...


async def until_stopped(serve: Application, scope: Scope, receive: Receive, send: Answering) -> None:
    """`serve`, cut off without a trace where the server stops."""
    try:
        await serve(scope, receive, send)
    except asyncio.CancelledError:
        if not stopping():
            raise
        if not send.code:
            with suppress(asyncio.CancelledError):
                await refuse(_cut_off(scope), send)


def _cut_off(scope: Scope) -> ApiError:
    """A thread that has begun goes on: whether a write was made is not known here."""
    if scope["method"] in _READING:
        return unavailable_for("the server is shutting down: try again")
    return GatewayTimeout(
        "the server shut down before it could answer: the change may have been made or not; check before you retry",
        details={},
    )
