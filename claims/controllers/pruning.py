"""Bounds the size of the database: prunes the event log by the store's rules, and Events, the history and sent
notifications by their age.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from claims import endings, projectors
from inventory import impairments
from manciple.controllers.declaration import Controller, batches
from manciple.notifications import recording
from manciple.store import history, objects, space
from manciple.wire.errors import NotFound
from manciple.wire.identity import SYSTEM
from manciple.wire.resources import EVENTS, Key, kind

#: kube-apiserver's --event-ttl; measured, as there, from the last write of an Event
EVENTS_KEPT_FOR = timedelta(hours=1)
#: Objects in one transaction.
BATCH = 200
#: Events in one sweep.
MOST = 2000


def sweep(now: datetime) -> int:
    """Returns how many Events, log entries and rows of the history were deleted."""
    endings.note_authors()  # before the audit trail is pruned
    rows = projectors.prune_history(now) + endings.prune(now) + impairments.prune(now) + recording.prune(now)
    space.drop_full(now)
    # A mirror has the Events that its cluster has.
    events = [] if settings.MIRROR else history.written_before(kind(EVENTS), now - EVENTS_KEPT_FOR, limit=MOST)
    return sum(_delete(batch) for batch in batches(events, BATCH)) + space.prune(now=now) + rows


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
    in_mirror=True,
    reconcile=sweep,
    every=300,
    most_per_turn=MOST,
)
