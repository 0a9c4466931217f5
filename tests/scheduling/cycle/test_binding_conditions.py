"""Devices that must be attached before their pod is bound (KEP-5007)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from claims.causes.causes import BindingFailed, NoNodeFits, decode
from claims.causes.messages import message
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocatedDeviceStatus, ResourceClaim
from inventory.kinds.devices import Device
from manciple.store import objects
from manciple.wire.base import Condition
from manciple.wire.machinery import Event
from manciple.wire.resources import CLAIMS, kind
from tests.builders import make_claim, make_class, make_container, make_device, make_node, make_pod, make_slice
from tests.scheduling.cluster import Cluster

NOW = "2026-01-01T00:00:00Z"
WAITING = "waiting for binding conditions for device on node node-1"


def attachable(name: str, **more: Any) -> Device:
    conditions = {"binding_conditions": ("attached",), "binding_failure_conditions": ("failed",), "binds_to_node": True}
    return structs.replace(make_device(name), **{**conditions, **more})


@pytest.fixture
def fabric(cluster: Cluster) -> Cluster:
    """Two devices that node-1 may have attached."""
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(node="node-1", devices=[attachable("a"), attachable("b")]))
    cluster.create(make_class())
    return cluster


def report(cluster: Cluster, claim: str, type_: str, *, status: str = "True", detail: str = "") -> None:
    """What the driver says of the claim's only device."""
    known = cluster.claim(claim)
    assert known.status.allocation is not None
    (result,) = known.status.allocation.devices.results
    told = Condition(type=type_, status=status, reason="Fabric", message=detail, last_transition_time=NOW)
    device = AllocatedDeviceStatus(
        driver=result.driver, pool=result.pool, device=result.device, share_id=result.share_id, conditions=(told,)
    )
    with objects.writing() as writer:
        current = writer.get(kind(CLAIMS), known.metadata.namespace, claim)
        assert isinstance(current, ResourceClaim)
        status_ = structs.replace(current.status, devices=(device,))
        writer.update(kind(CLAIMS), structs.replace(current, status=status_), subresource="status")


def reasons(cluster: Cluster, pod: str) -> list[tuple[str, str]]:
    """(reason, message) of the pod's events, sorted."""
    found = [event for event in cluster.all(Event) if event.involved_object.name == pod]
    return sorted((event.reason, event.message) for event in found)


def given(cluster: Cluster, claim: str) -> str:
    (device,) = cluster.devices(cluster.claim(claim))
    return device


def test_a_pod_is_bound_when_its_device_is_attached(fabric: Cluster) -> None:
    fabric.create(make_claim("gpu"))
    fabric.create(make_pod("web", claims={"gpu": "gpu"}))
    fabric.settle()
    pod, claim = fabric.pod("web"), fabric.claim("gpu")
    assert (pod.spec.node_name, pod.status.nominated_node_name) == ("", "node-1")
    assert claim.status.allocation is not None
    assert [one.name for one in claim.status.reserved_for] == ["web"]
    assert claim.status.allocation.devices.results[0].binding_conditions == ("attached",)
    assert reasons(fabric, "web") == [("BindingConditionsPending", WAITING)]

    report(fabric, "gpu", "attached", status="False")
    fabric.settle()
    assert fabric.pod("web").spec.node_name == ""

    report(fabric, "gpu", "attached")
    fabric.settle()
    pod = fabric.pod("web")
    assert (pod.spec.node_name, pod.status.nominated_node_name) == ("node-1", "")
    assert [reason for reason, _ in reasons(fabric, "web")] == ["BindingConditionsPending", "Scheduled"]


def test_a_failure_gives_the_device_back_and_another_is_tried(fabric: Cluster) -> None:
    fabric.create(make_claim("gpu"))
    fabric.create(make_pod("web", claims={"gpu": "gpu"}))
    fabric.settle()
    first = given(fabric, "gpu")
    report(fabric, "gpu", "failed", detail="no free port on the switch")
    fabric.settle()
    failed = BindingFailed("gpu", reason="Fabric", detail="no free port on the switch")
    assert ("FailedScheduling", message(failed)) in reasons(fabric, "web")
    fabric.retry()
    assert given(fabric, "gpu") != first
    assert fabric.pod("web").status.nominated_node_name == "node-1"
    report(fabric, "gpu", "attached")
    fabric.retry()
    assert fabric.pod("web").spec.node_name == "node-1"


