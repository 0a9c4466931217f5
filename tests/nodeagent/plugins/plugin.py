"""A driver behind sockets, in the test's own process: gRPC servers that answer as the test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from inventory.kinds.named_resources import NamedResourcesInstance, NamedResourcesResources
from manciple.wire import protobuf
from manciple.wire.base import Value
from nodeagent.plugins.protocol import (
    Claim,
    ClaimsRequest,
    Device,
    HandledClaim,
    HandledResponse,
    HealthReport,
    PluginInfo,
    PreparedClaim,
    PrepareResponse,
    RegistrationStatus,
    RegistrationStatusResponse,
    ResourceModel,
    ResourcesResponse,
    UnpreparedClaim,
    UnprepareResponse,
)
from nodeagent.plugins.services import handled_claim
from tests.nodeagent.objects import NODE

TIMEOUT = 60.0
NAME = "ext.example.com"


def _as_list(request: bytes) -> bytes:
    return protobuf.encode(ClaimsRequest(claims=(protobuf.decode(Claim, request),)))


def _only(answers: Mapping[str, HandledClaim | UnpreparedClaim], context: grpc.ServicerContext) -> Value:
    """What is no answer to the one claim, or an error, fails the call."""
    (answer,) = answers.values() or (UnpreparedClaim(error="no answer"),)
    if answer.error:
        context.abort(grpc.StatusCode.UNKNOWN, answer.error)
    return answer


Methods = dict[str, "grpc.RpcMethodHandler[Any, Any]"]


def cdi_device(uid: str) -> str:
    return f"ext.example.com/dev={uid}"


class Devices:
    """What a driver keeps: the claims that it holds, and a CDI file for each."""

    def __init__(self, cdi_dir: Path | None = None) -> None:
        self.held: set[str] = set()
        self._cdi_dir = cdi_dir

    def prepare(self, claim: Claim) -> PreparedClaim | None:
        self.held.add(claim.uid)
        if self._cdi_dir is not None:
            self._cdi_dir.mkdir(parents=True, exist_ok=True)
            device = {"name": claim.uid, "containerEdits": {"env": [f"CLAIM={claim.name}"]}}
            document = {"cdiVersion": "0.5.0", "kind": "ext.example.com/dev", "devices": [device]}
            self._file(claim).write_text(json.dumps(document))
        device_ids = (cdi_device(claim.uid),) if self._cdi_dir is not None else ()
        return PreparedClaim(devices=(Device(pool_name=NODE, device_name="dev-0", cdi_device_ids=device_ids),))

    def unprepare(self, claim: Claim) -> UnpreparedClaim | None:
        self.held.discard(claim.uid)
        if self._cdi_dir is not None:
            self._file(claim).unlink(missing_ok=True)
        return UnpreparedClaim()

    def _file(self, claim: Claim) -> Path:
        assert self._cdi_dir is not None
        return self._cdi_dir / f"ext.example.com-{claim.uid}.json"


class Plugin:
    """One instance of a driver. `start` listens, `stop` takes its sockets away, `crash` leaves the registration's.

    serves: versions of the service Node of Kubernetes 1.31 and before.

    prepare, unprepare: answer for each claim, None leaves it out. fail: the status of calls. garbage: the answer to
    preparing instead. calls: (call, names of the claims) as they came.
    statuses: what it was told of its registration. reports: what its health stream says, one after the other; the
    stream then stays open.
    """

    def __init__(
        self,
        folder: Path,
        name: str = NAME,
        *,
        instance: str = "",
        versions: Sequence[str] = ("v1.DRAPlugin",),
        health: Sequence[str] = (),
        kind: str = "DRAPlugin",
        serves: Sequence[str] = (),
        cdi_dir: Path | None = None,
    ) -> None:
        suffix = f"-{instance}" if instance else ""
        self.socket = folder / "plugins_registry" / f"{name}{suffix}-reg.sock"
        self.endpoint = folder / "plugins" / name / f"dra{suffix}.sock"
        self.info = PluginInfo(type=kind, name=name, endpoint=str(self.endpoint), supported_versions=tuple(versions))
        self.health = health
        self.serves = serves
        self.resources: ResourcesResponse | None = None  # what it has the agent publish; None: it knows no such call
        self.devices = Devices(cdi_dir)
        self.prepare: Callable[[Claim], PreparedClaim | None] = self.devices.prepare
        self.unprepare: Callable[[Claim], UnpreparedClaim | None] = self.devices.unprepare
        self.fail: tuple[grpc.StatusCode, str] | None = None
        self.garbage = b""
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.requests: list[ClaimsRequest] = []
        self.statuses: list[RegistrationStatus] = []
        self.asked = 0  # how often it was asked who it is
        self.hold: threading.Event | None = None  # it does not say so before this is set
        self.reports: list[HealthReport] = []
        self.watchers = 0
        self.changed = threading.Condition()
        self._servers: dict[Path, grpc.Server] = {}

    # As a process.

    def start(self, *, endpoint: bool = True, registration: bool = True) -> Plugin:
        for path in (self.socket, self.endpoint):
            path.parent.mkdir(parents=True, exist_ok=True)
        if endpoint:
            handlers = [self._dra(version) for version in ("v1", "v1beta1") if f"{version}.DRAPlugin" in self._versions]
            self._listen(self.endpoint, [*handlers, *map(self._node, self.serves), *map(self._health, self.health)])
        if registration:
            self._listen(self.socket, [self._registration()])
        return self

    def stop(self) -> None:
        """As a driver that ends in order."""
        self.crash()
        for path in (self.socket, self.endpoint):
            path.unlink(missing_ok=True)

    def crash(self, *paths: Path) -> None:
        """What listens at `paths`, or everything, ends at once; calls in progress break."""
        with self.changed:
            self.changed.notify_all()
        for path in paths or tuple(self._servers):
            self._servers.pop(path).stop(None).wait(TIMEOUT)

    # What a test looks at.

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Looked at after everything that this plugin is asked."""
        with self.changed:
            assert self.changed.wait_for(condition, TIMEOUT)

    def count(self, call: str) -> int:
        return sum(1 for name, _ in self.calls if name == call)

    @property
    def registered(self) -> bool:
        return bool(self.statuses) and self.statuses[-1].plugin_registered

    def report(self, report: HealthReport) -> None:
        with self.changed:
            self.reports.append(report)
            self.changed.notify_all()

    # Serving.

    @property
    def _versions(self) -> Sequence[str]:
        return self.info.supported_versions

    def _listen(self, path: Path, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        server = grpc.server(ThreadPoolExecutor(16))
        server.add_generic_rpc_handlers(tuple(handlers))
        path.unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{path}")
        server.start()
        self._servers[path] = server

    def _registration(self) -> grpc.GenericRpcHandler:
        methods: Methods = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(self._get_info, response_serializer=protobuf.encode),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                self._notified, response_serializer=protobuf.encode
            ),
        }
        return grpc.method_handlers_generic_handler("pluginregistration.Registration", methods)

    def _get_info(self, _request: bytes, _context: grpc.ServicerContext) -> Value:
        with self.changed:
            self.asked += 1
            self.changed.notify_all()
        if self.hold is not None:
            self.hold.wait(TIMEOUT)
        return self.info

    def _notified(self, request: bytes, _context: grpc.ServicerContext) -> Value:
        with self.changed:
            self.statuses.append(protobuf.decode(RegistrationStatus, request))
            self.changed.notify_all()
        return RegistrationStatusResponse()

    def _dra(self, version: str) -> grpc.GenericRpcHandler:
        def prepare(request: bytes, context: grpc.ServicerContext) -> Value:
            claims = self._asked(f"{version} prepare", request, context)
            given = {claim.uid: self.prepare(claim) for claim in claims}
            return PrepareResponse(claims={uid: one for uid, one in given.items() if one is not None})

        def unprepare(request: bytes, context: grpc.ServicerContext) -> Value:
            claims = self._asked(f"{version} unprepare", request, context)
            given = {claim.uid: self.unprepare(claim) for claim in claims}
            return UnprepareResponse(claims={uid: one for uid, one in given.items() if one is not None})

        methods: Methods = {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                prepare, response_serializer=lambda answer: self.garbage or protobuf.encode(answer)
            ),
            "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                unprepare, response_serializer=protobuf.encode
            ),
        }
        return grpc.method_handlers_generic_handler(f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin", methods)

    def _node(self, version: str) -> grpc.GenericRpcHandler:
        """The service of Kubernetes 1.31 and before: for all claims of a call, or for one."""
        single = version == "v1alpha2"

        def prepare(request: bytes, context: grpc.ServicerContext) -> Value:
            claims = self._asked(f"{version} prepare", _as_list(request) if single else request, context)
            given = {claim.uid: self.prepare(claim) for claim in claims}
            answers = {uid: handled_claim(one) for uid, one in given.items() if one is not None}
            return _only(answers, context) if single else HandledResponse(claims=answers)

        def unprepare(request: bytes, context: grpc.ServicerContext) -> Value:
            claims = self._asked(f"{version} unprepare", _as_list(request) if single else request, context)
            given = {claim.uid: self.unprepare(claim) for claim in claims}
            answers = {uid: one for uid, one in given.items() if one is not None}
            return _only(answers, context) if single else UnprepareResponse(claims=answers)

        plural = "" if single else "s"
        methods: Methods = {
            f"Node{name}Resource{plural}": grpc.unary_unary_rpc_method_handler(
                handle, response_serializer=protobuf.encode
            )
            for name, handle in {"Prepare": prepare, "Unprepare": unprepare}.items()
        }
        if self.resources is not None and not single:
            methods["NodeListAndWatchResources"] = grpc.unary_stream_rpc_method_handler(
                self._list_resources, response_serializer=protobuf.encode
            )
        return grpc.method_handlers_generic_handler(f"{version}.Node", methods)

    def _list_resources(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[Value]:
        """All that it has, whenever that is different."""
        said: ResourcesResponse | None = None
        while context.is_active():
            with self.changed:
                self.changed.wait_for(lambda: self.resources != said or not context.is_active(), 0.5)  # noqa: B023
                now = self.resources
            if now is not None and now != said:
                said = now
                yield now

    def has(self, *instances: str) -> None:
        """These alone, from now on."""
        named = tuple(NamedResourcesInstance(name=name) for name in instances)
        model = ResourceModel(named_resources=NamedResourcesResources(instances=named))
        with self.changed:
            self.resources = ResourcesResponse(resources=(model,) if instances else ())
            self.changed.notify_all()

    def _asked(self, call: str, request: bytes, context: grpc.ServicerContext) -> tuple[Claim, ...]:
        asked = protobuf.decode(ClaimsRequest, request)
        with self.changed:
            self.requests.append(asked)
            self.calls.append((call, tuple(claim.name for claim in asked.claims)))
            self.changed.notify_all()
        if self.fail is not None:
            context.abort(*self.fail)
        return asked.claims

    def _health(self, version: str) -> grpc.GenericRpcHandler:
        def watch(_request: bytes, context: grpc.ServicerContext) -> Iterator[Value]:
            with self.changed:
                self.watchers += 1
                self.changed.notify_all()
            given: list[HealthReport] = []

            def something_new() -> bool:
                return len(self.reports) > len(given) or not context.is_active()

            while context.is_active():
                with self.changed:
                    self.changed.wait_for(something_new, 0.5)
                    reports = self.reports[len(given) :]
                given += reports
                yield from reports

        methods: Methods = {
            "NodeWatchResources": grpc.unary_stream_rpc_method_handler(watch, response_serializer=protobuf.encode)
        }
        return grpc.method_handlers_generic_handler(f"{version}.DRAResourceHealth", methods)
