"""Tells drivers that publish devices of a Node that does not exist: it was deleted under them, or is not there yet.

Nobody is given such devices, and a slice whose owner is a Node that is gone is deleted with it (`collect_garbage`); a
driver that goes on writing it would never learn why. So an event of the slice says so, and the log.
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
#: Slices that are told of in one run.
MOST = 1000


def sweep(now: datetime) -> int:
    """Returns of how many slices was told."""
    return sum(_tell(batch, now) for batch in batches(_strays(), BATCH))


def _strays() -> list[str]:
    """The names of the slices of Nodes that do not exist. One query."""
    statement = (
        "SELECT p.name FROM inventory_publishedslice p WHERE p.node_name <> '' AND NOT EXISTS "
        "(SELECT 1 FROM inventory_node n WHERE n.name = p.node_name) ORDER BY p.name LIMIT %s"
    )
    return [name for (name,) in sql.fetch(statement, [MOST])]


def _tell(names: Sequence[str], now: datetime) -> int:
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(SLICES), [("", name) for name in names])
        slices = [one for name in names if isinstance(one := writer.get(kind(SLICES), "", name), ResourceSlice)]
        notes = [_note(one) for one in slices]
        writer.load(kind(EVENTS), [event_recorder.key_of(note) for note in notes])
        for note in notes:
            event_recorder.record(writer, note, now=now)
            log.warning("ResourceSlice %s: %s", note.regarding.metadata.name, note.message)
    return len(notes)


def _note(one: ResourceSlice) -> EventNote:
    message = (
        f"Node {one.spec.node_name} does not exist: it was deleted, or is not registered yet. The devices "
        f"of this slice are not allocated; restart the node's agent to register it, then driver {one.spec.driver}"
    )
    return EventNote(regarding=one, type="Warning", reason="NodeMissing", message=message, component=COMPONENT)


CONTROLLER = Controller(
    name="tell_stray_drivers",
    does="warns drivers that publish devices of a node that does not exist",
    reconcile=sweep,
    every=300,
    wakes_on=frozenset({(SLICES, ADDED)}),
)
