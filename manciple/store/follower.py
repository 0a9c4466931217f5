"""Following the cluster: list what there is, then apply what happens since. Everybody who does so does it here.

A `Source` can list a resource as of a revision and tell what happened after one: the log of this database
(`LocalLog`), or an API server with its list and watch. A `View` is what somebody makes of the objects.
A `Follower` keeps one view for a process and brings it up to date when it is asked for (`with follower.view() as ...`):
one query where nothing happened.

The races, all of them:

- What changes while the resources are listed, one after the other, is told again from the revision of the first
  listing on; of each resource what its listing has already is left out, so no object ever goes back.
- The log was pruned past the view, or an older database was put back and the log ends before it: `Expired`, and a new
  view is made from new listings. So it is when that happens during the listings.
- Who fails half-way, while the view is brought up to date or while it is used, leaves no view behind.
- One thread at a time has the view.
- Who is content with what the announcements say (`view(within=...)`) pays no query where none of its resources was
  announced since the view was brought up to date. An announcement comes just after its commit and can be lost, so such
  a view may miss what was written that many seconds ago; inside a transaction, which announces nothing before its
  commit, it is always brought up to date.

Who needs no view keeps a place in the log, and asks what happened `since`.

However many views a process keeps of the local log, it holds each object's decoded form once, for as long as one of
them does: an object is decoded again only when nobody has it any more. What repeats from object to object (the
attributes of devices) may be shared beyond that: an app registers how (`LocalLog.share`).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from django.db import connection
from prometheus_client.core import Metric

from manciple.per_process import PerProcess
from manciple.store import announce, log_metrics, records, sql, tail
from manciple.store.records import Written
from manciple.store.tail import Stretch
from manciple.telemetry import metrics
from manciple.wire.base import ApiObject
from manciple.wire.errors import Expired
from manciple.wire.registry import Kind, registry

log = logging.getLogger(__name__)

# The log of this database ---------------------------------------------------------------------------------------------


#: Events read at a time.
BATCH = 2000
#: Documents in memory at a time, of a listing.
CHUNK = 200

#: of a kind's own type
Share = Callable[[Any], ApiObject]


class LocalLog:
    """The log of this database as a source, for one process."""

    def __init__(self) -> None:
        self._sharing: dict[str, Share] = {}
        #: the document's hash -> its value; the revision in it vouches that it is the one
        self._decoded: WeakValueDictionary[int, ApiObject] = WeakValueDictionary()

    def share(self, resource: str, share: Share) -> None:
        """`share` gives an equal object, made of parts that others have too; called for each that is decoded."""
        self._sharing[resource] = share

    def list(self, resource: str) -> tuple[int, Iterator[ApiObject]]:
        revision, latest = sql.latest_writes(resource)
        return revision, self._read(registry.by_resource(resource), revision, latest)

    def changes(self, resources: Sequence[str], after: int) -> Stretch[Written]:
        stretch = tail.stretch_after(after, resources=resources, limit=BATCH)
        written = [
            Written(
                record.revision,
                record.type,
                record.resource,
                self._value(registry.by_resource(record.resource), record.revision, record.text),
            )
            for record in stretch.changes
        ]
        return Stretch(written, stretch.revision, stretch.more)

    def _read(self, kind: Kind, revision: int, latest: Sequence[int]) -> Iterator[ApiObject]:
        """Documents never change under their revision; one that is missing was superseded, and pruned since."""
        for chunk in sql.chunks(latest, CHUNK):
            texts = sql.texts(chunk)
            if len(texts) < len(chunk):
                raise tail.expired(revision, tail.floor())
            for number in chunk:
                yield self._value(kind, number, texts.pop(number))

    def _value(self, kind: Kind, revision: int, text: str) -> ApiObject:
        known = self._decoded.get(hash(text))
        if known is not None and known.metadata.resource_version == str(revision) and isinstance(known, kind.type):
            return known
        found = records.decode(kind, text)
        if (share := self._sharing.get(kind.resource)) is not None:
            found = share(found)
        self._decoded[hash(text)] = found
        return found


#: of this process
LOG = LocalLog()


# Views and who follows ------------------------------------------------------------------------------------------------


#: Listings that may come to nothing in a row, because the log is pruned faster than they are made.
ATTEMPTS = 5

ObjectT = TypeVar("ObjectT", bound=ApiObject)


class Source(Protocol):
    """Where objects are, and what happens to them. Revisions are of the whole source and grow."""

    def list(self, resource: str) -> tuple[int, Iterable[ApiObject]]:
        """(a revision, the objects as they were then). Raises: Expired, while they are read too."""
        ...

    def changes(self, resources: Sequence[str], after: int) -> Stretch[Written]:
        """What happened to `resources` after that revision, a bounded number of changes at a time.

        Raises: Expired where that is no longer known, or that revision is not reached.
        """
        ...


class View(ABC):
    """What somebody makes of the objects of `resources`."""

    resources: ClassVar[Sequence[str]]
    #: everything up to here is in the view
    revision: int = 0

    @abstractmethod
    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        """Take in all objects of a resource; once each, in the order of `resources`, before anything else."""

    @abstractmethod
    def apply(self, changes: Sequence[Written]) -> None:
        """Take in what happened, in order. `revision` is still the one before."""

    def ready(self) -> None:  # noqa: B027 - most have nothing to do
        """Called once, when everything is listed: what is applied from now on is news."""


class ObjectsView(View):
    """The objects themselves, those that it `keeps`."""

    def __init__(self) -> None:
        #: resource -> (namespace, name) -> as it is
        self._objects: dict[str, dict[tuple[str, str], ApiObject]] = {one: {} for one in self.resources}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        self._objects[resource] = {one.key: one for one in objects if self.keeps(one)}

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            known = self._objects[change.resource]
            if change.type != "DELETED" and self.keeps(change.object):
                known[change.object.key] = change.object
            else:
                known.pop(change.object.key, None)

    def keeps(self, obj: ApiObject) -> bool:  # noqa: ARG002 - unless somebody is choosy
        return True

    def all(self, type_: type[ObjectT]) -> list[ObjectT]:
        return [one for known in self._objects.values() for one in known.values() if isinstance(one, type_)]


ViewT = TypeVar("ViewT", bound=View)
Item = TypeVar("Item")


def advance(view: View, source: Source = LOG, *, listed: Mapping[str, int] | None = None) -> None:
    """Apply what happened beyond `view.revision`. listed: up to where the view has each resource, if that is further.

    Raises: Expired; the view is then as it was, or on its way.
    """
    more = True
    while more:
        stretch = source.changes(view.resources, view.revision)
        changes = stretch.changes
        if listed:
            changes = [change for change in changes if change.revision > listed.get(change.resource, 0)]
        if changes:
            view.apply(changes)
        view.revision, more = max(stretch.revision, view.revision), stretch.more


def listed(make: Callable[[], ViewT], source: Source = LOG) -> ViewT:
    """A new view, up to date. Raises: Expired, when the log is pruned again and again while the listings are read."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _listed(make(), source)
        except Expired as error:
            log.warning("the list is already out of date: %s", error.message)
    return _listed(make(), source)


