"""The HTTPS server of the agent, its certificate, and what a Node says of them."""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import select
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from manciple.telemetry.bounded_server import CONNECTIONS, IDLE_SECONDS, BoundedThreads
from manciple.wire.half_open import keep_alive
from nodeagent.config import ListenAddress
from nodeagent.failures import ListenFailed
from nodeagent.http.sessions import MOST
from nodeagent.node.registration import Serving

# An HTTPS server small enough for a node: the standard library's, a thread for each connection, GET only. A connection
# that says nothing for `IDLE_SECONDS` is closed, TLS handshakes happen in the connection's own thread, and no more than
# `AGENT_CONNECTIONS` are served at once: whoever can reach the port can take no more of the machine than that, and idle
# connections make room for others (`BoundedThreads`).

log = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
#: For whom the API server asks.
PERSON = "X-Remote-User"
#: Connections served at once: sessions and logs (`nodeagent.http.sessions`), and as many others as elsewhere.
AGENT_CONNECTIONS = MOST + CONNECTIONS


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
    """One GET. path: its segments, decoded. token: of the Authorization header, "" for none.

    parameters: the query with every value of a name. upgrade, person: of the headers Upgrade and PERSON.
    """

    path: tuple[str, ...]
    query: Mapping[str, str]
    token: str
    hung_up: threading.Event
    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    upgrade: str = ""
    person: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpsAnswer:
    """`body`: whole, or in pieces that are sent as they come. held: what is let go of once it is sent."""

    code: int = 200
    body: str | bytes | Iterator[bytes]
    content_type: str = TEXT
    held: AbstractContextManager[object] = field(default_factory=nullcontext)


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The connection becomes something else. run: talks until it is over, or the event says that the server ends.

    held: what is let go of then.
    """

    protocol: str
    run: Callable[[ssl.SSLSocket, threading.Event], None]
    held: AbstractContextManager[object]


Respond = Callable[[Request], HttpsAnswer | Upgraded]


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


class _Server(BoundedThreads, socketserver.TCPServer):
    allow_reuse_address = True

    def __init__(self, host: str, port: int, context: ssl.SSLContext, respond: Respond) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.context = context
        self.respond = respond
        self.stopping = threading.Event()
        self.connections = AGENT_CONNECTIONS
        super().__init__((host, port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        wrapped = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return wrapped, address


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
        keep_alive(self.request)  # a log that prints nothing sends nothing
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
            parameters=parse_qs(url.query, keep_blank_values=True),
            upgrade=self.headers.get("Upgrade", ""),
            person=self.headers.get(PERSON, ""),
        )
        with server.answering(self.connection):
            answer = server.respond(request)
            with answer.held:
                if isinstance(answer, Upgraded):
                    self._upgrade(answer, server.stopping)
                elif isinstance(answer.body, str | bytes):
                    self._send_whole(answer, answer.body)
                else:
                    self._send_pieces(answer, answer.body)

    def _upgrade(self, answer: Upgraded, stopping: threading.Event) -> None:
        self.close_connection = True
        connection = self.connection
        if not isinstance(connection, ssl.SSLSocket):
            raise TypeError(connection)
        self.send_response(HTTPStatus.SWITCHING_PROTOCOLS)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", answer.protocol)
        self.end_headers()
        self.wfile.flush()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer.run(connection, stopping)

    def _token(self) -> str:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def _send_whole(self, answer: HttpsAnswer, body: str | bytes) -> None:
        content = body.encode() if isinstance(body, str) else body
        self._send_head(answer, ("Content-Length", str(len(content))))
        self.wfile.write(content)
        self.wfile.flush()

    def _send_pieces(self, answer: HttpsAnswer, pieces: Iterator[bytes]) -> None:
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

    def _send_head(self, answer: HttpsAnswer, *headers: tuple[str, str]) -> None:
        self.send_response(answer.code)
        for name, value in (("Content-Type", answer.content_type), ("X-Content-Type-Options", "nosniff"), *headers):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s " + format, self.address_string(), *args)


# The agent's own certificate: made at the first start, kept in its state directory, known by its SHA-256.

#: Seconds that making one may take, on a busy machine.
MAKING_TIMEOUT = 120
#: A certificate with less than this left (seconds) is made anew at the next start.
RENEW_BEFORE = 365 * 86400
_MAKER = Path(__file__).parents[1] / "node/certificate_maker.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The files, PEM. `fingerprint`: the SHA-256 of the certificate (DER), in hexadecimal."""

    certificate: Path
    key: Path
    fingerprint: str

    def context(self) -> ssl.SSLContext:
        """What a server presents it with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


def ensure_certificate(folder: Path, hosts: Sequence[str]) -> Certificate:
    """The certificate in `folder`, made where there is none that names `hosts` and has a year left.

    Raises: OSError saying what went wrong.
    """
    kept = _load(folder)
    if kept is not None and _will_do(kept.certificate, hosts):
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    _make(folder, hosts)
    made = _load(folder)
    if made is None:
        raise OSError(f"the certificate just made in {folder} cannot be read")
    return made


def _make(folder: Path, hosts: Sequence[str]) -> None:
    command = [sys.executable, "-P", str(_MAKER), "serving", str(folder), *hosts]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=MAKING_TIMEOUT)
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().rpartition("\n")[2]
        raise OSError(f"no certificate could be made in {folder}: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no certificate could be made in {folder} within {MAKING_TIMEOUT} s") from error


def _load(folder: Path) -> Certificate | None:
    """What lies in `folder`, if a server could present it."""
    certificate, key = folder / "agent.crt", folder / "agent.key"
    try:
        der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
        found = Certificate(certificate=certificate, key=key, fingerprint=hashlib.sha256(der).hexdigest())
        found.context()
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        return None
    return found


def _will_do(certificate: Path, hosts: Sequence[str]) -> bool:
    reader = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    reader.load_verify_locations(certificate)
    for described in reader.get_ca_certs():
        named = {_normal(str(entry[1])) for entry in described.get("subjectAltName", ())}
        ends = ssl.cert_time_to_seconds(str(described["notAfter"]))
        return {_normal(host) for host in hosts} <= named and ends - time.time() > RENEW_BEFORE
    return False


def _normal(host: str) -> str:
    """An IPv6 address may be written in several ways."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


class AgentServer:
    """Serves from `start` to `stop`. folder: keeps the certificate, which names `hosts`."""

    def __init__(self, address: ListenAddress, respond: Respond, *, folder: Path, hosts: tuple[str, ...]) -> None:
        self._address = address
        self._respond = respond
        self._folder = folder
        self._hosts = hosts
        self._endpoint: Endpoint | None = None
        #: the SHA-256 of the certificate in use, "" before the start
        self.fingerprint = ""

    def start(self) -> Serving:
        """Raises: ListenFailed saying what to do."""
        address = self._address
        try:
            certificate = ensure_certificate(self._folder, self._hosts)
            self.fingerprint = certificate.fingerprint
            self._endpoint = Endpoint(address.host, address.port, certificate.context(), self._respond)
        except OSError as error:
            raise ListenFailed(
                f"cannot serve health, metrics and logs on {address}: {error}; "
                f"choose an address of this machine with --listen ADDRESS:PORT, or none with --listen ''"
            ) from error
        self._endpoint.start()
        return Serving(port=self._endpoint.port, fingerprint=certificate.fingerprint)

    def stop(self) -> None:
        if self._endpoint is not None:
            self._endpoint.stop()
            self._endpoint = None
