"""A Celery worker in threads of a process that serves the API as well: of `up`, and of `serve --with-worker`.

Without Redis its broker is the memory of the process (`settings.CELERY_BROKER_URL`); with Redis it is a worker beside
others. A worker that stops by itself ends the process with an error, so that a supervisor starts it again; until it has
ended, `/readyz` fails.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from celery.worker import WorkController
from celery.worker import state as worker_state
from django.conf import settings
from django.core.management.base import CommandError

from manciple.api import health
from manciple.celery import app
from manciple.controllers.declaration import task_name

log = logging.getLogger(__name__)

#: Seconds that running tasks have to end; they are safe to cut short.
STOP_SECONDS = 10.0


@contextmanager
def running() -> Iterator[None]:
    """Within, the worker works. Once a process, because Celery keeps its stop flag in a module.

    A worker that stops by itself signals the process to end (`Listeners`). Raises: CommandError then.
    """
    # `celery worker` would install signal handlers, for which it needs the main thread.
    worker = WorkController(app=app, without_gossip=True, without_mingle=True, without_heartbeat=True)
    told, failed = threading.Event(), threading.Event()

    def work() -> None:
        try:
            worker.start()
        finally:
            if not told.is_set():
                failed.set()
                log.critical("the Celery worker has stopped; this process ends")
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=work, name="celery-worker", daemon=True)

    def scheduling() -> None:
        if not thread.is_alive():
            raise health.NotReady("the Celery worker has stopped")

    thread.start()
    health.register("scheduling", scheduling)
    try:
        yield
        if failed.is_set():
            raise CommandError("the Celery worker has stopped; the log says why")
    finally:
        told.set()
        worker_state.should_stop = 0
        if not settings.REDIS_URL:
            # Any message: the worker looks at its flag when one arrives, or after 2 s.
            app.send_task(task_name("schedule"))
        thread.join(STOP_SECONDS)
