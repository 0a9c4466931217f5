"""Scheduling time: pods whose selectors take long to evaluate do not keep the pods of other namespaces waiting."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime

import pytest
from django.db import connections
from pytest_django.fixtures import Settings

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import DeviceConstraint, DeviceRequest, ResourceClaim
from manciple.controllers import coordination, tasks
from scheduling.cycle import scheduler
from scheduling.cycle.commit import commit
from scheduling.cycle.post_filter import Remedies
from scheduling.cycle.scheduler import decide_one
from scheduling.metrics import NAMESPACE_TIME
from scheduling.models import QueuedPod
from scheduling.queue import queue
from scheduling.queue.verdicts import Gone, Placement, Verdict
from scheduling.state.cluster import ClusterState
from tests.builders import (
    NAMESPACE,
    make_alternative,
    make_alternatives,
    make_claim,
    make_class,
    make_constraint,
    make_devices,
    make_node,
    make_pod,
    make_priority,
    make_request,
    make_slice,
    make_template,
)
from tests.scheduling.cluster import Cluster
from tests.scheduling.conftest import cluster, shared_cluster

__all__ = ["cluster", "shared_cluster"]

HOSTILE = "hostile"
#: Seconds within which a pod of another namespace is placed; more where many processes share the machine.
SOON = float(os.environ.get("MANCIPLE_TEST_SOON", "1.5"))
#: Selectors of one hostile claim; 128 or 4096 for the full size.
SELECTORS = int(os.environ.get("MANCIPLE_TEST_SELECTORS", "32"))
ITEMS = list(range(46))


def slow_requests(number: int, *, count: int = SELECTORS) -> list[DeviceRequest]:
    """Each selector goes over 46 items in three nested loops: near the cost limit, about half a second a device."""
    loops = f"{ITEMS}.all(a, {ITEMS}.all(b, {ITEMS}.all(c, a + b + c >= %d)))"
    texts = [
        f"device.attributes['gpu.example.com'].index >= 0 && {loops % -(at + 1 + number * count)}"
        for at in range(count)
    ]
    return [make_request(f"r{at}", expressions=texts[at : at + 32]) for at in range(0, count, 32)]


def attack(cluster: Cluster, pods: int, *, priority: str = "") -> None:
    for number in range(pods):
        cluster.create(make_claim(f"slow-{number}", namespace=HOSTILE, requests=slow_requests(number)))
        claims = {"gpu": f"slow-{number}"}
        cluster.create(make_pod(f"slow-{number}", namespace=HOSTILE, claims=claims, priority_class_name=priority))


def victim(cluster: Cluster, name: str = "web") -> Pod:
    cluster.create(make_claim(name))
    return cluster.create(make_pod(name, claims={"gpu": name}))


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> dict[str, float]:
    """uid of a pod -> when it was bound, by time.monotonic(). From then on searches are short: a test is over."""
    bound: dict[str, float] = {}
    settings.SCHEDULER_FILTER_TIMEOUT = 8.0

    def noting(*args: object, **options: object) -> Sequence[Verdict | Gone]:
        outcomes = commit(*args, **options)  # type: ignore[arg-type]
        bound.update({one.uid: time.monotonic() for one in outcomes if isinstance(one, Placement)})
        if bound:
            settings.SCHEDULER_FILTER_TIMEOUT = 0.1
        return outcomes

    monkeypatch.setattr("scheduling.cycle.scheduler.commit", noting)
    return bound


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("pods", "priority"), [(1, ""), (6, ""), (3, "high")], ids=["one pod", "six pods", "three pods of a high priority"]
)
def test_a_pod_of_another_namespace_is_placed_soon(
    cluster: Cluster, commits: dict[str, float], pods: int, priority: str
) -> None:
    cluster.with_gpus("node-1", "node-2", each=4)
    if priority:
        cluster.create(make_priority("high"))
    attack(cluster, pods, priority=priority)
    web = victim(cluster)
    began = time.monotonic()
    cluster.worker.run()
    print(f"placed after {commits[web.metadata.uid] - began:.2f} s")
    assert commits[web.metadata.uid] - began < SOON


def test_a_pod_that_does_not_fit_into_the_batch_is_placed_soon(
    cluster: Cluster, commits: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows yet that the pods before it are costly."""
    monkeypatch.setattr("scheduling.cycle.scheduler.BATCH", 2)
    cluster.with_gpus("node-1", "node-2", each=4)
    attack(cluster, 3)
    web = victim(cluster)
    began = time.monotonic()
    cluster.worker.run()
    print(f"placed after {commits[web.metadata.uid] - began:.2f} s")
    assert commits[web.metadata.uid] - began < SOON


