"""The HTTPS server: who may take how much of it, and how streams end."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from nodeagent.http import server as https
from nodeagent.http.server import Endpoint, HttpsAnswer, Request
from nodeagent.node import certificate_maker
from tests.nodeagent.http.served import TIMEOUT, client, unverified


class Door:
    """What the endpoint under test answers. `ended`: one item for each stream that ended."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    def respond(self, request: Request) -> HttpsAnswer:
        self.requests.append(request)
        match request.path:
            case ("stream",):
                return HttpsAnswer(body=self._stream(request))
            case ("broken",):
                return HttpsAnswer(body=self._broken())
        return HttpsAnswer(code=200, body="hello")

    def _stream(self, request: Request) -> Iterator[bytes]:
        yield b"first\n"
        while not request.hung_up.wait(0.05):
            pass
        self.ended.put("ended")

    def _broken(self) -> Iterator[bytes]:
        yield b"first\n"
        raise OSError("the disk is gone")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> https.Certificate:
    return https.ensure_certificate(tmp_path_factory.mktemp("serving"), ("alpha", "127.0.0.1"))


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
def served(door: Door, certificate: https.Certificate) -> Iterator[Endpoint]:
    made = Endpoint("127.0.0.1", 0, certificate.context(), door.respond)
    made.start()
    yield made
    made.stop()


def test_a_request_is_told_by_path_query_and_token(served: Endpoint, door: Door) -> None:
    with client(served.port, "abc") as http:
        assert http.get("/containerLogs/default/a%2Fb/c?follow=true&tailLines=").text == "hello"
        assert http.get("/again").text == "hello"
    request, _ = door.requests
    assert request.path == ("containerLogs", "default", "a/b", "c")
    assert request.query == {"follow": "true", "tailLines": ""}
    assert request.token == "abc"


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer"])
def test_what_is_no_bearer_token_is_none(served: Endpoint, door: Door, header: str) -> None:
    with client(served.port) as http:
        http.get("/", headers={"Authorization": header} if header else {})
    assert door.requests[0].token == ""


def test_the_certificate_is_the_one_that_was_made(served: Endpoint, certificate: https.Certificate) -> None:
    context = ssl.create_default_context(cafile=str(certificate.certificate))
    assert httpx.get(f"https://127.0.0.1:{served.port}/", verify=context).text == "hello"


def test_a_stream_ends_when_its_client_goes_away(served: Endpoint, door: Door) -> None:
    with client(served.port) as http, http.stream("GET", "/stream") as response:
        lines = response.iter_lines()  # kept: an iterator that nobody has ends its connection
        assert next(lines) == "first"
        assert door.ended.empty()
    assert door.ended.get(timeout=TIMEOUT) == "ended"


def test_a_stream_ends_when_the_server_stops(served: Endpoint, door: Door) -> None:
    with client(served.port) as http, http.stream("GET", "/stream") as response:
        lines = response.iter_lines()
        assert next(lines) == "first"
        served.stop()
        assert list(lines) == []
    assert door.ended.get(timeout=TIMEOUT) == "ended"


def test_a_stream_that_breaks_off_does_not_look_complete(served: Endpoint) -> None:
    with (
        client(served.port) as http,
        http.stream("GET", "/broken") as response,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        response.read()


def test_only_get_is_answered(served: Endpoint, door: Door) -> None:
    with client(served.port) as http:
        assert http.post("/", content=b"x").status_code == 501
    assert door.requests == []


def test_who_connects_and_says_nothing_keeps_nobody_waiting(served: Endpoint) -> None:
    with socket.create_connection(("127.0.0.1", served.port)), client(served.port) as http:
        assert http.get("/").text == "hello"


def test_who_speaks_no_tls_is_left_without_an_answer(served: Endpoint) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=TIMEOUT) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"hello" not in plain.recv(1000)
    with client(served.port) as http:
        assert http.get("/").text == "hello"


def test_no_more_connections_are_served_than_there_are_places(
    door: Door, certificate: https.Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https, "AGENT_CONNECTIONS", 1)
    served = Endpoint("127.0.0.1", 0, certificate.context(), door.respond)
    served.start()
    try:
        with client(served.port) as first, first.stream("GET", "/stream") as response:
            lines = response.iter_lines()  # kept: an iterator that nobody has ends its connection
            assert next(lines) == "first"
            with client(served.port) as second, pytest.raises(httpx.TransportError):
                second.get("/")
        assert door.ended.get(timeout=TIMEOUT) == "ended"
    finally:
        served.stop()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["nothing", "half a handshake"])
def test_idle_connections_make_room_for_others(
    door: Door, certificate: https.Certificate, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https, "AGENT_CONNECTIONS", 4)
    served = Endpoint("127.0.0.1", 0, certificate.context(), door.respond)
    served.start()
    try:
        with contextlib.ExitStack() as stack, client(served.port) as kept, kept.stream("GET", "/stream") as response:
            lines = response.iter_lines()
            assert next(lines) == "first"
            for _ in range(8):
                line = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=TIMEOUT))
                with contextlib.suppress(ConnectionError):
                    line.sendall(sent)
            for _ in range(3):
                with client(served.port) as http:
                    assert http.get("/").text == "hello"
    finally:
        served.stop()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_versions_of_tls_are_not_spoken(served: Endpoint) -> None:
    context = unverified()
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=TIMEOUT) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain)


def test_an_address_that_is_taken_is_an_error(served: Endpoint, certificate: https.Certificate) -> None:
    with pytest.raises(OSError, match="in use"):
        Endpoint("127.0.0.1", served.port, certificate.context(), lambda _: HttpsAnswer(body=""))


# Certificates.


@pytest.fixture
def made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are made without a process of their own, as those of the tests above are."""
    monkeypatch.setattr(
        https, "_make", lambda folder, hosts: certificate_maker.serving(folder, hosts, datetime.now(UTC))
    )


@pytest.mark.usefixtures("made_here")
def test_a_certificate_is_kept(tmp_path: Path) -> None:
    made = https.ensure_certificate(tmp_path, ("alpha", "127.0.0.1", "::1"))
    assert https.ensure_certificate(tmp_path, ("alpha", "127.0.0.1", "::1")) == made
    assert https.ensure_certificate(tmp_path, ("alpha",)) == made
    assert made.key.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"agent.crt", "agent.key"}


@pytest.mark.sample(2)
@pytest.mark.usefixtures("made_here")
@pytest.mark.parametrize("spoil", ["host", "certificate", "key", "other key"])
def test_a_certificate_that_will_not_do_is_made_anew(tmp_path: Path, spoil: str) -> None:
    made = https.ensure_certificate(tmp_path, ("alpha",))
    hosts = ("beta",) if spoil == "host" else ("alpha",)
    if spoil == "certificate":
        made.certificate.write_text("nothing")
    if spoil == "key":
        made.key.unlink()
    if spoil == "other key":
        made.key.write_text(https.ensure_certificate(tmp_path / "other", ("alpha",)).key.read_text())
    renewed = https.ensure_certificate(tmp_path, hosts)
    assert renewed.fingerprint != made.fingerprint
    renewed.context()


@pytest.mark.usefixtures("made_here")
def test_a_certificate_near_its_end_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = https.ensure_certificate(tmp_path, ("alpha",))
    monkeypatch.setattr(https, "RENEW_BEFORE", 3651 * 86400)
    assert https.ensure_certificate(tmp_path, ("alpha",)).fingerprint != made.fingerprint


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        https.ensure_certificate(tmp_path / "file" / "serving", ("alpha",))
