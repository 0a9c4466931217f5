"""WebSockets of clients without credentials: each address has a rate of refusals, and nobody who is signed in pays."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings

from manciple import asgi
from manciple.api import lanes
from manciple.api.lanes import SocketLimits
from tests.manciple.api.requests import NAMESPACES
from tests.manciple.api.server import ApiServer, api_server, server_certificates

__all__ = ["api_server", "server_certificates"]

AT_ONCE = 5
TOO_MANY = 429


async def accept(_scope: Any, _receive: Any, send: Any) -> None:
    """A page whose person is signed in."""
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "{}"})


async def close(_scope: Any, _receive: Any, send: Any) -> None:
    """As a page of nobody is closed, so that its script learns the reason."""
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": 4401})


async def closed_at_once(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "websocket.close"})


def opened(
    limits: SocketLimits, application: Any, *, address: str = "192.0.2.1", session: str = ""
) -> list[dict[str, Any]]:
    """What the server sends."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    cookie = f"{settings.SESSION_COOKIE_NAME}={session}".encode()
    scope = {"type": "websocket", "client": (address, 5), "headers": [(b"cookie", cookie)] if session else []}
    asyncio.run(limits.serve(application, scope, receive, send))
    return sent


def is_refused(sent: list[dict[str, Any]]) -> bool:
    return sent[0].get("status") == TOO_MANY


@pytest.mark.parametrize("refuse", [close, closed_at_once])
def test_an_address_has_a_rate_of_refused_sockets(refuse: Any) -> None:
    limits = SocketLimits(rate=0.01, burst=AT_ONCE, delay=0)
    assert not any(is_refused(opened(limits, refuse)) for _ in range(AT_ONCE))
    refusal = opened(limits, refuse)
    assert is_refused(refusal)
    assert int(dict(refusal[0]["headers"])[b"retry-after"]) > 0
    assert not is_refused(opened(limits, refuse, address="192.0.2.2"))


def test_addresses_of_one_ipv6_network_count_together() -> None:
    limits = SocketLimits(rate=0.01, burst=AT_ONCE, delay=0)
    sent = [opened(limits, close, address=f"2001:db8::{number}") for number in range(AT_ONCE + 1)]
    assert [is_refused(one) for one in sent] == [False] * AT_ONCE + [True]


def test_pages_of_signed_in_people_do_not_count() -> None:
    limits = SocketLimits(rate=0.01, burst=AT_ONCE, delay=0)
    assert not any(is_refused(opened(limits, accept, session=f"s{number}")) for number in range(10 * AT_ONCE))


def test_a_session_has_a_rate_of_its_own_and_others_at_its_address_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "OPENED", 0.01)
    monkeypatch.setattr(lanes, "OPENED_AT_ONCE", AT_ONCE)
    limits = SocketLimits(rate=0.01, burst=AT_ONCE, delay=0)
    sent = [opened(limits, accept, session="mallory") for _ in range(3 * AT_ONCE)]
    assert [is_refused(one) for one in sent] == [False] * AT_ONCE + [True] * 2 * AT_ONCE
    assert not is_refused(opened(limits, accept, session="bob"))


def test_a_flood_of_sockets_without_credentials_is_answered_429_and_others_are_served(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "_socket_limits", SocketLimits(rate=0.01, burst=AT_ONCE, delay=0))
    parts = urlsplit(api_server.url)
    head = (
        f"GET {NAMESPACES}/default/pods/p/exec HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    trusted = ssl.create_default_context(cafile=str(api_server.ca_file))
    codes = []
    for _ in range(2 * AT_ONCE):
        plain = socket.create_connection((parts.hostname, parts.port), timeout=20)
        with trusted.wrap_socket(plain, server_hostname=parts.hostname) as line:
            line.sendall(head.encode())
            codes.append(int(line.recv(4096).split()[1]))
    assert codes == [403] * AT_ONCE + [TOO_MANY] * AT_ONCE
    with api_server.client() as client:
        assert client.get(NAMESPACES).status_code == 200


def test_refusals_beyond_the_rate_are_answered_late() -> None:
    limits = SocketLimits(rate=0.01, burst=1, delay=0.2)
    opened(limits, close)
    began = time.monotonic()
    assert is_refused(opened(limits, close))
    assert time.monotonic() - began >= 0.2
