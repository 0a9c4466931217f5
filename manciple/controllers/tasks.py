"""The controllers as Celery tasks, and the dispatcher, which wakes those that a commit concerns.

Each declared controller (`manciple.controllers.declaration`) has a task, which may run in any number of workers at
once; of a singleton's runs, all but one return at once, and the one that works looks again when it is done. A message
only says "reconcile": it carries nothing, and losing one costs the controller's interval.

The dispatcher is a thread of each worker process (`manciple.celery` starts it); the one that holds a lock of the
database leads, and the others wait for that lock. It hears of each commit (`event_log.Announcement`) and wakes the
controllers that its changes concern, except those whose query finds nothing to do (`has_work`); controllers with
`patience` later. A controller that was just woken rests for a moment, so that a burst of commits becomes few runs. The
log is read once a second, for what was announced late or not at all.

A controller that a change concerns runs in the process that leads, without a message, unless another one has run there
for a while (`ControllerTask.wake`): a message costs about as much as placing a pod. It also wakes each controller once
in its interval, so a lost message costs no more than that; Celery's beat is not used. These wake-ups are messages to
whichever worker is free, but for controllers that pods wait for, and those whose last run here was short.

While Redis is away there are no messages and no announcements: the dispatcher reads the log three times a second, and
runs everything in its own process.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from celery import Celery, Task
from celery.signals import worker_process_shutdown
from celery.utils import uuid
from django.db import close_old_connections, connection
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
from manciple.store.event_log import Announcement, Stretch, since
from manciple.store.records import Sketch
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
    with coordination.heart.value.running(), working(controller.queue_name):
        unfinished = _reconcile_alone(controller) if controller.singleton else _reconcile(controller)
        return unfinished is not None and (unfinished or controller.has_more())


def _reconcile_alone(controller: Controller) -> bool | None:
    """Returns whether there is more to do; None where another worker is at it, which looks again when it is done."""
    for _attempt in range(2):
        with coordination.alone(controller.lock) as ours:
            if ours:
                unfinished = _reconcile(controller)
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
#: Seconds after which a run is not waited for: a message asks any worker.
SHORT_RUN = 0.1


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
        #: and when it began, by the monotonic clock
        self._running: list[tuple[Run, float]] = []
        self._waiting: deque[Run] = deque()
        #: of one thread each: while the first is free, the others and their connections rest
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix="woken") for _ in range(most)]
        self._free = set(range(most))

    def run(self, task: Run) -> None:
        """Run it in this thread, or leave it to the next thread of the lane that is done."""
        with self._guard:
            if len(self._running) >= self._most:
                self._waiting.append(task)
                return
            self._begin(task)
        self._run(task)

    def run_directly(self, task: Run, *, patience: float = SHORT_RUN) -> bool:
        """Run it in a thread of the lane's own, or after what runs in the lane. Returns whether it will be run: not
        where something has run there for more than `patience` seconds, unless these are endless.
        """
        with self._guard:
            if self._running:
                must_be_here = patience == math.inf
                last_began = max(began for _, began in self._running)
                is_short = time.monotonic() - last_began < (SHORT_RUN if must_be_here else patience)
                if not is_short and not must_be_here:
                    return False
                if is_short or self._runs(task) or len(self._running) >= self._most:
                    if task not in self._waiting:
                        self._waiting.append(task)
                    return True
                if task in self._waiting:  # behind what was short then
                    self._waiting.remove(task)
            self._begin(task)
            place = min(self._free)
            self._free.remove(place)
        try:
            self._threads[place].submit(self._run, task, place)
        except RuntimeError:  # the process ends, or has no thread left
            with self._guard:
                self._end(task, place)
            return False
        return True

    def stop(self) -> None:
        """Drop what waits, and wait for what the lane's own threads run."""
        with self._guard:
            self._waiting.clear()
        for thread in self._threads:
            thread.shutdown()

    def _begin(self, task: Run) -> None:
        self._running.append((task, time.monotonic()))

    def _run(self, first: Run, place: int | None = None) -> None:
        """Run this one, then those that have come meanwhile. place: of the lane's own thread, where this is one."""
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
                    self._end(task, place)
                raise
            with self._guard:
                self._end(task, None)
                task = next((one for one in self._waiting if not self._runs(one)), None)
                if task is not None:
                    self._waiting.remove(task)
                    self._begin(task)
                elif place is not None:
                    self._free.add(place)

    def _runs(self, task: Run) -> bool:
        return any(one is task for one, _ in self._running)

    def _end(self, task: Run, place: int | None) -> None:
        """place: of the thread that has nothing more to run."""
        self._running.remove(next(entry for entry in self._running if entry[0] is task))
        if place is not None:
            self._free.add(place)


