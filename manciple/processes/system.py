"""The embedded system: everything that `manage.py up` starts, in order, and stops, in reverse.

 1. listen on both addresses, so that a taken port is told before anything else happens
 2. bring the database up to date, make certificates, accounts and kubeconfig files
 3. make what every cluster has (namespaces), and the demo
 4. start the Celery worker and beat
 5. serve the API and the pages
 6. start the nodes; /readyz answers 200 once they have published their devices

Steps 1 to 4 and 6 run in threads of this process; step 5 is the main thread's event loop, until a signal stops it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import close_old_connections, connections

from manciple.api import certificates, health
from manciple.api.fanout import close_streams
from manciple.api.namespaces import ensure_namespaces
from manciple.asgi import application
from manciple.processes import accounts, demo, readiness, warming
from manciple.processes.home import Home
from manciple.processes.listeners import Address, Listeners, Tls, bind
from manciple.processes.nodes import Nodes, plan
from manciple.processes.worker import EmbeddedWorker
from manciple.store.tail import Tail

#: How often the start looks whether the system is ready (seconds).
LOOK_AGAIN = 0.1


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
class Started:
    """What the person at the terminal is told once the system is ready."""

    api_url: str
    web_url: str
    kubeconfig: Path
    user: str
    password: str


#: Says one line of progress.
Say = Callable[[str], None]


class System:
    """One embedded system; `run()` returns when it was stopped."""

    def __init__(self, options: Options, *, say: Say) -> None:
        self._options = options
        self._say = say
        self._home = Home(options.home)
        self._stopping = threading.Event()
        self._nodes: Nodes | None = None
        self._listeners = Listeners(application, on_stop=self._end_streams)

    def run(self, ready: Callable[[Started], None]) -> None:
        """Start everything, call `ready` (in another thread) once an applied pod could run, serve until stopped.

        Raises: AddressInUse.
        """
        options = self._options
        api_socket, web_socket = bind(options.api), bind(options.web)
        api = Address(options.api.host, api_socket.getsockname()[1])
        web = Address(options.web.host, web_socket.getsockname()[1])
        files = self._prepare_home(api)
        drivers = plan(nodes=options.nodes, mixed_nodes=options.mixed_nodes)
        server = accounts.Server(url=f"https://{api.url_host}:{api.port}", ca_pem=files.ca_pem)
        user, password = self._prepare_accounts(server, list(drivers))
        told = Started(
            api_url=server.url,
            web_url=f"http://{web.url_host}:{web.port}",
            kubeconfig=self._home.kubeconfig,
            user=user,
            password=password,
        )
        self._listeners.add(api_socket, tls=Tls(certificate=files.certificate, key=files.key))
        self._listeners.add(web_socket)
        settings.ALLOWED_HOSTS.append("*" if web.listens_everywhere else web.url_host)
        nodes = Nodes(self._home, server=server, drivers=drivers, stopping=self._stopping)
        self._nodes = nodes
        with self._working(nodes):
            threading.Thread(target=self._bring_up, args=(nodes, told, ready), name="start-up", daemon=True).start()
            self._listeners.run()

    def _prepare_home(self, api: Address) -> certificates.Certificates:
        self._say(f"Home is {self._home.path}")
        self._say("Bringing the database up to date")
        call_command("migrate", verbosity=0, interactive=False)
        ensure_namespaces()
        return certificates.ensure(self._home.path, hosts=[api.host, api.url_host])

    def _prepare_accounts(self, server: accounts.Server, nodes: list[str]) -> tuple[str, str]:
        accounts.write_kubeconfigs(self._home, server=server, nodes=nodes)
        if self._options.demo and demo.build():
            self._say("Made the demo: classes of the simulated devices, and template one-gpu in namespace demo")
        return accounts.sign_in(self._home)

    @contextlib.contextmanager
    def _working(self, nodes: Nodes) -> Iterator[None]:
        """The threads that live while the listeners serve."""
        worker = EmbeddedWorker()
        readiness.register(worker=worker, nodes=nodes)
        worker.start()
        try:
            yield
        finally:
            self._stopping.set()
            nodes.join()
            worker.stop()
            Tail.instance().stop()
            connections.close_all()

    async def _end_streams(self) -> None:
        """The nodes go first: an agent whose watch ends would otherwise report that the server is gone."""
        self._say("Stopping")
        self._stopping.set()
        if self._nodes:
            await asyncio.to_thread(self._nodes.join)
        await close_streams()

    def _bring_up(self, nodes: Nodes, told: Started, ready: Callable[[Started], None]) -> None:
        """Start the nodes once the API listens, and wait until an applied pod could run."""
        try:
            self._wait(self._listeners.started)
            warming.begin()
            self._say(f"Starting {len(nodes.names)} simulated node{'' if len(nodes.names) == 1 else 's'}")
            nodes.start()
            self._wait(lambda: not health.ready().failures)
            if not self._stopping.is_set():
                ready(told)
        finally:
            close_old_connections()

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Until `condition` holds or the system is stopped."""
        while not condition() and not self._stopping.wait(LOOK_AGAIN):
            pass
