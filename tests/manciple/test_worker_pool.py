"""Sweeps and scheduling have threads of their own: however many sweeps hang, pods are scheduled. Connections stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from manciple.celery import SWEEPING_THREADS, TaskPool, WorkerFixup, app
from scheduling.controllers.declaration import Queue


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
