"""Sweeps and scheduling do not occupy each other's threads: however many sweeps hang, pods are scheduled."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from celery import Celery
from django.db import connection

from manciple.celery import app
from manciple.controllers import coordination, tasks
from manciple.controllers.declaration import Controller, Queue
from manciple.controllers.tasks import THREADS_OF_A_QUEUE, ControllerTask, Lane
from manciple.store import event_log
from tests.e2e.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Task:
    """In place of a controller's task."""

    does: Callable[[], object]
    name: str = "it"
    done: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        try:
            self.does()
        finally:
            self.done.set()


class Worker:
    """The threads of Celery's pool and the lanes of the process."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.lanes = {queue: Lane() for queue in Queue}
        self._pool = ThreadPoolExecutor(app.conf.worker_concurrency)

    def run(self, queue: Queue, does: Callable[[], object] = lambda: None) -> Task:
        """As Celery runs what a message asks for."""
        task = Task(does)
        self._pool.submit(self.lanes[queue].run, task)
        return task

    def hang(self, queue: Queue) -> Task:
        return self.run(queue, lambda: self.go_on.wait(30))

    def end(self) -> None:
        self.go_on.set()
        self._pool.shutdown()
        for lane in self.lanes.values():
            lane.stop()


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.end()


@pytest.mark.parametrize(
    ("hanging", "other"), [(Queue.SWEEPS, Queue.SCHEDULING), (Queue.SCHEDULING, Queue.SWEEPS)], ids=["sweeps", "pods"]
)
def test_a_queue_that_hangs_leaves_the_other_its_threads(worker: Worker, hanging: Queue, other: Queue) -> None:
    waiting = [worker.hang(hanging) for _ in range(app.conf.worker_concurrency + 3)]
    assert worker.run(other).done.wait(30)
    assert not any(task.done.is_set() for task in waiting)
    worker.go_on.set()
    assert all(task.done.wait(30) for task in waiting)


def test_the_pool_has_threads_for_both_queues() -> None:
    assert app.conf.worker_pool == "threads"
    assert app.conf.worker_concurrency == THREADS_OF_A_QUEUE * len(Queue)


def test_a_process_runs_tasks_without_messages_one_after_the_other() -> None:
    lane, go_on, order = Lane(), threading.Event(), list[str]()

    def wait() -> None:
        go_on.wait(30)
        order.append("first")

    first, second = Task(wait), Task(lambda: order.append("second"))
    assert lane.run_directly(first)
    assert lane.run_directly(second, patience=60)
    assert lane.run_directly(second, patience=60), "it waits already"
    go_on.set()
    assert second.done.wait(30)
    wait_for("an idle lane", lambda: not lane._running)
    assert order == ["first", "second"]


def test_nothing_waits_for_a_long_run() -> None:
    lane, go_on = Lane(), threading.Event()
    assert lane.run_directly(Task(lambda: go_on.wait(30)))
    assert not lane.run_directly(Task(lambda: None), patience=0)
    go_on.set()
    last = Task(lambda: None)
    wait_for("an idle lane", lambda: lane.run_directly(last))
    assert last.done.wait(30)


def test_what_can_run_nowhere_else_waits_for_itself_alone() -> None:
    lane, go_on, order = Lane(), threading.Event(), list[str]()
    other, again = Task(lambda: go_on.wait(30)), Task(lambda: order.append("again"))
    task = beginning(order, go_on)
    assert lane.run_directly(other)
    long_ago(lane)
    assert lane.run_directly(task, patience=math.inf), "in another thread"
    wait_for("the run beside the long one", lambda: order)
    long_ago(lane)
    assert lane.run_directly(task, patience=math.inf)
    assert lane.run_directly(again, patience=math.inf), "no thread is left"
    assert order == ["begun"]
    go_on.set()
    assert again.done.wait(30)
    wait_for("an idle lane", lambda: not lane._running)
    assert sorted(order) == ["again", "begun", "begun"]


def test_a_task_does_not_run_beside_itself() -> None:
    lane, go_on, order = Lane(), threading.Event(), list[str]()
    task = beginning(order, go_on)
    assert lane.run_directly(task)
    wait_for("it to run", lambda: order)
    long_ago(lane)
    assert lane.run_directly(task, patience=math.inf)
    assert len(lane._running) == 1
    go_on.set()
    wait_for("an idle lane", lambda: not lane._running)
    assert order == ["begun"] * 2


def test_nor_when_another_run_makes_room_for_it() -> None:
    lane, order = Lane(), list[str]()
    other_ends, go_on = threading.Event(), threading.Event()
    other, task = Task(lambda: other_ends.wait(30)), beginning(order, go_on)
    assert lane.run_directly(other)
    long_ago(lane)
    assert lane.run_directly(task, patience=math.inf)
    assert lane.run_directly(task, patience=math.inf), "after itself"
    other_ends.set()
    wait_for("the other run to end", lambda: len(lane._running) == 1)
    assert order == ["begun"]
    go_on.set()
    wait_for("an idle lane", lambda: not lane._running)
    assert order == ["begun"] * 2


def test_what_waits_behind_a_run_that_turns_out_long_runs_elsewhere_when_asked_again() -> None:
    lane, go_on, order = Lane(), threading.Event(), list[str]()
    task = Task(lambda: order.append("run"))
    assert lane.run_directly(Task(lambda: go_on.wait(60)))
    assert lane.run_directly(task, patience=math.inf)
    long_ago(lane)
    for times in (1, 2):  # a short one beside the long one changes nothing
        assert lane.run_directly(task, patience=math.inf)
        wait_for("the run beside the long one", lambda times=times: len(order) == times)  # type: ignore[misc]
        wait_for("its end", lambda: len(lane._running) == 1)
    go_on.set()
    wait_for("an idle lane", lambda: not lane._running)
    assert order == ["run", "run"]


def test_while_one_thread_is_free_the_others_and_their_connections_rest() -> None:
    lane, threads = Lane(), list[str]()
    for _ in range(5):
        task = Task(lambda: threads.append(threading.current_thread().name))
        assert lane.run_directly(task)
        wait_for("an idle lane", lambda: not lane._running)
    assert len(threads) == 5
    assert len(set(threads)) == 1


def beginning(order: list[str], go_on: threading.Event) -> Task:
    def begin() -> None:
        order.append("begun")
        go_on.wait(30)

    return Task(begin)


def long_ago(lane: Lane) -> None:
    """What runs has run for long."""
    lane._running = [(task, began - 60) for task, began in lane._running]


def test_a_process_that_works_on_a_message_runs_nothing_directly(worker: Worker) -> None:
    lane = worker.lanes[Queue.SCHEDULING]
    asked = worker.hang(Queue.SCHEDULING)
    wait_for("the task to run", lambda: lane._running)
    assert not lane.run_directly(Task(lambda: None), patience=0)
    worker.go_on.set()
    assert asked.done.wait(30)
    wait_for("an idle lane", lambda: lane.run_directly(Task(lambda: None)))


def test_a_lane_that_has_stopped_runs_nothing_directly() -> None:
    lane = Lane()
    lane.stop()
    assert not lane.run_directly(Task(lambda: None))
    assert not lane._running


def test_a_failure_is_logged_and_stops_nothing(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ConnectionError("on purpose")

    assert worker.run(Queue.SCHEDULING, fail).done.wait(30)
    assert worker.run(Queue.SCHEDULING).done.wait(30)
    wait_for("the failure to be logged", lambda: "task it failed" in caplog.text)


# Wake-ups -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Queue, Callable[[], object]], list[object]]:
    """Wakes a controller; returns the messages that were sent."""

    def woken(queue: Queue, does: Callable[[], object]) -> list[object]:
        def reconcile(_now: object) -> int:
            does()
            return 0

        # each its own, because of two runs of one controller the second ends at once
        name = f"woken-{queue.value}"
        controller = Controller(name=name, does="it", in_mirror=False, reconcile=reconcile, every=60, queue=queue)
        task: Any = tasks.register(Celery("test", broker="memory://", set_as_current=False), controller)
        sent: list[object] = []
        monkeypatch.setattr(task, "apply_async", lambda: sent.append(task))
        task.wake()
        return sent

    return woken


def test_a_woken_controller_runs_here_or_by_a_message(
    woken: Callable[[Queue, Callable[[], object]], list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SHORT_RUN", 0.0)
    go_on = threading.Event()
    for queue in Queue:
        assert woken(queue, lambda: go_on.wait(30)) == []
        assert len(woken(queue, lambda: None)) == 1
    go_on.set()
    for queue in Queue:
        wait_for("an idle lane", lambda lane=tasks.lanes.value[queue]: not lane._running)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("queue", "took", "messages"), [(Queue.SWEEPS, 0.0, 0), (Queue.SWEEPS, 5.0, 1), (Queue.SCHEDULING, 5.0, 0)]
)
def test_a_sweep_that_takes_long_is_left_to_whoever_is_free_when_its_time_comes(
    queue: Queue, took: float, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = threading.Event()

    def reconcile(_now: object) -> int:
        ran.set()
        return 0

    controller = Controller(
        name=f"timed-{queue}-{took}", does="it", in_mirror=False, reconcile=reconcile, every=60, queue=queue
    )
    task: Any = tasks.register(Celery("test", broker="memory://", set_as_current=False), controller)
    sent: list[object] = []
    monkeypatch.setattr(task, "apply_async", lambda: sent.append(task))
    task.took = took
    wait_for("an idle lane", lambda: not tasks.lanes.value[queue]._running)
    task.wake_in_time()
    assert len(sent) == messages
    if not messages:
        assert ran.wait(30)
        wait_for("an idle lane", lambda: not tasks.lanes.value[queue]._running)
        assert 0 < task.took < took + 5


@pytest.mark.parametrize("given", [{"lock": coordination.TURN}, {"also_locks": coordination.TURN}])
def test_who_needs_the_turn_runs_in_the_process_that_has_it(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = threading.Event()

    def reconcile(_now: object) -> int:
        ran.set()
        return 0

    name = f"turns-{next(iter(given))}"
    controller = Controller(name=name, does="it", in_mirror=False, reconcile=reconcile, every=60, **given)  # type: ignore[arg-type]
    task: Any = tasks.register(Celery("test", broker="memory://", set_as_current=False), controller)
    monkeypatch.setattr(task, "apply_async", lambda: pytest.fail("a message asks any process"))
    task.took = 5.0
    lane, go_on = tasks.lanes.value[controller.queue], threading.Event()
    assert lane.run_directly(Task(lambda: go_on.wait(60)))
    long_ago(lane)
    for way in (task.wake, task.send, task.wake_in_time):
        ran.clear()
        way()
        assert ran.wait(30)
        wait_for("its end", lambda: len(lane._running) == 1)
    go_on.set()
    wait_for("an idle lane", lambda: not lane._running)


def test_while_redis_is_away_everything_runs_here(
    woken: Callable[[Queue, Callable[[], object]], list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "is_connected", lambda: False)
    done = {queue: threading.Event() for queue in Queue}
    for queue, event in done.items():
        assert woken(queue, event.set) == []
    assert all(event.wait(30) for event in done.values())


# Connections ----------------------------------------------------------------------------------------------------------


def run(task: Any) -> None:
    """As Celery does, with the receivers of its Django fixup around it."""
    (fixup,) = app._fixups
    fixup.worker_fixup.on_task_prerun(TASK)
    Lane().run(task)
    fixup.worker_fixup.on_task_postrun(TASK)


class _Request:
    is_eager = False


class TASK:
    """As much of a task as Celery's signals need."""

    request = _Request


def test_a_connection_outlives_the_task_that_made_it() -> None:
    connection.ensure_connection()
    before = connection.connection
    run(Task(lambda: None))
    assert connection.connection is before


def test_a_connection_that_an_error_broke_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.ensure_connection()
    monkeypatch.setattr(connection, "errors_occurred", True)
    monkeypatch.setattr(connection, "is_usable", lambda: False)
    run(Task(lambda: None))
    assert connection.connection is None


def test_tasks_are_controllers() -> None:
    app.loader.import_default_modules()
    assert isinstance(app.tasks["scheduling.tasks.schedule"], ControllerTask)
