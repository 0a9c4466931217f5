"""Keeps the database from growing for ever: the event log by the store's rules, Events and the history by their age."""

from __future__ import annotations

from datetime import datetime, timedelta

from claims import history
from manciple.store import objects, pruning
from manciple.wire.errors import NotFound
from manciple.wire.machinery import Event
from scheduling.resources import EVENTS, Key, key_of, kind, listed

#: kube-apiserver's --event-ttl
EVENTS_KEPT_FOR = timedelta(hours=1)
#: Objects in one transaction.
BATCH = 200


def sweep(now: datetime) -> int:
    """Returns how many Events, log entries and rows of the history went."""
    return _drop_events(now - EVENTS_KEPT_FOR) + pruning.prune(now=now) + history.prune(now)


def _drop_events(before: datetime) -> int:
    _, events = listed(EVENTS, Event)
    old = [key_of(event) for event in events if is_older(event, before)]
    return sum(_delete(old[start : start + BATCH]) for start in range(0, len(old), BATCH))


def is_older(event: Event, moment: datetime) -> bool:
    """Whether `event` was last seen before `moment`."""
    seen = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    return seen is not None and datetime.fromisoformat(seen) < moment


def _delete(keys: list[Key]) -> int:
    deleted = 0
    with objects.writing() as writer:
        writer.load(kind(EVENTS), keys)
        for key in keys:
            try:
                writer.delete(kind(EVENTS), *key)
            except NotFound:
                continue
            deleted += 1
    return deleted
