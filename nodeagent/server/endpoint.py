"""An HTTPS server small enough for a node: the standard library's, a thread for each connection, GET only.

A connection that says nothing for `IDLE_SECONDS` is closed, TLS handshakes happen in the connection's own thread, and
no more than `CONNECTIONS` are served at once: whoever can reach the port can take no more of the machine than that.
"""

from __future__ import annotations

import logging
import select
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

log = logging.getLogger(__name__)

IDLE_SECONDS = 30.0
CONNECTIONS = 64
TEXT = "text/plain; charset=utf-8"


class HungUp(threading.Event):
    """Set once the client has gone or the server stops: what a stream looks at while it has nothing to send.

    Whoever answers a request reads nothing from its client any more; so something to read can only be the end.
    """

    def __init__(self, connection: socket.socket, stopping: threading.Event) -> None:
        super().__init__()
        self._stopping = stopping
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN | select.POLLHUP | select.POLLERR)

    def is_set(self) -> bool:
        return super().is_set() or self._stopping.is_set() or bool(self._poll.poll(0))

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set() or self._stopping.wait(timeout) or self.is_set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One GET. path: its segments, decoded. token: of the Authorization header, "" for none."""

    path: tuple[str, ...]
    query: Mapping[str, str]
    token: str
    hung_up: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`body`: whole, or in pieces that are sent as they come."""

    code: int = 200
    body: str | bytes | Iterator[bytes]
    content_type: str = TEXT


Respond = Callable[[Request], Answer]


class Endpoint:
    """Serves `respond` on a socket of its own from `start` to `stop`. port 0 takes any free one.

    Raises: OSError when the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, context: ssl.SSLContext, respond: Respond) -> None:
        self._server = _Server(host, port, context, respond)
        self._thread = threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True)

    @property
    def port(self) -> int:
        port: int = self._server.server_address[1]
        return port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End streams and stop listening."""
        self._server.stopping.set()
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, host: str, port: int, context: ssl.SSLContext, respond: Respond) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.context = context
        self.respond = respond
        self.stopping = threading.Event()
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__((host, port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        wrapped = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return wrapped, address

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            log.warning("%d connections are open already; one from %s was closed", CONNECTIONS, client_address[0])
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        """Clients that go away or speak no TLS are none of our business."""
        error = sys.exception()
        level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
        log.log(level, "a connection from %s: %s", client_address[0], error, exc_info=level == logging.ERROR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "manciple-nodeagent"
    sys_version = ""
    timeout = IDLE_SECONDS
    wbufsize = 64 * 1024
    error_content_type = TEXT
    error_message_format = "%(message)s\n"

    def setup(self) -> None:
        self.request.settimeout(IDLE_SECONDS)
        self.request.do_handshake()
        super().setup()

    def do_GET(self) -> None:
        server = self.server
        if not isinstance(server, _Server):
            raise TypeError(server)
        url = urlsplit(self.path)
        request = Request(
            path=tuple(unquote(part) for part in url.path.split("/")[1:]),
            query=dict(parse_qsl(url.query, keep_blank_values=True)),
            token=self._token(),
            hung_up=HungUp(self.connection, server.stopping),
        )
        answer = server.respond(request)
        if isinstance(answer.body, str | bytes):
            self._send_whole(answer, answer.body)
        else:
            self._send_pieces(answer, answer.body)

    def _token(self) -> str:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def _send_whole(self, answer: Answer, body: str | bytes) -> None:
        content = body.encode() if isinstance(body, str) else body
        self._send_head(answer, ("Content-Length", str(len(content))))
        self.wfile.write(content)
        self.wfile.flush()

    def _send_pieces(self, answer: Answer, pieces: Iterator[bytes]) -> None:
        """Chunked. An error in between closes the connection without the last chunk: the client sees that it broke."""
        self.close_connection = True
        self._send_head(answer, ("Transfer-Encoding", "chunked"), ("Connection", "close"))
        self.wfile.flush()
        for piece in pieces:
            if piece:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send_head(self, answer: Answer, *headers: tuple[str, str]) -> None:
        self.send_response(answer.code)
        for name, value in (("Content-Type", answer.content_type), ("X-Content-Type-Options", "nosniff"), *headers):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s " + format, self.address_string(), *args)
