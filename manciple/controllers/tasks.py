"""The controllers as Celery tasks, and the dispatcher, which turns "revision N exists" into wake-ups.

Each declared controller (`manciple.controllers.declaration`) has a task, which may run in any number of workers at
once; of a singleton's runs, all but one return at once, and the one that works looks again when it is done. A message
only says "reconcile": it carries nothing, and losing one costs the controller's interval.

The dispatcher is a thread of each worker process (`manciple.celery` starts it). It hears announcements of commits,
reads from the log which resources changed, and wakes the controllers that these changes concern, except those whose
query finds nothing to do (`has_work`). Controllers with `patience` are woken later. Then the dispatcher rests, so that
a burst of commits becomes few runs: briefly at first, longer while pods keep coming, so that a cycle and its commit
take many pods. Changes that wake no controller (a renewed Lease, an Event) do not reach it. Of several processes, the
first to claim a stretch of the log wakes for it, and the others wait for a moment and then go on after it. A committing
thread only hands over a number; a broker that is away costs a line in the log, and the periodic runs make up for it.

A controller of the scheduling queue runs in the process that wakes it, without a message, if nothing else of that queue
runs there (`ControllerTask.wake`). With messages only, one pod in a hundred waits twice as long for its node
(docs/evidence/benchmarks.md), and the embedded system, which looks for messages ten times a second, places each pod
later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

from celery import Celery, Task
from celery.signals import worker_process_shutdown
from celery.utils import uuid
from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from kombu.exceptions import KombuError
from prometheus_client.core import Metric

from manciple.controllers import coordination
from manciple.controllers.coordination import Tasks, looked_after, utc_now
from manciple.controllers.declaration import (
    ANY,
    BOUND,
    DELETING,
    FINISHED,
    Change,
    Controller,
    Queue,
    controllers,
    task_name,
)
from manciple.per_process import PerProcess
from manciple.store import event_log, sql
from manciple.store.event_log import Sketch, Stretch, since
from manciple.telemetry import metrics
from manciple.wire.resources import ADDED, DELETED, EVENTS, FINISHED_PHASES, LEASES, MODIFIED, PODS

log = logging.getLogger(__name__)

#: The header of a message that says when it was sent, in seconds since 1970.
SENT = "manciple_sent"
#: How often a controller that was asked again runs on one message.
MOST_IN_A_ROW = 20

# Metrics of the work queues -------------------------------------------------------------------------------------------

# By kube-controller-manager's names, for what exists here: a queue holds one message at most, "reconcile". Sources:
# client-go/util/workqueue (component-base/metrics/prometheus/workqueue).

_SECONDS = metrics.exponential(0.0001, 10, 6)
_ADDS = metrics.counter("workqueue_adds_total", "Messages sent to a controller.", "name")
_RETRIES = metrics.counter("workqueue_retries_total", "Failed runs of a controller, which are repeated.", "name")
_WAITS = metrics.histogram(
    "workqueue_queue_duration_seconds", "Time from sending a message to processing it.", "name", buckets=_SECONDS
)
_WORK = metrics.histogram(
    "workqueue_work_duration_seconds", "Duration of one run of a controller.", "name", buckets=_SECONDS
)

_guard = threading.Lock()
#: (name, thread) -> since when it runs
_running: dict[tuple[str, int], float] = {}
#: name of a controller as metrics have it -> whether a message for it waits; set by who knows
Waiting = Callable[[], Mapping[str, bool]]
_waiting = PerProcess[Waiting](lambda: dict)


@contextmanager
def working(name: str) -> Iterator[None]:
    """Around one run."""
    key, began = (name, threading.get_ident()), time.monotonic()
    with _guard:
        _running[key] = began
    try:
        yield
    except BaseException:
        _RETRIES[name].inc()
        raise
    finally:
        with _guard:
            del _running[key]
        _WORK[name].observe(time.monotonic() - began)


def tell_waiting(waiting: Waiting) -> None:
    """Where the depth of the queues is read. Of this process; the last one who says so."""
    _waiting.value = waiting


def _of_queues() -> Iterable[Metric]:
    depths = {name: float(one) for name, one in _waiting.value().items()}
    now = time.monotonic()
    with _guard:
        running = dict(_running)
    unfinished, longest = dict.fromkeys(depths, 0.0), dict.fromkeys(depths, 0.0)
    for (name, _), began in running.items():
        unfinished[name] = unfinished.get(name, 0.0) + now - began
        longest[name] = max(longest.get(name, 0.0), now - began)
    label = ("name",)
    yield metrics.gauges("workqueue_depth", "Messages that wait for a thread.", label, metrics.by_one(depths))
    yield metrics.gauges(
        "workqueue_unfinished_work_seconds",
        "Total duration so far of the unfinished runs.",
        label,
        metrics.by_one(unfinished),
    )
    yield metrics.gauges(
        "workqueue_longest_running_processor_seconds",
        "Duration so far of the longest unfinished run.",
        label,
        metrics.by_one(longest),
    )


metrics.OnDemand(_of_queues)

# Work -----------------------------------------------------------------------------------------------------------------


def work(controller: Controller) -> bool:
    """Let it reconcile once, which is a sign of life. Returns whether it should be asked again soon."""
    with coordination.heart.value.running(), working(controller.queue_name), ExitStack() as kept:
        unfinished = _reconcile_alone(controller, kept) if controller.singleton else _reconcile(controller)
        if unfinished is None:
            return False
        if controller.then is not None:
            if unfinished:  # whoever asked meanwhile does not wait for what comes next
                unfinished = _reconcile_alone(controller, kept)
            controller.then(utc_now())
        return bool(unfinished) or controller.has_more()


def _reconcile_alone(controller: Controller, kept: ExitStack) -> bool | None:
    """Returns whether there is more to do; None where another worker is at it, which looks again when it is done."""
    for _attempt in range(2):
        with coordination.alone(controller.name) as ours:
            if ours:
                unfinished = _reconcile(controller)
                kept.enter_context(controller.keeping())
        if ours:
            return unfinished or coordination.wakeups.value.asked_again(controller.name)
        # Whoever is at work asks after us when it has let go; if it just did both, the second attempt succeeds.
        coordination.wakeups.value.ask_again(controller.name)
    return None


def _reconcile(controller: Controller) -> bool:
    """Returns whether there may be more to do than one run does."""
    changed = controller.reconcile(utc_now())
    return 0 < controller.most_per_turn <= changed


#: Runs of one queue at once in a worker process.
THREADS_OF_A_QUEUE = 2


class Run(Protocol):
    """What a lane runs: a `ControllerTask`."""

    name: str

    def work(self) -> None: ...


class Lane:
    """The runs of one queue in this process: so many at once, whatever the threads of Celery's pool.

    A run that finds the lane occupied waits here, without a thread: the threads of the other queue stay free, and the
    message counts as taken up, so that Celery goes on fetching.
    """

    def __init__(self, most: int = THREADS_OF_A_QUEUE) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._running = 0
        self._waiting: deque[Run] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="woken")

    def run(self, task: Run) -> None:
        """Run it in this thread, or leave it to the next thread of the lane that is done."""
        with self._guard:
            if self._running >= self._most:
                self._waiting.append(task)
                return
            self._running += 1
        self._run(task)

    def run_directly(self, task: Run) -> bool:
        """Run it in a thread of the lane's own, if nothing runs in the lane. Returns whether it will be run."""
        with self._guard:
            if self._running:
                return False
            self._running = 1
        try:
            self._thread.submit(self._run, task)
        except RuntimeError:  # the process ends, or has no thread left
            with self._guard:
                self._running -= 1
            return False
        return True

    def stop(self) -> None:
        """Drop what waits, and wait for what the lane's own thread runs."""
        with self._guard:
            self._waiting.clear()
        self._thread.shutdown()

    def _run(self, first: Run) -> None:
        """Run this one, then those that have come meanwhile."""
        task: Run | None = first
        while task is not None:
            try:
                close_old_connections()
                task.work()
                close_old_connections()
            except Exception:
                log.exception("task %s failed; its periodic run will repeat it", task.name)
            except BaseException:  # the worker ends
                with self._guard:
                    self._running -= 1
                raise
            with self._guard:
                task = self._waiting.popleft() if self._waiting else None
                if task is None:
                    self._running -= 1