def _listed(view: ViewT, source: Source) -> ViewT:
    revisions = {}
    for resource in view.resources:
        log_metrics.listed(resource)
        revisions[resource], objects = source.list(resource)
        view.fill(resource, objects)
    view.revision = min(revisions.values())
    advance(view, source, listed=revisions)
    view.ready()
    return view


def since(after: int | None, read: Callable[[int], Stretch[Item]]) -> Stretch[Item] | None:
    """What `read` tells after a place in the log that somebody keeps who has no view.

    None where they look at everything anew: they have no place yet, or the log does not lead on from there.
    """
    if after is None:
        return None
    try:
        return read(after)
    except Expired as error:
        log.info("starting over: %s", error.message)
        return None


@dataclass(slots=True)
class _Followed(Generic[ViewT]):
    """looked: when the view was brought up to date, by the monotonic clock. place: see `Follower.place`."""

    view: ViewT | None = None
    looked: float = 0.0
    place: tuple[str, int] = ("", 0)


class Follower(Generic[ViewT]):
    """One view of the process, for whoever asks."""

    #: of this process
    every: ClassVar[weakref.WeakSet[Follower[View]]] = weakref.WeakSet()

    def __init__(
        self, make: Callable[[], ViewT], *, source: Source = LOG, turn: AbstractContextManager[object] | None = None
    ) -> None:
        """turn: what one thread at a time holds; a lock of its own unless given."""
        self._make, self._source = make, source
        self._turn = turn or threading.Lock()
        self._followed = PerProcess(_Followed[ViewT])
        Follower.every.add(self)  # type: ignore[arg-type]  # of whatever view

    @contextmanager
    def view(self, *, within: float = 0.0) -> Iterator[ViewT]:
        """The view, up to date, for this thread alone.

        within: seconds for which the announcements are trusted to tell whether anything happened; 0 asks the database.
        """
        with self._turn:
            followed = self._followed()
            last, followed.view = followed.view, None
            if last is not None and self._is_recent(last, followed.looked, within):
                view = last
            else:
                looked = time.monotonic()
                view = self._advanced(last) or listed(self._make, self._source)
                followed.looked = looked
            followed.place = (type(view).__name__, view.revision)
            yield view
            followed.view = view

    @property
    def place(self) -> tuple[str, int]:
        """The name of the view, and its revision when it was last used; ("", 0) before."""
        return self._followed().place

    def _is_recent(self, view: ViewT, looked: float, within: float) -> bool:
        return (
            time.monotonic() - looked < within
            and announce.newest(view.resources) <= view.revision
            and not connection.in_atomic_block
        )

    def reset(self) -> None:
        """List everything again at the next use."""
        with self._turn:
            self._followed.reset()

    def _advanced(self, view: ViewT | None) -> ViewT | None:
        """None where the source does not lead from there to now."""
        if view is None:
            return None
        try:
            advance(view, self._source)
        except Expired as error:
            log.info("listing again: %s", error.message)
            return None
        return view


def _of_views() -> Iterable[Metric]:
    places = dict(one.place for one in tuple(Follower.every) if one.place[0])
    yield metrics.gauges(
        "manciple_view_revision",
        "Revision of a view of this process when it was last used.",
        ("view",),
        metrics.by_one(dict(sorted(places.items()))),
    )


metrics.OnDemand(_of_views)
