"""Whom the controller tells of what: by their rules, once, and of nothing that they may not see."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from msgspec import structs

from claims.evictions import NODE_LOST, NODE_TAINT, Disruption, disrupt, preemption_by
from claims.kinds.pods import ContainerState, ContainerStateTerminated, ContainerStatus, Pod
from dashboard.kit.lists import list_files
from insight import notifications
from inventory import impairments as inventory_impairments
from inventory.kinds.pools import PoolKey
from inventory.models import Node
from manciple.api import verbs
from manciple.controllers.models import Cursor
from manciple.notifications import delivering, recording
from manciple.notifications.models import (
    Channel,
    Delivery,
    Happening,
    Notification,
    NotificationAddress,
    NotificationRule,
    ToldSubject,
)
from manciple.people import Person, person_of_user
from manciple.store import event_log, objects
from manciple.wire.base import OwnerReference, timestamp
from manciple.wire.errors import Expired
from manciple.wire.identity import SYSTEM, VIEWERS, Identity
from manciple.wire.machinery import Lease, LeaseSpec
from manciple.wire.resources import LEASES, PODS, kind
from scheduling.models import QueuedPod
from tests.builders import (
    DRIVER,
    make_devices,
    make_meta,
    make_node,
    make_pod,
    make_quota,
    make_slice,
    make_taint_rule,
)
from tests.dashboard.claim_scene import runs
from tests.dashboard.inventory.test_incidents import publish
from tests.scheduling.cluster import Cluster
from tests.workloads.cluster import make_job
from workloads.kinds.jobs import JOB, Job, JobCondition


def person(name: str, *namespaces: str, staff: bool = False) -> User:
    user = User.objects.create_user(name, is_staff=staff)
    names = [f"namespace:{one}" for one in namespaces] or [VIEWERS]
    user.groups.set([Group.objects.get_or_create(name=name)[0] for name in names])
    return user


def wants(user: User, happening: Happening, now: datetime, **fields: Any) -> NotificationRule:
    made = {"channels": [Channel.BROWSER.value], "created_at": now} | fields
    return NotificationRule.objects.create(person=user, happening=happening, **made)


def told(name: str) -> list[str]:
    return list(Notification.objects.filter(person__username=name).order_by("pk").values_list("title", flat=True))


def details(name: str) -> list[str]:
    return [one.details for one in Notification.objects.filter(person__username=name).order_by("pk")]


def becomes(cluster: Cluster, name: str, phase: str, namespace: str = "team-a") -> None:
    pod = cluster.get(type(make_pod()), name, namespace)
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, phase=phase)))


@pytest.fixture
def scene(cluster: Cluster) -> Cluster:
    """Pods of two teams, which have nodes and run nothing yet."""
    for namespace in ("team-a", "team-b"):
        for number in (1, 2):
            cluster.create(make_pod(f"job-{number}", namespace=namespace, node="node-1"))
    return cluster


def run(cluster: Cluster) -> int:
    return notifications.reconcile(cluster.now)


def test_nothing_is_read_while_nobody_has_a_rule(scene: Cluster, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(2):
        assert run(scene) == 0
    assert not Cursor.objects.filter(name__startswith="notify").exists()


def test_people_are_told_once_of_what_they_see_and_asked_for(scene: Cluster) -> None:
    ann, bob, eve = person("ann", "team-a"), person("bob", "team-a", "team-b"), person("eve", "team-c")
    for user in (ann, bob, eve):
        wants(user, Happening.POD_STARTED, scene.now)
    wants(bob, Happening.POD_FAILED, scene.now, namespace="team-b")
    becomes(scene, "job-2", "Running")
    run(scene)
    assert told("ann") == [], "a first rule begins with what happens from then on"
    becomes(scene, "job-1", "Running")
    becomes(scene, "job-1", "Running", "team-b")
    assert run(scene) == 2
    assert told("ann") == ["Pod team-a/job-1 started on node-1"]
    assert told("bob") == ["2 pods started"]
    assert told("eve") == [], "she sees neither namespace"
    for namespace in ("team-a", "team-b"):
        becomes(scene, "job-1", "Failed", namespace)
    run(scene)
    assert run(scene) == 0, "and once"
    assert told("bob")[1:] == ["Pod team-b/job-1 failed on node-1"]
    assert len(told("ann")) == 1


def finishes(cluster: Cluster, name: str, condition: str, reason: str, *, at: float = 0, **numbers: int) -> None:
    """What its controller says of a Job that ends. at: in so many seconds."""
    job = cluster.get(Job, name, "team-a")
    when = timestamp(cluster.now + timedelta(seconds=at))
    ended = JobCondition(type=condition, status="True", reason=reason, last_transition_time=when)
    status = structs.replace(job.status, conditions=(ended,), start_time=timestamp(cluster.now), **numbers)
    with objects.writing() as writer:
        writer.update(JOB, structs.replace(job, status=status), subresource="status")


def test_people_are_told_of_jobs_that_end_once_and_from_their_rule_on(scene: Cluster) -> None:
    for name in ("before", "good", "bad", "runs"):
        job = make_job(name, completions=2)
        job = structs.replace(job, metadata=structs.replace(job.metadata, namespace="team-a"))
        verbs.create(JOB, job, namespace="team-a", identity=SYSTEM)
    finishes(scene, "before", "Complete", "CompletionsReached", at=-60)
    ann, eve = person("ann", "team-a"), person("eve", "team-c")
    for user in (ann, eve):
        wants(user, Happening.JOB_ENDED, scene.now)
    run(scene)
    finishes(scene, "good", "Complete", "CompletionsReached", at=7200, succeeded=2)
    for name in ("before", "runs"):
        scene.label(scene.get(Job, name, "team-a"), "looked", "at")
    run(scene)
    assert told("ann") == ["Job team-a/good completed after 2 h: 2 of 2"]
    scene.later(600)
    finishes(scene, "bad", "Failed", "DeadlineExceeded", at=60)
    scene.label(scene.get(Job, "good", "team-a"), "looked", "at")
    run(scene)
    run(scene)
    assert [one.partition(":")[0] for one in told("ann")[1:]] == ["Job team-a/bad failed after 1 min"]
    assert told("eve") == []


def test_whoever_is_told_of_a_job_reads_why_it_failed(scene: Cluster) -> None:
    """One that waited until its time limit was over, one that ran as long, one whose pods failed."""
    ann = person("ann", "team-a")
    wants(ann, Happening.JOB_ENDED, scene.now)
    run(scene)
    reasons = {"waited": "DeadlineExceeded", "ran": "DeadlineExceeded", "broke": "BackoffLimitExceeded"}
    for name, reason in reasons.items():
        job = make_job(name, active_deadline_seconds=1800)
        job = structs.replace(job, metadata=structs.replace(job.metadata, namespace="team-a"))
        made = verbs.create(JOB, job, namespace="team-a", identity=SYSTEM)
        owner = OwnerReference(api_version="batch/v1", kind="Job", name=name, uid=made.metadata.uid, controller=True)
        pod = make_pod(f"{name}-x", namespace="team-a", node="" if name == "waited" else "node-1")
        scene.create(structs.replace(pod, metadata=structs.replace(pod.metadata, owner_references=(owner,))))
        scene.delete(scene.get(Pod, f"{name}-x", "team-a"))
        finishes(scene, name, "Failed", reason, at=1800)
    run(scene)
    (notification,) = Notification.objects.filter(person=ann)
    assert set(notification.text.splitlines()) == {
        "Job team-a/waited failed after 30 min: It waited 30 min of its time limit of 30 min and never started",
        "Job team-a/ran failed after 30 min: Its time limit ran out",
        "Job team-a/broke failed after 30 min: Its pods have failed more often than it allows",
    }
    assert notification.path.startswith("/workloads")


def test_only_jobs_that_one_created_where_that_is_asked(scene: Cluster) -> None:
    ann = person("ann", "team-a")
    wants(ann, Happening.JOB_ENDED, scene.now, mine=True)
    run(scene)
    for name, identity in (("hers", person_of_user(ann).identity), ("other", SYSTEM)):
        job = make_job(name)
        job = structs.replace(job, metadata=structs.replace(job.metadata, namespace="team-a"))
        verbs.create(JOB, job, namespace="team-a", identity=identity)
        finishes(scene, name, "Complete", "CompletionsReached", at=60, succeeded=1)
    run(scene)
    assert told("ann") == ["Job team-a/hers completed after 1 min: 1 of 1"]


def test_a_rule_for_a_namespace_that_is_not_seen_tells_nothing_now_or_later(scene: Cluster) -> None:
    ann = person("ann", "team-a")
    wants(ann, Happening.POD_STARTED, scene.now, namespace="team-b")
    wants(ann, Happening.POD_WAITS, scene.now, namespace="team-b", minutes=1)
    run(scene)
    becomes(scene, "job-1", "Running", "team-b")
    scene.create(make_pod("stuck", namespace="team-b", node_selector={"no": "where"}))
    scene.settle()
    scene.later(3600)
    run(scene)
    assert told("ann") == []


def test_what_somebody_may_not_see_any_more_is_not_sent(scene: Cluster) -> None:
    ann = person("ann", "team-a")
    wants(ann, Happening.POD_STARTED, scene.now, channels=[Channel.WEBHOOK.value, Channel.BROWSER.value])
    run(scene)
    becomes(scene, "job-1", "Running")
    run(scene)
    ann.groups.set([Group.objects.get_or_create(name="namespace:team-b")[0]])
    delivering.deliver(scene.now + recording.QUIET)
    webhook = Delivery.objects.get(channel=Channel.WEBHOOK)
    assert webhook.state == "given-up"
    assert "no longer see" in webhook.problem


def test_only_pods_that_one_created_where_that_is_asked(scene: Cluster) -> None:
    ann = person("ann", "team-a")
    wants(ann, Happening.POD_STARTED, scene.now, mine=True)
    run(scene)
    identity = person_of_user(ann).identity
    verbs.create(kind(PODS), make_pod("hers", namespace="team-a"), namespace="team-a", identity=identity)
    for name in ("hers", "job-1"):
        becomes(scene, name, "Running")
    run(scene)
    assert told("ann") == ["Pod team-a/hers started"]


def test_who_waits_for_long_is_told_once_with_the_reason(scene: Cluster) -> None:
    ann = person("ann", "team-a")
    wants(ann, Happening.POD_WAITS, scene.now, minutes=60)
    scene.create(make_pod("stuck", namespace="team-a", node_selector={"no": "where"}))
    scene.settle()
    scene.later(59 * 60)
    assert run(scene) == 0
    QueuedPod.objects.update(created_at=scene.now)
    scene.later(61 * 60)
    assert run(scene) == 1
    assert run(scene) == 0
    (title,) = told("ann")
    assert title.startswith("Pod team-a/stuck has waited for 1 h 1 min: ")


def test_a_device_that_fails_is_told_to_who_sees_devices_and_to_whose_claim_holds_it(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    runs(cluster, "web")
    admin, holder, other = person("ada", staff=True), person("holder", "default"), person("other", "team-b")
    for user in (admin, holder, other):
        wants(user, Happening.DEVICE_FAILS, cluster.now)
    run(cluster)
    publish(cluster, "gpu-0", "gpu-1")
    run(cluster)
    publish(cluster)
    publish(cluster, "gpu-0", "gpu-1")
    run(cluster)
    cause = "unhealthy (gpu.example.com/xid=79)"
    assert told("ada") == [f"gpu-0, gpu-1 on node-1 are {cause}"], "what comes back so soon is the same incident"
    sees_devices = person_of_user(holder).may("list", "resourceslices.resource.k8s.io")
    assert told("holder") == (told("ada") if sees_devices else [f"gpu-0 on node-1 is {cause}"])
    assert sees_devices or details("holder") == ["Claim default/web holds it."]
    assert told("other") == (told("ada") if sees_devices else [])


def test_each_claim_of_a_namespace_that_holds_a_device_that_fails_is_told(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    runs(cluster, "web")
    runs(cluster, "db")
    wants(person("holder", "default"), Happening.DEVICE_FAILS, cluster.now, namespace="default")
    run(cluster)
    publish(cluster, "gpu-0", "gpu-1")
    run(cluster)
    (made,) = Notification.objects.all()
    assert made.title == "2 reports of unhealthy devices"
    assert [line.rpartition(". ")[2] for line in made.text.splitlines()] == [
        "Claim default/web holds it.", "Claim default/db holds it."
    ]  # fmt: skip


def test_a_rule_for_ones_namespace_tells_of_devices_that_it_holds(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    runs(cluster, "web")
    wants(person("holder", "default"), Happening.DEVICE_FAILS, cluster.now, namespace="default")
    wants(person("other", "team-b"), Happening.DEVICE_FAILS, cluster.now, namespace="team-b")
    run(cluster)
    publish(cluster, "gpu-0", "gpu-1")
    run(cluster)
    assert told("holder") == ["gpu-0 on node-1 is unhealthy (gpu.example.com/xid=79)"]
    assert details("holder") == ["Claim default/web holds it."]
    assert told("other") == []


def test_many_at_once_are_one_notification_that_names_some(scene: Cluster) -> None:
    wants(person("ada", staff=True), Happening.POD_STARTED, scene.now)
    run(scene)
    for number in range(14):
        scene.create(make_pod(f"many-{number:02}", namespace="team-a", node="node-1"))
        becomes(scene, f"many-{number:02}", "Running")
    run(scene)
    (made,) = Notification.objects.all()
    assert made.title == "14 pods started"
    assert made.text.splitlines()[-2:] == ["Pod team-a/many-09 started on node-1", "and 4 more"]
    assert (made.path, made.namespaces) == ("/pods", ["team-a"])


def test_more_than_sixty_an_hour_are_noted_and_not_sent(scene: Cluster) -> None:
    ada = person("ada", staff=True)
    rule = wants(ada, Happening.POD_STARTED, scene.now)
    for number in range(recording.MOST_IN_AN_HOUR + 1):
        one = recording.NewsItem(
            happening=rule.happening, subject=f"pod-started:{number}", line="It started", path="/pods"
        )
        recording.note(rule, [one], title="", path="/pods", now=scene.now + number * recording.QUIET)
    states = Delivery.objects.order_by("pk").values_list("state", "problem")
    assert states[recording.MOST_IN_AN_HOUR - 1] == ("due", "")
    assert states[recording.MOST_IN_AN_HOUR] == ("given-up", recording.TOO_MANY)


def test_a_storm_of_a_thousand_pods_is_one_digest(cluster: Cluster) -> None:
    """They start over minutes, in many runs of the controller, and each run reads several parts of the log."""
    wants(person("ada", staff=True), Happening.POD_STARTED, cluster.now)
    run(cluster)
    for begin in range(0, 1000, 50):
        with objects.writing() as writer:
            for number in range(begin, begin + 50):
                pod = make_pod(f"storm-{number:04}", namespace="team-a", node="node-1")
                writer.create(kind(PODS), structs.replace(pod, status=structs.replace(pod.status, phase="Running")))
        run(cluster)
        assert delivering.deliver(cluster.now) == 0, "it is sent nowhere while it gathers"
        cluster.later(9)
    cluster.later(recording.QUIET.total_seconds())
    (made,) = Notification.objects.all()
    assert (made.title, made.count) == ("1,000 pods started", 1000)
    assert made.text.splitlines()[-1] == "and 990 more"
    assert Delivery.objects.get().due_at <= cluster.now


def test_a_storm_that_does_not_end_is_told_every_few_minutes(cluster: Cluster) -> None:
    rule = wants(person("ada", staff=True), Happening.POD_STARTED, cluster.now)
    for number in range(200):
        one = recording.NewsItem(happening=rule.happening, subject=f"s:{number}", line=f"pod {number}", path="/pods")
        recording.note(rule, [one], title="{count} pods", path="/pods", now=cluster.now)
        cluster.later(5)
    ends = Notification.objects.values_list("at", "gathers_until")
    assert all(until is not None and until - at <= recording.LONGEST for at, until in ends)
    assert 3 <= len(ends) <= 5


def test_what_is_being_sent_takes_nothing_up_any_more(scene: Cluster) -> None:
    wants(person("ada", staff=True), Happening.POD_STARTED, scene.now, channels=[Channel.WEBHOOK.value])
    run(scene)
    becomes(scene, "job-1", "Running")
    run(scene)
    Delivery.objects.update(attempts=1)  # as whoever sends it claims it, by a clock that is a little ahead
    becomes(scene, "job-2", "Running")
    run(scene)
    assert [one.count for one in Notification.objects.all()] == [1, 1]


def test_a_controller_that_is_killed_half_way_tells_everything_once(
    scene: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants(person("ada", staff=True), Happening.POD_STARTED, scene.now)
    wants(person("bob", "team-a"), Happening.POD_STARTED, scene.now)
    run(scene)
    becomes(scene, "job-1", "Running")
    made, plan = list[Any](), recording.plan

    def killed(*arguments: Any, **named: Any) -> Any:
        made.append(plan(*arguments, **named))
        if len(made) == 2:
            raise KeyboardInterrupt
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(recording, "plan", killed)
        with pytest.raises(KeyboardInterrupt):
            run(scene)
    assert not Notification.objects.exists(), "neither is told, and the place in the log has not moved"
    run(scene)
    run(scene)
    assert told("ada") == told("bob") == ["Pod team-a/job-1 started on node-1"]


def test_a_pod_that_has_ended_before_it_was_seen_running_has_started_too(scene: Cluster) -> None:
    wants(person("ada", staff=True), Happening.POD_STARTED, scene.now)
    run(scene)
    becomes(scene, "job-1", "Succeeded")
    becomes(scene, "job-2", "Running")
    becomes(scene, "job-2", "Succeeded")
    run(scene)
    (made,) = Notification.objects.all()
    assert made.count == 2


@pytest.mark.parametrize("why", [NODE_TAINT, NODE_LOST, preemption_by("default-scheduler")], ids=lambda why: why.reason)
def test_a_pod_that_is_evicted_has_failed_and_one_that_is_deleted_has_not(scene: Cluster, why: Disruption) -> None:
    ada = person("ada", staff=True)
    wants(ada, Happening.POD_FAILED, scene.now, channels=[Channel.WEBHOOK.value])
    NotificationAddress.objects.create(person=ada, webhook="https://x/", webhook_format="pagerduty")
    run(scene)
    with objects.writing() as writer:
        pod = writer.get(kind(PODS), "team-a", "job-1")
        assert isinstance(pod, Pod)
        disrupt(writer, pod, why, now=scene.now)
    for name in ("job-1", "job-2"):
        if (found := scene.find(Pod, name, "team-a")) is not None:
            scene.delete(found)
    run(scene)
    made, closing = Notification.objects.order_by("pk")
    assert made.title.startswith("Pod team-a/job-1 ")
    assert (made.deliveries.get().state, closing.closes) == ("due", made), "it is sent although the pod is gone"
    assert closing.deliveries.get().due_at > made.deliveries.get().due_at


def test_pods_that_somebody_creates_on_the_page_are_theirs(scene: Cluster) -> None:
    ann, _ = person("ann", "team-a"), person("bob", "team-a")
    for user in (ann, User.objects.get(username="bob")):
        for happening in (Happening.POD_STARTED, Happening.POD_FAILED):
            wants(user, happening, scene.now, mine=True)
    run(scene)
    browser = Client()
    browser.force_login(ann)
    answer = browser.post("/pods/new", {"yaml": POD, "namespace": "team-a", "action": "create"})
    assert answer.status_code == 302, answer.content
    becomes(scene, "by-hand", "Running")
    run(scene)
    scene.later(60)
    becomes(scene, "by-hand", "Failed")
    run(scene)
    assert told("ann") == ["Pod team-a/by-hand started", "Pod team-a/by-hand failed"]
    assert told("bob") == []


POD = """
apiVersion: v1
kind: Pod
metadata:
  name: by-hand
