"""Why a workload is not what it should be: what refuses its pods, what its pods fail with, and what helps."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from claims.kinds.pods import ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod
from claims.kinds.quotas import ResourceQuota
from dashboard.workloads.workloads.why import MOST_IMAGINED
from manciple.api.namespaces import ensure_namespaces
from manciple.store.event_log import latest_revision
from tests.builders import make_node, make_quota
from tests.dashboard.browsing import admin, signed_in, viewer
from tests.dashboard.workload_scene import deploys, let_run, work
from tests.scheduling.cluster import Cluster
from tests.workloads.cluster import make_daemon_set, make_job, make_replica_set, make_stateful_set
from workloads.kinds.jobs import JOB

__all__ = ["admin", "viewer"]

#: plural -> a workload called x that wants three pods
KINDS: dict[str, Any] = {
    "replicasets": make_replica_set("x", replicas=3),
    "statefulsets": make_stateful_set("x", replicas=3),
    "jobs": make_job("x", parallelism=3, completions=3),
}


def why(client: Client, plural: str, name: str = "x") -> Any:
    return client.get(f"/workloads/{plural}/default/{name}").context["page"].why


def told(client: Client, plural: str, name: str = "x") -> str:
    found = why(client, plural, name)
    return "" if found is None else found.verdict.title


@pytest.fixture
def nodes(cluster: Cluster) -> Cluster:
    ensure_namespaces()
    cluster.create(make_node("node-1"))
    return cluster


def is_made(cluster: Cluster, plural: str) -> None:
    if plural == "deployments":
        deploys(cluster, "x", replicas=3)
    else:
        one = KINDS[plural]
        cluster.create(JOB.identified(JOB.prepare_create(one)) if plural == "jobs" else one)
    work(cluster)
    let_run(cluster)


@pytest.mark.parametrize("plural", ["deployments", *KINDS])
def test_a_quota_that_refuses_pods_is_named_with_the_limit_that_would_do(
    plural: str, admin: Client, viewer: Client, nodes: Cluster
) -> None:
    nodes.create(make_quota({"pods": "0"}, name="few"))
    is_made(nodes, plural)
    before = latest_revision()
    found = why(admin, plural)
    assert "exceeded quota: few" in found.verdict.title
    assert found.of is None
    number = 1 if plural == "statefulsets" else 3  # they are made one after the other
    (step,) = found.verdict.steps
    assert f"`pods` of quota `few` to {3}" in step.word, number
    assert step.do_url
    assert latest_revision() == before, "nothing is written"
    assert why(viewer, plural).verdict.steps[0].word == step.word
    quota = nodes.get(ResourceQuota, "few")
    nodes.update(replace(quota, spec=replace(quota.spec, hard={"pods": "3"})))
    for _ in range(4):
        nodes.later(30)
        work(nodes)
        let_run(nodes)
    assert told(admin, plural) == ""


def test_several_limits_are_raised_together_and_only_so_many_pods_are_imagined(admin: Client, nodes: Cluster) -> None:
    nodes.create(make_quota({"pods": "1"}, name="few"))
    nodes.create(make_quota({"count/pods": "2"}, name="fewer"))
    deploys(nodes, "x", replicas=500)
    word = why(admin, "deployments").verdict.steps[0].word
    assert f"`pods` of quota `few` to {1 + MOST_IMAGINED}" in word
    assert f"`count/pods` of quota `fewer` to {1 + MOST_IMAGINED}" in word


@pytest.mark.parametrize(
    "state",
    [
        ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff", message="back-off 40s")),
        ContainerState(waiting=ContainerStateWaiting(reason="ImagePullBackOff", message="no such image")),
        ContainerState(terminated=ContainerStateTerminated(exit_code=3, reason="Error")),
    ],
    ids=["crash loop", "image", "ended"],
)
@pytest.mark.parametrize("plural", ["deployments", "statefulsets", "daemonsets"])
def test_a_pod_that_fails_is_named_with_its_log(
    plural: str, state: ContainerState, admin: Client, nodes: Cluster
) -> None:
    if plural == "daemonsets":
        nodes.create(make_daemon_set("x"))
        work(nodes)
    else:
        is_made(nodes, plural)
    for pod in nodes.all(Pod):
        status = ContainerStatus(name="app", ready=False, state=state)
        nodes.update(
            replace(pod, status=replace(pod.status, phase="Running", container_statuses=(status,), conditions=()))
        )
    work(nodes)
    found = why(admin, plural)
    said = state.waiting.reason if state.waiting else "exit code 3"
    assert said in found.verdict.title
    (step,) = found.verdict.steps
    assert step.do_url == f"/pods/default/{found.of[1]}?tab=logs"
    assert not found.waits
    ann = signed_in("ann")
    assert bool(why(ann, plural).verdict.steps) is True


def test_a_container_that_is_being_created_is_no_fault(admin: Client, nodes: Cluster) -> None:
    is_made(nodes, "deployments")
    creating = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))
    for pod in nodes.all(Pod):
        status = ContainerStatus(name="app", ready=False, state=creating)
        nodes.update(replace(pod, status=replace(pod.status, container_statuses=(status,), conditions=())))
    work(nodes)
    assert told(admin, "deployments") == ""


def test_a_workload_that_is_as_it_should_be_says_nothing(admin: Client, nodes: Cluster) -> None:
    for plural in ("deployments",):
        is_made(nodes, plural)
        assert told(admin, plural) == "", plural