def test_a_pod_that_comes_during_a_long_search_is_placed_soon(
    shared_cluster: Cluster, commits: dict[str, float]
) -> None:
    """Until then the search may use all of its time."""
    cluster = shared_cluster
    cluster.with_gpus("node-1", "node-2", each=4)
    attack(cluster, 1)

    def work() -> None:
        cluster.worker.run()
        connections.close_all()

    working = threading.Thread(target=work)
    working.start()
    time.sleep(1.0)
    assert working.is_alive()
    web, came = victim(cluster), time.monotonic()
    cluster.worker.run()  # as the message about the new pod would have it: somebody is at work
    while web.metadata.uid not in commits and time.monotonic() - came < 10:
        time.sleep(0.02)
    assert commits[web.metadata.uid] - came < SOON
    working.join()


def test_what_pods_of_others_ask_for_is_not_evaluated_for_a_pod(cluster: Cluster, commits: dict[str, float]) -> None:
    """The mix of `fragmentation`, and the index after slices change: while the hostile pods wait, and afterwards."""
    cluster.with_gpus("node-1", "node-2", each=8)
    attack(cluster, 3)
    victim(cluster, "first")
    cluster.worker.run()
    for step in range(4):
        known = cluster.slice(f"node-{1 + step % 2}")
        cluster.label(known, "step", str(step))
        if step == 2:
            for number in range(3):
                cluster.delete(cluster.get(Pod, f"slow-{number}", HOSTILE))
        web, began = victim(cluster, f"web-{step}"), time.monotonic()
        cluster.worker.run()
        assert commits[web.metadata.uid] - began < 0.4


