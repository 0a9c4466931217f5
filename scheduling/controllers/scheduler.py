"""The scheduler as a controller: places the pods that are ready, with the one scheduling worker of this process."""

from __future__ import annotations

import os
import threading
import uuid
from datetime import datetime

from scheduling import heartbeats, hints
from scheduling.controllers.declaration import ADDED, DELETING, FINISHED, Controller, Queue
from scheduling.controllers.followers import NAME_LENGTH, utc_now
from scheduling.cycle import SchedulingWorker
from scheduling.resources import CLAIMS, PODS


class _Process:
    """The scheduling worker of this process; a forked child makes its own."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._worker: SchedulingWorker | None = None

    def worker(self) -> SchedulingWorker:
        with self._guard:
            if self._worker is None:
                name = f"{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
                self._worker = SchedulingWorker(name[-NAME_LENGTH:], utc_now)
            return self._worker

    def forget(self) -> None:
        self._guard = threading.Lock()
        self._worker = None


process = _Process()
os.register_at_fork(after_in_child=process.forget)


def place(_now: datetime) -> int:
    """Place the pods that are ready. Returns how many found a node."""
    report = process.worker().run()
    heartbeats.heart().did(attempts=report.taken, placed=report.placed)
    return report.placed


def sweep_queue(_now: datetime) -> int:
    """Flush long waits, and make the queue match the pods there are. Returns how many rows were changed."""
    return process.worker().sweep()


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
