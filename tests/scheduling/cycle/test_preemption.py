"""A more important pod takes the place of less important ones: which, when, how it is told, and what is kept for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import structs

from claims.causes.causes import CannotAllocate, PreemptionNotHelpful, Unhelpful
from claims.kinds.pods import Pod, PodCondition
from inventory.kinds import gates
from scheduling.rehearsal.explanations import explain_pod, pod_document
from scheduling.rehearsal.simulation import Question, simulate
from scheduling.rehearsal.workload import NotRehearsable, of_documents
from scheduling.state.nodes import PlannedEviction
from tests.builders import (
    NAMESPACE,
    make_claim,
    make_container,
    make_devices,
    make_node,
    make_pod,
    make_priority,
    make_request,
    make_slice,
)
from tests.scheduling.cluster import Cluster, with_spec

LOW, MIDDLE, HIGH = "low", "middle", "high"
VALUES = {LOW: 10, MIDDLE: 20, HIGH: 100}
TAIL = "preemption: 0/{nodes} nodes are available: {why}."


@pytest.fixture
def busy(cluster: Cluster) -> Cluster:
    """Priority classes, and two nodes with two GPUs each."""
    for name, value in VALUES.items():
        cluster.create(make_priority(name, value))
    cluster.with_gpus("node-1", "node-2")
    return cluster


def run_pod(cluster: Cluster, name: str, priority: str = LOW, *, count: int = 1, grace: int = 30, **spec: Any) -> Pod:
    """A pod with a claim of its own for `count` GPUs, after everybody had time to do something about it."""
    cluster.create(make_claim(name, requests=[make_request(count=count)]))
    pod = make_pod(
        name,
        claims={"gpu": name},
        priority_class_name=priority,
        termination_grace_period_seconds=grace,
        **spec,
    )
    cluster.create(pod)
    cluster.settle()
    return cluster.pod(name)


def fill(cluster: Cluster, names: Iterable[str], priority: str = LOW, **spec: Any) -> None:
    for name in names:
        assert run_pod(cluster, name, priority, **spec).spec.node_name, name
        cluster.later(1)


def going(cluster: Cluster) -> set[str]:
    return {pod.metadata.name for pod in cluster.all(Pod) if pod.metadata.deletion_timestamp is not None}


def end(cluster: Cluster, *names: str) -> None:
    """The agent reports that the pods have ended, and they go."""
    for name in names:
        cluster.delete(cluster.pod(name))
    cluster.settle()
    cluster.retry()


def condition(pod: Pod, type_: str) -> PodCondition | None:
    return next((one for one in pod.status.conditions if one.type == type_), None)


def test_the_least_important_pod_that_started_last_makes_room_and_is_told_why(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c"], MIDDLE)
    fill(busy, ["d"], LOW)
    urgent = run_pod(busy, "urgent", HIGH)
    assert going(busy) == {"d"}
    victim = busy.pod("d")
    told = condition(victim, "DisruptionTarget")
    assert told is not None
    assert (told.status, told.reason) == ("True", "PreemptionByScheduler")
    assert told.message == "default-scheduler: preempting to accommodate a higher priority pod"
    (event,) = busy.events("Preempted")
    assert event.message == f"Preempted by pod {urgent.metadata.uid} on node {victim.spec.node_name}"
    assert (event.type, event.action, event.involved_object.name) == ("Normal", "Preempting", "d")
    assert event.related is not None
    assert event.related.name == "urgent"
    assert (urgent.spec.node_name, urgent.status.nominated_node_name) == ("", victim.spec.node_name)
    assert "preemption:" not in busy.why_pending("urgent")

    end(busy, "d")
    urgent = busy.pod("urgent")
    assert (urgent.spec.node_name, urgent.status.nominated_node_name) == (victim.spec.node_name, "")


def test_nobody_else_is_evicted_while_victims_end(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c", "d"])
    run_pod(busy, "urgent", HIGH)
    evicted = going(busy)
    assert len(evicted) == 1
    for _ in range(3):
        busy.retry()
    assert going(busy) == evicted
    assert busy.pod("urgent").status.nominated_node_name
    assert "preemption: not eligible due to a terminating pod on the nominated node. " in busy.why_pending("urgent")


def test_what_the_victims_leave_is_kept_from_the_less_important(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c", "d"])
    run_pod(busy, "urgent", HIGH)
    run_pod(busy, "patient", MIDDLE, preemption_policy=None)
    # It evicts for itself: what is kept for the other is not there for it.
    assert len(going(busy)) == 2
    for name in sorted(going(busy)):
        busy.delete(busy.pod(name))
    busy.create(make_claim("late"))
    busy.create(make_pod("late", claims={"gpu": "late"}))
    busy.settle()
    busy.retry()
    assert {name: bool(busy.pod(name).spec.node_name) for name in ("urgent", "patient", "late")} == {
        "urgent": True,
        "patient": True,
        "late": False,
    }


def test_a_worker_that_starts_goes_on_where_the_last_one_was(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c", "d"])
    run_pod(busy, "urgent", HIGH)
    (victim,) = going(busy)
    busy.worker = busy.new_worker()
    busy.create(make_claim("late"))
    busy.create(make_pod("late", claims={"gpu": "late"}))
    busy.delete(busy.pod(victim))
    busy.retry()
    assert busy.pod("urgent").spec.node_name
    assert not busy.pod("late").spec.node_name
    assert len(busy.all(Pod)) == 5


def test_the_nominated_node_is_taken_by_who_is_more_important_still(busy: Cluster) -> None:
    busy.create(make_priority("top", 1000))
    fill(busy, ["a", "b"], "top", node_selector={"kubernetes.io/hostname": "node-2"})
    fill(busy, ["c"], "top")
    fill(busy, ["d"], LOW)
    run_pod(busy, "urgent", HIGH)
    assert going(busy) == {"d"}
    run_pod(busy, "most-urgent", "top")
    end(busy, "d")
    assert busy.pod("most-urgent").spec.node_name == "node-1"
    urgent = busy.pod("urgent")
    assert (urgent.spec.node_name, urgent.status.nominated_node_name) == ("", "")
    assert going(busy) == set()


def test_a_pod_goes_where_there_is_room_before_its_victims_are_gone(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c", "d"])
    nominated = run_pod(busy, "urgent", HIGH).status.nominated_node_name
    (victim,) = going(busy)
    other = next(name for name in "abcd" if busy.pod(name).spec.node_name != nominated)
    busy.delete(busy.pod(other))
    busy.retry()
    assert busy.pod("urgent").spec.node_name != nominated
    assert busy.pod(victim).metadata.deletion_timestamp is not None


@pytest.mark.parametrize(
    ("priority", "spec", "why"),
    {
        "the same priority": (LOW, {}, TAIL.format(nodes=2, why="2 Preemption is not helpful for scheduling")),
        "a class that never preempts": ("gentle", {}, "preemption: not eligible due to preemptionPolicy=Never."),
        "more than a node has": (
            HIGH,
            {"count": 3},
            TAIL.format(nodes=2, why="2 cannot allocate all claims"),
        ),
        "a node that does not take it": (
            HIGH,
            {"node_selector": {"zone": "none"}},
            TAIL.format(nodes=2, why="2 Preemption is not helpful for scheduling"),
        ),
    }.values(),
)
def test_nobody_is_evicted_in_vain(busy: Cluster, priority: str, spec: dict[str, Any], why: str) -> None:
    busy.create(make_priority("gentle", 1000, preemption_policy="Never"))
    fill(busy, ["a", "b", "c", "d"])
    pod = run_pod(busy, "web", priority, **spec)
    assert f"still not schedulable, {why}" in busy.why_pending("web")
    assert going(busy) == set()
    assert (pod.spec.node_name, pod.status.nominated_node_name) == ("", "")


def test_without_the_gate_devices_are_not_preempted(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c", "d"])
    with gates.using(DRAPreemption=False):
        run_pod(busy, "urgent", HIGH)
    assert going(busy) == set()
    assert TAIL.format(nodes=2, why="2 Preemption is not helpful for scheduling") in busy.why_pending("urgent")


def test_all_who_share_a_claim_go_or_none(busy: Cluster) -> None:
    fill(busy, ["a", "b"], HIGH, node_selector={"kubernetes.io/hostname": "node-2"})
    busy.create(make_claim("shared", requests=[make_request(count=2)]))
    for name, priority in (("one", LOW), ("two", MIDDLE)):
        busy.create(make_pod(name, claims={"gpu": "shared"}, priority_class_name=priority))
    busy.settle()
    run_pod(busy, "modest", MIDDLE)
    assert going(busy) == set()
    run_pod(busy, "urgent", HIGH)
    assert going(busy) == {"one", "two"}


def test_who_only_waits_for_its_devices_gives_them_back_and_waits_again(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c", "d"], HIGH)
    conditions = {"binding_conditions": ("attached",), "binding_failure_conditions": ("failed",)}
    devices = tuple(structs.replace(one, **conditions) for one in make_devices(1))
    busy.create(make_slice("fabric", node="node-1", pool="fabric", devices=devices))
    waiting = run_pod(busy, "waiting", LOW)
    assert waiting.status.nominated_node_name == "node-1"
    run_pod(busy, "urgent", HIGH)
    assert going(busy) == set()
    assert busy.claim("waiting").status.allocation is None
    assert [event.involved_object.name for event in busy.events("Preempted")] == ["waiting"]
    busy.retry()
    urgent = busy.claim("urgent")
    assert busy.devices(urgent) == ["fabric/gpu-0"]
    assert busy.pod("waiting").status.nominated_node_name == ""


# What is not about devices --------------------------------------------------------------------------------------------


@pytest.fixture
def plain(cluster: Cluster) -> Cluster:
    """One node of 4 cpus."""
    for name, value in VALUES.items():
        cluster.create(make_priority(name, value))
    cluster.create(make_node("node-1", capacity={"cpu": "4", "pods": "110"}))
    return cluster


def run_plain(cluster: Cluster, name: str, priority: str, **spec: Any) -> Pod:
    cluster.create(make_pod(name, priority_class_name=priority, **spec))
    cluster.settle()
    cluster.later(1)
    return cluster.pod(name)


def with_cpu(amount: str) -> list[Any]:
    return [make_container(requests={"cpu": amount})]


def test_node_resources_are_freed_by_as_few_as_will_do(plain: Cluster) -> None:
    for name, amount in {"small": "1", "large": "2", "other": "1"}.items():
        run_plain(plain, name, LOW, containers=with_cpu(amount))
    urgent = run_plain(plain, "urgent", HIGH, containers=with_cpu("2"))
    assert going(plain) == {"large"}
    assert urgent.status.nominated_node_name == "node-1"
    hopeless = run_plain(plain, "hopeless", HIGH, containers=with_cpu("100"))
    assert plain.why_pending("hopeless").endswith(
        "no new claims to deallocate, " + TAIL.format(nodes=1, why="1 Preemption is not helpful for scheduling")
    )
    assert hopeless.status.nominated_node_name == ""
    run_plain(plain, "equal", LOW, containers=with_cpu("1"))
    assert plain.why_pending("equal").endswith(
        TAIL.format(nodes=1, why="1 No preemption victims found for incoming pod")
    )


# What is told beforehand ----------------------------------------------------------------------------------------------


def explained(name: str) -> dict[str, Any]:
    found: dict[str, Any] = pod_document(NAMESPACE, name)["preemption"]
    return found


def test_an_explanation_says_whom_the_pod_would_evict_or_why_nobody(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c"], MIDDLE)
    fill(busy, ["d"], LOW)
    for name, priority, count in (("urgent", HIGH, 1), ("equal", LOW, 1), ("large", HIGH, 3)):
        busy.create(make_claim(name, requests=[make_request(count=count)]))
        busy.create(make_pod(name, claims={"gpu": name}, priority_class_name=priority))
    node = busy.pod("d").spec.node_name
    found = explained("urgent")
    del found["reason"]
    assert found == {
        "helps": True,
        "nodeName": node,
        "victims": ({"namespace": "default", "name": "d", "priority": 10},),
        "moreVictims": 0,
    }
    assert explain_pod(NAMESPACE, "equal").preemption == Unhelpful(((PreemptionNotHelpful(), 2),))
    assert explain_pod(NAMESPACE, "large").preemption == Unhelpful(((CannotAllocate(), 2),))
    assert going(busy) == set()


def test_pods_of_other_namespaces_are_counted_and_not_named(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c", "d"])
    busy.create(make_claim("urgent", namespace="other"))
    busy.create(make_pod("urgent", namespace="other", claims={"gpu": "urgent"}, priority_class_name=HIGH))
    told = pod_document("other", "urgent")["preemption"]
    assert (told["victims"], told["moreVictims"]) == ((), 1)
    assert "1 pod of other namespaces" in told["reason"]


def test_a_rehearsal_resolves_the_class_and_names_the_victims(busy: Cluster) -> None:
    fill(busy, ["a", "b", "c", "d"])
    claim = make_claim("new")
    pod = make_pod("new", claims={"gpu": "new"}, priority_class_name=HIGH)
    answer = simulate(Question(workload=of_documents([pod, claim])))
    assert isinstance(answer.preemption, PlannedEviction)
    assert len(answer.preemption.victims) == 1
    calm = simulate(Question(workload=of_documents([with_spec(pod, priority_class_name=""), claim])))
    assert isinstance(calm.preemption, Unhelpful)
    beside = make_priority("brand-new", 1000)
    urgent = with_spec(pod, priority_class_name="brand-new")
    assert isinstance(simulate(Question(workload=of_documents([beside, urgent, claim]))).preemption, PlannedEviction)
    with pytest.raises(NotRehearsable, match="no PriorityClass with name brand-new was found"):
        of_documents([urgent, claim])
    assert going(busy) == set()
