"""Several writers and readers at once: no revision is skipped, lost or given twice, and no update is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from django.db import connection
from msgspec import structs

from manciple.store import event_log, objects
from manciple.store.event_log import Tail
from manciple.store.records import EventRecord
from manciple.store.sql import Turn
from manciple.wire.errors import Conflict, Expired
from tests.manciple.store.kinds import NOTES, Note, NoteSpec, note

pytestmark = pytest.mark.django_db(transaction=True)

WRITERS, TRANSACTIONS, WRITES = 4, 12, 3


def closing(work: Callable[[], None]) -> Callable[[], None]:
    """`work`, and afterwards the thread's database connection is closed."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    return run


def together(*works: Callable[[], None]) -> None:
    """Run all at once; raises what any of them raised."""
    with ThreadPoolExecutor(len(works)) as threads:
        futures: list[Future[None]] = [threads.submit(closing(work)) for work in works]
        for future in futures:
            future.result(60)


def write_notes(writer_name: str) -> None:
    for transaction in range(TRANSACTIONS):
        with objects.writing() as writer:
            for number in range(WRITES):
                writer.create(NOTES, note(f"{writer_name}-{transaction}-{number}"))


def test_a_reader_beside_many_writers_never_sees_a_gap() -> None:
    newest = 1 + WRITERS * TRANSACTIONS * WRITES
    seen: list[int] = []

    def read() -> None:
        position = 1
        while position < newest:
            records = event_log.read_after(position, limit=7)
            seen.extend(record.revision for record in records)
            position = seen[-1] if seen else position

    together(read, *(lambda name=f"writer-{number}": write_notes(name) for number in range(WRITERS)))
    assert seen == list(range(2, newest + 1))


def test_a_transactions_events_are_never_seen_in_part() -> None:
    newest = 1 + WRITERS * TRANSACTIONS * WRITES
    latest: list[int] = []

    def read() -> None:
        while not latest or latest[-1] < newest:
            latest.append(event_log.latest_revision())
            assert len(event_log.read_after(1, limit=10_000)) >= latest[-1] - 1
            page = objects.list(NOTES)
            assert len(page.items) == page.revision - 1

    together(read, *(lambda name=f"writer-{number}": write_notes(name) for number in range(WRITERS)))
    assert {revision % WRITES for revision in latest} == {1}
    assert latest == sorted(latest)


def test_every_subscriber_sees_every_revision_while_many_write() -> None:
    newest = 1 + WRITERS * TRANSACTIONS * WRITES
    following = Tail()
    done = threading.Semaphore(0)
    seen: list[list[int]] = [[], [], []]

    def unexpected(error: Expired) -> None:
        raise error

    def subscriber(revisions: list[int]) -> Callable[[Sequence[EventRecord]], None]:
        def take(records: Sequence[EventRecord]) -> None:
            revisions.extend(record.revision for record in records)
            if revisions[-1] == newest:
                done.release()

        return take

    for revisions in seen:
        following.subscribe(subscriber(revisions), after=1, on_expired=unexpected)
    together(*(lambda name=f"writer-{number}": write_notes(name) for number in range(WRITERS)))
    assert all(done.acquire(timeout=60) for _ in seen)
    following.stop()
    assert seen == [list(range(2, newest + 1))] * len(seen)


def test_no_increment_is_lost_when_conflicts_are_retried() -> None:
    with objects.writing() as writer:
        writer.create(NOTES, note("counter", text="0"))

    def increment() -> None:
        done = 0
        while done < TRANSACTIONS:
            stored = objects.get(NOTES, "home", "counter")
            assert stored is not None
            counter = objects.decode(NOTES, stored.text)
            assert isinstance(counter, Note)
            try:
                with objects.writing() as writer:
                    following = NoteSpec(text=str(int(counter.spec.text) + 1))
                    writer.update(NOTES, structs.replace(counter, spec=following))
                done += 1
            except Conflict:
                continue

    together(*[increment] * WRITERS)
    stored = objects.get(NOTES, "home", "counter")
    assert stored is not None
    assert f'"text":"{WRITERS * TRANSACTIONS}"' in stored.text


def test_the_first_writers_of_all_do_not_collide() -> None:
    start = threading.Barrier(WRITERS)

    def first(name: str) -> None:
        start.wait(60)
        with objects.writing() as writer:
            writer.create(NOTES, note(name))

    together(*(lambda name=f"first-{number}": first(name) for number in range(WRITERS)))
    assert [record.revision for record in event_log.read_after(1)] == list(range(2, WRITERS + 2))


def test_turns_are_taken_in_the_order_of_asking() -> None:
    turn = Turn()
    order: list[int] = []

    def take(number: int) -> None:
        with turn:
            order.append(number)

    with turn:
        threads = []
        for number in range(5):
            thread = threading.Thread(target=take, args=(number,))
            thread.start()
            threads.append(thread)
            while len(turn._waiting) < number + 1:  # it has asked
                thread.join(0.001)
    for thread in threads:
        thread.join(20)
    assert order == [0, 1, 2, 3, 4]


class Interrupted(BaseException):
    """What Ctrl-C raises in a thread that waits."""


def test_who_is_interrupted_while_waiting_is_not_given_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn()

    def interrupted(_event: threading.Event, _timeout: float | None = None) -> bool:
        raise Interrupted

    def ask() -> None:
        with turn:
            raise AssertionError("it was interrupted before")

    with turn, monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(Interrupted):
            ask()
        patch.undo()
        assert not turn._waiting
    with turn:
        pass


def test_a_turn_given_to_who_is_interrupted_at_that_moment_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn()
    turn.__enter__()

    def given_and_interrupted(_event: threading.Event, _timeout: float | None = None) -> bool:
        turn.__exit__()
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", given_and_interrupted)
        with pytest.raises(Interrupted):
            turn.__enter__()
    assert not turn._taken
