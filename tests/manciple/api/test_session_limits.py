"""What a hostile client of sessions costs: nothing that others notice, and bounded memory."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from websocket import WebSocket, WebSocketException, WebSocketTimeoutException
from websockets.exceptions import ConnectionClosed, InvalidStatus

from manciple.api import connections, sessions
from manciple.api.sessions import OPEN
from manciple.wire.channels import STDIN
from nodeagent.http import server as https
from nodeagent.http.sessions import SessionCount, TooManySessions
from tests.e2e.processes import PATIENCE, wait_for
from tests.manciple.api.server import ApiServer
from tests.manciple.api.session_world import (
    END_OF_STDIN,
    PODS,
    LocalAgent,
    SpdyConnection,
    heard,
    path_of,
    person,
    place,
    plain_websocket,
    serving,
    until,
    websocket,
)
from tests.manciple.wire.spdy_client import PING, control

#: Bytes that may be on their way in a session that nobody reads: buffers of sockets, server and agent.
UNDER_WAY = 24 << 20
#: Seconds in which others get their answer, on a busy machine.
PROMPT = 2.0


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
def others(api_server: ApiServer, agent: LocalAgent) -> Iterator[httpx.Client]:
    """Somebody else, who is to notice nothing."""
    with api_server.client() as http:
        assert http.get(f"{PODS}/p").status_code == 200
        yield http


def slowest(others: httpx.Client, *, requests: int = 20) -> float:
    """Seconds of the slowest of a few requests."""
    found = 0.0
    for _ in range(requests):
        began = time.monotonic()
        assert others.get(f"{PODS}/p").status_code == 200
        found = max(found, time.monotonic() - began)
    return found


def hang_up(session: WebSocket) -> None:
    """At once, also under a thread that reads or writes: the socket below TLS is shut down."""
    if session.sock is not None:
        with suppress(OSError):
            socket.socket.shutdown(session.sock, socket.SHUT_RDWR)


def settled(count: Callable[[], int]) -> int:
    """The count once it has not grown for a second."""
    seen: list[tuple[float, int]] = []

    def steady() -> bool:
        now = count()
        if not seen or seen[-1][1] != now:
            seen.append((time.monotonic(), now))
        return now > 0 and time.monotonic() - seen[-1][0] > 1

    wait_for("a count that stands still", steady)
    return count()


def test_a_client_that_reads_nothing_stops_what_it_does_not_read(
    api_server: ApiServer, others: httpx.Client, tmp_path: Path
) -> None:
    written = tmp_path / "written"
    script = f"i=0; while :; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > {written}; done"
    slow = plain_websocket(api_server, path_of("exec", "sh", "-c", script, stdout=True))

    def count() -> int:
        return int(written.read_text() or 0) if written.exists() else 0

    assert settled(count) * 65536 < UNDER_WAY
    assert slowest(others) < PROMPT
    # Another session with the same agent goes on.
    with websocket(api_server, path_of("exec", "echo", "on", stdout=True)) as session:
        assert heard(session).out == b"on\n"
    hang_up(slow)


def test_a_command_that_reads_nothing_stops_its_client(api_server: ApiServer, others: httpx.Client) -> None:
    sent = [0]
    session = plain_websocket(api_server, path_of("exec", "sleep", "1000", stdin=True))
    session.settimeout(None)

    def write() -> None:
        with suppress(OSError, WebSocketException):
            while True:
                session.send_binary(bytes((STDIN,)) + bytes(65536))
                sent[0] += 65536

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert settled(lambda: sent[0]) < UNDER_WAY
    assert slowest(others) < PROMPT
    hang_up(session)
    writer.join(30)


def test_endless_output_leaves_the_server_to_others(api_server: ApiServer, others: httpx.Client) -> None:
    token = person("bob", api_server, "get", "create")
    session = plain_websocket(api_server, path_of("exec", "yes", stdout=True), token=token)

    def read() -> None:
        with suppress(OSError, WebSocketException):
            while True:
                session.recv()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert slowest(others, requests=50) < PROMPT
    hang_up(session)
    reader.join(30)


def test_a_giant_message_ends_its_session(api_server: ApiServer, others: httpx.Client) -> None:
    with websocket(api_server, path_of("exec", "cat", stdin=True, stdout=True)) as session:
        session.send(bytes(connections.SESSION_MESSAGE + 1))
        with pytest.raises(ConnectionClosed) as ended:
            session.recv(timeout=30)
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1009
    assert slowest(others) < PROMPT


#: Masked frames of a client: a message of one byte on no channel, and a ping.
TINY, A_PING = b"\x82\x81" + bytes(4) + b"\x09", b"\x89\x80" + bytes(4)


def test_a_flood_of_tiny_messages_is_taken_in_by_turns(api_server: ApiServer, others: httpx.Client) -> None:
    token = person("bob", api_server, "get", "create")
    session = plain_websocket(api_server, path_of("exec", "cat", stdin=True, stdout=True), token=token)
    flood = threading.Thread(target=_send_raw, args=(session.sock, TINY * 300_000), daemon=True)
    flood.start()
    assert slowest(others, requests=50) < PROMPT
    hang_up(session)
    flood.join(30)


def test_a_flood_of_pings_ends_its_session(api_server: ApiServer, others: httpx.Client) -> None:
    session = plain_websocket(api_server, path_of("exec", "cat", stdin=True, stdout=True))
    _send_raw(session.sock, A_PING * 100_000)
    with pytest.raises((OSError, WebSocketException)) as ended:
        _read_all(session)
    assert not isinstance(ended.value, WebSocketTimeoutException | TimeoutError)
    assert slowest(others) < PROMPT


def test_pings_now_and_then_are_answered(api_server: ApiServer, agent: LocalAgent) -> None:
    with websocket(api_server, path_of("exec", "cat", stdin=True, stdout=True)) as session:
        for _ in range(20):
            assert session.ping().wait(30)


def _read_all(session: WebSocket) -> None:
    """Raises: what ends the connection."""
    while True:
        session.recv_data_frame(control_frame=True)


def _send_raw(connection: object, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)  # type: ignore[attr-defined]  # a socket


def test_nobody_has_more_sessions_than_their_share(
    api_server: ApiServer, others: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_EACH", 3)
    token, path = (
        person("bob", api_server, "get", "create"),
        path_of("exec", "sh", "-c", "echo on; cat", stdout=True, stdin=True),
    )
    held = [websocket(api_server, path, token=token, close_timeout=0.1).__enter__() for _ in range(3)]
    for session in held:
        until(session, b"on")
    for how in ("websocket", "spdy"):
        assert _refused(api_server, path, token, how) == 429
    with websocket(api_server, path) as session:  # others have theirs
        until(session, b"on")
    assert slowest(others) < PROMPT
    for session in held:
        session.close()
    wait_for("room for another", lambda: OPEN.count("bob") == 0)
    with websocket(api_server, path, token=token) as session:
        until(session, b"on")


def _refused(api_server: ApiServer, path: str, token: str, how: str) -> int:
    if how == "spdy":
        connection = SpdyConnection(api_server, path, "v4.channel.k8s.io", token=token)
        connection.close()
        return connection.code
    with pytest.raises(InvalidStatus) as refused:
        websocket(api_server, path, token=token).__enter__()
    return refused.value.response.status_code


@pytest.mark.usefixtures("agent")
def test_administrators_have_any_number(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of connections that their sessions make."""
    monkeypatch.setattr(sessions, "MOST_EACH", 1)
    path = path_of("exec", "sh", "-c", "echo on; cat", stdout=True, stdin=True)
    with ExitStack() as held, socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        listener.settimeout(PATIENCE)
        for _ in range(3):
            until(held.enter_context(websocket(api_server, path)), b"on")
            forwarding = SpdyConnection(api_server, path_of("portforward"), "portforward.k8s.io")
            held.callback(forwarding.close)
            forwarding.begin("error", port=port, number="1", last=True)
            forwarding.begin("data", port=port, number="1")
            held.callback(listener.accept()[0].close)


