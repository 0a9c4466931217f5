"""docs/high-availability.md, played with the scripts of deploy/postgresql: API processes restarted one after the other
behind a balancer, the primary killed and its synchronous standby promoted, a backup restored to a chosen moment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from claims.kinds.pods import Pod
from tests.builders import make_pod
from tests.e2e.api_client import Hands
from tests.e2e.processes import ROOT, wait_for
from tests.e2e.production.balancer import Balancer
from tests.e2e.production.conftest import DEMO
from tests.e2e.production.installation import Installation, exec_start
from tests.e2e.production.scene import Scene
from tests.services import Server, _postgresql_answers, _unprivileged_user, find_binary, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

SCRIPTS = ROOT / "deploy" / "postgresql"
NODE = "node-1"


@dataclass
class Databases:
    """PostgreSQL servers that are made, started and stopped as the scripts of deploy/postgresql have it."""

    folder: Path
    user: str | None
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in ("a", "b")})
    servers: dict[str, Server] = field(default_factory=dict)

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    def data(self, name: str) -> Path:
        return self.folder / name

    def url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.ports[name]}/postgres"

    @property
    def either(self) -> str:
        servers = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        return f"postgresql://postgres@{servers}/postgres"

    def run(self, *command: str) -> str:
        """As the server's own user, with PostgreSQL's programs on the path."""
        path = f"{Path(find_binary('postgres')).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            command, user=self.user, cwd=self.folder, env={"PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def script(self, name: str, *arguments: object) -> str:
        copy = self.folder / f"run-{name}"  # where every user may read it
        shutil.copy(SCRIPTS / name, copy)
        return self.run("sh", str(copy), *map(str, arguments))

    def make_primary(self, name: str) -> None:
        self.run("initdb", "-D", str(self.data(name)), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = (SCRIPTS / "primary.conf").read_text().replace("/var/lib/postgresql/archive", str(self.archive))
        with (self.data(name) / "postgresql.conf").open("a") as file:
            file.write(f"\n{settings}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{self.folder}'\n")

    def start(self, name: str, *, at: str = "") -> Server:
        """at: whose port it has."""
        port = self.ports[at or name]
        command = [find_binary("postgres"), "-D", str(self.data(name)), "-c", f"port={port}", "-c", "fsync=off"]
        server = Server(
            command, url=self.url(at or name), folder=self.folder, answers=_postgresql_answers, user=self.user
        )
        server.start()
        self.servers[name] = server
        return server

    def ask(self, name: str, statement: str) -> object:
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            (found,) = connection.execute(statement).fetchone() or (None,)
        return found

    def stop(self) -> None:
        for server in self.servers.values():
            server.kill()


@contextmanager
def databases() -> Iterator[Databases]:
    user = _unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="manciple-ha-"))
    made = Databases(folder, user)
    made.archive.mkdir()
    for path in (folder, made.archive):
        if user is not None:
            shutil.chown(path, user)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Available:
    """An installation of two API processes behind a balancer."""

    installation: Installation
    databases: Databases
    ports: dict[str, int]
    api: Hands

    def serve(self, name: str) -> None:
        command = exec_start("manciple-api.service", api=f"127.0.0.1:{self.ports[name]}", web="127.0.0.1:0")
        self.installation.start(name, command)
        wait_for(f"{name} to be ready", lambda: self.ready(name))

    def ready(self, name: str) -> bool:
        try:
            return httpx.get(f"https://127.0.0.1:{self.ports[name]}/readyz", verify=False).is_success
        except httpx.HTTPError:
            return False

    def start_the_rest(self) -> None:
        self.installation.start("worker-1", self.installation.worker(1))
        for number in (1, 2):
            self.installation.start(f"beat-{number}", exec_start("manciple-beat.service"))

    def stop_everything_but_agents(self) -> None:
        for name, process in list(self.installation.processes.items()):
            if name != NODE:
                process.kill()
                del self.installation.processes[name]


@pytest.fixture
def available(tmp_path: Path, redis_server: Server) -> Iterator[Available]:
    ports = {name: free_port() for name in ("api-1", "api-2")}
    balancer = Balancer([("127.0.0.1", port) for port in ports.values()])
    with databases() as found:
        found.make_primary("a")
        found.start("a")
        found.script("standby", f"host=127.0.0.1 port={found.ports['a']} user=postgres", found.data("b"), "b")
        found.start("b")
        env = {
            "PATH": f"{Path(find_binary('pg_basebackup')).parent}:{os.environ['PATH']}",
            "MANCIPLE_HOME": str(tmp_path / "home"),
            "MANCIPLE_DATABASE_URL": found.either,
            "MANCIPLE_REDIS_URL": redis_server.url,
            "MANCIPLE_SECRET_KEY": "for the test run only, forty characters long",
            "MANCIPLE_ENCRYPTION_KEYS": "for the test run only",
            "MANCIPLE_LOCAL_CONNECTIONS": "1",
        }
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
        self.failures = 0

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
            try:
                answer = self._scene.api.attempt(place, self._scene.document(pod))
            except httpx.TransportError:
                self.failures += 1
                continue
            if answer.is_success:
                self.made.append(pod.metadata.name)
            else:
                self.failures += 1


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


def test_restarts_failover_and_restore_lose_nothing_that_they_need_not(available: Available) -> None:
    scene = Scene(available.api, namespace="demo-2")
    available.api.apply_file(DEMO)
    template = available.api.found("ResourceClaimTemplate", "one-gpu", "demo")
    scene.api.made(
        scene.place("ResourceClaimTemplate"),
        {**template, "metadata": {"name": "one-gpu", "namespace": scene.namespace}},
    )
    available.installation.manage("doctor", *(word for name in SOUND for word in ("--only", name)))
    _restart_one_after_the_other(available, scene)
    _fail_over(available, scene)
    _restore(available, scene)


def _restart_one_after_the_other(available: Available, scene: Scene) -> None:
    """Pods go on being created and placed all the time."""
    for name in available.ports:
        assert available.installation.processes[name].stop() == 0
        run(scene, f"during-{name}")
        available.serve(name)
    available.installation.processes["beat-1"].kill()


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
    available.installation.check_invariants()


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
