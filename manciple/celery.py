"""The Celery application: `celery -A manciple worker`, `celery -A manciple beat`.

Tasks, routes and beat's schedule are made from the controllers' declarations (`manciple.controllers.tasks`). Transport,
pool and Django fixup are Celery's own; beat's scheduler and one method of the consumer are ours (`manciple.beat` and
`manciple.consumer` say why). A worker has two steps of ours: the dispatcher, which turns commits into wake-ups, and
with `--with-beat` a beat in a thread.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click
from celery import Celery, bootsteps, signals
from celery.beat import EmbeddedService
from kombu.entity import Queue as BrokerQueue

from manciple import collector, frames, layout
from manciple.controllers.declaration import Queue
from manciple.telemetry import processes
from manciple.telemetry.metrics import one_gauge

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
    from manciple.controllers.declaration import beat_schedule, controllers, task_name, task_routes  # noqa: PLC0415

    app.conf.beat_schedule = beat_schedule(controllers.value)
    app.conf.task_routes = task_routes(controllers.value)
    for controller in controllers.value:
        if task_name(controller.name) not in app.tasks:
            tasks.register(app, controller)


# Metrics --------------------------------------------------------------------------------------------------------------


_BEATS = one_gauge("manciple_beat_running", "Whether the process has a beat, leading or not.")


def _begin(role: processes.Role) -> None:
    """Publish the metrics of this process. Does nothing if it has another role already."""
    from django.conf import settings  # noqa: PLC0415 - as above

    version, listen = layout.version(), settings.METRICS_LISTEN
    processes.begin(role, version=version, redis_url=settings.REDIS_URL, listen=listen, **settings.TRACES)


@signals.beat_init.connect(weak=False)  # type: ignore[untyped-decorator]  # as above
def begin_beat(**_signal: object) -> None:
    _begin("beat")
    _BEATS.set(1)


# Steps of a worker ----------------------------------------------------------------------------------------------------


class Dispatching(bootsteps.StartStopStep):  # type: ignore[misc]  # as above
    """The worker's dispatcher."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._dispatcher: Any = None

    def start(self, worker: Any) -> None:  # noqa: ARG002
        from manciple.controllers import tasks  # noqa: PLC0415 - as above

        tasks.tell_waiting(tasks.waiting_messages)
        _begin("worker")
        collector.settle()
        self._dispatcher = tasks.Dispatcher(partial(tasks.wake, app), partial(tasks.send, app))
        self._dispatcher.start()

    def stop(self, worker: Any) -> None:  # noqa: ARG002
        if self._dispatcher is not None:
            from manciple.controllers import coordination, tasks  # noqa: PLC0415 - as above

            self._dispatcher.stop()
            tasks.lanes.reset()
            coordination.stop_heart()
            processes.end()


#: Seconds that a beat may take to stop.
BEAT_STOPS = 3.0


class Beating(bootsteps.StartStopStep):  # type: ignore[misc]  # as above
    """Beat in a thread of the worker, by `--with-beat`: 120 MiB less than a process of its own, and the embedded system
    needs it, because its broker is the memory of the process. Celery's `--beat` forks a process.
    """

    requires = (Dispatching,)

    def __init__(self, worker: Any, with_beat: bool = False, **options: Any) -> None:
        super().__init__(worker, **options)
        self.enabled = with_beat
        self._beat: Any = None

    def start(self, worker: Any) -> None:  # noqa: ARG002
        self._beat = EmbeddedService(app, thread=True, scheduler_cls=app.conf.beat_scheduler)
        self._beat.start()

    def stop(self, worker: Any) -> None:  # noqa: ARG002
        if self._beat is not None:
            self._beat.service.stop(wait=False)
            self._beat.join(BEAT_STOPS)
            _BEATS.set(0)


app.steps["worker"].update((Dispatching, Beating))
app.user_options["worker"].add(
    click.Option(["--with-beat"], is_flag=True, help="Beat as well, as `beat` does: of several, one leads.")
)
