"""The front door's sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator

from manciple.asgi import application


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default/pods/web/exec", "/", "/nonsense"])
def test_a_socket_that_nobody_serves_is_refused(path: str) -> None:
    async def opened() -> dict[str, Any]:
        scope = {"type": "websocket", "path": path, "query_string": b"", "headers": [], "subprotocols": []}
        socket: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
        await socket.send_input({"type": "websocket.connect"})
        answer: dict[str, Any] = await socket.receive_output(timeout=60)
        return answer

    assert asyncio.run(opened())["type"] == "websocket.close"
