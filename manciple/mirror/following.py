"""Follows one resource of a cluster: lists it, watches it, and lists it again where the watch has missed something.

    turn:  no point to resume from -> a listing: as a watch that begins with the state, or in pages
           otherwise               -> a watch from that point

    a watch ends              -> the next turn resumes it; events and bookmarks have moved the point
    410, or another refusal   -> the next turn lists; so does a line that is not an event
    an older version comes    -> the server was restored: the next turn lists, and compares texts in place of versions
    may not be watched        -> listed every minute
    403                       -> asked again after minutes: rights may be given
    404, not served           -> whatever was stored is gone; asked again after minutes
    anything else             -> the same again, after a pause that grows and is random

A listing is a diff: what is new or has another version is written, and what the cluster no longer has is deleted, in
one pass over uids and versions. Versions are compared within the resource alone.

What is read goes to a `Sink`, in order; a follower writes nothing itself, and knows of no other.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from manciple.mirror import listing
from manciple.mirror.client import FORBIDDEN, GONE, NOT_FOUND, Remote, Watch
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.json_texts import Malformed, decoded
from manciple.mirror.models import is_earlier
from manciple.mirror.sources import Reach, Source
from manciple.mirror.standing import KindStanding
from manciple.mirror.stored_copy import Change, Known
from manciple.telemetry import metrics

#: Seconds without a line after which a watch counts as dead; servers send bookmarks every minute.
SILENCE: Final = 150.0
#: Seconds until the server ends a watch by itself: at least so many, and at most twice as many.
WATCH_SECONDS: Final = 300
#: Seconds of the pause after a first failure, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
#: Seconds until a resource is listed again that may not be watched, may not be read, or is not served.
POLLED_EVERY, ASKED_AGAIN_AFTER = 60.0, 300.0
#: Seconds between the beginnings of two turns.
SHORTEST_TURN: Final = 0.5
#: Changes of a listing that are handed on together.
TOGETHER: Final = 200
#: Seconds between two notes that a watch is alive.
NOTED_EVERY: Final = 1.0

_END_OF_STATE = "k8s.io/initial-events-end"

_LISTS = metrics.counter("manciple_mirror_lists_total", "Complete listings of a resource.", "resource")
_BROKEN = metrics.counter(
    "manciple_mirror_broken_watches_total", "Watches that did not end as the cluster said they would.", "resource"
)
_EXPIRED = metrics.counter(
    "manciple_mirror_expired_total", "Answers 410: what the copy was to go on from is forgotten.", "resource"
)
_BYTES = metrics.counter("manciple_mirror_received_bytes_total", "Bytes of objects and events received.", "resource")


class Sink(Protocol):
    """Takes what followers read, each in the order in which it was read."""

    def known(self, source: Source, /) -> Mapping[str, Known]:
        """What is stored of it by uid, with all that was handed over before."""

    def apply(self, changes: Sequence[Change], /) -> None: ...

    def note(self, standing: KindStanding, /, *, failing: str = "") -> None:
        """failing: why nothing can be read now; "" where something was."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _Meta


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Annotated(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _Annotated


class _Status(msgspec.Struct):
    message: str = ""
    code: int = 0


_heads, _events = msgspec.json.Decoder(_Head), msgspec.json.Decoder(_Event)
_bookmarks, _statuses = msgspec.json.Decoder(_Bookmark), msgspec.json.Decoder(_Status)


class KindFollower:
    """served: the versions of a resource that the server has, the best first. rediscover: asks the server again.
    standing: how far the resource was known before. only: the one namespace in which it is read.
    """

    def __init__(
        self,
        remote: Remote,
        source: Source,
        sink: Sink,
        *,
        served: Callable[[Source], Sequence[str]],
        rediscover: Callable[[], None] = lambda: None,
        namespace: str = "",
        only: str = "",
        standing: KindStanding | None = None,
        silence: float = SILENCE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.source = source
        self._remote, self._sink = remote, sink
        self._served, self._rediscover = served, rediscover
        self._namespaces = (only,) if only else ("", namespace) if source.namespaced and namespace else ("",)
        self._silence, self._clock = silence, clock
        self._standing = standing or KindStanding(source, Reach.FAILED)
        #: (version of the API, namespace, version of the remote to watch from); None: list
        self._resume: tuple[str, str, str] | None = None
        self._watch_lists = self._watches = True
        #: whether the same version means the same object: not once the server went back
        self._trusts = True
        #: why it is listed in a namespace only; what of it cannot be known while it is read
        self._refusal = self._limits = ""
        self._failures = 0
        self._open: Watch | None = None
        self._stopped = False

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            stopping.wait(self.turn())

    def stop(self) -> None:
        """From any thread: end the turn that is waiting for the server, and all that follow."""
        self._stopped = True
        if (watch := self._open) is not None:
            watch.end()

    def turn(self) -> float:
        """One listing, or one watch until it ends. Returns the seconds until the next."""
        heard, began, watches = self._standing.heard_at, time.monotonic(), self._resume is not None
        try:
            if self._resume is None:
                self._list()
            else:
                self._watch(*self._resume)
        except RemoteFailure as failure:
            if failure.code == GONE:
                _EXPIRED[self.source.resource].inc()
            elif watches or self._resume is not None:
                _BROKEN[self.source.resource].inc()
            return self._after(failure, heard_something=self._standing.heard_at != heard)
        self._failures = 0
        if self._standing.reach is Reach.ABSENT:
            return ASKED_AGAIN_AFTER
        if not self._watches:
            self._resume = None
            return POLLED_EVERY
        # A server that ends each watch at once is not asked without end.
        return max(0.0, SHORTEST_TURN - (time.monotonic() - began))

    def _after(self, failure: RemoteFailure, *, heard_something: bool) -> float:
        if failure.code == FORBIDDEN and self._resume is not None:
            self._watches, self._resume = False, None
            return 0.0
        if failure.code == FORBIDDEN:
            self._watches = True
            self._tell(reach=Reach.FORBIDDEN, detail=str(failure), heard=False)
            return ASKED_AGAIN_AFTER * random.uniform(0.8, 1.2)  # noqa: S311 - not a secret
        if failure.code and failure.code not in _PASSING:
            self._resume = None
            self._trusts = self._trusts and failure.code != TOO_NEW
        if failure.code == NOT_FOUND:
            self._rediscover()
        if heard_something:  # the connection worked, and has broken off
            self._failures = 0
        elif self._failures or self._resume is None:
            # What was listed stays; pages say up to when it is known to be true.
            self._standing = replace(self._standing, detail=str(failure))
            self._sink.note(self._standing, failing=str(failure))
        pause = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 10)
        return max(failure.retry_after, pause) * random.uniform(1.0, 1.5)  # noqa: S311 - not a secret

    # Listing ---------------------------------------------------------------------------------------------------------

    def _list(self) -> None:
        """In the first version that is served, everywhere or else in the namespace. Raises: RemoteFailure."""
        for version in self._served(self.source):
            for namespace in self._namespaces:
                try:
                    self._list_as(version, namespace)
                except RemoteFailure as failure:
                    if failure.code == NOT_FOUND:
                        break
                    if failure.code != FORBIDDEN or namespace == self._namespaces[-1]:
                        raise
                    self._refusal = str(failure)
                else:
                    return
        self._diff("", "").end()
        self._rediscover()
        self._tell(reach=Reach.ABSENT, detail="the server does not have it", listed=True)

    def _list_as(self, version: str, namespace: str) -> None:
        self._standing = replace(self._standing, version=version)
        if self._watch_lists and self._watches:
            try:
                self._watch(version, namespace, "", diff=self._diff(version, namespace))
                if not self._trusts:  # the server was restored
                    self._watch(version, namespace, "", diff=self._diff(version, namespace))
            except RemoteFailure as failure:
                if self._resume is not None or failure.code not in (*_NO_WATCH_LIST, FORBIDDEN):
                    raise
                self._watch_lists = failure.code == FORBIDDEN  # there are rights to list without watching
            else:
                return
        for page in listing.pages(self._remote, self.source.path(version, namespace=namespace)):
            if page.is_first:
                diff, reached = self._diff(version, namespace), page.version
                diff.trusts = self._trusts = self._trusts and not diff.is_newer_than(reached)
            _BYTES[self.source.resource].inc(sum(map(len, page.items)))
            diff.add(page.items)
        self._listed(version, namespace, reached, diff)

    def _diff(self, version: str, namespace: str) -> _Diff:
        return _Diff(self.source, namespace, self._sink, version=version, trusts=self._trusts)

    def _listed(self, version: str, namespace: str, reached: str, diff: _Diff) -> None:
        diff.end()
        self._trusts = not (diff.trusts and diff.is_newer_than(reached))
        # Where it went back, another listing follows at once.
        self._resume = (version, namespace, reached) if self._trusts else None
        self._limits = self._refusal if namespace else ""
        if not self._watches:
            self._limits = "it may not be watched: it is listed every minute"
        _LISTS[self.source.resource].inc()
        self._tell(reach=Reach.NAMESPACE if namespace else Reach.EVERYWHERE, detail=self._limits, listed=True)

    # Watching --------------------------------------------------------------------------------------------------------

    def _watch(self, version: str, namespace: str, reached: str, *, diff: _Diff | None = None) -> None:
        """Until the server ends it. diff: of the state that it is to begin with. Raises: RemoteFailure."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(WATCH_SECONDS, 2 * WATCH_SECONDS)),  # noqa: S311 - not a secret
        }
        if diff is None:
            params["resourceVersion"] = reached
        else:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        with self._opened(self.source.path(version, namespace=namespace), params) as lines:
            if diff is None:
                self._tell(detail=self._limits)
            received = _BYTES[self.source.resource]
            for line in lines:
                received.inc(len(line))
                event, meta = self._event(line)
                if diff is None:
                    if is_earlier(meta.resource_version, reached):
                        self._resume, self._trusts = None, False
                        raise RemoteFailure(f"the server went back from version {reached} to {meta.resource_version}")
                    if event.type != "BOOKMARK":
                        gone = event.type == "DELETED"
                        self._sink.apply([_change(self.source, version, meta, event.object, gone=gone)])
                    reached = meta.resource_version or reached
                    self._resume = (version, namespace, reached)
                    self._tell(detail=self._limits, seldom=event.type != "BOOKMARK")
                elif event.type == "BOOKMARK" and _ends_state(event.object):
                    reached = meta.resource_version
                    self._listed(version, namespace, reached, diff)
                    if self._resume is None:
                        return
                    diff = None
                elif event.type == "DELETED":  # the state may be older than its end
                    diff.remove(event.object)
                elif event.type != "BOOKMARK":
                    diff.add([event.object])
        if diff is not None:
            raise RemoteFailure(f"the watch of {self.source.resource} ended before its state was complete")

    def _event(self, line: bytes) -> tuple[_Event, _Meta]:
        """Raises: RemoteFailure for an error that the server sent, and for a line that is not an event."""
        try:
            event = decoded(_events.decode, line)
            if event.type == "ERROR":
                raise self._error(event.object)
            return event, decoded(_heads.decode, event.object).metadata
        except Malformed as error:
            self._resume = None
            raise RemoteFailure(
                f"the watch of {self.source.resource} sent something that is not an event: {error}"
            ) from error

    @contextmanager
    def _opened(self, path: str, params: Mapping[str, str]) -> Iterator[Watch]:
        with self._remote.watch(path, params, silence=self._silence) as watch:
            self._open = watch
            try:
                if self._stopped:
                    watch.end()
                yield watch
            finally:
                self._open = None

    def _error(self, text: msgspec.Raw) -> RemoteFailure:
        """What the server says in place of an event: from wherever the watch was, it cannot go on."""
        self._resume = None
        status = decoded(_statuses.decode, text)
        return RemoteFailure(status.message or "the server ended the watch with an error", code=status.code)

    # What is said of it ----------------------------------------------------------------------------------------------

    def _tell(
        self,
        *,
        reach: Reach | None = None,
        detail: str,
        listed: bool = False,
        heard: bool = True,
        seldom: bool = False,
    ) -> None:
        now, before = self._clock(), self._standing
        if seldom and before.heard_at is not None and (now - before.heard_at).total_seconds() < NOTED_EVERY:
            return
        self._standing = replace(
            before,
            reach=reach or before.reach,
            detail=detail,
            listed_at=now if listed else before.listed_at,
            heard_at=now if heard else before.heard_at,
        )
        self._sink.note(self._standing)


#: What servers answer that cannot begin a watch with the state.
_NO_WATCH_LIST: Final = (400, 405, GONE, 422)
#: The answer to a point that is not reached yet ("Too large resource version").
TOO_NEW: Final = 504
#: Answers that say nothing of the point from which a watch was to go on.
_PASSING: Final = (401, 429, 500, 502, 503)


class _Diff:
    """One listing, compared with what is stored. namespace: that it is limited to; "" for none. trusts: an object whose
    version is stored is left out.
    """

    def __init__(self, source: Source, namespace: str, sink: Sink, *, version: str = "", trusts: bool = True) -> None:
        self._source, self._version, self._sink = source, version, sink
        self._known = {uid: known for uid, known in sink.known(source).items() if namespace in ("", known.namespace)}
        self.trusts = trusts
        self._missing = set(self._known)
        self._changes: list[Change] = []

    def add(self, items: Sequence[msgspec.Raw]) -> None:
        """Raises: RemoteFailure for an item without metadata."""
        for item in items:
            try:
                meta = decoded(_heads.decode, item).metadata
            except Malformed as error:
                raise RemoteFailure(f"the list of {self._source.resource} holds what is no object: {error}") from error
            self._missing.discard(meta.uid)
            known = self._known.get(meta.uid)
            if not self.trusts or known is None or not known.version or known.version != meta.resource_version:
                self._changes.append(_change(self._source, self._version, meta, item, found=True))
                if len(self._changes) == TOGETHER:
                    self._hand_on()

    def remove(self, item: msgspec.Raw) -> None:
        meta = decoded(_heads.decode, item).metadata
        self._missing.discard(meta.uid)
        self._changes.append(_change(self._source, self._version, meta, item, gone=True, found=True))

    def is_newer_than(self, version: str) -> bool:
        """Whether something was stored of a later version than that of the list."""
        return any(is_earlier(version, known.version) for known in self._known.values())

    def end(self) -> None:
        for uid in self._missing:
            known = self._known[uid]
            meta = _Meta(known.name, known.namespace, uid)
            self._changes.append(_change(self._source, self._version, meta, None, gone=True, found=True))
        self._hand_on()

    def _hand_on(self) -> None:
        if self._changes:
            self._sink.apply(self._changes)
            self._changes = []


def _change(
    source: Source,
    api_version: str,
    meta: _Meta,
    text: msgspec.Raw | None,
    *,
    gone: bool = False,
    found: bool = False,
) -> Change:
    # A copy: what was received holds a page of other objects.
    received = None if text is None else bytes(text)
    return Change(
        source, api_version, meta.uid, meta.namespace, meta.name, meta.resource_version, received, gone, found
    )


def _ends_state(bookmark: msgspec.Raw) -> bool:
    try:
        return (decoded(_bookmarks.decode, bookmark).metadata.annotations or {}).get(_END_OF_STATE) == "true"
    except Malformed:
        return False
