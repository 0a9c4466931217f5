"""Channels: the streams of exec, attach and port-forward over one connection. Pure.

A client speaks one of Kubernetes' WebSocket subprotocols. Each message is a channel's number and bytes: as they are, or
in the base64 ones a digit and base64. From v4 on the error channel carries a v1.Status; in v5 either side may close one
stream (`CLOSE` and its number). Between API server and node agent the messages of v5 have their length in front.

Source: k8s.io/apimachinery/pkg/util/remotecommand, k8s.io/kubelet/pkg/cri/streaming/remotecommand/websocket.go.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
#: Its one byte names the stream that ends.
CLOSE = 255

V5 = "v5.channel.k8s.io"
#: Of exec and attach, the best first. "" stands for a client that names none.
PROTOCOLS = (
    V5,
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
)
#: Port-forward has no v5.
FORWARDING_PROTOCOLS = PROTOCOLS[1:]
#: SPDY in the binary messages of a WebSocket (kubectl 1.30 and later), and by itself.
TUNNELLED = "SPDY/3.1+portforward.k8s.io"
SPDY = "SPDY/3.1"


class BadMessage(ValueError):
    """What the other side sent is no message of the protocol."""


@dataclass(frozen=True, slots=True)
class Subprotocol:
    """How messages are written. name: "" for a client that named none."""

    name: str

    @property
    def is_text(self) -> bool:
        return "base64" in self.name

    @property
    def has_status(self) -> bool:
        """Whether the error channel carries a Status; before v4 a sentence, and only of an error."""
        return self.name.startswith(("v4.", "v5."))

    @property
    def can_close(self) -> bool:
        return self.name == V5

    def message(self, channel: int, data: bytes) -> str | bytes:
        if self.is_text:
            return f"{channel}{base64.b64encode(data).decode()}"
        return bytes((channel,)) + data

    def read(self, message: str | bytes) -> tuple[int, bytes]:
        """(channel, data). Raises: BadMessage."""
        raw = message.encode() if isinstance(message, str) else message
        if not raw:
            raise BadMessage("an empty message names no channel")
        if not self.is_text:
            return raw[0], raw[1:]
        try:
            return int(raw[:1]), base64.b64decode(raw[1:], validate=True)
        except (ValueError, binascii.Error) as error:
            raise BadMessage("a message is a channel's digit and base64") from error


def chosen(offered: Sequence[str], served: Sequence[str] = PROTOCOLS) -> Subprotocol | None:
    """The best one that both have; None where there is none."""
    names = offered or ("",)
    return next((Subprotocol(name) for name in served if name in names), None)


# Between API server and agent -----------------------------------------------------------------------------------------

#: The name of this protocol in the Upgrade header.
AGENT_PROTOCOL = "manciple.dev/channels"
#: Bytes of data in one frame.
FRAME_BYTES = 64 * 1024
_HEAD = struct.Struct("!IB")


def frames(channel: int, data: bytes) -> Iterator[bytes]:
    """`data` in as many frames as it takes, at least one."""
    for start in range(0, len(data) or 1, FRAME_BYTES):
        piece = data[start : start + FRAME_BYTES]
        yield _HEAD.pack(len(piece), channel) + piece


def closing(channel: int) -> bytes:
    """The frame that ends one stream."""
    return _HEAD.pack(1, CLOSE) + bytes((channel,))


class FrameReader:
    """Bytes in, frames out."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(channel, data) of each frame that is complete. Raises: BadMessage."""
        self._held += data
        while len(self._held) >= _HEAD.size:
            size, channel = _HEAD.unpack_from(self._held)
            if size > FRAME_BYTES or (channel == CLOSE and size != 1):
                raise BadMessage(f"a frame of {size} bytes on channel {channel}")
            end = _HEAD.size + size
            if len(self._held) < end:
                return
            found = bytes(self._held[_HEAD.size : end])
            del self._held[:end]
            yield channel, found


# How a session ended --------------------------------------------------------------------------------------------------


def success() -> dict[str, Any]:
    return {"metadata": {}, "status": "Success"}


def failure(message: str, *, reason: str = "InternalError", code: int = 500) -> dict[str, Any]:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def exited(code: int) -> dict[str, Any]:
    """The Status of a command that ended with this exit code."""
    if code == 0:
        return success()
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
