"""The installation that a storm goes over: two of every part, a standby, and links between them that can be cut.

    clients  --\\
    agents   ----> api-1, api-2 --\\
                   worker-1, -2  ----> PostgreSQL a, b;  Redis

Whatever is named in brackets has a link of its own: [clients], [agents], [API], [workers].
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import yaml

from tests.builders import make_class, make_namespace, make_request, make_template
from tests.chaos import faults
from tests.chaos.clients import NAMESPACE, document, place
from tests.chaos.faults import Fault, Faults, Victim
from tests.chaos.links import Link
from tests.chaos.strikes import Threat
from tests.e2e.api_client import Hands
from tests.e2e.processes import ROOT, Process
from tests.e2e.production.databases import Databases, databases
from tests.e2e.production.installation import Installation, environment
from tests.services import Server, free_port, redis_server

NODES = ("node-1", "node-2", "node-3")
#: The simulated drivers of each.
DRIVERS = {"node-1": ("sim",), "node-2": ("sim", "sim-nic"), "node-3": ("sim", "sim-partitionable")}
#: The driver of the documentation, in a process of its own behind its sockets, on this node.
SERVED, SERVED_ON = "scratch.example.com", "node-2"
#: What pods ask for: a template of this name, of the class.
CLASSES = {"gpu": "gpu.example.com", "nic": "nic.example.com", "mig": "mig.example.com", "scratch": SERVED}
#: The victim that both PostgreSQL servers are: a failover finds them in order.
DATABASES = "databases"
#: Bytes of the disk that the first PostgreSQL has for itself: the database grows by some 350 MB an hour.
DISK = "2g"


@dataclass
class Field:
    """home: with the administrator's kubeconfig. server: how clients reach the API."""

    installation: Installation
    home: Path
    victims: dict[str, Victim]
    faults: Faults
    server: str = ""
    nodes: Sequence[str] = NODES
    templates: Sequence[str] = tuple(CLASSES)
    #: servers' logs, by name
    logs: dict[str, Callable[[], str]] = field(default_factory=dict)
    #: places where files of claims lie, as patterns below `home`: with the last claim the last of them goes
    files: Sequence[str] = ()
    #: what could not be made to go wrong here, and why
    missing: list[str] = field(default_factory=list)

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    def left_behind(self) -> list[str]:
        """Files of claims, from `home`."""
        found = (one for pattern in self.files for one in self.home.glob(pattern))
        return [str(one.relative_to(self.home)) for one in found if not one.name.startswith(".")]

    def excused(self, victim: str) -> bool:
        """Whether it may end by itself: a database whose disk is full does."""
        return victim == DATABASES


def furnish(api: Hands, templates: Sequence[str]) -> None:
    """What pods of the storm ask for."""
    api.apply(document(make_namespace(NAMESPACE)))
    for name in templates:
        expression = f"device.driver == '{CLASSES[name]}'"
        api.apply(document(make_class(CLASSES[name], expressions=[expression])))
        wanted = make_request("device", device_class=CLASSES[name])
        api.apply(document(make_template(name, namespace=NAMESPACE, requests=[wanted])))


def faults_of(field: Field, parts: Sequence[str], *, clocks: bool = True, frozen: float = 12.0) -> Faults:
    """What can happen to the processes of an installation. frozen: seconds at most."""
    found: Faults = {}
    library = faults.faketime()
    for name in parts:
        process = field.installation.processes[name]
        found |= faults.of_part(name, process, frozen=frozen)
        if name in field.nodes:
            found |= faults.of_files(name, process)
        if clocks and library:
            found |= faults.of_clock(name, process, library)
    if clocks and not library:
        field.missing.append("clocks are right: libfaketime is not installed (apt-get install libfaketime)")
    return found


# PostgreSQL ----------------------------------------------------------------------------------------------------------