def _stop(lanes: dict[Queue, Lane]) -> None:
    for lane in lanes.values():
        lane.stop()


lanes = PerProcess(lambda: {queue: Lane() for queue in Queue}, stop=_stop)


class ControllerTask(Task):  # type: ignore[misc]  # Celery is untyped
    """Sends at most one message at a time, whoever asks (see `manciple.controllers.coordination`)."""

    abstract = True
    controller: Controller

    def run(self) -> None:
        message, sent = self.request.id or "", (self.request.headers or {}).get(SENT)
        if sent is not None:
            _WAITS[self.controller.queue_name].observe(max(0.0, time.time() - sent))  # two clocks may differ a little
        if not message or coordination.wakeups.value.leave(self.controller.name, message):
            lanes.value[self.controller.queue].run(self)

    def wake(self) -> None:
        """Run without a message where nothing else is scheduled in this process, else send a message."""
        controller = self.controller
        if controller.queue is Queue.SCHEDULING and lanes.value[controller.queue].run_directly(self):
            _ADDS[controller.queue_name].inc()
            _WAITS[controller.queue_name].observe(0.0)
        else:
            self.apply_async()

    def work(self) -> None:
        # Whoever waits for scheduling need not wait for another message; a sweep lets the others have its thread.
        for _ in range(MOST_IN_A_ROW if self.controller.queue is Queue.SCHEDULING else 1):
            if not work(self.controller):
                return
            if self.controller.has_more():
                break
        self.apply_async()

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
        message, controller = task_id or uuid(), self.controller
        if not coordination.wakeups.value.enter(controller.name, message, controller.pending_for):
            return None
        options.setdefault("expires", controller.pending_for)
        options["headers"] = {**(options.get("headers") or {}), SENT: time.time()}
        _ADDS[controller.queue_name].inc()
        try:
            return super().apply_async(args, kwargs, task_id=message, **options)
        except BaseException:
            coordination.wakeups.value.leave(controller.name, message)
            raise


