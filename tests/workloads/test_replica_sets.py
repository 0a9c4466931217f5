"""A ReplicaSet has as many pods as it wants: never more, whatever fails, and says how many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.quotas import RESOURCE_QUOTA
from claims.kinds.registration import POD
from manciple.controllers import turns
from manciple.store import objects
from manciple.wire.base import condition_of
from manciple.wire.errors import Conflict
from tests.builders import make_pod, make_quota
from tests.workloads.cluster import Cluster, make_replica_set
from workloads import pod_control, view
from workloads.controllers import replica_sets
from workloads.controllers.replica_sets import victims
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.replica_sets import REPLICA_SET


def owners(pod: Pod) -> list[str]:
    return [one.name for one in pod.metadata.owner_references if one.controller]


def facts(name: str, **given: Any) -> PodFacts:
    known: dict[str, Any] = {
        "uid": name,
        "labels": {},
        "node": "n1",
        "target": "n1",
        "phase": "Running",
        "is_deleting": False,
        "is_ready": True,
        "ready_since": "2026-01-01T00:00:00Z",
        "restarts": 0,
        "created": "2026-01-01T00:00:00Z",
        "deletion_cost": 0,
    }
    return PodFacts(name=name, **{**known, **given})


def test_it_makes_its_pods_and_counts_them(cluster: Cluster) -> None:
    cluster.create(REPLICA_SET, make_replica_set(replicas=3))
    cluster.run()
    assert [(owners(pod), pod.metadata.labels) for pod in cluster.pods()] == [(["rs"], {"app": "x"})] * 3
    status = cluster.replica_set().status
    assert (status.replicas, status.fully_labeled_replicas, status.ready_replicas) == (3, 3, 0)
    assert status.observed_generation == cluster.replica_set().metadata.generation
    cluster.let_run()
    cluster.run()
    status = cluster.replica_set().status
    assert (status.ready_replicas, status.available_replicas) == (3, 3)


def test_a_pod_that_ends_or_goes_is_replaced(cluster: Cluster) -> None:
    cluster.create(REPLICA_SET, make_replica_set(replicas=2))
    cluster.settle()
    first, second = cluster.pods()
    cluster.end(first)
    cluster.delete(POD, second.metadata.name)
    cluster.settle()
    running = [pod for pod in cluster.pods() if pod.status.phase == "Running"]
    assert len(running) == 2
    assert {first.metadata.uid, second.metadata.uid}.isdisjoint(pod.metadata.uid for pod in running)


def test_it_is_scaled_up_and_down(cluster: Cluster) -> None:
    cluster.create(REPLICA_SET, make_replica_set(replicas=1))
    cluster.settle()
    for replicas in (4, 2, 0):
        cluster.scale("rs", replicas, REPLICA_SET)
        cluster.settle()
        assert (len(cluster.pods()), cluster.replica_set().status.replicas) == (replicas, replicas)


def test_many_pods_take_several_transactions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_control, "BURST", 3)
    monkeypatch.setattr(pod_control, "SHARE", 0.0)
    cluster.create(REPLICA_SET, make_replica_set(replicas=8))
    made = []
    while replica_sets.reconcile(cluster.now):
        made.append(len(cluster.pods()))
    assert made[:3] == [3, 6, 8]


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0)])
def test_many_pods_take_as_many_statements_as_few(cluster: Cluster, before: int, after: int) -> None:
    """Whether they are made or deleted. before, after: in times of all. Reads of the log do not count: processes other
    than a test's trust what they know for a moment.
    """
    statements = []
    for number in (5, 60):
        cluster.create(REPLICA_SET, make_replica_set(f"rs-{number}", replicas=before * number))
        cluster.settle()
        cluster.scale(f"rs-{number}", after * number, REPLICA_SET)
        with CaptureQueriesContext(connection) as queries:
            replica_sets.reconcile(cluster.now)
        statements.append(sum("r.floor" not in query["sql"] for query in queries))
        cluster.settle()
        assert len(cluster.pods()) == after * number
        cluster.delete(REPLICA_SET, f"rs-{number}")
        cluster.settle()
        for pod in cluster.pods():
            cluster.delete(POD, pod.metadata.name)
    assert statements[1] <= statements[0] + 5


def test_a_pod_becomes_available_after_a_while(cluster: Cluster) -> None:
    cluster.create(REPLICA_SET, make_replica_set(replicas=1, min_ready_seconds=30))
    cluster.settle()
    assert cluster.replica_set().status.available_replicas == 0
    cluster.pass_time(31)
    cluster.run()
    assert cluster.replica_set().status.available_replicas == 1


def test_it_adopts_what_it_selects_and_releases_what_it_does_not(cluster: Cluster) -> None:
    cluster.create(POD, make_pod("bare", meta={"labels": {"app": "x"}}))
    cluster.create(REPLICA_SET, make_replica_set(replicas=2))
    cluster.settle()
    assert {tuple(owners(pod)) for pod in cluster.pods()} == {("rs",)}
    assert "bare" in {pod.metadata.name for pod in cluster.pods()}

    def relabel(app: str) -> Callable[[Pod], Pod]:
        return lambda pod: replace(pod, metadata=replace(pod.metadata, labels={"app": app}))

    cluster.edit(POD, "bare", relabel("other"))
    cluster.settle()
    assert len(cluster.pods()) == 3
    assert [owners(pod) for pod in cluster.pods() if pod.metadata.name == "bare"] == [[]]
    cluster.edit(POD, "bare", relabel("x"))
    cluster.settle()
    assert len(cluster.pods()) == 2


def test_what_another_controls_is_left_alone(cluster: Cluster) -> None:
    cluster.create(REPLICA_SET, make_replica_set("one", replicas=1))
    cluster.settle()
    cluster.create(REPLICA_SET, make_replica_set("two", replicas=1))
    cluster.settle()
    assert sorted(owners(pod)[0] for pod in cluster.pods()) == ["one", "two"]


def test_pods_that_are_refused_are_told_of_and_tried_again(cluster: Cluster) -> None:
    cluster.create(RESOURCE_QUOTA, make_quota({"pods": "2"}, name="few"))
    cluster.create(REPLICA_SET, make_replica_set(replicas=3))
    cluster.run()
    assert len(cluster.pods()) == 2
    failure = condition_of(cluster.replica_set().status.conditions, "ReplicaFailure")
    assert failure is not None
    assert (failure.status, failure.reason) == ("True", "FailedCreate")
    assert "exceeded quota" in failure.message
    cluster.edit(RESOURCE_QUOTA, "few", lambda one: replace(one, spec=replace(one.spec, hard={"pods": "9"})))
    cluster.pass_time(turns.RETRY_AFTER + 1)
    cluster.run()
    assert len(cluster.pods()) == 3
    assert cluster.replica_set().status.conditions == ()


def test_one_that_is_being_deleted_makes_nothing(cluster: Cluster) -> None:
    held = make_replica_set(replicas=2)
    cluster.create(REPLICA_SET, replace(held, metadata=replace(held.metadata, finalizers=("example.com/held",))))
    cluster.delete(REPLICA_SET, "rs")
    cluster.run()
    assert cluster.pods() == []


# Crashes and competitors ----------------------------------------------------------------------------------------------


@contextmanager
def crashing(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[None]:
    """The process dies in the middle of its transaction: at its n-th pod."""
    create, calls = objects.Writer.create, iter(range(at))

    def dies(writer: objects.Writer, kind: Any, *rest: Any, **options: Any) -> Any:
        if kind is POD and next(calls, None) is None:
            raise SystemExit("killed")
        return create(writer, kind, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(objects.Writer, "create", dies)
        yield


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_crash_leaves_no_pod_too_many(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    cluster.create(REPLICA_SET, make_replica_set(replicas=3))
    with crashing(monkeypatch, at), pytest.raises(SystemExit):
        cluster.run()
    view._follower.reset()  # another process goes on
    cluster.run()
    assert len(cluster.pods()) == 3


def written(work: pod_control.Done | pod_control.Work) -> pod_control.Done:
    assert isinstance(work, pod_control.Work)
    return objects.write(work.write, identity=work.identity)


def test_of_two_that_look_at_the_same_state_one_makes_the_pods(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(REPLICA_SET, make_replica_set(replicas=2))
    sync, stale = replica_sets._sync, list[replica_sets.Turn]()

    def twice(turn: replica_sets.Turn, now: Any) -> Any:
        stale.append(turn)
        return sync(turn, now)

    monkeypatch.setattr(replica_sets, "_sync", twice)
    monkeypatch.setattr(pod_control, "SHARE", 0.0)
    replica_sets.reconcile(cluster.now)
    for turn in stale:
        with pytest.raises(Conflict):
            written(sync(turn, cluster.now))
    assert len(cluster.pods()) == 2


def test_a_pod_that_the_view_does_not_know_is_not_made_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ReplicaSet is as it was, but one of its pods was replaced by somebody else."""
    cluster.create(REPLICA_SET, make_replica_set(replicas=1))
    cluster.settle()
    replica_set = cluster.replica_set()
    turn = replica_sets.Turn(replica_set, (), (), {})
    with pytest.raises(Conflict):
        written(replica_sets._sync(turn, cluster.now))
    assert len(cluster.pods()) == 1


