"""Watches, as raw ASGI streams: one JSON document a line, `{"type": "ADDED", "object": {...}}`.

A watch starts in one of three ways, by its resourceVersion: "" or "0" sends the current state as ADDED events and goes
on from there; N sends what the log holds after N; `sendInitialEvents=true` sends the state and then a BOOKMARK that
says "that was all of it" (how informers open). Then it follows the hub (`manciple.api.streams`). It ends with its
client, with its timeout, when the client does not keep up, or with an ERROR event (410 Expired) when what it asks for
is pruned.

A watch looks at a selection of objects (namespace, labels, fields). An event may bring an object into the selection,
change it there, or take it out; whoever watches sees an ADDED, a MODIFIED or a DELETED accordingly, whatever the log
calls it.
Source: apiserver/pkg/endpoints/handlers/watch.go, apiserver/pkg/storage/cacher.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import orjson

from manciple.api import answers, requests
from manciple.api.answers import Form, status_of, unknown_path, wanted_form
from manciple.api.auditing import WatchTold
from manciple.api.computed import COMPUTED
from manciple.api.door import Admission
from manciple.api.flow_control import flow_of
from manciple.api.requests import ListOptions, ResourcePath, list_options, truth
from manciple.api.reviews import REVIEWS
from manciple.api.streams import (
    Found,
    Hub,
    Receive,
    Scope,
    Send,
    SharedEvent,
    Watcher,
    admitted,
    headers_of,
    in_reader,
    query_of,
    refuse,
    refuse_when_stopping,
    refused,
)
from manciple.store import event_log, objects
from manciple.store.records import EventRecord, EventType, Stored
from manciple.wire.registry import Served
from manciple.wire.selectors import FieldRequirement, FieldSelector, ParsedLabelSelector

# Selections -----------------------------------------------------------------------------------------------------------


ANY_LABELS = ParsedLabelSelector()
ANY_FIELDS = FieldSelector()


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class WatchSelection:
    """Objects of one resource. namespace "" means all of them.

    Equal selections of open watches are one object (`shared`), which is evaluated once for each event.
    """

    resource: str
    namespace: str = ""
    labels: ParsedLabelSelector = ANY_LABELS
    fields: FieldSelector = ANY_FIELDS
    _hash: int = field(init=False, repr=False, compare=False)

    _open: ClassVar[WeakValueDictionary[WatchSelection, WatchSelection]] = WeakValueDictionary()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.resource, self.namespace, self.labels, self.fields)))

    def __hash__(self) -> int:
        return self._hash

    def shared(self) -> WatchSelection:
        return self._open.setdefault(self, self)

    @property
    def everything(self) -> bool:
        """Whether labels and fields need not be looked at."""
        return self.labels.empty and self.fields.empty

    @property
    def topic(self) -> FieldRequirement | None:
        """What every event that it sees has in a field, or had before; None where nothing is."""
        return next((one for one in self.fields.requirements if one.equal and one.value), None)

    def sees(self, record: EventRecord) -> EventType | None:
        """How `record` appears in this selection; None where it does not."""
        if self.namespace and record.namespace != self.namespace:
            return None
        if self.everything:
            return record.type
        before = self._held_before(record)
        after = record.type != "DELETED" and self._holds(record.labels, record.fields)
        if before:
            return "MODIFIED" if after else "DELETED"
        return "ADDED" if after else None

    def _held_before(self, record: EventRecord) -> bool:
        if record.previous_labels is None or record.previous_fields is None:
            return False
        return self._holds(record.previous_labels, record.previous_fields)

    def _holds(self, labels: dict[str, str], fields: dict[str, str]) -> bool:
        return self.labels.matches(labels) and self.fields.matches(fields)


# Streams --------------------------------------------------------------------------------------------------------------


#: Seconds a watch lives that names no timeout: between once and twice this, so that many do not end together.
SHORTEST_LIFE = 1800
#: Seconds between the bookmarks of a quiet watch.
BOOKMARK_INTERVAL = 60.0
#: Seconds before a watch's end at which it gets a last one, so that its client goes on from there (upstream: the
#: cacher's nextBookmarkTime).
LAST_BOOKMARK = 2.0
#: Seconds a client may take to accept a chunk before it counts as gone.
SEND_TIMEOUT = 60.0
#: Events of the log that are sent in one chunk.
CHUNK = 500
#: Bytes that are handed to the server at once.
PIECE = 256 * 1024
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """What a client asked for, read and checked."""

    path: ResourcePath
    served: Served
    selection: WatchSelection
    options: ListOptions
    form: Form

    @property
    def start(self) -> int:
        """The revision after which events are wanted; 0 where none was named."""
        return int(self.options.resource_version or 0)

    @property
    def wants_state(self) -> bool:
        initial = self.options.send_initial_events
        return not self.start if initial is None else initial


def is_watch(scope: Scope) -> bool:
    """Whether this HTTP request asks for a stream of events."""
    if scope["method"] != "GET" or not scope["path"].startswith(("/api/", "/apis/")):
        return False
    query = query_of(scope)
    path = requests.parse_path(scope["path"])
    if path is None or path.watch:
        return path is not None
    place = (path.group, path.version, path.plural)
    if path.subresource or place in COMPUTED or place in REVIEWS:
        return False  # their views answer, whatever the query asks for
    return "watch" in query and truth(query, "watch")


async def watch(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of all watches."""
    try:
        admission = await admitted(scope)
        request = await in_reader(partial(read_request, scope))
        hub = Hub.of_running_loop()
        hub.check_watches(admission.identity)
        served, owner = request.served, flow_of(admission.identity)
        watcher, position = await hub.join(
            served.kind.resource, version=served.version, owner=owner, topic=request.selection.topic
        )
        watcher.pace = hub.pace_of(admission.identity)
        refuse_when_stopping()  # it may have begun meanwhile, and closes a watch only once
    except Exception as error:  # every error is a Status
        await refuse(status_of(error), send)
        return
    try:
        async with _meanwhile(_close_with_client(watcher, receive), _close_when_refused(watcher, admission)):
            await _Stream(request, hub, watcher, position=position, send=send).run()
    finally:
        hub.leave(watcher)


