"""Flushes of a directory that come together are one, and none that came too late is taken for one's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from nodeagent.storage import SharedFlushes
from tests.e2e.processes import wait_for


class SlowDisk:
    """Its flushes end when they are let; `failing` says which of them (from 1) fail."""

    def __init__(self, *failing: int) -> None:
        self.begun = 0
        self._failing = failing
        self._let = threading.Semaphore(0)

    def flush(self) -> None:
        self.begun += 1
        number = self.begun
        assert self._let.acquire(timeout=60)
        if number in self._failing:
            raise OSError(5, f"flush {number} failed")

    def end_one(self) -> None:
        self._let.release()


class Callers:
    def __init__(self, disk: SlowDisk) -> None:
        self.shared, self.disk = SharedFlushes(), disk
        self._pool = ThreadPoolExecutor(8)

    def call(self, name: str = "claims") -> Future[None]:
        return self._pool.submit(self.shared.flush, name, self.disk.flush)

    def wait_until_asked(self, count: int) -> None:
        """Until `count` callers wait for a flush that has not begun."""
        condition = self.shared._changed
        wait_for("the callers", lambda: len(condition._waiters) == count)  # type: ignore[attr-defined]


@contextmanager
def callers(disk: SlowDisk) -> Iterator[Callers]:
    calling = Callers(disk)
    yield calling
    calling._pool.shutdown()


def begun(disk: SlowDisk, count: int) -> None:
    wait_for(f"flush {count}", lambda: disk.begun == count)


def test_all_who_come_during_a_flush_share_the_next_one() -> None:
    disk = SlowDisk()
    with callers(disk) as calling:
        first = calling.call()
        begun(disk, 1)
        others = [calling.call() for _ in range(5)]
        calling.wait_until_asked(5)
        disk.end_one()
        first.result(timeout=60)
        begun(disk, 2)
        assert not any(other.done() for other in others), "the first flush began before they came"
        disk.end_one()
        for other in others:
            other.result(timeout=60)
    assert disk.begun == 2


def test_a_flush_that_fails_fails_for_those_whom_it_was_to_serve_and_nobody_else() -> None:
    disk = SlowDisk(2)
    with callers(disk) as calling:
        first = calling.call()
        begun(disk, 1)
        others = [calling.call() for _ in range(3)]
        calling.wait_until_asked(3)
        disk.end_one()
        begun(disk, 2)
        last = calling.call()
        disk.end_one()
        for other in others:
            with pytest.raises(OSError, match="flush 2 failed"):
                other.result(timeout=60)
        begun(disk, 3)
        disk.end_one()
        first.result(timeout=60)
        last.result(timeout=60)


def test_directories_do_not_wait_for_each_other() -> None:
    disk = SlowDisk()
    with callers(disk) as calling:
        both = [calling.call("claims"), calling.call("cdi")]
        begun(disk, 2)
        disk.end_one()
        disk.end_one()
        for one in both:
            one.result(timeout=60)


def test_a_flush_that_is_cut_short_serves_nobody() -> None:
    """Whatever ends it: the next caller flushes anew."""
    shared = SharedFlushes()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shared.flush("claims", interrupted)
    done = []
    shared.flush("claims", lambda: done.append(1))
    assert done == [1]
