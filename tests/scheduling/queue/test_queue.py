"""The queue: who is tried when, who waits for what, and that no wake-up is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec import structs

from claims.causes.causes import Interrupted
from claims.kinds.pod_groups import GANG, GANG_SIZE
from claims.kinds.pods import Pod, PodSchedulingGate
from manciple.controllers.models import Cursor
from manciple.store.space import prune
from scheduling.models import QueuedPod
from scheduling.queue import queue
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import Gone, Retry, Wait
from scheduling.state.cluster import ClusterState
from tests.builders import make_claim, make_container, make_node, make_pod, make_priority, make_template
from tests.scheduling.cluster import Cluster, with_spec

DEVICES = Hold(reasons=Reason.DEVICES)


def uid_of(cluster: Cluster, name: str) -> str:
    return cluster.pod(name).metadata.uid


def feed(cluster: Cluster) -> ClusterState:
    state = ClusterState.captured()
    queue.feed(state, cluster.now)
    return state


def park(cluster: Cluster, name: str, hold: Hold, state: ClusterState) -> None:
    pod = cluster.pod(name)
    outcome = Wait(pod=pod, hold=hold)
    queue.settle([outcome], revision=state.revision, now=cluster.now)


def test_pods_are_tried_by_priority_then_age(cluster: Cluster) -> None:
    for name in ("old", "middle", "young"):
        cluster.create(make_pod(name))
    cluster.create(make_priority("first", 100))
    cluster.create(make_pod("urgent", priority_class_name="first"))
    feed(cluster)
    ready = [pod.uid for pod in queue.ready(10, cluster.now).due]
    assert ready == [uid_of(cluster, name) for name in ("urgent", "old", "middle", "young")]


def test_pods_of_other_schedulers_and_bound_pods_are_not_queued(cluster: Cluster) -> None:
    cluster.create(make_node())
    cluster.create(make_pod("theirs", scheduler_name="other"))
    cluster.create(make_pod("bound", node="node-1"))
    feed(cluster)
    assert not QueuedPod.objects.exists()


def test_a_gated_pod_waits_for_its_gates_and_nothing_else(cluster: Cluster) -> None:
    cluster.create(make_node())
    cluster.create(make_pod("web", scheduling_gates=(PodSchedulingGate(name="example.com/wait"),)))
    cluster.settle()
    assert cluster.queued("web").held_by == Reason.GATED
    assert cluster.events("FailedScheduling") == []

    cluster.update(with_spec(cluster.pod("web"), scheduling_gates=()))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_a_pod_without_its_claims_enters_the_queue_when_they_are_made(cluster: Cluster) -> None:
    cluster.with_gpus()
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()
    assert cluster.queued("web").held_by == Reason.CLAIM_MISSING
    assert [event.message for event in cluster.events("FailedResourceClaimCreation")] == [
        'PodResourceClaim gpu: resource claim template "one-gpu": '
        'resourceclaimtemplate.resource.k8s.io "one-gpu" not found'
    ]

    cluster.create(make_template("one-gpu"))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_a_pod_whose_claim_stays_away_is_told_so_after_a_moment(cluster: Cluster) -> None:
    cluster.with_gpus()
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()
    assert cluster.pod("web").status.conditions == ()
    cluster.later(queue.EXPLAIN_AFTER.total_seconds() + 1)
    cluster.worker.sweep()
    cluster.settle()
    assert cluster.why_pending("web") == (
        '0/1 nodes are available: resourceclaim.resource.k8s.io "training" not found.'
    )

    cluster.create(make_claim("training"))
    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_only_the_pod_that_awaits_the_claim_is_woken(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.create(make_pod(name, claims={"gpu": f"claim-{name}"}))
    feed(cluster)
    cluster.create(make_claim("claim-a"))
    feed(cluster)
    assert [cluster.queued(name).state for name in ("a", "b")] == ["active", "unschedulable"]


def test_a_pod_that_fails_again_and_again_rests_longer_each_time(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    rests = []
    state = feed(cluster)
    for _ in range(6):
        queue.settle(
            [Retry(pod=cluster.pod("web"), cause=Interrupted("conflict"))], revision=state.revision, now=cluster.now
        )
        rest = (cluster.queued("web").not_before or cluster.now) - cluster.now
        rests.append(rest.total_seconds())
        cluster.later(rest.total_seconds())
    assert rests == [1, 2, 4, 8, 10, 10]


def test_who_is_woken_during_the_rest_is_due_at_its_end(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    park(cluster, "web", DEVICES, feed(cluster))
    cluster.with_gpus()
    feed(cluster)
    assert cluster.queued("web").state == "backoff"
    assert queue.ready(10, cluster.now).due == []
    cluster.later(1)
    assert [pod.uid for pod in queue.ready(10, cluster.now).due] == [uid_of(cluster, "web")]


def test_an_event_between_decision_and_parking_is_not_lost(cluster: Cluster) -> None:
    """The feed read it while the attempt ran, and found nobody waiting."""
    cluster.create(make_pod("web"))
    decided_on = feed(cluster)
    cluster.with_gpus()
    feed(cluster)
    park(cluster, "web", DEVICES, decided_on)
    assert cluster.queued("web").state == "backoff"


def test_an_event_that_cannot_help_leaves_the_pod_parked(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    decided_on = feed(cluster)
    cluster.create(make_claim("unrelated"))
    feed(cluster)
    park(cluster, "web", DEVICES, decided_on)
    assert cluster.queued("web").state == "unschedulable"


def test_a_decision_older_than_the_log_is_tried_again(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    decided_on = feed(cluster)
    cluster.create(make_claim("unrelated"))
    feed(cluster)
    prune(older_than=timedelta(0), now=cluster.now + timedelta(days=1))
    park(cluster, "web", DEVICES, decided_on)
    assert cluster.queued("web").state == "backoff"


def test_nobody_waits_longer_than_five_minutes(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    state = feed(cluster)
    park(cluster, "web", DEVICES, state)
    cluster.later(queue.FLUSH_AFTER.total_seconds() - 1)
    queue.flush(cluster.now)
    assert cluster.queued("web").state == "unschedulable"
    cluster.later(2)
    queue.flush(cluster.now)
    assert cluster.queued("web").state == "active"


def test_mending_makes_the_rows_match_the_pods(cluster: Cluster) -> None:
    for name in ("kept", "lost"):
        cluster.create(make_pod(name))
    feed(cluster)
    QueuedPod.objects.filter(name="lost").delete()
    QueuedPod.objects.filter(name="kept").update(uid="left-over")
    queue.mend(ClusterState.captured(), cluster.now)
    assert sorted(QueuedPod.objects.values_list("uid", flat=True)) == sorted(
        uid_of(cluster, name) for name in ("kept", "lost")
    )


@pytest.mark.parametrize("lost", ["the rows", "the cursor", "both"])
def test_a_lost_queue_is_seeded_anew(cluster: Cluster, lost: str) -> None:
    cluster.create(make_node())
    cluster.create(make_pod("web"))
    feed(cluster)
    if lost != "the cursor":
        QueuedPod.objects.all().delete()
    if lost != "the rows":
        Cursor.objects.all().delete()
    cluster.worker.sweep()
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_a_cursor_below_the_pruned_log_is_seeded_anew(cluster: Cluster) -> None:
    cluster.create(make_node())
    feed(cluster)
    cluster.create(make_pod("web"))
    prune(older_than=timedelta(0), now=cluster.now + timedelta(days=1))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_bound_and_deleted_pods_leave_the_queue(cluster: Cluster) -> None:
    cluster.create(make_node())
    for name in ("bound", "deleted"):
        cluster.create(make_pod(name))
    feed(cluster)
    cluster.update(with_spec(cluster.pod("bound"), node_name="node-1"))
    cluster.delete(cluster.pod("deleted"))
    feed(cluster)
    assert not QueuedPod.objects.exists()


def test_a_done_pod_loses_its_row(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    state = feed(cluster)
    queue.settle([Gone(uid=uid_of(cluster, "web"))], revision=state.revision, now=cluster.now)
    assert not QueuedPod.objects.exists()


def test_a_finished_pod_makes_room_for_one_that_waits_for_cpu(cluster: Cluster) -> None:
    cluster.create(make_node(capacity={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    hungry = [make_container(requests={"cpu": "3"})]
    cluster.create(make_pod("first", containers=hungry))
    cluster.settle()
    cluster.create(make_pod("second", containers=hungry))
    cluster.settle()
    assert cluster.why_pending("second") == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    cluster.finish("first")
    cluster.retry()
    assert cluster.get(Pod, "second").spec.node_name == "node-1"


def test_a_refusal_that_says_the_same_again_is_counted_not_repeated(cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    cluster.settle()
    revision = cluster.pod("web").metadata.resource_version
    QueuedPod.objects.update(state="active")
    cluster.settle()
    assert cluster.pod("web").metadata.resource_version == revision
    (event,) = cluster.events("FailedScheduling")
    assert (event.count, event.type, event.message) == (2, "Warning", "no nodes available to schedule pods")


def second_missing(cluster: Cluster) -> None:
    cluster.delete(cluster.claim("training"))
    cluster.delete(cluster.claim("other"))
    cluster.settle()
    cluster.later(queue.EXPLAIN_AFTER.total_seconds() + 1)
    cluster.settle()
    assert '"training" not found' in cluster.why_pending("web")
    cluster.create(make_claim("training"))


#: what happens to a pod that was tried -> what its condition says soon
LOST: dict[str, tuple[Callable[[Cluster], object], str]] = {
    "a claim was deleted": (lambda cluster: cluster.delete(cluster.claim("training")), '"training" not found'),
    "its second claim was deleted": (lambda cluster: cluster.delete(cluster.claim("other")), '"other" not found'),
    "of two missing claims the first came": (second_missing, '"other" not found'),
}


@pytest.mark.parametrize("phrase", LOST)
def test_the_condition_of_a_pod_that_was_tried_soon_names_what_is_missing_by_now(cluster: Cluster, phrase: str) -> None:
    lose, reason = LOST[phrase]
    cluster.with_gpus(each=1)
    for name in ("training", "other"):
        cluster.create(make_claim(name))
    cluster.create(make_pod("web", claims={"gpu": "training", "more": "other"}))
    cluster.settle()
    assert "cannot allocate all claims" in cluster.why_pending("web")
    lose(cluster)
    assert_soon_explained(cluster, "web", reason)


def test_the_condition_of_a_gangs_pod_that_was_tried_soon_says_that_others_are_missing(cluster: Cluster) -> None:
    cluster.with_gpus(each=1)
    for name in ("w-0", "w-1"):
        cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name}, meta={"annotations": {GANG: "train", GANG_SIZE: "2"}}))
    cluster.settle()
    missing = "waiting for minCount pods from a gang to appear"
    assert missing not in cluster.why_pending("w-1")
    cluster.delete(cluster.pod("w-0"))
    cluster.create(make_node("node-2"))  # it may help, so the waiting pod is considered again
    assert_soon_explained(cluster, "w-1", missing)


def assert_soon_explained(cluster: Cluster, name: str, reason: str) -> None:
    """One attempt writes it, a moment later; events that change nothing neither put that off nor repeat it."""
    cluster.settle()
    attempts, lost = cluster.queued(name).attempts, cluster.now
    for seconds in (2, 2, 2, 6, 6):
        pod = cluster.pod(name)
        labels = {**pod.metadata.labels, "at": str(int(cluster.now.timestamp()))}
        cluster.update(structs.replace(pod, metadata=structs.replace(pod.metadata, labels=labels)))
        cluster.settle()
        cluster.later(seconds)
        cluster.settle()
        written = reason in cluster.why_pending(name)
        assert written or cluster.now - lost < queue.EXPLAIN_AFTER
    assert cluster.queued(name).attempts == attempts + 1