def read_request(scope: Scope) -> WatchRequest:
    """Raises: NotFound, BadRequest, Invalid, NotAcceptable."""
    path = requests.parse_path(scope["path"])
    served = path.served() if path else None
    if path is None or served is None or path.subresource:
        raise unknown_path()
    query = query_of(scope)
    options = list_options(served, query, watch=True)
    form = wanted_form(headers_of(scope).get("accept", ""), query, custom=served.kind.is_open)
    return WatchRequest(
        path=path,
        served=served,
        selection=_selection(served, path, options),
        options=options,
        form=replace(form, media="json", pretty=False),
    )


def _selection(served: Served, path: ResourcePath, options: ListOptions) -> WatchSelection:
    fields = options.fields
    if path.name:
        fields = FieldSelector((*fields.requirements, FieldRequirement("metadata.name", path.name)))
    selection = WatchSelection(
        resource=served.kind.resource, namespace=path.namespace, labels=options.labels, fields=fields
    )
    return selection.shared()


class WatchClosed(Exception):
    """The watch was closed before it had caught up: its client has gone, or the server stops."""


class _Stream:
    """One running watch: its state is the newest revision that its client has."""

    def __init__(self, request: WatchRequest, hub: Hub, watcher: Watcher, *, position: int, send: Send) -> None:
        self._request = request
        self._hub = hub
        self._watcher = watcher
        self._joined_at = position
        self._send = send
        self._sent = 0
        self._headed = False
        life = request.options.timeout_seconds or random.uniform(SHORTEST_LIFE, 2 * SHORTEST_LIFE)  # noqa: S311
        self._ends = time.monotonic() + life
        self._key = (request.served.api_version, request.form)
        self._told = WatchTold(request.path)

    async def run(self) -> None:
        """1. headers; 2. the state or the log up to where the hub's queue begins; 3. the queue; 4. the end."""
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache, private")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        # An empty chunk makes the server send the headers: the client learns at once that the watch has begun.
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        try:
            await self._catch_up()
            await self._follow()
        except TimeoutError:
            return  # the client takes nothing any more: leaving without an end closes the connection
        except WatchClosed:
            pass
        except Exception as error:  # told inside the stream: its headers are sent
            await self._write(_frame("ERROR", orjson.dumps(status_of(error).status())))
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _catch_up(self) -> None:
        request = self._request
        if request.served.kind.is_open and await in_reader(request.path.served) is None:
            self._watcher.end()  # its version went before the hub could tell this watch
        if request.wants_state:
            await self._send_state()
        elif request.start:
            await self._send_log(request.start)
        else:
            self._sent = self._joined_at

    async def _send_state(self) -> None:
        """The current state as ADDED events, and for informers the bookmark that ends it."""
        request, began = self._request, time.perf_counter()
        selection = request.selection
        self._sent, portions = await self._in_turn(
            partial(
                objects.list_in_portions,
                request.served.kind,
                namespace=selection.namespace,
                labels=None if selection.labels.empty else selection.labels,
                fields=None if selection.fields.empty else selection.fields,
            )
        )
        while (frames := await self._in_turn(partial(self._state_frames, portions))) is not None:
            await self._write(frames)
        if request.options.send_initial_events and request.options.allow_watch_bookmarks:
            await self._write(self._bookmark({INITIAL_EVENTS_END: "true"}))
            self._told.listed(time.perf_counter() - began)

    def _state_frames(self, portions: Iterator[Sequence[Stored]]) -> bytes | None:
        """The next portion of the state; None at its end."""
        portion = next(portions, None)
        if portion is None:
            return None
        served, form = self._request.served, self._request.form
        if served.is_slow and form.shape == "" and portion:
            shown = served.texts([(item.text, item.revision) for item in portion])
            frames = [_frame("ADDED", text.encode()) for text in shown]
        else:
            frames = [_frame("ADDED", self._shape(item.text, item.revision)) for item in portion]
        self._told.sent(frames)
        return b"".join(frames)

    async def _in_turn(self, read: Callable[[], Found]) -> Found:
        """As `in_reader`, for one watch of an owner at a time: the few threads are there for all owners.

        Raises: WatchClosed, or why its client may not watch any more.
        """
        async with self._watcher.turn:
            if self._watcher.closed:
                raise self._watcher.refused or WatchClosed
            return await in_reader(read)

    async def _send_log(self, start: int) -> None:
        """Events after `start` that were too early for the hub's queue. Raises: Expired."""
        self._sent = start
        if start > self._joined_at:
            # A revision nobody has reached can only come from another database: such a client has to list again.
            latest = await in_reader(event_log.latest_revision)
            if start > latest:
                raise event_log.expired(start, latest)
        selection = self._request.selection
        while self._sent < self._joined_at:
            read = partial(
                event_log.portion_after,
                self._sent,
                upto=self._joined_at,
                resource=selection.resource,
                namespace=selection.namespace,
                most=CHUNK,
                most_bytes=objects.READ_BYTES,
            )
            portion = await self._in_turn(read)
            await self._write(await self._framed(list(map(SharedEvent, portion.changes))))
            self._sent = portion.revision

    async def _follow(self) -> None:
        next_bookmark = self._next_bookmark()
        while not self._is_over() and (now := time.monotonic()) < self._ends:
            events = await self._watcher.take(seconds=min(self._ends, next_bookmark) - now)
            fresh = [event for event in events if event.record.revision > self._sent]
            await self._write(await self._framed(fresh))
            if fresh:
                self._sent = fresh[-1].record.revision
            if time.monotonic() >= next_bookmark:
                await self._send_bookmark()
                next_bookmark = self._next_bookmark()
        if self._watcher.refused is not None:
            raise self._watcher.refused

    def _next_bookmark(self) -> float:
        now, last = time.monotonic(), self._ends - LAST_BOOKMARK
        return min(now + BOOKMARK_INTERVAL, last) if last > now else math.inf

    def _is_over(self) -> bool:
        return self._watcher.closed or (self._watcher.ending and not self._watcher.waiting)

    async def _send_bookmark(self) -> None:
        if not self._request.options.allow_watch_bookmarks or self._watcher.waiting:
            return
        self._sent = max(self._sent, self._hub.position)  # the queue is empty: all of it was sent
        await self._write(self._bookmark({}))

    async def _framed(self, events: Sequence[SharedEvent]) -> bytes:
        if events and self._request.served.is_slow:
            return await self._in_turn(partial(self._frames, events))
        return self._frames(events)

    def _frames(self, events: Iterable[SharedEvent]) -> bytes:
        frames = [frame for event in events if (frame := self._event(event))]
        self._told.sent(frames)
        return b"".join(frames)

    def _event(self, event: SharedEvent) -> bytes:
        type_ = event.seen_by(self._request.selection)
        if type_ is None:
            return b""
        record, first_table = event.record, self._request.form.shape == "Table" and not self._headed
        if first_table:
            return _frame(type_, self._shape(record.text, record.revision))
        return event.shaped((type_, self._key), lambda one: _frame(type_, self._shape(one.text, one.revision)))

    def _shape(self, text: str, revision: int) -> bytes:
        headed, self._headed = not self._headed, True  # only the first Table of a stream names the columns
        request = self._request
        shown = answers.object_text(
            request.served, text, request.form, now=time.time(), revision=revision, headed=headed
        )
        return shown.encode()

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        text = answers.bookmark_text(
            self._request.served, self._request.form, revision=self._sent, annotations=annotations
        )
        return _frame("BOOKMARK", text.encode())

    async def _write(self, chunk: bytes) -> None:
        """In pieces: the server encrypts each at once, and other tasks have their turn between two of them."""
        pace = self._watcher.pace
        for start in range(0, len(chunk), PIECE):
            piece = chunk[start : start + PIECE]
            try:
                async with asyncio.timeout(SEND_TIMEOUT) as self._watcher.sending:
                    if pace is not None:
                        await pace.wait(len(piece))
                    elif start:
                        await asyncio.sleep(0)
                    await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            finally:
                self._watcher.sending = None


def _frame(type_: str, text: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + text + b"}\n"


async def _close_with_client(watcher: Watcher, receive: Receive) -> None:
    """Closes `watcher` when the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    watcher.close()


async def _close_when_refused(watcher: Watcher, admission: Admission) -> None:
    """Closes `watcher` when its client may not watch any more."""
    watcher.refused = await refused(admission)
    watcher.close()


@asynccontextmanager
async def _meanwhile(*waits: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs `waits` for as long as the block lasts."""
    tasks = [asyncio.create_task(one) for one in waits]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
