"""What the log and the live objects tell of writes: when, which came last, and what an object was before.

By the clock of whoever wrote the log: what a client says of the time is not asked. A machine whose clock is wrong still
renews its signs of life; that it did, and when, stands in the log. The log is pruned (see manciple.store.space), so
the past of an object may begin in the middle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.db.models import OuterRef, Subquery

from manciple.store import records, sql
from manciple.store.models import Event, StoredObject
from manciple.store.sql import PARAMETERS, chunks, fetch
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind, registry

ObjectT = TypeVar("ObjectT", bound=ApiObject)

# One object -----------------------------------------------------------------------------------------------------------


#: Revisions of one object that are read at most.
LONGEST = 200
#: How far from its end the log is searched for what happened a moment ago.
LATELY = 5000

_CHAIN = (
    "WITH RECURSIVE chain (revision, previous, depth) AS (SELECT e.revision, e.previous_revision, 1 FROM {start} "
    "UNION ALL SELECT e.revision, e.previous_revision, depth + 1 FROM chain "
    "JOIN store_event e ON e.revision = chain.previous WHERE depth < %s) "
    "SELECT e.revision, e.type, e.created_at, e.document FROM chain "
    "JOIN store_event e ON e.revision = chain.revision ORDER BY e.revision"
)
_OF_LIVE = _CHAIN.format(start="store_storedobject o JOIN store_event e ON e.revision = o.event_id WHERE o.uid = %s")
_OF_GONE = _CHAIN.format(
    start="store_event e WHERE e.revision = (SELECT MAX(revision) FROM store_event "
    "WHERE revision > %s AND revision <= %s AND resource = %s AND namespace = %s AND name = %s)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revised:
    """One write of an object."""

    revision: int
    type: str  # ADDED, MODIFIED, DELETED
    at: datetime
    text: str


def of_object(uid: str, *, limit: int = LONGEST) -> list[Revised]:
    """The newest `limit` revisions of a live object that the log still has, oldest first. One query."""
    return _revised(_OF_LIVE, [uid, limit])


def of_gone(resource: str, namespace: str, name: str, *, near: int, limit: int = LONGEST) -> list[Revised]:
    """The same of an object that has gone, if it was written close to revision `near`; its end is the last. One query.

    The log cannot be searched by name: whoever asks knows of something that happened at about the time.
    """
    return _revised(_OF_GONE, [near - LATELY, near + LATELY, resource, namespace, name, limit])


def _revised(statement: str, parameters: Sequence[Any]) -> list[Revised]:
    return [
        Revised(revision=revision, type=type_, at=_moment(at), text=records.plain(text, revision))
        for revision, type_, at, text in fetch(statement, parameters)
    ]


def written_since(uid: str, since: str) -> str:
    """SQL: whether the log tells of a write of an object since then, as far as that is among its last `LATELY` entries.

    uid, since: SQL expressions.
    """
    newest = "(SELECT MAX(revision) FROM store_event)"
    recent = f"e.revision > {newest} - {LATELY} AND e.created_at > {since}"
    return f"EXISTS (SELECT 1 FROM store_event e WHERE {recent} AND e.uid = {uid})"  # noqa: S608 - our own expressions


def _moment(value: datetime | str) -> datetime:
    """SQLite gives text in UTC."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found if found.tzinfo else found.replace(tzinfo=UTC)


# The newest objects ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recent:
    """A live object and the revision of its latest write. note: who wrote that (`manciple.store.records`)."""

    revision: int
    namespace: str
    name: str
    text: str
    note: str


def newest(
    resource: str, *, limit: int, before: int = 0, namespaces: Collection[str] | None = None
) -> tuple[Recent, ...]:
    """At most `limit` live objects of `resource`, the last written first.

    before: only those written before that revision; 0 for all. namespaces: only those in one of them; None for all.
    """
    return newest_among(resource, limit=limit, among=limit, before=before, namespaces=namespaces).found


@dataclass(frozen=True, slots=True)
class Searched:
    """found: the objects that match. looked_at, last: how many were searched, and the revision of the oldest one."""

    found: tuple[Recent, ...] = ()
    looked_at: int = 0
    last: int = 0


def newest_among(
    resource: str,
    *,
    limit: int,
    among: int,
    before: int = 0,
    namespaces: Collection[str] | None = None,
    fields: Mapping[str, str] | None = None,
) -> Searched:
    """Of the `among` objects that were last written, at most `limit` whose selectable fields match, the last first.

    fields: name -> a pattern of LIKE for its value. It may match too much: PostgreSQL alone distinguishes case, and a
    wildcard runs on into other fields.
    """
    conditions, parameters = "", [resource]
    if before:
        conditions, parameters = " AND o.event_id < %s", [resource, str(before)]
    if namespaces is not None:
        if not namespaces:
            return Searched()
        conditions += f" AND o.namespace IN ({', '.join(['%s'] * len(namespaces))})"
        parameters += sorted(namespaces)
    patterns = [f"%{records.dump({name: value})[1:-1]}%" for name, value in (fields or {}).items()]
    matches = "".join([" AND LOWER(e.fields) LIKE LOWER(%s)"] * len(patterns))
    statement = (
        "WITH c AS (SELECT o.event_id, o.namespace, o.name FROM store_storedobject o "  # noqa: S608 - placeholders only
        f"WHERE o.resource = %s{conditions} ORDER BY o.event_id DESC LIMIT %s) "
        "SELECT s.looked_at, s.last, f.event_id, f.namespace, f.name, f.document, f.actor "
        "FROM (SELECT COUNT(*) AS looked_at, MIN(event_id) AS last FROM c) s LEFT JOIN ("
        "SELECT c.event_id, c.namespace, c.name, e.document, e.actor FROM c "
        f"JOIN store_event e ON e.revision = c.event_id{matches} ORDER BY c.event_id DESC LIMIT %s"
        ") f ON 1 = 1 ORDER BY f.event_id DESC"
    )
    rows = fetch(statement, [*parameters, str(among), *patterns, str(limit)])
    return Searched(
        found=tuple(
            Recent(revision, namespace, name, records.plain(text, revision), note)
            for _, _, revision, namespace, name, text, note in rows
            if revision is not None
        ),
        looked_at=rows[0][0],
        last=rows[0][1] or 0,
    )


