"""The copy of a cluster in the store: what happened there is written here, many changes in one transaction.

A change is an object as the cluster has it now, or that it is gone. An object that differs from its copy in nothing but
the times of heartbeats is no entry of the log; only its version is noted. Versions stand in the table `RemoteVersion`,
which is written in the same transaction: both are there after a crash, or neither. A change that cannot be understood
or stored is counted (`unread`) and keeps no other from being stored.

One thread writes; nobody else writes these objects. What the cluster answers to a write of the mirror's own (`keep`)
may come before the watch tells it, or after something newer was told.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from django.db import InterfaceError, OperationalError

from inventory.kinds.devices import DeviceClass
from manciple.mirror import received
from manciple.mirror.models import RemoteVersion, is_earlier
from manciple.mirror.received import Document, Received, Unreadable
from manciple.mirror.sources import Source
from manciple.store import objects, sql
from manciple.telemetry import metrics
from manciple.wire.base import ApiObject
from manciple.wire.identity import SYSTEM
from manciple.wire.registry import Kind
from manciple.wire.resources import kind as kind_of

logger = logging.getLogger(__name__)

_WRITES = metrics.counter(
    "manciple_mirror_writes_total", "Objects written to the copy: stored or deleted.", "resource", "operation"
)

Key = sql.Key
#: Deleted objects that are remembered, so that a late answer does not bring one back.
REMEMBERED: Final = 10_000


class Change(NamedTuple):
    """api_version: in which `text` was received; None where it was only noticed that the object is gone. version: the
    object's, as the remote counts. found: a listing showed it, so when it came about is not known.
    """

    source: Source
    api_version: str
    uid: str
    namespace: str
    name: str
    version: str
    text: bytes | None
    gone: bool = False
    found: bool = False

    @property
    def key(self) -> Key:
        return (self.source.resource, self.namespace, self.name)


class Known(NamedTuple):
    """An object that is stored. version: as the remote counts; "" for one that did not come from there."""

    namespace: str
    name: str
    version: str


class _Latest(NamedTuple):
    """What is stored under a key."""

    uid: str
    document: Document


@dataclass(slots=True)
class StoredCopy:
    """unread: by resource, the uids of objects that are not stored as they are. extended: a class serves an extended
    resource.
    """

    unread: dict[str, set[str]] = field(default_factory=dict)
    extended: bool = False
    #: uids, the last deleted last
    _gone: dict[str, None] = field(default_factory=dict)

    def known(self, source: Source) -> Mapping[str, Known]:
        """What is stored of a resource, by uid, for a listing: it begins, and what could not be read is read again."""
        self.unread.pop(source.resource, None)
        versions = dict(RemoteVersion.objects.filter(resource=source.resource).values_list("uid", "version"))
        _, rows = sql.live(source.resource, namespace="", limit=0, with_text=False)
        return {row.uid: Known(row.namespace, row.name, versions.get(row.uid, "")) for row in rows}

    def apply(self, changes: Sequence[Change]) -> None:
        """Raises: OperationalError, InterfaceError where the database is away; then nothing was stored."""
        try:
            self._store(changes)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # One that the index or the database refuses: the others are stored without it.
            if middle := len(changes) // 2:
                self.apply(changes[:middle])
                self.apply(changes[middle:])
                return
            logger.exception("An object of the remote cannot be stored: %s %s/%s", *changes[0].key)
            self._note(changes[0], is_read=False)

    def keep(self, change: Change) -> None:
        """Apply what the cluster has just answered, unless something newer is stored. Versions of one object are
        compared as numbers; where they are none, the watch has the last word. Raises: as `apply`.
        """
        if not change.gone:
            if change.uid in self._gone:
                return
            noted = RemoteVersion.objects.filter(uid=change.uid).values_list("version", flat=True).first()
            if noted is not None and not is_earlier(noted, change.version):
                return
        self.apply([change])

    def _store(self, changes: Sequence[Change]) -> None:
        read = [(change, self._read(change)) for change in changes]
        keys: dict[str, dict[tuple[str, str], None]] = {}
        for change in changes:
            keys.setdefault(change.source.resource, {})[change.namespace, change.name] = None
        with objects.writing(identity=SYSTEM) as writer:
            batch = _Batch(writer)
            for resource, named in keys.items():
                batch.load(kind_of(resource), named)
            for change, found in read:
                if change.gone:
                    batch.remove(change, found)
                elif found is not None:
                    batch.put(change, found)
            batch.note_versions()
        for labels, count in batch.writes.items():
            _WRITES[labels].inc(count)
        for change, found in read:
            if change.gone:
                self._gone[change.uid] = None
                if len(self._gone) > REMEMBERED:
                    del self._gone[next(iter(self._gone))]
            self._note(change, is_read=change.gone or found is not None)
            if found is not None and isinstance(found.object, DeviceClass) and found.object.spec.extended_resource_name:
                self.extended = True

    def _read(self, change: Change) -> Received | None:
        """None where it cannot be read, or nothing was received."""
        if change.text is None:
            return None
        try:
            found = received.read(kind_of(change.source.resource), change.api_version, change.text)
        except Unreadable as error:
            if change.uid not in self.unread.get(change.source.resource, ()):
                logger.warning("%s %s/%s of the remote cannot be read: %s", *change.key, error)
            return None
        meta = found.object.metadata
        return found if (meta.uid, meta.namespace, meta.name) == change[2:5] else None

    def _note(self, change: Change, *, is_read: bool) -> None:
        unread = self.unread.setdefault(change.source.resource, set())
        if is_read:
            unread.discard(change.uid)
        else:
            unread.add(change.uid)


def is_kept(change: Change) -> bool:
    """Whether the copy has this, or something newer. Without numbers as versions: whether it has just this."""
    noted = RemoteVersion.objects.filter(uid=change.uid).values_list("version", flat=True).first()
    if change.gone or noted is None:
        return change.gone and noted is None
    return noted == change.version or is_earlier(change.version, noted)


class _Batch:
    """The changes of one transaction. It knows the documents, of which the writer only has the typed values."""

    def __init__(self, writer: objects.Writer) -> None:
        self._writer = writer
        self._rows: dict[Key, sql.LatestRow] = {}
        self._latest: dict[Key, _Latest | None] = {}
        #: uid -> (resource, version); None for what is gone
        self._versions: dict[str, tuple[str, str] | None] = {}
        #: (resource, "stored" or "deleted")
        self.writes = Counter[tuple[str, str]]()

    def load(self, kind: Kind, keys: Iterable[tuple[str, str]]) -> None:
        """In one query."""
        wanted = objects.to_read((kind, keys))
        rows = {(kind.resource, *row.key): row for row in sql.by_keys(kind.resource, [key[1:] for key in wanted])}
        self._writer.adopt(wanted, rows)
        self._rows |= rows

    def put(self, change: Change, found: Received) -> None:
        before = self._at(change.key)
        is_same = before is not None and before.uid == change.uid
        if before is None or not is_same or _essence(before.document) != _essence(found.document):
            is_ending = received.is_ending(found.document) and not (before and received.is_ending(before.document))
            self._writer.replicate(
                kind_of(change.key[0]),
                found.object,
                found.document,
                author="" if is_ending else found.author,  # no field says who deletes something
                recorded=_has_history(change, found.object),
                found=change.found,
            )
            self.writes[change.source.resource, "stored"] += 1
            self._latest[change.key] = _Latest(change.uid, found.document)
        self._versions[change.uid] = (change.source.resource, change.version)

    def remove(self, change: Change, found: Received | None) -> None:
        before, kind = self._at(change.key), kind_of(change.key[0])
        self._versions[change.uid] = None
        if before is None or before.uid != change.uid:
            return
        if found is not None:
            last, document = found.object, found.document
        elif (known := self._writer.get(kind, change.namespace, change.name)) is not None:
            last, document = known, before.document
        else:
            return
        recorded = _has_history(change, last)
        self._writer.replicate(kind, last, document, gone=True, recorded=recorded, found=change.found)
        self.writes[change.source.resource, "deleted"] += 1
        self._latest[change.key] = None

    def note_versions(self) -> None:
        sql.delete(RemoteVersion, ["uid"], [(uid,) for uid in self._versions])
        rows = [(uid, *noted) for uid, noted in self._versions.items() if noted is not None]
        sql.insert(RemoteVersion, ("uid", "resource", "version"), rows)

    def _at(self, key: Key) -> _Latest | None:
        if key not in self._latest:
            row = self._rows.get(key)
            self._latest[key] = None if row is None else _Latest(row.uid, msgspec.json.decode(row.text))
        return self._latest[key]


def _has_history(change: Change, obj: ApiObject) -> bool:
    """Not of Events, which tell of others, nor of pods without devices, which are most of a cluster."""
    return change.source.plural != "events" and received.wants_devices(kind_of(change.source.resource), obj)


def _essence(document: Document) -> Any:
    """All but what says when something was written: the version, and the times of a Node's heartbeats."""
    document = received.plain(document)
    essence = {**document, "metadata": {**document["metadata"], "resourceVersion": ""}}
    if document["kind"] == "Node" and isinstance(status := document.get("status"), dict):
        conditions = [{**one, "lastHeartbeatTime": None} for one in status.get("conditions") or ()]
        essence["status"] = {**status, "conditions": conditions}
    return essence
