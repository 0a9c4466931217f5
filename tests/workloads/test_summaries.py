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
from tests.workloads.cluster import START, Cluster, make_daemon_set, make_deployment, make_replica_set
from workloads.kinds.daemon_sets import DAEMON_SET, DaemonSetStatus
from workloads.kinds.deployments import DEPLOYMENT, DeploymentCondition, DeploymentStatus
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSetStatus
from workloads.kinds.summaries import SUMMARIES, State, summary_of
from workloads.models import Workload
from workloads.view import WORKLOADS


def deployment(status: DeploymentStatus, **spec: Any) -> Any:
    return replace(make_deployment(**spec), status=status)


def condition(type_: str, status: str, reason: str, message: str = "") -> DeploymentCondition:
    return DeploymentCondition(type=type_, status=status, reason=reason, message=message)


DONE = DeploymentStatus(replicas=2, updated_replicas=2, ready_replicas=2, available_replicas=2)
LATE = condition("Progressing", "False", "ProgressDeadlineExceeded", 'ReplicaSet "web-1" has timed out progressing.')
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
        State.STARTING,
        "",
    ),
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
        State.STARTING,
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
