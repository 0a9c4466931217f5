"""Whom the controller tells of what: by their rules, once, and of nothing that they may not see."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from msgspec import structs

from insight import notifications
from manciple.api import verbs
from manciple.controllers.models import Cursor
from manciple.notifications import delivering, recording
from manciple.notifications.models import Channel, Delivery, Happening, Notification, NotificationRule
from manciple.people import person_of_user
from manciple.store import event_log, objects
from manciple.wire.errors import Expired
from manciple.wire.identity import VIEWERS
from manciple.wire.resources import PODS, kind
from scheduling.models import QueuedPod
from tests.builders import make_pod
from tests.dashboard.claim_scene import runs
from tests.dashboard.inventory.test_incidents import publish
from tests.scheduling.cluster import Cluster


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
    delivering.deliver(scene.now)
    webhook = Delivery.objects.get(channel=Channel.WEBHOOK)
    assert (webhook.state, webhook.problem) == ("given-up", "you may not see what it is about any more")


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
    held = f"gpu-0 on node-1 is {cause}. Claim default/web holds it"
    assert told("holder") == (told("ada") if sees_devices else [held])
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
        "Claim default/web holds it", "Claim default/db holds it"
    ]  # fmt: skip


def test_a_rule_for_ones_namespace_tells_of_devices_that_it_holds(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    runs(cluster, "web")
    wants(person("holder", "default"), Happening.DEVICE_FAILS, cluster.now, namespace="default")
    wants(person("other", "team-b"), Happening.DEVICE_FAILS, cluster.now, namespace="team-b")
    run(cluster)
    publish(cluster, "gpu-0", "gpu-1")
    run(cluster)
    (title,) = told("holder")
    assert title == "gpu-0 on node-1 is unhealthy (gpu.example.com/xid=79). Claim default/web holds it"
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
        recording.note(rule, [one], title="", path="/pods", now=scene.now)
    states = Delivery.objects.order_by("pk").values_list("state", "problem")
    assert states[recording.MOST_IN_AN_HOUR - 1] == ("due", "")
    assert states[recording.MOST_IN_AN_HOUR] == ("given-up", recording.TOO_MANY)


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
