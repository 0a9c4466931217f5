"""Devices that take something of their node's own cpu and memory (KEP-5517)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import structs

from claims.causes.causes import ClaimNotShareable
from claims.causes.messages import message
from claims.kinds.containers import Container, ContainerResourceClaim, ResourceRequirements
from claims.kinds.pods import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
    Pod,
)
from claims.kinds.registration import POD
from claims.kinds.resource_claims import CapacityRequirements
from claims.kinds.resource_usage import node_requests_of, requests_of
from inventory.kinds import gates
from inventory.kinds.devices import (
    Device,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
)
from manciple.wire import codec
from manciple.wire.quantity import NANO
from scheduling.state.node_charges import NodeCharges
from tests.builders import (
    make_allocation,
    make_claim,
    make_class,
    make_device,
    make_node,
    make_pod,
    make_priority,
    make_request,
    make_result,
    make_slice,
)
from tests.scheduling.cluster import Cluster

GIB = 2**30 * NANO


@pytest.fixture(autouse=True)
def _the_feature_is_on() -> Iterator[None]:
    with gates.using(DRANodeAllocatableResources=True):
        yield


def cpus(name: str = "cpus", amount: str = "4", **fields: Any) -> Device:
    """A device that is so many CPUs of its node."""
    mapping = NodeAllocatableMapping(device_multiplier=amount)
    return make_device(name, node_allocatable_resources={"cpu": NodeAllocatableResource(mapping=mapping)}, **fields)


def old_cpus(name: str = "cpus", amount: str = "4", **fields: Any) -> Device:
    """The same as a driver built for Kubernetes 1.36 says it."""
    mapping = NodeAllocatableResourceMapping(allocation_multiplier=amount)
    return make_device(name, node_allocatable_resource_mappings={"cpu": mapping}, **fields)


def accelerator(name: str = "gpu-0") -> Device:
    """Which takes memory of its node for each pod and each container that uses it."""
    overhead = NodeAllocatableOverhead(per_pod="1Gi", per_container="512Mi")
    return make_device(name, node_allocatable_resources={"memory": NodeAllocatableResource(overhead=overhead)})


def publish(cluster: Cluster, *devices: Device, node: str = "node-1", **capacity: str) -> None:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **capacity}
    cluster.create(make_node(node, capacity=amounts))
    cluster.create(make_slice(node=node, devices=devices))


def container(name: str = "main", *, cpu: str = "", claim: str = "gpu") -> Container:
    requests = {"cpu": cpu} if cpu else {}
    claims = (ContainerResourceClaim(name=claim),) if claim else ()
    return Container(name=name, image="busybox", resources=ResourceRequirements(requests=requests, claims=claims))


def run(cluster: Cluster, name: str, *containers: Container, claim: str = "", **fields: Any) -> Pod:
    """A pod with the claim of its own name, or of another."""
    if not claim:
        cluster.create(make_claim(name, requests=[make_request(**fields)]))
    cluster.create(make_pod(name, claims={"gpu": claim or name}, containers=containers or (container(),)))
    cluster.settle()
    return cluster.pod(name)


def told(pod: Pod) -> Any:
    return codec.to_builtins(pod.status).get("nodeAllocatableResourceClaimStatuses", [])


def test_devices_that_are_cpus_count_on_their_node(cluster: Cluster) -> None:
    cluster.create(make_class())
    publish(cluster, cpus("a"), cpus("b"))
    pod = run(cluster, "first", container(cpu="2"))
    assert pod.spec.node_name == "node-1"
    expected = {"resourceClaimName": "first", "containers": ["main"], "mapping": [{"name": "cpu", "quantity": "4"}]}
    assert told(pod) == [expected]
    assert (requests_of(pod)["cpu"], node_requests_of(pod)["cpu"]) == (2 * NANO, 6 * NANO)
    refused = run(cluster, "second")  # the device is there, and 2 of its 4 CPUs
    assert refused.spec.node_name == ""
    assert "1 Insufficient cpu" in cluster.why_pending("second")
    assert cluster.claim("second").status.allocation is None
    cluster.finish("first")
    cluster.retry()
    assert cluster.pod("second").spec.node_name == "node-1"


@pytest.mark.parametrize("publishing", [cpus, old_cpus], ids=["as of 1.37", "as of 1.36"])
def test_another_node_is_taken_where_the_first_has_not_the_room(
    cluster: Cluster, publishing: Callable[[], Device]
) -> None:
    cluster.create(make_class())
    publish(cluster, publishing(), node="node-1", cpu="2")
    publish(cluster, publishing(), node="node-2", cpu="8")
    assert run(cluster, "web").spec.node_name == "node-2"


def test_what_a_worker_has_just_decided_counts_for_the_next_pod_of_its_batch(cluster: Cluster) -> None:
    cluster.create(make_class())
    publish(cluster, cpus("a", "5"), cpus("b", "5"))
    for name in ("first", "second"):
        cluster.create(make_claim(name))
        cluster.create(make_pod(name, claims={"gpu": name}, containers=(container(),)))
    cluster.settle()
    assert sorted(bool(cluster.pod(name).spec.node_name) for name in ("first", "second")) == [False, True]


def test_what_an_accelerator_costs_counts_for_each_pod_and_container(cluster: Cluster) -> None:
    cluster.create(make_class())
    publish(cluster, accelerator(), memory="4Gi")
    pod = run(cluster, "web", container("one"), container("two"), container("idle", claim=""))
    overhead = {"name": "memory", "perPod": "1Gi", "perContainer": "512Mi"}
    assert told(pod) == [{"resourceClaimName": "web", "containers": ["one", "two"], "overhead": [overhead]}]
    assert node_requests_of(pod)["memory"] == 2 * GIB
    run(cluster, "other", claim="web")  # who shares the claim pays again
    assert node_requests_of(cluster.pod("other"))["memory"] == GIB + GIB // 2
    run(cluster, "third", claim="web")
    assert "Insufficient memory" in cluster.why_pending("third")


def test_a_claim_on_cpus_serves_one_pod(cluster: Cluster) -> None:
    cluster.create(make_class())
    publish(cluster, cpus())
    run(cluster, "first")
    run(cluster, "second", claim="first")
    assert message(ClaimNotShareable("first")) in cluster.why_pending("second")
    cluster.delete(cluster.pod("first"))
    cluster.retry()
    assert cluster.pod("second").spec.node_name == "node-1"


@pytest.mark.parametrize(
    ("shared", "asked", "expected"),
    [(True, "4Gi", "8Gi"), (False, "4Gi", "64Gi"), (True, "", "64Gi")],
)
@pytest.mark.parametrize("as_of_1_36", [False, True])
def test_a_capacity_counts_by_what_is_consumed_of_it(
    cluster: Cluster, shared: bool, asked: str, expected: str, as_of_1_36: bool
) -> None:
    """Twice: the multiplier. A device that is given as a whole counts as a whole."""
    cluster.create(make_class())
    says: dict[str, Any]
    if as_of_1_36:
        old = NodeAllocatableResourceMapping(capacity_key="memory", allocation_multiplier="2")
        says = {"node_allocatable_resource_mappings": {"memory": old}}
    else:
        mapping = NodeAllocatableMapping(capacity_key="memory", capacity_multiplier="2")
        says = {"node_allocatable_resources": {"memory": NodeAllocatableResource(mapping=mapping)}}
    device = make_device(capacity={"memory": "32Gi"}, allow_multiple_allocations=shared or None, **says)
    publish(cluster, device, memory="128Gi")
    capacity = CapacityRequirements(requests={"memory": asked}) if asked else None
    pod = run(cluster, "web", capacity=capacity)
    assert told(pod)[0]["mapping"] == [{"name": "memory", "quantity": expected}]


def test_what_a_pod_says_that_it_takes_in_all_must_do_for_its_devices(cluster: Cluster) -> None:
    cluster.create(make_class())
    publish(cluster, cpus())
    cluster.create(make_claim("web"))
    level = ResourceRequirements(requests={"cpu": "5"})
    cluster.create(make_pod("web", claims={"gpu": "web"}, containers=(container(cpu="2"),), resources=level))
    cluster.settle()
    assert "pod level request for cpu is insufficient" in cluster.why_pending("web")


def small_holds_cpus(cluster: Cluster) -> None:
    """Pod small leaves too few of the node's cpus for the devices of more important pods to come."""
    cluster.create(make_class())
    publish(cluster, cpus(amount="6"))
    cluster.create(make_pod("small", containers=(container(cpu="4", claim=""),)))
    cluster.settle()
    cluster.create(make_priority())


