"""gRPC services on one Unix socket. Messages go through our own codec, so grpc carries bytes."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from manciple.wire import protobuf
from nodeagent.plugins.messages import Answer, Call, Question

log = logging.getLogger(__name__)

#: Calls at once; a health watch holds one for as long as it lasts.
THREADS = 16

#: A call's path and what answers it.
Handlers = Mapping[str, Any]


def answers(call: Call[Question, Answer], answer: Callable[[Question], Answer]) -> tuple[str, Any]:
    """A handler with one answer."""

    def handle(question: Question, _context: grpc.ServicerContext) -> Answer:
        return answer(question)

    return call.path, grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=_decoder(call), response_serializer=protobuf.encode
    )


def streams(
    call: Call[Question, Answer], stream: Callable[[grpc.ServicerContext], Iterator[Answer]]
) -> tuple[str, Any]:
    """A handler with a stream of answers, whatever the question."""

    def handle(_question: Question, context: grpc.ServicerContext) -> Iterator[Answer]:
        return stream(context)

    return call.path, grpc.unary_stream_rpc_method_handler(
        handle, request_deserializer=_decoder(call), response_serializer=protobuf.encode
    )


def _decoder(call: Call[Question, Answer]) -> Callable[[bytes], Question]:
    return lambda data: protobuf.decode(call.question, data)


class SocketServer:
    """Serves `handlers` at `path`, whose directory must be there.

    The socket is made under a hidden name, which the kubelet passes over, and renamed: it takes the place of a
    predecessor's at once, and grpc, which when it stops removes the name that it was given, removes no successor's.
    """

    def __init__(self, path: Path, handlers: Handlers) -> None:
        """Raises: OSError when the socket cannot be made."""
        self.path = path
        hidden = path.with_name(f".{secrets.token_hex(4)}")
        self._server = grpc.server(ThreadPoolExecutor(THREADS, thread_name_prefix=path.name))
        self._server.add_generic_rpc_handlers(tuple(_by_service(handlers)))
        try:
            self._server.add_insecure_port(f"unix:{hidden}")
        except RuntimeError as error:
            raise OSError(f"{path}: cannot serve there: {error}") from error
        self._server.start()
        self._inode = hidden.stat().st_ino
        hidden.replace(path)

    def stop(self, *, seconds: float) -> None:
        """Take the socket away if it is still ours, take no more calls, and give those under way so long to end."""
        if self.path.exists() and self.path.stat().st_ino == self._inode:
            self.path.unlink(missing_ok=True)
        self._server.stop(seconds).wait()


def _by_service(handlers: Handlers) -> Iterator[grpc.GenericRpcHandler]:
    services: dict[str, dict[str, Any]] = {}
    for path, handler in handlers.items():
        _, service, method = path.split("/")
        services.setdefault(service, {})[method] = handler
    for service, methods in services.items():
        yield grpc.method_handlers_generic_handler(service, methods)
