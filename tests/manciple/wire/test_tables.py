"""Tables: ages as kubectl prints them, column definitions, rows and their objects."""

from typing import Any

import pytest

from inventory.kinds.registration import NODE
from manciple.wire import tables
from manciple.wire.tables import IncludeObject, age, human_duration
from tests.builders import make_node, stored

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400
CREATED = 1767225600.0  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (5.9, "5s"),
        (119, "119s"),
        (120, "2m"),
        (190, "3m10s"),
        (10 * MINUTE, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 4 * HOUR, "2d4h"),
        (8 * DAY + HOUR, "8d"),
        (729 * DAY, "729d"),
        (2 * YEAR, "2y"),
        (3 * YEAR + 20 * DAY, "3y20d"),
        (9 * YEAR + 20 * DAY, "9y"),
    ],
)
def test_spans_are_written_as_kubectl_prints_them(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        ("2026-01-01T00:00:00Z", "5s"),
        ("2026-01-01T00:00:00.000001Z", "4s"),
        (None, "<unknown>"),
        ("", "<unknown>"),
        ("yesterday", "<unknown>"),
    ],
)
def test_ages_count_from_a_timestamp(timestamp: str | None, text: str) -> None:
    assert age(timestamp, CREATED + 5) == text


def document(obj: Any) -> dict[str, Any]:
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": obj.metadata.name}, "spec": {}}


def made(include: IncludeObject = "None", *, headed: bool = True) -> dict[str, Any]:
    node = stored(make_node("n1", unschedulable=True))
    metadata = {"resourceVersion": "7"}
    return tables.table(
        NODE.columns, [node], now=CREATED + 5, include=include, document=document, metadata=metadata, headed=headed
    )


def test_a_table_has_the_columns_of_its_kind() -> None:
    table = made()
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": "7"}
    names = [(one["name"], one["priority"]) for one in table["columnDefinitions"]]
    assert names[:6] == [("Name", 0), ("Status", 0), ("Roles", 0), ("Age", 0), ("Version", 0), ("Internal-IP", 1)]
    assert table["columnDefinitions"][0]["format"] == "name"
    assert table["rows"][0]["cells"][:5] == ["n1", "Ready,SchedulingDisabled", "<none>", "5s", ""]


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("None", None),
        ("Object", {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}, "spec": {}}),
        ("Metadata", {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "n1"}}),
    ],
)
def test_rows_carry_as_much_of_the_object_as_was_asked_for(include: IncludeObject, expected: Any) -> None:
    assert made(include)["rows"][0]["object"] == expected


def test_later_tables_of_a_watch_leave_the_columns_out() -> None:
    assert made(headed=False)["columnDefinitions"] == []
