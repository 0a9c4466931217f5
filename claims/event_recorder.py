"""Writes core/v1 Events, and counts repeats instead of writing them again.

An event's name is a hash of its object and content, so any worker finds the event to count up. (Upstream keeps a cache
in each process: client-go/tools/record/events_cache.go.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from msgspec import structs

from claims.causes.causes import AnyCause, decode, encode
from manciple.store.objects import Writer
from manciple.wire.base import ApiObject, ObjectMeta, ObjectReference, timestamp
from manciple.wire.errors import Forbidden, NotFound
from manciple.wire.machinery import Event, EventSource
from manciple.wire.resources import EVENTS, Key, kind

#: The namespace of events about cluster-scoped objects, as upstream.
DEFAULT_NAMESPACE = "default"
#: An object's name may be 253 long; a dot and 16 hexadecimal digits are appended.
LONGEST_BASE = 253 - 17
#: core/v1 NoteLengthLimit
LONGEST_MESSAGE = 1024
#: The annotation of a Scheduled event with the reason for its node.
PLACEMENT = "manciple.dev/placement"
#: The annotation with an event's cause as JSON.
CAUSE = "manciple.dev/cause"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """An event to record about an object."""

    regarding: ApiObject
    type: Literal["Normal", "Warning"] = "Normal"
    reason: str  # one CamelCase word
    message: str
    component: str
    cause: AnyCause | None = None  # the source of the message; stored as an annotation
    placement: str = ""  # the reason for the node; stored as an annotation
    action: str = ""
    related: ApiObject | None = None
    counted_as: str = ""  # the message without the parts that vary between repeats; "" if nothing varies


def record(writer: Writer, note: EventNote, *, now: datetime) -> None:
    """Store the event or count it up, in the writer's transaction.

    Skipped if the namespace takes no new objects: an event must not fail the write that it is about.
    """
    namespace, name = key_of(note)
    events, seconds = kind(EVENTS), timestamp(now)
    event = cast("Event | None", writer.get(events, namespace, name))
    if event is None:
        with suppress(Forbidden, NotFound):
            writer.create(events, _event(note, namespace, name, seconds))
    else:
        message = note.message[:LONGEST_MESSAGE]
        repeated = structs.replace(event, count=event.count + 1, last_timestamp=seconds, message=message)
        writer.update(events, repeated)


def was_recorded(writer: Writer, note: EventNote, *, since: datetime) -> bool:
    """Whether the event was stored or counted up in the second of `since` or later."""
    event = cast("Event | None", writer.get(kind(EVENTS), *key_of(note)))
    return event is not None and (event.last_timestamp or "") >= timestamp(since)


def key_of(note: EventNote) -> Key:
    """(namespace, name) of the event."""
    meta = note.regarding.metadata
    content = "\0".join((meta.uid, note.component, note.type, note.reason, note.counted_as or note.message))
    name = f"{meta.name[:LONGEST_BASE]}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    return meta.namespace or DEFAULT_NAMESPACE, name


def cause_in(annotations: Mapping[str, str]) -> AnyCause | None:
    """The cause of an event with these annotations."""
    return decode(annotations.get(CAUSE, ""))


def _event(note: EventNote, namespace: str, name: str, now: str) -> Event:
    about = note.regarding
    annotations = {CAUSE: encode(note.cause) if note.cause else "", PLACEMENT: note.placement}
    annotations = {key: text for key, text in annotations.items() if text}
    return Event(
        api_version="v1",
        kind="Event",
        metadata=ObjectMeta(namespace=namespace, name=name, annotations=annotations),
        involved_object=_reference(about),
        reason=note.reason,
        message=note.message[:LONGEST_MESSAGE],
        source=EventSource(component=note.component),
        reporting_component=note.component,
        type=note.type,
        first_timestamp=now,
        last_timestamp=now,
        count=1,
        action=note.action,
        related=None if note.related is None else _reference(note.related),
    )


def _reference(about: ApiObject) -> ObjectReference:
    return ObjectReference(
        kind=about.kind,
        api_version=about.api_version,
        namespace=about.metadata.namespace,
        name=about.metadata.name,
        uid=about.metadata.uid,
        resource_version=about.metadata.resource_version,
    )
