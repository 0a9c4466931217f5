"""Deletes what has lost its owners; what that is, the store knows (`manciple.store.garbage`)."""

from __future__ import annotations

from datetime import datetime

from manciple.store import garbage
from scheduling.controllers.declaration import ANY, DELETED, Controller

#: Objects in one run.
MOST = 1000


def sweep(now: datetime) -> int:  # noqa: ARG001 - every controller is swept at a time
    """Collect; a deletion may orphan more, which counts. Returns how many objects were deleted or let go."""
    return garbage.collect(MOST)


CONTROLLER = Controller(
    name="collect_garbage",
    does="deletes objects whose owners are gone",
    reconcile=sweep,
    every=10,
    wakes_on=frozenset({(ANY, DELETED)}),
    has_work=garbage.HAS_WORK,
    # Of the claims of pods that are gone `release_claims` takes care at once; deleted before that, they are more work.
    patience=0.25,
    most_per_turn=MOST,
)