def test_connections_of_a_forwarding_session_count_as_well(
    api_server: ApiServer, agent: LocalAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_EACH", 3)
    token = person("bob", api_server, "get", "create")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        session = SpdyConnection(api_server, path_of("portforward"), "portforward.k8s.io", token=token)
        errors = []
        for number in range(3):
            errors.append(session.begin("error", port=port, number=str(number), last=True))
            session.begin("data", port=port, number=str(number))
        assert b"limit of open sessions and logs" in session.read_all(errors[2])[errors[2]]
        wait_for("the other connections", lambda: len(agent.runtime.begun) == 2)
        session.close()


def test_an_agent_has_a_share_for_each_person_and_each_pod() -> None:
    count = SessionCount(most=12, most_with_pod=7)

    def refused(person: str, pod: str) -> str:
        with pytest.raises(TooManySessions) as error, count.one_more(person, pod):
            pass
        return str(error.value)

    with ExitStack() as held:
        for _ in range(6):
            held.enter_context(count.one_more("bob", "p"))
        assert "you have 6" in refused("bob", "q")
        held.enter_context(count.one_more("alice", "p"))
        assert "this pod has 7" in refused("carol", "p")
        for number in range(5):
            held.enter_context(count.one_more(f"person-{number}", "q"))
        assert "this node has 12" in refused("carol", "r")
    with ExitStack() as held:
        for _ in range(6):
            held.enter_context(count.one_more("carol", "p"))


@pytest.mark.parametrize("identities", [1, 2, 5, 20, 60])
def test_whoever_has_many_identities_leaves_a_share_to_others(identities: int) -> None:
    count = SessionCount(most=96, most_with_pod=1000)
    with ExitStack() as held:
        taken, refused = 0, 0
        while refused < identities:
            refused = 0
            for number in range(identities):
                try:
                    held.enter_context(count.one_more(f"greedy-{number}", "p"))
                    taken += 1
                except TooManySessions:
                    refused += 1
        assert taken <= 96 - 96 // (identities + 1)
        held.enter_context(count.one_more("alice", "q"))


BAD_SPDY = {
    "no frames": b"\xff" * 64,
    "a long control frame": struct.pack("!HHI", 0x8003, 1, 0xFFFFFF),
    "a stream of the server's": control(1, struct.pack("!IIH", 2, 0, 0)),
}


@pytest.mark.parametrize("case", BAD_SPDY)
@pytest.mark.parametrize("what", ["exec", "portforward"])
def test_what_is_no_spdy_ends_the_connection(api_server: ApiServer, others: httpx.Client, what: str, case: str) -> None:
    path = path_of("exec", "cat", stdin=True, stdout=True) if what == "exec" else path_of("portforward")
    session = SpdyConnection(api_server, path, "v4.channel.k8s.io", "portforward.k8s.io")
    session.send_raw(BAD_SPDY[case])
    for _ in session.frames():
        pass
    session.close()
    assert slowest(others, requests=3) < PROMPT


def test_spdy_pings_are_answered(api_server: ApiServer, agent: LocalAgent) -> None:
    session = SpdyConnection(api_server, path_of("portforward"), "portforward.k8s.io")
    for number in (1, 3, 5):
        session.send_raw(control(PING, struct.pack("!I", number)))
        answer = next(session.frames())
        assert (answer.kind, answer.stream) == (PING, number)
    session.close()


@pytest.mark.parametrize("message", [b"", b"\xff", b"\x04{"])
def test_messages_that_mean_nothing_harm_nobody(api_server: ApiServer, others: httpx.Client, message: bytes) -> None:
    path = path_of("exec", "cat", stdin=True, stdout=True)
    with websocket(api_server, path) as session, suppress(ConnectionClosed):
        session.send(message)
        session.send(END_OF_STDIN)
        heard(session)
    assert slowest(others, requests=3) < PROMPT
