"""What one tenant's workloads may cost the others: turns, pods that wait, and looks at what belongs to nobody."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.quotas import RESOURCE_QUOTA
from claims.kinds.registration import POD
from manciple.api import verbs
from manciple.controllers import turns
from manciple.store import event_log, objects
from manciple.store.objects import decoded
from manciple.wire.base import LabelSelector, ObjectMeta, condition_of
from manciple.wire.errors import Conflict, Forbidden
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import Event, Namespace
from manciple.wire.registry import Kind
from manciple.wire.resources import EVENTS, NAMESPACES, NODES, kind
from tests.builders import make_node, make_pod, make_quota
from tests.workloads.cluster import (
    NAMESPACE,
    Cluster,
    make_daemon_set,
    make_deployment,
    make_job,
    make_pod_template,
    make_replica_set,
    make_stateful_set,
)
from workloads import pod_control, view
from workloads.controllers import jobs, replica_sets
from workloads.kinds.daemon_sets import DAEMON_SET
from workloads.kinds.deployments import DEPLOYMENT
from workloads.kinds.jobs import JOB
from workloads.kinds.replica_sets import REPLICA_SET
from workloads.kinds.stateful_sets import STATEFUL_SET

OTHER = "other"
HUGE = 2**31 - 1


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    with objects.writing(identity=SYSTEM) as writer:
        writer.create(kind(NAMESPACES), Namespace(metadata=ObjectMeta(name=OTHER)))
    return cluster


def create_in(namespace: str, of: Kind, obj: Any) -> None:
    obj = replace(obj, metadata=replace(obj.metadata, namespace=namespace))
    verbs.create(of, obj, namespace=namespace, identity=SYSTEM)


def pods_of(namespace: str) -> list[Pod]:
    return [decoded(one, Pod) for one in objects.list(POD, namespace=namespace).items]


# Turns ----------------------------------------------------------------------------------------------------------------


def test_each_namespace_has_its_turn_however_many_workloads_another_has(cluster: Cluster) -> None:
    for number in range(5):
        create_in(NAMESPACE, JOB, make_job(f"job-{number}"))
    create_in(OTHER, JOB, make_job("alone"))
    with view.current() as current:
        assert current is not None
        first = [one.metadata.name for one in current.take(view.JOBS, cluster.now, 3)]
        rest = [one.metadata.name for one in current.take(view.JOBS, cluster.now, 10)]
    assert first == ["job-0", "alone", "job-1"]
    assert rest == ["job-2", "job-3", "job-4"]


def test_what_a_run_has_no_time_for_is_left_to_the_next(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_control, "SHARE", 0.0)
    for number in range(5):
        cluster.create(JOB, make_job(f"job-{number}"))
    jobs.reconcile(cluster.now)
    assert len(cluster.pods()) == 1
    assert jobs.CONTROLLER.has_more()
    monkeypatch.undo()
    jobs.reconcile(cluster.now)
    assert len(cluster.pods()) == 5
    assert not jobs.CONTROLLER.has_more()


def test_what_nobody_controls_concerns_the_workloads_of_its_namespace_alone(cluster: Cluster) -> None:
    for namespace in (NAMESPACE, OTHER):
        create_in(namespace, REPLICA_SET, make_replica_set(replicas=0))
    cluster.run()
    create_in(OTHER, POD, make_pod("bare", namespace=OTHER, meta={"labels": {"app": "x"}}))
    with view.current() as current:
        assert current is not None
        assert [one.key[0] for one in current.take(view.REPLICA_SETS, cluster.now, 10)] == [OTHER]


def test_a_pod_that_was_adopted_meanwhile_is_offered_to_nobody(cluster: Cluster) -> None:
    """So a pod that a thousand ReplicaSets select costs a thousand looks, and no query more."""
    for number in range(3):
        cluster.create(REPLICA_SET, make_replica_set(f"rs-{number}", replicas=0))
    cluster.run()
    owner = cluster.replica_set("rs-0")
    cluster.create(POD, make_pod("bare", meta={"labels": {"app": "x"}}))
    with view.current() as current:
        assert current is not None
        assert len(current.offered) == 3
    with objects.writing() as writer:
        pod_control.PodControl(REPLICA_SET, owner, SYSTEM, "test").adopt(writer, cluster.pods())
    with view.current() as current:
        assert current is not None
        assert [current.turn_of_pods(cluster.replica_set(f"rs-{one}"))[1] for one in range(3)] == [set()] * 3


def test_the_more_workloads_are_refused_the_seldomer_each_tries_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand whose pods a quota refuses try as often, all together, as a few."""
    monkeypatch.setattr(view, "TOGETHER", 2)
    with objects.writing() as writer:
        writer.create(RESOURCE_QUOTA, make_quota({"pods": "0"}))
    for number in range(8):
        cluster.create(REPLICA_SET, make_replica_set(f"rs-{number}", replicas=1))
    cluster.run()
    tries = []
    for _ in range(4):
        cluster.pass_time(turns.RETRY_AFTER)
        tries.append(replica_sets.reconcile(cluster.now))
    assert max(tries) <= 4
    assert sum(tries) >= 6
    with objects.writing() as writer:
        writer.delete(RESOURCE_QUOTA, NAMESPACE, "most")
    cluster.pass_time(5 * turns.RETRY_AFTER)
    cluster.run()
    assert len(cluster.pods()) == 8