# Which pods go first --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "first"),
    {
        "without a node": ([facts("a"), facts("b", node="", phase="Pending")], "b"),
        "pending": ([facts("a"), facts("b", phase="Pending", is_ready=False)], "b"),
        "not ready": ([facts("a"), facts("b", is_ready=False, ready_since=None)], "b"),
        "cheaper": ([facts("a", deletion_cost=5), facts("b", deletion_cost=-5)], "b"),
        "with more siblings": ([facts("a"), facts("b", node="n2"), facts("c", node="n2")], "b"),
        "ready for a shorter time": ([facts("a"), facts("b", ready_since="2026-01-02T00:00:00Z")], "b"),
        "restarted more often": ([facts("a"), facts("b", restarts=3)], "b"),
        "younger": ([facts("a"), facts("b", created="2026-01-02T00:00:00Z")], "b"),
    }.values(),
)
def test_the_pod_that_is_missed_least_goes_first(pods: list[PodFacts], first: str) -> None:
    siblings = {node: sum(pod.node == node for pod in pods) for node in ("n1", "n2")}
    assert victims(pods, siblings, 1)[0].name == first
    assert victims(pods, siblings, 0) == []


def test_without_workloads_nobody_follows_anything(cluster: Cluster) -> None:
    cluster.create(POD, make_pod("bare"))
    assert replica_sets.reconcile(cluster.now) == 0
    assert view._follower.place == ("", 0)
    cluster.create(REPLICA_SET, make_replica_set(replicas=0))
    cluster.run()
    assert view._follower.place != ("", 0)
    cluster.delete(REPLICA_SET, "rs")
    assert replica_sets.reconcile(cluster.now) == 0
    assert view._follower.place == ("", 0)
