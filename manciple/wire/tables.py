"""metav1.Table documents: what `kubectl get` prints, from a kind's columns.

The API hands over typed objects and a function that gives an object's document; out comes the Table as builtins, with
each row's object whole, as metadata only, or left out. Ages are written as kubectl prints them. Sources:
apimachinery/pkg/apis/meta/v1/types.go (Table), apimachinery/pkg/util/duration/duration.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from manciple.wire.base import ApiObject
from manciple.wire.registry import Column

#: What kubectl shows where there is nothing.
NONE = "<none>"

IncludeObject = Literal["None", "Metadata", "Object"]

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_UNIT_NAMES = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
#: (below so many seconds, count in this unit, and what is left in this one; 0: leave it out)
_STEPS = (
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)


def human_duration(seconds: float) -> str:
    """A span as kubectl prints it, about two or three digits: "5s", "3m10s", "2d4h", "3y20d"."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    unit, smaller = next(((unit, smaller) for limit, unit, smaller in _STEPS if whole < limit), (_YEAR, 0))
    return _in_units(whole, unit, smaller)


def _in_units(seconds: int, unit: int, smaller: int) -> str:
    """Whole `unit`s, and what is left in `smaller` ones where there is any."""
    count, rest = divmod(seconds, unit)
    text = f"{count}{_UNIT_NAMES[unit]}"
    left = rest // smaller if smaller else 0
    return f"{text}{left}{_UNIT_NAMES[smaller]}" if left else text


def seconds_since(timestamp: str | None, now: float) -> float | None:
    """Seconds from an RFC 3339 time to `now` (POSIX seconds); None for no time or one that cannot be read."""
    if not timestamp:
        return None
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def age(timestamp: str | None, now: float) -> str:
    """How long ago, or "<unknown>"."""
    passed = seconds_since(timestamp, now)
    return "<unknown>" if passed is None else human_duration(passed)


def listed(texts: Iterable[str], most: int = 3) -> str:
    """Several values in one cell: the first of them, and how many more there are."""
    every = list(texts)
    rest = len(every) - most
    return ", ".join((*every[:most], *([f"+{rest} more"] if rest > 0 else []))) or NONE


def _name_cell(obj: ApiObject, _now: float) -> str:
    return obj.metadata.name


def _age_cell(obj: ApiObject, now: float) -> str:
    return age(obj.metadata.creation_timestamp, now)


NAME_COLUMN = Column(
    name="Name",
    format="name",
    description="The name of the object, unique among its kind in its namespace",
    cell=_name_cell,
)
AGE_COLUMN = Column(name="Age", description="How long ago the object was created", cell=_age_cell)
#: What a kind without columns of its own shows.
DEFAULT_COLUMNS = (NAME_COLUMN, AGE_COLUMN)


def column_definitions(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """TableColumnDefinition documents, in order."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns
    ]


def row(
    columns: Sequence[Column],
    obj: ApiObject,
    *,
    now: float,
    include: IncludeObject,
    document: Callable[[ApiObject], Any],
) -> dict[str, Any]:
    """One TableRow. `document(obj)`: the whole document as JSON value, with kind and apiVersion."""
    cells = [column.cell(obj, now) for column in columns]
    return {"cells": cells, "object": _row_object(obj, include, document)}


def _row_object(obj: ApiObject, include: IncludeObject, document: Callable[[ApiObject], Any]) -> Any:
    if include == "None":
        return None
    whole = document(obj)
    if include == "Object":
        return whole
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]}


def table(
    columns: Sequence[Column],
    objects: Iterable[ApiObject],
    *,
    now: float,
    include: IncludeObject,
    document: Callable[[ApiObject], Any],
    metadata: Mapping[str, Any] | None = None,
    headed: bool = True,
) -> dict[str, Any]:
    """A Table as JSON value. columns: DEFAULT_COLUMNS where there are none. metadata: the ListMeta; headed: false
    leaves the columns out (later events of a watch).
    """
    columns = columns or DEFAULT_COLUMNS
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata or {}),
        "columnDefinitions": column_definitions(columns) if headed else [],
        "rows": [row(columns, obj, now=now, include=include, document=document) for obj in objects],
    }
