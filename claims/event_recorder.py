"""Writes core/v1 Events: what happened to an object, told to people, repeats counted rather than repeated.

An event's name is derived from what it says about whom, so any worker finds the one to count up without remembering
it. (Upstream keeps a cache in each process: client-go/tools/record/events_cache.go.)
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

#: Events of cluster-wide objects live here, as upstream.
DEFAULT_NAMESPACE = "default"
#: An object's name may be 253 long; a dot and 16 hexadecimal digits are appended.
LONGEST_BASE = 253 - 17
#: core/v1 NoteLengthLimit
LONGEST_MESSAGE = 1024
#: The annotation of a Scheduled event that says why its node was chosen.
PLACEMENT = "manciple.dev/placement"
#: The annotation of an event that has the cause of which it tells, as JSON.
CAUSE = "manciple.dev/cause"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """Something to tell about an object."""

    regarding: ApiObject
    type: Literal["Normal", "Warning"] = "Normal"
    reason: str  # one CamelCase word
    message: str
    component: str  # who tells it
    cause: AnyCause | None = None  # what the message was made from; kept as an annotation
    placement: str = ""  # why a node was chosen; an annotation, too
    action: str = ""  # what was done
    related: ApiObject | None = None  # for whose sake
    counted_as: str = ""  # the message without what differs each time it is told; "" where nothing does


def record(writer: Writer, note: EventNote, *, now: datetime) -> None:
    """Store `note`, or count one more of it. Part of the writer's transaction.

    Nothing where its namespace takes no new objects any more: an event is not worth the failure of what it tells of.
    """
    namespace, name = key_of(note)
    known = cast("Event | None", writer.get(kind(EVENTS), namespace, name))
    if known is None:
        with suppress(Forbidden, NotFound):
            writer.create(kind(EVENTS), _event(note, namespace, name, timestamp(now)))
    else:
        writer.update(kind(EVENTS), _again(known, note, timestamp(now)))


def was_told(writer: Writer, note: EventNote, *, since: datetime) -> bool:
    """Whether `note` was stored, or counted, in the second of `since` or later."""
    known = cast("Event | None", writer.get(kind(EVENTS), *key_of(note)))
    return known is not None and (known.last_timestamp or "") >= timestamp(since)


def _again(known: Event, note: EventNote, now: str) -> Event:
    message = note.message[:LONGEST_MESSAGE]
    return structs.replace(known, count=known.count + 1, last_timestamp=now, message=message)


def key_of(note: EventNote) -> Key:
    """(namespace, name) of the event that tells it."""
    meta = note.regarding.metadata
    said = "\0".join((meta.uid, note.component, note.type, note.reason, note.counted_as or note.message))
    name = f"{meta.name[:LONGEST_BASE]}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    return meta.namespace or DEFAULT_NAMESPACE, name


def cause_in(annotations: Mapping[str, str]) -> AnyCause | None:
    """The cause of which an event with these annotations tells."""
    return decode(annotations.get(CAUSE, ""))


def _event(note: EventNote, namespace: str, name: str, now: str) -> Event:
    about = note.regarding
    return Event(
        api_version="v1",
        kind="Event",
        metadata=ObjectMeta(namespace=namespace, name=name, annotations=_annotations(note)),
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


def _annotations(note: EventNote) -> dict[str, str]:
    found = {CAUSE: encode(note.cause) if note.cause else "", PLACEMENT: note.placement}
    return {name: text for name, text in found.items() if text}


def _reference(about: ApiObject) -> ObjectReference:
    return ObjectReference(
        kind=about.kind,
        api_version=about.api_version,
        namespace=about.metadata.namespace,
        name=about.metadata.name,
        uid=about.metadata.uid,
        resource_version=about.metadata.resource_version,
    )
