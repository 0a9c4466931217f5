"""When objects were last written, by the clock of whoever wrote the log: what a client says of the time is not asked.

A machine whose clock is wrong still renews its signs of life; that it did, and when, stands in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from manciple.store.models import Event, StoredObject
from manciple.wire.registry import Kind


@dataclass(frozen=True, slots=True)
class Writing:
    """One state of an object: since when, and its document."""

    since: datetime
    text: str


def last_written(kind: Kind, namespace: str = "", *, names: frozenset[str] | None = None) -> dict[str, datetime]:
    """When each object of the namespace (or only those of `names`) was last written. One query."""
    found = StoredObject.objects.filter(resource=kind.resource, namespace=namespace)
    if names is not None:
        found = found.filter(name__in=names)
    return dict(found.values_list("name", "event__created_at"))


def states(kind: Kind, namespace: str, name: str) -> Iterator[Writing]:
    """The states of a live object, the newest first, as far back as the log reaches; a query for each taken."""
    columns = ("created_at", "document", "previous_revision")
    current = StoredObject.objects.filter(resource=kind.resource, namespace=namespace, name=name)
    revision = current.values_list("event_id", flat=True).first()
    while revision is not None:
        found = Event.objects.filter(revision=revision).values_list(*columns).first()
        if found is None:
            return
        since, text, revision = found
        yield Writing(since, text)
