"""Pods that ask for devices by the names of extended resources (KEP-5004), from creation to release.

Most run twice: by the class's own name, and by the name that every class has.
"""

from __future__ import annotations

import pytest
from msgspec import structs
from pytest_django.fixtures import Settings

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from insight.capacity import read_census
from inventory.kinds.devices import DeviceClass
from tests.builders import (
    CLASS,
    make_claim,
    make_class,
    make_container,
    make_devices,
    make_node,
    make_pod,
    make_slice,
)
from tests.outlines import Outline
from tests.scheduling.claims.extended import (
    GPU,
    IMPLICIT,
    NODE,
    asking,
    class_for,
    mappings,
    pod_asking,
    requests,
    special_claim,
    with_nodes,
)
from tests.scheduling.cluster import Cluster, with_spec


@pytest.fixture(params=["explicit", "implicit"])
def gpu(request: pytest.FixtureRequest) -> str:
    """What a container asks for."""
    return GPU if request.param == "explicit" else IMPLICIT


def test_must_run_a_pod_with_extended_resource_with_one_container_one_resource(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster)
    cluster.create(pod_asking("web", {gpu: 2}))
    cluster.settle()

    pod, claim = cluster.pod("web"), special_claim(cluster, "web")
    assert pod.spec.node_name == "node-1"
    assert claim.metadata.name.startswith("web-extended-resources-")
    assert claim.metadata.generate_name == "web-extended-resources-"
    assert claim.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (owner,) = claim.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Pod", "web", pod.metadata.uid, True)
    assert owner.block_owner_deletion is None
    assert claim.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
    assert requests(claim) == [("container-0-request-0", CLASS, 2)]
    assert cluster.devices(claim) == ["node-1/gpu-0", "node-1/gpu-1"]
    assert [one.uid for one in claim.status.reserved_for] == [pod.metadata.uid]
    assert mappings(cluster, "web") == [("c0", gpu, "container-0-request-0")]


def test_must_run_a_pod_with_both_implicit_and_explicit_extended_resource(cluster: Cluster) -> None:
    cluster.create(class_for(GPU))
    with_nodes(cluster)
    cluster.create(pod_asking("web", {IMPLICIT: 2, GPU: 1}))
    cluster.settle()
    claim = special_claim(cluster, "web")
    assert requests(claim) == [("container-0-request-0", CLASS, 2), ("container-0-request-1", CLASS, 1)]
    assert len(set(cluster.devices(claim))) == 3


def test_must_run_a_pod_with_three_containers_multiple_resources_each(cluster: Cluster) -> None:
    for kind in ("a", "b"):
        cluster.create(make_class(f"class-{kind}", extended_resource_name=f"example.com/{kind}"))
    with_nodes(cluster, each=12)
    a, b = "example.com/a", "example.com/b"
    cluster.create(pod_asking("web", {a: 1, b: 2, "cpu": 1}, {b: 1}, {}))
    cluster.settle()
    assert requests(special_claim(cluster, "web")) == [
        ("container-0-request-1", "class-a", 1),
        ("container-0-request-2", "class-b", 2),
        ("container-1-request-0", "class-b", 1),
    ]
    assert mappings(cluster, "web") == [
        ("c0", a, "container-0-request-1"),
        ("c0", b, "container-0-request-2"),
        ("c1", b, "container-1-request-0"),
    ]


