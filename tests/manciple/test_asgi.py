"""The front door's sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.db import OperationalError

from manciple.asgi import TRY_AGAIN_LATER, application


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("/api/v1/namespaces/default/pods/web/exec", "websocket.http.response.start"),
        ("/api/v1/namespaces/default/pods/web/proxy", "websocket.close"),
        ("/api/v1/namespaces/default/pods", "websocket.close"),
        ("/", "websocket.close"),
        ("/nonsense", "websocket.close"),
    ],
)
def test_a_socket_of_nobody_or_that_is_not_served_is_refused(transactional_db: None, path: str, refusal: str) -> None:
    async def opened() -> dict[str, Any]:
        scope = {"type": "websocket", "path": path, "query_string": b"", "headers": [], "subprotocols": []}
        socket: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
        await socket.send_input({"type": "websocket.connect"})
        answer: dict[str, Any] = await socket.receive_output(timeout=60)
        return answer

    assert asyncio.run(opened())["type"] == refusal


def test_a_page_whose_socket_meets_an_outage_is_told_to_come_back(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_shown: Any) -> None:
        raise OperationalError("connection refused")

    async def opened() -> dict[str, Any]:
        headers = [(b"origin", b"http://localhost"), (b"host", b"localhost")]
        scope = {"type": "websocket", "path": "/live", "query_string": b"", "headers": headers, "subprotocols": []}
        socket: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
        await socket.send_input({"type": "websocket.connect"})
        answer: dict[str, Any] = await socket.receive_output(timeout=10)
        await socket.wait(timeout=10)
        return answer

    monkeypatch.setattr("manciple.live.consumers.heard_in", away)
    assert asyncio.run(opened()) == {"type": "websocket.close", "code": TRY_AGAIN_LATER}
