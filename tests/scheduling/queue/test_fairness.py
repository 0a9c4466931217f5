"""Among pods of one priority none is passed by for ever: a stream of small pods, and a large one."""

from __future__ import annotations

import heapq
from random import Random

import pytest
from msgspec import structs
from pytest_django.fixtures import Settings

from claims.kinds.pods import PodCondition
from scheduling.cycle import post_filter
from scheduling.queue.hints import Wakes
from scheduling.queue.reasons import Reason
from scheduling.state.cluster import ClusterState
from tests.builders import make_claim, make_pod, make_request
from tests.scheduling.cluster import Cluster

#: Seconds between two new small pods, and for how long each runs.
EVERY, RUNS = 10, (60, 180)
DEVICES = 4


class Stream:
    """Small pods that keep a node busy, one device each: before one ends, the next waits already."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self._random = Random(seed)
        self._made = 0
        self._waiting: list[str] = []
        #: (when it ends, pod)
        self._running: list[tuple[float, str]] = []
        self._now = 0.0

    def new(self) -> None:
        name = f"small-{self._made}"
        self._made += 1
        self.cluster.create(make_claim(name))
        self.cluster.create(make_pod(name, claims={"gpu": name}))
        self._waiting.append(name)

    def step(self) -> None:
        """A new pod comes, those whose time is over end, the scheduler does what it can."""
        self._now += EVERY
        self.cluster.later(EVERY)
        self.new()
        while self._running and self._running[0][0] <= self._now:
            self.cluster.finish(heapq.heappop(self._running)[1])
        self.cluster.settle()
        for name in list(self._waiting):
            if self.cluster.pod(name).spec.node_name:
                self._waiting.remove(name)
                heapq.heappush(self._running, (self._now + self._random.uniform(*RUNS), name))

    @property
    def running(self) -> int:
        return len(self._running)


def steps_until_large_runs(cluster: Cluster, seed: int, *, most: int) -> int | None:
    """How many steps a pod waits that wants every device of the node; None where it takes more than `most`."""
    cluster.with_gpus("node-1", each=DEVICES)
    stream = Stream(cluster, seed)
    for _ in range(DEVICES - 1):
        stream.new()
    stream.step()
    assert stream.running == DEVICES
    cluster.create(make_claim("large", requests=[make_request(count=DEVICES)]))
    cluster.create(make_pod("large", claims={"gpu": "large"}))
    for steps in range(most):
        if cluster.pod("large").spec.node_name:
            return steps
        stream.step()
    return None


def test_a_stream_of_small_pods_starves_a_large_one_where_no_room_is_kept(cluster: Cluster, settings: Settings) -> None:
    """Not within half as long again as it takes where room is kept."""
    settings.SCHEDULER_FAIRNESS = 0
    assert steps_until_large_runs(cluster, seed=1, most=40) is None


def test_a_large_pod_starts_when_those_that_ran_before_its_turn_have_ended(cluster: Cluster) -> None:
    # 60 s until room is kept, 180 s for the longest that runs then, 10 s of rest, 10 s for a step.
    steps = steps_until_large_runs(cluster, seed=1, most=60)
    assert steps is not None
    assert steps * EVERY <= 60 + RUNS[1] + 20 + EVERY
    assert cluster.pod("large").status.nominated_node_name == ""


def test_one_pod_of_a_priority_has_room_kept_and_the_others_go_on_elsewhere(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=2)
    for name in ("a", "b", "c", "d"):
        cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    for name in ("large", "second"):
        cluster.create(make_claim(name, requests=[make_request(count=2)]))
        cluster.create(make_pod(name, claims={"gpu": name}))
        cluster.later(1)
    cluster.settle()
    cluster.later(70)
    # Something ends, which wakes them: the first of them has waited for long enough, and what came free is kept for it.
    cluster.finish("a")
    cluster.settle()
    kept = cluster.pod("large").status.nominated_node_name
    assert kept == cluster.pod("a").spec.node_name
    assert cluster.pod("second").status.nominated_node_name == ""
    cluster.create(make_claim("small"))
    cluster.create(make_pod("small", claims={"gpu": "small"}))
    cluster.settle()
    assert cluster.pod("small").spec.node_name == ""
    other = next(name for name in ("b", "c", "d") if cluster.pod(name).spec.node_name != kept)
    cluster.finish(other)
    cluster.retry()
    assert cluster.pod("small").spec.node_name == cluster.pod(other).spec.node_name
    neighbour = next(name for name in ("b", "c", "d") if cluster.pod(name).spec.node_name == kept)
    cluster.finish(neighbour)
    cluster.retry()
    assert cluster.pod("large").spec.node_name == kept


@pytest.mark.parametrize("finalizers", [(), ("batch.kubernetes.io/job-tracking",)], ids=["gone", "on its way out"])
def test_room_that_was_kept_for_a_deleted_pod_is_there_for_others_at_once(
    cluster: Cluster, finalizers: tuple[str, ...]
) -> None:
    cluster.with_gpus("node-1", each=2)
    for name in ("a", "b"):
        cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    cluster.create(make_claim("large", requests=[make_request(count=2)]))
    cluster.create(make_pod("large", claims={"gpu": "large"}, meta={"finalizers": finalizers}))
    cluster.settle()
    cluster.later(70)
    cluster.finish("a")
    cluster.settle()
    assert cluster.pod("large").status.nominated_node_name == "node-1"
    cluster.create(make_claim("small"))
    cluster.create(make_pod("small", claims={"gpu": "small"}))
    cluster.retry()
    assert cluster.pod("small").spec.node_name == ""
    cluster.delete(cluster.pod("large"))
    cluster.retry()
    assert cluster.pod("small").spec.node_name == "node-1"


def test_what_is_said_of_a_pod_for_which_room_is_kept_wakes_nobody(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    large = cluster.create(make_pod("large"))
    cluster.update(structs.replace(large, status=structs.replace(large.status, nominated_node_name="node-1")))
    state = ClusterState.captured()
    post_filter.settle(state, cluster.now)
    assert state.rooms.on("node-1")
    before, large = state.revision, cluster.pod("large")
    told = (*large.status.conditions, PodCondition(type="example.com/Seen", status="True"))
    cluster.update(structs.replace(large, status=structs.replace(large.status, conditions=told)))
    state.advance()
    news = state.news_after(before)
    assert news
    assert Wakes(news).anywhere == Reason(0)
