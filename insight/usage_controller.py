"""Samples usage once a minute, and removes processes without a recent heartbeat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

from insight import usage
from manciple.controllers import coordination
from manciple.controllers.declaration import Controller
from manciple.per_process import PerProcess
from scheduling.cycle import scheduler
from scheduling.models import UsageSample
from scheduling.placement.demands import FreeCapacity
from scheduling.placement.policies import free_by_class

#: Seconds for which a process that has just started takes no samples: it lists the cluster for the scheduler, and pods
#: wait for that.
WARMING_UP = 30.0
#: when this controller first ran in this process, by the monotonic clock
_asked_first = PerProcess(time.monotonic)


def reconcile(now: datetime) -> int:
    """Returns how many rows were added and removed."""
    first = _asked_first.value
    warm = time.monotonic() - first >= WARMING_UP
    sampled = usage.sample(now) if warm else 0
    if sampled > 1:  # with its classes
        # Pods wait for the looking (some milliseconds), not for the rows.
        note_stranded(scheduler.worker.value.in_turn(free_by_class) or {}, now)
    return sampled + coordination.forget_stale(now)


def note_stranded(found: Mapping[str, FreeCapacity], now: datetime) -> None:
    """Add to the samples of this minute what is stranded of each class."""
    rows = list(UsageSample.objects.filter(at=usage.minute_of(now), device_class__in=list(found)))
    for row in rows:
        row.free, row.stranded = found[row.device_class]
    UsageSample.objects.bulk_update(rows, ["free", "stranded"])


CONTROLLER = Controller(
    name="sample_usage",
    does="records once a minute how many devices are in which state; removes processes without a recent heartbeat",
    reconcile=reconcile,
    every=20,  # oftener than needed, so that no minute is missed
)
