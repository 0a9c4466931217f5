"""Clients that open connections and do nothing, or watch: nobody else is kept out.

The limit is small here. With MANCIPLE_IDLE_CONNECTIONS=N the last test opens N connections (default 400) to a process
that may have 256 files.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from manciple.access.authentication import tokens
from tests.manciple.api.requests import CLAIMS, NAMESPACES
from tests.manciple.api.server import ApiServer, api_server, server_certificates
from tests.security.limited_server import DELAY, LINES

__all__ = ["api_server", "server_certificates"]

LIMIT = 64
IDLE_CLIENTS, WATCHES = 40, 80
CONNECTIONS = int(os.environ.get("MANCIPLE_IDLE_CONNECTIONS", "400"))
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "n1"},
    "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
}


def connected(server: ApiServer, sent: bytes = b"", *, tls: bool = True) -> socket.socket:
    parts = urlsplit(server.url)
    plain = socket.create_connection((parts.hostname, parts.port), timeout=20)
    if not tls:
        plain.sendall(sent)
        return plain
    line = trusting(str(server.ca_file)).wrap_socket(plain, server_hostname=parts.hostname)
    line.sendall(sent)
    return line


@lru_cache
def trusting(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


def anonymous_request(server: ApiServer) -> socket.socket:
    line = connected(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert line.recv(4096).startswith(b"HTTP/1.1 200")
    return line


HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
IDLE: dict[str, Callable[[ApiServer], socket.socket]] = {
    "nothing at all": lambda server: connected(server, tls=False),
    "half a handshake": lambda server: connected(server, b"\x16\x03\x01\x02\x00\x01", tls=False),
    "a handshake": connected,
    "half a head": lambda server: connected(server, HEAD),
    "no body": lambda server: connected(server, b"POST" + HEAD[3:] + b"Content-Length: 10\r\n\r\n"),
    "one request": anonymous_request,
    "a wrong token": lambda server: connected(
        server, HEAD.replace(b"/livez", NAMESPACES.encode()) + b"Authorization: Bearer x.y\r\n\r\n"
    ),
}


@contextmanager
def everybody(server: ApiServer) -> Iterator[Callable[[], None]]:
    """Checks that probes, a node, an administrator and a tenant are served, over new connections and kept ones."""
    whose = {
        "node": (tokens.issue("system:node:n1", ["system:nodes"]), LEASES, "PATCH"),
        "administrator": (server.token, "/api/v1/nodes", "GET"),
        "tenant": (tokens.issue("bob", ["viewers"]), "/version", "GET"),
    }
    with server.client() as root:
        root.post(LEASES, json=LEASE)
        root.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", json=binding("bob", "alice"))

    def ask(client: httpx.Client, path: str, method: str) -> int:
        if method == "GET":
            return client.get(path).status_code
        renewal = {"spec": {"renewTime": datetime.now(UTC).isoformat()}}
        headers = {"Content-Type": "application/merge-patch+json"}
        return client.patch(f"{path}/n1", json=renewal, headers=headers).status_code

    with ExitStack() as stack:
        kept = {who: stack.enter_context(server.client(token=token)) for who, (token, _, _) in whose.items()}

        def check() -> None:
            with server.client(token="") as prober:
                assert [prober.get(path).status_code for path in ("/livez", "/healthz")] == [200, 200]
            for who, (token, path, method) in whose.items():
                began = time.monotonic()
                with server.client(token=token) as fresh:
                    assert (who, ask(fresh, path, method)) == (who, 200)
                assert (who, ask(kept[who], path, method)) == (who, 200)
                assert time.monotonic() - began < 5

        check()
        yield check


def binding(*names: str) -> dict[str, Any]:
    users = [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"} for name in names]
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
    meta = {"name": "viewers"}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "subjects": users,
        "roleRef": role,
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize("connect", IDLE.values(), ids=IDLE.keys())
def test_idle_connections_without_credentials_keep_nobody_out(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, connect: Callable[[ApiServer], socket.socket]
) -> None:
    monkeypatch.setattr(api_server.table, "limit", LIMIT)
    with everybody(api_server) as check, ExitStack() as stack:
        for _ in range(IDLE_CLIENTS):
            with suppress(ConnectionError, ssl.SSLError):
                stack.enter_context(connect(api_server))
        check()
        assert sum(api_server.table.counts.values()) <= LIMIT
        assert api_server.table.counts["strangers"] <= LIMIT / 8 + 1


def test_the_watches_of_one_tenant_end_before_those_of_others_are_refused(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """The allowance of one user is far above the limit here, as in an installation with a small limit of files."""
    monkeypatch.setattr(api_server.table, "limit", LIMIT)
    settings.IDENTITY_WATCHES = 1000
    request = f"GET {CLAIMS}?watch=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {{}}\r\n\r\n"
    with everybody(api_server) as check, ExitStack() as stack:
        alice, bob = (request.format(tokens.issue(name, [])).encode() for name in ("alice", "bob"))
        bobs = [stack.enter_context(watching(api_server, bob)) for _ in range(3)]
        for _ in range(WATCHES):
            stack.enter_context(watching(api_server, alice))
        bobs.append(stack.enter_context(watching(api_server, bob)))
        check()
        with api_server.client() as root:
            root.post(NAMESPACES, json={"metadata": {"name": "team"}})
            root.post(CLAIMS, json={"metadata": {"name": "c"}, "spec": {}}).raise_for_status()
        for line in bobs:
            assert b"ADDED" in line.recv(4096)


def watching(server: ApiServer, request: bytes) -> socket.socket:
    line = connected(server, request)
    assert line.recv(4096).startswith(b"HTTP/1.1 200")
    return line


def test_a_process_with_few_files_goes_on_serving() -> None:
    """A real limit of open files, lower than the number of connections, most of which say nothing."""

    command = [sys.executable, "-m", "tests.security.limited_server", "256"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            with ExitStack() as stack:
                for n in range(CONNECTIONS):
                    line = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                    if n % 2:
                        line.sendall(HEAD)
                for _ in range(5):
                    assert httpx.get(f"http://127.0.0.1:{port}/livez", timeout=5).text == "ok"
            # Something else takes every file, and there is no connection to drop: the process waits.
            httpx.get(f"http://127.0.0.1:{port}/exhaust", timeout=5)
            time.sleep(2 * DELAY)
            with ExitStack() as stack:
                for _ in range(5):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                time.sleep(0.8)
            time.sleep(1)
            assert httpx.get(f"http://127.0.0.1:{port}/livez", timeout=5).text == "ok"
        finally:
            server.terminate()
            _, errors = server.communicate(timeout=20)
    assert 0 < len(errors.splitlines()) <= LINES, errors
    assert "graceful shutdown exceeded" not in errors  # a dropped connection is not waited for
