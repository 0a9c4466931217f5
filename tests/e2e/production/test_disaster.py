"""docs/how-to/high-availability.md, played with the scripts of deploy/postgresql: API processes restarted one after the
other behind a balancer, the primary killed and its synchronous standby promoted, a backup restored to a chosen moment.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from claims.kinds.pods import Pod
from tests.builders import make_pod
from tests.chaos.links import Link
from tests.e2e.api_client import Hands
from tests.e2e.processes import Process, wait_for
from tests.e2e.production.conftest import DEMO
from tests.e2e.production.databases import Databases, databases
from tests.e2e.production.installation import Installation, environment
from tests.e2e.production.scene import Scene
from tests.services import Server, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

NODE = "node-1"


@dataclass
class Available:
    """An installation of two API processes behind a balancer."""

    installation: Installation
    databases: Databases
    ports: dict[str, int]
    api: Hands

    def serve(self, name: str) -> None:
        self.installation.serve(name, self.ports[name])

    def start_the_rest(self) -> None:
        self.installation.start("worker-1", self.installation.worker(1))

    def stop_everything_but_agents(self) -> None:
        for name, process in list(self.installation.processes.items()):
            if name != NODE:
                process.kill()
                del self.installation.processes[name]


@pytest.fixture
def available(tmp_path: Path, redis_server: Server) -> Iterator[Available]:
    ports = {name: free_port() for name in ("api-1", "api-2")}
    balancer = Link(*(("127.0.0.1", port) for port in ports.values()))
    with databases() as found:
        found.make_primary("a")
        found.start("a")
        found.script("standby", f"host=127.0.0.1 port={found.ports['a']} user=postgres", found.data("b"), "b")
        found.start("b")
        env = {"PATH": found.path, **environment(tmp_path / "home", found.either, redis_server.url)}
        installation = Installation(tmp_path / "home", env, web="")
        try:
            installation.manage("migrate", "-v", "0")
            installation.manage("bootstrap", "--server", f"https://{balancer.address}", "--node", NODE)
            made = Available(installation, found, ports, Hands(tmp_path / "home" / "kubeconfig"))
            for name in ports:
                made.serve(name)
            made.start_the_rest()
            installation.start(NODE, installation.agent(NODE))
            made.api.apply_file(DEMO)
            made.api.wait_ready("Node", NODE)
            yield made
        finally:
            installation.end()
            balancer.close()


class Client:
    """Creates pods one after the other, until stopped; remembers those that it was told are made."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.made: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)

    def _run(self) -> None:
        place, number = self._scene.place("Pod"), 0
        while not self._stopped.wait(0.05):
            number += 1
            pod = make_pod(f"written-{number}")
            with suppress(httpx.TransportError):
                if self._scene.api.attempt(place, self._scene.document(pod)).is_success:
                    self.made.append(pod.metadata.name)


def one_gpu(name: str) -> Pod:
    return make_pod(name, templates={"gpu": "one-gpu"})


def run(scene: Scene, pod: str) -> None:
    """Create it, again where a connection broke, as clients do; wait until it runs."""

    def made() -> bool:
        with suppress(httpx.TransportError):
            answer = scene.api.attempt(scene.place("Pod"), scene.document(one_gpu(pod)))
            return answer.is_success or answer.status_code == httpx.codes.CONFLICT
        return False

    wait_for(f"{pod} to be created", made)
    scene.runs(pod)


#: Of the doctor's checkups those that ask PostgreSQL and Redis; the settings tell, rightly, that fsync is off here.
SOUND = ("database", "clock", "tables", "database upkeep", "replicas", "archived log", "redis", "processes")


def devices_of(scene: Scene, pod: str) -> list[str]:
    return [device for claim in scene.made_for(pod) for device in scene.devices(claim)]


#: Pods that are deleted before the primary dies.
DELETED = ("during-worker-1", "during-agent")


@pytest.mark.long
def test_restarts_failover_and_restore_lose_nothing_that_they_need_not(available: Available) -> None:
    scene = Scene(available.api, namespace="demo-2")
    available.api.apply_file(DEMO)
    template = available.api.found("ResourceClaimTemplate", "one-gpu", "demo")
    scene.api.made(
        scene.place("ResourceClaimTemplate"),
        {**template, "metadata": {"name": "one-gpu", "namespace": scene.namespace}},
    )
    wait_for("the doctor to find every part sound", lambda: _is_sound(available.installation))
    _restart_one_after_the_other(available, scene)
    _fail_over(available, scene)
    _restore(available, scene)


