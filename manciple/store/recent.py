"""The newest objects of a kind first, a page at a time: what pages that list events read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from manciple.store import documents
from manciple.store.bulk import fetch


@dataclass(frozen=True, slots=True)
class Recent:
    """A live object and the revision of its latest write."""

    revision: int
    namespace: str
    name: str
    text: str


def newest(
    resource: str, *, limit: int, before: int = 0, namespaces: Collection[str] | None = None
) -> tuple[Recent, ...]:
    """At most `limit` live objects of `resource`, the last written first.

    before: only those written before that revision; 0 for all. namespaces: only those in one of them; None for all.
    """
    conditions, parameters = "", [resource]
    if before:
        conditions, parameters = " AND o.event_id < %s", [resource, str(before)]
    if namespaces is not None:
        if not namespaces:
            return ()
        conditions += f" AND o.namespace IN ({', '.join(['%s'] * len(namespaces))})"
        parameters += sorted(namespaces)
    chosen = (
        "SELECT o.event_id, o.namespace, o.name FROM store_storedobject o "  # noqa: S608 - placeholders only
        f"WHERE o.resource = %s{conditions} ORDER BY o.event_id DESC LIMIT %s"
    )
    statement = (
        f"SELECT c.event_id, c.namespace, c.name, e.document FROM ({chosen}) c "  # noqa: S608 - as above
        "JOIN store_event e ON e.revision = c.event_id ORDER BY c.event_id DESC"
    )
    return tuple(Recent(*values) for values in fetch(statement, [*parameters, str(limit)]))


def namespaces_with(resource: str) -> list[str]:
    """The namespaces that hold an object of `resource`, by name."""
    statement = "SELECT DISTINCT namespace FROM store_storedobject WHERE resource = %s ORDER BY namespace"
    return [name for (name,) in fetch(statement, [resource])]


def last_change(resource: str, fields: Mapping[str, str], *, after: int) -> datetime | None:
    """When an object of `resource` with these selectable fields last came, changed or went, above revision `after`.

    None where the log does not say. Reads every entry above `after`: for a page that asks seldom.
    """
    statement = "SELECT MAX(created_at) FROM store_event WHERE revision > %s AND resource = %s"
    parameters: list[Any] = [after, resource]
    for name, value in fields.items():
        statement += " AND fields LIKE %s"
        written = documents.dump({name: value})[1:-1]
        for special in ("\\", "%", "_"):
            written = written.replace(special, f"\\{special}")
        parameters.append(f"%{written}%")
        statement += " ESCAPE '\\'"
    found = fetch(statement, parameters)[0][0]
    if not found:
        return None
    moment = datetime.fromisoformat(found) if isinstance(found, str) else found
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
