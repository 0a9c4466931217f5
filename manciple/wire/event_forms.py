"""The form that events have in events.k8s.io/v1, to which newer clients write: the same events under other names.

Source: k8s.io/api/events/v1 and pkg/apis/events/v1/conversion.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from manciple.wire.base import ApiObject, Int32, ObjectReference, TimeText, Value, always, pb

PACKAGE = "io.k8s.api.events.v1"
API_VERSION = "events.k8s.io/v1"


class EventSource(Value):
    """Who saw it, and on which node."""

    SCHEMA: ClassVar = "io.k8s.api.core.v1.EventSource"

    component: Annotated[str, pb(1)] = ""
    host: Annotated[str, pb(2)] = ""


class EventSeries(Value):
    """count: how often it happened, at least twice. last_observed_time: when last."""

    SCHEMA: ClassVar = "io.k8s.api.events.v1.EventSeries"

    count: Annotated[Int32, pb(1)] = always(0)
    last_observed_time: Annotated[TimeText | None, pb(2, encoding="microTime")] = None


class Event(ApiObject):
    """A message about an object, for people. Namespaced.

    event_time: when it happened first. series: of one that happens again and again. reporting_controller: who tells it.
    reporting_instance: which of them. action: what was done or failed. reason: why. regarding: what it is about.
    related: a second object. note: the message. type: Normal or Warning. deprecated_source, deprecated_first_timestamp,
    deprecated_last_timestamp, deprecated_count: of events in the earlier form.
    """

    SCHEMA: ClassVar = "io.k8s.api.events.v1.Event"

    event_time: Annotated[TimeText | None, pb(2, encoding="microTime")] = None
    series: Annotated[EventSeries | None, pb(3)] = None
    reporting_controller: Annotated[str, pb(4)] = ""
    reporting_instance: Annotated[str, pb(5)] = ""
    action: Annotated[str, pb(6)] = ""
    reason: Annotated[str, pb(7)] = ""
    regarding: Annotated[ObjectReference, pb(8)] = ObjectReference()
    related: Annotated[ObjectReference | None, pb(9)] = None
    note: Annotated[str, pb(10)] = ""
    type: Annotated[str, pb(11)] = ""
    deprecated_source: Annotated[EventSource, pb(12)] = EventSource()
    deprecated_first_timestamp: Annotated[TimeText | None, pb(13, encoding="time")] = None
    deprecated_last_timestamp: Annotated[TimeText | None, pb(14, encoding="time")] = None
    deprecated_count: Annotated[Int32, pb(15)] = 0


#: The names of fields here -> in core/v1.
_NAMES: Mapping[str, str] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_OWN_NAMES = {core: own for own, core in _NAMES.items()}
#: What Go writes also where it is nothing.
_ALWAYS: Mapping[str, Any] = {
    "eventTime": None,
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}
#: Names of fields to list by -> those of core/v1.
SELECTABLE: Mapping[str, str] = {
    "reportingController": "reportingComponent",
    **{
        f"regarding.{name}": f"involvedObject.{name}"
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
}


def to_storage(document: dict[str, Any]) -> dict[str, Any]:
    """As core/v1."""
    return {**{_NAMES.get(name, name): value for name, value in document.items()}, "apiVersion": "v1"}


def from_storage(document: dict[str, Any]) -> dict[str, Any]:
    named = {_OWN_NAMES.get(name, name): value for name, value in document.items()}
    always = {name: value for name, value in _ALWAYS.items() if name not in named}
    return {**named, **always, "apiVersion": API_VERSION}  # which stays in its place: lists look for it there
