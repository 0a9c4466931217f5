"""The driver of the documentation, served by `python -m nodeagent.serve`, on a whole system: API, scheduler, agent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.plugins.cluster import CLASSES, NODE, SLICES
from tests.e2e.plugins.scene import Scene
from tests.e2e.processes import ROOT, Process, wait_for

pytestmark = pytest.mark.e2e

NAME = "scratch.example.com"
CONFIG = {"opaque": {"driver": NAME, "parameters": {"mountPath": "/data"}}}


def serve(scene: Scene, folder: Path) -> Process:
    (folder / "settings.yaml").write_text(f"{{root: {folder / 'scratch'}, slots: 2}}")
    (folder / "scratch").mkdir(exist_ok=True)
    agent = scene.agent
    command = [
        *(sys.executable, "-m", "nodeagent.serve", "scratch_driver:ScratchDriver", "--node-name", NODE),
        *("--kubeconfig", str(scene.system.drivers_kubeconfig), "--settings", str(folder / "settings.yaml")),
        *("--registrar-dir", str(agent.plugins / "plugins_registry"), "--cdi-dir", str(agent.cdi)),
        *("--plugin-dir", str(agent.plugins / "plugins" / NAME)),
    ]
    return Process(command, env={"PYTHONPATH": str(ROOT / "docs" / "examples")}).start()


def test_a_pod_gets_its_scratch_space_and_gives_it_back_after_the_driver_was_killed(
    scene: Scene, tmp_path: Path
) -> None:
    selectors = [{"cel": {"expression": f'device.driver == "{NAME}"'}}]
    scene.api.made(CLASSES, {"metadata": {"name": NAME}, "spec": {"selectors": selectors, "config": [CONFIG]}})
    served = serve(scene, tmp_path)
    requests = [{"name": "space", "exactly": {"deviceClassName": NAME}}]
    claims = f"/apis/resource.k8s.io/v1/namespaces/{scene.namespace}/resourceclaims"
    uid = scene.api.made(claims, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})["metadata"][
        "uid"
    ]
    pod = scene.pod("p", "c")
    scene.runs("p")

    (place,) = (tmp_path / "scratch").glob(f"slot-*/{uid}")
    container = scene.agent.containers(pod["metadata"]["uid"])["main"]
    assert container["environment"]["SCRATCH_DIR"] == "/data"
    assert sorted(path.name for path in scene.agent.cdi.iterdir()) == [
        f"k8s.{NAME}-claim_{uid}.json",
        f"{NAME}_metadata_{uid}_space.json",
    ]

    served.kill()
    scene.delete_pod("p")
    scene.delete_claim("c")
    served = serve(scene, tmp_path)
    scene.gone("p")
    wait_for("the directory to be gone", lambda: not place.exists())
    assert list(scene.agent.cdi.iterdir()) == []

    assert served.stop() == 0, "\n".join(served.output)
    for one in scene.api.listed(SLICES, fieldSelector=f"spec.driver={NAME}"):
        scene.api.delete(f"{SLICES}/{one['metadata']['name']}")
    scene.api.delete(f"{CLASSES}/{NAME}")
