"""Programs in pods find the API by the usual variables, and reach it over TLS that they can verify."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from manciple.api import certificates
from nodeagent.runtimes import api_access
from nodeagent.runtimes.api_access import POD_PORT, ApiAccess, ApiGateway
from tests.e2e.processes import wait_for
from tests.nodeagent.runtimes.containers import Node, needs_podman

UID = "uid-p"

# The variables --------------------------------------------------------------------------------------------------------


def test_variables_are_those_of_the_service_of_the_api() -> None:
    assert ApiAccess.of("https://192.0.2.7:6443").variables(host_network=True) == {
        "KUBERNETES_SERVICE_HOST": "192.0.2.7",
        "KUBERNETES_SERVICE_PORT": "6443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "6443",
        "KUBERNETES_PORT": "tcp://192.0.2.7:6443",
        "KUBERNETES_PORT_6443_TCP": "tcp://192.0.2.7:6443",
        "KUBERNETES_PORT_6443_TCP_PROTO": "tcp",
        "KUBERNETES_PORT_6443_TCP_PORT": "6443",
        "KUBERNETES_PORT_6443_TCP_ADDR": "192.0.2.7",
    }


@pytest.mark.parametrize(
    ("server", "host", "listens", "aliases"),
    {
        "loopback": ("https://127.0.0.1:8443", "127.0.0.1", "127.0.0.1", ()),
        "another address": ("https://192.0.2.7:8443", "192.0.2.7", "192.0.2.7", ()),
        "six": ("https://[2001:db8::7]:8443", "2001:db8::7", "2001:db8::7", ()),
        "a name": ("https://api.example", "api.example", "127.0.0.1", (("127.0.0.1", ("api.example",)),)),
        "localhost": ("https://localhost:8443", "localhost", "127.0.0.1", ()),
    }.values(),
)
def test_a_pod_reaches_the_api_by_the_name_in_its_certificate(
    server: str, host: str, listens: str, aliases: tuple[Any, ...]
) -> None:
    access = ApiAccess.of(server)
    variables = access.variables(host_network=False)
    assert (variables["KUBERNETES_SERVICE_HOST"], variables["KUBERNETES_SERVICE_PORT"]) == (host, str(POD_PORT))
    assert (access.pod_address, access.host_aliases()) == (listens, aliases)


# What is passed on ----------------------------------------------------------------------------------------------------


@contextmanager
def echoing(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server on the loopback address that says back what it reads; its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) if context else connection as speaking:
                while text := speaking.recv(1024):
                    speaking.sendall(b"you said " + text)
        except OSError:
            return

    threading.Thread(target=serve, daemon=True).start()
    with closing(listening):
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


class Gateway:
    """One whose pods are in this machine's network."""

    def __init__(self, port: int) -> None:
        self.listening: list[socket.socket] = []
        self.gateway = ApiGateway(ApiAccess("127.0.0.1", port), self._listen)

    def _listen(self, _uid: str, address: str, _port: int) -> socket.socket:
        self.listening.append(socket.create_server((address, 0)))
        return self.listening[-1]

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listening[-1].getsockname(), timeout=10)


def test_what_a_pod_sends_reaches_the_api_and_comes_back() -> None:
    with echoing() as port:
        given = Gateway(port)
        given.gateway.open(UID)
        with given.connect() as connection:
            for text in (b"one", b"two"):
                connection.sendall(text)
                assert connection.recv(1024) == b"you said " + text
        given.gateway.stop()


def test_an_answer_comes_also_to_a_program_that_has_finished_asking() -> None:
    asked, may_answer = threading.Event(), threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                while connection.recv(1024):
                    pass
                asked.set()
                may_answer.wait(10)
                connection.sendall(b"late")

        threading.Thread(target=serve, daemon=True).start()
        given = Gateway(listening.getsockname()[1])
        given.gateway.open(UID)
        with given.connect() as connection:
            connection.sendall(b"all that I ask")
            connection.shutdown(socket.SHUT_WR)
            assert asked.wait(10)
            loop = given.gateway._loop
            for _ in range(10):  # turns of the gateway's loop, which then has done all that it can
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)  # type: ignore[arg-type]  # it runs
            gc.collect()  # takes what only waits for itself
            may_answer.set()
            assert connection.recv(1024) == b"late"
        given.gateway.stop()


