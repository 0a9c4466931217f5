"""Live objects found by a part of a label or by the beginning of their uid. Each is one query, with a limit."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manciple.store.sql import fetch

_SELECT = (
    "SELECT o.resource, o.namespace, o.name, o.uid, e.labels FROM store_storedobject o "
    "JOIN store_event e ON e.revision = o.event_id WHERE o.resource IN ({resources}){within} AND {condition} "
    "ORDER BY o.name, o.namespace, o.resource LIMIT %s"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """One of them."""

    resource: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]


def labelled(
    text: str, resources: Sequence[str], *, namespaces: Collection[str] | None = None, limit: int
) -> list[FoundObject]:
    """Those with a label of which `text` is a part: of its key, its value, or of `key=value` from where it is split.

    namespaces: of what is in a namespace, only these; None for all.
    """
    key, equals, value = text.partition("=")
    part = f"{_quoted(key)}%:%{_quoted(value)}" if equals else _quoted(key)
    rows = _found("LOWER(e.labels) LIKE %s ESCAPE '!'", f"%{part}%", resources, namespaces, limit)
    return [one for one in rows if any(_is_part(text.lower(), *label) for label in one.labels.items())]


def _is_part(text: str, key: str, value: str) -> bool:
    return text in f"{key}={value}".lower()


def with_uid(
    beginning: str, resources: Sequence[str], *, namespaces: Collection[str] | None = None, limit: int
) -> list[FoundObject]:
    """Those whose uid begins so."""
    rows = _found("o.uid LIKE %s ESCAPE '!'", f"{_quoted(beginning)}%", resources, namespaces, limit)
    return list(rows)


def _quoted(text: str) -> str:
    """As it stands in the column, with nothing left that LIKE would take for a pattern."""
    written = json.dumps(text.lower(), ensure_ascii=False)[1:-1]
    return written.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _found(
    condition: str, pattern: str, resources: Sequence[str], namespaces: Collection[str] | None, limit: int
) -> Iterator[FoundObject]:
    within, seen = "", tuple[str, ...]()
    if namespaces is not None:
        seen = ("", *sorted(namespaces))
        within = f" AND o.namespace IN ({_places(seen)})"
    statement = _SELECT.format(resources=_places(resources), within=within, condition=condition)
    for resource, namespace, name, uid, labels in fetch(statement, [*resources, *seen, pattern, limit]):
        yield FoundObject(resource=resource, namespace=namespace, name=name, uid=uid, labels=_labels(labels))


def _places(values: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(values))


def _labels(text: str) -> Mapping[str, str]:
    found: Mapping[str, str] = json.loads(text)
    return found
