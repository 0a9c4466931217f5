"""How scheduling time is counted by namespace, and when a slice of it ends."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pytest_django.fixtures import Settings

from claims.controllers import reservations
from manciple.store import event_log
from manciple.wire.limits import TimeLimitExceeded, check_time
from scheduling.queue import queue
from scheduling.queue.queue import (
    HALF_LIFE,
    MOST_SLOW,
    MUCH,
    NOT_SLOW,
    SLOW,
    NamespaceTimes,
    Newcomers,
    SearchSlice,
)
from tests.builders import make_claim, make_namespace, make_pod, make_priority
from tests.scheduling.cluster import Cluster


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_quick_decisions_make_no_namespace_slow_but_many_make_it_busy() -> None:
    times = NamespaceTimes(Clock())
    for _ in range(int(MUCH / NOT_SLOW) + 1):
        times.add("many", NOT_SLOW)
        times.add_turn({"many": 1}, NOT_SLOW)
    assert times.slow() == []
    assert times.busy() == ["many"]


def test_slow_decisions_add_up_and_are_forgiven_in_time() -> None:
    clock = Clock()
    times = NamespaceTimes(clock)
    times.add("slow", NOT_SLOW + SLOW * 0.6)
    assert times.slow() == []
    times.add("slow", NOT_SLOW + SLOW * 0.6)
    assert times.slow() == ["slow"]
    for _ in range(100):
        times.add("slow", 1.0)
    clock.now += HALF_LIFE * 2
    assert times.slow() == ["slow"]
    clock.now += HALF_LIFE * (MOST_SLOW / SLOW)
    assert times.slow() == []


def test_a_namespace_is_slow_once_one_of_its_decisions_was_cut_off() -> None:
    times = NamespaceTimes(Clock())
    times.add("slow", 0.01, cut_off=True)
    assert times.slow() == ["slow"]


def test_a_slice_ends_when_others_wait_and_not_before() -> None:
    clock, waiting = Clock(), list[bool]()
    cut = SearchSlice(1.0, lambda: bool(waiting), clock)
    seen = []
    for clock.now, waiting[:] in (
        (0.5, [True]),
        (1.5, []),
        (1.5 + queue.LOOK_EVERY / 2, [True]),  # it looks every so often
        (1.5 + queue.LOOK_EVERY, [True]),
        (2.0, []),  # and stays so
    ):
        seen.append(cut.deadline.has_passed)
    assert seen == [False, False, False, True, True]
    assert cut.has_cut_off


def test_a_gang_has_a_longer_slice(settings: Settings) -> None:
    settings.SCHEDULER_SEARCH_SLICE = 0.2
    assert [queue.slice_seconds(pods) for pods in (0, 50, 10_000)] == [0.2, 0.4, 1.0]
    settings.SCHEDULER_SEARCH_SLICE = 3.0
    assert queue.slice_seconds(100) == 3.0


def test_a_gang_that_was_cut_off_gets_twice_the_time_until_it_is_decided_about(settings: Settings) -> None:
    settings.SCHEDULER_SEARCH_SLICE = 0.2
    times, slices = NamespaceTimes(Clock()), []
    for cut_off in (True, True, True, True, False, False):
        slices.append(times.slice_of("gang", 50))
        times.note_slice("gang", slices[-1], cut_off=cut_off)
    assert slices == [0.4, 0.8, 1.6, 3.2, 6.4, 0.4]
    times.note_slice("gang", 6.4, cut_off=True)
    assert times.slice_of("gang", 50) == queue.LONGEST_GANG_SLICE
    assert times.slice_of("other", 50) == 0.4
    assert times.slice_of("gang", 0) == 0.2


def test_a_batch_remembers_that_others_cut_a_gang_off(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    times = NamespaceTimes()
    spent = queue.BatchTime(times, [], event_log.latest_revision())
    monkeypatch.setattr(queue.BatchTime, "_others_wait", lambda *_: True)
    monkeypatch.setattr(NamespaceTimes, "slice_of", lambda *_: 0.0)
    gang, noted = make_pod("p", namespace="a"), list[tuple[str, float, bool]]()
    monkeypatch.setattr(times, "note_slice", lambda uid, seconds, cut_off: noted.append((uid, seconds, cut_off)))
    with pytest.raises(TimeLimitExceeded), spent.deciding(gang, group=3):
        check_time()
    with spent.deciding(gang):
        pass
    assert noted == [(gang.metadata.uid, 0.0, True)]


@pytest.fixture
def ready(cluster: Cluster) -> Cluster:
    """Pods that can be tried: the oldest first, with a more important one in `vip`."""
    cluster.create(make_priority("high"))
    for namespace, priority in (("a", ""), ("b", ""), ("c", ""), ("vip", "high"), ("a", "high")):
        cluster.later(1)
        name = f"{namespace}-{priority or 'low'}"
        cluster.create(make_pod(name, namespace=namespace, claims=None, priority_class_name=priority))
    with cluster.worker._following.view() as state:
        queue.feed(state, cluster.now)
    return cluster


def order(slow: tuple[str, ...] = (), busy: tuple[str, ...] = (), *, of_each: bool = False) -> list[str]:
    found = queue.ready(10, datetime.now(UTC), of_each=of_each, slow=slow, busy=busy)
    return [f"{pod.namespace}{'!' if pod.priority else ''}" for pod in found.due]


@pytest.mark.parametrize("of_each", [False, True], ids=["by age", "for fair shares"])
@pytest.mark.usefixtures("ready")
def test_slow_namespaces_come_last_and_busy_ones_last_of_their_priority(*, of_each: bool) -> None:
    assert order(of_each=of_each) == ["vip!", "a!", "a", "b", "c"]
    assert order(busy=("a", "vip"), of_each=of_each) == ["vip!", "a!", "b", "c", "a"]
    assert order(slow=("a",), of_each=of_each) == ["vip!", "b", "c", "a!", "a"]
    assert order(slow=("a", "b"), busy=("c", "b"), of_each=of_each) == ["vip!", "c", "a!", "a", "b"]


def test_newcomers_are_pods_of_other_namespaces_that_have_no_node(cluster: Cluster) -> None:
    cluster.with_gpus()
    start = cluster.create(make_claim("first"))
    newcomers = Newcomers(int(start.metadata.resource_version))
    assert not newcomers.of_others("default")
    cluster.create(make_namespace("other"))
    cluster.create(make_pod("mine"))
    cluster.create(make_pod("bound", namespace="other", node="node-1"))
    assert not newcomers.of_others("default")
    cluster.create(make_pod("theirs", namespace="other"))
    assert newcomers.of_others("default")
    assert newcomers.of_others("other")  # `mine`


def test_newcomers_are_pods_of_others_that_waited_for_what_came_free(cluster: Cluster) -> None:
    cluster.with_gpus(each=1)
    for name, namespace in (("holds", "default"), ("waits", "other")):
        cluster.create(make_claim(name, namespace=namespace))
        cluster.create(make_pod(name, namespace=namespace, claims={"gpu": name}))
    cluster.settle()
    assert cluster.pod("holds").spec.node_name
    newcomers = Newcomers(event_log.latest_revision())
    assert not newcomers.of_others("default")
    cluster.finish("holds")
    reservations.FOLLOWER.follow(cluster.clock)
    assert newcomers.of_others("default")
    assert not newcomers.of_others("other")


def test_what_a_batch_takes_is_shared_by_those_that_it_was_for() -> None:
    times = NamespaceTimes(Clock())
    times.add_turn({"many": 90, "few": 10}, 1.5 * MUCH)
    assert times.busy() == ["many"]
    assert times.slow() == []


def test_a_batch_is_committed_before_the_first_pod_of_a_namespace_that_used_much(cluster: Cluster) -> None:
    times = NamespaceTimes(Clock())
    times.add_turn({"busy": 1, "busier": 2}, 6 * MUCH)
    spent = queue.BatchTime(times, [], event_log.latest_revision())
    for namespace, over in (("a", False), ("b", False), ("busy", True)):
        assert spent.is_over(namespace) == over
        with spent.deciding(make_pod("p", namespace=namespace)):
            pass
    assert not spent.is_over("busier")


@pytest.mark.parametrize("why", ["a slow decision", "a namespace that used much"])
def test_a_batch_ends_once_pods_of_others_have_come(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(queue, "LOOK_EVERY", 0.0)
    times = NamespaceTimes(Clock())
    if why == "a slow decision":
        monkeypatch.setattr(queue, "NOT_SLOW", -1.0)
    else:
        times.add_turn({"a": 1}, 2 * MUCH)
    spent = queue.BatchTime(times, [], event_log.latest_revision())
    with spent.deciding(make_pod("p", namespace="a")):
        pass
    assert not spent.is_over("a")
    cluster.create(make_namespace("b"))
    cluster.create(make_pod("theirs", namespace="b"))
    assert spent.is_over("a")
    assert spent.gave_way
