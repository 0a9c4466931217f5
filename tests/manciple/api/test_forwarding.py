"""Port-forward through the API server: connections of a client in a session become connections in the pod."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from manciple.wire import channels
from manciple.wire.channels import STDIN, Subprotocol
from nodeagent.http import server as https
from tests.manciple.api.server import ApiServer
from tests.manciple.api.session_world import (
    LocalAgent,
    SpdyConnection,
    little_endian,
    path_of,
    place,
    plain_websocket,
    serving,
    websocket,
)
from tests.manciple.wire.spdy_client import RST_STREAM, SpdyClient, data_frame
from tests.services import free_port

FORWARD = path_of("portforward")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> https.Certificate:
    return https.ensure_certificate(tmp_path_factory.mktemp("serving"), ("alpha", "127.0.0.1"))


@pytest.fixture
def agent(api_server: ApiServer, certificate: https.Certificate) -> Iterator[LocalAgent]:
    made = LocalAgent()
    with serving(made, certificate) as endpoint:
        place(api_server, port=endpoint.port, fingerprint=certificate.fingerprint)
        yield made


@pytest.fixture
def shouting() -> Iterator[int]:
    """A server in the pod: it sends back what it got, in capitals, when its client has said all. Its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data.upper())
            connection.sendall(b".")

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def begin(connection: SpdyConnection, port: int | str, number: str) -> tuple[int, int]:
    """The streams (errors, data) of one connection."""
    errors = connection.begin("error", port=str(port), number=number, last=True)
    return errors, connection.begin("data", port=str(port), number=number)


def test_each_connection_has_its_own_streams(api_server: ApiServer, agent: LocalAgent, shouting: int) -> None:
    session = SpdyConnection(api_server, FORWARD, "portforward.k8s.io")
    assert session.code == 101
    streams = [begin(session, shouting, str(number)) for number in range(5)]
    for number, (_, data) in enumerate(streams):
        session.send(data, b"hello %d" % number)
    for _, data in streams:
        session.send(data, b"", last=True)
    found = session.read_all(*(stream for pair in streams for stream in pair))
    assert [found[data] for _, data in streams] == [b"HELLO %d." % number for number in range(5)]
    assert {found[errors] for errors, _ in streams} == {b""}
    assert {request.path for request in agent.requests} == {("portForward", "default", "p")}
    session.close()


def test_spdy_goes_through_a_websocket_as_well(api_server: ApiServer, agent: LocalAgent, shouting: int) -> None:
    client, out, ended = SpdyClient(), {1: b"", 3: b""}, set[int]()
    session = plain_websocket(api_server, FORWARD, channels.TUNNELLED)  # the other client refuses the name
    assert session.getsubprotocol() == channels.TUNNELLED.lower()
    headers = {"port": str(shouting), "requestid": "0"}
    sent = client.begin({"streamType": "error", **headers}, last=True)[1]
    sent += client.begin({"streamType": "data", **headers})[1] + data_frame(3, b"hello", last=True)
    for start in range(0, len(sent), 7):  # frames and messages have nothing to do with each other
        session.send_binary(sent[start : start + 7])
    while ended != {1, 3}:
        for frame in client.feed(session.recv_data()[1]):
            if frame.kind == 0:
                out[frame.stream] += frame.data
                ended |= {frame.stream} if frame.last else set()
    session.close()
    assert out == {1: b"", 3: b"HELLO."}


def test_a_port_on_which_nobody_listens_is_told_to_its_connection_alone(
    api_server: ApiServer,
    agent: LocalAgent,
    shouting: int,
) -> None:
    session, closed = SpdyConnection(api_server, FORWARD, "portforward.k8s.io"), free_port()
    bad_errors, bad_data = begin(session, closed, "0")
    errors, data = begin(session, shouting, "1")
    session.send(data, b"hello", last=True)
    found = session.read_all(bad_errors, bad_data, errors, data)
    assert found[bad_errors].startswith(b"error forwarding port %d to pod p: failed to connect to localhost" % closed)
    assert (found[bad_data], found[errors], found[data]) == (b"", b"", b"HELLO.")
    session.close()


@pytest.mark.parametrize("port", ["", "0", "65536", "-1", "http", "99999999999999999999"])
def test_what_is_no_port_is_refused(api_server: ApiServer, agent: LocalAgent, port: str) -> None:
    session = SpdyConnection(api_server, FORWARD, "portforward.k8s.io")
    strange = session.begin("error", port=port, number="0")
    first = next(session.frames())
    assert (first.kind, first.stream) == (RST_STREAM, strange)
    session.close()
    assert agent.requests == []


def test_data_without_a_stream_for_errors_is_refused(api_server: ApiServer, agent: LocalAgent, shouting: int) -> None:
    session = SpdyConnection(api_server, FORWARD, "portforward.k8s.io")
    strange = session.begin("data", port=str(shouting), number="7")
    first = next(session.frames())
    assert (first.kind, first.stream) == (RST_STREAM, strange)
    session.close()
    assert agent.requests == []


def test_a_reset_ends_a_connection(api_server: ApiServer, agent: LocalAgent, shouting: int) -> None:
    session = SpdyConnection(api_server, FORWARD, "portforward.k8s.io")
    errors, data = begin(session, shouting, "0")
    session.send_raw(SpdyConnection.reset(data))
    assert session.read_all(errors, data)[data] == b"."
    session.close()


@pytest.mark.parametrize("protocol", channels.FORWARDING_PROTOCOLS)
def test_a_websocket_without_spdy_has_two_channels_for_each_port(
    api_server: ApiServer,
    agent: LocalAgent,
    shouting: int,
    protocol: str,
) -> None:
    closed, how = free_port(), Subprotocol(protocol)
    out = dict.fromkeys(range(4), b"")
    with websocket(api_server, path_of("portforward", ports=f"{shouting},{closed}"), protocol) as session:
        session.send(how.message(STDIN, b"hello"))
        while b"HELLO" not in out[0] or len(out[3]) < 10:
            channel, data = how.read(session.recv(timeout=30))
            out[channel] += data
    assert out[0] == little_endian(shouting) + b"HELLO"
    assert (out[1], out[2]) == (little_endian(shouting), little_endian(closed))
    assert out[3].startswith(little_endian(closed) + b"error forwarding port")