def test_init_containers_use_the_devices_of_those_that_follow_them(cluster: Cluster, gpu: str) -> None:
    """As recorded of the reference: what they need beyond these is asked for once, for the one that needs most."""
    cluster.create(class_for(gpu))
    with_nodes(cluster, each=16)
    init = [asking({gpu: 2}, "first"), asking({gpu: 1}, "second")]
    cluster.create(pod_asking("small", {gpu: 1}, {gpu: 2}, init=init))
    cluster.settle()
    assert requests(special_claim(cluster, "small")) == [
        ("container-2-request-0", CLASS, 1),
        ("container-3-request-0", CLASS, 2),
    ]
    assert mappings(cluster, "small") == [
        ("c0", gpu, "container-2-request-0"),
        ("c1", gpu, "container-3-request-0"),
        ("first", gpu, "container-2-request-0"),
        ("first", gpu, "container-3-request-0"),
        ("second", gpu, "container-2-request-0"),
    ]

    sidecar = asking({gpu: 1}, "sidecar", restart_policy="Always")
    init = [asking({gpu: 4}, "large"), sidecar, asking({gpu: 5}, "largest")]
    cluster.create(pod_asking("large", {gpu: 1}, init=init))
    cluster.settle()
    assert requests(special_claim(cluster, "large")) == [
        ("container-1-request-0", CLASS, 1),
        ("container-2-request-0", CLASS, 4),
        ("container-3-request-0", CLASS, 1),
    ]
    assert [one for one in mappings(cluster, "large") if one[0] == "large"] == [
        ("large", gpu, "container-1-request-0"),
        ("large", gpu, "container-3-request-0"),
        ("large", gpu, "container-2-request-0"),
    ]


def test_supports_extended_resources_together_with_resource_claim(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster)
    cluster.create(make_claim("training"))
    container = make_container(claims=["gpu"], limits={gpu: "1"})
    cluster.create(make_pod("web", claims={"gpu": "training"}, containers=[container]))
    cluster.settle()
    assert cluster.devices(cluster.claim("training")) == ["node-1/gpu-0"]
    assert cluster.devices(special_claim(cluster, "web")) == ["node-1/gpu-1"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_must_cleanup_extended_resource_claims_when_pods_end(cluster: Cluster, gpu: str, phase: str) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster, each=1)
    cluster.create(pod_asking("web", {gpu: 1}))
    cluster.settle()
    cluster.finish("web", phase)
    cluster.settle()
    assert cluster.all(ResourceClaim) == []
    cluster.create(pod_asking("next", {gpu: 1}))
    cluster.settle()
    assert cluster.devices(special_claim(cluster, "next")) == ["node-1/gpu-0"]


def test_a_deleted_pod_takes_its_claim_along(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster)
    cluster.create(pod_asking("web", {gpu: 1}))
    cluster.settle()
    cluster.delete(cluster.pod("web"))
    cluster.settle()
    assert cluster.all(ResourceClaim) == []


def test_must_prevent_overcommitment_of_extended_resources(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster, each=2)
    for name in ("one", "two", "three"):
        cluster.create(pod_asking(name, {gpu: 1}))
    cluster.settle()
    assert [cluster.pod(name).spec.node_name for name in ("one", "two", "three")] == ["node-1", "node-1", ""]
    told = cluster.why_pending("three")
    assert told.startswith("0/1 nodes are available: 1 cannot allocate all claims.")
    assert "still not schedulable, preemption: 0/1 nodes are available: 1 Preemption is not helpful" in told
    assert cluster.pod("three").status.extended_resource_claim_status is None
    cluster.finish("one")
    cluster.retry()
    assert cluster.pod("three").spec.node_name == "node-1"


def test_none_of_an_extended_resource_needs_no_claim(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster)
    cluster.create(pod_asking("web", {gpu: 0}))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"
    assert cluster.pod("web").status.extended_resource_claim_status is None
    assert cluster.all(ResourceClaim) == []


def test_a_pod_that_asks_for_more_devices_than_a_claim_may_have_is_told_so(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster, each=40)
    cluster.create(pod_asking("web", {gpu: 33}))
    cluster.settle()
    assert cluster.why_pending("web").endswith(
        "claim default/<extended-resources>: number of requested devices 33 exceeds the claim limit of 32"
    )


# Classes that come, change and go -------------------------------------------------------------------------------------


