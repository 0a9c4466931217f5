"""Clients that do not come to the point lose their connection; those with too many watches are told so."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest

from manciple.api.streams import Hub
from manciple.wire.errors import TooManyRequests
from manciple.wire.identity import MASTERS, NODES, Identity
from tests.manciple.api.server import ApiServer


def connected(server: ApiServer) -> ssl.SSLSocket:
    parts = urlsplit(server.url)
    plain = socket.create_connection((parts.hostname, parts.port), timeout=20)
    return ssl.create_default_context(cafile=str(server.ca_file)).wrap_socket(plain, server_hostname=parts.hostname)


def ended(line: ssl.SSLSocket) -> bool:
    """Whether the server ends the connection without a word."""
    try:
        return line.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


HEADS = {"nothing": b"", "half a head": b"GET /livez HTTP/1.1\r\nHost: x\r\n"}


@pytest.mark.parametrize("sent", HEADS.values(), ids=HEADS.keys())
def test_a_head_that_does_not_come_in_time_ends_the_connection(
    api_server: ApiServer, settings: Any, sent: bytes
) -> None:
    settings.HEAD_SECONDS = 0.05
    with connected(api_server) as line:
        if sent:
            line.sendall(sent)
        assert ended(line)


def test_the_second_request_of_a_connection_is_not_waited_for_either(api_server: ApiServer, settings: Any) -> None:
    with connected(api_server) as line:
        line.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.recv(4096).startswith(b"HTTP/1.1 200")
        settings.HEAD_SECONDS = 0.05
        line.sendall(b"GET /livez HTT")
        while not ended(line):
            pass


def test_who_keeps_to_it_may_stay(api_server: ApiServer, settings: Any) -> None:
    settings.HEAD_SECONDS = 5
    sender = http.client.HTTPSConnection(
        *_host(api_server), context=ssl.create_default_context(cafile=str(api_server.ca_file)), timeout=20
    )
    for _ in range(3):
        sender.request("GET", "/livez")
        answer = sender.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok")


def _host(server: ApiServer) -> tuple[str, int]:
    parts = urlsplit(server.url)
    return parts.hostname or "", parts.port or 0


def test_an_identity_has_so_many_watches_and_no_more(settings: Any) -> None:
    settings.IDENTITY_WATCHES = 1
    alice = Identity("alice")

    async def play() -> None:
        hub = Hub.of_running_loop()
        hub._started = asyncio.create_task(asyncio.sleep(0))  # it need not follow the log
        hub.check_watches(alice)
        watcher, _ = await hub.join("pods", owner="alice")
        with pytest.raises(TooManyRequests, match="the limit of open watches"):
            hub.check_watches(alice)
        hub.check_watches(Identity("bob"))
        hub.check_watches(Identity("alice", (MASTERS,)))
        node = Identity("system:node:n1", (NODES,))
        agents, _ = await hub.join("pods", owner=node.name)
        hub.check_watches(node)
        hub.leave(agents)
        hub.leave(watcher)
        hub.check_watches(alice)
        assert not hub.open_watches

    asyncio.run(play())
