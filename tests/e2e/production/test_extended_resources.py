"""Extended resources that devices serve (KEP-5004), on real workers and agents. The names are those of Kubernetes' e2e.

Each runs twice: with the name that a class has itself, and with the one by which every class can be asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from claims.kinds.containers import Container
from tests.builders import make_class, make_container, make_devices, make_node, make_pod, make_quota
from tests.e2e.kubectl import Kubectl
from tests.e2e.production.installation import Installation
from tests.e2e.production.scene import GPU, Scene

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

MANIFEST = Path(__file__).parents[1] / "manifests" / "extended-resource-request.yaml"
IMPLICIT = "deviceclass.resource.kubernetes.io/"
#: GPUs of each node
GPUS = 8


class Names:
    """Classes of a scene, and the names by which they are asked for."""

    def __init__(self, scene: Scene, *, explicit: bool) -> None:
        self.scene = scene
        self.explicit = explicit

    def of(self, short: str = "gpu") -> str:
        return f"example.com/{self.scene.name}-{short}" if self.explicit else f"{IMPLICIT}{self.scene.name}-{short}"

    def serve(self, short: str = "gpu", *, driver: str = GPU) -> str:
        """Make a class; what it is asked for by."""
        own = self.of(short) if self.explicit else None
        expressions = [f"device.driver == '{driver}'"]
        self.scene.make(make_class(f"{self.scene.name}-{short}", expressions=expressions, extended_resource_name=own))
        return self.of(short)


@pytest.fixture(params=[True, False], ids=["explicit", "implicit"])
def names(request: pytest.FixtureRequest, scene: Scene) -> Names:
    return Names(scene, explicit=request.param)


def asking(amounts: Mapping[str, int], name: str = "c0") -> Container:
    return make_container(name, limits={resource: str(amount) for resource, amount in amounts.items()})


def runs(scene: Scene, *containers: Container, name: str = "web", **spec: Any) -> dict[str, Any]:
    """A pod with these containers, once it runs."""
    scene.pod(name, containers=containers, **spec)
    scene.runs(name)
    return scene.find("Pod", name)


def claim_of(scene: Scene, pod: str = "web") -> dict[str, Any]:
    """{} where nothing was made for its extended resources."""
    status = scene.find("Pod", pod)["status"].get("extendedResourceClaimStatus")
    return scene.find("ResourceClaim", status["resourceClaimName"]) if status else {}


def devices_of(installation: Installation, pod: dict[str, Any], container: str) -> list[str]:
    """What the node's agent started the container with: devices of CDI."""
    started = next((installation.home / "nodes").glob(f"*/containers/{pod['metadata']['uid']}.json"))
    return sorted(json.loads(started.read_text())["containers"][container]["cdiDevices"])


def given(claim: dict[str, Any], *requests: str) -> list[str]:
    """The devices of CDI that stand for what these requests of a claim got."""
    results = claim["status"]["allocation"]["devices"]["results"]
    prefix = f"/claim={claim['metadata']['uid']}-"
    return sorted(f"k8s.{one['driver']}{prefix}{one['device']}" for one in results if one["request"] in requests)


def assert_each_has_its_devices(
    scene: Scene, installation: Installation, pod: dict[str, Any], expected: Sequence[tuple[str, str, str, int]]
) -> None:
    """expected: container, resource, request, and how many devices that is."""
    claim = claim_of(scene)
    mappings = pod["status"]["extendedResourceClaimStatus"]["requestMappings"]
    told = [(one["containerName"], one["resourceName"], one["requestName"]) for one in mappings]
    assert sorted(told) == sorted(one[:3] for one in expected)
    for container in pod["spec"]["containers"]:
        requests = [request for name, _, request, _ in expected if name == container["name"]]
        devices = devices_of(installation, pod, container["name"])
        assert devices == given(claim, *requests)
        assert len(devices) == sum(count for name, _, _, count in expected if name == container["name"])


