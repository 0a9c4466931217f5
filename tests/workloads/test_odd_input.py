"""What anybody may write into a workload's annotations and amounts costs its controller nothing but that workload."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError
from msgspec.structs import replace

from claims.kinds.pod_rules import DELETION_COST
from claims.kinds.pods import Pod
from manciple.controllers import turns
from manciple.store import objects
from manciple.wire.registry import Kind
from tests.builders import make_pod
from tests.workloads.cluster import (
    Cluster,
    make_cron_job,
    make_daemon_set,
    make_deployment,
    make_job,
    make_replica_set,
)
from workloads.controllers import replica_sets
from workloads.kinds.cron_jobs import CRON_JOB
from workloads.kinds.daemon_sets import DAEMON_SET, GENERATION
from workloads.kinds.deployments import DEPLOYMENT, REVISION, DeploymentStrategy, RollingUpdateDeployment
from workloads.kinds.indexes import IndexSet, check_indexes
from workloads.kinds.jobs import FAILURES, IGNORED_FAILURES, INDEX, JOB
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSet
from workloads.rollouts import DESIRED, HISTORY, MAXIMUM

#: What is no number, or none that fits.
ODD = ("9" * 5000, "-" * 3 + "5", "٣", "²", "1e9", " 1", "0x10", "", "null", "1" + "0" * 20)


def annotate(cluster: Cluster, kind: Kind, name: str, keys: tuple[str, ...], text: str) -> None:
    def change(obj: Any) -> Any:
        annotations = {**obj.metadata.annotations, **dict.fromkeys(keys, text)}
        return replace(obj, metadata=replace(obj.metadata, annotations=annotations))

    cluster.edit(kind, name, change)


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:9])
def test_an_update_goes_on_whatever_the_annotations_say(cluster: Cluster, text: str) -> None:
    cluster.create(DEPLOYMENT, make_deployment(replicas=3))
    cluster.settle()
    for one in cluster.replica_sets().values():
        annotate(cluster, REPLICA_SET, one.metadata.name, (REVISION, HISTORY, DESIRED, MAXIMUM), text)
    annotate(cluster, DEPLOYMENT, "web", (REVISION, HISTORY, DESIRED, MAXIMUM), text)
    cluster.scale("web", 4)
    cluster.set_image("web", "app:2")
    cluster.settle()
    assert {pod.spec.containers[0].image for pod in cluster.pods()} == {"app:2"}
    assert len(cluster.pods()) == 4


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:9])
def test_a_daemon_set_takes_any_generation(cluster: Cluster, text: str) -> None:
    daemon_set = make_daemon_set()
    meta = replace(daemon_set.metadata, annotations={GENERATION: text})
    cluster.create(DAEMON_SET, replace(daemon_set, metadata=meta))
    cluster.set_image("ds", "app:2", DAEMON_SET)
    assert cluster.daemon_set().metadata.generation == 2


def annotated_pod(keys: tuple[str, ...], text: str) -> Pod:
    pod = make_pod()
    return replace(pod, metadata=replace(pod.metadata, annotations=dict.fromkeys(keys, text)))


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:9])
def test_pods_are_read_whatever_their_annotations_say(text: str) -> None:
    facts = PodFacts.of(annotated_pod((DELETION_COST, INDEX, FAILURES, IGNORED_FAILURES), text), of_job=True)
    assert facts.job is not None
    assert (facts.deletion_cost, facts.job.index, facts.job.failures, facts.job.ignored_failures) == (0, -1, 0, 0)


@pytest.mark.parametrize(("text", "cost"), [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1), ("-5", -5)])
def test_what_it_costs_to_delete_a_pod_is_a_number_of_32_bits(text: str, cost: int) -> None:
    assert PodFacts.of(annotated_pod((DELETION_COST,), text)).deletion_cost == cost


@pytest.mark.parametrize("surge", ["9" * 5000 + "%", "0" * 5000 + "50%", 2**31 - 1])
def test_an_update_may_exceed_its_size_by_any_amount(cluster: Cluster, surge: int | str) -> None:
    strategy = DeploymentStrategy(
        type="RollingUpdate", rolling_update=RollingUpdateDeployment(max_surge=surge, max_unavailable=0)
    )
    cluster.create(DEPLOYMENT, make_deployment(replicas=2, strategy=strategy))
    cluster.settle()
    cluster.set_image("web", "app:2")
    cluster.settle()
    assert [pod.spec.containers[0].image for pod in cluster.pods()] == ["app:2"] * 2


@pytest.mark.parametrize("step", ["_look", "_sync"])
@pytest.mark.parametrize("fault", [TypeError("a fault"), OperationalError("the database is away")])
def test_a_fault_with_one_workload_costs_neither_it_nor_the_others_their_turns(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str, fault: Exception
) -> None:
    real = getattr(replica_sets, step)

    def failing(*given: Any) -> Any:
        candidates = (*given, getattr(given[0], "replica_set", None))
        if any(isinstance(one, ReplicaSet) and one.metadata.name == "a" for one in candidates):
            raise fault
        return real(*given)

    monkeypatch.setattr(replica_sets, step, failing)
    for name in ("a", "b"):
        cluster.create(REPLICA_SET, make_replica_set(name, replicas=1))
    with suppress(OperationalError):
        replica_sets.reconcile(cluster.now)
    made = [pod.metadata.generate_name for pod in cluster.pods()]
    assert isinstance(fault, OperationalError) or made == ["b-"]
    monkeypatch.setattr(replica_sets, step, real)
    cluster.pass_time(turns.REST_AFTER_FAULT)
    replica_sets.reconcile(cluster.now)
    assert {pod.metadata.generate_name for pod in cluster.pods()} == {"a-", "b-"}


FAR = "9999-12-31T23:59:59Z"


def test_times_at_the_end_of_the_calendar_stop_no_controller(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment(progress_deadline_seconds=2**31 - 2))
    cluster.create(CRON_JOB, make_cron_job())
    cluster.create(JOB, make_job(active_deadline_seconds=2**63 - 1, ttl_seconds_after_finished=2**31 - 1))
    cluster.run()
    conditions = tuple(
        replace(one, last_update_time=FAR, last_transition_time=FAR) for one in cluster.deployment().status.conditions
    )
    with objects.writing() as writer:
        for kind, obj, status in (
            (DEPLOYMENT, cluster.deployment(), {"conditions": conditions}),
            (CRON_JOB, cluster.cron_job(), {"last_schedule_time": FAR}),
            (JOB, cluster.job(), {"start_time": FAR}),
        ):
            writer.update(kind, replace(obj, status=replace(obj.status, **status)), subresource="status")
    cluster.scale("web", 3)
    cluster.settle()
    assert cluster.deployment().status.ready_replicas == 3
    assert len(cluster.jobs()) == 1


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 20, str(2**63), "1-" + "9" * 5000])
def test_indexes_that_are_no_numbers_of_64_bits_are_refused(text: str) -> None:
    total, wrong = check_indexes(text, 10)
    assert total == 0
    assert "cannot convert string to integer" in wrong
    assert len(IndexSet.read(text, 10)) == 0
    assert check_indexes(str(2**63 - 1), 10)[1].startswith("too large index")
