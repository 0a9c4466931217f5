"""The HTTPS endpoint of the guard, for API servers: HTTP/1.1, a thread for each connection, few of them.

    POST /guard[/TOKEN]     an AdmissionReview -> an AdmissionReview
    GET /livez, /readyz     for probes; ready once the copy was read

Whoever can reach it can have devices promised for half a minute, so beyond loopback it wants a token, as the last part
of the path that the webhook's configuration names. The certificate is read again when its files change, as cert-manager
and mounted Secrets change them. Bodies, connections and the time of each are bounded.
"""

from __future__ import annotations

import hmac
import logging
import socket
import socketserver
import ssl
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from manciple.api.certificates import ServingCertificate
from manciple.mirror.guard import reviews
from manciple.mirror.guard.judging import Guard, Unavailable
from manciple.mirror.guard.options import PATH
from manciple.mirror.guard.reviews import NoReview
from manciple.telemetry.bounded_server import BoundedThreads

log = logging.getLogger(__name__)

#: Of a review: two objects of the most that etcd takes (1.5 MiB), and what stands around them.
MOST_BYTES: Final = 4 << 20
#: Connections at a time; API servers keep those that they use.
CONNECTIONS: Final = 64
#: Seconds that a connection may be idle, and in which a request must have come.
IDLE_SECONDS, REQUEST_SECONDS = 95.0, 10.0
#: Bytes that are read at a time.
PORTION: Final = 64 << 10


class GuardListener:
    """Serves from `start` to `stop`. token: "" for none. Raises: OSError where the certificate cannot be used."""

    def __init__(self, listener: socket.socket, certificate: ServingCertificate, guard: Guard, *, token: str) -> None:
        self._server = _Server(listener, certificate, guard, token)
        self._thread = threading.Thread(target=self._server.serve_forever, name="guard-listener", daemon=True)

    @property
    def port(self) -> int:
        port: int = self._server.server_address[1]
        return port

    def start(self) -> None:
        self._thread.start()

    def ready(self) -> None:
        """The copy was read."""
        self._server.is_ready = True

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(BoundedThreads, socketserver.TCPServer):
    connections = CONNECTIONS

    def __init__(self, listener: socket.socket, certificate: ServingCertificate, guard: Guard, token: str) -> None:
        self.certificate, self.guard, self.is_ready = certificate, guard, False
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        certificate.load(self.context)
        self.path = f"{PATH}/{token}" if token else PATH
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.server_address = listener, listener.getsockname()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.certificate.renew(self.context)
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "manciple-guard", ""
    timeout = IDLE_SECONDS
    wbufsize = PORTION
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s\n"
    server: _Server

    def setup(self) -> None:
        self.request.settimeout(REQUEST_SECONDS)
        self.request.do_handshake()
        super().setup()

    def do_GET(self) -> None:
        ready = self.path != "/readyz" or self.server.is_ready
        if self.path not in ("/livez", "/readyz"):
            self._refuse(HTTPStatus.NOT_FOUND, "not found")
        elif ready:
            self._send(b"ok\n", "text/plain; charset=utf-8")
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the copy of the cluster is still being read")

    def do_POST(self) -> None:
        """Bodies are read first, so that the connection can be used again."""
        body = self._body()
        if body is None:
            return
        if not hmac.compare_digest(self.path.partition("?")[0].encode(), self.server.path.encode()):
            self._refuse(HTTPStatus.NOT_FOUND, "not found")
            return
        with self.server.answering(self.connection):
            try:
                question = reviews.read(body)
                found = self.server.guard.answer(question)
            except NoReview as error:
                self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            except Unavailable as error:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            except Exception:
                log.exception("a write was not judged")
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the guard failed; its log says why")
            else:
                text = reviews.answer(question.uid, refusal=found.refusal, warnings=found.warnings, notes=found.notes)
                self._send(text, "application/json")

    def _body(self) -> bytes | None:
        """None where it was refused."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or not length.isascii() or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "Content-Length is required")
        elif len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MOST_BYTES} bytes")
        elif self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "application/json is expected")
        else:
            return self._read(int(length))
        return None

    def _read(self, length: int) -> bytes:
        """Raises: OSError where it does not come in time."""
        deadline, parts, left = time.monotonic() + REQUEST_SECONDS, list[bytes](), length
        self.connection.settimeout(REQUEST_SECONDS)
        while left:
            part = self.rfile.read1(min(left, PORTION))
            if not part or time.monotonic() > deadline:
                raise ConnectionError("the request does not come in time, or not at all")
            parts.append(part)
            left -= len(part)
        self.connection.settimeout(IDLE_SECONDS)
        return b"".join(parts)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """The connection ends: its body may not have been read."""
        self.close_connection = True
        self._send(f"{message}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(self, content: bytes, content_type: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s " + format, self.address_string(), *args)
