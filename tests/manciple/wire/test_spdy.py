"""SPDY framing: the compression that both sides share, frames in any pieces, and the bounds on what a peer may send."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest

from manciple.wire.spdy import (
    CONTROL_BYTES,
    DICTIONARY,
    FRAME_BYTES,
    HEADER_BYTES,
    STREAMS,
    BadFrame,
    Data,
    Event,
    Opened,
    Ping,
    Reset,
    Spdy,
)
from tests.manciple.wire.spdy_client import PING, RST_STREAM, SYN_REPLY, Frame, SpdyClient, control, data_frame


def fed(spdy: Spdy, data: bytes) -> list[Event]:
    return list(spdy.feed(data))


def test_the_dictionary_is_the_drafts() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_headers_share_one_compression_and_names_are_lowered() -> None:
    spdy, client = Spdy(), SpdyClient()
    for number in (1, 3, 5):
        _, frame = client.begin({"streamType": "data", "port": str(number)})
        assert fed(spdy, frame) == [Opened(number, {"streamtype": "data", "port": str(number)}, last=False)]


def test_bytes_may_come_one_by_one() -> None:
    spdy, client = Spdy(), SpdyClient()
    _, frame = client.begin({"a": "b"}, last=True)
    sent = frame + data_frame(1, b"hello", last=True) + control(PING, struct.pack("!I", 7))
    events = [event for byte in sent for event in spdy.feed(bytes((byte,)))]
    assert events[0] == Opened(1, {"a": "b"}, last=True)
    assert b"".join(event.data for event in events if isinstance(event, Data)) == b"hello"
    assert [event.last for event in events if isinstance(event, Data)][-1]
    assert events[-1] == Ping(control(PING, struct.pack("!I", 7)))


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES])
def test_data_is_sent_in_frames_of_which_the_last_ends_the_stream(size: int) -> None:
    frames = list(SpdyClient().feed(b"".join(Spdy().data(9, b"x" * size, last=True))))
    assert b"".join(frame.data for frame in frames) == b"x" * size
    assert [frame.last for frame in frames] == [False] * (len(frames) - 1) + [True]


def test_replies_can_be_read_in_the_compression_of_the_server() -> None:
    spdy, client = Spdy(), SpdyClient()
    assert [(one.kind, one.stream) for one in client.feed(spdy.reply(1) + spdy.reply(3) + spdy.refuse(5))] == [
        (SYN_REPLY, 1),
        (SYN_REPLY, 3),
        (RST_STREAM, 5),
    ]


def test_a_reset_names_its_stream() -> None:
    assert fed(Spdy(), control(RST_STREAM, struct.pack("!II", 1, 5))) == [Reset(1)]


def test_frames_of_other_kinds_are_passed_over() -> None:
    assert fed(Spdy(), control(4, b"\0" * 4) + control(9, b"\0" * 8) + data_frame(1, b"x")) == [
        Data(1, b"x", last=False)
    ]


def _bomb() -> bytes:
    return SpdyClient().begin({"a": "x" * 10 * HEADER_BYTES})[1]


def _many_streams() -> bytes:
    client = SpdyClient()
    return b"".join(client.begin({})[1] for _ in range(STREAMS + 1))


def _again() -> bytes:
    client = SpdyClient()
    return client.syn_stream(1, {}) + client.syn_stream(1, {})


BAD: dict[str, Callable[[], bytes]] = {
    "headers that become too much": _bomb,
    "more streams than are taken": _many_streams,
    "a stream twice": _again,
    "a stream of the server's": lambda: SpdyClient().syn_stream(2, {}),
    "a long control frame": lambda: control(4, b"\0" * (CONTROL_BYTES + 1)),
    "another version": lambda: struct.pack("!HHI", 0x8002, 1, 0),
    "a short frame": lambda: control(1, b"\0"),
    "no compression": lambda: control(1, b"\0" * 40),
    "headers that promise more": lambda: _promising(4_000_000_000, b""),
    "a header that promises more": lambda: _promising(1, struct.pack("!I", 4_000_000_000)),
}


def _promising(count: int, rest: bytes) -> bytes:
    deflate = zlib.compressobj(zdict=DICTIONARY)
    block = deflate.compress(struct.pack("!I", count) + rest) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return control(1, struct.pack("!IIH", 1, 0, 0) + block)


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_spdy_or_too_much_is_refused(case: str) -> None:
    with pytest.raises(BadFrame):
        fed(Spdy(), BAD[case]())


def test_ended_streams_make_room_for_others() -> None:
    spdy, client = Spdy(), SpdyClient()
    for _ in range(3 * STREAMS):
        stream, frame = client.begin({})
        fed(spdy, frame)
        spdy.forget(stream)


def test_a_frame_is_what_it_is() -> None:
    assert list(SpdyClient().feed(data_frame(3, b"x", last=True))) == [Frame(0, 3, b"x", last=True)]
