"""Every read of the store's tables that is on a hot path, each as one SQL statement.

One statement sees one snapshot on SQLite and on PostgreSQL alike, without a transaction around it (which on SQLite
would queue up behind the writers). Documents are immutable under their revision, so reading them in a second statement
is as consistent as the first was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from manciple.store import records
from manciple.store.bulk import Query, chunks, fetch, given_table
from manciple.store.records import Stored

Key = tuple[str, str, str]  # (resource, namespace, name)
Reference = tuple[str, str, str, str]  # (resource, namespace, name, UID/REVISION of what is known of it, or "")

#: A store nobody has written to: revision 0 means "any" to clients, so the first list answers 1.
FIRST_REVISION = 1
#: Values in one IN list; SQLite takes at most 32,766 parameters.
CHUNK = 500


@dataclass(frozen=True, slots=True)
class LatestRow:
    """An object as its latest event tells it; `text` is None where documents were not asked for."""

    namespace: str
    name: str
    uid: str
    revision: int
    deleting: bool
    labels: str
    fields: str
    text: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    def stored(self, resource: str, text: str) -> Stored:
        return Stored(
            resource=resource,
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            revision=self.revision,
            text=text,
            labels=records.load(self.labels),
            fields=records.load(self.fields),
            deleting=self.deleting,
        )


_ROW = "o.namespace, o.name, o.uid, e.revision, e.deleting, e.labels, e.fields"
_LIVE = "store_storedobject o JOIN store_event e ON e.revision = o.event_id"
_ONE = f"SELECT {_ROW}, e.document FROM {_LIVE} WHERE o.resource = %s"  # noqa: S608 - constants only
_SEVERAL = (
    f"SELECT {_ROW}, e.document FROM given CROSS JOIN {_LIVE} "  # noqa: S608
    "WHERE o.resource = %s AND o.namespace = given.namespace AND o.name = given.name"
)
_UNLESS_KNOWN = (
    f"SELECT o.resource, {_ROW}, CASE WHEN o.uid || '/' || CAST(e.revision AS TEXT) = given.known THEN NULL "  # noqa: S608
    "ELSE e.document END "
    f"FROM given CROSS JOIN {_LIVE} "
    "WHERE o.resource = given.resource AND o.namespace = given.namespace AND o.name = given.name"
)
#: the counter's row beside every object, or alone where there is none
_ALL = (
    "SELECT r.current, {row} FROM store_revision r LEFT JOIN store_storedobject o ON o.resource = %s {where} "
    "LEFT JOIN store_event e ON e.revision = o.event_id WHERE r.id = 1 ORDER BY o.namespace, o.name"
)
#: the same, of which only the revisions are asked for
_LATEST = (
    "SELECT r.current, o.event_id FROM store_revision r LEFT JOIN store_storedobject o ON o.resource = %s "
    "WHERE r.id = 1 ORDER BY o.namespace, o.name"
)
#: the same for the first few: cut before it is joined, so that an index gives order and end
_FIRST = (
    f"SELECT r.current, o.* FROM store_revision r LEFT JOIN (SELECT {{row}} FROM {_LIVE} "  # noqa: S608
    "WHERE o.resource = %s {where} ORDER BY o.namespace, o.name LIMIT %s) o ON 1 = 1 "
    "WHERE r.id = 1 ORDER BY o.namespace, o.name"
)
_SUPERSEDED = "store_event n JOIN store_event o ON o.revision = n.previous_revision"
_AS_OF = (
    f"SELECT {_ROW} FROM {_LIVE} WHERE o.resource = %s AND o.event_id <= %s {{where}} UNION ALL "  # noqa: S608
    f"SELECT {_ROW.replace('e.', 'o.')} FROM {_SUPERSEDED} WHERE n.resource = %s AND n.revision > %s "
    "AND n.previous_revision <= %s {where} ORDER BY 1, 2"
)


def _row(values: Sequence[Any]) -> LatestRow:
    namespace, name, uid, revision, deleting, *rest = values
    return LatestRow(namespace, name, uid, revision, bool(deleting), *rest)


def by_key(resource: str, namespace: str, name: str) -> LatestRow | None:
    found = fetch(f"{_ONE} AND o.namespace = %s AND o.name = %s", (resource, namespace, name))
    return _row(found[0]) if found else None


def by_uid(resource: str, uid: str) -> LatestRow | None:
    found = fetch(f"{_ONE} AND o.uid = %s", (resource, uid))
    return _row(found[0]) if found else None


def by_keys(resource: str, keys: Iterable[tuple[str, str]]) -> Iterator[LatestRow]:
    """The live objects among `keys` (namespace, name)."""
    for chunk in chunks(keys, CHUNK):
        given, parameters = given_table(("namespace", "name"), chunk)
        yield from map(_row, fetch(f"{given} {_SEVERAL}", (*parameters, resource)))


def references_queries(references: Iterable[Reference]) -> list[Query]:
    """What finds the live objects among `references`; `references_found` reads the answers."""
    queries: list[Query] = []
    for chunk in chunks(references, CHUNK):
        given, parameters = given_table(("resource", "namespace", "name", "known"), chunk)
        queries.append((f"{given} {_UNLESS_KNOWN}", parameters))
    return queries


def references_found(answers: Iterable[Iterable[Sequence[Any]]]) -> dict[Key, LatestRow]:
    """By key; `row.text` is None where what is known is current."""
    found: dict[Key, LatestRow] = {}
    for answer in answers:
        for resource, *values in answer:
            row = _row(values)
            found[(resource, *row.key)] = row
    return found


def _where(namespace: str, after: tuple[str, str] | None) -> tuple[str, list[str]]:
    conditions, parameters = "", []
    if namespace:
        conditions += " AND o.namespace = %s"
        parameters.append(namespace)
    if after is not None:
        conditions += " AND (o.namespace, o.name) > (%s, %s)"
        parameters.extend(after)
    return conditions, parameters


def live(resource: str, *, namespace: str, limit: int, with_text: bool) -> tuple[int, list[LatestRow]]:
    """The current revision and the objects at it, in order of (namespace, name); `limit` 0 means all."""
    conditions, parameters = _where(namespace, None)
    row = f"{_ROW}, e.document" if with_text else _ROW
    statement = (_FIRST if limit else _ALL).format(row=row, where=conditions)
    found = fetch(statement, [resource, *parameters, *([limit] if limit else [])])
    if not found:
        return FIRST_REVISION, []
    return found[0][0], [_row(values[1:]) for values in found if values[3] is not None]


def latest_writes(resource: str) -> tuple[int, list[int]]:
    """The current revision, and the revision of the latest write of each object, in order of (namespace, name)."""
    found = fetch(_LATEST, [resource])
    if not found:
        return FIRST_REVISION, []
    return found[0][0], [written for _, written in found if written is not None]


def as_of(resource: str, revision: int, *, namespace: str, after: tuple[str, str], limit: int) -> list[LatestRow]:
    """The objects behind key `after` as they were at `revision`, without documents; `limit` 0 means all.

    Only true while `revision` is not below the pruned floor: the caller checks that after reading.
    """
    conditions, parameters = _where(namespace, after)
    statement = _AS_OF.format(where=conditions)
    arguments: list[Any] = [resource, revision, *parameters, resource, revision, revision, *parameters]
    if limit:
        statement += " LIMIT %s"
        arguments.append(limit)
    return [_row(values) for values in fetch(statement, arguments)]


def texts(revisions: Iterable[int]) -> dict[int, str]:
    """Documents by revision; what is pruned is absent."""
    found: dict[int, str] = {}
    for chunk in chunks(revisions, CHUNK):
        places = ", ".join(["%s"] * len(chunk))
        statement = f"SELECT revision, document FROM store_event WHERE revision IN ({places})"  # noqa: S608
        found.update((revision, text) for revision, text in fetch(statement, chunk))
    return found


def count(resource: str, *, namespace: str) -> int:
    statement = "SELECT COUNT(*) FROM store_storedobject o WHERE o.resource = %s"
    conditions, parameters = _where(namespace, None)
    total: int = fetch(statement + conditions, [resource, *parameters])[0][0]
    return total


def counter() -> tuple[int, int]:
    """(current revision, floor)."""
    found = fetch("SELECT current, floor FROM store_revision WHERE id = 1")
    return (found[0][0], found[0][1]) if found else (FIRST_REVISION, 0)