@pytest.mark.parametrize("names", [("only",), ("a", "b")], ids=["no other device", "another device"])
@pytest.mark.parametrize("late", [False, True], ids=["failure", "timeout"])
def test_a_pod_whose_device_cannot_be_attached_is_unschedulable_until_it_has_another(
    cluster: Cluster, *, late: bool, names: tuple[str, ...]
) -> None:
    """The reference's PodScheduled settles on that, too: nothing is wrong with the scheduler."""
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(node="node-1", devices=[attachable(name) for name in names]))
    cluster.create(make_class())
    cluster.create(make_claim("gpu"))
    cluster.create(make_pod("web", claims={"gpu": "gpu"}))
    cluster.settle()
    if late:
        cluster.later(601)
    else:
        report(cluster, "gpu", "failed", detail="no free port")
    for _ in range(2):
        cluster.settle()
        condition = cluster.condition("web")
        assert (condition.status, condition.reason) == ("False", "Unschedulable")
        assert "claim=gpu" in condition.message
        assert late or '"no free port"' in condition.message
        cluster.retry()
    (event,) = cluster.events("FailedScheduling")
    assert event.message == condition.message
    report(cluster, "gpu", "attached")
    cluster.retry()
    condition = cluster.condition("web")
    assert (condition.status, condition.reason) == ("True", "")
    assert cluster.pod("web").spec.node_name == "node-1"


def test_without_another_device_the_same_one_is_tried_again(cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(node="node-1", devices=[attachable("only")]))
    cluster.create(make_class())
    cluster.create(make_claim("gpu"))
    cluster.create(make_pod("web", claims={"gpu": "gpu"}))
    cluster.settle()
    report(cluster, "gpu", "failed")
    cluster.settle()
    cluster.retry()
    assert given(cluster, "gpu").endswith("/only")
    assert cluster.claim("gpu").status.devices == ()


def test_a_device_that_is_not_attached_in_time_is_given_back(fabric: Cluster) -> None:
    fabric.create(make_claim("gpu"))
    fabric.create(make_pod("web", claims={"gpu": "gpu"}))
    fabric.settle()
    first = given(fabric, "gpu")
    fabric.later(599)
    fabric.settle()
    assert given(fabric, "gpu") == first
    fabric.later(2)
    fabric.settle()
    text = 'running PreBind plugin "DynamicResources": device binding timeout: claim=gpu'
    assert ("FailedScheduling", text) in reasons(fabric, "web")
    fabric.retry()
    assert given(fabric, "gpu") != first


def test_of_two_claims_both_must_be_attached_and_the_one_that_fails_is_given_back(fabric: Cluster) -> None:
    fabric.create(make_claim("one"))
    fabric.create(make_claim("two"))
    fabric.create(make_pod("web", claims={"a": "one", "b": "two"}))
    fabric.settle()
    report(fabric, "one", "attached")
    fabric.settle()
    assert fabric.pod("web").spec.node_name == ""
    report(fabric, "two", "failed")
    fabric.settle()
    assert fabric.claim("two").status.allocation is None
    assert fabric.claim("one").status.allocation is not None
    fabric.retry()
    report(fabric, "two", "attached")
    fabric.retry()
    assert fabric.pod("web").spec.node_name == "node-1"


def test_two_pods_of_one_claim_are_bound_when_its_device_is_attached(fabric: Cluster) -> None:
    fabric.create(make_claim("shared"))
    for name in ("first", "second"):
        fabric.create(make_pod(name, claims={"gpu": "shared"}))
    fabric.settle()
    assert {fabric.pod(name).status.nominated_node_name for name in ("first", "second")} == {"node-1"}
    report(fabric, "shared", "attached")
    fabric.settle()
    assert {fabric.pod(name).spec.node_name for name in ("first", "second")} == {"node-1"}


def test_a_scheduler_that_starts_anew_goes_on_waiting(fabric: Cluster) -> None:
    fabric.create(make_claim("gpu"))
    fabric.create(make_pod("web", claims={"gpu": "gpu"}))
    fabric.settle()
    first = given(fabric, "gpu")
    fabric.worker = fabric.new_worker()
    fabric.settle()
    assert given(fabric, "gpu") == first
    assert [reason for reason, _ in reasons(fabric, "web")] == ["BindingConditionsPending"]
    report(fabric, "gpu", "attached")
    fabric.settle()
    assert fabric.pod("web").spec.node_name == "node-1"


