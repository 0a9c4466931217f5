"""Takes the samples of usage on time, and forgets processes that were silent for long."""

from __future__ import annotations

from datetime import datetime

from scheduling import coordination, usage
from scheduling.controllers.declaration import Controller


def reconcile(now: datetime) -> int:
    """Returns how many rows came and went."""
    return usage.sample(now) + coordination.forget_stale(now)


CONTROLLER = Controller(
    name="sample_usage",
    does="notes once a minute how many devices are in which state; forgets processes that were silent for long",
    reconcile=reconcile,
    every=20,  # oftener than needed, so that no minute is missed
)