def test_who_is_more_important_gets_cpus_of_pods_that_go(cluster: Cluster) -> None:
    """The victims make room for what the devices take, too."""
    small_holds_cpus(cluster)
    cluster.create(make_claim("big"))
    cluster.create(make_pod("big", claims={"gpu": "big"}, containers=(container(),), priority_class_name="high"))
    cluster.settle()
    assert cluster.pod("small").metadata.deletion_timestamp is not None
    cluster.delete(cluster.pod("small"))
    cluster.retry()
    assert cluster.pod("big").spec.node_name == "node-1"


def test_the_room_that_is_made_is_kept_with_what_the_devices_take(cluster: Cluster) -> None:
    """Also by a worker that starts meanwhile. Who comes while the victim is on its way out does not get it."""
    small_holds_cpus(cluster)
    cluster.create(make_claim("big"))
    cluster.create(make_pod("big", claims={"gpu": "big"}, containers=(container(),), priority_class_name="high"))
    cluster.settle()
    assert cluster.pod("big").status.nominated_node_name == "node-1"
    for name in ("first", "second"):
        cluster.create(make_pod(name, containers=(container(cpu="4", claim=""),)))
        cluster.settle()
        assert cluster.pod(name).spec.node_name == ""
        cluster.worker = cluster.new_worker()
    cluster.delete(cluster.pod("small"))
    cluster.retry()
    assert cluster.pod("big").spec.node_name == "node-1"