def test_a_pod_that_waits_counts_on_its_node_and_does_not_stand_in_its_own_way(cluster: Cluster) -> None:
    cluster.create(make_node("node-1", capacity={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    cluster.create(make_slice(node="node-1", devices=[attachable("a")]))
    cluster.create(make_class())
    cluster.create(make_claim("gpu"))
    busy = [make_container(requests={"cpu": "3"}, claims=["gpu"])]
    cluster.create(make_pod("web", claims={"gpu": "gpu"}, containers=busy))
    cluster.settle()
    cluster.create(make_pod("other", containers=[make_container(requests={"cpu": "3"})]))
    cluster.settle()
    assert cluster.pod("other").spec.node_name == ""
    report(cluster, "gpu", "attached")
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_a_pod_that_is_deleted_while_it_waits_leaves_nothing(fabric: Cluster) -> None:
    fabric.create(make_claim("gpu"))
    fabric.create(make_pod("web", claims={"gpu": "gpu"}))
    fabric.settle()
    fabric.delete(fabric.get(Pod, "web"))
    fabric.settle()
    assert fabric.claim("gpu").status.allocation is None


@pytest.mark.parametrize("late", [False, True], ids=["a failure", "nobody says anything"])
def test_two_pods_of_one_claim_give_up_together_what_is_not_attached(fabric: Cluster, *, late: bool) -> None:
    fabric.create(make_claim("shared"))
    for name in ("first", "second"):
        fabric.create(make_pod(name, claims={"gpu": "shared"}))
    fabric.settle()
    before = given(fabric, "shared")
    if late:
        fabric.later(601)
    else:
        report(fabric, "shared", "failed")
    fabric.retry()
    fabric.retry()
    assert given(fabric, "shared") != before
    report(fabric, "shared", "attached")
    fabric.retry()
    assert {fabric.pod(name).spec.node_name for name in ("first", "second")} == {"node-1"}
    assert {one.name for one in fabric.claim("shared").status.reserved_for} == {"first", "second"}


def test_a_pod_does_not_join_one_that_runs_while_the_device_is_detached_for_it(fabric: Cluster) -> None:
    fabric.create(make_claim("shared"))
    fabric.create(make_pod("first", claims={"gpu": "shared"}))
    fabric.settle()
    report(fabric, "shared", "attached")
    fabric.settle()
    assert fabric.pod("first").spec.node_name
    report(fabric, "shared", "failed", detail="link down")
    fabric.create(make_pod("second", claims={"gpu": "shared"}))
    for _ in range(3):
        fabric.retry()
    pod, claim = fabric.pod("second"), fabric.claim("shared")
    assert (pod.spec.node_name, pod.status.nominated_node_name) == ("", "")
    assert [one.name for one in claim.status.reserved_for] == ["first"]
    attempts = fabric.queued("second").attempts
    told = decode(fabric.queued("second").cause)
    assert isinstance(told, NoNodeFits)
    assert told.because == BindingFailed("shared", reason="Fabric", detail="link down")
    fabric.retry()
    assert fabric.queued("second").attempts == attempts  # it waits for the claim to change
    report(fabric, "shared", "attached")
    fabric.retry()
    assert fabric.pod("second").spec.node_name == "node-1"


def test_who_has_waited_for_a_device_leaves_it_to_those_that_run_with_it_when_it_fails(fabric: Cluster) -> None:
    fabric.create(make_claim("shared"))
    fabric.create(make_pod("first", claims={"gpu": "shared"}))
    fabric.settle()
    report(fabric, "shared", "attached")
    fabric.settle()
    report(fabric, "shared", "attached", status="False")
    fabric.create(make_pod("second", claims={"gpu": "shared"}))
    fabric.settle()
    assert fabric.pod("second").status.nominated_node_name == "node-1"
    report(fabric, "shared", "failed")
    fabric.retry()
    assert [one.name for one in fabric.claim("shared").status.reserved_for] == ["first"]
    assert fabric.pod("second").status.nominated_node_name == ""
    assert fabric.claim("shared").status.allocation is not None


def test_what_a_pod_leaves_that_waited_for_its_device_is_there_for_others_at_once(cluster: Cluster) -> None:
    cluster.create(make_node("node-1", capacity={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    cluster.create(make_slice(node="node-1", devices=[attachable("a")]))
    cluster.create(make_class())
    cluster.create(make_claim("gpu"))
    cluster.create(make_pod("web", claims={"gpu": "gpu"}, containers=[make_container(requests={"cpu": "3"})]))
    cluster.settle()
    cluster.create(make_pod("other", containers=[make_container(requests={"cpu": "3"})]))
    cluster.settle()
    assert cluster.pod("other").spec.node_name == ""
    cluster.delete(cluster.pod("web"))
    cluster.retry()
    assert cluster.pod("other").spec.node_name == "node-1"