def test_a_pod_has_so_many_connections_and_gets_others_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_access, "MOST_CONNECTIONS", 1)
    with echoing() as port:
        given = Gateway(port)
        given.gateway.open(UID)
        with given.connect() as first:
            first.sendall(b"a")
            assert first.recv(1024) == b"you said a"
            with given.connect() as second:
                assert second.recv(1024) == b""

        def again() -> bool:
            try:
                with given.connect() as third:
                    third.sendall(b"b")
                    return third.recv(1024) == b"you said b"
            except ConnectionError:  # the first one still counts
                return False

        wait_for("a place for the next connection", again)
        given.gateway.stop()


def test_without_an_api_a_connection_ends() -> None:
    with echoing() as port:
        pass
    given = Gateway(port)
    given.gateway.open(UID)
    with given.connect() as connection:
        assert connection.recv(1024) == b""
    given.gateway.stop()


def test_a_pod_that_is_gone_is_not_listened_for() -> None:
    with echoing() as port:
        given = Gateway(port)
        given.gateway.open(UID)
        given.gateway.open(UID)
        assert len(given.listening) == 1
        given.gateway.close(UID)

        def refused() -> bool:
            try:
                given.connect().close()
            except OSError:
                return True
            return False

        wait_for("the end of the listening", refused)
        given.gateway.close(UID)
        given.gateway.stop()


# In a pod -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Node, Path]]:
    """A node whose API is at an address of its own, with a certificate for it; the authority's certificate."""
    needs_podman()
    files = certificates.ensure(tmp_path / "home", hosts=["192.0.2.7"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with echoing(context) as port:
        found = Node(tmp_path, server=f"https://127.0.0.1:{port}")
        try:
            yield found, files.authority
        finally:
            found.clean()


def speaks(node: Node, pod_uid: str, authority: Path) -> bytes:
    """What the API answers to a program in the pod that verifies it."""
    variables = node.runtime.runs(pod_uid)["main"].environment
    host, port = variables["KUBERNETES_SERVICE_HOST"], int(variables["KUBERNETES_SERVICE_PORT"])
    raw = node.runtime._networks.connect(pod_uid, (host, port), timeout=10)
    context = ssl.create_default_context(cafile=str(authority))
    with context.wrap_socket(raw, server_hostname=host) as connection:
        connection.sendall(b"hello")
        return connection.recv(1024)


def test_a_program_in_a_pod_verifies_the_api_and_speaks_with_it(node: tuple[Node, Path]) -> None:
    running, authority = node
    running.start(running.container())
    assert speaks(running, UID, authority) == b"you said hello"
    running.restart()  # the next agent goes on
    assert speaks(running, UID, authority) == b"you said hello"
    running.runtime.remove(UID)
    running.start(running.container(), attempt=1)
    assert speaks(running, UID, authority) == b"you said hello"


def test_a_container_reaches_the_api_by_its_variables(node: tuple[Node, Path]) -> None:
    running, _ = node
    script = "echo x | nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT; echo nc ended with $?; sleep 1000"
    running.start(running.container(script))
    running.prints("nc ended with 0")


def test_a_manifest_overrules_the_variables(node: tuple[Node, Path]) -> None:
    running, _ = node
    own = [
        {"name": "SEEN", "value": "$(KUBERNETES_SERVICE_HOST)"},
        {"name": "KUBERNETES_SERVICE_HOST", "value": "api.example"},
    ]
    request = running.request(running.container(env=own))
    assert request.environment["SEEN"] == "127.0.0.1"
    assert request.environment["KUBERNETES_SERVICE_HOST"] == "api.example"


def test_the_address_of_the_api_is_there_in_the_pods_network(node: tuple[Node, Path]) -> None:
    running, _ = node
    running.start(running.container())
    with running.runtime._networks.listen(UID, "192.0.2.7", POD_PORT) as listening:
        assert listening.getsockname() == ("192.0.2.7", POD_PORT)
        running.runtime._networks.connect(UID, ("192.0.2.7", POD_PORT), timeout=10).close()
