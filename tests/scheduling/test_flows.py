"""Pods and their claims, from creation to release. The names are those of Kubernetes' e2e and integration cases."""

from __future__ import annotations

import pytest

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import DeviceClass
from tests.builders import (
    make_claim,
    make_class,
    make_container,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_selectors,
    make_slice,
    make_template,
)
from tests.scheduling.cluster import Cluster, with_spec

FINALIZER = "resource.kubernetes.io/delete-protection"
SELECTS_NOTHING = ("device.attributes['gpu.example.com'].index == 99",)


def test_simple_pod_referencing_inline_claim(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()

    claim, pod = cluster.generated_claim("web"), cluster.pod("web")
    assert pod.spec.node_name == "node-1"
    assert cluster.devices(claim) == ["node-1/gpu-0"]
    assert [(one.resource, one.name, one.uid) for one in claim.status.reserved_for] == [
        ("pods", "web", pod.metadata.uid)
    ]
    assert claim.metadata.finalizers == (FINALIZER,)
    assert [event.message for event in cluster.events("Scheduled")] == ["Successfully assigned default/web to node-1"]


def test_simple_pod_referencing_external_claim(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()

    assert cluster.pod("web").spec.node_name == "node-1"
    assert cluster.devices(cluster.claim("training")) == ["node-1/gpu-0"]


def test_inline_claim_referenced_by_multiple_containers(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    containers = [make_container("a", claims=["gpu"]), make_container("b", claims=["gpu"])]
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}, containers=containers))
    cluster.settle()
    assert cluster.devices(cluster.generated_claim("web")) == ["node-1/gpu-0"]


def test_supports_sharing_a_claim_concurrently(cluster: Cluster) -> None:
    """Also: external claim referenced by multiple pods."""
    cluster.with_gpus("node-1", "node-2")
    cluster.create(make_claim("shared"))
    for name in ("a", "b", "c"):
        cluster.create(make_pod(name, claims={"gpu": "shared"}))
    cluster.settle()

    assert len({cluster.pod(name).spec.node_name for name in "abc"}) == 1
    assert [one.name for one in cluster.claim("shared").status.reserved_for] == ["a", "b", "c"]


def test_supports_sharing_a_claim_sequentially(cluster: Cluster) -> None:
    """Only 256 pods may use a claim at once; the next one waits until one of them has ended."""
    cluster.create(make_class())
    cluster.create(make_node(capacity={"cpu": "8", "memory": "32Gi", "pods": "500"}))
    cluster.create(make_slice())
    cluster.create(make_claim("shared"))
    for number in range(257):
        cluster.create(make_pod(f"pod-{number:03}", claims={"gpu": "shared"}))
    cluster.settle()
    waiting = [pod for pod in cluster.all(Pod) if not pod.spec.node_name]
    assert [pod.metadata.name for pod in waiting] == ["pod-256"]
    assert len(cluster.claim("shared").status.reserved_for) == 256
    assert "default/shared is in use by 256 pods" in cluster.why_pending("pod-256")

    cluster.finish("pod-000")
    cluster.retry()
    assert cluster.pod("pod-256").spec.node_name == "node-1"


def test_supports_reusing_resources(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("first", templates={"gpu": "one-gpu"}))
    cluster.settle()
    cluster.create(make_pod("second", templates={"gpu": "one-gpu"}))
    cluster.settle()
    assert cluster.pod("second").spec.node_name == ""
    assert cluster.why_pending("second").startswith("0/1 nodes are available: 1 cannot allocate all claims")

    cluster.delete(cluster.pod("first"))
    cluster.retry()
    assert cluster.devices(cluster.generated_claim("second")) == ["node-1/gpu-0"]


