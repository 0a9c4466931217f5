"""Pods and their claims on real workers and agents. The names are those of Kubernetes' e2e and integration cases."""

from __future__ import annotations

from itertools import combinations

import pytest

from claims.kinds.pods import PodSchedulingGate
from tests.builders import (
    make_claim_config,
    make_class,
    make_constraint,
    make_container,
    make_device,
    make_devices,
    make_request,
)
from tests.e2e.production.installation import NODES
from tests.e2e.production.scene import GPU, Scene

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

FINALIZER = "resource.kubernetes.io/delete-protection"
#: GPUs of each node
GPUS = 8
NEVER = f"device.driver == '{GPU}' && device.attributes['gpu.example.com'].index == 99"


def test_simple_pod_referencing_inline_claim(scene: Scene) -> None:
    scene.template("gpu")
    pod = scene.pod("web", templates=["gpu"])
    scene.runs("web")
    (name,) = scene.made_for("web")
    claim = scene.find("ResourceClaim", name)
    assert [one["uid"] for one in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert [(one["kind"], one["name"]) for one in claim["metadata"]["ownerReferences"]] == [("Pod", "web")]
    assert f"Scheduled: Successfully assigned {scene.name}/web to {scene.node_of('web')}" in scene.events("web")


@pytest.mark.long
def test_simple_pod_referencing_external_claim(scene: Scene) -> None:
    scene.claim("training")
    scene.pod("web", "training")
    scene.runs("web")
    (device,) = scene.devices("training")
    assert device.startswith(f"gpu {scene.node_of('web')}/gpu-")


@pytest.mark.long
def test_inline_claim_referenced_by_multiple_containers(scene: Scene) -> None:
    scene.template("gpu")
    scene.pod("web", templates=["gpu"], containers=[make_container(name, claims=["gpu"]) for name in "ab"])
    scene.runs("web")
    (name,) = scene.made_for("web")
    assert len(scene.devices(name)) == 1


def test_external_claim_referenced_by_multiple_pods(scene: Scene) -> None:
    scene.claim("shared")
    for name in "abc":
        scene.pod(name, "shared")
    scene.runs("a", "b", "c")
    assert len({scene.node_of(name) for name in "abc"}) == 1
    reserved = scene.find("ResourceClaim", "shared")["status"]["reservedFor"]
    assert sorted(one["name"] for one in reserved) == ["a", "b", "c"]


@pytest.mark.long
def test_external_claim_referenced_by_multiple_containers_of_multiple_pods(scene: Scene) -> None:
    scene.claim("shared")
    for name in "ab":
        scene.pod(name, "shared", containers=[make_container(one, claims=["shared"]) for one in "xyz"])
    scene.runs("a", "b")
    assert scene.node_of("a") == scene.node_of("b")
    assert len(scene.devices("shared")) == 1


@pytest.mark.long
def test_supports_init_containers(scene: Scene) -> None:
    """Each claim is used by an init container alone, and held as long as the pod runs."""
    scene.claim("external")
    scene.template("inline")
    first = [make_container("first", claims=["inline"]), make_container("second", claims=["external"])]
    scene.pod("web", "external", templates=["inline"], init_containers=first, containers=[make_container()])
    scene.runs("web")
    (inline,) = scene.made_for("web")
    assert len({*scene.devices("external"), *scene.devices(inline)}) == 2


@pytest.mark.long
def test_daemonset_with_admin_access(scene: Scene) -> None:
    """One on each node sees all of its devices, those in use as well, and takes none from anybody."""
    watching = make_request(device_class=GPU, all_devices=True, admin_access=True)
    scene.template("watch", watching)
    scene.claim("used")
    scene.pod("user", "used")
    scene.runs("user")
    for node in NODES:
        scene.pod(f"agent-{node}", templates=["watch"], node_selector={"kubernetes.io/hostname": node})
    scene.runs(*(f"agent-{node}" for node in NODES))
    (claim,) = scene.made_for(f"agent-{scene.node_of('user')}")
    results = scene.allocation(claim)["devices"]["results"]
    assert all(one["adminAccess"] for one in results)
    assert scene.devices("used")[0].rpartition(" ")[2] in {f"{one['pool']}/{one['device']}" for one in results}


@pytest.mark.long
def test_supports_sharing_a_claim_concurrently(scene: Scene) -> None:
    """One that ends takes nothing from the others."""
    scene.claim("shared")
    scene.pod("short", "shared", seconds=0)
    scene.pod("long", "shared")
    scene.reaches("Succeeded", "short")
    scene.runs("long")
    scene.until("the reservation to end", lambda: _reserved(scene, "shared") == ["long"])
    assert scene.devices("shared")


def _reserved(scene: Scene, claim: str) -> list[str]:
    return [one["name"] for one in scene.find("ResourceClaim", claim)["status"].get("reservedFor", ())]


@pytest.mark.long
def test_supports_sharing_a_claim_sequentially(scene: Scene) -> None:
    """A claim that nobody uses any more is given up, and allocated again for the next."""
    scene.claim("shared")
    for name in ("first", "second", "third"):
        scene.pod(name, "shared", seconds=0)
        scene.reaches("Succeeded", name)
        scene.free("shared")


@pytest.mark.long
def test_supports_reusing_resources(scene: Scene) -> None:
    """Of a node's only device that fits, one pod after the other."""
    only = make_request(device_class=GPU, expressions=["device.attributes['gpu.example.com'].index == 7"])
    scene.template("last", only)
    names = [f"pod-{number}" for number in range(6)]
    for name in names:
        scene.pod(name, templates=["last"], seconds=0)
    scene.reaches("Succeeded", *names)
    scene.until("the claims to be gone", lambda: not scene.all("ResourceClaim"))


@pytest.mark.long
def test_retries_pod_scheduling_after_creating_device_class(scene: Scene) -> None:
    scene.claim("training", scene.request())
    scene.pod("web", "training")
    assert f"device class {scene.name} does not exist" in scene.waits("web")
    scene.device_class(expressions=[f"device.driver == '{GPU}'"])
    scene.runs("web")


@pytest.mark.long
def test_retries_pod_scheduling_after_updating_device_class(scene: Scene) -> None:
    name = scene.device_class(expressions=[NEVER])
    scene.claim("training", scene.request())
    scene.pod("web", "training")
    scene.waits("web", "cannot allocate all claims")
    spec = scene.document(make_class(name, expressions=[f"device.driver == '{GPU}'"]))["spec"]
    scene.change("DeviceClass", name, {"spec": spec})
    scene.runs("web")


@pytest.mark.long
def test_runs_a_pod_without_a_generated_resource_claim(scene: Scene) -> None:
    """Somebody says in the pod's status that no claim is needed."""
    scene.pod("web", templates=["gpu"], containers=[make_container()], scheduling_gates=_gate())
    scene.change("Pod", "web", {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}, part="status")
    scene.change("Pod", "web", {"spec": {"schedulingGates": None}})
    scene.template("gpu")
    scene.runs("web")
    assert scene.all("ResourceClaim") == []


def _gate() -> tuple[PodSchedulingGate, ...]:
    return (PodSchedulingGate(name="example.com/wait"),)


@pytest.mark.long
def test_must_deallocate_after_use(scene: Scene) -> None:
    scene.claim("training")
    scene.pod("web", "training")
    scene.runs("web")
    scene.delete("Pod", "web")
    scene.gone("Pod", "web")
    scene.free("training")
    claim = scene.find("ResourceClaim", "training")
    assert "finalizers" not in claim["metadata"]
    assert "reservedFor" not in claim["status"]


@pytest.mark.long
def test_removes_reservation_from_claim_when_pod_is_done(scene: Scene) -> None:
    """And gives the device back, though the pod is still there."""
    scene.claim("training")
    scene.pod("job", "training", seconds=0)
    scene.reaches("Succeeded", "job")
    scene.free("training")
    assert scene.phase("job") == "Succeeded"


@pytest.mark.long
def test_deletes_generated_claims_when_pod_is_done(scene: Scene) -> None:
    scene.template("gpu")
    scene.pod("job", templates=["gpu"], seconds=0)
    scene.reaches("Succeeded", "job")
    scene.until("the claim to be gone", lambda: not scene.all("ResourceClaim"))


@pytest.mark.long
def test_does_not_delete_generated_claims_when_pod_is_restarting(scene: Scene) -> None:
    scene.template("gpu")
    scene.pod("web", templates=["gpu"], seconds=0.1, restart_policy="Always")
    scene.until("a restart", lambda: _restarts(scene, "web"))
    (claim,) = scene.all("ResourceClaim")
    assert [claim["metadata"]["name"]] == scene.made_for("web")
    assert "deletionTimestamp" not in claim["metadata"]
    assert _reserved(scene, claim["metadata"]["name"]) == ["web"]


def _restarts(scene: Scene, pod: str) -> int:
    return sum(one["restartCount"] for one in scene.find("Pod", pod)["status"].get("containerStatuses", ()))


@pytest.mark.long
def test_requests_an_already_allocated_and_a_new_claim_for_a_pod(scene: Scene) -> None:
    scene.claim("first")
    scene.claim("second")
    scene.pod("a", "first")
    scene.runs("a")
    scene.pod("b", "first", "second")
    scene.runs("b")
    assert scene.node_of("a") == scene.node_of("b")
    assert scene.devices("first") != scene.devices("second")


@pytest.mark.long
def test_keeps_pod_pending_because_of_cel_runtime_errors(scene: Scene) -> None:
    """One node's devices lack the attribute; the error there is not hidden by the other node, until it is corrected."""
    scene.device_class(expressions=[f"device.driver == '{scene.driver}' && device.attributes['{scene.driver}'].exists"])
    scene.publish(*make_devices(1, attributes={"exists": True}), node="node-1")
    lacking = scene.publish(*make_devices(1), node="node-2")
    scene.claim("training", scene.request())
    scene.pod("web", "training")
    assert "no such key: exists" in scene.waits("web")
    scene.delete("ResourceSlice", lacking["metadata"]["name"])
    assert scene.bound("web") == "node-1"


@pytest.mark.long
def test_supports_claim_and_class_parameters(scene: Scene) -> None:
    """Both arrive, those of the claim behind those of the class."""
    scene.device_class(expressions=[f"device.driver == '{GPU}'"], parameters={"from": "class"})
    scene.claim("training", scene.request(), config=[make_claim_config({"from": "claim"})])
    scene.pod("web", "training")
    scene.runs("web")
    config = scene.allocation("training")["devices"]["config"]
    assert [(one["source"], one["opaque"]["parameters"]["from"]) for one in config] == [
        ("FromClass", "class"),
        ("FromClaim", "claim"),
    ]


@pytest.mark.long
def test_uses_all_resources(scene: Scene) -> None:
    """The invariants at the end of every test are the watcher; here, every device is in one allocation."""
    scene.template("gpu")
    names = [f"pod-{number}" for number in range(3 * GPUS)]
    for name in names:
        scene.pod(name, templates=["gpu"])
    scene.runs(*names)
    held = [device for name in names for claim in scene.made_for(name) for device in scene.devices(claim)]
    assert len(held) == len(set(held)) == 3 * GPUS
    scene.pod("one-too-many", templates=["gpu"])
    scene.waits("one-too-many", "cannot allocate all claims")
    scene.delete("Pod", "pod-0")
    scene.runs("one-too-many")


@pytest.mark.long
def test_filter_timeout(scene: Scene) -> None:
    """A search that finds no end is given up, and holds up nobody else."""
    scene.device_class()
    scene.publish(*(make_device(f"d-{number:02}", attributes={"colour": number % 8}) for number in range(64)))
    # Nine that differ pairwise, of eight colours; no single constraint shows that it cannot be.
    names = [f"r{number}" for number in range(9)]
    threes = [names[at : at + 3] for at in (0, 3, 6)]
    pairs = [pair for pair in combinations(names, 2) if not any({*pair} <= {*three} for three in threes)]
    constraints = [make_constraint(distinct=f"{scene.driver}/colour", requests=one) for one in (*threes, *pairs)]
    scene.claim("endless", *map(scene.request, names), constraints=constraints)
    scene.pod("endless", "endless")
    scene.claim("plain", scene.request())
    scene.pod("plain", "plain")
    scene.bound("plain")
    assert "timed out trying to allocate devices" in scene.waits("endless")
