"""PostgreSQL, Redis, an API process, beat, two workers and three agents: the command lines of deploy/systemd."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.e2e.flow import (
    Manifest,
    assert_all_is_given_back,
    assert_cdi_files_are_valid,
    assert_claims_are_held,
    assert_containers_got_their_devices,
    run_manifest,
)
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, Process, wait_for
from tests.services import Server, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

NODES = ("node-1", "node-2", "node-3")
UNITS = ROOT / "deploy" / "systemd"


def new_database(server: Server, name: str) -> str:
    """The URL of an empty database of this name."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.url.rpartition("/")[0] + f"/{name}"


def exec_start(unit: str, **replace: str) -> list[str]:
    """The ExecStart line of a unit, with this machine's interpreter, ports and folders."""
    line = next(
        text.removeprefix("ExecStart=")
        for text in (UNITS / unit).read_text().splitlines()
        if text.startswith("ExecStart=")
    )
    for old, new in replace.items():
        line = line.replace(PLACES[old], new)
    words = shlex.split(line.replace("/opt/manciple/.venv/bin", str(Path(sys.executable).parent)))
    assert not any(word.startswith("/opt/") for word in words), words
    return words


#: What of a unit belongs to the machine it is installed on.
PLACES = {
    "api": "0.0.0.0:6443",
    "web": "127.0.0.1:8000",
    "instance": "%i",
    "kubeconfig": "/etc/manciple/nodes/%i/kubeconfig",
    "state": "/var/lib/manciple-agent/%i",
    "cdi": "/var/run/cdi",
}


@dataclass
class Installation:
    """A production installation on this machine's loopback."""

    home: Path
    env: dict[str, str]
    processes: dict[str, Process] = field(default_factory=dict)

    def manage(self, *arguments: str) -> None:
        done = Process([sys.executable, "manage.py", *arguments], env=self.env).start()
        assert done.wait() == 0, "\n".join(done.output)

    def start(self, name: str, command: list[str]) -> None:
        self.processes[name] = Process(command, env=self.env).start()

    def worker(self, number: int) -> list[str]:
        return exec_start("manciple-worker@.service", instance=str(number))

    def agent(self, node: str) -> list[str]:
        return exec_start(
            "manciple-agent@.service",
            kubeconfig=str(self.home / "nodes" / node / "kubeconfig"),
            state=str(self.home / "nodes" / node),
            cdi=str(self.home / "cdi" / node),
            instance=node,
        )


@pytest.fixture(scope="module")
def installation(
    tmp_path_factory: pytest.TempPathFactory, postgresql: Server, redis_server: Server
) -> Iterator[Installation]:
    home = tmp_path_factory.mktemp("production")
    api, web = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    env = {
        "PATH": str(Path(sys.executable).parent) + ":/usr/local/bin:/usr/bin:/bin",
        "MANCIPLE_HOME": str(home),
        "MANCIPLE_DATABASE_URL": new_database(postgresql, "production"),
        "MANCIPLE_REDIS_URL": redis_server.url,
        "MANCIPLE_SECRET_KEY": "for the test run only, forty characters long",
        "MANCIPLE_ENCRYPTION_KEYS": "for the test run only",
        "MANCIPLE_LOCAL_CONNECTIONS": "1",  # the agents run beside the API server
    }
    made = Installation(home, env)
    made.manage("migrate", "-v", "0")
    nodes = [word for node in NODES for word in ("--node", node)]
    made.manage("bootstrap", "--server", f"https://{api}", *nodes)
    made.start("api", exec_start("manciple-api.service", api=api, web=web))
    made.start("beat", exec_start("manciple-beat.service"))
    for number in (1, 2):
        made.start(f"worker-{number}", made.worker(number))
    wait_for("the API", lambda: answers(f"http://{web}/readyz"))
    for node in NODES:
        made.start(node, made.agent(node))
    yield made
    for process in made.processes.values():
        process.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


@pytest.fixture
def kubectl(installation: Installation, kubectl_program: str) -> Iterator[Kubectl]:
    kubectl = Kubectl(installation.home / "kubeconfig", kubectl_program)
    wait_for("the nodes", lambda: all(kubectl.api.find(f"/api/v1/nodes/{node}") for node in NODES))
    kubectl("wait", "--for=condition=Ready", *(f"node/{node}" for node in NODES))
    yield kubectl
    installation.manage("check_invariants")


#: Those for the plain simulated GPUs, which are what the agents of this installation have.
OTHER_DRIVERS = ("partition.yaml", "shared-nic.yaml")
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))
MANIFESTS = [Manifest(path) for path in EXAMPLES if path.name not in OTHER_DRIVERS]
DEMO = ROOT / "manciple" / "processes" / "demo.yaml"


def test_the_flow_passes_with_every_part_a_process_of_its_own(installation: Installation, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(DEMO))
    for manifest in MANIFESTS:
        run_manifest(kubectl, manifest)
        assert_cdi_files_are_valid(installation.home, assert_claims_are_held(kubectl, manifest))
        assert_containers_got_their_devices(kubectl, installation.home, manifest)
    installation.manage("check_invariants")
    for manifest in MANIFESTS:
        kubectl("delete", "-f", str(manifest.path))
    for manifest in MANIFESTS:
        assert_all_is_given_back(kubectl, installation.home, manifest)


def test_a_killed_worker_costs_a_delay_and_no_pod(installation: Installation, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(DEMO))
    manifest = next(manifest for manifest in MANIFESTS if manifest.name == "two-pods")
    kubectl("apply", "-f", str(manifest.path))
    for name in ("worker-1", "worker-2"):
        installation.processes[name].kill()
    installation.start("worker-1", installation.worker(1))
    run_manifest(kubectl, manifest)
    kubectl("delete", "-f", str(manifest.path))
    assert_all_is_given_back(kubectl, installation.home, manifest)
    installation.start("worker-2", installation.worker(2))


def test_a_killed_agent_forgets_no_claim(installation: Installation, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(DEMO))
    manifest = next(manifest for manifest in MANIFESTS if manifest.name == "shared-claim")
    run_manifest(kubectl, manifest)
    for node in NODES:
        installation.processes[node].kill()
    kubectl("delete", "-f", str(manifest.path), "--wait=false")
    for node in NODES:
        installation.start(node, installation.agent(node))
    assert_all_is_given_back(kubectl, installation.home, manifest)