def register(app: Celery, controller: Controller) -> ControllerTask:
    """Make it a task of `app`."""
    members = {"name": task_name(controller.name), "controller": controller, "ignore_result": True}
    made: ControllerTask = app.register_task(type(controller.name, (ControllerTask,), members)())
    return made


def wake(app: Celery, task: str) -> None:
    """Wake the controller whose task has that name."""
    app.tasks[task].wake()


def run(name: str) -> None:
    """What a worker does when it takes up a message for the controller of that name."""
    (controller,) = (one for one in controllers.value if one.name == name)
    while work(controller):
        pass


def _process_ends(**_signal: object) -> None:
    """A forked worker process that ends on purpose is not missed."""
    coordination.stop_heart()


worker_process_shutdown.connect(_process_ends)


def waiting_messages() -> dict[str, bool]:
    """By the name of its work queue: whether a message for a controller is on its way."""
    queues = {controller.name: controller.queue_name for controller in controllers.value}
    waiting = coordination.wakeups.value.waiting(queues)
    return {queue: name in waiting for name, queue in queues.items()}


# Wake-ups -------------------------------------------------------------------------------------------------------------


#: Seconds between two questions to the log, the least and the most: at most one run of a controller for each.
RESTING_TIME = (0.003, 0.3)
#: Changes that the last question may find before the next rest grows (a pod on its way to a node is five), and seconds
#: of rest for each beyond: from some 250 changes a second on, rests are long.
FEW_CHANGES = 10
REST_FOR_A_CHANGE = 0.004
#: So many are worth gathering, even if no pod is among them.
MANY_CHANGES = 100
#: The longest rest where few pods come, and the part of a longer one that each that comes is worth: what else happens,
#: though it be thousands of changes, holds them up no longer.
SHORT_REST, REST_FOR_A_POD = 0.1, 0.02
#: The longest rest where pods come in bursts, and how many times as long as the last pods took to come another may be.
REST_AFTER_A_BURST, REST_FOR_A_STREAM = 0.015, 4.0
#: Seconds that a dispatcher gives to the one that claimed the last stretch, before it looks at the log as well.
GIVING_WAY = 0.03
#: Seconds of waiting after the database or the broker failed.
RETRY_AFTER = 1.0
#: What owns nothing and is in nobody's way: that such an object went is no deletion like any other.
TRANSIENT = frozenset({EVENTS, LEASES})
#: Commits whose moments a dispatcher knows.
REVISIONS_REMEMBERED = 256
#: Changes that are told apart; when there are more, every controller that anything wakes is sent a message.
MOST_CHANGES = 2000

Send = Callable[[str], None]


def change_of(sketch: Sketch) -> Change:
    """(resource, what happened to it)."""
    change: str = sketch.type
    if change == MODIFIED:
        if sketch.deleting:
            change = DELETING
        fields = sketch.fields
        if fields.get("status.phase") in FINISHED_PHASES:
            change = FINISHED
        elif change == MODIFIED and fields.get("spec.nodeName"):
            change = BOUND
    return sketch.resource, change


