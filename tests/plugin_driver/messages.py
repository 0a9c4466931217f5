"""The protocol's messages, compiled from the .proto files at run time, and gRPC handlers for its services."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO = Path(__file__).parent / "proto"

#: An answer, or an iterator of answers where the method streams.
Method = Callable[[Any, grpc.ServicerContext], Any]


def compiled(target: Path | None = None) -> Path:
    """The descriptors of all .proto files, in one file; compiled where `target` is not there yet."""
    target = target or Path(tempfile.mkdtemp(prefix="plugin-driver-")) / "descriptors"
    if not target.exists():
        from grpc_tools import protoc  # type: ignore[import-untyped]  # slow to import: only to compile

        draft = target.with_suffix(f".{os.getpid()}")  # two drivers may start at once
        sources = sorted(path.name for path in PROTO.glob("*.proto"))
        failed = protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={draft}", *sources])
        if failed:
            raise RuntimeError(f"protoc ended with {failed}")
        draft.replace(target)
    return target


class Messages:
    """Message classes and services by full name."""

    def __init__(self, descriptors: Path) -> None:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes())
        self._pool = descriptor_pool.DescriptorPool()
        waiting = {file.name: file for file in files.file}
        while waiting:
            ready = [file for file in waiting.values() if not waiting.keys() & set(file.dependency)]
            for file in ready:
                self._pool.Add(waiting.pop(file.name))
        self._class = cache(self._find)

    def __getitem__(self, name: str) -> Any:
        """The class of the message with that full name. Raises: KeyError."""
        return self._class(name)

    def _find(self, name: str) -> Any:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))

    def handler(self, service: str, methods: Mapping[str, Method]) -> grpc.GenericRpcHandler:
        """Serves `methods` as the service with that full name."""
        described = self._pool.FindServiceByName(service)
        return grpc.method_handlers_generic_handler(
            service, {name: self._method(described.FindMethodByName(name), call) for name, call in methods.items()}
        )

    def _method(self, method: Any, call: Method) -> grpc.RpcMethodHandler[Any, Any]:
        request = message_factory.GetMessageClass(method.input_type)
        serve = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        return serve(
            call,
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
