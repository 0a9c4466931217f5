"""The Celery application. Tasks carry no objects: a message only says "reconcile", the database is the truth.

What it knows of the controllers (tasks, routes, beat's schedule) is made of their declarations once Django is ready.
Every worker, the embedded one too, runs a dispatcher beside its tasks: it turns commits into wake-ups.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, bootsteps
from celery.signals import import_modules
from kombu.entity import Queue as BrokerQueue

from manciple import in_process_broker
from scheduling.controllers.declaration import Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")

in_process_broker.register()
app = Celery("manciple")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [BrokerQueue(queue.value) for queue in Queue]
app.conf.task_default_queue = Queue.SCHEDULING.value


def _declare(**_signal: object) -> None:
    """Called after Celery's own receivers: Django is ready by then."""
    from scheduling import tasks  # noqa: PLC0415 - imported late: they need Django's apps
    from scheduling.controllers.declaration import beat_schedule, controllers, task_name, task_routes  # noqa: PLC0415

    app.conf.beat_schedule = beat_schedule(controllers())
    app.conf.task_routes = task_routes(controllers())
    for controller in controllers():
        if task_name(controller.name) not in app.tasks:
            tasks.register(app, controller)


import_modules.connect(_declare, weak=False)


def send(task: str) -> None:
    """Put a message for the task of that name on its way, unless one is."""
    app.tasks[task].apply_async()


class Dispatching(bootsteps.StartStopStep):  # type: ignore[misc]  # as above
    """The worker's dispatcher; starts once the pool can take tasks."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._dispatcher: Any = None

    def start(self, worker: Any) -> None:  # noqa: ARG002 - Celery's signature
        from scheduling import tasks  # noqa: PLC0415 - as above

        claim = tasks.claim_among_processes if app.conf.broker_url.startswith("redis") else tasks.claim_alone
        self._dispatcher = tasks.Dispatcher(send, claim)
        self._dispatcher.start()

    def stop(self, worker: Any) -> None:  # noqa: ARG002
        if self._dispatcher is not None:
            self._dispatcher.stop()
            from scheduling import heartbeats  # noqa: PLC0415 - as above

            heartbeats.stop()


app.steps["worker"].add(Dispatching)