def test_must_run_a_pod_with_extended_resource_with_one_container_one_resource(
    names: Names, scene: Scene, installation: Installation
) -> None:
    gpu = names.serve()
    pod = runs(scene, asking({gpu: 1}))
    assert_each_has_its_devices(scene, installation, pod, [("c0", gpu, "container-0-request-0", 1)])
    scene.delete("Pod", "web")
    scene.until("the claim to be gone", lambda: not scene.all("ResourceClaim"))


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 3])
def test_must_run_a_pod_with_extended_resource_with_one_container_several_resources(
    names: Names, scene: Scene, installation: Installation, count: int
) -> None:
    """Also: must accurately populate ExtendedResourceClaimStatus."""
    resources = [names.serve(f"class-{number}") for number in range(count)]
    amounts = {resource: number + 1 for number, resource in enumerate(resources)}
    pod = runs(scene, asking(amounts))
    expected = [("c0", one, f"container-0-request-{at}", at + 1) for at, one in enumerate(resources)]
    assert_each_has_its_devices(scene, installation, pod, expected)


@pytest.mark.long
def test_must_run_a_pod_with_extended_resource_with_three_containers_one_resource_each(
    names: Names, scene: Scene, installation: Installation
) -> None:
    resources = [names.serve(f"class-{number}") for number in range(3)]
    pod = runs(scene, *(asking({one: 1}, f"c{at}") for at, one in enumerate(resources)))
    expected = [(f"c{at}", one, f"container-{at}-request-0", 1) for at, one in enumerate(resources)]
    assert_each_has_its_devices(scene, installation, pod, expected)


@pytest.mark.long
def test_must_run_a_pod_with_extended_resource_with_three_containers_multiple_resources_each(
    names: Names, scene: Scene, installation: Installation
) -> None:
    resources = [names.serve(f"class-{number}") for number in range(6)]
    parts = (resources[:1], resources[1:3], resources[3:])
    pod = runs(scene, *(asking(dict.fromkeys(part, 1), f"c{at}") for at, part in enumerate(parts)))
    expected = [
        (f"c{at}", one, f"container-{at}-request-{number}", 1)
        for at, part in enumerate(parts)
        for number, one in enumerate(part)
    ]
    assert_each_has_its_devices(scene, installation, pod, expected)


@pytest.mark.long
def test_must_run_a_pod_with_both_implicit_and_explicit_extended_resource_with_one_container_two_resources(
    scene: Scene, installation: Installation
) -> None:
    explicit = Names(scene, explicit=True)
    own, every = explicit.serve(), f"{IMPLICIT}{scene.name}-gpu"
    pod = runs(scene, asking({own: 1, every: 2}))
    expected = [("c0", every, "container-0-request-0", 2), ("c0", own, "container-0-request-1", 1)]
    assert_each_has_its_devices(scene, installation, pod, expected)


@pytest.mark.long
def test_init_containers_have_the_devices_of_those_that_follow(
    names: Names, scene: Scene, installation: Installation
) -> None:
    gpu = names.serve()
    pod = runs(scene, asking({gpu: 1}), init_containers=[asking({gpu: 2}, "first")])
    claim = claim_of(scene)
    assert devices_of(installation, pod, "c0") == given(claim, "container-1-request-0")
    assert devices_of(installation, pod, "first") == given(claim, "container-0-request-0", "container-1-request-0")
    assert len(given(claim, "container-0-request-0", "container-1-request-0")) == 2


@pytest.mark.long
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_must_cleanup_extended_resource_claims_when_pods_end(names: Names, scene: Scene, phase: str) -> None:
    gpu = names.serve()
    scene.pod("web", containers=[asking({gpu: 1})], seconds=1, exit_code=int(phase == "Failed"))
    scene.reaches(phase, "web")
    scene.until("the claim to be gone", lambda: not scene.all("ResourceClaim"))


@pytest.mark.long
def test_supports_extended_resources_together_with_resource_claim(
    names: Names, scene: Scene, installation: Installation
) -> None:
    gpu = names.serve()
    scene.claim("training")
    pod = runs_with_claim(scene, gpu)
    special, other = claim_of(scene), scene.find("ResourceClaim", "training")
    assert devices_of(installation, pod, "c0") == sorted(
        [*given(special, "container-0-request-0"), *given(other, "gpu")]
    )


