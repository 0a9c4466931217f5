"""Deletes what has lost its owners; what that is, the store knows (`manciple.store.garbage`)."""

from __future__ import annotations

from datetime import datetime

from manciple.store import garbage


def sweep(now: datetime) -> int:  # noqa: ARG001 - every controller is swept at a time
    """Collect until nothing is left: a deletion may orphan more. Returns how many objects were deleted or let go."""
    total = 0
    while done := garbage.collect():
        total += done
    return total
