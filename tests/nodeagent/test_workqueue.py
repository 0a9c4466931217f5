"""The work queue: nothing missed, nothing twice at once, failures wait longer each time."""

from __future__ import annotations

import threading

from nodeagent.work import WorkQueue
from tests.nodeagent.machine import Clock


def queue(clock: Clock | None = None) -> WorkQueue[str]:
    return WorkQueue(first_delay=1.0, longest_delay=8.0, clock=clock or Clock())


def take(given: WorkQueue[str]) -> str:
    key = given.get()
    assert key is not None
    return key


def test_a_key_added_twice_is_looked_at_once() -> None:
    work = queue()
    for key in ("a", "b", "a"):
        work.add(key)

    assert [take(work), take(work)] == ["a", "b"]
    work.close()
    assert work.get() is None


def test_a_key_added_while_it_is_worked_on_comes_again_afterwards() -> None:
    work = queue()
    work.add("a")
    assert take(work) == "a"
    work.add("a")
    work.add("b")
    assert take(work) == "b", "nobody else may look at a meanwhile"

    work.done("a")

    assert take(work) == "a"


def test_failures_wait_longer_up_to_a_limit_until_one_goes_well() -> None:
    work = queue()

    assert [work.retry("a") for _ in range(5)] == [1, 2, 4, 8, 8]
    assert work.retry("b") == 1
    work.forget("a")
    assert work.retry("a") == 1


def test_a_delayed_key_comes_when_it_is_due_and_only_once() -> None:
    clock = Clock()
    work = queue(clock)
    work.add_after("a", 5)
    work.add_after("a", 2)
    work.add_after("a", 9)
    work.add("now")
    assert take(work) == "now"

    clock.now += 2
    assert take(work) == "a"
    work.done("a")

    clock.now += 100
    work.add("end")
    assert take(work) == "end"


def test_a_waiting_worker_wakes_for_work_and_for_the_end() -> None:
    work = queue()
    got: list[str | None] = []
    first = threading.Event()

    def serve() -> None:
        while True:
            key = work.get()
            got.append(key)
            first.set()
            if key is None:
                return
            work.done(key)

    thread = threading.Thread(target=serve)
    thread.start()
    work.add("a")
    assert first.wait(60)
    work.close()
    thread.join(10)

    assert got == ["a", None]
