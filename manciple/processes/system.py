"""The embedded system: everything that `manage.py up` starts, in order, and stops, in reverse.

 1. listen on both addresses, so that a taken port is told before anything else happens
 2. bring the database up to date, make certificates, accounts and kubeconfig files
 3. make what every cluster has (namespaces), and the demo
 4. start the Celery worker
 5. serve the API and the pages
 6. start the nodes, if any; /readyz answers 200 once they have published their devices

Steps 1 to 4 and 6 run in threads of this process; step 5 is the main thread's event loop, until a signal stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from django.conf import settings
from django.core.management import call_command
from django.db import close_old_connections, connections

from inventory.kinds.early import controllers_allocate
from inventory.models import Node, Pool
from manciple import layout
from manciple.api import certificates, health, verbs
from manciple.api.kubeconfig import Server
from manciple.api.streams import close_streams
from manciple.asgi import application
from manciple.audit import trail
from manciple.audit.searching import Search
from manciple.audit.shipping import Shipment
from manciple.processes import accounts, embedded_worker, keys, node_bootstrap
from manciple.processes.home import Home
from manciple.processes.listeners import Address, Listeners, Tls, bind, warm
from manciple.processes.standing import ensure_standing_objects
from manciple.store import objects
from manciple.store.event_log import Tail
from manciple.telemetry import processes
from manciple.wire import codec
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import registry
from nodeagent.agent import Agent
from nodeagent.config import AgentConfig, ListenAddress, read_kubeconfig
from nodeagent.node.catalog import DriverEntry, create_drivers

if TYPE_CHECKING:
    from manciple.processes.demo_controller import DemoController

#: What a simulated node offers besides its GPUs: a server's worth, whatever this machine has.
CPU, MEMORY = "32", "256Gi"
#: The drivers of a node with plain GPUs; of one with a GPU in partitions and with interfaces that claims share.
GPU_DRIVERS = (DriverEntry(driver="sim"),)
MIXED_DRIVERS = (
    DriverEntry(driver="sim-partitionable", settings={"gpus": 1}),
    DriverEntry(driver="sim-nic", settings={"nics": 2}),
)
#: The driver of the demo of a driver's controller, on each node while the gate of such controllers is on.
CONTROLLED_DRIVER = DriverEntry(driver="manciple.controller_kit.examples.network_accelerators:Fabric")
#: Seconds that stopping waits for the agents; and for everything together, before the process ends whatever still runs.
STOP_SECONDS, END_SECONDS = 10.0, 25.0


def plan(*, nodes: int, mixed_nodes: int, more: Sequence[DriverEntry] = ()) -> dict[str, Sequence[DriverEntry]]:
    """The simulated nodes: their names, in order, and drivers. more: that each of them has."""
    plain: dict[str, Sequence[DriverEntry]] = {f"node-{n}": (*GPU_DRIVERS, *more) for n in range(1, nodes + 1)}
    return plain | {f"mixed-{n}": (*MIXED_DRIVERS, *more) for n in range(1, mixed_nodes + 1)}


class SimulatedNodes:
    """The simulated nodes: an agent each, in a thread, over TLS like any other client.

    `start()` once the API listens; they end when `stopping` is set.

    drivers: of each node, by its name.
    """

    def __init__(self, home: Home, *, drivers: Mapping[str, Sequence[DriverEntry]], stopping: threading.Event) -> None:
        self.names = list(drivers)
        self._drivers = drivers
        self._home = home
        self._stopping = stopping
        self._agents: list[Agent] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._agents = [self._agent(name) for name in self.names]
        self._threads = [
            threading.Thread(target=agent.run, args=(self._stopping,), name=agent.config.node_name, daemon=True)
            for agent in self._agents
        ]
        for thread in self._threads:
            thread.start()

    def started(self) -> int:
        """How many agents take pods by now."""
        return sum(agent.ready.is_set() for agent in self._agents)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _agent(self, name: str) -> Agent:
        state = self._home.node_state(name)
        access = read_kubeconfig(self._home.node_kubeconfig(name), ca_target=state / "ca.crt")
        config = AgentConfig(
            server=access.server,
            token=access.token,
            ca_file=access.ca_file,
            node_name=name,
            state_dir=state,
            cdi_dir=self._home.cdi / name,
            listen=ListenAddress("127.0.0.1", 0),
            cpu=CPU,
            memory=MEMORY,
        )
        return Agent(config, create_drivers(self._drivers[name], node_name=name))


# When the embedded system is ready: an applied pod could run now. `/readyz` asks these beside the checks of the API and
# of the worker; each raises `NotReady` saying what is missing.
def register_readiness(nodes: SimulatedNodes) -> None:
    """Let `/readyz` wait for everything that a pod needs of nodes."""

    def agents() -> None:
        started = nodes.started()
        if started < len(nodes.names):
            raise health.NotReady(f"{started} of {len(nodes.names)} node agents have started")

    def registered() -> None:
        ready = Node.objects.filter(ready=True, name__in=nodes.names).count()
        if ready < len(nodes.names):
            raise health.NotReady(f"{ready} of {len(nodes.names)} nodes are ready")

    def devices() -> None:
        pools = Pool.objects.filter(complete=True, node_name__in=nodes.names)
        published = pools.values("node_name").distinct().count()
        if published < len(nodes.names):
            raise health.NotReady(f"{published} of {len(nodes.names)} nodes have published their devices")

    health.register("node-agents", agents)
    health.register("nodes-ready", registered)
    if registry.served("resource.k8s.io", "v1", "resourceslices"):  # else agents publish nothing
        health.register("devices-published", devices)


# What a first visitor finds: classes for the simulated devices, and a template to claim a GPU with. Written the way a
# person would, through `kubectl apply`'s own path, and only where nothing of that name exists: a changed or deleted
# demo stays as its owner left it once the namespace is there.

NAMESPACE, DEMO = "demo", Path(__file__).with_name("demo.yaml")
_BUILDER = Identity("manciple:demo", (MASTERS,))


def build_demo(path: Path = DEMO, namespace: str = NAMESPACE) -> bool:
    """Make the objects of a demo; returns whether it did.

    It does not if the namespace exists, which means that the demo was made before, nor while one of its kinds is not
    served: a later start makes it then.
    """
    if objects.get(registry.by_resource("namespaces"), "", namespace) is not None:
        return False
    documents = [one for one in yaml.safe_load_all(path.read_text()) if one]
    served = [
        (kind, one)
        for one in documents
        if (kind := registry.find_kind(one["apiVersion"], one["kind"])) and any(registry.versions_of(kind))
    ]
    if len(served) < len(documents):
        return False
    for kind, document in served:
        obj = codec.decode_value(kind.type, document)
        if objects.get(kind, obj.metadata.namespace, obj.metadata.name) is None:
            verbs.create(kind, obj, namespace=obj.metadata.namespace, identity=_BUILDER)
    return True


#: How often the start looks whether the system is ready, and says what is missing (seconds).
LOOK_AGAIN, TOLD_EVERY = 0.1, 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line of `manage.py up`."""

    home: Path
    api: Address
    web: Address
    nodes: int
    mixed_nodes: int
    demo: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedSystem:
    """What the person at the terminal is told once the system is ready."""

    api_url: str
    web_url: str
    kubeconfig: Path
    #: by which the administrator sets their password; "" where that has happened
    first_link: str


