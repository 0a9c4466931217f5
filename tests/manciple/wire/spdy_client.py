"""The client's end of SPDY/3.1, written from the draft: streams are begun, and frames read as they come."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from manciple.wire.spdy import DICTIONARY

SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7


@dataclass(frozen=True)
class Frame:
    """kind: of a control frame, 0 for data."""

    kind: int
    stream: int
    data: bytes = b""
    last: bool = False


class SpdyClient:
    """Bytes to send, and frames from bytes."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._next = 1
        self._held = b""

    def begin(self, headers: dict[str, str], *, last: bool = False) -> tuple[int, bytes]:
        """(stream, frame)"""
        stream, self._next = self._next, self._next + 2
        return stream, self.syn_stream(stream, headers, last=last)

    def syn_stream(self, stream: int, headers: dict[str, str], *, last: bool = False) -> bytes:
        text = struct.pack("!I", len(headers)) + b"".join(
            struct.pack("!I", len(part)) + part.encode() for pair in headers.items() for part in pair
        )
        block = self._deflate.compress(text) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return control(SYN_STREAM, struct.pack("!IIH", stream, 0, 0) + block, flags=int(last))

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._held += data
        while len(self._held) >= 8:
            first, second = struct.unpack_from("!II", self._held)
            flags, size = second >> 24, second & 0xFFFFFF
            if len(self._held) < 8 + size:
                return
            payload, self._held = self._held[8 : 8 + size], self._held[8 + size :]
            if not first >> 31:
                yield Frame(0, first, payload, bool(flags & 1))
                continue
            assert (first >> 16) & 0x7FFF == 3
            kind = first & 0xFFFF
            if kind == SYN_REPLY:
                assert self._inflate.decompress(payload[4:]) == struct.pack("!I", 0)
            yield Frame(kind, struct.unpack_from("!I", payload)[0], payload)


def control(kind: int, payload: bytes, *, flags: int = 0) -> bytes:
    return struct.pack("!HHI", 0x8003, kind, flags << 24 | len(payload)) + payload


def data_frame(stream: int, data: bytes, *, last: bool = False) -> bytes:
    return struct.pack("!II", stream, int(last) << 24 | len(data)) + data
