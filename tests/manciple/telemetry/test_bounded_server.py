"""The listener of a worker's metrics, and clients that open connections and say nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from manciple.telemetry.bounded_server import CONNECTIONS, serve_metrics
from tests.e2e.processes import wait_for


@pytest.fixture
def port() -> Iterator[int]:
    registry = CollectorRegistry()
    Gauge("answer", "The answer.", registry=registry).set(42)
    server, thread = serve_metrics("127.0.0.1", 0, registry)
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_metrics_are_served(port: int) -> None:
    assert "answer 42.0" in httpx.get(f"http://127.0.0.1:{port}/metrics").text


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n"], ids=["nothing", "half a head"])
def test_idle_connections_take_neither_all_threads_nor_all_files(port: int, sent: bytes) -> None:
    threads = threading.active_count()
    with ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)).sendall(sent)
        assert "answer 42.0" in httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
        # Those that were dropped end soon; an idle one would only after `IDLE_SECONDS`.
        few = CONNECTIONS + 5
        wait_for(
            "the threads of those that were dropped", lambda: threading.active_count() - threads <= few, timeout=10
        )