spec:
  containers:
    - name: main
      image: registry.example.org/train:1
"""


# What is wrong with the cluster --------------------------------------------------------------------------------------


def heard_of(cluster: Cluster, node: str) -> None:
    """Its agent renews its Lease."""
    meta = make_meta(node, "kube-node-lease")
    lease = Lease(
        api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta, spec=LeaseSpec(holder_identity=node)
    )
    known = cluster.find(Lease, node, "kube-node-lease")
    if known is None:
        cluster.create(lease)
        return
    with objects.writing(sources=objects.Sources(now=cluster.clock)) as writer:
        spec = LeaseSpec(holder_identity=node, renew_time=f"{cluster.now:%Y-%m-%dT%H:%M:%S}.000000Z")
        writer.update(kind(LEASES), structs.replace(known, spec=spec))


def runs_for(cluster: Cluster, seconds: float, *, every: float = 5) -> None:
    """The controller, as often as it does."""
    end = cluster.now + timedelta(seconds=seconds)
    while cluster.now < end:
        cluster.later(every)
        run(cluster)


def sent(cluster: Cluster) -> None:
    """As if everything that is due had been delivered."""
    due = Delivery.objects.filter(state="due", due_at__lte=cluster.now)
    due.update(state="sent", attempts=1, ended_at=cluster.now)


def test_a_node_that_goes_silent_is_told_once_and_again_when_it_is_back(cluster: Cluster) -> None:
    for node in ("node-1", "node-2"):
        cluster.create(make_node(node))
        heard_of(cluster, node)
    wants(person("ada", staff=True), Happening.NODE_SILENT, cluster.now)
    nobody = User.objects.create_user("nobody")  # may not list nodes
    nobody.groups.set([Group.objects.get_or_create(name="namespace:team-a")[0]])
    run(cluster)
    assert told("ada") == []
    cluster.later(35)
    heard_of(cluster, "node-2")
    run(cluster)
    assert told("ada") == [], "its Lease is not overdue yet"
    cluster.later(6)
    run(cluster)
    assert told("ada") == ["Node node-1 is unreachable"]
    assert details("ada") == ["Last heard of 41 s ago. No pod runs there."]
    runs_for(cluster, 20)
    sent(cluster)
    heard_of(cluster, "node-1")
    heard_of(cluster, "node-2")
    runs_for(cluster, 30)
    assert len(told("ada")) == 1, "it may be gone again in a moment"
    heard_of(cluster, "node-1")
    heard_of(cluster, "node-2")
    runs_for(cluster, 35)
    assert told("ada")[1:] == ["Over: Node node-1 is unreachable"]
    assert details("ada")[1:] == [""], "when it was last heard of is no news by then"
    heard_of(cluster, "node-1")
    heard_of(cluster, "node-2")
    runs_for(cluster, 10)
    assert len(told("ada")) == 2


def test_a_node_that_comes_and_goes_is_one_alarm_and_one_that_goes_again_later_is_another(cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    heard_of(cluster, "node-1")
    wants(person("ada", staff=True), Happening.NODE_SILENT, cluster.now)
    for _ in range(5):
        runs_for(cluster, 60, every=20)
        heard_of(cluster, "node-1")
        runs_for(cluster, 20, every=20)
    assert len(told("ada")) == 1
    sent(cluster)
    for _ in range(5):
        heard_of(cluster, "node-1")
        runs_for(cluster, 20, every=20)
    assert told("ada")[-1].startswith("Over: ")
    runs_for(cluster, 60, every=20)
    assert len(told("ada")) == 3


def test_a_node_that_the_controller_gave_up_is_silent_whatever_its_lease(cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    heard_of(cluster, "node-1")
    Node.objects.update(condition="Unknown")
    wants(person("ada", staff=True), Happening.NODE_SILENT, cluster.now)
    run(cluster)
    assert details("ada") == ["Last heard of 0 s ago. No pod runs there."]


def test_nobody_is_told_of_nodes_or_pools_that_they_may_not_list(cluster: Cluster) -> None:
    eve = person("eve", "team-a")
    kinds = (Happening.NODE_SILENT, Happening.POOL_INCOMPLETE, Happening.INCIDENT)
    for happening in kinds:
        wants(eve, happening, cluster.now)
        news = recording.NewsItem(happening=happening, subject="x", line="x", path="/")
        rule = NotificationRule.objects.get(person=eve, happening=happening)
        audience = notifications.Audience([rule])
        audience._people[eve.pk] = Nothing(Identity("eve"), frozenset({"team-a"}))
        assert audience.tell([news], happening, now=cluster.now) == 0, happening


class Nothing(Person):
    """Somebody who sees namespaces, and may list nothing of the cluster."""

    def may(self, *_: Any, **__: Any) -> bool:
        return False


def test_a_pool_that_stays_incomplete_is_told_until_it_is_whole(cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    half = cluster.create(make_slice(node="node-1", devices=make_devices(2), slices=2))
    wants(person("ada", staff=True), Happening.POOL_INCOMPLETE, cluster.now)
    runs_for(cluster, 50)
    assert told("ada") == [], "a driver that publishes anew takes a moment"
    runs_for(cluster, 20)
    (title,) = told("ada")
    assert "1 of 2 slices" in title
    runs_for(cluster, 15)
    sent(cluster)
    pool = structs.replace(half.spec.pool, resource_slice_count=1)
    cluster.update(structs.replace(half, spec=structs.replace(half.spec, pool=pool)))
    runs_for(cluster, 70)
    assert told("ada")[1:] == [f"Over: {title}"]


def test_a_pool_that_vanishes_while_claims_hold_it_is_told(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    runs(cluster, "web")
    wants(person("ada", staff=True), Happening.POOL_INCOMPLETE, cluster.now)
    cluster.delete(cluster.slice())
    runs_for(cluster, 70)
    (title,) = told("ada")
    assert "gpu.example.com" in title
    assert "no longer publishes" in title


def test_an_incident_is_told_when_it_opens_and_closes_to_each_as_they_see_it(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    runs(cluster, "web")
    wants(person("ada", staff=True), Happening.INCIDENT, cluster.now)
    wants(person("holder", "default"), Happening.INCIDENT, cluster.now, namespace="default")
    wants(person("other", "team-b"), Happening.INCIDENT, cluster.now, namespace="team-b")
    run(cluster)
    publish(cluster, "gpu-0")
    runs_for(cluster, 20)
    opened = "Incident: gpu-0 on node-1: gpu.example.com/xid=79"
    assert told("ada") == [opened]
    assert told("holder") == [opened]
    assert details("ada") == ["1 claim holds devices of it."]
    assert details("holder") == ["Held by claim default/web."]
    sent(cluster)
    publish(cluster)
    runs_for(cluster, 70)
    assert told("ada")[1:] == [f"Over: {opened}"]
    assert told("holder")[1:] == [f"Over: {opened}"]
    assert told("other") == []


def test_a_device_that_failed_and_works_again_is_over(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    wants(person("ada", staff=True), Happening.DEVICE_FAILS, cluster.now)
    run(cluster)
    publish(cluster, "gpu-0")
    run(cluster)
    cluster.later(20)
    sent(cluster)
    publish(cluster)
    run(cluster)
    assert len(told("ada")) == 1
    cluster.later(120)
    run(cluster)
    assert told("ada")[1:] == [f"Over: {told('ada')[0]}"]


def test_a_quota_that_is_nearly_full_is_told_to_those_who_may_read_it(cluster: Cluster) -> None:
    quota = cluster.create(make_quota({"pods": "10", "services": "0"}, namespace="team-a"))
    wants(person("ada", staff=True), Happening.QUOTA_FULL, cluster.now)
    wants(person("other", "team-b"), Happening.QUOTA_FULL, cluster.now)
    runs_for(cluster, 40)
    assert told("ada") == [], "a limit of nothing is not news"

    pods = [cluster.create(make_pod(f"p-{number}", namespace="team-a")) for number in range(9)]
    runs_for(cluster, 45)
    assert told("ada") == [f"Quota team-a/{quota.metadata.name} is nearly full: 9 of 10 pods"]
    cluster.delete(pods.pop())
    runs_for(cluster, 60)
    cluster.create(make_pod("p-9", namespace="team-a"))
    cluster.create(make_pod("p-10", namespace="team-a"))
    runs_for(cluster, 60)
    assert len(told("ada")) == 1, "it went over the line and back"
    assert told("other") == []


def test_that_a_pod_waits_no_more_is_news_for_pagerduty_alone(cluster: Cluster) -> None:
    ann = person("ann", "team-a")
    wants(ann, Happening.POD_WAITS, cluster.now, minutes=1, channels=["browser", "webhook"])
    stuck = cluster.create(make_pod("stuck", namespace="team-a", node_selector={"no": "where"}))
    cluster.settle()
    cluster.later(70)
    run(cluster)
    sent(cluster)
    cluster.later(20)
    sent(cluster)
    format = NotificationAddress.objects.create(person=ann, webhook="https://x/", webhook_format="pagerduty")
    cluster.delete(stuck)
    run(cluster)
    (closing,) = Notification.objects.exclude(closes=None)
    assert [one.channel for one in closing.deliveries.all()] == ["webhook"]
    Notification.objects.filter(pk=closing.pk).delete()
    ToldSubject.objects.update(over_at=None)
    format.webhook_format = "slack"
    format.save()
    recording.close(ToldSubject.objects.values_list("subject", flat=True), quietly=True, now=cluster.now)
    assert not Notification.objects.exclude(closes=None).exists()


def test_several_at_once_are_over_when_the_last_of_them_is(cluster: Cluster) -> None:
    for node in ("node-1", "node-2"):
        cluster.create(make_node(node))
        heard_of(cluster, node)
    wants(person("ada", staff=True), Happening.NODE_SILENT, cluster.now)
    cluster.later(41)
    run(cluster)
    assert told("ada") == ["2 nodes are unreachable"]
    cluster.later(20)
    sent(cluster)
    for _ in range(6):
        heard_of(cluster, "node-1")
        runs_for(cluster, 15, every=15)
    assert len(told("ada")) == 1
    for _ in range(6):
        for node in ("node-1", "node-2"):
            heard_of(cluster, node)
        runs_for(cluster, 15, every=15)
    assert told("ada")[1:] == ["Over: 2 nodes are unreachable"]


def test_it_goes_on_where_the_log_does_not_reach(scene: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    wants(person("ada", staff=True), Happening.POD_STARTED, scene.now)
    run(scene)
    becomes(scene, "job-1", "Running")

    def pruned(*_: Any, **__: Any) -> Any:
        raise Expired("too old")

    with monkeypatch.context() as patch:
        patch.setattr(event_log, "stretch_after", pruned)
        assert run(scene) == 0
    becomes(scene, "job-2", "Running")
    run(scene)
    assert told("ada") == ["Pod team-a/job-2 started on node-1"]
    assert objects.get(kind(PODS), "team-a", "job-1")


# What a message says --------------------------------------------------------------------------------------------------


def ends(cluster: Cluster, name: str, *, init: bool = False, message: str = "", reason: str = "OOMKilled") -> None:
    """A container of the pod ended so, and the pod failed."""
    pod = cluster.get(Pod, name, "team-a")
    ended = ContainerStatus(
        name="main", state=ContainerState(terminated=ContainerStateTerminated(exit_code=137, reason=reason))
    )
    statuses = {"init_container_statuses" if init else "container_statuses": (ended,)}
    cluster.update(
        structs.replace(pod, status=structs.replace(pod.status, phase="Failed", message=message, **statuses))
    )


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({}, "Container main: OOMKilled, exit code 137."),
        ({"init": True}, "Container main: OOMKilled, exit code 137."),
        ({"message": "the node was low on memory."}, "The node was low on memory."),
    ],
)
def test_who_is_told_of_a_pod_that_failed_reads_why(scene: Cluster, made: dict[str, Any], says: str) -> None:
    wants(person("ada", staff=True), Happening.POD_FAILED, scene.now)
    run(scene)
    ends(scene, "job-1", **made)
    run(scene)
    assert told("ada") == ["Pod team-a/job-1 failed on node-1"]
    assert details("ada") == [says]


def test_an_evicted_pod_is_linked_to_what_became_of_it_and_failed_pods_to_themselves(scene: Cluster) -> None:
    """There may be another pod of the same name by now."""
    wants(person("ada", staff=True), Happening.POD_FAILED, scene.now)
    run(scene)
    uid = scene.get(Pod, "job-1", "team-a").metadata.uid
    with objects.writing() as writer:
        pod = writer.get(kind(PODS), "team-a", "job-1")
        assert isinstance(pod, Pod)
        disrupt(writer, pod, NODE_TAINT, now=scene.now)
    if (found := scene.find(Pod, "job-1", "team-a")) is not None:
        scene.delete(found)
    scene.create(make_pod("job-1", namespace="team-a", node="node-1"))
    run(scene)
    assert [one.path for one in Notification.objects.all()] == [f"/ended/{uid}"]
    scene.later(60)
    for name in ("job-1", "job-2"):
        becomes(scene, name, "Failed")
    run(scene)
    assert [one.path for one in Notification.objects.order_by("pk")][1:] == ["/pods?state=Failed"]


def test_whoever_is_told_of_a_node_reads_how_many_pods_it_has(cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    heard_of(cluster, "node-1")
    for name in ("a", "b"):
        cluster.create(make_pod(name, namespace="team-a", node="node-1"))
    cluster.create(make_pod("done", namespace="team-a", node="node-1"))
    becomes(cluster, "done", "Succeeded")
    wants(person("ada", staff=True), Happening.NODE_SILENT, cluster.now)
    cluster.later(41)
    run(cluster)
    assert details("ada") == ["Last heard of 41 s ago. 2 pods on it may still run."]


@pytest.mark.parametrize("source", ["node", "pool", "device rule", "pool rule", "rule for all"])
def test_whoever_holds_devices_is_told_of_incidents_of_all_that_they_belong_to(cluster: Cluster, source: str) -> None:
    cluster.with_gpus("node-1", "node-2", each=1)
    runs(cluster, "web")
    runs(cluster, "db")
    for name in ("web", "db"):
        claim = cluster.claim(name)
        (where,) = cluster.devices(claim)
        if where.startswith("node-1/"):
            mine, other = name, {"web": "db", "db": "web"}[name]
    for holder in ("web", "db"):
        wants(person(holder, "default"), Happening.INCIDENT, cluster.now, namespace="default")
    run(cluster)
    if source == "node":
        inventory_impairments.record_unreachable({"node-1": cluster.now}, at=cluster.now)
    elif source == "pool":
        pool = PoolKey(DRIVER, "node-1", "node-1")
        inventory_impairments.record_incomplete({pool: (cluster.now, "1 of 2 slices")}, at=cluster.now)
    else:
        named = {"device rule": {"device": "gpu-0"}, "pool rule": {"driver": DRIVER, "pool": "node-1"}}
        cluster.create(make_taint_rule("repair", **named.get(source, {})))
    run(cluster)
    (title,) = told("web")
    assert {"node": "node node-1 is unreachable", "pool": "node-1 is incomplete"}.get(source, "by rule repair") in title
    everywhere = source in ("device rule", "rule for all")
    claims = sorted([mine, other]) if everywhere else [mine]
    assert details("web") == [f"Held by claim{'s' * everywhere} {', '.join(f'default/{one}' for one in claims)}."]


@pytest.mark.parametrize("happening", Happening)
def test_what_is_told_of_several_leads_to_a_page_that_shows_just_those(happening: Happening) -> None:
    """The page knows every part of the address: it leaves out what it does not."""
    _, address = notifications._TOGETHER[happening]
    path, _, query = address.partition("?")
    known = list_files()[path.strip("/")]
    for name, values in parse_qs(query).items():
        assert known is not None
        allowed = known.parameters()[name]
        assert allowed is None or all(value in allowed for value in values), address
