"""The Celery application: `celery -A manciple worker`.

Tasks and routes are made from the controllers' declarations (`manciple.controllers.tasks`). Transport, pool, consumer
and Django fixup are Celery's own. A worker has one step of ours: the dispatcher, which turns commits into wake-ups and
keeps the controllers' intervals. So there is no beat; what started one in earlier versions still starts.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import Any

import click
from celery import Celery, bootsteps, signals
from kombu.entity import Queue as BrokerQueue

from manciple import frames, layout, memory
from manciple.controllers.declaration import Queue
from manciple.telemetry import processes

log = logging.getLogger(__name__)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")  # Django's checks load every page and template: 11 MiB a process
frames.make_room_in_threads()  # `celery worker` runs none of our own entry points

app = Celery("manciple")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [BrokerQueue(queue.value) for queue in Queue]
app.conf.task_default_queue = Queue.SCHEDULING.value


@signals.import_modules.connect(weak=False)  # type: ignore[untyped-decorator]  # Celery is untyped
def declare(**_signal: object) -> None:
    """Runs after Celery's own receiver, which sets Django up."""
    from manciple.controllers import tasks  # noqa: PLC0415 - imported late: they need Django's apps
    from manciple.controllers.declaration import controllers, task_name, task_routes  # noqa: PLC0415

    app.conf.task_routes = task_routes(controllers.value)
    for controller in controllers.value:
        if task_name(controller.name) not in app.tasks:
            tasks.register(app, controller)


class Dispatching(bootsteps.StartStopStep):  # type: ignore[misc]  # as above
    """The worker's dispatcher."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._dispatcher: Any = None

    def start(self, worker: Any) -> None:  # noqa: ARG002
        from django.conf import settings  # noqa: PLC0415 - as above

        from manciple.controllers import tasks  # noqa: PLC0415 - as above

        tasks.tell_waiting(tasks.waiting_messages)
        # A process that has another role already keeps it.
        version, listen = layout.version(), settings.METRICS_LISTEN
        processes.begin("worker", version=version, redis_url=settings.REDIS_URL, listen=listen, **settings.TRACES)
        memory.settle()
        self._dispatcher = tasks.Dispatcher(partial(tasks.wake, app), partial(tasks.wake_in_time, app))
        self._dispatcher.start()

    def stop(self, worker: Any) -> None:  # noqa: ARG002
        if self._dispatcher is not None:
            from manciple.controllers import coordination, tasks  # noqa: PLC0415 - as above

            self._dispatcher.stop()
            tasks.lanes.reset()
            coordination.stop_heart()
            processes.end()


app.steps["worker"].add(Dispatching)

# What units of earlier versions start ---------------------------------------------------------------------------------

_NO_BEAT = "workers keep the intervals themselves"
app.user_options["worker"].add(
    click.Option(["--with-beat"], is_flag=True, expose_value=False, help=f"Does nothing: {_NO_BEAT}.")
)
app.conf.beat_scheduler = "celery.beat:Scheduler"  # Celery's default keeps a file in the working directory
app.conf.result_expires = None  # else beat would have results cleared away, of which there are none


@signals.beat_init.connect(weak=False)  # type: ignore[untyped-decorator]  # as above
def tell_that_beat_is_idle(**_signal: object) -> None:
    log.warning("beat has nothing to do: %s; remove what starts it (unit manciple-beat)", _NO_BEAT)