class Pair:
    """Two PostgreSQL servers of which one takes writes; they may change places."""

    def __init__(self, made: Databases) -> None:
        self.made = made
        self.primary, self.standby = "a", "b"
        with (made.folder / "chaos.conf").open("w") as file:
            file.write("wal_keep_size = 64MB\nmax_wal_size = 128MB\nmax_connections = 300\narchive_mode = off\n")

    def start(self) -> None:
        self.made.make_primary("a")
        with (self.made.data("a") / "postgresql.conf").open("a") as conf:
            conf.write(f"include '{self.made.folder}/chaos.conf'\n")
        self.made.start("a")
        self._copy()

    def _copy(self) -> None:
        """The standby, anew from the primary, which then waits for it again with each commit."""
        data = self.made.data(self.standby)
        for path in data.iterdir() if data.exists() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        port = self.made.ports[self.primary]
        self.made.script("standby", f"host=127.0.0.1 port={port} user=postgres", data, self.standby)
        self.made.start(self.standby)
        with psycopg.connect(self.made.url(self.primary), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")

    def lose_the_primary(self) -> None:
        """Nothing happens where there is no standby to go on with, as while its disk is full."""
        if not self._follows():
            return
        self.made.servers[self.primary].kill()
        self.made.script("promote", self.made.data(self.standby))
        self.primary, self.standby = self.standby, self.primary

    def _follows(self) -> bool:
        data = self.made.data(self.standby)
        return self.made.servers[self.standby].running and (data / "standby.signal").exists()

    def have_a_standby(self) -> None:
        """What was the primary, or is broken otherwise, follows the primary of now."""
        if not self.made.servers[self.primary].running:
            self.made.servers[self.primary].start()
        if not (self.made.data(self.standby) / "standby.signal").exists():
            self.made.servers[self.standby].kill()
            self._copy()
        elif not self.made.servers[self.standby].running:
            self.made.servers[self.standby].start()


class Role:
    """The servers that have these roles (primary, standby) now, as one victim."""

    def __init__(self, pair: Pair, *roles: str) -> None:
        self._pair, self._roles = pair, roles
        self._whole = len(roles) > 1

    def _servers(self) -> list[Server]:
        return [self._pair.made.servers[getattr(self._pair, role)] for role in self._roles]

    @property
    def running(self) -> bool:
        return all(one.running for one in self._servers())

    def kill(self) -> None:
        for one in self._servers():
            one.kill()

    def start(self) -> None:
        if self._whole:
            self._pair.have_a_standby()
        for one in self._servers():
            if not one.running:
                one.start()

    def pause(self) -> None:
        for one in self._servers():
            one.pause()

    def resume(self) -> None:
        for one in self._servers():
            one.resume()


@contextmanager
def _own_disk(folder: Path, owner: str | None) -> Iterator[bool]:
    """A small disk at `folder`, where we may mount one. Whether it is there."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    if owner is not None:
        shutil.chown(folder, owner)
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _of_databases(pair: Pair, *, own_disk: bool) -> Faults:
    found: Faults = {}
    for role in ("primary", "standby"):
        found |= faults.of_process(role, Role(pair, role))
    found["fail over"] = Fault(pair.lose_the_primary, pair.have_a_standby, Threat("", 4.0, 2.0))
    if own_disk:
        found |= faults.of_disk("database a", pair.made.data("a"))
    threats = {name: Threat(DATABASES, one.threat.longest, one.threat.weight) for name, one in found.items()}
    return {name: Fault(one.begin, one.end, threats[name]) for name, one in found.items()}


# All of it -----------------------------------------------------------------------------------------------------------


@contextmanager
def prepared(home: Path) -> Iterator[Field]:
    """Started, ready and furnished."""
    with ExitStack() as opened:
        redis = opened.enter_context(redis_server())
        made = opened.enter_context(databases())
        own_disk = opened.enter_context(_own_disk(made.data("a"), made.user))
        pair = Pair(made)
        pair.start()
        victims: dict[str, Victim] = {"redis": redis, DATABASES: Role(pair, "primary", "standby")}
        yield from _started(home, pair, redis, victims, own_disk=own_disk)


def _started(home: Path, pair: Pair, redis: Server, victims: dict[str, Victim], *, own_disk: bool) -> Iterator[Field]:
    ports = {name: free_port() for name in ("api-1", "api-2")}
    servers = [("127.0.0.1", port) for port in ports.values()]
    links = {"clients": [Link(*servers)], "agents": [Link(*servers)]}
    settings = {}
    for group in ("API", "workers"):
        own = [Link(("127.0.0.1", port)) for port in pair.made.ports.values()]
        to_redis = Link(("127.0.0.1", int(redis.url.rpartition(":")[2].partition("/")[0])))
        links |= {f"{group} to the databases": own, f"{group} to Redis": [to_redis]}
        hosts = ",".join(link.address for link in own)
        settings[group] = {
            "MANCIPLE_DATABASE_URL": f"postgresql://postgres@{hosts}/postgres",
            "MANCIPLE_REDIS_URL": f"redis://{to_redis.address}/0",
        }
    env = {"PATH": pair.made.path, **environment(home, pair.made.either, redis.url)}
    installation = Installation(home, env, web="")
    server, files = f"https://{links['clients'][0].address}", ("cdi/*/*", "nodes/*/scratch/*/*")
    found = Field(installation, home, victims, {}, server=server, files=files)
    try:
        installation.manage("migrate", "-v", "0")
        nodes = [word for node in NODES for word in ("--node", node)]
        installation.manage("bootstrap", "--server", f"https://{links['agents'][0].address}", *nodes)
        _start_control_plane(installation, settings, ports)
        api = Hands(home / "kubeconfig")
        furnish(api, list(CLASSES))
        controls = {node: _start_agent(installation, node) for node in NODES}
        _start_driver(installation, SERVED_ON)
        for node in NODES:
            api.wait_ready("Node", node)
        victims |= installation.processes
        found.faults = faults_of(found, list(installation.processes))
        found.faults |= faults.of_process("redis", redis) | _of_databases(pair, own_disk=own_disk)
        for name, own in links.items():
            found.faults |= faults.of_link(name, *own)
        for node, control in controls.items():
            found.faults |= faults.of_driver(node, control)
            found.faults |= _of_node(node, api, installation.processes[node])
        if not own_disk:
            found.missing.append("no database's disk is filled: only root can mount one")
        found.logs = {f"postgresql-{name}": one.log for name, one in pair.made.servers.items()} | {"redis": redis.log}
        yield found
    finally:
        installation.end()
        for own in links.values():
            for link in own:
                link.close()


def _start_control_plane(
    installation: Installation, settings: dict[str, dict[str, str]], ports: dict[str, int]
) -> None:
    own = installation.env
    installation.env = {**own, **settings["API"]}
    for name, port in ports.items():
        installation.serve(name, port)
    installation.env = {**own, **settings["workers"]}
    for number in (1, 2):
        installation.start(f"worker-{number}", installation.worker(number))
    installation.env = own


def _start_agent(installation: Installation, node: str) -> Path:
    """Returns where one says what its drivers do wrong."""
    folder = installation.home / "nodes" / node
    control = folder / "faults.yaml"
    entries = [{"driver": name, "settings": {"control": str(control)}} for name in DRIVERS[node]]
    (folder / "drivers.yaml").write_text(yaml.safe_dump({"drivers": entries}))
    (folder / "plugins" / "plugins_registry").mkdir(parents=True)
    drivers = ("--driver", "none", "--drivers-file", str(folder / "drivers.yaml"))
    options = (*drivers, "--plugin-dir", str(folder / "plugins"))
    installation.start(node, installation.agent(node, *options))
    return control


def _start_driver(installation: Installation, node: str) -> None:
    folder = installation.home / "nodes" / node
    (folder / "scratch").mkdir()
    (folder / "scratch.yaml").write_text(yaml.safe_dump({"root": str(folder / "scratch")}))
    command = [
        *(sys.executable, "-m", "nodeagent.serve", "scratch_driver:ScratchDriver", "--node-name", node),
        *("--kubeconfig", str(folder / "kubeconfig"), "--settings", str(folder / "scratch.yaml")),
        *("--registrar-dir", str(folder / "plugins" / "plugins_registry")),
        *("--plugin-dir", str(folder / "plugins" / SERVED), "--cdi-dir", str(installation.home / "cdi" / node)),
    ]
    own = installation.env
    installation.env = {**own, "PYTHONPATH": str(ROOT / "docs" / "examples")}
    installation.start("the scratch driver", command, forked=False)
    installation.env = own


def _of_node(node: str, api: Hands, agent: Process) -> Faults:
    """Somebody deletes it by mistake, and starts its agent again, as docs/how-to/operating.md says."""

    def delete() -> None:
        with suppress(httpx.TransportError, AssertionError):
            api.delete(place("Node", node))

    def again() -> None:
        agent.kill()
        agent.start()

    return {f"delete {node}": Fault(delete, again, Threat(node, 8.0, 0.5))}