@pytest.mark.usefixtures("commits")
def test_a_pod_that_was_cut_off_says_so_and_backs_off_alone(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    attack(cluster, 2)
    victim(cluster)
    cluster.worker.run()
    slow = cluster.get(Pod, "slow-0", HOSTILE)
    (condition,) = (one for one in slow.status.conditions if one.type == "PodScheduled")
    assert condition.message.startswith(
        "0/1 nodes are available: timed out trying to allocate devices: stopped after 0.3 s at claim hostile/slow-0"
    )
    assert "other namespaces" in condition.message
    assert "stopped after" in cluster.events("FailedScheduling")[0].message
    assert QueuedPod.objects.get(name="slow-0").state == QueuedPod.State.BACKOFF
    assert cluster.pod("web").spec.node_name == "node-1"


@pytest.mark.usefixtures("commits")
def test_processor_time_is_counted_by_namespace_until_that_is_gone(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    attack(cluster, 1)
    victim(cluster)
    before = {name: child._value.get() for name, child in NAMESPACE_TIME.items()}
    cluster.worker.run()
    took = {name: child._value.get() - before.get(name, 0.0) for name, child in NAMESPACE_TIME.items()}
    assert took[HOSTILE] > took["default"] > 0.0
    for kind in (Pod, ResourceClaim):
        for one in cluster.all(kind):
            if one.metadata.namespace == HOSTILE:
                cluster.delete(one)
    cluster.delete(cluster.all_namespaces()[HOSTILE], grace=None)
    cluster.settle()
    cluster.worker.sweep()
    assert HOSTILE not in NAMESPACE_TIME
    assert "default" in NAMESPACE_TIME


def costly_requests(number: int) -> list[DeviceRequest]:
    """One evaluation takes some hundredths of a second, so a pod is decided about in about one slice."""
    items = list(range(46))
    loops = f"{items}.all(a, {items}.all(b, [1,2,3,4,5].all(c, a + b + c < 1000 + {number})))"
    return [make_request(expressions=[f"device.attributes['gpu.example.com'].index >= 0 && {loops} && false"])]


def many_alternatives(number: int) -> list[DeviceRequest]:
    return [make_alternatives(f"r{at}", *(make_alternative(f"s{one}") for one in range(8))) for at in range(9)]


#: Some seconds of decisions, however fast the machine is.
HOSTILE_PODS = 30
TEMPLATES: dict[str, tuple[int, Callable[[int], list[DeviceRequest]], Sequence[DeviceConstraint]]] = {
    "costly selectors": (2, costly_requests, ()),
    "alternatives and a constraint": (40, many_alternatives, (make_constraint("gpu.example.com/numa"),)),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("phrase", TEMPLATES)
def test_a_pod_of_others_is_seen_while_pods_of_templates_are_decided_about(
    shared_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, settings: Settings, phrase: str
) -> None:
    """The pod comes while the first batch is decided about. None of the pods has its claims yet; other workers could
    make claims meanwhile.
    """
    cluster = shared_cluster
    nodes, requests, constraints = TEMPLATES[phrase]
    settings.SCHEDULER_FILTER_TIMEOUT = 2.0
    cluster.create(make_class())
    for node in (f"node-{number}" for number in range(nodes)):
        sockets = [make_devices(4, prefix=f"gpu-{socket}", attributes={"numa": socket}) for socket in (0, 1)]
        cluster.create(make_node(node))
        cluster.create(make_slice(node=node, devices=(*sockets[0], *sockets[1])))
    cluster.create(make_template("one-gpu"))
    for number in range(HOSTILE_PODS):
        name = f"hostile-{number}"
        cluster.create(make_template(name, namespace=HOSTILE, requests=requests(number), constraints=constraints))
        cluster.create(make_pod(name, namespace=HOSTILE, templates={"gpu": name}))
    decided = list[str]()

    def deciding(state: ClusterState, pod: Pod, now: datetime, remedies: Remedies | None) -> object:
        if not decided:
            cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
        decided.append(pod.metadata.namespace)
        with coordination.alone(scheduler.SYNC_CLAIMS.name) as free:
            assert free
        return decide_one(state, pod, now, remedies)

    monkeypatch.setattr("scheduling.cycle.scheduler.decide_one", deciding)
    began = time.monotonic()
    for _turn in range(8):
        tasks.work(scheduler.CONTROLLER)
        if cluster.pod("web").spec.node_name:
            break
    print(f"placed after {time.monotonic() - began:.2f} s, {len(decided)} decisions")
    assert cluster.pod("web").spec.node_name
    assert len(decided) <= HOSTILE_PODS / 2, "decisions until it was bound, not only decided about"


#: Pods of one namespace that are due at a time.
DUE = 60


def test_many_pods_that_fit_nowhere_do_not_keep_the_pods_of_others_waiting(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is quick to decide about; a pod of another namespace comes while many of them are due."""
    monkeypatch.setattr(queue, "MUCH", 0.001)
    monkeypatch.setattr(queue, "LOOK_EVERY", 0.0)
    cluster.with_gpus("node-1", each=4)

    def many(first: int, last: int) -> None:
        for number in range(first, last):
            cluster.create(make_claim(f"many-{number}", namespace=HOSTILE, requests=[make_request(count=9)]))
            cluster.create(make_pod(f"many-{number}", namespace=HOSTILE, claims={"gpu": f"many-{number}"}))

    many(0, 3)
    cluster.worker.run()  # its namespace has used much time from here on
    many(3, DUE)
    decided = list[str]()

    def deciding(state: ClusterState, pod: Pod, now: datetime, remedies: Remedies | None) -> object:
        decided.append(pod.metadata.namespace)
        if len(decided) == DUE // 3:
            victim(cluster)
        return decide_one(state, pod, now, remedies)

    monkeypatch.setattr("scheduling.cycle.scheduler.decide_one", deciding)
    cluster.worker.run()
    assert len(decided) >= DUE - 3
    assert decided.index(NAMESPACE) <= DUE // 3 + 1
    assert cluster.pod("web").spec.node_name
