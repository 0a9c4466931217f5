"""The scheduler as a controller: places the pods that are ready, with the one scheduling worker of this process."""

from __future__ import annotations

from datetime import datetime

from manciple.store.per_process import PerProcess
from scheduling import heartbeats, hints
from scheduling.controllers.declaration import ADDED, DELETING, FINISHED, Controller, Queue
from scheduling.controllers.followers import utc_now
from scheduling.cycle import SchedulingWorker
from scheduling.resources import CLAIMS, PODS

worker = PerProcess(lambda: SchedulingWorker(utc_now))


def place(_now: datetime) -> int:
    """Place the pods that are ready. Returns how many found a node."""
    report = worker().run()
    heartbeats.heart().did(attempts=report.taken, placed=report.placed)
    return report.placed


def sweep_queue(_now: datetime) -> int:
    """Flush long waits, and make the queue match the pods there are. Returns how many rows were changed."""
    return worker().sweep()


CONTROLLER = Controller(
    name="schedule",
    does="places the pods that are ready",
    reconcile=place,
    every=1,  # rests after failed attempts end without an event
    wakes_on=frozenset({*hints.RULES, (PODS, ADDED), (PODS, DELETING), (PODS, FINISHED), (CLAIMS, DELETING)}),
    queue=Queue.SCHEDULING,
    singleton=False,  # the workers take turns by themselves, and wait for theirs
)

SWEEP = Controller(
    name="sweep_queue",
    does="flushes pods that have waited for long, and makes the queue match the pods there are",
    reconcile=sweep_queue,
    every=5,
)