def runs_with_claim(scene: Scene, gpu: str) -> dict[str, Any]:
    scene.pod("web", "training", containers=[make_container("c0", claims=["training"], limits={gpu: "1"})])
    scene.runs("web")
    return scene.find("Pod", "web")


def test_must_run_a_pod_with_extended_resource_with_resource_quota(names: Names, scene: Scene) -> None:
    """It counts by its own name, by the class's, and as devices of claims; what is too much is refused at the door."""
    gpu = names.serve()
    keys = (f"requests.{gpu}", f"{scene.name}-gpu.deviceclass.resource.k8s.io/devices")
    scene.make(make_quota(dict.fromkeys(keys, "2"), name="gpus"))

    def used() -> list[str]:
        found = scene.find("ResourceQuota", "gpus").get("status", {}).get("used", {})
        return [found.get(key, "") for key in keys]

    scene.until("the quota to be counted", lambda: used() == ["0", "0"])
    runs(scene, asking({gpu: 2}))
    scene.until("the quota to be used up", lambda: used() == ["2", "2"])
    assert "exceeded quota: gpus" in scene.refused(make_pod("more", containers=[asking({gpu: 1})]))
    scene.delete("Pod", "web")
    scene.until("the quota to be free", lambda: used() == ["0", "0"])
    scene.delete("ResourceQuota", "gpus")


def test_must_prevent_overcommitment_of_extended_resources(names: Names, scene: Scene) -> None:
    gpu = names.serve()
    where = {"kubernetes.io/hostname": "node-1"}
    runs(scene, asking({gpu: GPUS}), name="first", node_selector=where)
    scene.pod("second", containers=[asking({gpu: GPUS})], node_selector=where)
    scene.waits("second", "cannot allocate all claims")
    scene.delete("Pod", "first")
    scene.runs("second")


@pytest.mark.long
def test_must_reject_pod_with_invalid_extended_resource_name(scene: Scene) -> None:
    """A class with a longer name than this has to be given one to be asked for by."""
    for name, why in (
        ("invalid_resource_name", "must be a standard resource for containers"),
        (f"{IMPLICIT}{'x' * 64}", "name part must be no more than 63 bytes"),
    ):
        assert why in scene.refused(make_pod("web", containers=[asking({name: 1})]))


@pytest.mark.long
def test_must_run_a_pod_with_extended_resource_requesting_zero(names: Names, scene: Scene) -> None:
    gpu = names.serve()
    runs(scene, asking({gpu: 0}))
    assert claim_of(scene) == {}
    assert scene.all("ResourceClaim") == []


@pytest.mark.long
def test_must_run_a_pod_with_extended_resource_created_before_the_class(
    names: Names, scene: Scene, installation: Installation
) -> None:
    gpu = names.of()
    scene.pod("web", containers=[asking({gpu: 1})])
    scene.waits("web", f"Insufficient {gpu}")
    names.serve()
    scene.runs("web")
    expected = [("c0", gpu, "container-0-request-0", 1)]
    assert_each_has_its_devices(scene, installation, scene.find("Pod", "web"), expected)


@pytest.mark.long
def test_must_run_pods_on_nodes_with_devices_and_on_nodes_with_a_device_plugin(names: Names, scene: Scene) -> None:
    """Nodes of the test's own: pods are bound there, and no more. Then the plugin goes, and a driver comes."""
    gpu = names.serve(driver=scene.driver)
    labels = {"scene": scene.name}
    plugin, devices = f"{scene.name}-plugin", f"{scene.name}-devices"
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    for name, capacity in ((plugin, {**amounts, gpu: "1"}), (devices, amounts)):
        node = make_node(name, labels=labels, capacity=capacity)
        scene.make(node)
        scene.change("Node", name, {"status": scene.document(node)["status"]}, part="status")
    scene.publish(*make_devices(1), node=devices)
    for pod in ("a", "b"):
        scene.pod(pod, containers=[asking({gpu: 1})], node_selector=labels)
    scene.bound("a", "b")
    by_node = {scene.node_of(pod): pod for pod in ("a", "b")}
    assert set(by_node) == {plugin, devices}
    assert claim_of(scene, by_node[plugin]) == {}
    assert claim_of(scene, by_node[devices])

    scene.delete("Pod", by_node[plugin])
    scene.gone("Pod", by_node[plugin])
    gone = {"status": {"capacity": {gpu: "0"}, "allocatable": {gpu: "0"}}}
    scene.change("Node", plugin, gone, part="status")
    scene.pod("c", containers=[asking({gpu: 1})], node_selector=labels)
    scene.waits("c", "cannot allocate all claims")
    scene.publish(*make_devices(1), node=plugin)
    assert scene.bound("c") == plugin
    assert claim_of(scene, "c")


