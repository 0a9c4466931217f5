"""Why a workload is not what it should be: what refuses its pods, what its pods fail with, and what helps."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from msgspec.structs import replace

from claims.kinds.containers import ExecAction, Probe
from claims.kinds.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
)
from claims.kinds.quotas import ResourceQuota
from dashboard.workloads.workloads.why import MOST_IMAGINED
from manciple.api.namespaces import ensure_namespaces
from manciple.store.event_log import latest_revision
from tests.builders import make_node, make_quota
from tests.dashboard.browsing import admin, signed_in, viewer
from tests.dashboard.workload_scene import deploys, let_run, work
from tests.leases import overdue, renew
from tests.scheduling.cluster import Cluster
from tests.workloads.cluster import (
    make_cron_job,
    make_daemon_set,
    make_deployment,
    make_job,
    make_replica_set,
    make_stateful_set,
)
from workloads.kinds.deployments import Deployment
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


@pytest.mark.parametrize("plural", ["deployments", *KINDS])
def test_pods_that_a_status_does_not_show_yet_are_asked_for_once(plural: str, admin: Client, nodes: Cluster) -> None:
    nodes.create(make_quota({"pods": "1"}, name="few"))
    is_made(nodes, plural)
    work(nodes)  # a StatefulSet wants its second pod when the first runs
    (one,) = nodes.all(type(KINDS[plural]) if plural in KINDS else Deployment)
    status: dict[str, Any] = {"active": 0} if plural == "jobs" else {"replicas": 0}
    nodes.update(replace(one, status=replace(one.status, **status)))
    (step,) = why(admin, plural).verdict.steps
    assert "`pods` of quota `few` to 3" in step.word


def test_pods_on_an_unreachable_node_lead_to_the_node_as_nobody_can_read_their_log(
    admin: Client, nodes: Cluster
) -> None:
    is_made(nodes, "deployments")
    for pod in nodes.all(Pod):
        unready = PodCondition(type="Ready", status="False")
        nodes.update(replace(pod, status=replace(pod.status, conditions=(unready,))))
    work(nodes)
    renew(nodes, "node-1")
    assert "node-1" not in told(admin, "deployments")
    overdue("node-1")
    found = why(admin, "deployments")
    assert "`node-1`" in found.verdict.title
    assert [one.do_url for one in found.verdict.steps] == ["/nodes/node-1"]
    assert found.of is not None


def test_several_limits_are_raised_together_and_only_so_many_pods_are_imagined(admin: Client, nodes: Cluster) -> None:
    nodes.create(make_quota({"pods": "1"}, name="few"))
    nodes.create(make_quota({"count/pods": "2"}, name="fewer"))
    deploys(nodes, "x", replicas=500)
    word = why(admin, "deployments").verdict.steps[0].word
    assert f"`pods` of quota `few` to {1 + MOST_IMAGINED}" in word
    assert f"`count/pods` of quota `fewer` to {1 + MOST_IMAGINED}" in word


def failing(state: ContainerState, *, last: int | None = None, ran: bool = True) -> ContainerStatus:
    """last: the exit code of the attempt before."""
    ended = ContainerState() if last is None else ContainerState(terminated=ContainerStateTerminated(exit_code=last))
    return ContainerStatus(
        name="app", ready=False, state=state, last_state=ended, container_id="podman://1" if ran else ""
    )


_CRASHING = ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff", message="back-off 40s"))
_UNPULLED = ContainerState(waiting=ContainerStateWaiting(reason="ImagePullBackOff", message="no such image"))
_ENDED = ContainerState(terminated=ContainerStateTerminated(exit_code=3, reason="Error"))
#: -> (the container, what is said of it, what to read)
FAILING: dict[str, tuple[ContainerStatus, str, str]] = {
    "a crash loop": (failing(_CRASHING, last=1), "CrashLoopBackOff", "?tab=logs&container=app"),
    "an image": (failing(_UNPULLED, ran=False), "ImagePullBackOff", "?tab=events"),
    "an image of a later attempt": (failing(_UNPULLED, last=1), "ImagePullBackOff", "?tab=logs&container=app"),
    "an end": (failing(_ENDED), "exit code 3", "?tab=logs&container=app"),
    "a command that cannot be run": (failing(_ENDED, ran=False), "exit code 3", "?tab=events"),
}


@pytest.mark.parametrize("case", FAILING)
@pytest.mark.parametrize("plural", ["deployments", "statefulsets", "daemonsets"])
def test_a_pod_that_fails_is_named_with_its_log_or_its_events(
    plural: str, case: str, admin: Client, nodes: Cluster
) -> None:
    status, said, read = FAILING[case]
    if plural == "daemonsets":
        nodes.create(make_daemon_set("x"))
        work(nodes)
    else:
        is_made(nodes, plural)
    for pod in nodes.all(Pod):
        statuses = (replace(status, name="quiet", state=ContainerState(), last_state=ContainerState()), status)
        nodes.update(
            replace(pod, status=replace(pod.status, phase="Running", container_statuses=statuses, conditions=()))
        )
    work(nodes)
    found = why(admin, plural)
    assert said in found.verdict.title
    (step,) = found.verdict.steps
    assert step.do_url == f"/pods/default/{found.of[2]}{read}"
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


# One why for all kinds ------------------------------------------------------------------------------------------------

PROBE = Probe(exec=ExecAction(command=("ready",)))
RUNS = ContainerState(running=ContainerStateRunning(started_at="2026-01-01T00:00:00Z"))


def reports(cluster: Cluster, pod: Pod, state: ContainerState, *, phase: str = "Running") -> None:
    status = ContainerStatus(name=pod.spec.containers[0].name, state=state, started=True)
    unready = PodCondition(type="Ready", status="False", reason="ContainersNotReady")
    now = cluster.pod(pod.metadata.name)
    cluster.update(
        replace(now, status=replace(now.status, phase=phase, container_statuses=(status,), conditions=(unready,)))
    )


def waiting(reason: str) -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason, message="because"))


def probed(plural: str) -> Any:
    """A workload called x of three pods with a readiness probe."""
    kinds: dict[str, Any] = {
        "deployments": make_deployment("x", replicas=3),
        "daemonsets": make_daemon_set("x"),
        **KINDS,
    }
    one = kinds[plural]
    if plural == "statefulsets":
        one = replace(one, spec=replace(one.spec, pod_management_policy="Parallel"))
    (container,) = one.spec.template.spec.containers
    inner = replace(one.spec.template.spec, containers=(replace(container, readiness_probe=PROBE),))
    return replace(one, spec=replace(one.spec, template=replace(one.spec.template, spec=inner)))


#: phrase -> (what a container says, the pod's phase, words that the page and the list have)
CAUSES = {
    "crash loop": (waiting("CrashLoopBackOff"), "Running", "CrashLoopBackOff"),
    "image": (waiting("ImagePullBackOff"), "Pending", "ImagePullBackOff"),
    "configuration": (waiting("CreateContainerConfigError"), "Pending", "CreateContainerConfigError"),
    "probe": (RUNS, "Running", "readiness probe"),
}


@pytest.mark.parametrize("phrase", CAUSES)
@pytest.mark.parametrize("plural", ["deployments", "statefulsets", "daemonsets", "replicasets", "jobs"])
def test_what_its_pods_say_is_said_of_every_kind(
    plural: str, phrase: str, admin: Client, viewer: Client, nodes: Cluster
) -> None:
    state, phase, said = CAUSES[phrase]
    for number in (2, 3):
        nodes.create(make_node(f"node-{number}"))
    one = probed(plural)
    nodes.create(JOB.identified(JOB.prepare_create(one)) if plural == "jobs" else one)
    work(nodes)
    pods = nodes.all(Pod)
    assert len(pods) == 3
    for pod in pods:
        reports(nodes, pod, state, phase=phase)
    work(nodes)
    found = why(viewer, plural)
    assert ("3 pods" in found.verdict.title, said in found.verdict.title) == (True, True), found.verdict.title
    assert found.of[2] in {pod.metadata.name for pod in pods}
    rows = admin.get(f"/workloads?q=x&kind={make_kind(plural)}").context["table"].rows
    assert [line.why for line in rows] == [found.verdict.title]
    assert {line.reason for line in admin.get("/pods").context["table"].rows} != {""}


def make_kind(plural: str) -> str:
    kinds = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob")
    return next(kind for kind in kinds if f"{kind.lower()}s" == plural)


def test_what_most_pods_have_comes_first_and_the_rest_is_said_too(admin: Client, nodes: Cluster) -> None:
    deploys(nodes, "x", replicas=6)
    one, two, *others = nodes.all(Pod)
    reports(nodes, one, waiting("ImagePullBackOff"), phase="Pending")
    for pod in (two, *others[:2]):
        reports(nodes, pod, waiting("CrashLoopBackOff"))
    work(nodes)
    found = why(admin, "deployments")
    assert found.verdict.title.startswith("3 pods: ")
    assert "CrashLoopBackOff" in found.verdict.title
    assert [(other.number, "ImagePullBackOff" in other.text) for other in found.others] == [(1, True)]
    text = admin.get("/workloads/deployments/default/x").content.decode()
    assert f'href="/pods/default/{one.metadata.name}"' in text


def test_pods_that_wait_for_the_same_are_counted_together(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    deploys(cluster, "x", replicas=4, gpus=1)
    found = why(admin, "deployments")
    assert (found.waits, found.verdict.title.startswith("3 pods wait: ")) == (True, True)
    assert found.verdict.steps == admin.get(f"/pods/default/{found.of[2]}").context["verdict"].steps
    (row,) = admin.get("/workloads?q=x").context["table"].rows
    assert row.why.startswith("3 pods wait: ")


@pytest.mark.parametrize("plural", [*KINDS, "deployments", "daemonsets", "cronjobs"])
def test_the_list_says_who_is_refused_until_that_is_over(plural: str, admin: Client, nodes: Cluster) -> None:
    limit = {"count/jobs.batch": "0"} if plural == "cronjobs" else {"pods": "0"}
    nodes.create(make_quota(limit, name="few"))
    if plural == "cronjobs":
        nodes.create(make_cron_job("x", schedule="* * * * *"))
        nodes.later(90)
        work(nodes)
    elif plural == "daemonsets":
        nodes.create(make_daemon_set("x"))
        work(nodes)
    else:
        is_made(nodes, plural)
    query = f"/workloads?q=x&kind={make_kind(plural)}"
    (row,) = admin.get(query).context["table"].rows
    assert "exceeded quota: few" in row.why
    assert "exceeded quota: few" in told(admin, plural)
    quota = nodes.get(ResourceQuota, "few")
    nodes.update(replace(quota, spec=replace(quota.spec, hard=dict.fromkeys(limit, "9"))))
    for _ in range(4):
        nodes.later(60)
        work(nodes)
        let_run(nodes)
    (row,) = admin.get(query).context["table"].rows
    assert "quota" not in row.why
    assert "quota" not in told(admin, plural)


def test_a_cron_job_tells_of_the_pods_that_its_jobs_do_not_get(admin: Client, nodes: Cluster) -> None:
    nodes.create(make_quota({"pods": "0"}, name="few"))
    nodes.create(make_cron_job("x", schedule="* * * * *"))
    nodes.later(90)
    work(nodes)
    assert "exceeded quota: few" in told(admin, "cronjobs")
    rows = {line.kind: line.why for line in admin.get("/workloads").context["table"].rows}
    assert "exceeded quota: few" in rows["CronJob"]
    assert "exceeded quota: few" in rows["Job"]


def test_a_job_that_waits_after_a_failure_says_what_failed(admin: Client, nodes: Cluster) -> None:
    is_made(nodes, "jobs")
    for pod in nodes.all(Pod):
        now = nodes.pod(pod.metadata.name)
        ended = ContainerState(terminated=ContainerStateTerminated(exit_code=7, reason="Error"))
        status = ContainerStatus(name="app", state=ended)
        nodes.update(replace(now, status=replace(now.status, phase="Failed", container_statuses=(status,))))
    work(nodes)
    found = why(admin, "jobs")
    assert found.verdict.title.startswith("3 pods: ")
    assert "exit code 7" in found.verdict.text
