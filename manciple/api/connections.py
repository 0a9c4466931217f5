"""Connections whose clients must come to the point: the head of a request comes in time, or the connection ends.

uvicorn waits for ever for the first request of a connection, and for the rest of a head that has begun: a few thousand
clients that send a byte a minute would hold as many connections (a "slowloris"). Nor does it limit what a head may
hold, which is kept until it is complete. Between two requests a connection may
be idle for longer, as the server is told (`timeout_keep_alive`). How long a body may take is `manciple.api.intake`'s.
"""

from __future__ import annotations

import asyncio

from django.conf import settings

from manciple.access.authentication.connections import CertifiedConnection

#: Bytes of a request's line and headers (Go's net/http: DefaultMaxHeaderBytes).
HEAD_BYTES = 1 << 20
_TOO_LARGE = b"Request Header Fields Too Large"


class PatientConnection(CertifiedConnection):
    """uvicorn's; its patience ends after MANCIPLE_HEAD_SECONDS, or `HEAD_BYTES`."""

    _in_head = False
    _head_bytes = 0
    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._expect_head()
        self._wait_for_head()

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

    def on_headers_complete(self) -> None:
        self._have_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        super().connection_lost(exc)

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