def _stop(lanes: dict[Queue, Lane]) -> None:
    for lane in lanes.values():
        lane.stop()


lanes = PerProcess(lambda: {queue: Lane() for queue in Queue}, stop=_stop)


class ControllerTask(Task):  # type: ignore[misc]  # Celery is untyped
    """Sends at most one message at a time, whoever asks (see `manciple.controllers.coordination`)."""

    abstract = True
    controller: Controller
    #: seconds of its last run in this process
    took = 0.0

    def run(self) -> None:
        message, sent = self.request.id or "", (self.request.headers or {}).get(SENT)
        if sent is not None:
            _WAITS[self.controller.queue_name].observe(max(0.0, time.time() - sent))  # two clocks may differ a little
        if not message or coordination.wakeups.value.leave(self.controller.name, message):
            lanes.value[self.controller.queue].run(self)

    @property
    def needs_turn(self) -> bool:
        """Then only the process that leads can run it."""
        return coordination.TURN in (self.controller.lock, self.controller.also_locks)

    def wake(self) -> None:
        """Run in this process, unless something has run there for a while; then any worker may, unless it needs the
        turn.

        Raises: KombuError, OSError where no message can be sent.
        """
        patience = math.inf if self.needs_turn else SHORT_RUN
        if lanes.value[self.controller.queue].run_directly(self, patience=patience):
            _ADDS[self.controller.queue_name].inc()
            _WAITS[self.controller.queue_name].observe(0.0)
        else:
            self.send()

    def send(self) -> None:
        """Run in whichever worker is free; in this one while Redis is away. Raises: KombuError, OSError."""
        if event_log.is_connected() and not self.needs_turn:
            self.apply_async()
        else:
            lanes.value[self.controller.queue].run_directly(self, patience=math.inf)

    def wake_in_time(self) -> None:
        """Run once in its interval: here if that takes little, else in whichever worker is free."""
        if self.needs_turn or self.controller.queue is Queue.SCHEDULING or self.took < SHORT_RUN:
            self.wake()
        else:
            self.send()

    def work(self) -> None:
        began = time.monotonic()
        try:
            self._work()
        finally:
            self.took = time.monotonic() - began

    def _work(self) -> None:
        # Whoever waits for scheduling need not wait for another message; a sweep lets the others have its thread.
        for _ in range(MOST_IN_A_ROW if self.controller.queue is Queue.SCHEDULING else 1):
            try:
                again = work(self.controller)
            finally:
                if self.controller.also_locks:
                    self._ask_for_refused()
            if not again:
                return
            if self.controller.has_more():
                break
        self.send()

    def _ask_for_refused(self) -> None:
        """They asked whoever was at work to look again, which here is another controller."""
        for one in controllers.value:
            if one.lock == self.controller.also_locks and coordination.wakeups.value.asked_again(one.name, surely=True):
                self.app.tasks[task_name(one.name)].send()

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
    """Run the controller whose task has that name, here if it can begin soon."""
    app.tasks[task].wake()


def wake_in_time(app: Celery, task: str) -> None:
    """Run the controller whose task has that name, as it does once in its interval."""
    app.tasks[task].wake_in_time()


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


#: Seconds between two wake-ups of a controller, by its queue: what comes meanwhile shares the next run.
REST = {Queue.SCHEDULING: 0.1, Queue.SWEEPS: 0.3}
#: Seconds of rest of the scheduling queue for each of the new pods that came after a quiet moment.
#: Where more come within that time it rests in full, so a stream of pods is gathered and a few pods are not held up.
REST_FOR_A_POD = 0.004
#: Seconds for which a controller counts as one that has nothing to look after.
IDLE = 2.0
#: Seconds between two looks at the log: for what was announced late or not at all, and where Redis is away.
LOOK_EVERY, LOOK_WHILE_AWAY = 1.0, 0.3
#: Seconds between two attempts to lead, and of waiting after the database or the broker failed.
RETRY_AFTER = 1.0
#: Seconds after which a controller that only changes give work (`Controller.rests_until`) is woken all the same.
LONGEST_REST = 30.0
#: What owns nothing and is in nobody's way: that such an object went is no deletion like any other.
TRANSIENT = frozenset({EVENTS, LEASES})
#: Changes that are told apart; when there are more, every controller that anything wakes is woken.
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
        happened = set(changes)
        if any(change == DELETED and resource not in TRANSIENT for resource, change in changes):
            happened.add((ANY, DELETED))
        return [one.name for one in self._declared if one.wakes_on & happened]

    def with_work(self, names: Collection[str]) -> list[str]:
        """Those of them that have something to do, as far as they can tell by a query."""
        questions = {one.name: one.has_work for one in self._declared if one.name in names and one.has_work}
        if not questions:
            return list(names)
        asked = list(dict.fromkeys(questions.values()))  # once each: several controllers ask the same
        answers = {query: found for query, ((found,),) in zip(asked, sql.fetch_together(asked), strict=True)}
        return [name for name in names if name not in questions or answers[questions[name]]]

    def concerned_by(self, changes: Iterable[Sketch]) -> dict[str, bool]:
        """The same for changes in the log, without controllers that look at them by themselves; and whether each surely
        has something to do.
        """
        changes_by: dict[Tasks, set[Change]] = {}
        for sketch in changes:
            changes_by.setdefault(looked_after.value.by(sketch.revision), set()).add(change_of(sketch))
        wanted = {
            name for looking, found in changes_by.items() for name in self.concerned(found) if name not in looking
        }
        every = frozenset[Change]().union(*changes_by.values())
        return {one.name: bool(one.is_work & every) for one in self._declared if one.name in wanted}


