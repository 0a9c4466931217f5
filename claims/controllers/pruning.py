"""Keeps the database from growing for ever: the event log by the store's rules, Events, the history and what people
were told by their age.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from claims import projectors
from inventory import impairments
from manciple.controllers.declaration import Controller, batches
from manciple.notifications import recording
from manciple.store import history, objects, space
from manciple.wire.errors import NotFound
from manciple.wire.identity import SYSTEM
from manciple.wire.resources import EVENTS, Key, kind

#: kube-apiserver's --event-ttl; counted, as there, from when an Event was last written
EVENTS_KEPT_FOR = timedelta(hours=1)
#: Objects in one transaction.
BATCH = 200
#: Events in one sweep.
MOST = 2000


def sweep(now: datetime) -> int:
    """Returns how many Events, log entries and rows of the history went."""
    history = projectors.prune_history(now) + impairments.prune(now) + recording.prune(now)
    space.drop_full(now)
    return _drop_events(now - EVENTS_KEPT_FOR) + space.prune(now=now) + history


def _drop_events(before: datetime) -> int:
    old = history.written_before(kind(EVENTS), before, limit=MOST)
    return sum(_delete(batch) for batch in batches(old, BATCH))


def _delete(keys: list[Key]) -> int:
    deleted = 0
    with objects.writing(identity=SYSTEM) as writer:
        writer.load(kind(EVENTS), keys)
        for key in keys:
            try:
                writer.delete(kind(EVENTS), *key)
            except NotFound:
                continue
            deleted += 1
    return deleted


CONTROLLER = Controller(
    name="prune",
    does="deletes old Events, log entries that nobody can read any more, and old history",
    reconcile=sweep,
    every=300,
    most_per_turn=MOST,
)
