"""Which pods are tried next, and that trying early those that were woken during their rest comes to an end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from claims.causes.causes import Interrupted
from scheduling.models import QueuedPod
from scheduling.queue import queue
from scheduling.queue.queue import MOST_EARLY, ReadyPod, ReadyPods
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import Gone, Placement, Retry, Verdict, Wait
from scheduling.state.cluster import ClusterState
from tests.builders import make_class, make_devices, make_node, make_pod, make_slice, make_template
from tests.scheduling.cluster import Cluster

Row = tuple[str, str, float | None, int]  # name, state, seconds until `not_before`, priority

ROWS: dict[str, tuple[list[Row], list[str]]] = {
    "who is active before who was woken": (
        [("woken", "woken", 1, 100), ("active", "active", None, 0)],
        ["active"],
    ),
    "who was woken and has rested is due like any other": (
        [("woken", "woken", 0, 100), ("active", "active", None, 0)],
        ["woken", "active"],
    ),
    "who was woken when nobody else is there, by the end of the rest": (
        [("late", "woken", 8, 100), ("soon", "woken", 2, 0)],
        ["soon", "late"],
    ),
    "by priority where rests end in the same second": (
        [("ordinary", "woken", 2.1, 0), ("urgent", "woken", 2.9, 100)],
        ["urgent", "ordinary"],
    ),
    "by age where all else is alike": (
        [("old", "woken", 2.9, 0), ("young", "woken", 2.1, 0)],
        ["old", "young"],
    ),
    "never who failed by an error": ([("broken", "backoff", 1, 100)], []),
    "never who waits for an event": ([("parked", "unschedulable", None, 0), ("until", "unschedulable", 1, 0)], []),
}


@pytest.mark.parametrize("of_each", [False, True])
@pytest.mark.parametrize("phrase", ROWS)
def test_next_comes(cluster: Cluster, phrase: str, of_each: bool) -> None:
    rows, expected = ROWS[phrase]
    for age, (name, state, rest, priority) in enumerate(rows):
        QueuedPod.objects.create(
            uid=name,
            namespace="default",
            name=name,
            state="backoff" if state == "woken" else state,
            woken=state == "woken",
            priority=priority,
            attempts=1,
            created_at=cluster.now + timedelta(seconds=age),
            not_before=None if rest is None else cluster.now + timedelta(seconds=rest),
        )
    found = queue.ready(10, cluster.now, of_each=of_each)
    assert [pod.uid for pod in found.next] == expected


POD = ReadyPod(uid="web", attempts=1, ready_since=datetime.min.replace(tzinfo=UTC), flushed=False)
DEVICES, BINDING = Hold(reasons=Reason.DEVICES), Hold(reasons=Reason.BINDING)
REFUSED = Wait(pod=make_pod("web"), hold=DEVICES)
PLACED = Placement(pod=make_pod("web"), node="n")

LOOKS: dict[str, tuple[ReadyPods, list[Verdict | Gone], bool]] = {
    "not after one that is due was placed": (ReadyPods(due=[POD], early=[]), [PLACED], False),
    "not after one that is due was refused": (ReadyPods(due=[POD], early=[]), [REFUSED], False),
    "after a full batch": (ReadyPods(due=[POD], early=[]), [REFUSED] * 2, True),
    "when its turn did not come": (ReadyPods(due=[POD], early=[]), [Retry(pod=make_pod("web"), untried=True)], True),
    "for those that were woken": (ReadyPods(due=[POD], early=[POD]), [REFUSED], True),
    "after one was placed early": (ReadyPods(due=[], early=[POD]), [REFUSED, PLACED], True),
    "after one got its devices early": (ReadyPods(due=[], early=[POD]), [replace(REFUSED, hold=BINDING)], True),
    "after one lost a race early": (ReadyPods(due=[], early=[POD]), [Retry(pod=make_pod("web"), at_once=True)], True),
    "not after all were refused early": (ReadyPods(due=[], early=[POD]), [REFUSED] * 2, False),
    "not after a fault early": (ReadyPods(due=[], early=[POD]), [Retry(pod=make_pod("web"))], False),
}


@pytest.mark.parametrize("phrase", LOOKS)
def test_the_worker_looks_again(phrase: str) -> None:
    found, outcomes, expected = LOOKS[phrase]
    assert found.is_more_to_do(outcomes, 2) is expected


#: how the last attempt ended -> what the row is once a slice was published
WOKEN: dict[str, tuple[Reason, str]] = {
    "refused its devices": (Reason.DEVICES, "woken"),
    "refused for several reasons": (Reason.DEVICES | Reason.RESOURCES, "woken"),
    "failed by an error": (Reason.ERROR, "backoff"),
    "failed by an error among others": (Reason.ERROR | Reason.DEVICES, "backoff"),
    "refused devices that drivers are asked about": (Reason.NEGOTIATION | Reason.DEVICES, "backoff"),
    "refused what slices do not change": (Reason.QUOTA, "unschedulable"),
}


@pytest.mark.parametrize("when", ["after it was parked", "before it was parked"])
@pytest.mark.parametrize("phrase", WOKEN)
def test_an_event_wakes_a_pod_that_was(cluster: Cluster, phrase: str, when: str) -> None:
    reasons, expected = WOKEN[phrase]
    pod = cluster.create(make_pod("web"))
    decided_on = fed(cluster)
    parked = Wait(pod=pod, hold=Hold(reasons=reasons))
    if when == "after it was parked":
        queue.settle([parked], revision=decided_on.revision, now=cluster.now)
    cluster.create(make_slice(devices=make_devices(1)))
    fed(cluster)
    if when == "before it was parked":
        queue.settle([parked], revision=decided_on.revision, now=cluster.now)
    row = cluster.queued("web")
    assert ("woken" if row.woken else row.state) == expected


def test_what_broke_rests_to_the_end(cluster: Cluster) -> None:
    pod = cluster.create(make_pod("web"))
    broken = Retry(pod=pod, cause=Interrupted("internal error"), broken=True)
    queue.settle([broken], revision=fed(cluster).revision, now=cluster.now)
    cluster.create(make_node())
    assert cluster.worker.run().taken == 0
    cluster.later(1)
    assert cluster.worker.run().placed == 1


def test_a_pod_is_placed_at_once_when_its_devices_come_during_its_rest(cluster: Cluster) -> None:
    starving(cluster, "web")
    cluster.create(make_slice(devices=make_devices(1)))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_a_pod_that_keeps_failing_is_tried_once_for_each_event(cluster: Cluster) -> None:
    starving(cluster, "web")
    tried = [cluster.queued("web").attempts]
    for number in range(4):
        cluster.create(make_slice(name=f"other-{number}", pool=f"other-{number}", driver="other.example.com"))
        for _ in range(3):
            cluster.worker.run()
        tried.append(cluster.queued("web").attempts)
    assert tried == [1, 2, 3, 4, 5]
    assert cluster.queued("web").state == "unschedulable"


def test_of_many_that_one_event_wakes_in_vain_a_few_are_tried_and_the_others_rest(cluster: Cluster) -> None:
    starving(cluster, *(f"web-{number}" for number in range(MOST_EARLY + 8)))
    cluster.create(make_slice(name="other", pool="other", driver="other.example.com"))
    assert cluster.worker.run().taken == MOST_EARLY
    assert QueuedPod.objects.filter(state="backoff", woken=True).count() == 8
    cluster.later(1)
    assert cluster.worker.run().taken == 8


def test_as_many_are_tried_early_as_are_placed(cluster: Cluster) -> None:
    names = [f"web-{number}" for number in range(MOST_EARLY * 2 + 8)]
    starving(cluster, *names)
    cluster.create(make_slice(devices=make_devices(len(names))))
    cluster.settle()
    assert not QueuedPod.objects.exists()


def fed(cluster: Cluster) -> ClusterState:
    state = ClusterState.captured()
    queue.feed(state, cluster.now)
    return state


def starving(cluster: Cluster, *names: str) -> None:
    """Pods that were refused a device just now."""
    cluster.create(make_class())
    cluster.create(make_node(capacity={"cpu": "64", "memory": "64Gi", "pods": "200"}))
    cluster.create(make_template("one-gpu"))
    for name in names:
        cluster.create(make_pod(name, templates={"gpu": "one-gpu"}))
    cluster.settle()
    assert set(QueuedPod.objects.values_list("name", "state")) == {(name, "unschedulable") for name in names}