class WakeTable:
    """Which changes wake which controllers, as these declare it."""

    def __init__(self, declared: Iterable[Controller]) -> None:
        self._declared = tuple(declared)
        #: the names of those that anything wakes
        self.woken = [one.name for one in self._declared if one.wakes_on]
        self.patience = {one.name: one.patience for one in self._declared}
        #: the resources that somebody cares for
        self.resources = frozenset(resource for one in self._declared for resource, _ in one.wakes_on) - {ANY}
        #: the changes after a position that may concern a controller. Raises: Expired
        self.read: Callable[[int], Stretch[Sketch]] = partial(
            event_log.sketches_after, resources=self.resources, limit=MOST_CHANGES
        )

    def concerned(self, changes: Collection[Change]) -> list[str]:
        """The names of the controllers that these changes concern."""
        told = set(changes)
        if any(change == DELETED and resource not in TRANSIENT for resource, change in changes):
            told.add((ANY, DELETED))
        found = [one for one in self._declared if one.wakes_on & told]
        covered = frozenset[str]().union(*(one.covers for one in found))
        return [one.name for one in found if one.name not in covered]

    def with_work(self, names: Collection[str]) -> list[str]:
        """Those of them that have something to do, as far as they can tell by a query."""
        questions = {one.name: one.has_work for one in self._declared if one.name in names and one.has_work}
        if not questions:
            return list(names)
        answers = sql.fetch_together(list(questions.values()))
        idle = {name for name, ((found,),) in zip(questions, answers, strict=True) if not found}
        return [name for name in names if name not in idle]

    def concerned_by(self, stretch: Stretch[Sketch]) -> dict[str, bool]:
        """The same for a stretch of the log, without those that look at it by themselves; and whether each surely has
        something to do.
        """
        if stretch.more:
            return dict.fromkeys(self.woken, False)
        changes: dict[Tasks, set[Change]] = {}
        for sketch in stretch.changes:
            changes.setdefault(looked_after.value.by(sketch.revision), set()).add(change_of(sketch))
        wanted = {name for looking, found in changes.items() for name in self.concerned(found) if name not in looking}
        told = frozenset[Change]().union(*changes.values())
        return {one.name: bool(one.is_work & told) for one in self._declared if one.name in wanted}


def longest_rest(changes: int, pods: int) -> float:
    """The most seconds until the next question, after one that found so many changes, of which so many pods came."""
    least, most = RESTING_TIME
    longest = min(most, max(SHORT_REST, REST_FOR_A_POD * pods))
    return min(max(least, REST_FOR_A_CHANGE * (changes - FEW_CHANGES)), longest)


class Rests:
    """How long a dispatcher rests after each question: longer while there is something to gather, question by question.

    A rest pays where more comes meanwhile. Of a few pods that came at once it only delays the first, so the first rest
    is short whatever was found; it doubles with each question that found pods, or many changes, and halves with others.
    Whoever waits for their pods before they create others sends them in bursts, as far apart as the rests are long: so
    a rest is only a few times as long as it took those to come that the last question found.
    """

    def __init__(self) -> None:
        self._grown = RESTING_TIME[0]
        #: (revision, when it was heard of), ascending
        self._heard: deque[tuple[int, float]] = deque(maxlen=REVISIONS_REMEMBERED)

    def hear(self, revision: int, now: float) -> None:
        """Of a commit, at a moment of the monotonic clock."""
        if not self._heard or revision > self._heard[-1][0]:
            self._heard.append((revision, now))

    def after(self, changes: Sequence[Sketch]) -> float:
        """Seconds until the next question, after one that found these."""
        least, most = RESTING_TIME
        pods = [one.revision for one in changes if one.resource == PODS and one.type == ADDED]
        gathers = pods or len(changes) >= MANY_CHANGES
        rest = self._grown
        self._grown = min(rest * 2, most) if gathers else max(rest / 2, least)
        longest = longest_rest(len(changes), len(pods))
        if pods:
            longest = min(longest, max(REST_AFTER_A_BURST, self._took(pods[0], pods[-1]) * REST_FOR_A_STREAM))
        return min(rest, longest)

    def _took(self, first: int, last: int) -> float:
        """Seconds between two revisions, as far as they were heard of."""
        began, ended = (next((at for revision, at in self._heard if revision >= one), None) for one in (first, last))
        return 0.0 if began is None or ended is None else ended - began


#: Of the only dispatcher there is.
ALONE = coordination.LocalWakeups()