def test_retries_pod_scheduling_after_creating_device_class(cluster: Cluster) -> None:
    cluster.create(make_node())
    cluster.create(make_slice())
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()
    assert cluster.why_pending("web") == (
        "0/1 nodes are available: request gpu: device class gpu.example.com does not exist. "
        "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )

    cluster.create(make_class())
    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_retries_pod_scheduling_after_updating_device_class(cluster: Cluster) -> None:
    cluster.create(make_class(expressions=SELECTS_NOTHING))
    cluster.create(make_node())
    cluster.create(make_slice())
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == ""

    device_class = cluster.get(DeviceClass, "gpu.example.com")
    cluster.update(with_spec(device_class, selectors=make_selectors(["device.driver == 'gpu.example.com'"])))
    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_runs_a_pod_without_a_generated_resource_claim(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.needs_no_claim("web", "gpu")
    cluster.create(make_template("one-gpu"))
    cluster.settle()
    assert cluster.pod("web").spec.node_name == "node-1"
    assert cluster.all(ResourceClaim) == []


def test_must_deallocate_after_use(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()
    assert cluster.claim("training").status.allocation is not None

    cluster.delete(cluster.pod("web"))
    cluster.settle()
    claim = cluster.claim("training")
    assert claim.status.allocation is None
    assert claim.status.reserved_for == ()
    assert claim.metadata.finalizers == ()


def test_removes_reservation_from_claim_when_pod_is_done(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_claim("training"))
    cluster.create(make_pod("quick", claims={"gpu": "training"}))
    cluster.create(make_pod("slow", claims={"gpu": "training"}))
    cluster.settle()
    cluster.finish("quick")
    cluster.settle()

    claim = cluster.claim("training")
    assert [one.name for one in claim.status.reserved_for] == ["slow"]
    assert claim.status.allocation is not None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_deletes_generated_claims_when_pod_is_done(cluster: Cluster, phase: str) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("job", templates={"gpu": "one-gpu"}))
    cluster.settle()
    cluster.finish("job", phase)
    cluster.settle()
    assert cluster.all(ResourceClaim) == []
    assert cluster.pod("job").status.phase == phase


def test_does_not_delete_generated_claims_when_pod_is_restarting(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()
    before = cluster.generated_claim("web")
    for phase in ("Running", "Pending", "Running"):
        cluster.finish("web", phase)
        cluster.settle()
    assert cluster.generated_claim("web") == before


def test_truncates_the_name_of_a_generated_resource_claim(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("p" * 63, templates={"c" * 63: "one-gpu"}))
    cluster.settle()
    (claim,) = cluster.all(ResourceClaim)
    assert claim.metadata.generate_name == f"{'p' * 28}-{'c' * 28}"
    assert len(claim.metadata.name) <= 63
    assert cluster.pod("p" * 63).spec.node_name == "node-1"


def test_requests_an_already_allocated_and_a_new_claim_for_a_pod(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=2)
    cluster.create(make_claim("first"))
    cluster.create(make_claim("second"))
    cluster.create(make_pod("a", claims={"gpu": "first"}))
    cluster.settle()
    cluster.create(make_pod("b", claims={"gpu": "first", "other": "second"}))
    cluster.settle()
    node = cluster.pod("a").spec.node_name
    assert cluster.pod("b").spec.node_name == node
    assert cluster.devices(cluster.claim("second")) == [f"{node}/gpu-1"]


def test_keeps_pod_pending_because_of_cel_runtime_errors(cluster: Cluster) -> None:
    """Upstream: one node's devices lack the attribute; the error there is not hidden by the other node."""
    cluster.create(make_class(expressions=["device.attributes['gpu.example.com'].exists"]))
    cluster.create(make_node("node-1"))
    cluster.create(make_node("node-2"))
    cluster.create(make_slice(node="node-1", devices=make_devices(1, attributes={"exists": True})))
    cluster.create(make_slice(node="node-2", devices=make_devices(1)))
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()

    assert cluster.pod("web").spec.node_name == ""
    assert "no such key: exists" in cluster.why_pending("web")
    assert cluster.condition("web").reason == "SchedulerError"
    assert "no such key: exists" in cluster.events("FailedScheduling")[0].message


def test_retries_after_the_devices_that_raise_cel_runtime_errors_are_corrected(cluster: Cluster) -> None:
    cluster.create(make_class(expressions=["device.attributes['gpu.example.com'].exists"]))
    cluster.create(make_node("node-1"))
    published = cluster.create(make_slice(node="node-1", devices=make_devices(1)))
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()
    cluster.update(with_spec(published, devices=make_devices(1, attributes={"exists": True})))
    cluster.retry()
    assert cluster.pod("web").spec.node_name == "node-1"


def test_uses_all_resources(cluster: Cluster) -> None:
    """The fixture's invariants are the watcher: no device in two allocations at the end; here, all are in one."""
    cluster.with_gpus("node-1", "node-2", "node-3", each=8)
    cluster.create(make_template("one-gpu"))
    for number in range(24):
        cluster.create(make_pod(f"pod-{number}", templates={"gpu": "one-gpu"}))
    cluster.settle()
    held = [device for claim in cluster.all(ResourceClaim) for device in cluster.devices(claim)]
    assert len(held) == len(set(held)) == 24


def test_supports_claim_and_class_parameters(cluster: Cluster) -> None:
    cluster.create(make_class(parameters={"mode": "class"}))
    cluster.create(make_node())
    cluster.create(make_slice())
    cluster.create(make_claim("training"))
    cluster.create(make_pod("web", claims={"gpu": "training"}))
    cluster.settle()
    allocation = cluster.claim("training").status.allocation
    assert allocation is not None
    assert [(one.source, one.opaque.parameters) for one in allocation.devices.config if one.opaque] == [
        ("FromClass", {"mode": "class"})
    ]


def test_daemonset_with_admin_access(cluster: Cluster) -> None:
    """Admin access sees devices that others hold, and takes none away."""
    cluster.with_gpus("node-1", each=1)
    cluster.label_namespace("default", {"resource.kubernetes.io/admin-access": "true"})
    cluster.create(make_template("one-gpu"))
    cluster.create(make_template("watch", requests=[make_request(all_devices=True, admin_access=True)]))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()
    cluster.create(make_pod("monitor", templates={"gpu": "watch"}))
    cluster.settle()
    assert cluster.devices(cluster.generated_claim("monitor")) == ["node-1/gpu-0"]
    assert cluster.devices(cluster.generated_claim("web")) == ["node-1/gpu-0"]
