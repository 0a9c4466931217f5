"""What is off by default, with every part started with it. Names as in Kubernetes' integration cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.containers import Container, ContainerResourceClaim, ResourceRequirements
from claims.kinds.pods import PodSchedulingGroup
from claims.kinds.resource_claims import CapacityRequirements
from inventory.kinds.devices import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    NodeAllocatableMapping,
    NodeAllocatableResource,
)
from inventory.kinds.pool_statuses import (
    RESOURCE_POOL_STATUS_REQUEST,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
)
from tests.builders import make_device, make_devices, make_meta, make_priority, make_taint_rule
from tests.builders.groups import make_group
from tests.e2e.api_client import Document
from tests.e2e.production.installation import Installation
from tests.e2e.production.scene import Scene
from tests.e2e.production.simulated import EVERYTHING, gpu

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

GATES = (
    "DRAResourcePoolStatus",
    "GenericWorkload",
    "GangScheduling",
    "DRAWorkloadResourceClaims",
    "DRANodeAllocatableResources",
    "DRAControlPlaneController",
)
GROUP = PodSchedulingGroup(pod_group_name="train")


@pytest.fixture(scope="module", autouse=True)
def _features_are_on(installation: Installation) -> Iterator[None]:
    installation.restart_control_plane(MANCIPLE_FEATURE_GATES=",".join(f"{gate}=true" for gate in GATES))
    yield
    installation.restart_control_plane()


# The status of pools --------------------------------------------------------------------------------------------------


def status_of_pools(scene: Scene, short: str = "pools", **spec: Any) -> Document:
    """What the scene's driver has, by a request of its own."""
    name = f"{scene.name}-{short}"
    scene.make(
        ResourcePoolStatusRequest(
            api_version=RESOURCE_POOL_STATUS_REQUEST.api_version,
            kind=RESOURCE_POOL_STATUS_REQUEST.kind,
            metadata=make_meta(name, ""),
            spec=ResourcePoolStatusRequestSpec(driver=scene.driver, **spec),
        )
    )
    kind = RESOURCE_POOL_STATUS_REQUEST.kind
    return dict(scene.until("an answer", lambda: scene.find(kind, name).get("status")))


def publish_pools(scene: Scene, letters: str) -> list[str]:
    """Each with two devices that every node reaches."""
    pools = [f"{scene.name}-{letter}" for letter in letters]
    for pool in pools:
        scene.publish(*make_devices(2), node=None, pool=pool)
    return pools


def names_of(status: Document) -> list[str]:
    return [pool["poolName"] for pool in status["pools"]]


@pytest.mark.long
def test_resource_pool_status_request_process_and_one_time(scene: Scene) -> None:
    scene.device_class()
    publish_pools(scene, "abc")
    scene.claim("held", scene.request())
    scene.pod("web", "held")
    scene.bound("web")
    told = status_of_pools(scene)
    counts = [(pool["totalDevices"], pool["allocatedDevices"], pool["availableDevices"]) for pool in told["pools"]]
    assert sorted(counts) == [(2, 0, 2), (2, 0, 2), (2, 1, 1)], told
    assert [(one["type"], one["status"]) for one in told["conditions"]] == [("Complete", "True")]
    publish_pools(scene, "d")
    assert status_of_pools(scene, "again")["poolCount"] == 4
    assert scene.find(RESOURCE_POOL_STATUS_REQUEST.kind, f"{scene.name}-pools")["status"] == told


def test_resource_pool_status_request_limit_truncation_and_filter_by_pool(scene: Scene) -> None:
    pools = publish_pools(scene, "abc")
    some = status_of_pools(scene, limit=2)
    assert (some["poolCount"], names_of(some)) == (3, pools[:2])
    assert names_of(status_of_pools(scene, "one", pool_name=pools[1])) == [pools[1]]


def test_resource_pool_status_request_validation_errors(scene: Scene) -> None:
    publish_pools(scene, "a")
    nothing = ResourcePoolStatusRequest(
        api_version=RESOURCE_POOL_STATUS_REQUEST.api_version,
        kind=RESOURCE_POOL_STATUS_REQUEST.kind,
        metadata=make_meta("nothing", ""),
        spec=ResourcePoolStatusRequestSpec(driver="not a driver", limit=0),
    )
    assert "spec.driver" in scene.refused(nothing)
    (pool,) = status_of_pools(scene, default_partition_type_attribute=f"{scene.driver}/profile")["pools"]
    assert pool["validationError"].startswith("PartitionTypeMissing")


@pytest.mark.long
def test_resource_pool_status_request_partition_and_shareable_summary(scene: Scene) -> None:
    def part(name: str, profile: str, memory: str) -> Device:
        drawn = DeviceCounterConsumption(counter_set="card", counters={"memory": Counter(value=memory)})
        return make_device(name, attributes={"profile": profile}, consumes_counters=(drawn,))

    card = (CounterSet(name="card", counters={"memory": Counter(value="80Gi")}),)
    parts = (part("full", "Full", "80Gi"), part("half-0", "Half", "40Gi"), part("half-1", "Half", "40Gi"))
    profile = f"{scene.driver}/profile"
    scene.device_class()
    pool = f"{scene.name}-card"
    scene.publish(node=None, pool=pool, name=f"{pool}-counters", slices=2, shared_counters=card)
    scene.publish(*parts, node=None, pool=pool, name=f"{pool}-parts", slices=2, partition_type_attribute=profile)
    shared = make_device("shared", allow_multiple_allocations=True, capacity={"memory": "40Gi"})
    scene.publish(shared, node=None, pool=f"{scene.name}-shared")
    half = scene.request(expressions=[f"device.attributes['{scene.driver}'].?profile.orValue('') == 'Half'"])
    scene.claim("half", half)
    some = CapacityRequirements(requests={"memory": "10Gi"})
    scene.claim("share", scene.request(capacity=some, expressions=["device.allowMultipleAllocations"]))
    scene.pod("web", "half", "share")
    scene.bound("web")
    by_pool = {one["poolName"]: one for one in status_of_pools(scene)["pools"]}
    assert by_pool[pool]["partitionSummary"] == [
        {"attribute": profile, "type": "Full", "total": 1, "allocatable": 0},
        {"attribute": profile, "type": "Half", "total": 2, "allocatable": 1},
    ]
    summary = by_pool[f"{scene.name}-shared"]["shareableSummary"]
    assert summary["capacity"] == [{"name": "memory", "total": "40Gi", "consumed": "10Gi", "available": "30Gi"}]