class Dispatcher:
    """The thread. `send(task name)` has a controller run once, here or by a message; `claim(revision)` says whether to
    send up to there, `claimed()` how far somebody has.

    Among several, the one whose claim succeeded looks at the log at once; the others leave it to that one for a moment.
    """

    def __init__(
        self,
        send: Send,
        claim: Callable[[int], bool] = ALONE.claim,
        claimed: Callable[[], int] = ALONE.claimed,
        declared: Iterable[Controller] | None = None,
    ) -> None:
        self._send = send
        self._claim, self._claimed = claim, claimed
        self._leads = True
        self._ours = 0  # up to which revision the claim succeeded: what was not sent then is sent in the next attempt
        self._declared = tuple(controllers.value if declared is None else declared)
        self._table = WakeTable(self._declared)
        self._tasks = {controller.name: task_name(controller.name) for controller in self._declared}
        self._news = threading.Condition()
        self._heard = True  # of something that was not looked at yet; at the start, of everything
        self._newest = 0  # revision that was heard of
        self._rests, self._rest = Rests(), RESTING_TIME[0]
        #: whom changes wake a while later (`Controller.patience`), and at which moment of the monotonic clock
        self.due: dict[str, float] = {}
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Wake everybody once (something may have been left undone), then whom changes concern."""
        self._stopping = False
        self._unsubscribe = event_log.subscribe(self._hear, ignoring=TRANSIENT - self._table.resources)
        self._thread = threading.Thread(target=self._run, name="dispatch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._unsubscribe()
        with self._news:
            self._stopping = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(RETRY_AFTER * 2)

    def _hear(self, revision: int = 0) -> None:
        with self._news:
            self._heard, self._newest = True, max(revision, self._newest)
            self._rests.hear(revision, time.monotonic())
            self._news.notify_all()

    def _run(self) -> None:
        position: int | None = None
        while self._wait():
            try:
                if self._take_news():
                    position = self._done_by_another(position) or self._look(position)
                self._wake_patient()
            except (DatabaseError, InterfaceError, KombuError, OSError):
                log.exception("could not send wake-ups")
                connection.close()
                self._hear()
                self._pause(RETRY_AFTER)
            self._pause(self._rest)
        self._wake_before_the_end()
        connection.close()

    def _wake_before_the_end(self) -> None:
        """Those with patience: nobody else knows of what this process has claimed."""
        try:
            self._wake(self.due)
        except (KombuError, OSError):
            log.warning("wake-ups are left to the periodic runs: %s", ", ".join(self.due), exc_info=True)

    def _wait(self) -> bool:
        """Wait until there is something to look at; False when it is time to stop."""
        with self._news:
            left = min(self.due.values()) - time.monotonic() if self.due else None
            self._news.wait_for(lambda: self._stopping or self._heard, timeout=left)
        return not self._stopping

    def _take_news(self) -> bool:
        """Whether something was heard of since the last time."""
        with self._news:
            heard, self._heard = self._heard, False
        return heard

    def _pause(self, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._stopping, timeout=seconds)

    def _done_by_another(self, position: int | None) -> int | None:
        """How far somebody else has sent, where that is as far as this one has heard of."""
        if self._leads or position is None:
            return None
        self._pause(GIVING_WAY)
        reached = self._claimed()
        return reached if reached >= self._newest > 0 else None

    def _look(self, position: int | None) -> int:
        """Send the wake-ups for what came after `position`; returns the new one."""
        stretch = since(position, self._table.read)
        if stretch is None:
            latest = event_log.latest_revision()
            self._forget()
            self._wake(one.name for one in self._declared)
            return latest
        with self._news:
            self._rest = self._rests.after(stretch.changes)
        if stretch.changes:
            newest = stretch.changes[-1].revision
            self._leads = newest == self._ours or self._claim(newest)
            if self._leads:
                self._ours = newest
                self._wake_concerned(self._table.concerned_by(stretch))
        return stretch.revision

    def _forget(self) -> None:
        """What was heard of revisions: the log may be that of a database that was set back."""
        with self._news:
            self._newest, self._ours, self._rests = 0, 0, Rests()

    def _wake_concerned(self, concerned: dict[str, bool]) -> None:
        """concerned: of each, whether it surely has something to do. When those with patience are due is noted."""
        now = time.monotonic()
        for name in concerned:
            if patience := self._table.patience[name]:
                self.due.setdefault(name, now + patience)
        urgent = {name: sure for name, sure in concerned.items() if not self._table.patience[name]}
        self._wake(name for name, sure in urgent.items() if sure)
        self._wake(self._table.with_work([name for name, sure in urgent.items() if not sure]))

    def _wake_patient(self) -> None:
        """Wake those whose time has come, where there still is something to do."""
        now = time.monotonic()
        due = [name for name, at in self.due.items() if at <= now]
        if due:
            self._wake(self._table.with_work(due))
            for name in due:
                del self.due[name]

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            self._send(self._tasks[name])