def test_room_is_made_for_devices_that_a_claim_has_already(cluster: Cluster) -> None:
    small_holds_cpus(cluster)
    cluster.create_allocated(make_claim("big"), make_allocation(make_result("cpus"), node="node-1"))
    cluster.create(make_pod("big", claims={"gpu": "big"}, containers=(container(),), priority_class_name="high"))
    cluster.settle()
    assert cluster.pod("small").metadata.deletion_timestamp is not None
    cluster.delete(cluster.pod("small"))
    cluster.retry()
    assert told(cluster.pod("big"))[0]["mapping"] == [{"name": "cpu", "quantity": "6"}]


def test_while_the_feature_is_off_nothing_is_charged_and_what_stands_there_is_kept(cluster: Cluster) -> None:
    cluster.create(make_class())
    publish(cluster, cpus("a"), cpus("b"))
    first = run(cluster, "first", container(cpu="2"))
    status = POD.subresources["status"]
    bare = structs.replace(first, status=structs.replace(first.status, node_allocatable_resource_claim_statuses=()))
    with gates.using(DRANodeAllocatableResources=False):
        cluster.worker = cluster.new_worker()
        second = run(cluster, "second")
        assert (second.spec.node_name, told(second)) == ("node-1", [])
        assert told(status.prepare_update(first, bare)) == []
        assert told(status.prepare_update(first, first)) == told(first)
        assert told(cluster.pod("first")) == told(first)
    cluster.worker = cluster.new_worker()
    run(cluster, "third", claim="second")  # a claim that was given while it was off
    assert message(ClaimNotShareable("second")) in cluster.why_pending("third")


@pytest.mark.parametrize(
    ("charge", "wrong"),
    [
        ({"resource_claim_name": ""}, "[0].resourceClaimName: Required value: must not be empty"),
        (
            {"resource_claim_name": "other"},
            '[0].resourceClaimName: Invalid value: "other": no mapping found in pod reference',
        ),
        (
            {"mapping": (NodeAllocatableMappedResources(name="gpu", quantity="1"),)},
            "[0].mapping[0].name: Invalid value",
        ),
        (
            {"overhead": (NodeAllocatableOverheadResources(name="cpu", per_pod="-1"),)},
            "[0].overhead[0].perPod: Invalid value",
        ),
    ],
)
def test_what_a_status_may_not_say_of_it(charge: dict[str, Any], wrong: str) -> None:
    pod = make_pod(claims={"gpu": "mine"})
    said = NodeAllocatableResourceClaimStatus(**{"resource_claim_name": "mine", "containers": ("main",), **charge})
    new = structs.replace(pod, status=structs.replace(pod.status, node_allocatable_resource_claim_statuses=(said,)))
    found = [str(one) for one in POD.subresources["status"].validate_update(new, pod)]
    assert [one.startswith(f"status.nodeAllocatableResourceClaimStatuses{wrong}") for one in found] == [True]


def test_pools_that_are_gone_leave_nothing_behind() -> None:
    charges = NodeCharges()
    for node in ("node-1", "node-2"):
        charges.put(make_slice(node=node, pool=node, devices=[cpus()]))
    for node in ("node-1", "node-2"):
        charges.remove(make_slice(node=node, pool=node))
    assert not charges._slices
    assert not charges._by_pool
