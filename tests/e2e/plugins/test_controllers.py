"""A driver with a controller, on a whole system: the demo's, in `manage.py up`; its plugin behind a socket of the node.

The plugin is served by `python -m nodeagent.serve` and called as drivers of Kubernetes 1.30 are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import yaml

from manciple.controller_kit.examples.network_accelerators import NAME
from manciple.processes.demo_controller import NAMESPACE
from manciple.processes.system import CONTROLLED_DRIVER
from tests.e2e.api_client import Document
from tests.e2e.plugins.cluster import NODE, PODS
from tests.e2e.plugins.scene import Scene
from tests.e2e.processes import ROOT, Process, wait_for

pytestmark = pytest.mark.e2e

ROOM = f"/apis/resource.k8s.io/v1alpha2/namespaces/{NAMESPACE}"
EXAMPLE = tuple(yaml.safe_load_all((ROOT / "docs" / "examples" / "network-accelerator.yaml").read_text()))


@pytest.fixture
def plugin(scene: Scene) -> Iterator[Process]:
    agent = scene.agent
    command = [
        *(sys.executable, "-m", "nodeagent.serve", CONTROLLED_DRIVER.driver, "--node-name", NODE),
        *("--kubeconfig", str(scene.system.drivers_kubeconfig)),
        *("--registrar-dir", str(agent.plugins / "plugins_registry"), "--cdi-dir", str(agent.cdi)),
        *("--plugin-dir", str(agent.plugins / "plugins" / NAME)),
    ]
    served = Process(command).start()
    served.line("registered with the kubelet")
    yield served
    assert served.stop() == 0, "\n".join(served.output)


def claim(scene: Scene, name: str) -> Document:
    return scene.api.find(f"{ROOM}/resourceclaims/{name}") or {"metadata": {}, "status": {}}


def environment(scene: Scene, pod: str) -> Document:
    """Of its container, once it runs."""

    def running() -> Document | None:
        found = scene.api.find(f"{PODS.format(NAMESPACE)}/{pod}")
        return found if found is not None and found["status"].get("phase") == "Running" else None

    uid = wait_for(f"pod {pod} to run", running)["metadata"]["uid"]
    return dict(scene.agent.containers(uid)["main"]["environment"])


def ends(scene: Scene, pod: str) -> None:
    scene.api.delete(f"{PODS.format(NAMESPACE)}/{pod}")
    wait_for(f"pod {pod} to be gone", lambda: scene.api.find(f"{PODS.format(NAMESPACE)}/{pod}") is None)
    assert not [path for path in scene.agent.cdi.iterdir() if NAME in path.name]


@pytest.mark.long
def test_immediate_claim_is_allocated_without_a_pod_and_a_pod_bound_by_hand_gets_it(
    scene: Scene, plugin: Process
) -> None:
    spec = {"resourceClassName": "accelerator", "allocationMode": "Immediate"}
    scene.api.made(f"{ROOM}/resourceclaims", {"metadata": {"name": "c"}, "spec": spec})
    wait_for("the claim to be allocated", lambda: claim(scene, "c")["status"].get("allocation"))
    pod = dict(EXAMPLE[1]["spec"], nodeName=NODE, resourceClaims=[{"name": "accelerator", "resourceClaimName": "c"}])
    scene.api.made(PODS.format(NAMESPACE), {"metadata": {"name": "by-hand"}, "spec": pod})
    assert environment(scene, "by-hand")["ACCELERATORS"] in "01234567"

    plugin.kill()
    plugin.start().line("registered with the kubelet")
    ends(scene, "by-hand")
    scene.api.delete(f"{ROOM}/resourceclaims/c")
    wait_for("the claim to be gone", lambda: not claim(scene, "c")["metadata"])


@pytest.mark.usefixtures("plugin")
def test_the_example_of_the_documentation_runs(scene: Scene) -> None:
    """Scheduler and controller agree on a node; the pod's container finds its accelerator; all is given back."""
    template, pod = EXAMPLE
    scene.api.made(f"{ROOM}/resourceclaimtemplates", template)
    scene.api.made(PODS.format(NAMESPACE), pod)
    assert environment(scene, "infers")["ACCELERATORS"] in "01234567"
    (made,) = scene.api.listed(f"{ROOM}/resourceclaims")
    assert made["metadata"]["finalizers"] == [f"{NAME}/deletion-protection"]
    assert made["status"]["driverName"] == NAME
    assert [one["name"] for one in made["status"]["reservedFor"]] == ["infers"]

    ends(scene, "infers")
    wait_for("the claim to be gone", lambda: not scene.api.listed(f"{ROOM}/resourceclaims"))
    scene.api.delete(f"{ROOM}/resourceclaimtemplates/{template['metadata']['name']}")
