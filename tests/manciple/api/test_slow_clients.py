"""Clients that do not come to the point lose their connection; those with too many watches are told so."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from uvicorn.server import ServerState

from manciple.api.connections import PageSocket, PatientConnection
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


class Gone(asyncio.Transport):
    """The transport of a client of TLS that has said that it goes, and has not yet: it closes. written: since then."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.protocol: Any = None
        self._closing = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self._closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        """Nothing comes."""

    resume_reading = pause_reading


#: What a request asks for -> its head
HEADS_OF_STREAMS = {
    "an answer in pieces": b"GET /watch HTTP/1.1\r\nHost: x\r\n\r\n",
    "a WebSocket": b"GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "SPDY": b"POST /spdy HTTP/1.1\r\nHost: x\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n"
    b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("what", HEADS_OF_STREAMS)
def test_who_has_hung_up_is_written_to_no_more(what: str) -> None:
    """asyncio drops it, and warns at each piece."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            piece: dict[str, Any] = {"type": "websocket.send", "bytes": b"piece"}
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            piece = {"type": "http.response.body", "body": b"piece", "more_body": True}
        await send(piece)
        begun.set()
        await hung_up.wait()
        with suppress(OSError):
            for _ in range(10):
                await send(piece)
        ended.set()

    async def play() -> None:
        config = uvicorn.Config(serve, ws=PageSocket, lifespan="off", log_config=None)
        config.load()
        connection = PatientConnection(config=config, server_state=ServerState(), app_state={})
        transport = Gone()
        connection.connection_made(transport)
        connection.data_received(HEADS_OF_STREAMS[what])
        async with asyncio.timeout(20):
            await begun.wait()
            served = transport.protocol or connection
            before = len(transport.written)
            assert before
            transport.close()  # as asyncio does once the protocol has taken the end
            served.eof_received()
            hung_up.set()
            await ended.wait()
        assert len(transport.written) == before
        served.connection_lost(None)

    begun, hung_up, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    asyncio.run(play())
