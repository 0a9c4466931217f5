"""gRPC services on Unix sockets, and where the kubelet finds a driver's. Our own codec: grpc carries bytes."""

from __future__ import annotations

import base64
import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from manciple.wire import protobuf
from nodeagent.plugins.protocol import Answer, Call, Question

# Where the kubelet finds a driver: the names of its two sockets. Source: kubernetes
# staging/src/k8s.io/dynamic-resource-allocation/kubeletplugin/draplugin.go.

#: The kubelet's own directories.
REGISTRAR_DIR = Path("/var/lib/kubelet/plugins_registry")
PLUGINS_DIR = Path("/var/lib/kubelet/plugins")
CDI_DIR = Path("/var/run/cdi")

#: Bytes of a Unix socket's path, the terminating zero not counted.
SOCKET_PATH_MAX = 107


@dataclass(frozen=True, slots=True)
class Endpoints:
    """registration: in the directory that the kubelet watches. service: where the driver's calls are served."""

    registration: Path
    service: Path


def endpoints(driver: str, *, registrar_dir: Path, plugin_dir: Path, uid: str = "") -> Endpoints:
    """uid: of the pod that the driver runs in, where two of them may run at once while one replaces the other.

    Raises: ValueError for a path that is too long for a socket.
    """
    found = Endpoints(
        registration=registrar_dir / _registration_name(driver, uid, registrar_dir),
        service=plugin_dir / (f"dra-{uid}.sock" if uid else "dra.sock"),
    )
    for path in (found.registration, found.service):
        if not _fits(path):
            raise ValueError(f"{path} is longer than the {SOCKET_PATH_MAX} bytes of a socket's path; use a shorter one")
    return found


def _registration_name(driver: str, uid: str, folder: Path) -> str:
    """With a uid the first that fits: the uid itself, a digest of it, a digest of the driver's name and it."""
    if not uid:
        return f"{driver}-reg.sock"
    both = "\0".join((driver, uid))
    names = (
        f"{driver}-{uid}-reg.sock",
        f"{driver}-{_digest(uid, 8)}-reg.sock",
        f"dra-{_digest(both, 16)}-reg.sock",
    )
    return next((name for name in names if _fits(folder / name)), names[-1])


def _digest(text: str, size: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:size]).decode().rstrip("=")


def _fits(path: Path) -> bool:
    return len(bytes(path)) <= SOCKET_PATH_MAX


log = logging.getLogger(__name__)

#: Calls at once; a health watch holds one for as long as it lasts.
THREADS = 16


class CallRefused(Exception):
    """Ends a call with an error of that text, as an error of a driver in Go does."""


#: A call's path and what answers it.
Handlers = Mapping[str, Any]


def answers(call: Call[Question, Answer], answer: Callable[[Question], Answer]) -> tuple[str, Any]:
    """A handler with one answer."""

    def handle(question: Question, context: grpc.ServicerContext) -> Answer:
        try:
            return answer(question)
        except CallRefused as refusal:
            context.abort(grpc.StatusCode.UNKNOWN, str(refusal))

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
