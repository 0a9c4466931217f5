"""Several workers at once, and crashes between any two steps: nothing is given twice, nothing is left undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from django.db import connection
from msgspec import structs

from claims.controllers import generated_claims, reservations
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.nodes import Taint
from manciple.controllers.models import Cursor
from manciple.store import objects
from scheduling.cycle import commit, scheduler
from scheduling.models import QueuedPod
from scheduling.queue import queue
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import GroupVerdict, Placement, Retry, Wait
from scheduling.state.cluster import ClusterState, Devices
from tests.builders import (
    CLASS,
    DRIVER,
    make_allocation,
    make_claim,
    make_container,
    make_pod,
    make_quota,
    make_result,
    make_selectors,
    make_taint_rule,
    make_template,
)
from tests.builders.groups import make_group
from tests.scheduling.cluster import Cluster, in_threads, with_spec


def test_two_workers_racing_never_give_a_device_twice(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    cluster.with_gpus("node-1", "node-2", each=8)
    cluster.create(make_template("one-gpu"))
    for number in range(40):
        cluster.create(make_pod(f"pod-{number}", templates={"gpu": "one-gpu"}))
    workers = [cluster.new_worker(), cluster.new_worker()]
    in_threads(*(worker.run for worker in workers), generated_claims.FOLLOWER.follow, generated_claims.FOLLOWER.follow)
    in_threads(*(worker.run for worker in workers))
    cluster.retry()

    held = [device for claim in cluster.all(ResourceClaim) for device in cluster.devices(claim)]
    assert len(held) == len(set(held)) == 16
    assert sum(bool(pod.spec.node_name) for pod in cluster.all(Pod)) == 16


def test_workers_that_decided_on_the_same_state_conflict_on_one_pod_only(cluster: Cluster) -> None:
    """Both see one free GPU; the second commit finds it gone, and places the pod that did not need it."""
    cluster.with_gpus("node-1", each=1)
    for name in ("one", "two"):
        cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.create(make_pod("plain"))
    first, second = ClusterState.captured(), ClusterState.captured()
    queue.feed(first, cluster.now)
    pods = {pod.metadata.name: pod for pod in cluster.all(Pod)}
    here = [scheduler.decide(first, pods["one"])]
    there = [scheduler.decide(second, pods["two"]), scheduler.decide(second, pods["plain"])]
    commit.commit(first, here, revision=first.revision, now=cluster.now)
    outcomes = commit.commit(second, there, revision=second.revision, now=cluster.now)

    assert [type(outcome).__name__ for outcome in outcomes] == ["Retry", "Placement"]
    assert cluster.pod("one").spec.node_name == "node-1"
    assert cluster.pod("two").spec.node_name == ""
    assert cluster.pod("plain").spec.node_name == "node-1"


def test_a_pod_that_another_worker_bound_is_bound_once(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    first, second = ClusterState.captured(), ClusterState.captured()
    decisions = [[scheduler.decide(state, cluster.pod("web"))] for state in (first, second)]
    for state, decided in zip((first, second), decisions, strict=True):
        commit.commit(state, decided, revision=state.revision, now=cluster.now)
    assert len(cluster.claim("training").status.reserved_for) == 1
    assert len(cluster.events("Scheduled")) == 1


@pytest.mark.parametrize("wants", ["a device", "cpu", "what a quota leaves"])
def test_a_pod_that_was_refused_for_one_that_goes_before_the_commit_is_tried_again(
    cluster: Cluster, wants: str
) -> None:
    """What the first was to get is free then, and no event will tell: it never had it."""
    cluster.with_gpus("node-1", each=1 if wants == "a device" else 2)
    if wants == "what a quota leaves":
        cluster.create(make_quota({f"manciple.dev/allocated.{CLASS}": "1"}))
    for name in ("one", "two"):
        cluster.create(make_claim(name))
        by_cpu = {"containers": [make_container(requests={"cpu": "5"})]}
        cluster.create(make_pod(name, **(by_cpu if wants == "cpu" else {"claims": {"gpu": name}})))
    state = ClusterState.captured()
    queue.feed(state, cluster.now)
    pods = {pod.metadata.name: pod for pod in cluster.all(Pod)}
    decisions = [scheduler.decide(state, pods["one"]), scheduler.decide(state, pods["two"])]
    assert [type(decision).__name__ for decision in decisions] == ["Placement", "Wait"]
    cluster.delete(cluster.pod("one"))
    QueuedPod.objects.filter(name="two").update(attempts=20)
    commit.commit(state, decisions, revision=state.revision, now=cluster.now)
    cluster.settle()  # without a rest
    assert cluster.pod("two").spec.node_name == "node-1"


def test_what_a_gang_lets_go_is_not_tried_for_at_once_by_itself() -> None:
    """It would come to the same again, and again."""
    pods = [make_pod(name, meta={"uid": name}) for name in ("placed", "surplus", "behind")]
    short, used_up = Hold(reasons=Reason.DEVICES, cause=None), Hold(reasons=Reason.QUOTA, cause=None)
    placed, surplus, behind = Placement(pod=pods[0], node="n"), *(Wait(pod=one, hold=short) for one in pods[1:])
    gang = GroupVerdict(group=make_group("train", 1), verdicts=(placed, surplus), wanted=1)
    ended = [Wait(pod=pod, hold=short) for pod in pods]
    ended[0] = replace(ended[0], hold=used_up)
    found = list(commit._retry_what_came_free([gang, behind], ended))
    assert found == [ended[0], ended[1], Retry(pod=pods[2], untried=True)]


Change = Callable[[Cluster], object]

#: what happens between decision and commit -> whether the pod is bound all the same
MEANWHILE: dict[str, tuple[Change, bool]] = {
    "the device was given to a claim written by hand": (
        lambda cluster: cluster.create_allocated(make_claim("thief"), make_allocation(make_result("gpu-0"))),
        False,
    ),
    "another device was given away": (
        lambda cluster: cluster.create_allocated(make_claim("neighbour"), make_allocation(make_result("gpu-1"))),
        True,
    ),
    "the slice lost its devices": (lambda cluster: cluster.update(with_spec(cluster.slice(), devices=())), False),
    "the node was tainted": (
        lambda cluster: cluster.update(with_spec(cluster.node(), taints=(Taint(key="busy", effect="NoSchedule"),))),
        False,
    ),
    "the node was labelled": (lambda cluster: cluster.label(cluster.node(), "zone", "a"), True),
    "the claim was deleted": (lambda cluster: cluster.delete(cluster.claim("training")), False),
    "the claim was labelled": (lambda cluster: cluster.label(cluster.claim("training"), "team", "a"), True),
    "the pod was labelled": (lambda cluster: cluster.label(cluster.pod("web"), "team", "a"), True),
    "the pod was deleted": (lambda cluster: cluster.delete(cluster.pod("web")), False),
    "the pod was replaced by another one of its name": (lambda cluster: cluster.replace_pod("web"), False),
    "a rule tainted the pool": (lambda cluster: cluster.create(make_taint_rule(driver=DRIVER, pool="node-1")), False),
    "a rule tainted every device": (lambda cluster: cluster.create(make_taint_rule()), False),
    "a rule tainted another pool": (
        lambda cluster: cluster.create(make_taint_rule(driver=DRIVER, pool="node-2")),
        True,
    ),
    "the class was changed to select nothing": (
        lambda cluster: cluster.update(with_spec(cluster.device_class(), selectors=make_selectors(["false"]))),
        False,
    ),
}


@pytest.mark.parametrize("phrase", MEANWHILE)
def test_a_placement_is_checked_against_what_happened_meanwhile(cluster: Cluster, phrase: str) -> None:
    change, bound = MEANWHILE[phrase]
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_claim("training"))
    pod = cluster.create(make_pod("web", claims={"gpu": "training"}))
    state = ClusterState.captured()
    decision = scheduler.decide(state, cluster.pod("web"))
    change(cluster)
    commit.commit(state, [decision], revision=state.revision, now=cluster.now)

    now = cluster.find(Pod, "web")
    assert bool(now and now.metadata.uid == pod.metadata.uid and now.spec.node_name) is bound


class Crash(BaseException):
    """A kill -9, as far as the process can tell."""


def crashing(*_args: object, **_kwargs: object) -> None:
    raise Crash


#: where the worker dies
CRASHES: dict[str, tuple[object, str]] = {
    "after the queue was fed": (queue, "ready"),
    "after the pods were taken up": (scheduler, "decide"),
    "before the batch is committed": (scheduler, "commit"),
    "in the middle of the commit": (queue, "settle"),
}


@pytest.mark.parametrize("made", [True, False], ids=["with-claims", "without-claims"])
@pytest.mark.parametrize("phrase", CRASHES)
def test_a_crash_of_the_worker_leaves_its_pods_to_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, phrase: str, made: bool
) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    if made:
        generated_claims.FOLLOWER.follow(cluster.clock)
    module, function = CRASHES[phrase]
    with monkeypatch.context() as patched:
        patched.setattr(module, function, crashing)
        with pytest.raises(Crash):
            cluster.worker.run()
    assert cluster.pod("web").spec.node_name == ""

    assert len(cluster.all(ResourceClaim)) == made
    cluster.new_worker().run()
    assert cluster.pod("web").spec.node_name == "node-1"
    assert len(cluster.all(ResourceClaim)) == 1
    assert QueuedPod.objects.count() == 0


def test_a_crash_of_a_follower_leaves_its_events_to_the_next(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create(make_template("one-gpu"))
    generated_claims.FOLLOWER.follow(cluster.clock)
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    before = Cursor.objects.get(name="claims").revision
    with monkeypatch.context() as patched:
        patched.setattr(generated_claims, "_make", crashing)
        with pytest.raises(Crash):
            generated_claims.FOLLOWER.follow(cluster.clock)
    assert Cursor.objects.get(name="claims").revision == before

    generated_claims.FOLLOWER.follow(cluster.clock)
    assert len(cluster.all(ResourceClaim)) == 1


def test_a_claim_whose_name_was_lost_from_the_status_is_taken_up_again(cluster: Cluster) -> None:
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    generated_claims.FOLLOWER.follow(cluster.clock)
    (made,) = cluster.all(ResourceClaim)
    pod = cluster.pod("web")
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, resource_claim_statuses=())))
    generated_claims.FOLLOWER.follow(cluster.clock)
    assert [claim.metadata.name for claim in cluster.all(ResourceClaim)] == [made.metadata.name]
    assert cluster.generated_claim("web") == made


def test_releasing_twice_at_once_releases_once(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    cluster.with_gpus("node-1")
    for name in ("a", "b"):
        cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    for name in ("a", "b"):
        cluster.delete(cluster.pod(name))
    in_threads(*[lambda: reservations.sweep(cluster.now)] * 3)
    assert all(claim.status.allocation is None for claim in cluster.all(ResourceClaim))


def test_a_batch_that_the_database_refuses_is_committed_pod_by_pod(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The constraint behind everything: it is made to fire by blinding the checks before it."""
    cluster.with_gpus("node-1", each=2)
    for name in ("one", "two"):
        cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name}))
    state = ClusterState.captured()
    queue.feed(state, cluster.now)
    decisions = [scheduler.decide(state, cluster.pod(name)) for name in ("one", "two")]
    cluster.create_allocated(make_claim("thief"), make_allocation(make_result("gpu-0")))
    monkeypatch.setattr(Devices, "staleness", lambda *_args: "")
    outcomes = commit.commit(state, decisions, revision=state.revision, now=cluster.now)
    assert [type(outcome).__name__ for outcome in outcomes] == ["Retry", "Placement"]
    assert cluster.pod("two").spec.node_name == "node-1"
    assert not connection.needs_rollback
    with objects.writing():
        pass
