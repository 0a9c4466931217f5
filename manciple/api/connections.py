"""The listeners' connections: which stay open when there are too many, and how long a client may take.

**The table.** Each priority level (`manciple.api.flow_control`) has a share of the connections. A connection counts as
a stranger's until a request on it identifies its client, then for that identity. A new connection always gets in; it
replaces one of whoever has most:

 1. more idle strangers than their share: the oldest idle connection of the address with the most of them
 2. more connections than the limit, or few descriptors left: of the level furthest above its share, the oldest idle
    connection of the identity or address with the most, or else its oldest

So neither a thousand connections without credentials nor the watches of one tenant keep out probes, nodes and
administrators. A connection is idle if it serves no request: between two of them, half-way through a TLS handshake, a
head or a body, or with an answer that the client does not read. Clients behind one address, such as a proxy's, are
counted separately once they are identified. Used from one event loop.

**Time limits.** uvicorn waits forever for the first request of a connection, for the rest of a head that has begun, and
for a client to read its answer; a few thousand clients that send a byte a minute would hold as many connections
("slowloris"). It does not limit the size of a head either. Between two requests a connection may be idle for longer
(`timeout_keep_alive`). Bodies have their limits in `manciple.api.lanes`.

**Renewals of node Leases** wait `BATCH_DELAY` for each other, before they are parsed or anything else is done for them:
the same code takes a fourth of the time in a row of requests that it takes for each when it arrives. They are most of
what an idle cluster sends, and valid for 40 seconds. To the audit trail and the metrics, such a request begins when it
is received.

**Certificates.** The listener asks clients for a certificate and accepts only those of its authority; clients without
one show a token. The certificate belongs to the connection, so each request carries it in a part of the scope that no
header reaches, as it does the peer's address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import unquote

import httptools
from django.conf import settings
from httptools import HttpParserError
from prometheus_client.core import Metric
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

from manciple.access.authentication.chain import CERTIFICATE, CONNECTION, PEER
from manciple.api.flow_control import Level, level_of
from manciple.telemetry import metrics
from manciple.wire.half_open import keep_alive
from manciple.wire.identity import ANONYMOUS_USER, Identity

# The table ------------------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

#: The part of all connections that each level may always have.
SHARES: Mapping[Level, float] = MappingProxyType(
    {"workload": 4 / 8, "system": 2 / 8, "exempt": 1 / 8, "strangers": 1 / 8}
)
#: The part of the descriptors above which a newcomer replaces another connection, however few there are.
DESCRIPTORS = 7 / 8
#: Seconds between two lines of the log that report dropped connections.
LOG_INTERVAL = 60.0


class ServedConnection(Protocol):
    """The protocol of a connection whose handshake is done."""

    transport: asyncio.Transport

    @property
    def busy(self) -> bool:
        """Whether a request is being served, whose client reads the answer."""


class OpenConnection:
    """One entry of the table. `cancel_handshake` ends it before it has a protocol; what follows without a handshake
    is aborted as soon as it has one.
    """

    __slots__ = ("cancel_handshake", "dropped", "holder", "level", "protocol", "table")

    def __init__(self, table: ConnectionTable, holder: str) -> None:
        self.table = table
        self.level: Level = "strangers"
        self.holder = holder
        self.protocol: ServedConnection | None = None
        self.dropped = False
        self.cancel_handshake: Callable[[], object] = lambda: None

    @property
    def busy(self) -> bool:
        return self.protocol is not None and self.protocol.busy

    def serve(self, protocol: ServedConnection) -> None:
        self.protocol = protocol
        if self.dropped:
            protocol.transport.abort()

    def claim(self, level: Level, holder: str) -> None:
        """Count it for the holder (`holder_of`)."""
        self.table.move(self, level, holder)

    def claim_for(self, identity: Identity | None) -> None:
        """Count it for the identity of its latest request, if that showed a credential."""
        if identity is not None and identity.name not in ("", ANONYMOUS_USER):
            self.claim(level_of(identity), holder_of(identity.name))

    def close(self) -> None:
        """It has ended. Twice is once."""
        self.table.remove(self)

    def drop(self) -> None:
        self.table.remove(self)
        self.dropped = True
        if self.protocol is not None:
            self.protocol.transport.abort()
        else:
            self.cancel_handshake()


def holder_of(name: str) -> str:
    """Whoever may create one service account in a namespace may create a thousand: they count together."""
    return name.rpartition(":")[0] if name.startswith("system:serviceaccount:") else name


_tables: weakref.WeakSet[ConnectionTable] = weakref.WeakSet()


class ConnectionTable:
    """All connections of one process. limit: how many there may be; descriptors: the limit of open files."""

    def __init__(self, limit: int, *, descriptors: int) -> None:
        self.limit = max(limit, len(SHARES))
        self._last_descriptor = int(descriptors * DESCRIPTORS)
        #: level -> identity or address -> its connections, the one that was quiet for longest first
        self._holders: dict[Level, dict[str, OrderedDict[OpenConnection, None]]] = {level: {} for level in SHARES}
        self.counts: dict[Level, int] = dict.fromkeys(SHARES, 0)
        self.dropped: dict[Level, int] = dict.fromkeys(SHARES, 0)
        self._next_report = 0.0
        _tables.add(self)

    def add(self, address: str, *, descriptor: int) -> OpenConnection | None:
        """A new connection from `address`; None where each of the others serves a request of who has a right to it.

        descriptor: the lowest free one is always taken, so its number tells how many are in use.
        """
        connection = OpenConnection(self, network_of(address))
        self._insert(connection)
        if self.counts["strangers"] > max(1, self.limit * SHARES["strangers"]):
            self._drop(self._idle("strangers", connection))
        if sum(self.counts.values()) > self.limit or descriptor >= self._last_descriptor:
            return connection if self.drop_one(connection) else None
        return connection

    def drop_one(self, newcomer: OpenConnection | None = None) -> bool:
        """Make room for `newcomer`. Returns whether it may stay."""
        levels = sorted((level for level in SHARES if self._overuse(level) > 1), key=self._overuse, reverse=True)
        if not levels:  # the files are used up by something else
            levels = sorted(SHARES, key=self._overuse, reverse=True)
        idle = (self._idle(level, newcomer) for level in levels)
        victim = next(filter(None, idle), None) or self._oldest(levels[0], newcomer) or newcomer
        self._drop(victim)
        return victim is not newcomer

    def move(self, connection: OpenConnection, level: Level, holder: str) -> None:
        """Note the identity of its last request; it is the last of these to be dropped."""
        group = self._holders[connection.level].get(connection.holder)
        if group is None or connection not in group:
            return
        if (connection.level, connection.holder) == (level, holder):
            group.move_to_end(connection)
            return
        self.remove(connection)
        connection.level, connection.holder = level, holder
        self._insert(connection)

    def remove(self, connection: OpenConnection) -> None:
        holders = self._holders[connection.level]
        group = holders.get(connection.holder)
        if group is None or connection not in group:
            return
        del group[connection]
        self.counts[connection.level] -= 1
        if not group:
            del holders[connection.holder]

    def _insert(self, connection: OpenConnection) -> None:
        self._holders[connection.level].setdefault(connection.holder, OrderedDict())[connection] = None
        self.counts[connection.level] += 1

    def _overuse(self, level: Level) -> float:
        return self.counts[level] / (self.limit * SHARES[level])

    def _idle(self, level: Level, newcomer: OpenConnection | None) -> OpenConnection | None:
        """The oldest idle one of whoever has most, and any."""
        found = (one for group in self._largest_first(level) for one in group if one is not newcomer and not one.busy)
        return next(found, None)

    def _oldest(self, level: Level, newcomer: OpenConnection | None) -> OpenConnection | None:
        return next((one for group in self._largest_first(level) for one in group if one is not newcomer), None)

    def _largest_first(self, level: Level) -> Iterable[OrderedDict[OpenConnection, None]]:
        return sorted(self._holders[level].values(), key=len, reverse=True)

    def _drop(self, connection: OpenConnection | None) -> None:
        if connection is None:
            return
        connection.drop()
        self.dropped[connection.level] += 1
        if (now := time.monotonic()) >= self._next_report:
            self._next_report = now + LOG_INTERVAL
            log.warning(
                "too many connections (%s; the limit is %d): those that do least are dropped, such as one of %s %s",
                ", ".join(f"{count} of level {level}" for level, count in self.counts.items()),
                self.limit,
                "address" if connection.level == "strangers" else "user",
                connection.holder,
            )


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What one client may have many addresses of: an IPv6 network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _of_tables() -> Iterator[Metric]:
    tables = tuple(_tables)
    yield metrics.gauges(
        "manciple_connections",
        "Open connections of the listeners, by the level of priority of who uses them.",
        ("priority_level",),
        metrics.by_one({level: sum(table.counts[level] for table in tables) for level in SHARES}),
    )
    yield metrics.counters(
        "manciple_connections_dropped",
        "Connections closed to make room for others.",
        ("priority_level",),
        metrics.by_one({level: sum(table.dropped[level] for table in tables) for level in SHARES}),
    )


metrics.OnDemand(_of_tables)


# Renewals ------------------------------------------------------------------------------------------------------------


#: Of the Lease of a node.
RENEWED_PATH = r"/apis/coordination\.k8s\.io/v1/namespaces/kube-node-lease/leases/[a-z0-9.-]+"
#: How such a request begins.
_RENEWAL = re.compile(rb"(?:PATCH|PUT) %b HTTP/1\.1\r\n" % RENEWED_PATH.encode())
#: Seconds for which a renewal waits for others.
BATCH_DELAY = 0.5
#: Renewals that are received together: no more than share a commit (`manciple.store.objects.LARGEST_GROUP`).
LARGEST_BATCH = 128
#: Bytes that wait on one connection; with more of them the wait is over.
HELD_BYTES = 64 * 1024


class RenewalBatch:
    """The connections of one server on which a renewal waits to be received. Used from one event loop."""

    def __init__(self) -> None:
        self._waiting: list[PatientConnection] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: PatientConnection) -> None:
        self._waiting.append(connection)
        if len(self._waiting) >= LARGEST_BATCH:
            self._receive()
        elif self._timer is None:
            self._timer = connection.loop.call_later(BATCH_DELAY, self._receive)

    def _receive(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            try:
                connection.receive_held()
            except Exception:  # of this connection alone: asyncio would end it, too
                log.exception("a renewal could not be received")
                connection.transport.abort()


# Time limits ----------------------------------------------------------------------------------------------------------


#: Bytes of a request's line and headers (Go's net/http: DefaultMaxHeaderBytes).
HEAD_BYTES = 1 << 20
#: Headers of a request, trailers included. A megabyte of the shortest ones is 200,000, which take seconds to go through
#: before anything is known about who sent them.
HEADERS = 1_000
#: Bytes of its cookies: whoever looks for one goes through all of them, also on the event loop.
COOKIE_BYTES = 32 * 1024
#: Chunks of a body. Each is taken by itself: those of one byte cost the event loop 25 times what as many bytes do.
CHUNKS = 50_000
#: Requests of a connection that wait for the answer to an earlier one. uvicorn reads all that have arrived.
PIPELINED = 100
SWITCHING_PROTOCOLS = 101
_TOO_LARGE = b"Request Header Fields Too Large"
#: Seconds in which a client must read some of an answer that waits for it.
READ_SECONDS = 60.0


class PatientConnection(HttpToolsProtocol):
    """uvicorn's, with limits on time and size; each request carries the client's certificate and address.

    entry: in the table of connections; None where there is no table. renewals: of the server; None where each is
    received at once.
    """

    _certificate: bytes | None = None
    #: what has arrived since a renewal began, while it waits for others
    _held: bytes | None = None
    _in_head = False
    _head_bytes = 0
    _cookie_bytes = 0
    _chunks = 0
    _has_too_many_headers = False
    _ends: asyncio.TimerHandle | None = None
    _reader_ends: asyncio.TimerHandle | None = None

    def __init__(
        self, *args: Any, entry: OpenConnection | None = None, renewals: RenewalBatch | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._entry = entry
        self._renewals = renewals

    @property
    def busy(self) -> bool:
        """Whether a request is being served, whose client reads the answer."""
        if self._held is not None:
            return True
        cycle = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.more_body or self.flow.write_paused)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        keep_alive(transport.get_extra_info("socket"))  # also of the session or stream that it becomes
        tls = transport.get_extra_info("ssl_object")
        self._certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        self._expect_head()
        self._wait_for_head()
        if self._entry is not None:
            self._entry.serve(self)

    def eof_received(self) -> None:
        """The client has hung up, and the transport closes: a client of TLS may leave it half closed for seconds, in
        which whatever serves it must not write on.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_writing()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._cookie_bytes = self._chunks = 0
        scope: Any = self.scope
        scope[CERTIFICATE] = self._certificate
        scope[PEER] = self.client[0] if self.client else ""  # uvicorn's own follows a proxy's headers
        scope[CONNECTION] = self._entry

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() in (b"websocket", b"spdy/3.1")

    def handle_websocket_upgrade(self) -> None:
        if self._get_upgrade() == b"websocket":
            self.ws_protocol_class = partial(PageSocket, entry=self._entry)  # type: ignore[assignment]  # it is called only
            super().handle_websocket_upgrade()
            return
        self.connections.discard(self)
        scope: Any = self.scope
        url = httptools.parse_url(self.url)
        path = (url.path or b"/").decode("latin-1")
        scope |= {
            "path": unquote(path),
            "raw_path": url.path,
            "query_string": url.query or b"",
            "state": self.app_state,
        }
        stream = SpdyConnection(self.config, self.server_state, scope, entry=self._entry)
        self.transport.set_protocol(stream)
        stream.connection_made(self.transport)

    def data_received(self, data: bytes) -> None:
        if self._held is not None:
            self._held += data
            if len(self._held) > HELD_BYTES:
                self.receive_held()
        elif self._renewals is not None and self._is_between_requests and self._may_wait(data):
            # It has arrived: neither the time between requests nor that for the head goes on.
            self._unset_keepalive_if_required()
            self._stop_waiting_for_head()
            self._held = data
            self._renewals.add(self)
        else:
            self._receive(data)

    @staticmethod
    def _may_wait(data: bytes) -> bool:
        return len(data) <= HELD_BYTES and _RENEWAL.match(data) is not None

    def receive_held(self) -> None:
        """Receive the renewal that waits, if there is one."""
        held, self._held = self._held, None
        if held is not None and not self.transport.is_closing():
            self._receive(held)

    def shutdown(self) -> None:
        self.receive_held()
        super().shutdown()

    @property
    def _is_between_requests(self) -> bool:
        return not self._head_bytes if self._in_head else self.cycle is None or self.cycle.response_complete

    def _receive(self, data: bytes) -> None:
        if not self._in_head and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        if self._in_head:
            self._head_bytes += len(data)  # and what follows the head at once: no more than is read at a time
            if self._head_bytes > HEAD_BYTES:
                self._refuse()
                return
        super().data_received(data)
        self._wait_for_head()  # nearly every head comes in one piece, and costs no timer

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"cookie":
            self._cookie_bytes += len(value)
        if len(self.headers) == HEADERS or self._cookie_bytes > COOKIE_BYTES:
            self._has_too_many_headers = True
            raise HttpParserError("too many headers or cookies")
        super().on_header(name, value)

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > CHUNKS:
            raise HttpParserError("too many chunks")

    def on_headers_complete(self) -> None:
        if len(self.pipeline) == PIPELINED:
            raise HttpParserError("too many requests wait for an earlier one")
        self._have_head()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._has_too_many_headers:
            self._refuse()
        else:
            super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        self._have_reader()
        if self._entry is not None:
            self._entry.close()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        self._have_reader()
        super().resume_writing()

    def _wait_for_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._reader_ends = self.loop.call_later(READ_SECONDS, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:
            self._wait_for_reader()

    def _have_reader(self) -> None:
        if self._reader_ends is not None:
            self._reader_ends.cancel()
            self._reader_ends = None

    def _refuse(self) -> None:
        head = b"HTTP/1.1 431 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (_TOO_LARGE, len(_TOO_LARGE)) + _TOO_LARGE)
        self.transport.close()

    def _expect_head(self) -> None:
        self._in_head, self._head_bytes = True, 0

    def _wait_for_head(self) -> None:
        if self._in_head and self._ends is None and not self.transport.is_closing():
            self._ends = self.loop.call_later(settings.HEAD_SECONDS, self.transport.abort)

    def _have_head(self) -> None:
        self._in_head = False
        self._stop_waiting_for_head()

    def _stop_waiting_for_head(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None


# Upgraded connections -------------------------------------------------------------------------------------------------


#: Bytes of frames that are taken in at once, and pings of a client without a message between them, and seconds in which
#: they are too many: a frame of no bytes costs the event loop a thousand times what its bytes do.
FRAMES_BYTES, PINGS, PING_SECONDS = 8 * 1024, 100, 10.0
#: Bytes of a message on the socket of a page, and of a session (`manciple.api.sessions`).
PAGE_MESSAGE, SESSION_MESSAGE = 1 << 20, 2 << 20
_TOO_MANY_PINGS = 1008


class PageSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which keeps the entry of the HTTP connection that it was.

    What arrives is taken in few frames at a time, and no more while a message waits for the application. Sessions are
    not pinged: their clients read nothing while whoever sits before them reads a page of output.
    """

    def __init__(self, *args: Any, entry: OpenConnection | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._entry = entry
        self._arrived = bytearray()
        self._feeding: asyncio.Handle | None = None
        self._pings, self._pinged_since = 0, 0.0
        # The application chooses; and the library refuses names with a slash, as SPDY's.
        self.conn.process_subprotocol = _no_subprotocol  # type: ignore[method-assign,assignment]

    @property
    def busy(self) -> bool:
        """Whether it is open, and its client reads."""
        return self.handshake_complete and not self.close_sent and self.writable.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._entry is not None:
            self._entry.serve(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived.clear()
        if self._entry is not None:
            self._entry.close()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)  # the head of the request
            return
        self._arrived += data
        self._feed()

    def _feed(self) -> None:
        """Take in the next frames, and go on after the other connections had their turn."""
        if self._feeding is not None or (self.read_paused and not self.close_sent):
            return
        piece = bytes(self._arrived[:FRAMES_BYTES])
        del self._arrived[: len(piece)]
        super().data_received(piece)
        if self.transport.is_closing():
            return
        if self._arrived:
            self.transport.pause_reading()
            self._feeding = self.loop.call_soon(self._feed_on)
        elif not self.read_paused:
            self.transport.resume_reading()

    def _feed_on(self) -> None:
        self._feeding = None
        if not self.transport.is_closing():
            self._feed()

    async def receive(self) -> Any:
        message = await super().receive()
        if self._arrived and not self.transport.is_closing():
            self.transport.pause_reading()  # what has arrived comes first
            self._feed()
        return message

    def eof_received(self) -> None:
        self.writable.set()  # nobody reads any more: see `PatientConnection.eof_received`

    async def send(self, message: Any) -> None:
        await self.writable.wait()
        if self.transport.is_closing() and message["type"] == "websocket.send":
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # a refusal completes it, which uvicorn takes for a failure

    def handle_ping(self) -> None:
        now = self.loop.time()
        if now - self._pinged_since > PING_SECONDS:
            self._pings, self._pinged_since = 0, now
        self._pings += 1
        if self._pings > PINGS:
            self.conn.fail(_TOO_MANY_PINGS, "too many pings")
            self.transport.abort()
            return
        super().handle_ping()

    def handle_connect(self, event: Request) -> None:
        self.conn.max_message_size = PAGE_MESSAGE
        if event.path.startswith(("/api/", "/sessions/")):
            self.conn.max_message_size = SESSION_MESSAGE
            self.ping_interval = None
        super().handle_connect(event)
        if self.response.status_code == SWITCHING_PROTOCOLS:  # only then there is a scope
            scope: Any = self.scope
            scope[CONNECTION] = self._entry


def _no_subprotocol(_headers: object) -> None:
    """Of `ServerProtocol`."""


class SpdyConnection(asyncio.Protocol):
    """A connection that was upgraded to SPDY. The application sees a WebSocket, whose messages are the bytes as they
    come, and whose subprotocols are those of X-Stream-Protocol-Version.
    """

    def __init__(
        self, config: Any, server_state: ServerState, scope: Any, *, entry: OpenConnection | None = None
    ) -> None:
        self._application = config.loaded_app
        self._server_state = server_state
        self._entry = entry
        offered = (value.decode("latin-1") for name, value in scope["headers"] if name == _STREAM_VERSION)
        names = [name.strip() for value in offered for name in value.split(",")]
        self._scope = {**scope, "type": "websocket", "subprotocols": [name for name in names if name]}
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._queue.put_nowait({"type": "websocket.connect"})
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = self._answered = False
        self._status: tuple[int, list[tuple[bytes, bytes]]] = (500, [])

    @property
    def busy(self) -> bool:
        """Whether its client reads."""
        return self._writable.is_set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        self.transport = transport
        self._server_state.connections.add(self)  # type: ignore[arg-type]  # it ends like the others
        if self._entry is not None:
            self._entry.serve(self)
        task = asyncio.get_running_loop().create_task(self._run())
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    async def _run(self) -> None:
        try:
            await self._application(self._scope, self._receive, self._send)
        except ConnectionError:
            pass
        except Exception:
            log.exception("a SPDY connection")
        finally:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._queue.put_nowait({"type": "websocket.receive", "bytes": data})
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._queue.put_nowait({"type": "websocket.disconnect", "code": _ABNORMAL})
        self._writable.set()
        self._server_state.connections.discard(self)
        if self._entry is not None:
            self._entry.close()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def shutdown(self) -> None:
        """The server ends."""
        self._queue.put_nowait({"type": "websocket.disconnect", "code": _RESTARTS})

    async def _receive(self) -> Any:
        message = await self._queue.get()
        if self._paused and self._queue.empty() and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()
        return message

    async def _send(self, message: Any) -> None:
        await self._writable.wait()
        if self.transport.is_closing():
            raise ConnectionResetError("the client has gone")
        match message["type"]:
            case "websocket.accept":
                name = (message.get("subprotocol") or "").encode()
                headers = [(b"connection", b"Upgrade"), (b"upgrade", b"SPDY/3.1"), (_STREAM_VERSION, name)]
                self._write_head(SWITCHING_PROTOCOLS, headers)
            case "websocket.http.response.start":
                self._status = (message["status"], list(message["headers"]))
            case "websocket.http.response.body":
                code, headers = self._status
                self._write_head(code, [*headers, (b"connection", b"close")])
                self.transport.write(message.get("body", b""))
                self.transport.close()
            case "websocket.send":
                self.transport.write(message["bytes"])
            case "websocket.close":
                if not self._answered:
                    self._write_head(HTTPStatus.FORBIDDEN, [(b"content-length", b"0"), (b"connection", b"close")])
                self.transport.close()

    def _write_head(self, code: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._answered = True
        lines = [b"HTTP/1.1 %d %b" % (code, HTTPStatus(code).phrase.encode())]
        self.transport.write(b"\r\n".join([*lines, *(name + b": " + value for name, value in headers), b"", b""]))


_STREAM_VERSION = b"x-stream-protocol-version"
_ABNORMAL, _RESTARTS = 1006, 1012