def _is_sound(installation: Installation) -> bool:
    """Not before each process has given a sign of life."""
    asked = [word for name in SOUND for word in ("--only", name)]
    return Process([sys.executable, "manage.py", "doctor", *asked], env=installation.env).start().wait() == 0


def _restart_one_after_the_other(available: Available, scene: Scene) -> None:
    """Every part. Pods go on being created and placed all the time, and run on."""
    parts = available.installation.processes
    for name in available.ports:
        assert parts[name].stop() == 0
        run(scene, f"during-{name}")
        available.serve(name)
    started = {pod: containers_of(scene, pod) for pod in ("during-api-1", "during-api-2")}
    available.installation.start("worker-2", available.installation.worker(2))
    parts["worker-1"].signal(signal.SIGTERM)
    run(scene, "during-worker-1")
    assert parts.pop("worker-1").wait() == 0
    assert parts[NODE].stop() == 0
    parts[NODE].start()
    run(scene, "during-agent")
    assert {pod: containers_of(scene, pod) for pod in started} == started
    for pod in DELETED:  # the node has few devices
        scene.delete("Pod", pod)
        scene.gone("Pod", pod)


def containers_of(scene: Scene, pod: str) -> object:
    """When they were started, among others."""
    return [one["state"] for one in scene.find("Pod", pod)["status"]["containerStatuses"]]


def _fail_over(available: Available, scene: Scene) -> None:
    """The primary dies while clients write: whatever they were told is made is there."""
    before = {pod: devices_of(scene, pod) for pod in ("during-api-1", "during-api-2")}
    client = Client(scene)
    client.start()
    wait_for("some pods", lambda: len(client.made) > 5)
    available.databases.servers["a"].kill()
    told = len(client.made)
    available.databases.script("promote", available.databases.data("b"))
    wait_for("writes after the failover", lambda: len(client.made) > told + 5)
    client.stop()
    there = set(available.api.names("Pod", scene.namespace))
    assert set(client.made) - there == set()
    run(scene, "after-failover")
    held = [*(device for devices in before.values() for device in devices), *devices_of(scene, "after-failover")]
    assert {pod: devices_of(scene, pod) for pod in before} == before
    assert len(set(held)) == len(held) == 3
    # Who gives back claims may have been interrupted: that costs a delay.
    wait_for("the claims of deleted pods to go", lambda: not _claims_of_deleted(available, scene))
    available.installation.check_invariants()


def _claims_of_deleted(available: Available, scene: Scene) -> list[str]:
    return [name for name in available.api.names("ResourceClaim", scene.namespace) if name.startswith(DELETED)]


def _restore(available: Available, scene: Scene) -> None:
    """To a moment before a pod got its device: its node stops it, says so, and the device is given once."""
    found = available.databases
    backups = found.folder / "backups"
    available.installation.manage("backup", "--to", str(backups))
    moment = str(found.ask("b", "SELECT clock_timestamp()::text"))
    run(scene, "lost")
    lost = devices_of(scene, "lost")
    segment = str(found.ask("b", "SELECT pg_walfile_name(pg_switch_wal())"))
    wait_for("the log to be archived", (found.archive / segment).exists)
    available.stop_everything_but_agents()
    found.servers["b"].stop()
    (backup,) = backups.iterdir()
    for path in (backups, backup, *backup.iterdir()):  # the server's user restores it
        path.chmod(0o755)
    found.script("restore", backup, found.archive, found.data("restored"), moment)
    found.start("restored", at="b")
    wait_for("the restored server to take writes", lambda: found.ask("b", "SELECT NOT pg_is_in_recovery()"))
    available.installation.manage("restored", "--force")
    for name in available.ports:
        available.serve(name)
    available.start_the_rest()
    assert scene.phase("lost") == "gone"
    told = wait_for("the node to tell of the pod", lambda: _events(available, "PodUnknown"))
    assert any(device.split(" ")[1] in one for one in told for device in lost)
    run(scene, "next")
    scene.runs("during-api-1", "during-api-2")
    available.installation.check_invariants()


def _events(available: Available, reason: str) -> list[str]:
    found = available.api.listed("/api/v1/events", fieldSelector=f"reason={reason}")
    return [one["message"] for one in found]
