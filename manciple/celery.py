"""The Celery application, its broker within one process, and the threads of its workers.

Tasks carry no objects: a message only says "reconcile", the database is the truth. What Celery knows of the controllers
(tasks, routes, beat's schedule) is made of their declarations once Django is ready. Every worker, the embedded one too,
runs a dispatcher beside its tasks: it turns commits into wake-ups, which become messages unless the worker that hears
of the commit has nothing to do.

Within one process messages pass between its threads, and whoever waits for one is woken by it. kombu's own transport
for that asks again and again, a hundred times a second if messages are not to lie there: a third of what a resting
system would cost.

A worker has some threads for each queue, so that sweeps never occupy those that schedule, nor the other way. It fetches
few messages that it cannot begin yet (Celery's prefetch), whatever their queue. Those of the sweeps are acknowledged
when they are handed over, not when they begin: they take up none of these places, and however long a sweep runs, the
messages that schedule go on coming in. At most one message a controller is on its way
(`manciple.controllers.coordination`), so what waits here is short; losing it with the process costs one interval.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from queue import Empty
from typing import Any

import click
from celery import Celery, bootsteps
from celery.beat import Service
from celery.concurrency.base import apply_target
from celery.concurrency.thread import ApplyResult
from celery.concurrency.thread import TaskPool as ThreadTaskPool
from celery.fixups.django import DjangoFixup, DjangoWorkerFixup
from celery.signals import beat_init, import_modules
from django.db import close_old_connections
from kombu.entity import Queue as BrokerQueue
from kombu.transport import TRANSPORT_ALIASES, memory

from manciple import collector, frames, layout
from manciple.controllers.declaration import Queue
from manciple.telemetry import metrics, processes

log = logging.getLogger(__name__)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manciple.settings")
frames.make_room_in_threads()  # `celery worker` runs none of our own entry points

# The broker -----------------------------------------------------------------------------------------------------------


#: What broker URLs begin with.
SCHEME = "in-process"
#: Seconds after which somebody who waits looks again, whatever he has heard.
LONGEST_WAIT = 1.0


class _News:
    """Counts what has happened that could end a wait, so that nobody who looked before it waits for the next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def tell(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def count(self) -> int:
        with self._changed:
            return self._count

    def wait_beyond(self, count: int, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._count != count, seconds)


_news = _News()


class InProcessChannel(memory.Channel):
    """Tells of every message, and of every one that is done with: there may be room for another."""

    def _put(self, queue: str, message: Any, **more: Any) -> None:
        super()._put(queue, message, **more)  # type: ignore[no-untyped-call]  # kombu tells few types
        _news.tell()

    def basic_ack(self, delivery_tag: Any, multiple: bool = False) -> None:
        super().basic_ack(delivery_tag, multiple)  # type: ignore[no-untyped-call]  # as above
        _news.tell()


class Transport(memory.Transport):
    """Waits for messages without asking for them."""

    Channel = InProcessChannel
    driver_type = driver_name = SCHEME

    def drain_events(self, connection: Any, timeout: Any = None, **more: Any) -> None:  # noqa: ARG002 - kombu's signature
        """Deliver one message. Raises: TimeoutError where none comes within `timeout` seconds."""
        began = time.monotonic()
        while True:
            heard = _news.count()
            try:
                self.cycle.get(self._deliver, timeout=timeout)  # type: ignore[union-attr]  # made by the constructor
            except Empty:
                left = LONGEST_WAIT if timeout is None else timeout - (time.monotonic() - began)
                if left <= 0:
                    raise TimeoutError from None
                _news.wait_beyond(heard, min(left, LONGEST_WAIT))
            else:
                return


TRANSPORT_ALIASES[SCHEME] = f"{__name__}:Transport"  # so broker URLs may name it

# The threads ----------------------------------------------------------------------------------------------------------


#: Beside the worker's concurrency, which is the number of threads that schedule.
SWEEPING_THREADS = 2

Accept = Callable[[int, float], None]


class TaskPool(ThreadTaskPool):  # type: ignore[misc]  # Celery is untyped
    """Celery's threads, and a few of their own for the sweeps."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sweeping = ThreadPoolExecutor(SWEEPING_THREADS, thread_name_prefix="sweeping")
        self._guard = threading.Lock()
        #: tasks of the queue for scheduling that are not done
        self._scheduling = 0

    def take(self, work: Callable[[], object]) -> bool:
        """Do it in a thread of those that schedule, if all of them are idle. Returns whether it was taken."""
        with self._guard:
            if self._scheduling:
                return False
            self._scheduling = 1
        try:
            self._submit(work)
        except RuntimeError:
            return False
        return True

    def _submit(self, work: Callable[..., object], *args: Any) -> Future[Any]:
        """To the threads that schedule; it is counted already. Raises: RuntimeError where the pool is being shut down,
        or the system has no thread left.
        """
        try:
            future: Future[Any] = self.executor.submit(work, *args)
        except RuntimeError:
            self._done()
            raise
        future.add_done_callback(self._done)
        return future

    def _done(self, _future: object = None) -> None:
        with self._guard:
            self._scheduling -= 1

    def on_stop(self) -> None:
        self._sweeping.shutdown(cancel_futures=True)
        super().on_stop()

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Any = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Accept | None = None,
        **_: Any,
    ) -> ApplyResult:
        if _queue_of(args) == Queue.SWEEPS:
            if accept_callback is not None:
                accept_callback(os.getpid(), time.monotonic())
            return ApplyResult(self._sweeping.submit(apply_target, target, args, kwargs, callback, None))
        with self._guard:
            self._scheduling += 1
        return ApplyResult(self._submit(apply_target, target, args, kwargs, callback, accept_callback))


def _queue_of(args: Sequence[Any]) -> str | None:
    """args: (task, id, request, ...), as `celery.worker.request.Request.execute_using_pool` hands them over."""
    _task, _id, request, *_ = args
    queue: str | None = request["delivery_info"].get("routing_key")
    return queue


# The application ------------------------------------------------------------------------------------------------------


class WorkerFixup(DjangoWorkerFixup):  # type: ignore[misc]  # as above
    """A connection outlives a task as it outlives a request: until `CONN_MAX_AGE`, an error, or its server's end.

    Celery's own closes every connection before and after every task. To connect, to ask PostgreSQL's catalogues and to
    plan each statement anew cost a resting installation more than its tasks did.
    """

    def close_database(self, **_signal: object) -> None:
        close_old_connections()

    def validate_models(self) -> None:
        """Django's checks are for those who change the program, and load every page and template: 11 MiB a process."""
        self.django_setup()


class Fixup(DjangoFixup):  # type: ignore[misc]  # as above
    """Celery's own, with connections that stay."""

    @cached_property
    def worker_fixup(self) -> WorkerFixup:
        return WorkerFixup(self.app)


def _fixup(app: Celery) -> Fixup:
    made: Fixup = Fixup(app).install()
    return made


app = Celery("manciple", fixups=[_fixup])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [BrokerQueue(queue.value) for queue in Queue]
app.conf.task_default_queue = Queue.SCHEDULING.value


def _declare(**_signal: object) -> None:
    """Called after Celery's own receivers: Django is ready by then."""
    from manciple.controllers import tasks  # noqa: PLC0415 - imported late: they need Django's apps
    from manciple.controllers.declaration import beat_schedule, controllers, task_name, task_routes  # noqa: PLC0415

    app.conf.beat_schedule = beat_schedule(controllers())
    app.conf.task_routes = task_routes(controllers())
    for controller in controllers():
        if task_name(controller.name) not in app.tasks:
            tasks.register(app, controller)


import_modules.connect(_declare, weak=False)


_BEATS = metrics.one_gauge("manciple_beat_running", "Whether the process has a beat, leading or not.")


def _begin(role: processes.Role) -> None:
    """Tell the metrics of this process (nothing where it is another role as well, which comes first)."""
    from django.conf import settings  # noqa: PLC0415 - as above

    version, listen = layout.version(), settings.METRICS_LISTEN
    processes.begin(role, version=version, redis_url=settings.REDIS_URL, listen=listen, **settings.TRACES)


def _begin_beat(**_signal: object) -> None:
    _begin("beat")
    _BEATS.set(1)


beat_init.connect(_begin_beat, weak=False)


def wake(pool: Any, name: str) -> None:
    """Have the task of that name done: by this process if it is not scheduling anything else, otherwise by a message,
    unless one is on its way. A message through Redis often costs more than the work itself.
    """
    task = app.tasks[name]
    by_itself = isinstance(pool, TaskPool) and task.controller.queue is Queue.SCHEDULING
    if not (by_itself and pool.take(partial(_do, task))):
        task.apply_async()


def _do(task: Any) -> None:
    """As Celery does one of its tasks."""
    try:
        close_old_connections()
        task.do()
    except Exception:
        log.exception("task %s failed; its periodic run will repeat it", task.name)
    finally:
        close_old_connections()


class Dispatching(bootsteps.StartStopStep):  # type: ignore[misc]  # as above
    """The worker's dispatcher; starts once the pool can take tasks."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._dispatcher: Any = None

    def start(self, worker: Any) -> None:
        from manciple.controllers import coordination, metrics, tasks  # noqa: PLC0415 - as above

        metrics.tell_waiting(tasks.waiting_messages)
        _begin("worker")
        collector.settle()
        among = coordination.wakeups()
        self._dispatcher = tasks.Dispatcher(partial(wake, worker.pool), among.claim, among.claimed)
        self._dispatcher.start()

    def stop(self, worker: Any) -> None:  # noqa: ARG002
        if self._dispatcher is not None:
            self._dispatcher.stop()
            from manciple.controllers import coordination  # noqa: PLC0415 - as above

            coordination.stop_heart()
            processes.end()


#: Seconds that a beat takes to end, at most, and until one that failed begins again.
BEAT_ENDS, BEAT_BEGINS_AGAIN = 3.0, 5.0


class Beating(bootsteps.StartStopStep):  # type: ignore[misc]  # as above
    """Beat in a thread of the worker, by `--with-beat`: a process less, which would hold all that the worker holds.
    Of all beats one leads (`manciple.beat`), so every worker may have one.
    """

    requires = (Dispatching,)

    def __init__(self, worker: Any, with_beat: bool = False, **options: Any) -> None:
        super().__init__(worker, **options)
        self.enabled = with_beat
        self._ended = threading.Event()
        self._service: Any = None
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)

    def start(self, worker: Any) -> None:  # noqa: ARG002
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._service = Service(app, max_interval=1, scheduler_cls=app.conf.beat_scheduler)
            if self._ended.is_set():  # whoever ended it may have looked before that line
                return
            try:
                self._service.start()
            except Exception:
                log.exception("beat failed; it begins again in %.0f s", BEAT_BEGINS_AGAIN)
                self._ended.wait(BEAT_BEGINS_AGAIN)
            finally:
                _BEATS.set(0)

    def stop(self, worker: Any) -> None:  # noqa: ARG002
        self._ended.set()
        if self._service is not None:
            self._service.stop(wait=False)
            self._thread.join(BEAT_ENDS)


app.steps["worker"].update((Dispatching, Beating))
app.user_options["worker"].add(
    click.Option(["--with-beat"], is_flag=True, help="Beat as well, as `beat` does: of several, one leads.")
)
