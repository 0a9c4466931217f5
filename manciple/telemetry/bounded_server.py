"""Small servers, a thread for each connection, that clients cannot fill up. PURE.

For listeners that are not the API's: the agent's, and the metrics of workers. `connections` are served at once. A
newcomer replaces the oldest connection without a request, of the address that has the most of them.
"""

from __future__ import annotations

import errno
import logging
import socket
import socketserver
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

log = logging.getLogger(__name__)

CONNECTIONS = 64
#: Seconds in which a client must send or take something.
IDLE_SECONDS = 30.0
#: Seconds between two lines of the log about too many connections.
LOG_INTERVAL = 60.0
#: What accept(2) reports when descriptors or memory have run out, and the seconds until it is tried again.
EXHAUSTED, PAUSE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}), 0.2


class BoundedThreads(socketserver.ThreadingMixIn):
    """Before a `TCPServer` among the base classes."""

    daemon_threads = True
    block_on_close = False
    connections = CONNECTIONS
    #: Connections that may wait to be accepted. With socketserver's five, whoever comes while many do is made to try
    #: again by the kernel, after a second, three, seven.
    request_queue_size = 128

    def __init__(self, *args: Any, **options: Any) -> None:
        self._lock = threading.Lock()
        #: the addresses of open connections, the oldest first
        self._open: dict[socket.socket, str] = {}
        self._answering: set[socket.socket] = set()
        self._next_report = 0.0
        super().__init__(*args, **options)

    @contextmanager
    def answering(self, connection: socket.socket) -> Iterator[None]:
        """Its client asked for something: it is not replaced meanwhile."""
        with self._lock:
            self._answering.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._answering.discard(connection)

    def shutdown(self) -> None:
        """Stop `serve_forever` at once, not at its next poll: shutting the listening socket down wakes it."""
        listener: socket.socket = self.socket  # type: ignore[attr-defined]  # of the server beside this class
        with suppress(OSError):  # not every system allows this
            listener.shutdown(socket.SHUT_RDWR)
        super().shutdown()  # type: ignore[misc]  # likewise

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()  # type: ignore[misc,no-any-return]  # of the server beside this class
        except OSError as error:
            if error.errno in EXHAUSTED:  # the socket stays readable: without a pause this would loop without end
                with self._lock:
                    self._drop_one(error.strerror or "")
                time.sleep(PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= self.connections:
                self._drop_one(f"{self.connections} are open")
            full = len(self._open) >= self.connections
            if not full:
                self._open[request] = client_address[0]
        if full:
            self.shutdown_request(request)  # type: ignore[attr-defined]  # of the server beside this class
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        """Clients that go away, are too slow or speak no TLS are none of our business."""
        error = sys.exception()
        level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
        log.log(level, "a connection from %s: %s", client_address[0], error, exc_info=level == logging.ERROR)

    def _drop_one(self, reason: str) -> None:
        idle = {connection: address for connection, address in self._open.items() if connection not in self._answering}
        if idle:
            (most, _), *_ = Counter(idle.values()).most_common(1)
            victim = next(connection for connection, address in idle.items() if address == most)
            del self._open[victim]
            with suppress(OSError):  # its thread then sees the end. An SSLSocket would forget its state first.
                socket.socket.shutdown(victim, socket.SHUT_RDWR)
        if (now := time.monotonic()) >= self._next_report:
            self._next_report = now + LOG_INTERVAL
            log.warning("too many connections (%s): idle ones are closed, or else the next", reason)


class _MetricsServer(BoundedThreads, WSGIServer):
    pass


class _MetricsHandler(WSGIRequestHandler):
    timeout = IDLE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s " + format, self.address_string(), *args)


def serve_metrics(host: str, port: int, registry: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    """Serve the registry over plain HTTP, in a thread. Raises: OSError where that address cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server_class = type("_MetricsServer", (_MetricsServer,), {"address_family": family})
    server: WSGIServer = server_class((host, port), _MetricsHandler)
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="metrics-listener", daemon=True)
    thread.start()
    return server, thread
