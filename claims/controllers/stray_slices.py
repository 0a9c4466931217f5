"""Warns drivers that publish devices of a Node that does not exist: it was deleted, or is not registered yet.

Such devices are not allocated, and a slice that a deleted Node owns is deleted as well (`collect_garbage`). A driver
that keeps writing it would never learn why, so an event of the slice and the log say it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from claims import event_recorder
from claims.controllers.node_lifecycle import IDENTITY
from claims.event_recorder import EventNote
from inventory.kinds.devices import ResourceSlice
from manciple.controllers.declaration import Controller, batches
from manciple.store import objects, sql
from manciple.wire.resources import ADDED, EVENTS, SLICES, kind

log = logging.getLogger(__name__)

COMPONENT = "node-controller"
BATCH = 100
#: The maximum of slices in one run.
MOST = 1000


def sweep(now: datetime) -> int:
    """Returns how many slices were warned about."""
    statement = (
        "SELECT p.name FROM inventory_publishedslice p WHERE p.node_name <> '' AND NOT EXISTS "
        "(SELECT 1 FROM inventory_node n WHERE n.name = p.node_name) ORDER BY p.name LIMIT %s"
    )
    names = [name for (name,) in sql.fetch(statement, [MOST])]
    return sum(_warn(batch, now) for batch in batches(names, BATCH))


def _warn(names: Sequence[str], now: datetime) -> int:
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(SLICES), [("", name) for name in names])
        stored = (writer.get(kind(SLICES), "", name) for name in names)
        notes = [_note(slice_) for slice_ in stored if isinstance(slice_, ResourceSlice)]
        writer.load(kind(EVENTS), [event_recorder.key_of(note) for note in notes])
        for note in notes:
            event_recorder.record(writer, note, now=now)
            log.warning("ResourceSlice %s: %s", note.regarding.metadata.name, note.message)
    return len(notes)


def _note(slice_: ResourceSlice) -> EventNote:
    node, driver = slice_.spec.node_name, slice_.spec.driver
    message = (
        f"Node {node} does not exist: it was deleted, or is not registered yet. The devices of this slice are not "
        f"allocated; restart the node's agent to register it, then driver {driver}"
    )
    return EventNote(regarding=slice_, type="Warning", reason="NodeMissing", message=message, component=COMPONENT)


CONTROLLER = Controller(
    name="tell_stray_drivers",
    does="warns drivers that publish devices of a node that does not exist",
    in_mirror=False,
    reconcile=sweep,
    every=300,
    wakes_on=frozenset({(SLICES, ADDED)}),
)
