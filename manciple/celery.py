"""The Celery application. Tasks carry no objects: a message only says "look", the database is the truth.

Every worker, the embedded one too, runs a dispatcher beside its tasks: it turns commits into looks.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, bootsteps

from scheduling.beat import beat_schedule

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

app = Celery("manciple")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = beat_schedule()
app.autodiscover_tasks(["scheduling"])


class Dispatching(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery is untyped
    """The worker's dispatcher; starts once the pool can take tasks."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._dispatcher: Any = None

    def start(self, worker: Any) -> None:  # noqa: ARG002 - Celery's signature
        # Imported late: it needs Django's apps, which the worker has loaded by now.
        from scheduling import dispatch  # noqa: PLC0415

        def send(task: str) -> None:
            app.send_task(task, expires=dispatch.EXPIRES, ignore_result=True)

        claim = dispatch.claim_among_processes if app.conf.broker_url.startswith("redis") else dispatch.claim_alone
        self._dispatcher = dispatch.Dispatcher(send, claim)
        self._dispatcher.start()

    def stop(self, worker: Any) -> None:  # noqa: ARG002
        if self._dispatcher is not None:
            self._dispatcher.stop()
            from scheduling import heartbeats  # noqa: PLC0415 - as above

            heartbeats.stop()


app.steps["worker"].add(Dispatching)
