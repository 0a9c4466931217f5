"""SPDY/3.1 framing, as far as the server of exec, attach and port-forward needs it. Pure.

    connection = Spdy()
    for event in connection.feed(data): ...        # Opened, Data, Reset, Ping
    connection.reply(stream), connection.data(stream, b"...", last=True)    # bytes to send

Clients in Go have no flow control by windows (github.com/moby/spdystream ignores them), so none is done here: whoever
has too much stops reading the connection. What a peer may send is bounded: header blocks by `HEADER_BYTES` when
decompressed, control frames by `CONTROL_BYTES`, streams by `STREAMS`; data is passed on as it arrives.

Source: SPDY Protocol - Draft 3.1 (chromium.org), sections 2.2, 2.6; github.com/moby/spdystream/spdy.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

HEADER_BYTES, CONTROL_BYTES, STREAMS = 16 * 1024, 32 * 1024, 512
#: Bytes of data in one frame that is sent.
FRAME_BYTES = 32 * 1024

_VERSION, _CONTROL = 3, 0x80000000
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 1
_PROTOCOL_ERROR, _REFUSED_STREAM = 1, 3
_STREAM_ID = 0x7FFFFFFF
_HEAD = struct.Struct("!II")
_WORD = struct.Struct("!I")


_WORDS = """
options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow
authorization cache-control connection content-base content-encoding content-language content-length content-location
content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match
if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range
referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get
status 200\xa0OK version HTTP/1.1 url public set-cookie keep-alive origin
"""
_SENTENCES = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
#: What both compressors know from the beginning (section 2.6.10.1): words, each behind its length, and sentences.
DICTIONARY = (
    b"".join(
        _WORD.pack(len(word)) + word.replace("\xa0", " ").encode() for word in re.split("[ \n]+", _WORDS.strip("\n"))
    )
    + _SENTENCES.encode()
)


class BadFrame(ValueError):
    """What the other side sent is no SPDY, or more than is taken."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The client began a stream. headers: names in lower case. last: it will send nothing on it."""

    stream: int
    headers: Mapping[str, str]
    last: bool


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of a stream. last: none follow."""

    stream: int
    data: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """The client gave a stream up."""

    stream: int


@dataclass(frozen=True, slots=True)
class Ping:
    """answer: what is to be sent back."""

    answer: bytes


Event = Opened | Data | Reset | Ping


class Spdy:
    """The server's end of one connection."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._open: set[int] = set()
        self._last_stream = 0
        #: of the data frame that is being received: its stream, bytes to come, whether it is the stream's last
        self._data: tuple[int, int, bool] | None = None

    def feed(self, data: bytes) -> Iterator[Event]:
        """Raises: BadFrame."""
        self._held += data
        while True:
            if self._data is not None:
                if not self._held and self._data[1]:
                    return
                yield self._piece()
            elif len(self._held) < _HEAD.size:
                return
            else:
                first, second = _HEAD.unpack_from(self._held)
                flags, size = second >> 24, second & 0xFFFFFF
                if not first & _CONTROL:
                    del self._held[: _HEAD.size]
                    self._data = (first & _STREAM_ID, size, bool(flags & _FIN))
                    continue
                if size > CONTROL_BYTES:
                    raise BadFrame(f"a control frame of {size} bytes")
                if len(self._held) < _HEAD.size + size:
                    return
                payload = bytes(self._held[_HEAD.size : _HEAD.size + size])
                del self._held[: _HEAD.size + size]
                if (first >> 16) & 0x7FFF != _VERSION:
                    raise BadFrame("a frame of another version")
                if (event := self._control(first & 0xFFFF, flags, payload)) is not None:
                    yield event

    def _piece(self) -> Data:
        """As much as is here of the data frame that is being received."""
        if self._data is None:
            raise BadFrame("no data frame")
        stream, left, last = self._data
        taken = bytes(self._held[:left])
        del self._held[: len(taken)]
        left -= len(taken)
        self._data = (stream, left, last) if left else None
        return Data(stream, taken, last and not left)

    def _control(self, type_: int, flags: int, payload: bytes) -> Event | None:
        try:
            match type_:
                case 1:
                    stream = _WORD.unpack_from(payload)[0] & _STREAM_ID
                    headers = self._headers(payload[10:])
                    if stream <= self._last_stream or not stream % 2:
                        raise BadFrame(f"stream {stream} after {self._last_stream}")
                    if len(self._open) >= STREAMS:
                        raise BadFrame(f"more than {STREAMS} streams")
                    self._last_stream = stream
                    self._open.add(stream)
                    return Opened(stream, headers, bool(flags & _FIN))
                case 3:
                    stream = _WORD.unpack_from(payload)[0] & _STREAM_ID
                    self._open.discard(stream)
                    return Reset(stream)
                case 6:
                    return Ping(_control_frame(_PING, payload[:4]))
                case 2 | 8:
                    self._headers(payload[4:])  # the compression of the connection goes on
        except struct.error as error:
            raise BadFrame("a frame that is too short") from error
        return None

    def _headers(self, block: bytes) -> dict[str, str]:
        """Raises: BadFrame, struct.error."""
        try:
            text = self._inflate.decompress(block, HEADER_BYTES)
        except zlib.error as error:
            raise BadFrame("headers that cannot be decompressed") from error
        if self._inflate.unconsumed_tail:
            raise BadFrame(f"more than {HEADER_BYTES} bytes of headers")
        place, parts = _WORD.size, []
        for _ in range(2 * _WORD.unpack_from(text)[0]):
            size = _WORD.unpack_from(text, place)[0]
            place += _WORD.size
            if place + size > len(text):
                raise BadFrame("headers that end too early")
            parts.append(text[place : place + size].decode("latin-1"))
            place += size
        return {name.lower(): value for name, value in zip(parts[::2], parts[1::2], strict=True)}

    # What is sent.

    def reply(self, stream: int) -> bytes:
        """Accept a stream: an answer without headers."""
        block = self._deflate.compress(_WORD.pack(0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(_SYN_REPLY, _WORD.pack(stream) + block)

    def data(self, stream: int, data: bytes, *, last: bool = False) -> Iterator[bytes]:
        """In as many frames as it takes, at least one."""
        for start in range(0, len(data) or 1, FRAME_BYTES):
            piece = data[start : start + FRAME_BYTES]
            is_last = last and start + FRAME_BYTES >= len(data)
            yield _HEAD.pack(stream, (_FIN if is_last else 0) << 24 | len(piece)) + piece

    def refuse(self, stream: int) -> bytes:
        self._open.discard(stream)
        return _control_frame(_RST_STREAM, _WORD.pack(stream) + _WORD.pack(_REFUSED_STREAM))

    def forget(self, stream: int) -> None:
        """Both sides have ended it."""
        self._open.discard(stream)

    def goodbye(self) -> bytes:
        return _control_frame(_GOAWAY, _WORD.pack(self._last_stream) + _WORD.pack(0))


def _control_frame(type_: int, payload: bytes) -> bytes:
    return _HEAD.pack(_CONTROL | _VERSION << 16 | type_, len(payload)) + payload
