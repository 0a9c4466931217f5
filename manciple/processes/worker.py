"""A Celery worker and beat as threads of this process, on the broker within it (`manciple.in_process_broker`).

The bare WorkController is used rather than `celery worker`'s, which installs signal handlers and so needs the main
thread.
"""

from __future__ import annotations

import threading

from celery.beat import Scheduler, Service
from celery.worker import WorkController
from celery.worker import state as worker_state

from manciple.celery import app
from scheduling.beat import task_name


class EmbeddedWorker:
    """Starts with `start()`, ends with `stop()`; one a process, because Celery keeps its stop flag in a module."""

    def __init__(self) -> None:
        self._controller = WorkController(
            app=app,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        self._beat = Service(app, max_interval=1, scheduler_cls=Scheduler)
        self._threads = (
            threading.Thread(target=self._controller.start, name="celery-worker", daemon=True),
            threading.Thread(target=self._beat.start, name="celery-beat", daemon=True),
        )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def stop(self, timeout: float = 10.0) -> None:
        """Let running tasks end, then return; after `timeout` seconds return anyway (tasks are safe to cut short)."""
        self._beat.stop(wait=False)
        worker_state.should_stop = 0
        # Any message: the worker looks at its flag when one arrives, or after 2 s.
        app.send_task(task_name("schedule"))
        for thread in self._threads:
            thread.join(timeout)