def test_must_run_a_pod_created_before_the_class(cluster: Cluster, gpu: str) -> None:
    with_nodes(cluster)
    cluster.create(pod_asking("web", {gpu: 1}))
    cluster.settle()
    assert cluster.why_pending("web") == (
        f"0/1 nodes are available: 1 Insufficient {gpu}. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    cluster.create(class_for(gpu))
    cluster.retry()
    assert cluster.devices(special_claim(cluster, "web")) == ["node-1/gpu-0"]


def test_another_class_wakes_nobody_who_asks_by_another_name(cluster: Cluster) -> None:
    with_nodes(cluster)
    cluster.create(pod_asking("web", {GPU: 1}))
    cluster.settle()
    cluster.create(make_class("other", extended_resource_name="example.com/other"))
    cluster.retry()
    assert cluster.queued("web").attempts == 1


def test_a_class_that_gets_the_name_later_serves_the_pod(cluster: Cluster) -> None:
    made = cluster.create(make_class())
    with_nodes(cluster)
    cluster.create(pod_asking("web", {GPU: 1}))
    cluster.settle()
    cluster.update(with_spec(made, extended_resource_name=GPU))
    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_the_newest_class_serves_a_name_and_then_the_first_by_name(cluster: Cluster) -> None:
    with_nodes(cluster, each=8)
    chosen = []
    for number, made in enumerate(("older", "newer", "even-newer", "and-as-new")):
        if number < 3:
            cluster.later(1)
        cluster.create(make_class(made, extended_resource_name=GPU))
        cluster.create(pod_asking(f"pod-{number}", {GPU: 1}))
        cluster.settle()
        chosen.append(requests(special_claim(cluster, f"pod-{number}"))[0][1])
    assert chosen == ["older", "newer", "even-newer", "and-as-new"]
    for gone in ("and-as-new", "even-newer"):
        cluster.delete(cluster.get(DeviceClass, gone))
    cluster.create(pod_asking("last", {GPU: 1}))
    cluster.settle()
    assert requests(special_claim(cluster, "last"))[0][1] == "newer"


def test_a_pod_that_waits_for_devices_is_told_anew_when_its_class_goes(cluster: Cluster, gpu: str) -> None:
    made = cluster.create(class_for(gpu))
    with_nodes(cluster, each=0)
    cluster.create(pod_asking("web", {gpu: 1}))
    cluster.settle()
    assert "cannot allocate all claims" in cluster.why_pending("web")
    cluster.delete(made)
    cluster.retry()
    assert f"Insufficient {gpu}" in cluster.why_pending("web")


# Nodes with a device plugin -------------------------------------------------------------------------------------------


def test_pods_run_on_nodes_with_devices_and_on_nodes_with_a_device_plugin(cluster: Cluster, gpu: str) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster, "devices", each=2)
    cluster.create(make_node("plugin", capacity={**NODE, gpu: "2"}))
    for number in range(5):
        cluster.create(pod_asking(f"pod-{number}", {gpu: 1}))
    cluster.settle()
    placed = {pod.metadata.name: pod.spec.node_name for pod in cluster.all(Pod)}
    assert sorted(placed.values()) == ["", "devices", "devices", "plugin", "plugin"]
    for name, node in placed.items():
        assert (cluster.pod(name).status.extended_resource_claim_status is not None) == (node == "devices")
    (waiting,) = (name for name, node in placed.items() if not node)
    assert f"1 Insufficient {gpu}, 1 cannot allocate all claims" in cluster.why_pending(waiting)


def test_a_pod_gets_one_resource_of_a_plugin_and_another_of_devices(cluster: Cluster) -> None:
    cluster.create(make_class("class-a", extended_resource_name="example.com/a"))
    cluster.create(make_class("class-b", extended_resource_name="example.com/b"))
    cluster.create(make_node(capacity={**NODE, "example.com/a": "1"}))
    cluster.create(make_slice())
    cluster.create(pod_asking("web", {"example.com/a": 1, "example.com/b": 1}))
    cluster.settle()
    assert requests(special_claim(cluster, "web")) == [("container-0-request-1", "class-b", 1)]


