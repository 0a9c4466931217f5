"""What a watch with selectors sees of the log's events."""

from __future__ import annotations

import json

import pytest

from manciple.api.watch import WatchSelection
from manciple.store.records import EventRecord, EventType
from manciple.wire.selectors import parse_field_selector, parse_label_selector

RED, BLUE = {"team": "red"}, {"team": "blue"}
SELECTION = WatchSelection(resource="pods", namespace="default", labels=parse_label_selector("team=red"))


def record(
    type_: EventType,
    *,
    before: dict[str, str] | None,
    now: dict[str, str],
    namespace: str = "default",
    fields: dict[str, str] | None = None,
) -> EventRecord:
    return EventRecord(
        revision=7,
        type=type_,
        resource="pods",
        namespace=namespace,
        name="p",
        uid="u",
        document="{}",
        stored_labels=json.dumps(now),
        stored_fields=json.dumps(fields or {}),
        stored_previous_labels=None if before is None else json.dumps(before),
        stored_previous_fields=None if before is None else "{}",
    )


TRANSITIONS: dict[str, tuple[EventRecord, EventType | None]] = {
    "created inside": (record("ADDED", before=None, now=RED), "ADDED"),
    "created outside": (record("ADDED", before=None, now=BLUE), None),
    "changed inside": (record("MODIFIED", before=RED, now=RED), "MODIFIED"),
    "changed outside": (record("MODIFIED", before=BLUE, now=BLUE), None),
    "came in": (record("MODIFIED", before=BLUE, now=RED), "ADDED"),
    "went out": (record("MODIFIED", before=RED, now=BLUE), "DELETED"),
    "deleted inside": (record("DELETED", before=RED, now=RED), "DELETED"),
    "deleted outside": (record("DELETED", before=BLUE, now=BLUE), None),
    "in another namespace": (record("ADDED", before=None, now=RED, namespace="other"), None),
}


@pytest.mark.parametrize(("event", "seen"), TRANSITIONS.values(), ids=TRANSITIONS.keys())
def test_an_event_is_seen_as_it_concerns_the_selection(event: EventRecord, seen: EventType | None) -> None:
    assert SELECTION.sees(event) == seen


def test_fields_select_as_labels_do() -> None:
    bound = WatchSelection(resource="pods", fields=parse_field_selector("spec.nodeName=n1"))
    event = record("MODIFIED", before={}, now={}, fields={"spec.nodeName": "n1"})
    assert bound.sees(event) == "ADDED"
