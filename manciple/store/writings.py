"""When objects were last written, by the clock of whoever wrote the log: what a client says of the time is not asked.

A machine whose clock is wrong still renews its signs of life; that it did, and when, stands in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from manciple.store import bulk
from manciple.store.models import Event, StoredObject
from manciple.wire.registry import Kind


@dataclass(frozen=True, slots=True)
class State:
    """One state of an object: since when, its document, and the revision of the state before it."""

    since: datetime
    text: str
    previous: int | None


def last_written(kind: Kind, namespace: str = "", *, names: frozenset[str] | None = None) -> dict[str, datetime]:
    """When each object of the namespace (or only those of `names`) was last written. One query."""
    found = StoredObject.objects.filter(resource=kind.resource, namespace=namespace)
    if names is not None:
        found = found.filter(name__in=names)
    return dict(found.values_list("name", "event__created_at"))


def revisions(kind: Kind, namespace: str = "") -> dict[str, int]:
    """The revision at which each object of the namespace was last written. One query."""
    found = StoredObject.objects.filter(resource=kind.resource, namespace=namespace)
    return dict(found.values_list("name", "event_id"))


def states_at(revisions: Iterable[int]) -> dict[int, State]:
    """What was written at these revisions, as far back as the log reaches; a query for each thousand."""
    found: dict[int, State] = {}
    for chunk in bulk.chunks(revisions, bulk.PARAMETERS):
        rows = Event.objects.filter(revision__in=chunk)
        for revision, since, text, previous in rows.values_list(
            "revision", "created_at", "document", "previous_revision"
        ):
            found[revision] = State(since, text, previous)
    return found


def written_before(kind: Kind, moment: datetime, *, limit: int) -> list[tuple[str, str]]:
    """(namespace, name) of live objects that were last written before `moment`, the oldest first. One query."""
    found = StoredObject.objects.filter(resource=kind.resource, event__created_at__lt=moment)
    return list(found.order_by("event_id").values_list("namespace", "name")[:limit])
