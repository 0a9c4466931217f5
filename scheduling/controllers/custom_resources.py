"""Takes the objects of deleted definitions away, and gives names out that came free: `manciple.extensions.cleanup`."""

from __future__ import annotations

from datetime import datetime

from manciple.extensions import cleanup
from manciple.extensions.definitions import RESOURCE
from scheduling.controllers.declaration import DELETED, DELETING, Controller


def sweep(_now: datetime) -> int:
    """Returns how many objects were changed or deleted."""
    return cleanup.sweep()


CONTROLLER = Controller(
    name="sweep_custom_resources",
    does="deletes the objects of kinds whose definition is deleted, and then the definition",
    reconcile=sweep,
    every=10,
    wakes_on=frozenset({(RESOURCE, DELETING), (RESOURCE, DELETED)}),
    most_per_turn=cleanup.MOST,
)