@pytest.mark.long
def test_the_manifest_of_the_example_driver_runs_with_kubectl(kubectl: Kubectl) -> None:
    """pod0 asks by the name that every class has, pod1 by the class's own, which an administrator gives it first."""
    namespace = ("-n", "extended-resource-request")
    kubectl("apply", "-f", str(MANIFEST))
    kubectl("wait", *namespace, "pod/pod0", "--for=condition=Ready")
    own = {"spec": {"extendedResourceName": "example.com/gpu"}}
    kubectl("patch", "deviceclass", GPU, "--type=merge", "-p", json.dumps(own))
    kubectl("wait", *namespace, "pod/pod1", "--for=condition=Ready")
    claims = kubectl.json("get", "resourceclaims", *namespace)["items"]
    assert {one["metadata"]["ownerReferences"][0]["name"] for one in claims} == {"pod0", "pod1"}
    assert "example.com/gpu" in kubectl("describe", "pod", "pod1", *namespace)
    kubectl("delete", "-f", str(MANIFEST))
    kubectl("patch", "deviceclass", GPU, "--type=json", "-p", '[{"op":"remove","path":"/spec/extendedResourceName"}]')


@pytest.mark.long
def test_disablement_and_enablement_leave_running_pods_alone(scene: Scene, installation: Installation) -> None:
    """KEP-5004, tests 2, 5 and 6: off, on, off, on, on every part at once, with pods by names of both kinds."""
    off = {"MANCIPLE_FEATURE_GATES": "DRAExtendedResource=false"}
    explicit, implicit = Names(scene, explicit=True), Names(scene, explicit=False)

    installation.restart(**off)
    resources = {"own": explicit.serve("own"), "every": implicit.serve("every")}
    assert "extendedResourceName" not in scene.find("DeviceClass", f"{scene.name}-own")["spec"]
    for name, resource in resources.items():
        scene.pod(f"first-{name}", containers=[asking({resource: 1})])
        scene.waits(f"first-{name}", f"Insufficient {resource}")

    installation.restart()
    named = {"spec": {"extendedResourceName": resources["own"]}}
    scene.change("DeviceClass", f"{scene.name}-own", named)
    scene.runs("first-own", "first-every")
    held = {name: claim_of(scene, f"first-{name}") for name in resources}
    for name in resources:
        pod = scene.find("Pod", f"first-{name}")
        assert devices_of(installation, pod, "c0") == given(held[name], "container-0-request-0")

    installation.restart(**off)
    for name, resource in resources.items():
        scene.pod(f"second-{name}", containers=[asking({resource: 1})])
        scene.waits(f"second-{name}", f"Insufficient {resource}")
        assert scene.phase(f"first-{name}") == "Running"
        assert claim_of(scene, f"first-{name}")["status"] == held[name]["status"]
    scene.delete("Pod", "first-own")
    scene.until("its claim to be gone", lambda: len(scene.all("ResourceClaim")) == 1)
    assert scene.find("DeviceClass", f"{scene.name}-own")["spec"]["extendedResourceName"] == resources["own"]

    installation.restart()
    scene.runs("second-own", "second-every", "first-every")
    assert claim_of(scene, "first-every")["metadata"]["uid"] == held["every"]["metadata"]["uid"]
