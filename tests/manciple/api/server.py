"""A real API server for tests: uvicorn with TLS in a thread, serving `manciple.asgi` on a free port.

Other test packages use the fixture as well:

    from tests.manciple.api.server import ApiServer, api_server  # noqa: F401

It needs a database that threads can share, so it brings `transactional_db` along. Each use starts a server with an
event loop of its own and stops it again, with the log's tail, before the database is emptied.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn
from django.conf import settings

from manciple import descriptors
from manciple.access.authentication import tokens
from manciple.api import certificates, kubeconfig
from manciple.api.connections import ConnectionTable, PageSocket, PatientConnection
from manciple.api.kubeconfig import Server
from manciple.api.namespaces import ensure_namespaces
from manciple.api.streams import close_streams
from manciple.asgi import application
from manciple.processes import listeners
from manciple.processes.listeners import Address, Tls, bind
from manciple.store.event_log import Tail


@dataclass(frozen=True)
class ApiServer:
    """Where the server is reached, and with what. `token` belongs to a member of system:masters.

    end_streams: what a server does first when it is told to stop. table: of its connections.
    """

    url: str
    token: str
    ca_file: Path
    kubeconfig: Path
    folder: Path
    end_streams: Callable[[], None]
    table: ConnectionTable

    def client(self, *, token: str | None = None) -> httpx.Client:
        """An HTTP client that trusts the server and shows a token; "" shows none."""
        shown = self.token if token is None else token
        headers = {"Authorization": f"Bearer {shown}"} if shown else {}
        context = ssl.create_default_context(cafile=str(self.ca_file))
        return httpx.Client(base_url=self.url, verify=context, headers=headers, timeout=30)

    def kubeconfig_of(self, name: str, *groups: str) -> Path:
        """A kubeconfig file for another identity."""
        path = self.folder / f"kubeconfig-{name.replace(':', '-')}"
        token = tokens.issue(name, groups)
        path.write_text(
            kubeconfig.render(Server(url=self.url, ca_pem=self.ca_file.read_text()), user=name, token=token)
        )
        return path


class _ServerThread(threading.Thread):
    """uvicorn on an event loop of its own."""

    def __init__(self, files: certificates.Certificates) -> None:
        super().__init__(name="api-server", daemon=True)
        self.table = ConnectionTable(settings.CONNECTIONS, descriptors=descriptors.limit())
        self._listener = bind(Address("127.0.0.1", 0))
        config = uvicorn.Config(
            application,
            log_level="warning",
            lifespan="off",
            http=PatientConnection,
            ws=PageSocket,
            timeout_graceful_shutdown=2,
            **Tls(certificate=files.certificate, key=files.key, clients=files.authority).options,
        )
        self.server = listeners.LimitedServer(config, self.table)
        self.started_serving = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        serving = asyncio.create_task(self.server.serve(sockets=[self._listener]))
        while not self.server.started and not serving.done():
            await asyncio.sleep(0.005)
        self.started_serving.set()
        await serving

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def end_streams(self) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(close_streams(), self._loop).result(10)

    def stop(self) -> None:
        self.end_streams()
        self.server.should_exit = True
        self.join(15)


@pytest.fixture(scope="session")
def server_certificates(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.ensure(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def api_server(
    transactional_db: None, server_certificates: certificates.Certificates, tmp_path: Path
) -> Iterator[ApiServer]:
    """A running API server on an empty database with the namespaces of every cluster."""
    ensure_namespaces()
    thread = _ServerThread(server_certificates)
    thread.start()
    assert thread.started_serving.wait(60), "the server did not start"
    url = f"https://127.0.0.1:{thread.port}"
    token = tokens.issue("admin", ["system:masters"])
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig.render(Server(url=url, ca_pem=server_certificates.ca_pem), user="admin", token=token))
    try:
        yield ApiServer(
            url=url,
            token=token,
            ca_file=server_certificates.authority,
            kubeconfig=path,
            folder=tmp_path,
            end_streams=thread.end_streams,
            table=thread.table,
        )
    finally:
        thread.stop()
        Tail.instance().stop()