# Pods that wait -------------------------------------------------------------------------------------------------------

DEMANDING = [
    pytest.param(JOB, make_job(parallelism=HUGE), id="a Job without an end"),
    pytest.param(JOB, make_job(parallelism=HUGE, completions=HUGE), id="a Job"),
    pytest.param(
        JOB, make_job(completion_mode="Indexed", parallelism=10_000, completions=1_000_000), id="an Indexed Job"
    ),
    pytest.param(REPLICA_SET, make_replica_set(replicas=HUGE), id="a ReplicaSet"),
    pytest.param(DEPLOYMENT, make_deployment(replicas=HUGE), id="a Deployment"),
    pytest.param(STATEFUL_SET, make_stateful_set(replicas=HUGE, pod_management_policy="Parallel"), id="a StatefulSet"),
    pytest.param(DAEMON_SET, make_daemon_set(), id="a DaemonSet"),
]


@pytest.mark.parametrize(("of", "workload"), DEMANDING)
def test_only_so_many_pods_of_a_namespace_wait_for_a_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, of: Kind, workload: Any
) -> None:
    monkeypatch.setattr(pod_control, "MOST_WAITING", 4)
    with objects.writing(identity=SYSTEM) as writer:
        for number in range(8):
            writer.create(kind(NODES), make_node(f"node-{number}"))
    cluster.create(of, workload)
    cluster.run()
    assert len(cluster.pods()) == 4
    assert "FailedCreate" in {decoded(one, Event).reason for one in objects.list(kind(EVENTS)).items}
    cluster.let_run(cluster.pods()[:3])
    cluster.pass_time(turns.RETRY_AFTER)
    cluster.run()
    assert len(cluster.pods()) == 7


def test_the_limit_is_the_namespaces_and_no_other_feels_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_control, "MOST_WAITING", 4)
    cluster.create(JOB, make_job(parallelism=HUGE))
    cluster.run()
    cluster.create(DEPLOYMENT, make_deployment())
    create_in(OTHER, DEPLOYMENT, make_deployment())
    cluster.run()
    assert (len(cluster.pods()), len(pods_of(OTHER))) == (4, 2)
    failure = condition_of(cluster.deployment().status.conditions, "ReplicaFailure")
    assert failure is not None
    assert "wait for a node" in failure.message


