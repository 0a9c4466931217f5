"""Connections whose clients must come to the point: the head of a request comes in time, or the connection ends.

uvicorn waits for ever for the first request of a connection, and for the rest of a head that has begun: a few thousand
clients that send a byte a minute would hold as many connections (a "slowloris"). It waits for ever for a client to read
its answer, too. Nor does it limit what a head may hold, which is kept until it is complete. Between two requests a
connection may be idle for longer, as the server is told (`timeout_keep_alive`). How long a body may take is
`manciple.api.intake`'s; how many connections there may be, `manciple.api.connection_table`'s.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from django.conf import settings
from httptools import HttpParserError
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from manciple.access.authentication.chain import CONNECTION
from manciple.access.authentication.connections import CertifiedConnection
from manciple.api.connection_table import OpenConnection

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


class PatientConnection(CertifiedConnection):
    """uvicorn's; its patience ends after MANCIPLE_HEAD_SECONDS, or `HEAD_BYTES`.

    entry: in the table of connections; None where there is no table.
    """

    _in_head = False
    _head_bytes = 0
    _cookie_bytes = 0
    _chunks = 0
    _has_too_many_headers = False
    _ends: asyncio.TimerHandle | None = None
    _reader_ends: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, entry: OpenConnection | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._entry = entry

    @property
    def busy(self) -> bool:
        """Whether a request is being served, whose client reads the answer."""
        cycle = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.more_body or self.flow.write_paused)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._expect_head()
        self._wait_for_head()
        if self._entry is not None:
            self._entry.serve(self)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._cookie_bytes = self._chunks = 0
        scope: Any = self.scope
        scope[CONNECTION] = self._entry

    def handle_websocket_upgrade(self) -> None:
        self.ws_protocol_class = partial(PageSocket, entry=self._entry)  # type: ignore[assignment]  # it is called only
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
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
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None


class PageSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which keeps the entry of the HTTP connection that it was."""

    def __init__(self, *args: Any, entry: OpenConnection | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._entry = entry

    @property
    def busy(self) -> bool:
        """Whether it is open, and its client reads."""
        return self.handshake_complete and not self.close_sent and self.writable.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._entry is not None:
            self._entry.serve(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._entry is not None:
            self._entry.close()
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == SWITCHING_PROTOCOLS:  # only then there is a scope
            scope: Any = self.scope
            scope[CONNECTION] = self._entry
