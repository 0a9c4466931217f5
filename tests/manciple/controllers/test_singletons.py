"""One at a time in the whole cluster: who comes second returns at once, and what it came for is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from celery import Celery
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from inventory.kinds.nodes import Node
from manciple.controllers import coordination, tasks
from manciple.controllers.declaration import Controller, Queue, controllers
from manciple.store import sql
from scheduling.cycle import commit, scheduler
from scheduling.earlier import structured_claims
from tests.builders import make_node, make_pod
from tests.e2e.processes import wait_for
from tests.scheduling.cluster import Cluster, in_threads

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def elsewhere(held: Callable[[], object]) -> Iterator[None]:
    """`held` (a lock's context manager) is entered in another thread, with a connection of its own."""
    entered, leave = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with held() as ours:  # type: ignore[attr-defined]
                assert ours
                entered.set()
                leave.wait(30)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(30)
    try:
        yield
    finally:
        leave.set()
        thread.join(30)


def test_who_comes_second_returns_at_once() -> None:
    with elsewhere(lambda: coordination.alone("prune")):
        with coordination.alone("prune") as ours:
            assert not ours
        with coordination.alone("sweep_nodes") as another:
            assert another
        assert coordination.is_held("prune")
        assert not coordination.is_held("sweep_nodes")
    with coordination.alone("prune") as ours:
        assert ours
    assert not coordination.is_held("prune")


def test_the_scheduling_turn_is_waited_for_no_longer_than_allowed() -> None:
    with elsewhere(coordination.turn), coordination.turn(patience=0.05) as ours:
        assert ours is (connection.vendor != "postgresql")
    with coordination.turn(patience=0.05) as ours:
        assert ours


def test_a_turn_that_comes_just_when_the_time_is_over_is_given_back() -> None:
    """PostgreSQL may grant a lock and report the timeout; the session's lock outlives the transaction that failed."""
    if connection.vendor != "postgresql":
        return
    done = threading.Event()

    def hold() -> None:
        try:
            while not done.is_set():
                with coordination.turn(patience=5):
                    done.wait(0.004)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        for _ in range(300):
            with coordination.turn(patience=0.004):
                pass
            assert not sql.fetch("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
    finally:
        done.set()
        thread.join(30)


def test_a_worker_that_does_not_get_the_turn_leaves_the_pods_to_who_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def taken() -> Iterator[bool]:
        yield False

    monkeypatch.setattr(coordination, "turn", taken)
    report = Cluster().worker.run()
    assert (report.taken, report.placed) == (0, 0)


def test_a_holder_that_dies_hands_the_lock_on() -> None:
    """The connection ends without an unlock: what becomes of a worker that is killed."""
    if connection.vendor != "postgresql":
        return  # the lock is the process's there, and dies with it
    held = coordination.alone("prune")

    def die() -> None:
        assert held.__enter__()
        connection.close()

    thread = threading.Thread(target=die)
    thread.start()
    thread.join(30)

    def is_free() -> bool:
        with coordination.alone("prune") as ours:
            return ours

    wait_for("the lock of a session that PostgreSQL is about to end", is_free)


def terminate() -> None:
    """The server ends this thread's session, as in a restart or when its process is killed."""
    with suppress(OperationalError), transaction.atomic():
        sql.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def hang_up() -> None:
    connection.close()


#: how a run loses the session that holds its lock, in code that swallows the error
LOSSES: dict[str, Callable[[], object]] = {
    "the server ends it, which an error of a transaction tells": terminate,
    "the connection is closed": hang_up,
}


@pytest.mark.parametrize("phrase", LOSSES)
@pytest.mark.parametrize("inner", [False, True])
def test_who_loses_the_session_of_its_lock_writes_nothing_until_it_has_left_it(phrase: str, *, inner: bool) -> None:
    if connection.vendor != "postgresql":
        return  # the lock is the process's there
    cluster, refused = Cluster(), list[OperationalError]()

    def reconcile(_now: datetime) -> int:
        with coordination.turn(patience=0) if inner else nullcontext():
            LOSSES[phrase]()
        for name in ("first", "second"):
            try:
                cluster.create(make_node(name))
            except OperationalError as error:
                refused.append(error)
        with coordination.alone("one-at-a-time") as ours:
            assert not ours
        return 0

    tasks.work(singleton(reconcile))
    assert len(refused) == 2
    assert cluster.all(Node) == []
    tasks.work(singleton(lambda _now: bool(cluster.create(make_node()))))
    assert len(cluster.all(Node)) == 1


def test_a_lock_whose_session_has_just_ended_is_not_held_though_nobody_has_said_so_yet() -> None:
    if connection.vendor != "postgresql":
        return  # as above
    with coordination.alone(coordination.TURN):
        pid = sql.fetch("SELECT pg_backend_pid()")[0][0]
        in_threads(lambda: sql.execute("SELECT pg_terminate_backend(%s, 10000)", [pid]))

        def is_lost() -> bool:
            with coordination.turn() as ours:
                return not ours

        wait_for("the end of the session to arrive", is_lost)
    connection.close()  # as before and after each task


def test_a_worker_that_loses_the_turn_between_two_batches_decides_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "postgresql":
        return  # as above
    cluster, write = Cluster(), commit.commit
    cluster.create(make_node())
    for name in ("first", "second"):
        cluster.create(make_pod(name))

    def commit_then_lose(*arguments: Any, **named: Any) -> Any:
        settled = write(*arguments, **named)
        terminate()
        return settled

    monkeypatch.setattr(scheduler, "BATCH", 1)
    monkeypatch.setattr(scheduler, "commit", commit_then_lose)
    with pytest.raises(OperationalError):
        cluster.worker.run()
    monkeypatch.undo()
    assert len(cluster.events("Scheduled")) == 1
    cluster.new_worker().run()
    assert len(cluster.events("Scheduled")) == 2


def singleton(reconcile: Callable[[datetime], int]) -> Controller:
    return Controller(name="one-at-a-time", does="is alone", in_mirror=False, reconcile=reconcile, every=60)


def test_what_a_second_run_came_for_is_done_by_a_further_one() -> None:
    began, go_on, runs, again = threading.Event(), threading.Event(), list[datetime](), list[bool]()

    def reconcile(now: datetime) -> int:
        runs.append(now)
        began.set()
        go_on.wait(30)
        return 0

    def first() -> None:
        try:
            again.append(tasks.work(singleton(reconcile)))
        finally:
            connection.close()

    thread = threading.Thread(target=first)
    thread.start()
    assert began.wait(30)
    assert tasks.work(singleton(reconcile)) is False  # returned while the other one is at work
    assert len(runs) == 1
    go_on.set()
    thread.join(30)
    assert again == [True]
    assert not coordination.wakeups.value.asked_again("one-at-a-time")


#: how often there is still more to do, by queue -> how often one message makes it run, and whether another is sent
UNFINISHED: dict[str, tuple[Queue, int, int, bool]] = {
    "scheduling, done after three": (Queue.SCHEDULING, 3, 3, False),
    "scheduling, never done": (Queue.SCHEDULING, 1000, tasks.MOST_IN_A_ROW, True),
    "a sweep, done at once": (Queue.SWEEPS, 1, 1, False),
    "a sweep that lets the others have its thread": (Queue.SWEEPS, 3, 1, True),
}


@pytest.mark.parametrize("phrase", UNFINISHED)
def test_what_is_asked_again_goes_on_without_another_message_for_a_while(
    monkeypatch: pytest.MonkeyPatch, phrase: str
) -> None:
    queue, done_after, expected_runs, sent_again = UNFINISHED[phrase]
    runs, sent = list[datetime](), list[object]()

    def reconcile(now: datetime) -> int:
        runs.append(now)
        return int(len(runs) < done_after)

    many = Controller(
        name="many", does="a lot", in_mirror=False, reconcile=reconcile, every=60, queue=queue, most_per_turn=1
    )
    task = tasks.register(Celery("test", set_as_current=False), many)
    monkeypatch.setattr(task, "apply_async", lambda: sent.append(task))
    task.run()
    assert len(runs) == expected_runs
    assert bool(sent) is sent_again


def test_a_lock_that_the_thread_holds_already_is_not_asked_for() -> None:
    with coordination.alone(coordination.TURN) as ours, CaptureQueriesContext(connection) as asked:
        assert ours
        with coordination.turn(patience=0) as again:
            assert again
    assert [query["sql"] for query in asked if "advisory" in query["sql"]] == []
    with elsewhere(lambda: coordination.alone(coordination.TURN)), coordination.turn(patience=0) as taken:
        assert taken is (connection.vendor != "postgresql")


def test_in_the_process_that_keeps_the_turn_its_threads_take_it_from_each_other() -> None:
    if connection.vendor != "postgresql":
        return
    with elsewhere(coordination.keeping_turn):
        with CaptureQueriesContext(connection) as asked:
            with coordination.turn(patience=0) as ours, coordination.alone(coordination.TURN) as again:
                assert ours
                assert again
            with elsewhere(coordination.turn):
                for attempt in (
                    partial(coordination.turn, patience=0.01),
                    partial(coordination.alone, coordination.TURN),
                ):
                    with attempt() as taken:
                        assert not taken
        assert not asked, "no round trip"
        assert has_lock_to_itself(coordination.TURN) is False, "no other process gets it"
        with coordination.turn(patience=0), coordination.alone("another") as another:
            assert another
            assert coordination.is_held("another")
    with coordination.turn(patience=0) as ours:
        assert ours
        assert coordination.is_held(coordination.TURN), "it is asked for again"


def has_lock_to_itself(name: str) -> bool:
    """As the session of another process asks for it."""
    found: bool = sql.fetch("SELECT pg_try_advisory_xact_lock(%s, %s)", coordination._key(name))[0][0]
    return found


def test_the_turn_is_not_kept_while_another_process_has_it() -> None:
    if connection.vendor != "postgresql":
        return
    with elsewhere(coordination.turn), coordination.keeping_turn() as kept:
        assert not kept
        with coordination.turn(patience=0) as ours:
            assert not ours


@pytest.mark.parametrize("fails", [False, True])
def test_who_lets_go_of_a_lock_of_another_asks_for_that_one(monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    """The one that was refused does not look again by itself, and who held the lock is another controller."""

    def borrow(_now: datetime) -> int:
        with coordination.alone("shared") as ours:
            assert ours
            in_threads(owner_task.work)
        if fails:
            raise RuntimeError
        return 0

    def run(now: datetime) -> int:
        runs.append(now)
        return 0

    runs, sent = list[datetime](), list[str]()
    owner = replace(singleton(run), name="owner", lock="shared")
    borrower = replace(singleton(borrow), name="borrower", lock="borrower", also_locks="shared")
    other = replace(owner, name="other", lock="other")
    monkeypatch.setattr(controllers, "value", (owner, borrower, other))
    app = Celery("test", set_as_current=False)
    owner_task, borrower_task, _ = [tasks.register(app, one) for one in controllers.value]
    monkeypatch.setattr(tasks.ControllerTask, "send", lambda task: sent.append(task.controller.name))
    with pytest.raises(RuntimeError) if fails else nullcontext():
        borrower_task.work()
    assert (runs, sent) == ([], ["owner"])
    owner_task.work()
    assert len(runs) == 1
    sent.clear()
    monkeypatch.setattr(owner_task, "work", lambda: None)
    with pytest.raises(RuntimeError) if fails else nullcontext():
        borrower_task.work()
    assert sent == [], "nobody was refused it"


def test_who_takes_the_turn_besides_the_scheduler_asks_for_it_afterwards() -> None:
    assert structured_claims.CONTROLLER.also_locks == coordination.TURN


def test_who_schedules_holds_the_turn() -> None:
    (schedule,) = (one for one in controllers.value if one.name == "schedule")
    assert schedule.singleton
    assert schedule.lock == coordination.TURN