def notes(revisions: Collection[int]) -> dict[int, str]:
    """revision -> who made it (`manciple.store.records`), of those that the log still has."""
    return sql.notes(revisions)


#: Objects that `each` has in memory at once.
PAGE = 500


def each(resource: str, type_: type[ObjectT], *, most: int = 0) -> Iterator[ObjectT]:
    """The live objects of `resource`, the last written first, read in pages. most: of them; 0 for all.

    Not the state of one moment: what is written meanwhile may be left out.
    """
    kind, before, given = registry.by_resource(resource), 0, 0
    while page := newest(resource, limit=min(PAGE, most - given) if most else PAGE, before=before):
        for one in page:
            obj = records.decode(kind, one.text)
            if not isinstance(obj, type_):
                raise TypeError(f"{resource} are not of type {type_.__name__}")
            yield obj
        before, given = page[-1].revision, given + len(page)
        if given == most:
            return


def namespaces_with(resource: str) -> list[str]:
    """The namespaces that hold an object of `resource`, by name."""
    statement = "SELECT DISTINCT namespace FROM store_storedobject WHERE resource = %s ORDER BY namespace"
    return [name for (name,) in fetch(statement, [resource])]


def last_change(resource: str, fields: Mapping[str, str], *, after: int) -> datetime | None:
    """When an object of `resource` with these selectable fields last came, changed or went, above revision `after`.

    None where the log does not say, as of what a listing of another cluster found. Reads every entry above `after`: for
    a page that asks seldom.
    """
    statement = "SELECT MAX(created_at) FROM store_event WHERE revision > %s AND resource = %s AND actor NOT LIKE %s"
    parameters: list[Any] = [after, resource, f"%{records.OF_LISTING}%"]
    for name, value in fields.items():
        statement += " AND fields LIKE %s"
        written = records.dump({name: value})[1:-1]
        for special in ("\\", "%", "_"):
            written = written.replace(special, f"\\{special}")
        parameters.append(f"%{written}%")
        statement += " ESCAPE '\\'"
    found = fetch(statement, parameters)[0][0]
    return _moment(found) if found else None


# When objects were written --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PastState:
    """One state of an object: since when, its document, and the revision of the state before it."""

    since: datetime
    text: str
    previous: int | None


def last_written(
    kind: Kind, namespace: str = "", *, names: frozenset[str] | None = None, seen: bool = False
) -> dict[str, datetime]:
    """When each object of the namespace (or only those of `names`) was last written. One query.

    seen: without those that a listing of another cluster found, which does not say when that was.
    """
    found = StoredObject.objects.filter(resource=kind.resource, namespace=namespace)
    if names is not None:
        found = found.filter(name__in=names)
    if seen:
        found = found.exclude(event__actor__contains=records.OF_LISTING)
    return dict(found.values_list("name", "event__created_at"))


def last_write_of(kind: Kind, namespace: str, name: str) -> Subquery:
    """The same within another query. name: its column that names the object."""
    found = StoredObject.objects.filter(resource=kind.resource, namespace=namespace, name=OuterRef(name))
    return Subquery(found.values("event__created_at")[:1])


def revisions(kind: Kind, namespace: str = "", *, names: frozenset[str] | None = None) -> dict[str, int]:
    """The revision at which each object of the namespace (or only those of `names`) was last written. One query."""
    found = StoredObject.objects.filter(resource=kind.resource, namespace=namespace)
    if names is not None:
        found = found.filter(name__in=names)
    return dict(found.values_list("name", "event_id"))


def states_at(revisions: Iterable[int]) -> dict[int, PastState]:
    """What was written at these revisions, as far back as the log reaches; a query for each thousand."""
    found: dict[int, PastState] = {}
    for chunk in chunks(revisions, PARAMETERS):
        rows = Event.objects.filter(revision__in=chunk)
        for revision, since, text, previous in rows.values_list(
            "revision", "created_at", "document", "previous_revision"
        ):
            found[revision] = PastState(since, records.plain(text, revision), previous)
    return found


def fields_at(revisions: Iterable[int]) -> dict[int, Mapping[str, str]]:
    """The selectable fields of what was written at these revisions, as far back as the log reaches."""
    found: dict[int, Mapping[str, str]] = {}
    for chunk in chunks(revisions, PARAMETERS):
        rows = Event.objects.filter(revision__in=chunk).values_list("revision", "fields")
        found.update((revision, records.load(fields)) for revision, fields in rows)
    return found


def written_before(kind: Kind, moment: datetime, *, limit: int) -> list[tuple[str, str]]:
    """(namespace, name) of live objects that were last written before `moment`, the oldest first. One query."""
    found = StoredObject.objects.filter(resource=kind.resource, event__created_at__lt=moment)
    return list(found.order_by("event_id").values_list("namespace", "name")[:limit])
