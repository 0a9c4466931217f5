"""The log of this database as a source to follow (`manciple.store.follower`): objects as decoded values.

However many views a process keeps, it holds each object's decoded form once, for as long as one of them does: an
object is decoded again only when nobody has it any more. What repeats from object to object (the attributes of
devices) may be shared beyond that: an app registers how (`share`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakValueDictionary

from manciple.store import bulk, records, rows, tail
from manciple.store.records import Written
from manciple.store.tail import Stretch
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind, registry

#: Events read at a time.
BATCH = 2000
#: Documents in memory at a time, of a listing.
CHUNK = 200

#: of a kind's own type
Share = Callable[[Any], ApiObject]


class LocalLog:
    """Of one process. See the module's docstring."""

    def __init__(self) -> None:
        self._sharing: dict[str, Share] = {}
        #: the document's hash -> its value; the revision in it vouches that it is the one
        self._decoded: WeakValueDictionary[int, ApiObject] = WeakValueDictionary()

    def share(self, resource: str, share: Share) -> None:
        """`share` gives an equal object, made of parts that others have too; called for each that is decoded."""
        self._sharing[resource] = share

    def list(self, resource: str) -> tuple[int, Iterator[ApiObject]]:
        revision, latest = rows.latest_writes(resource)
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
        for chunk in bulk.chunks(latest, CHUNK):
            texts = rows.texts(chunk)
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