# Groups ---------------------------------------------------------------------------------------------------------------


def test_podgroup_and_workload_claims(scene: Scene) -> None:
    """One claim for the pods of the group, which a broken device takes down together."""
    scene.device_class()
    publish_pools(scene, "a")
    scene.template("both", scene.request(count=2))
    scene.make(make_group("train", 2, templates={"both": "both"}))
    for name in ("w-0", "w-1"):
        scene.pod(name, templates=["both"], scheduling_group=GROUP)
    scene.bound("w-0", "w-1")
    (claim,) = scene.all("ResourceClaim")
    assert [one["resource"] for one in claim["status"]["reservedFor"]] == ["podgroups"]
    assert scene.made_for("w-0") == scene.made_for("w-1") == [claim["metadata"]["name"]]
    scene.make(make_taint_rule(scene.name, effect="NoExecute", driver=scene.driver, device="gpu-0"))
    for name in ("w-0", "w-1"):
        scene.gone("Pod", name)
    scene.delete("PodGroup", "train")
    scene.until("its claim to be gone", lambda: not scene.all("ResourceClaim"))


@pytest.mark.long
def test_preemption_of_a_podgroup(scene: Scene) -> None:
    """All or nothing comes, and each that is in the way goes."""
    scene.device_class(expressions=[EVERYTHING])
    for name, value in {"low": 10, "urgent": 1000}.items():
        scene.make(make_priority(f"{scene.name}-{name}", value))
    scene.template("one", gpu(scene, 6, 7))
    scene.make(make_group("train", 2))
    node = {"kubernetes.io/hostname": "node-2"}
    low, urgent = f"{scene.name}-low", f"{scene.name}-urgent"
    for name in ("w-0", "w-1"):
        scene.pod(name, templates=["one"], scheduling_group=GROUP, priority_class_name=low, node_selector=node)
    scene.runs("w-0", "w-1")
    scene.claim("two", replace(gpu(scene, 6), name="a"), replace(gpu(scene, 7), name="b"))
    scene.pod("important", "two", priority_class_name=urgent, node_selector=node)
    scene.runs("important")
    assert [scene.phase(name) for name in ("w-0", "w-1")] == ["gone", "gone"]
    scene.delete("PodGroup", "train")


# Nodes ----------------------------------------------------------------------------------------------------------------


def test_node_allocatable_resources(scene: Scene) -> None:
    """A device that is half a CPU of its node counts there with what its pod requests."""
    mapping = NodeAllocatableMapping(device_multiplier="500m")
    mapped = {"cpu": NodeAllocatableResource(mapping=mapping)}
    scene.device_class()
    scene.publish(make_device("cpus", node_allocatable_resources=mapped), node=None)
    scene.claim("cpus", scene.request())
    resources = ResourceRequirements(requests={"cpu": "100m"}, claims=(ContainerResourceClaim(name="cpus"),))
    scene.pod("web", "cpus", containers=[Container(name="main", image="x", resources=resources)])
    scene.bound("web")
    (told,) = scene.find("Pod", "web")["status"]["nodeAllocatableResourceClaimStatuses"]
    assert told == {
        "resourceClaimName": "cpus",
        "containers": ["main"],
        "mapping": [{"name": "cpu", "quantity": "500m"}],
    }


# Drivers with controllers of their own --------------------------------------------------------------------------------


def test_a_controller_allocates_a_claim_for_the_node_that_a_worker_selected(scene: Scene) -> None:
    """The controller is played here. Processes, kills and the drafts: test_early_documents.py."""
    version = "/apis/resource.k8s.io/v1alpha2"
    here = f"{version}/namespaces/{scene.namespace}"
    class_ = {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClass", "driverName": scene.driver}
    scene.api.made(f"{version}/resourceclasses", {**class_, "metadata": {"name": scene.name}})
    claim = {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClaim", "metadata": {"name": "lamp"}}
    scene.api.made(f"{here}/resourceclaims", {**claim, "spec": {"resourceClassName": scene.name}})
    scene.pod("web", "lamp")

    def selected() -> str:
        context = scene.api.find(f"{here}/podschedulingcontexts/web") or {"spec": {}}
        return str(context["spec"].get("selectedNode", ""))

    node = scene.until("a node to be selected", selected)
    handle = {"driverName": scene.driver, "data": "lamp-1"}
    status = {"driverName": scene.driver, "allocation": {"resourceHandles": [handle]}}
    scene.api.patch(f"{here}/resourceclaims/lamp/status", {"status": status})

    assert scene.bound("web") == node
    found = scene.api.find(f"{here}/resourceclaims/lamp") or {}
    assert [one["name"] for one in found["status"]["reservedFor"]] == ["web"]
    scene.delete("Pod", "web")
    scene.gone("Pod", "web")
    scene.api.delete(f"{here}/resourceclaims/lamp")
    scene.api.delete(f"{version}/resourceclasses/{scene.name}")
