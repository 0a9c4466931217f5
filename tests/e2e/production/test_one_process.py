"""The smallest installation: PostgreSQL, one process that serves and works, no Redis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.builders import make_pod
from tests.e2e.api_client import Hands
from tests.e2e.processes import Process, answers, wait_for
from tests.e2e.production.conftest import DEMO
from tests.e2e.production.installation import Installation, environment, exec_start, new_database
from tests.e2e.production.scene import Scene
from tests.services import Server, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

NODE = "node-1"
#: MiB (PSS), as docs/how-to/installing.md says; about 130 are used.
MOST_MEMORY = 200


@dataclass
class OneProcess:
    """Started by its unit. address: of the API."""

    installation: Installation
    address: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")

    def start(self, name: str = "one", *, address: str = "") -> Process:
        """address: of the API of another one than this."""
        installation, at = self.installation, address or self.address
        command = exec_start("manciple.service", api=at, web="127.0.0.1:0")
        installation.start(name, command, forked=False)
        wait_for(f"{name} to be ready", lambda: answers(f"https://{at}/readyz"))
        return installation.processes[name]


@pytest.fixture
def system(tmp_path: Path, postgresql: Server) -> Iterator[OneProcess]:
    env = environment(tmp_path / "home", new_database(postgresql, "one-process"), "")
    made = OneProcess(Installation(tmp_path / "home", env, web=""))
    try:
        made.installation.manage("migrate", "-v", "0")
        made.installation.manage("bootstrap", "--server", f"https://{made.address}", "--node", NODE)
        made.start()
        made.installation.start(NODE, made.installation.agent(NODE))
        yield made
    finally:
        made.installation.end()


def memory(process: Process) -> float:
    """MiB (PSS)."""
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return int(rollup.partition("Pss:")[2].split()[0]) / 1024


def test_one_process_runs_pods_and_goes_on_after_it_was_killed(system: OneProcess) -> None:
    installation = system.installation
    api = Hands(installation.home / "kubeconfig")
    api.apply_file(DEMO)
    api.wait_ready("Node", NODE)
    scene = Scene(api, namespace="demo-2")
    template = api.found("ResourceClaimTemplate", "one-gpu", "demo")
    api.made(
        scene.place("ResourceClaimTemplate"),
        {**template, "metadata": {"name": "one-gpu", "namespace": scene.namespace}},
    )
    first = _run(scene, "first")
    process = installation.processes["one"]
    assert memory(process) < MOST_MEMORY
    wait_for("the doctor to find it sound", lambda: "0 problems, 0 warnings" in _processes_by_doctor(installation))
    process.kill()
    process = system.start()
    assert _run(scene, "second") != first
    assert _devices(scene, "first") == first
    _let_another_work_beside_it(system, scene)
    assert process.stop() == 0
    installation.check_invariants()


def _let_another_work_beside_it(system: OneProcess, scene: Scene) -> None:
    """Without Redis they learn of each other's writes from the log: the first one places a pod of the second's API."""
    address = f"127.0.0.1:{free_port()}"
    another = system.start("another", address=address)
    another.line("another process works on this database: while MANCIPLE_REDIS_URL is not set")
    installation = system.installation
    wait_for("the doctor to see both", lambda: "MANCIPLE_REDIS_URL is not set" in _processes_by_doctor(installation))
    kubeconfig = installation.home / "another"
    kubeconfig.write_text((installation.home / "kubeconfig").read_text().replace(system.address, address))
    scene.api = Hands(kubeconfig)
    scene.delete("Pod", "first")
    scene.gone("Pod", "first")
    _run(scene, "third")
    assert another.stop() == 0


def _run(scene: Scene, name: str) -> list[str]:
    """The devices of a pod that runs."""
    scene.make(make_pod(name, templates={"gpu": "one-gpu"}))
    scene.runs(name)
    return _devices(scene, name)


def _devices(scene: Scene, pod: str) -> list[str]:
    return [device for claim in scene.made_for(pod) for device in scene.devices(claim)]


def _processes_by_doctor(installation: Installation) -> str:
    return installation.manage("doctor", "--only", "redis", "--only", "processes")
