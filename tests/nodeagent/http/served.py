"""An agent with its endpoint, and an API server in memory that knows whose tokens it is shown."""

from __future__ import annotations

import json
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import httpx

from nodeagent.agent import Agent
from nodeagent.config import AgentConfig, ListenAddress
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.http import server as https
from nodeagent.runtimes.protocol import Runtime
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.objects import NODE

TIMEOUT = 60.0
#: token -> (user, groups)
PEOPLE = {
    "server": ("system:kube-apiserver", ["system:authenticated"]),
    "root": ("admin", ["system:masters", "system:authenticated"]),
    "scraper": ("prometheus", ["system:authenticated"]),
}


class ReviewingApi(FakeApi):
    """A FakeApi that answers TokenReviews. reviewed: the tokens that it was asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.reviewed: list[str] = []
        self.reachable = True

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self.reachable:
            raise httpx.ConnectError("connection refused")
        if not request.url.path.endswith("/tokenreviews"):
            return super().handle_request(request)
        asked = json.loads(request.read())
        token, audiences = asked["spec"]["token"], asked["spec"]["audiences"]
        self.reviewed.append(token)
        status = {"error": "invalid bearer token"}
        if token in PEOPLE:
            name, groups = PEOPLE[token]
            user: dict[str, object] = {"username": name, "groups": groups}
            return httpx.Response(201, json={**asked, "status": answered(user, audiences)})
        return httpx.Response(201, json={**asked, "status": status})


def answered(user: dict[str, object], audiences: list[str]) -> dict[str, object]:
    return {"authenticated": True, "user": user, "audiences": audiences[:1]}


@cache
def kept_certificate() -> dict[str, bytes]:
    """The files of an agent's certificate. Making one takes a process."""
    with tempfile.TemporaryDirectory() as folder:
        https.ensure_certificate(Path(folder), (NODE, "127.0.0.1"))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def agent_of(api: FakeApi, folder: Path, *, runtime: Runtime | None = None, lease_seconds: float = 10.0) -> Agent:
    """With a certificate from an earlier start; `https` and its tests make their own."""
    serving = folder / "state" / "serving"
    serving.mkdir(parents=True, exist_ok=True)
    for name, content in kept_certificate().items():
        (serving / name).write_bytes(content)
    config = AgentConfig(
        server="http://api",
        token="t",
        node_name=NODE,
        state_dir=folder / "state",
        cdi_dir=folder / "cdi" / NODE,
        listen=ListenAddress("127.0.0.1", 0),
        lease_seconds=lease_seconds,
    )
    return Agent(config, [SimulatedDriver(NODE)], runtime=runtime, transport=api)


@contextmanager
def running(agent: Agent) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    try:
        assert agent.ready.wait(TIMEOUT)
        yield
    finally:
        stop.set()
        thread.join(TIMEOUT)
    assert not thread.is_alive()


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def client(port: int, token: str = "") -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=unverified(), headers=headers, timeout=TIMEOUT)


def port_of(api: FakeApi) -> int:
    """Where the Node says that its agent listens."""
    node = api.find("nodes", NODE)
    assert node is not None
    port: int = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    return port
