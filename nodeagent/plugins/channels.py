"""One gRPC connection to one Unix socket: typed calls, a stream, and word when the connection comes or goes.

Messages go through our own codec, so grpc carries bytes. Every failure is a `CallFailed` that says what happened in a
sentence; grpc itself is kept from writing to the terminal.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Final, cast

from manciple.wire import protobuf
from manciple.wire.errors import BadRequest
from nodeagent.plugins.messages import Answer, Call, Question

# Read once by grpc when it is imported. What it would say of a driver that is away, the agent says itself; its handling
# of forks concerns programs that go on with grpc in the child, while containers are started by exec.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import grpc

#: Bytes of the headers of an answer. The reason of a call that failed is one of them, and a driver may have much to
#: tell; grpc would take 8 to 16 KiB and tell of its own limit instead. As many as kubelet takes.
_HEADERS_MAX: Final = 16 * 1024 * 1024

#: A driver that was restarted is met again soon. Connections are not shared with another channel to the same path:
#: that one may be waiting for a driver that was there before.
_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.enable_http_proxy", 0),
    # As calls of kubelet say. grpc would send the path of the socket, percent-encoded, which is no host name: servers
    # that look (those in Rust, and .NET) end such calls with PROTOCOL_ERROR.
    ("grpc.default_authority", "localhost"),
    ("grpc.max_metadata_size", _HEADERS_MAX),
    ("grpc.absolute_max_metadata_size", _HEADERS_MAX),
)

_SECONDS_TO_UNSUBSCRIBE: Final = 1.0


class CallFailed(Exception):
    """A call did not give an answer. code: the status of gRPC, as Go spells it."""

    def __init__(self, reason: str, *, code: str = "Unavailable") -> None:
        super().__init__(reason)
        self.code = code

    @property
    def unimplemented(self) -> bool:
        """The other side does not know the call at all."""
        return self.code == "Unimplemented"


class Channel:
    """A connection to `endpoint`, the path of a Unix socket; made when first needed, again whenever it breaks.

    Thread-safe. connected: called from a thread of grpc with whether the connection is there, at every change; given
    such a function, the channel connects by itself and stays connected.
    """

    def __init__(self, endpoint: str, connected: Callable[[bool], None] | None = None) -> None:
        self.endpoint = endpoint
        self._connected = connected
        self._closed = False
        self._lock = threading.Lock()  # nobody subscribes to a channel that is being closed
        self._grpc = grpc.insecure_channel(f"unix:{endpoint}", options=_OPTIONS)
        if connected is not None:
            self._grpc.subscribe(self._changed, try_to_connect=True)

    def call(self, call: Call[Question, Answer], question: Question, *, seconds: float) -> Answer:
        """Raises: CallFailed, also when no answer has come after `seconds`."""
        try:
            data = self._grpc.unary_unary(call.path, _same, _same)(protobuf.encode(question), timeout=seconds)
        except grpc.RpcError as error:
            raise _failure(call.name, error, seconds) from error
        except ValueError as error:  # the channel was closed
            raise CallFailed(f"{call.name}: the connection to the driver was given up") from error
        return _decoded(call, data)

    def stream(self, call: Call[Question, Answer], question: Question) -> Iterator[Answer]:
        """The answers as they come; ends when the other side ends it. Raises: CallFailed."""
        try:
            for data in self._grpc.unary_stream(call.path, _same, _same)(protobuf.encode(question)):
                yield _decoded(call, data)
        except grpc.RpcError as error:
            raise _failure(call.name, error, 0.0) from error
        except ValueError as error:  # the channel was closed
            raise CallFailed(f"{call.name}: the connection to the driver was given up") from error

    def close(self) -> None:
        """End everything that goes on over it, at once or within a second."""
        if self._connected is None:
            self._grpc.close()
            return
        with self._lock:
            self._closed = True
            self._grpc.unsubscribe(self._changed)
        # grpc's thread that looks at the connection, five times a second, must have seen that nobody subscribes any
        # more: it ends with a traceback on the terminal when the channel is closed under it.
        closing = threading.Timer(_SECONDS_TO_UNSUBSCRIBE, self._grpc.close)
        closing.daemon = True
        closing.start()

    def _changed(self, state: grpc.ChannelConnectivity) -> None:
        with self._lock:
            if self._closed:
                return
            if state is grpc.ChannelConnectivity.IDLE:
                # It broke, or was quiet for long: grpc connects again only when asked to.
                self._grpc.subscribe(_ignore, try_to_connect=True)
                self._grpc.unsubscribe(_ignore)
        if self._connected is not None:
            self._connected(state is grpc.ChannelConnectivity.READY)


def _ignore(_state: grpc.ChannelConnectivity) -> None:
    """Whoever subscribes may ask for a connection."""


def _same(data: bytes) -> bytes:
    """What grpc carries is encoded and decoded by us."""
    return data


def _decoded(call: Call[Question, Answer], data: bytes) -> Answer:
    try:
        return protobuf.decode(call.answer, data)
    except BadRequest as error:
        reason = f"{call.name}: its answer is no {call.answer.__name__}: {error.message}"
        raise CallFailed(reason, code="Internal") from error


def _failure(name: str, error: grpc.RpcError, seconds: float) -> CallFailed:
    call = cast("grpc.Call", error)  # what calls raise is both
    code = call.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and seconds:
        return CallFailed(f"{name}: no answer within {seconds:g} s", code=_spelled(code))
    details = call.details() or "no details were given"
    return CallFailed(f"{name}: {details} ({code.name})", code=_spelled(code))


def _spelled(code: grpc.StatusCode) -> str:
    """DEADLINE_EXCEEDED as DeadlineExceeded; Go spells CANCELLED with one L."""
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return str(code.name).title().replace("_", "")
