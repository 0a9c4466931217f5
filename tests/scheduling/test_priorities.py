"""Pods get their priority from a class, whoever makes them, and nobody takes one."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from claims.admission import ensure_priority_classes
from claims.kinds.pods import Pod
from claims.kinds.priority_classes import PRIORITY_CLASS, PriorityClass
from manciple.store import objects
from manciple.wire.errors import Forbidden
from tests.builders import make_pod, make_priority, stored
from tests.scheduling.cluster import Cluster, kind_of

Priority = tuple[str, int | None, str | None]


def priority_of(pod: Pod) -> Priority:
    return pod.spec.priority_class_name, pod.spec.priority, pod.spec.preemption_policy


def made(cluster: Cluster, **spec: Any) -> Priority:
    return priority_of(cluster.create(make_pod(**spec)))


def test_a_pod_gets_what_its_class_says(cluster: Cluster) -> None:
    ensure_priority_classes()
    cluster.create(make_priority("high", 1000))
    cluster.create(make_priority("patient", 500, preemption_policy="Never"))
    assert made(cluster, name="a", priority_class_name="high") == ("high", 1000, "PreemptLowerPriority")
    assert made(cluster, name="b", priority_class_name="patient") == ("patient", 500, "Never")
    assert made(cluster, name="c", priority_class_name="system-node-critical")[1] == 2_000_001_000
    assert made(cluster, name="d", priority_class_name="high", priority=1000)[1] == 1000


def test_a_pod_without_a_class_gets_the_default(cluster: Cluster) -> None:
    assert made(cluster, name="a") == ("", 0, "PreemptLowerPriority")
    default = cluster.create(make_priority("usual", 7, global_default=True, preemption_policy="Never"))
    assert made(cluster, name="b") == ("usual", 7, "Never")
    cluster.delete(default)
    assert made(cluster, name="c") == ("", 0, "PreemptLowerPriority")


@pytest.mark.parametrize(
    ("spec", "why"),
    {
        "a class that is not there": (
            {"priority_class_name": "highest"},
            "no PriorityClass with name highest was found",
        ),
        "a priority without a class": (
            {"priority": 1000},
            "the integer value of priority (1000) must not be provided in pod spec; "
            "priority admission controller computed 0 from the given PriorityClass name",
        ),
        "more than the class gives": (
            {"priority": 2000, "priority_class_name": "high"},
            "the integer value of priority (2000) must not be provided in pod spec; "
            "priority admission controller computed 1000 from the given PriorityClass name",
        ),
        "another policy": (
            {"preemption_policy": "Never", "priority_class_name": "high"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
            "priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
        ),
    }.values(),
)
def test_nobody_takes_a_priority(cluster: Cluster, spec: dict[str, Any], why: str) -> None:
    cluster.create(make_priority("high", 1000))
    with pytest.raises(Forbidden) as refused:
        cluster.create(make_pod("web", **spec))
    assert refused.value.message == f'pods "web" is forbidden: {why}'
    assert refused.value.details == {"name": "web", "kind": "pods"}


def test_an_update_that_does_not_repeat_the_priority_keeps_it(cluster: Cluster) -> None:
    cluster.create(make_priority("high", 1000))
    pod = cluster.create(make_pod("web", priority_class_name="high"))
    asked = structs.replace(pod, spec=structs.replace(pod.spec, priority=None, preemption_policy=None))
    kind = kind_of(pod)
    assert priority_of(kind.prepare_update(asked, pod)) == priority_of(pod)


def forbidden(change: Any) -> str:
    with pytest.raises(Forbidden) as refused:
        change()
    return refused.value.message


def test_there_is_one_default(cluster: Cluster) -> None:
    usual = cluster.create(make_priority("usual", 7, global_default=True))
    other = cluster.create(make_priority("other"))
    both = "is forbidden: PriorityClass usual is already marked as default. Only one default can exist"
    second = make_priority("second", global_default=True)
    assert forbidden(lambda: cluster.create(second)) == f'priorityclasses.scheduling.k8s.io "second" {both}'
    late = structs.replace(other, global_default=True)
    assert forbidden(lambda: cluster.update(late)) == f'priorityclasses.scheduling.k8s.io "other" {both}'
    cluster.update(structs.replace(usual, description="still the default"))


def test_two_defaults_of_one_transaction_are_one_too_many(cluster: Cluster) -> None:
    def both(writer: objects.Writer) -> None:
        for name in ("first", "second"):
            writer.create(PRIORITY_CLASS, PRIORITY_CLASS.prepare_create(make_priority(name, global_default=True)))

    assert "PriorityClass first is already marked as default" in forbidden(lambda: objects.write(both))
    assert cluster.all(PriorityClass) == []


def test_the_systems_classes_are_made_once_and_stay(cluster: Cluster) -> None:
    ensure_priority_classes()
    before = cluster.all(PriorityClass)
    ensure_priority_classes()
    assert cluster.all(PriorityClass) == before
    assert {one.metadata.name: one.value for one in before} == {
        "system-cluster-critical": 2_000_000_000,
        "system-node-critical": 2_000_001_000,
    }
    for one in before:
        message = forbidden(lambda one=one: cluster.delete(one))
        assert message.endswith("is forbidden: this is a system priority class and cannot be deleted")


def test_priorities_cost_a_new_pod_no_query(cluster: Cluster) -> None:
    cluster.create(make_priority("high", 1000))
    counts = []
    for name in ("a", "b", "c"):
        pod = make_pod(name, priority_class_name="high")
        with CaptureQueriesContext(connection) as queries:
            cluster.create(stored(pod, resource_version=""))
        counts.append(len(queries))
    assert counts[1] == counts[2] < counts[0]
