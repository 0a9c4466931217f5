"""Addresses as they stand on the command line, and ports that are taken."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
import uvloop
from django.core.management.base import CommandError

from manciple.api import certificates
from manciple.api.connections import ConnectionTable
from manciple.processes.listeners import (
    HANDSHAKE_SECONDS,
    HANDSHAKES,
    PAUSE,
    Acceptor,
    Address,
    AddressInUse,
    Handshakes,
    Listeners,
    Tls,
    bind,
    renew_certificate,
)

#: Seconds after which net/http in Go lets go of an idle connection (http.DefaultTransport).
IDLE_IN_GO = 90


@pytest.mark.parametrize(
    ("text", "address", "url_host"),
    [
        ("127.0.0.1:8000", Address("127.0.0.1", 8000), "127.0.0.1"),
        ("[::1]:0", Address("::1", 0), "[::1]"),
        ("0.0.0.0:6443", Address("0.0.0.0", 6443), "127.0.0.1"),
        ("lab.example.org:80", Address("lab.example.org", 80), "lab.example.org"),
    ],
)
def test_an_address_is_read_and_told_as_a_url_would(text: str, address: Address, url_host: str) -> None:
    assert Address.parse(text) == address
    assert address.url_host == url_host


@pytest.mark.parametrize("text", ["8000", ":8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT, for example" if text == "8000" else f"^{text!r}"):
        Address.parse(text)


def test_a_certificate_that_is_replaced_is_used_and_one_that_is_half_replaced_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("manciple.processes.listeners.CERTIFICATES_READ_EVERY", 0.01)
    first, second = (certificates.ensure(tmp_path / name) for name in ("first", "second"))
    used = tmp_path / "tls"
    used.mkdir()
    tls = Tls(certificate=used / "tls.crt", key=used / "tls.key")

    def put(certificate: Path, key: Path) -> None:
        tls.certificate.write_bytes(certificate.read_bytes())
        tls.key.write_bytes(key.read_bytes())

    put(first.certificate, first.key)
    loaded: list[bytes] = []

    class Context:
        def load_cert_chain(self, certificate: Path, _key: Path) -> None:
            loaded.append(certificate.read_bytes())

    async def replace() -> None:
        config: Any = SimpleNamespace(ssl=Context())
        renewing = asyncio.ensure_future(renew_certificate(config, tls))
        await asyncio.sleep(0)
        tls.certificate.write_bytes(second.certificate.read_bytes())  # beside the first one's key
        while "cannot be used" not in caplog.text:
            await asyncio.sleep(0.01)
        put(second.certificate, second.key)
        while not loaded:
            await asyncio.sleep(0.01)
        renewing.cancel()

    asyncio.run(asyncio.wait_for(replace(), 60))
    assert set(loaded) == {second.certificate.read_bytes()}


def test_a_taken_port_is_told_with_its_address() -> None:
    taken = bind(Address("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with pytest.raises(AddressInUse, match=f"cannot listen on 127.0.0.1:{port}"):
        bind(Address("127.0.0.1", port))
    taken.close()


@pytest.mark.parametrize(("host", "everywhere"), [("0.0.0.0", True), ("::", True), ("127.0.0.1", False)])
def test_an_address_tells_whether_it_listens_everywhere(host: str, everywhere: bool) -> None:
    assert Address(host, 1).listens_everywhere is everywhere


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_answer_does_not_wait_until_its_head_is_acknowledged(host: str) -> None:
    with (
        bind(Address(host, 0)) as listener,
        socket.create_connection(listener.getsockname()[:2]),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_in_go_lets_go_of_an_idle_connection_before_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a request may be sent over what is just being closed."""
    made: list[uvicorn.Config] = []

    class Recorded(uvicorn.Server):
        def __init__(self, config: uvicorn.Config, _table: object) -> None:
            super().__init__(config)
            made.append(config)

    async def nothing(*_: Any) -> None:
        return

    monkeypatch.setattr("manciple.processes.listeners.LimitedServer", Recorded)
    with bind(Address("127.0.0.1", 0)) as listener:
        Listeners(nothing, on_stop=nothing).add(listener)
    assert made[0].timeout_keep_alive > IDLE_IN_GO


class Exhausted(socket.socket):
    """A listening socket for whose connections there is no descriptor left."""

    tried = 0

    def accept(self) -> Any:
        self.tried += 1
        raise OSError(errno.EMFILE, "Too many open files")


def test_a_process_without_descriptors_does_not_try_for_ever() -> None:
    async def play(listener: Exhausted) -> None:
        acceptor = Acceptor(listener, ConnectionTable(10, descriptors=100), lambda **_: None, tls=None)
        acceptor.start()
        await asyncio.sleep(2.5 * PAUSE)
        acceptor.close()

    with Exhausted() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            uvloop.run(play(listener))
        assert 1 < listener.tried <= 3


def test_of_one_address_few_handshakes_are_begun_at_a_time() -> None:
    begun: list[str] = []
    leaves: list[Callable[[], None]] = []

    def begin(handshakes: Handshakes, address: str) -> None:
        def handshake(leave: Callable[[], None]) -> None:
            begun.append(address)
            leaves.append(leave)

        handshakes.begin(address, handshake)

    async def play() -> None:
        handshakes = Handshakes(asyncio.get_running_loop())
        for _ in range(3 * HANDSHAKES):
            begin(handshakes, "192.0.2.1")
        begin(handshakes, "192.0.2.2")
        assert begun == ["192.0.2.1"] * HANDSHAKES + ["192.0.2.2"]
        leaves[0]()
        leaves[0]()  # twice is once
        assert len(begun) == HANDSHAKES + 2
        async with asyncio.timeout(5):
            while handshakes._running or handshakes._waiting:  # clients that do not go on hold up nobody
                await asyncio.sleep(HANDSHAKE_SECONDS)
        assert len(begun) == 3 * HANDSHAKES + 1

    asyncio.run(play())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gpu.example.org"])
def test_in_development_only_loopback_is_listened_on(settings: Any, host: str) -> None:
    settings.DEBUG = True
    with pytest.raises(CommandError, match=f"not {re.escape(host)}: errors show source and settings"):
        bind(Address(host, 0))
    for here in ("127.0.0.1", "localhost"):
        bind(Address(here, 0)).close()