class Coverage:
    """How far the log is known, when announcements may come late, or not at all."""

    def __init__(self, revision: int) -> None:
        #: everything up to here was announced or read
        self.revision = revision
        #: stretches beyond, which were announced before what lies between
        self._beyond: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        """It is known what these revisions did."""
        self._beyond = sorted([*self._beyond, (first, last)])
        while self._beyond and self._beyond[0][0] <= self.revision + 1:
            self.revision = max(self.revision, self._beyond.pop(0)[1])

    def has(self, revision: int) -> bool:
        return revision <= self.revision or any(first <= revision <= last for first, last in self._beyond)


class Dispatcher:
    """The thread. `wake(task name)` has a controller run once, for a change; `wake_in_time`, because it is time.

    Among several, one leads: it holds a lock of the database until it stops or its connection ends; the others wait for
    that, and do nothing else. Who comes to lead wakes everybody once.
    """

    def __init__(self, wake: Send, wake_in_time: Send, declared: Iterable[Controller] | None = None) -> None:
        self._wake_here, self._wake_in_time = wake, wake_in_time
        self._declared = tuple(controllers.value if declared is None else declared)
        self._table = WakeTable(self._declared)
        self._tasks = {one.name: task_name(one.name) for one in self._declared}
        self._queues = {one.name: one.queue for one in self._declared}
        #: whether they say what gives them work
        self._resting_without_work = {one.name: bool(one.is_work) for one in self._declared if one.rests_without_work}
        #: those of them that do and had nothing to do -> until when nothing else is noted
        self._idle = dict[str, float]()
        self._news = threading.Condition()
        #: what was announced since this dispatcher leads; None while it does not
        self._coverage: Coverage | None = None
        #: controllers to wake -> whether each surely has something to do; and how many new pods there are
        self._concerned: dict[str, bool] = {}
        self._pods = 0
        #: controllers that are woken a while later (`Controller.patience`, or because they rest) -> when
        self.due: dict[str, float] = {}
        #: those of them that surely have something to do
        self._sure = set[str]()
        #: controllers -> until when they rest
        self._rests: dict[str, float] = {}
        #: every controller -> when it is woken next, whatever happens
        self._periodic: dict[str, float] = {}
        #: every controller -> when it was woken last since this dispatcher leads; -inf before
        self._woken: dict[str, float] = {}
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._stopping = False
        self._unsubscribe = event_log.subscribe(self._hear)
        self._thread = threading.Thread(target=self._run, name="dispatch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._unsubscribe()
        with self._news:
            self._stopping = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(RETRY_AFTER * 2)

    def _hear(self, announcement: Announcement) -> None:
        with self._news:
            if self._coverage is None or announcement.changes is None:
                return  # who comes to lead wakes everybody; what is not announced is read soon
            self._coverage.add(announcement.first, announcement.last)
            self._note(announcement.changes)

    def _note(self, changes: Sequence[Sketch]) -> None:
        """Remember the controllers that these concern; the caller holds `_news`."""
        found, now = self._table.concerned_by(changes), time.monotonic()
        if concerned := {name: sure for name, sure in found.items() if sure or now >= self._idle.get(name, 0.0)}:
            for name, sure in concerned.items():
                self._concerned[name] = sure or self._concerned.get(name, False)
                self._idle.pop(name, None)
            self._pods += sum(change.resource == PODS and change.type == ADDED for change in changes)
            self._news.notify_all()

    def _run(self) -> None:
        while not self._stopping:
            try:
                with coordination.alone(coordination.LEADERSHIP) as leads:
                    if leads:
                        with coordination.keeping_turn():
                            self._lead()
                    else:
                        coordination.heart.value.beat()  # it may be the only thing that this process does
            except Exception:
                log.exception("the dispatcher stops leading")
                connection.close()
            finally:
                self._coverage = None
            self._pause(RETRY_AFTER)
        connection.close()

    def _lead(self) -> None:
        """Until it is time to stop. Raises: DatabaseError, InterfaceError."""
        coordination.hand_on_if_unreachable()
        look_at = time.monotonic()
        while not self._stopping:
            self._wait(look_at)
            try:
                if (now := time.monotonic()) >= look_at:
                    look_at = now + (LOOK_EVERY if event_log.is_connected() else LOOK_WHILE_AWAY)
                    self._look()
                    self._wake_periodic(now)
                self._wake_concerned()
                self._wake_due()
            except (KombuError, OSError):
                log.exception("could not send wake-ups")
                self._pause(RETRY_AFTER)

    def _wait(self, look_at: float) -> None:
        """Until somebody is to be woken, or the log is to be read, or it is time to stop."""
        with self._news:
            until = min([look_at, *self.due.values()])
            self._news.wait_for(lambda: self._stopping or self._concerned, timeout=max(0.0, until - time.monotonic()))

    def _pause(self, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._stopping, timeout=seconds)

    def _look(self) -> None:
        """Read what was not announced. At first, and where the log does not lead on, everybody is woken."""
        with self._news:
            coverage = self._coverage
        stretch = since(None if coverage is None else coverage.revision, self._table.read)
        if coverage is None or stretch is None or stretch.more:
            latest = event_log.latest_revision()
            with self._news:
                self._coverage = Coverage(latest)
            self._periodic = dict.fromkeys((one.name for one in self._declared), -math.inf)
            self._woken = dict(self._periodic)
            return
        with self._news:
            self._note([sketch for sketch in stretch.changes if not coverage.has(sketch.revision)])
            if stretch.revision > coverage.revision:
                coverage.add(coverage.revision + 1, stretch.revision)

    def _wake_concerned(self) -> None:
        """Wake them now, or note when they are due."""
        with self._news:
            concerned, self._concerned = self._concerned, {}
            pods, self._pods = self._pods, 0
        now, certain, uncertain = time.monotonic(), list[str](), list[str]()
        for name, sure in concerned.items():
            at = max(now + self._table.patience[name], self._rests.get(name, 0.0))
            if at <= now:
                (certain if sure else uncertain).append(name)
                continue
            self.due.setdefault(name, at)
            if sure:
                self._sure.add(name)
        self._wake([*certain, *self._working(uncertain, now)], pods=pods)

    def _working(self, names: Sequence[str], now: float) -> Sequence[str]:
        """Those that have something to do. Most clusters have none of what some controllers are for: whether they have
        is not asked again for each pod.
        """
        working = self._table.with_work(names)
        with self._news:
            for name in self._resting_without_work.keys() & set(names).difference(working, self._concerned):
                if self._resting_without_work[name]:
                    self._idle[name] = now + IDLE
                else:
                    self._rests[name] = now + REST[self._queues[name]]
        return working

    def _wake_due(self) -> None:
        """Wake those whose time has come, where there still is something to do."""
        now = time.monotonic()
        due = [name for name, at in self.due.items() if at <= now]
        certain = self._sure.intersection(due)
        for name in due:
            del self.due[name]
        self._sure -= certain
        self._wake([*certain, *self._working([name for name in due if name not in certain], now)])

    def _wake_periodic(self, now: float) -> None:
        """Wake each controller once in its interval, so that a lost message costs no more. now: when the look began."""
        due = [one for one in self._declared if self._periodic[one.name] <= now]
        resting = {one.name for one in due if self._rests_longer(one, now)}
        may_rest = [one.name for one in due if one.rests_without_work and one.name not in resting]
        resting |= set(may_rest).difference(self._table.with_work(may_rest))
        for one in due:
            if one.name not in resting:
                self._woken[one.name] = time.monotonic()
                self._wake_in_time(self._tasks[one.name])
            self._periodic[one.name] = now + one.every

    def _rests_longer(self, one: Controller, now: float) -> bool:
        """Whether it may sleep longer: this process hears of every change that could give it work."""
        woken = self._woken[one.name]
        is_told = woken > now - LONGEST_REST and event_log.is_connected()
        return is_told and one.rests_until(woken) > time.time()

    def _wake(self, names: Collection[str], *, pods: int = 0) -> None:
        """Those that could not be woken stay concerned. pods: how many new ones came after a quiet moment."""
        left, now = list(names), time.monotonic()
        try:
            while left:
                name = left[0]
                self._woken[name] = time.monotonic()
                self._wake_here(self._tasks[name])
                queue = self._queues[name]
                few = pods and queue is Queue.SCHEDULING
                self._rests[name] = now + (min(REST[queue], REST_FOR_A_POD * pods) if few else REST[queue])
                del left[0]
        finally:
            with self._news:
                self._concerned.update(dict.fromkeys(left, True))
