"""Sweeps and scheduling have threads of their own: however many sweeps hang, pods are scheduled. Connections stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from manciple.celery import SWEEPING_THREADS, TaskPool, WorkerFixup, app, wake
from manciple.controllers.declaration import Queue
from tests.e2e.processes import wait_for


@pytest.fixture
def pool() -> Iterator[TaskPool]:
    made = TaskPool(2)
    made.start()
    yield made
    made.stop()


def put(pool: TaskPool, queue: Queue, work: Callable[..., Any], **options: Any) -> Any:
    """As Celery hands a request over."""
    return pool.apply_async(work, ("task", "id", {"delivery_info": {"routing_key": queue.value}}), **options)


def test_sweeps_that_hang_leave_scheduling_its_threads(pool: TaskPool) -> None:
    go_on, scheduled = threading.Event(), threading.Event()
    hanging = [put(pool, Queue.SWEEPS, lambda *_: go_on.wait(30)) for _ in range(SWEEPING_THREADS + 3)]
    put(pool, Queue.SCHEDULING, lambda *_: scheduled.set())
    assert scheduled.wait(30)
    go_on.set()
    for one in hanging:
        one.wait(30)


def test_scheduling_that_hangs_leaves_the_sweeps_theirs(pool: TaskPool) -> None:
    go_on, swept = threading.Event(), threading.Event()
    hanging = [put(pool, Queue.SCHEDULING, lambda *_: go_on.wait(30)) for _ in range(5)]
    put(pool, Queue.SWEEPS, lambda *_: swept.set())
    assert swept.wait(30)
    go_on.set()
    for one in hanging:
        one.wait(30)


def test_a_sweep_that_waits_for_a_thread_takes_up_no_place_among_the_fetched(pool: TaskPool) -> None:
    go_on, accepted = threading.Event(), list[int]()
    sweeps = [
        put(pool, Queue.SWEEPS, lambda *_: go_on.wait(30), accept_callback=lambda pid, _at: accepted.append(pid))
        for _ in range(SWEEPING_THREADS + 3)
    ]
    assert len(accepted) == len(sweeps)
    go_on.set()
    for one in sweeps:
        one.wait(30)


def test_a_process_that_schedules_nothing_takes_work_without_a_message_one_at_a_time(pool: TaskPool) -> None:
    go_on, done = threading.Event(), threading.Event()
    assert pool.take(lambda: go_on.wait(30))
    assert not pool.take(done.set)
    go_on.set()
    wait_for("a thread with nothing to do", lambda: pool.take(done.set))
    assert done.wait(30)


def test_a_process_that_does_what_a_message_asks_for_takes_no_other_work(pool: TaskPool) -> None:
    go_on, taken = threading.Event(), threading.Event()
    asked = put(pool, Queue.SCHEDULING, lambda *_: go_on.wait(30))
    assert not pool.take(taken.set)
    go_on.set()
    asked.wait(30)
    wait_for("a thread with nothing to do", lambda: pool.take(taken.set))


def test_a_sweep_keeps_no_process_from_taking_work(pool: TaskPool) -> None:
    go_on, taken = threading.Event(), threading.Event()
    asked = put(pool, Queue.SWEEPS, lambda *_: go_on.wait(30))
    assert pool.take(taken.set)
    assert taken.wait(30)
    go_on.set()
    asked.wait(30)


def test_a_pool_that_has_stopped_takes_nothing() -> None:
    pool = TaskPool(2)
    pool.start()
    pool.stop()
    assert not pool.take(lambda: None)


def test_a_thread_that_could_not_be_started_is_not_counted(pool: TaskPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short_of_threads:
        short_of_threads.setattr(pool.executor, "submit", refuse)
        assert not pool.take(lambda: None)
        with pytest.raises(RuntimeError):
            put(pool, Queue.SCHEDULING, lambda *_: None)
    assert pool.take(lambda: None)


class _Task:
    """Of a controller; fails where it is told to."""

    def __init__(self, queue: Queue, *, fails: bool = False) -> None:
        self.name, self.controller = "it", SimpleNamespace(queue=queue)
        self.done, self.sent, self._fails = threading.Event(), threading.Event(), fails

    def do(self) -> None:
        self.done.set()
        if self._fails:
            raise RuntimeError("as told")

    def apply_async(self) -> None:
        self.sent.set()


@pytest.fixture
def woken(pool: TaskPool, monkeypatch: pytest.MonkeyPatch) -> Callable[[_Task], _Task]:
    def woken(task: _Task) -> _Task:
        monkeypatch.setitem(app.tasks, "it", task)
        wake(pool, "it")
        return task

    return woken


@pytest.mark.django_db(transaction=True)
def test_who_is_woken_is_done_here_or_where_that_cannot_be_by_a_message(
    pool: TaskPool, woken: Callable[[_Task], _Task]
) -> None:
    assert woken(_Task(Queue.SCHEDULING)).done.wait(30)
    assert woken(_Task(Queue.SWEEPS)).sent.is_set()
    go_on = threading.Event()
    wait_for("a thread with nothing to do", lambda: pool.take(lambda: go_on.wait(30)))
    assert woken(_Task(Queue.SCHEDULING)).sent.is_set()
    go_on.set()


@pytest.mark.django_db(transaction=True)
def test_a_failure_without_a_message_is_told_and_stops_nothing(
    pool: TaskPool, woken: Callable[[_Task], _Task], caplog: pytest.LogCaptureFixture
) -> None:
    assert woken(_Task(Queue.SCHEDULING, fails=True)).done.wait(30)
    wait_for("a thread with nothing to do", lambda: pool.take(lambda: None))
    assert "task it failed" in caplog.text


#: As much of a task as Celery's signals need.
TASK = SimpleNamespace(request=SimpleNamespace(is_eager=False))


@pytest.fixture
def connections_between_tasks(transactional_db: None) -> WorkerFixup:
    (fixup,) = app._fixups
    connection.ensure_connection()
    made: WorkerFixup = fixup.worker_fixup
    return made


def test_a_connection_outlives_the_task_that_made_it(connections_between_tasks: WorkerFixup) -> None:
    before = connection.connection

    connections_between_tasks.on_task_prerun(TASK)
    connections_between_tasks.on_task_postrun(TASK)

    assert connection.connection is before


def test_a_connection_that_an_error_broke_is_not_kept(
    connections_between_tasks: WorkerFixup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "errors_occurred", True)
    monkeypatch.setattr(connection, "is_usable", lambda: False)

    connections_between_tasks.on_task_prerun(TASK)

    assert connection.connection is None
