"""What lists say of workloads: their state, their numbers, and why they are stuck; and the rows that hold it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.registration import POD
from claims.models import Pod
from manciple.store import objects
from manciple.wire.base import OwnerReference, timestamp
from tests.builders import make_pod
from tests.workloads.cluster import (
    START,
    Cluster,
    make_cron_job,
    make_daemon_set,
    make_deployment,
    make_job,
    make_replica_set,
    make_stateful_set,
)
from workloads.kinds.cron_jobs import CRON_JOB
from workloads.kinds.daemon_sets import DAEMON_SET, DaemonSetStatus
from workloads.kinds.deployments import DEPLOYMENT, DeploymentCondition, DeploymentStatus
from workloads.kinds.jobs import JOB, JobCondition, JobStatus
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSetStatus
from workloads.kinds.stateful_sets import STATEFUL_SET, StatefulSetStatus
from workloads.kinds.summaries import SUMMARIES, State, summary_of
from workloads.models import Workload
from workloads.view import WORKLOADS


def deployment(status: DeploymentStatus, **spec: Any) -> Any:
    return replace(make_deployment(**spec), status=status)


def condition(type_: str, status: str, reason: str, message: str = "") -> DeploymentCondition:
    return DeploymentCondition(type=type_, status=status, reason=reason, message=message)


def job_with(condition: str, reason: str) -> Any:
    ended = JobCondition(type=condition, status="True", reason=reason, last_transition_time=timestamp(START))
    return replace(make_job(), status=JobStatus(conditions=(ended,)))


DONE = DeploymentStatus(replicas=2, updated_replicas=2, ready_replicas=2, available_replicas=2)
LATE = condition("Progressing", "False", "ProgressDeadlineExceeded", 'ReplicaSet "web-1" has timed out progressing.')
COMPLETE = condition("Progressing", "True", "NewReplicaSetAvailable", 'ReplicaSet "web-1" has progressed.')
REFUSED = condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota: pods")
#: phrase -> (resource, object, its state, a part of the reason)
CASES: dict[str, tuple[str, Any, State, str]] = {
    "all pods are there": (DEPLOYMENT.resource, deployment(DONE), State.READY, ""),
    "none is ready yet": (
        DEPLOYMENT.resource,
        deployment(replace(DONE, ready_replicas=0, available_replicas=0)),
        State.STARTING,
        "",
    ),
    "none is ready any more": (
        DEPLOYMENT.resource,
        deployment(replace(DONE, ready_replicas=0, available_replicas=0, conditions=(COMPLETE,))),
        State.UNREADY,
        "",
    ),
    "pods of a former template are left": (
        DEPLOYMENT.resource,
        deployment(replace(DONE, replicas=3, updated_replicas=1)),
        State.UPDATING,
        "",
    ),
    "no progress": (DEPLOYMENT.resource, deployment(replace(DONE, conditions=(LATE,))), State.STUCK, "no progress"),
    "what cannot be created says more than that it takes long": (
        DEPLOYMENT.resource,
        deployment(replace(DONE, conditions=(LATE, REFUSED))),
        State.STUCK,
        "exceeded quota: pods.",
    ),
    "paused": (DEPLOYMENT.resource, deployment(DONE, paused=True), State.PAUSED, ""),
    "none are wanted": (DEPLOYMENT.resource, deployment(DeploymentStatus(), replicas=0), State.EMPTY, ""),
    "the last ones are ending": (
        DEPLOYMENT.resource,
        deployment(DeploymentStatus(replicas=1, updated_replicas=1), replicas=0),
        State.STARTING,
        "",
    ),
    "a set with all its pods": (
        REPLICA_SET.resource,
        replace(make_replica_set(), status=ReplicaSetStatus(replicas=2, ready_replicas=2, available_replicas=2)),
        State.READY,
        "",
    ),
    "a set with few": (
        REPLICA_SET.resource,
        replace(make_replica_set(), status=ReplicaSetStatus(replicas=2, ready_replicas=1, available_replicas=1)),
        State.UNREADY,
        "",
    ),
    "numbered pods of which one is missing": (
        STATEFUL_SET.resource,
        replace(make_stateful_set(), status=StatefulSetStatus(replicas=3, ready_replicas=2, available_replicas=2)),
        State.UNREADY,
        "",
    ),
    "numbered pods of two templates": (
        STATEFUL_SET.resource,
        replace(
            make_stateful_set(),
            status=StatefulSetStatus(replicas=3, available_replicas=3, current_revision="a", update_revision="b"),
        ),
        State.UPDATING,
        "",
    ),
    "a Job whose pods wait": (JOB.resource, make_job(), State.STARTING, ""),
    "a Job whose pods run": (
        JOB.resource,
        replace(make_job(), status=JobStatus(active=1, ready=1)),
        State.RUNNING,
        "",
    ),
    "a Job that makes no pods": (JOB.resource, make_job(suspend=True), State.SUSPENDED, ""),
    "a Job that has succeeded": (JOB.resource, job_with("Complete", "CompletionsReached"), State.COMPLETE, ""),
    "a Job that was too slow": (JOB.resource, job_with("Failed", "DeadlineExceeded"), State.FAILED, "time limit"),
    "a Job that is about to fail": (
        JOB.resource,
        job_with("FailureTarget", "BackoffLimitExceeded"),
        State.FAILED,
        "more often",
    ),
    "a CronJob": (CRON_JOB.resource, make_cron_job(), State.SCHEDULED, ""),
    "a CronJob that makes no Jobs": (CRON_JOB.resource, make_cron_job(suspend=True), State.SUSPENDED, ""),
    "no node fits": (DAEMON_SET.resource, make_daemon_set(), State.EMPTY, ""),
    "a node lacks its pod": (
        DAEMON_SET.resource,
        replace(
            make_daemon_set(),
            status=DaemonSetStatus(
                desired_number_scheduled=2,
                current_number_scheduled=2,
                updated_number_scheduled=2,
                number_ready=1,
                number_available=1,
            ),
        ),
        State.UNREADY,
        "",
    ),
    "a node has the former pod": (
        DAEMON_SET.resource,
        replace(
            make_daemon_set(),
            status=DaemonSetStatus(
                desired_number_scheduled=2,
                current_number_scheduled=2,
                updated_number_scheduled=1,
                number_ready=2,
                number_available=2,
            ),
        ),
        State.UPDATING,
        "",
    ),
}


@pytest.mark.parametrize("phrase", CASES)
def test_the_state_of_a_workload(phrase: str) -> None:
    resource, obj, state, reason = CASES[phrase]
    found = summary_of(resource, obj)
    assert (found.state, reason in found.reason) == (state, True)
    assert bool(found.reason) == bool(reason)


def test_what_is_being_deleted_is_nothing_else() -> None:
    obj = deployment(replace(DONE, conditions=(LATE,)))
    gone = replace(obj, metadata=replace(obj.metadata, deletion_timestamp=timestamp(START)))
    found = summary_of(DEPLOYMENT.resource, gone)
    assert (found.state, found.reason, found.wanted, found.ready) == (State.DELETING, "", 2, 2)


def rows() -> list[tuple[Any, ...]]:
    return list(Workload.objects.order_by("resource", "name").values_list("resource", "wanted", "ready", "state"))


def test_rows_follow_their_objects_and_can_be_made_again(cluster: Cluster) -> None:
    cluster.create(DEPLOYMENT, make_deployment())
    cluster.create(DAEMON_SET, make_daemon_set())
    cluster.settle()
    expected = [("daemonsets.apps", 0, 0, "No pods"), ("deployments.apps", 2, 2, "Ready")]
    assert rows() == [*expected, ("replicasets.apps", 2, 2, "Ready")]
    (replica_set,) = cluster.replica_sets().values()
    assert Workload.objects.get(resource=REPLICA_SET.resource).controller_uid == cluster.deployment().metadata.uid
    assert {*Pod.objects.values_list("controller_uid", flat=True)} == {replica_set.metadata.uid}
    before = list(Workload.objects.order_by("uid").values()), list(Pod.objects.order_by("uid").values())
    objects.reindex()
    assert (list(Workload.objects.order_by("uid").values()), list(Pod.objects.order_by("uid").values())) == before
    cluster.delete(DEPLOYMENT, "web")
    assert [row[0] for row in rows()] == ["daemonsets.apps", "replicasets.apps"]


def test_every_kind_that_makes_pods_has_a_summary(cluster: Cluster) -> None:

    assert {*WORKLOADS} <= {*SUMMARIES}


def test_an_owner_that_a_client_made_up_does_no_harm(cluster: Cluster) -> None:

    pod = make_pod("odd")
    owner = OwnerReference(api_version="v1", kind="Thing", name="x", uid="u" * 300, controller=True)
    cluster.create(POD, replace(pod, metadata=replace(pod.metadata, owner_references=(owner,))))
    assert Pod.objects.get(name="odd").controller_uid == "u" * 36
