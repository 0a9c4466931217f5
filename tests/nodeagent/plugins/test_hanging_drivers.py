"""A driver that hangs holds up the pods that use it, and no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from nodeagent.plugins.protocol import Claim, PreparedClaim
from nodeagent.work import Crew, NamedLocks, WorkQueue
from tests.nodeagent.machine import Clock
from tests.nodeagent.objects import claim, pod
from tests.nodeagent.plugins.conftest import PluginNode, until
from tests.nodeagent.plugins.plugin import TIMEOUT

HANGING = "hanging.example.com"


def test_pods_of_a_driver_that_hangs_hold_up_no_other_pod(node: PluginNode) -> None:
    """There are more of them than workers, and those of one claim wait for each other."""
    node.call_seconds = 45.0
    agent = node.start()
    hanging, _ = node.registered(HANGING), node.registered()
    release, well = threading.Event(), hanging.prepare

    def hang(claim: Claim) -> PreparedClaim | None:
        release.wait(TIMEOUT)
        return well(claim)

    hanging.prepare = hang
    names = [f"stuck-{index}" for index in range(agent.config.workers + 2)]
    for index, name in enumerate(names):
        node.come(name, device=f"dev-{index}", driver=HANGING)
    node.api.put("resourceclaims", claim("shared", "dev-s", pods=("uid-s1", "uid-s2", "uid-s3"), driver=HANGING))
    for name in ("s1", "s2", "s3"):
        node.api.put("pods", pod(name, claims={"gpus": "shared"}))
    hanging.wait_for(lambda: hanging.count("v1 prepare") == len(names) + 1)
    node.come("free")
    node.runs("free")
    assert not any(node.is_ready(name) for name in names)
    node.api.delete("pods", "free")
    node.ends("free")

    release.set()
    for name in (*names, "s1", "s2", "s3"):
        node.runs(name)


def test_a_driver_that_hangs_does_not_hold_up_the_end_of_the_agent(node: PluginNode) -> None:
    node.call_seconds = 45.0
    node.start()
    plugin = node.registered()
    release = threading.Event()

    def hang(_claim: Claim) -> None:
        release.wait(TIMEOUT)

    plugin.prepare = hang
    node.come()
    plugin.wait_for(lambda: plugin.calls)
    node.stop()
    release.set()


class Bench:
    """Work that lasts until it is let go."""

    def __init__(self, *, size: int, most: int) -> None:
        self.clock = Clock(0.0)
        self.queue: WorkQueue[str] = WorkQueue()
        self.at: set[str] = set()
        self.done: set[str] = set()
        self._let_go: set[str] = set()
        self._changed = threading.Condition()
        self.crew = Crew(self.queue, self._work, size=size, most=most, name="test", patience=10.0, clock=self.clock)

    def _work(self, key: str) -> None:
        with self._changed:
            self.at.add(key)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: key in self._let_go, TIMEOUT)
            self.at.discard(key)
            self.done.add(key)
            self._changed.notify_all()

    def add(self, *keys: str) -> None:
        for key in keys:
            self.queue.add(key)

    def let_go(self, *keys: str) -> None:
        with self._changed:
            self._let_go.update(keys)
            self._changed.notify_all()

    def wait_until_at(self, *keys: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.at == set(keys), TIMEOUT)


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench(size=2, most=4)
    yield one
    one.let_go(*"abcdefgh")
    one.queue.close()
    one.crew.join(time.monotonic() + TIMEOUT)


def test_workers_that_wait_are_replaced_up_to_a_limit(bench: Bench) -> None:
    bench.crew.reinforce()
    bench.add("a", "b", "c")
    bench.wait_until_at("a", "b")
    bench.clock.now = 9
    bench.crew.reinforce()
    assert bench.crew.strength() == 2, "they have not been at it for long"

    bench.clock.now = 11
    bench.crew.reinforce()
    bench.add("d", "e")
    bench.wait_until_at("a", "b", "c", "d")
    bench.clock.now = 22
    bench.crew.reinforce()
    assert bench.crew.strength() == 4, "there are no more than that"


def test_there_are_as_many_free_workers_as_waiting_ones() -> None:
    bench = Bench(size=1, most=99)
    for _ in range(3):
        bench.crew.reinforce()
        stuck = [f"{bench.clock.now}-{index}" for index in range(bench.crew.strength() - len(bench.at))]
        bench.add(*stuck)
        bench.wait_until_at(*bench.at, *stuck)
        bench.clock.now += 11
    assert bench.crew.strength() == 4
    bench.let_go(*bench.at)
    bench.queue.close()
    bench.crew.join(time.monotonic() + TIMEOUT)


def test_workers_that_are_too_many_leave(bench: Bench) -> None:
    bench.crew.reinforce()
    bench.add("a", "b")
    bench.wait_until_at("a", "b")
    bench.clock.now = 11
    bench.crew.reinforce()
    assert bench.crew.strength() == 4
    bench.let_go("a", "b")
    until(lambda: bench.crew.strength() == 2)
    bench.add("c", "d")
    bench.wait_until_at("c", "d")


def test_a_crew_keeps_itself_at_strength_and_stops_when_told_to() -> None:
    queue: WorkQueue[str] = WorkQueue()
    stuck, done = threading.Event(), threading.Event()

    def work(key: str) -> None:
        if key == "last":
            done.set()
        else:
            stuck.wait(TIMEOUT)

    crew = Crew(queue, work, size=1, most=8, name="test", patience=0.05)
    keeper = threading.Thread(target=crew.run)
    keeper.start()
    for key in ("a", "b", "c", "last"):
        queue.add(key)
    assert done.wait(TIMEOUT)
    stuck.set()
    queue.close()
    crew.stop()
    keeper.join(TIMEOUT)
    assert not keeper.is_alive()


def test_a_crew_without_work_stops_at_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    crew = Crew(queue, lambda _key: None, size=1, most=2, name="test", patience=0.01)
    keeper = threading.Thread(target=crew.run)
    keeper.start()
    until(lambda: crew.strength() == 1)
    crew.stop()
    queue.close()
    keeper.join(TIMEOUT)
    assert not keeper.is_alive()


def test_a_name_that_is_held_excludes_itself_and_nobody_else() -> None:
    locks = NamedLocks()
    entered = threading.Event()

    def enter() -> None:
        with locks.hold(["a", "z"]):
            entered.set()

    with locks.hold(["a", "a"]):
        waiting = threading.Thread(target=enter)
        waiting.start()
        with locks.hold(f"name-{index}" for index in range(1000)):
            assert not entered.is_set()
    assert entered.wait(TIMEOUT)
    waiting.join(TIMEOUT)
    with locks.hold(["a"]):
        pass