def test_large_templates_make_fewer_pods_that_wait(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    template = make_pod_template()
    large = replace(template, metadata=replace(template.metadata, annotations={"text": "x" * 100_000}))
    monkeypatch.setattr(pod_control, "MOST_WAITING_BYTES", 1 << 20)
    cluster.create(REPLICA_SET, make_replica_set(replicas=50, template=large))
    cluster.run()
    assert len(cluster.pods()) == 10


def test_of_many_pods_some_have_an_event_of_their_own(cluster: Cluster) -> None:
    cluster.create(REPLICA_SET, make_replica_set(replicas=60))
    cluster.run()
    cluster.scale("rs", 10, REPLICA_SET)
    cluster.run()
    told = Counter(decoded(one, Event).reason for one in objects.list(kind(EVENTS)).items)
    assert told == {"SuccessfulCreate": pod_control.MOST_TOLD, "SuccessfulDelete": pod_control.MOST_TOLD}


def waiting_pods() -> int:
    with view.current() as known:
        return known.waiting[NAMESPACE] if known is not None else 0


def test_workloads_that_share_a_commit_share_the_bound_for_pods_that_wait(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_control, "MOST_WAITING", 3)
    for number in range(5):
        cluster.create(JOB, make_job(f"job-{number}"))
    jobs.reconcile(cluster.now)
    assert len(cluster.pods()) == 3
    cluster.let_run()
    cluster.pass_time(turns.RETRY_AFTER)
    cluster.run()
    assert len(cluster.pods()) == 5


def test_what_waits_is_counted_through_all_that_happens_to_pods(cluster: Cluster) -> None:
    cluster.create(REPLICA_SET, make_replica_set(replicas=3))
    cluster.run()
    assert waiting_pods() == 3
    cluster.let_run(cluster.pods()[:1])
    assert waiting_pods() == 2
    cluster.delete(POD, cluster.pods()[-1].metadata.name)
    cluster.edit(POD, cluster.pods()[0].metadata.name, lambda pod: _labelled(pod, {"app": "y"}))
    cluster.run()
    waiting = [pod for pod in cluster.pods() if not pod.spec.node_name and pod.metadata.owner_references]
    assert waiting_pods() == len(waiting) > 0
    cluster.scale("rs", 0, REPLICA_SET)
    cluster.run()
    cluster.reap()
    assert waiting_pods() == 0


def _labelled(pod: Any, labels: dict[str, str]) -> Any:
    return replace(pod, metadata=replace(pod.metadata, labels=labels))


def test_a_selector_that_others_pods_match_takes_none_of_them(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment())
    cluster.settle()
    before = {pod.metadata.name: pod.metadata.owner_references for pod in cluster.pods()}
    greedy = make_replica_set("greedy", replicas=1, selector=LabelSelector(match_labels={"app": "x"}))
    cluster.create(REPLICA_SET, greedy)
    cluster.settle()
    after = {pod.metadata.name: pod.metadata.owner_references for pod in cluster.pods()}
    assert before.items() <= after.items()
    assert len(after) == len(before) + 1


def test_workloads_share_commits_of_a_burst_of_pods_each(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_control, "BURST", 4)
    for number in range(pod_control.AT_ONCE):
        cluster.create(JOB, make_job(f"job-{number}"))
    with CaptureQueriesContext(connection) as asked:
        jobs.reconcile(cluster.now)
    commits = sum("INSERT INTO store_event" in one["sql"] for one in asked)
    assert len(cluster.pods()) == pod_control.AT_ONCE
    assert commits == math.ceil(pod_control.AT_ONCE / 4)


@pytest.mark.parametrize("fault", [Conflict("somebody else has written"), Forbidden("not now"), TypeError("a fault")])
def test_what_one_workload_cannot_write_costs_those_nothing_that_share_its_commit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    update, faults = objects.Writer.update, [fault]

    def refused(writer: objects.Writer, of: Kind, obj: Any, **options: Any) -> Any:
        if of is JOB and obj.metadata.name == "bad" and faults:
            raise faults.pop()
        return update(writer, of, obj, **options)

    monkeypatch.setattr(objects.Writer, "update", refused)
    for name in ("bad", "good", "well"):
        cluster.create(JOB, make_job(name))
    jobs.reconcile(cluster.now)
    assert {pod.metadata.name[:4] for pod in cluster.pods()} == {"good", "well"}  # and nothing of half a turn
    cluster.pass_time(turns.REST_AFTER_FAULT)
    cluster.run()
    assert sorted(pod.metadata.name.rsplit("-", 1)[0] for pod in cluster.pods()) == ["bad", "good", "well"]


@pytest.mark.parametrize("fault", [Conflict("somebody else has written"), Forbidden("not now"), TypeError("a fault")])
@pytest.mark.parametrize("step", ["_look", "_sync"])
def test_what_a_workload_was_offered_it_adopts_though_its_first_turn_comes_to_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str, fault: Exception
) -> None:
    real, turns_taken = getattr(replica_sets, step), []

    def failing_once(*given: Any) -> Any:
        result = real(*given) if step == "_look" else None
        turns_taken.append(step)
        if len(turns_taken) in (1, 3):
            raise fault
        return result if step == "_look" else real(*given)

    monkeypatch.setattr(replica_sets, step, failing_once)
    cluster.create(POD, make_pod("older", meta={"labels": {"app": "x"}}))
    cluster.create(REPLICA_SET, make_replica_set(replicas=2))
    for _ in range(3):
        cluster.run()
        cluster.pass_time(turns.REST_AFTER_FAULT)
    cluster.create(POD, make_pod("younger", meta={"labels": {"app": "x"}}))
    cluster.scale("rs", 3, REPLICA_SET)
    for _ in range(3):
        cluster.run()
        cluster.pass_time(turns.REST_AFTER_FAULT)
    assert {"older", "younger"} <= {pod.metadata.name for pod in cluster.pods()}
    assert len(cluster.pods()) == 3
    assert all(pod.metadata.owner_references for pod in cluster.pods())