#: Says one line of progress.
Say = Callable[[str], None]


class System:
    """One embedded system; `run()` returns when it was stopped."""

    def __init__(self, options: Options, *, say: Say) -> None:
        self._options = options
        self._say = say
        self._home = Home(options.home)
        self._stopping = threading.Event()
        self._nodes: SimulatedNodes | None = None
        self._controller: DemoController | None = None
        self._listeners = Listeners(application, on_stop=self._end_streams, end_seconds=END_SECONDS)

    def run(self, ready: Callable[[StartedSystem], None]) -> None:
        """Start everything, call `ready` (in another thread) once an applied pod could run, serve until stopped.

        Raises: AddressInUse.
        """
        options = self._options
        api_socket, web_socket = bind(options.api), bind(options.web)
        api = Address(options.api.host, api_socket.getsockname()[1])
        web = Address(options.web.host, web_socket.getsockname()[1])
        web_url = f"http://{web.url_host}:{web.port}"
        settings.API_URL = f"https://{api.url_host}:{api.port}"
        files = self._prepare_home(api)
        accounts.serves_pages(self._home, web_url)
        has_controller = options.demo and controllers_allocate()
        more = (CONTROLLED_DRIVER,) if has_controller else ()
        drivers = plan(nodes=options.nodes, mixed_nodes=options.mixed_nodes, more=more)
        server = Server(url=settings.API_URL, ca_pem=files.ca_pem)
        self._prepare_accounts(server, list(drivers))
        if has_controller:
            self._prepare_controller(server)
        told = StartedSystem(
            api_url=server.url,
            web_url=web_url,
            kubeconfig=self._home.kubeconfig,
            first_link=accounts.first_link(web_url),
        )
        self._listeners.add(
            api_socket, tls=Tls(certificate=files.certificate, key=files.key, clients=settings.CLIENT_CA_FILE)
        )
        self._listeners.add(web_socket)
        settings.ALLOWED_HOSTS.append("*" if web.listens_everywhere else web.url_host)
        nodes = SimulatedNodes(self._home, drivers=drivers, stopping=self._stopping)
        self._nodes = nodes
        with self._working(nodes):
            threading.Thread(target=self._bring_up, args=(nodes, told, ready), name="start-up", daemon=True).start()
            self._listeners.run()

    def _prepare_home(self, api: Address) -> certificates.Certificates:
        self._say(f"Home is {self._home.path}")
        self._say("Bringing the database up to date")
        call_command("migrate", verbosity=0, interactive=False)
        keys.check_sealed()
        files = certificates.ensure(self._home.path, hosts=[api.host, api.url_host])
        ensure_standing_objects()
        return files

    def _prepare_accounts(self, server: Server, nodes: list[str]) -> None:
        accounts.write_kubeconfigs(self._home, server=server, nodes=nodes)
        node_bootstrap.ensure(server)
        if self._options.demo and build_demo():
            self._say("Created the demo: classes of the simulated devices, and template one-gpu in namespace demo")

    def _prepare_controller(self, server: Server) -> None:
        from manciple.processes import demo_controller  # noqa: PLC0415 - only while its gate is on

        if build_demo(demo_controller.OBJECTS, demo_controller.NAMESPACE):
            self._say("Created the demo of a driver's controller: class accelerator (docs/reference/classic.md)")
        self._controller = demo_controller.DemoController(self._home, server, stopping=self._stopping)

    @contextlib.contextmanager
    def _working(self, nodes: SimulatedNodes) -> Iterator[None]:
        """The threads that live while the listeners serve."""
        processes.begin("embedded", version=layout.version(), redis_url=settings.REDIS_URL, **settings.TRACES)
        register_readiness(nodes)
        try:
            with embedded_worker.running():
                shipping = self._ship_audit()
                try:
                    yield
                finally:
                    self._stopping.set()
                    nodes.join()
                    if self._controller is not None:
                        self._controller.join()
                    shipping.join()
        finally:
            Tail.instance().stop()
            processes.end()
            trail.close()
            connections.close_all()

    def _ship_audit(self) -> threading.Thread:
        """A thread that ends with the system; at once where no file is named."""

        def ship() -> None:
            if settings.AUDIT_LOG:
                shipment = Shipment(Path(settings.AUDIT_LOG), Search())
                shipment.follow(self._stopping)
                shipment.close()
                connections.close_all()

        thread = threading.Thread(target=ship, name="audit-log", daemon=True)
        thread.start()
        return thread

    async def _end_streams(self) -> None:
        """The nodes go first: an agent whose watch ends would otherwise report that the server is gone."""
        self._say("Stopping")
        self._stopping.set()
        if self._nodes:
            await asyncio.to_thread(self._nodes.join)
        if self._controller:
            await asyncio.to_thread(self._controller.join)
        await close_streams()

    def _bring_up(self, nodes: SimulatedNodes, told: StartedSystem, ready: Callable[[StartedSystem], None]) -> None:
        """Start the nodes once the API listens, and wait until an applied pod could run."""
        try:
            self._wait(self._listeners.started)
            warm()
            if nodes.names:
                self._say(f"Starting {len(nodes.names)} simulated node{'' if len(nodes.names) == 1 else 's'}")
            else:
                self._say(f"Starting no node; `{layout.COMMAND} node_token issue` prints how a machine joins")
            nodes.start()
            if self._controller is not None:
                self._controller.start()
            self._wait_until_ready()
            if not self._stopping.is_set():
                ready(told)
        finally:
            close_old_connections()

    def _wait_until_ready(self) -> None:
        """Says what is missing where that takes long."""
        told = time.monotonic()

        def is_ready() -> bool:
            nonlocal told
            failures = health.ready().failures
            if failures and time.monotonic() - told > TOLD_EVERY:
                told = time.monotonic()
                self._say(f"Not ready yet: {'; '.join(failures.values())}")
            return not failures

        self._wait(is_ready)

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Until `condition` holds or the system is stopped."""
        while not condition() and not self._stopping.wait(LOOK_AGAIN):
            pass