def test_process_extended_resources_after_device_plugin_uninstall(cluster: Cluster, gpu: str) -> None:
    """Its node goes on advertising the resource, and none of it."""
    cluster.create(class_for(gpu))
    cluster.create(make_node(capacity={**NODE, gpu: "1"}))
    cluster.create(pod_asking("first", {gpu: 1}))
    cluster.settle()
    cluster.finish("first")
    node = cluster.node()
    gone = {**node.status.allocatable, gpu: "0"}
    cluster.update(structs.replace(node, status=structs.replace(node.status, capacity=gone, allocatable=gone)))
    cluster.create(pod_asking("second", {gpu: 1}))
    cluster.settle()
    assert "cannot allocate all claims" in cluster.why_pending("second")
    cluster.create(make_slice())
    cluster.retry()
    assert cluster.devices(special_claim(cluster, "second")) == ["node-1/gpu-0"]
    assert cluster.pod("first").status.extended_resource_claim_status is None


def test_a_node_that_serves_a_resource_twice_is_told_of(cluster: Cluster, gpu: str) -> None:
    """Its device plugin serves the pods, as in Kubernetes; somebody has to decide for one of the two."""
    cluster.create(class_for(gpu))
    with_nodes(cluster, "devices", each=1)
    for name in ("both", "plugin"):
        cluster.create(make_node(name, capacity={**NODE, gpu: "1"}))
    cluster.create(make_slice(node="both", devices=make_devices(1)))
    cluster.create(pod_asking("web", {gpu: 1}, node_selector={"kubernetes.io/hostname": "both"}))
    cluster.settle()
    for _ in range(2):
        cluster.worker.sweep()
    assert cluster.pod("web").status.extended_resource_claim_status is None
    (event,) = cluster.events("ExtendedResourceServedTwice")
    assert (event.type, event.involved_object.kind, event.involved_object.name) == ("Warning", "Node", "both")
    assert event.message == Outline(f"… both … {gpu} … {CLASS}…")
    assert event.count == 1
    for capacity in (NODE, {**NODE, gpu: "1"}):  # its device plugin goes, and comes again
        node = cluster.node("both")
        cluster.update(
            structs.replace(node, status=structs.replace(node.status, capacity=capacity, allocatable=capacity))
        )
        cluster.worker.sweep()
    (event,) = cluster.events("ExtendedResourceServedTwice")
    assert event.count == 2


@pytest.mark.parametrize(
    ("strategy", "amount", "chosen"), [("pack", 1, ["plugin-1", "devices-1"]), ("spread", 2, ["devices-3", "plugin-2"])]
)
def test_what_nodes_have_left_counts_in_their_score(
    cluster: Cluster, settings: Settings, strategy: str, amount: int, chosen: list[str]
) -> None:
    """Whether a device plugin or a driver serves the resource there."""
    settings.SCHEDULER_PLACEMENT = strategy
    cluster.create(class_for(GPU))
    for name, number in (("plugin-1", 1), ("plugin-2", 2)):
        cluster.create(make_node(name, capacity={**NODE, GPU: str(number)}))
    for name, number in (("devices-1", 1), ("devices-3", 3)):
        with_nodes(cluster, name, each=number)
    placed = []
    for number in range(2):
        cluster.create(pod_asking(f"web-{number}", {GPU: amount}))
        cluster.settle()
        placed.append(cluster.pod(f"web-{number}").spec.node_name)
    assert sorted(placed) == sorted(chosen)


def test_pods_that_wait_for_an_extended_resource_count_with_those_that_wait_for_its_class(
    cluster: Cluster, gpu: str
) -> None:
    cluster.create(class_for(gpu))
    with_nodes(cluster, each=1)
    for name in ("one", "two", "three"):
        cluster.create(pod_asking(name, {gpu: 1}))
    cluster.create(pod_asking("other", {"example.com/other": 1}))
    cluster.settle()
    (counted,) = read_census().classes
    assert (counted.name, counted.waiting) == (CLASS, 2)