# Rest -----------------------------------------------------------------------------------------------------------------


def test_controllers_rest_until_something_happens_or_a_turn_comes_by_itself(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Commits are announced once they are made, which a test's are not.
    monkeypatch.setattr(event_log, "newest", lambda _resources: event_log.latest_revision())
    cluster.create(JOB, make_job())
    cluster.create(DEPLOYMENT, make_deployment(replicas=1))
    cluster.settle()
    began = time.monotonic()
    cluster.run()
    resources = (view.JOBS, view.REPLICA_SETS, view.CRON_JOBS)
    assert [pod_control.rests_until(one, began) for one in resources] == [math.inf] * 3
    assert pod_control.rests_until(view.JOBS, time.monotonic()) == 0.0, "whoever was woken since has not run"

    cluster.create(POD, make_pod("lone"))  # which wakes nobody
    assert [pod_control.rests_until(one, began) for one in resources] == [0.0] * 3
    cluster.run()
    assert pod_control.rests_until(view.REPLICA_SETS, began) == math.inf

    cluster.create(JOB, make_job("limited", active_deadline_seconds=90))
    cluster.settle()
    cluster.run()
    started = cluster.job("limited").status.start_time
    assert started is not None
    assert pod_control.rests_until(view.JOBS, began) == pytest.approx(cluster.now.timestamp() + 90, abs=1)


@pytest.mark.parametrize("left", ["cut short", "refused", "stray"])
def test_a_controller_that_has_left_something_does_not_rest(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    cluster.create(JOB, make_job("first"))
    cluster.settle()
    began = time.monotonic()
    cluster.run()
    assert pod_control.rests_until(view.JOBS, began) == math.inf
    if left == "cut short":
        monkeypatch.setattr(pod_control, "SHARE", 0.0)
        cluster.create(JOB, make_job("second"))
    elif left == "refused":
        monkeypatch.setattr(pod_control, "MOST_WAITING", 0)
        cluster.create(JOB, make_job("second"))
    else:
        with view.current() as known:
            assert known is not None
            known.stray.update((NAMESPACE, pod.metadata.name) for pod in cluster.pods())
        monkeypatch.setattr(jobs, "untrack_strays", lambda *_given: 0)
    jobs.reconcile(cluster.now)
    assert pod_control.rests_until(view.JOBS, began) <= cluster.now.timestamp() + turns.RETRY_AFTER
