"""Sessions with an agent, seen from the API server: their ends, their limits, and what a slow client costs."""

from __future__ import annotations

import array
import fcntl
import socket
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlencode

import msgspec
import pytest

from manciple.wire import channels
from manciple.wire.channels import ERROR, RESIZE, STDIN, STDOUT, FrameReader
from nodeagent.http import server as https
from nodeagent.http import sessions
from tests.e2e.processes import wait_for
from tests.manciple.api.session_world import LocalAgent, serving
from tests.nodeagent.http.served import unverified

TIMEOUT = 60.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> https.Certificate:
    return https.ensure_certificate(tmp_path_factory.mktemp("serving"), ("alpha", "127.0.0.1"))


@pytest.fixture
def agent() -> LocalAgent:
    return LocalAgent()


@pytest.fixture
def port(agent: LocalAgent, certificate: https.Certificate) -> Iterator[int]:
    with serving(agent, certificate) as endpoint:
        yield endpoint.port


class Line:
    """A connection whose frames a test sends and reads."""

    def __init__(self, port: int, path: str, *, person: str = "bob") -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.socket = unverified().wrap_socket(plain)
        head = (
            f"GET {path} HTTP/1.1\r\nHost: a\r\nX-Remote-User: {person}\r\nUpgrade: {channels.AGENT_PROTOCOL}\r\n\r\n"
        )
        self.socket.sendall(head.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(1)
        self.code = int(answer.split(b" ")[1])
        self._reader = FrameReader()

    def send(self, channel: int, data: bytes) -> None:
        for frame in channels.frames(channel, data):
            self.socket.sendall(frame)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        while data := self.socket.recv(65536):
            yield from self._reader.feed(data)

    def until(self, text: bytes) -> None:
        out = b""
        for channel, data in self.frames():
            out += data if channel == STDOUT else b""
            if text in out:
                return
        raise AssertionError(out)


@contextmanager
def line(port: int, *command: str, **flags: bool) -> Iterator[Line]:
    words = [("command", word) for word in command] + [(name, "true") for name in flags]
    found = Line(port, f"/exec/default/p/main?{urlencode(words)}")
    assert found.code == 101
    try:
        yield found
    finally:
        found.socket.close()


def test_the_status_is_the_last_word(port: int) -> None:
    with line(port, "sh", "-c", "echo out; exit 3", stdout=True) as session:
        heard = []
        for channel, data in session.frames():
            heard.append((channel, data))
            if channel == ERROR:  # then it is the client that hangs up
                break
    assert msgspec.json.decode(heard[-1][1])["reason"] == "NonZeroExitCode"
    assert (STDOUT, b"out\n") in heard


def test_a_session_without_a_byte_ends(port: int, agent: LocalAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(sessions, "LOOK_SECONDS", 0.05)
    with line(port, "sleep", "1000", stdout=True) as session:
        assert list(session.frames()) == []
    wait_for("the end of the command", lambda: agent.runtime.begun[0].ended is None)


def test_the_size_of_a_terminal_keeps_no_session_alive(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(sessions, "LOOK_SECONDS", 0.05)
    with line(port, "sleep", "1000", stdin=True, stdout=True, tty=True) as session:
        threading.Thread(target=_resize_again_and_again, args=(session,), daemon=True).start()
        assert list(session.frames()) == []


def _resize_again_and_again(session: Line) -> None:
    with suppress(OSError, ValueError):  # until it is closed
        while True:
            session.send(RESIZE, b'{"Width":80,"Height":24}')
            time.sleep(0.01)


def test_a_session_ends_after_its_time_whatever_moves(
    port: int, agent: LocalAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LONGEST_SECONDS", 0.5)
    monkeypatch.setattr(sessions, "LOOK_SECONDS", 0.05)
    with line(port, "yes", stdout=True) as session:
        for _ in session.frames():
            pass
    wait_for("the end of the command", lambda: agent.runtime.begun[0].ended is None)


def test_a_session_that_moves_outlives_the_time_without_a_byte(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 1.0)
    monkeypatch.setattr(sessions, "LOOK_SECONDS", 0.05)
    with line(port, "cat", stdin=True, stdout=True) as session:
        ends = time.monotonic() + 2.0
        while time.monotonic() < ends:
            session.send(STDIN, b"x\n")
            session.until(b"x\n")


def test_a_client_that_reads_nothing_stops_the_command(port: int, agent: LocalAgent) -> None:
    with line(port, "sh", "-c", "yes | head -c 50000000; echo done >&2", stdout=True, stderr=True):
        command = agent.runtime.begun[0]
        # The pipe is full, and stays so: nobody takes anything out of it.
        wait_for("a full pipe", lambda: _is_full(command.outputs[STDOUT]))
        assert _is_full(command.outputs[STDOUT])
        assert command.ended is not None
    wait_for("the end of the command", lambda: command.ended is None)


def _is_full(descriptor: int) -> bool:
    """Whether as many bytes wait in the pipe as it holds."""
    waiting = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    return waiting[0] >= fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) - 4096


BAD_FRAMES = {
    "a frame that is too long": b"\xff\xff\xff\xff\x00",
    "an end of two streams": b"\x00\x00\x00\x02\xff\x00\x01",
}


@pytest.mark.parametrize("case", BAD_FRAMES)
def test_what_is_no_frame_ends_the_session(port: int, agent: LocalAgent, case: str) -> None:
    with line(port, "cat", stdin=True, stdout=True) as session:
        session.socket.sendall(BAD_FRAMES[case])
        for _ in session.frames():
            pass
    wait_for("the end of the command", lambda: agent.runtime.begun[0].ended is None)
