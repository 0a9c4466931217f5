"""Takes the samples of usage on time, and forgets processes that were silent for long."""

from __future__ import annotations

import time
from datetime import datetime

from manciple.store.per_process import PerProcess
from scheduling import coordination, usage
from scheduling.controllers.declaration import Controller

#: Seconds for which a process that has just started takes no samples: it lists the cluster for the scheduler, and pods
#: wait for that.
WARMING_UP = 30.0
#: when this process was asked first, by the monotonic clock
_asked_first = PerProcess(time.monotonic)


def reconcile(now: datetime) -> int:
    """Returns how many rows came and went."""
    warm = time.monotonic() - _asked_first() >= WARMING_UP
    return (usage.sample(now) if warm else 0) + coordination.forget_stale(now)


CONTROLLER = Controller(
    name="sample_usage",
    does="records once a minute how many devices are in which state; removes processes without a recent heartbeat",
    reconcile=reconcile,
    every=20,  # oftener than needed, so that no minute is missed
)
