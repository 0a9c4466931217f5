"""Channels: how clients write them, how API server and agent do, and how a session's end is told."""

from __future__ import annotations

import pytest

from manciple.wire import channels
from manciple.wire.channels import CLOSE, FRAME_BYTES, STDIN, STDOUT, BadMessage, FrameReader, Subprotocol

OFFERS = {
    "kubectl": (("v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io"), "v5.channel.k8s.io"),
    "the Python client": (("v4.channel.k8s.io",), "v4.channel.k8s.io"),
    "a browser": (("v4.base64.channel.k8s.io", "base64.channel.k8s.io"), "v4.base64.channel.k8s.io"),
    "a client of old": (("channel.k8s.io",), "channel.k8s.io"),
    "one that names none": ((), ""),
}


@pytest.mark.parametrize("case", OFFERS)
def test_the_best_common_protocol_is_chosen(case: str) -> None:
    offered, expected = OFFERS[case]
    assert channels.chosen(offered) == Subprotocol(expected)


def test_without_a_common_protocol_none_is_chosen() -> None:
    assert channels.chosen(("chat",)) is None
    assert channels.chosen(("v5.channel.k8s.io",), channels.FORWARDING_PROTOCOLS) is None


@pytest.mark.parametrize("name", channels.PROTOCOLS)
@pytest.mark.parametrize("data", [b"", b"hello", bytes(range(256))])
def test_what_is_written_can_be_read(name: str, data: bytes) -> None:
    protocol = Subprotocol(name)
    message = protocol.message(STDOUT, data)
    assert isinstance(message, str) == ("base64" in name)
    assert protocol.read(message) == (STDOUT, data)


def test_text_is_read_where_bytes_were_expected() -> None:
    assert Subprotocol("v4.channel.k8s.io").read("\0häh") == (STDIN, "häh".encode())


@pytest.mark.parametrize("message", [b"", "", "x", "0?", "0YQ"])
def test_what_is_no_message_is_refused(message: str | bytes) -> None:
    with pytest.raises(BadMessage):
        Subprotocol("v4.base64.channel.k8s.io").read(message)


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES, FRAME_BYTES + 1, 5 * FRAME_BYTES + 3])
@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_frames_come_out_as_they_went_in(size: int, step: int) -> None:
    data = bytes(size)
    sent = b"".join(channels.frames(STDOUT, data)) + channels.closing(STDOUT)
    reader = FrameReader()
    got = [frame for start in range(0, len(sent), step) for frame in reader.feed(sent[start : start + step])]
    assert got[-1] == (CLOSE, bytes((STDOUT,)))
    assert all(channel == STDOUT for channel, _ in got[:-1])
    assert b"".join(piece for _, piece in got[:-1]) == data


@pytest.mark.parametrize("head", [b"\xff\xff\xff\xff\0", b"\0\1\0\1\0", b"\0\0\0\2\xff"])
def test_a_frame_that_is_too_large_is_refused_before_it_is_held(head: bytes) -> None:
    with pytest.raises(BadMessage):
        list(FrameReader().feed(head))


def test_an_exit_code_becomes_a_status() -> None:
    assert channels.exited(0) == {"metadata": {}, "status": "Success"}
    failed = channels.exited(3)
    assert (failed["status"], failed["reason"]) == ("Failure", "NonZeroExitCode")
    assert failed["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
