"""A good driver, and somebody between it and the check who makes it a bad one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
from msgspec.structs import replace

from inventory.kinds.devices import Device, DeviceAttribute
from manciple.wire.errors import ApiError
from nodeagent import cdi
from nodeagent.api.client import Client
from nodeagent.driver_check.api import ApiRequest, CheckApi
from nodeagent.drivers.authoring import Given, NodeDriver
from nodeagent.drivers.protocol import DeviceHealth
from nodeagent.plugins.protocol import (
    DRA_PLUGIN,
    GET_INFO,
    HEALTH_SERVICES,
    NOTIFY,
    HealthReport,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from nodeagent.plugins.services import PLUGIN_SERVICES
from nodeagent.serving.plugin import PluginConfig, ServedPlugin
from nodeagent.serving.sockets import CallRefused, Handlers, SocketServer, answers, streams

NAME, NODE = "ext.example.com", "node-1"
V1 = PLUGIN_SERVICES[0]
HEALTH = HEALTH_SERVICES[0]

#: (question, the good driver's answer to it) -> what is answered in its place
Spoil = Callable[[Any, Callable[[Any], Any]], Any]


class InProcess(httpx.BaseTransport):
    """The check's API, without sockets between."""

    def __init__(self, api: CheckApi) -> None:
        self._api = api

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        asked = ApiRequest(
            method=request.method,
            path=request.url.path,
            query=dict(request.url.params),
            body=request.read(),
            content_type=request.headers.get("Content-Type", ""),
        )
        try:
            if asked.query.get("watch"):
                return httpx.Response(200, stream=_Lines(self._api.watch(asked)))
            return httpx.Response(200, json=self._api.answer(asked))
        except ApiError as error:
            return httpx.Response(error.code, json=error.status())


class _Lines(httpx.SyncByteStream):
    def __init__(self, events: Iterator[dict[str, Any]]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[bytes]:
        for event in self._events:
            yield json.dumps(event).encode() + b"\n"


class Slots(NodeDriver):
    """Three devices that are there in memory only."""

    name = NAME
    metadata = True

    def __init__(self, node_name: str) -> None:
        super().__init__(node_name)
        self.names = ["slot-0", "slot-1", "slot-2"]

    def devices(self) -> Sequence[Device]:
        return [Device(name=name, attributes={"medium": DeviceAttribute(string_value="disk")}) for name in self.names]

    def edits(self, given: Given) -> cdi.ContainerEdits:
        return cdi.ContainerEdits(env=(f"SLOT={given.device.name}",))

    def health(self) -> Sequence[DeviceHealth]:
        return [DeviceHealth(pool=self.node_name, device=name, health="Healthy") for name in self.names]


@dataclass
class Sabotaged:
    """A `DriverProcess`, in the test's own. spoils: by the path of a call. With none, the driver is as good as it is.

    before_start: called before each start but the first, after a kill or a stop.
    """

    folder: Path
    api: CheckApi
    spoils: dict[str, Spoil] = field(default_factory=dict)
    spoil_stream: Callable[[Iterator[HealthReport]], Iterator[HealthReport]] = iter
    before_start: Callable[[], bool] = lambda: True
    keeps_slices: bool = True
    leaves_its_socket: bool = False
    ends: bool = True

    def __post_init__(self) -> None:
        for name in ("inner", "r", "p", "cdi"):
            (self.folder / name).mkdir()
        self.driver = Slots(NODE)
        self.starts = 0
        self._servers: list[SocketServer] = []

    @property
    def socket(self) -> Path:
        return self.folder / "r" / "reg.sock"

    @property
    def cdi_dir(self) -> Path:
        return self.folder / "cdi"

    def start(self) -> None:
        if self.starts and not self.before_start():
            return
        self.starts += 1
        config = PluginConfig(
            node_name=NODE,
            registrar_dir=self.folder / "inner",
            plugin_dir=self.folder / "inner" / "p",
            cdi_dir=self.cdi_dir,
            settle_seconds=0.02,
        )
        self.plugin = ServedPlugin(self.driver, config, Client("http://api", token="t", transport=InProcess(self.api)))
        self.plugin.start()
        if not self.keeps_slices:
            with self.api.changed:
                assert self.api.changed.wait_for(self.api.slices, 30)
            self.plugin._slices._queue.close()
        self._servers = [
            SocketServer(self.folder / "p" / "dra.sock", self._services()),
            SocketServer(self.socket, self._registration()),
        ]

    def kill(self) -> None:
        """Its sockets stay."""
        for server in self._servers:
            server._server.stop(None).wait()
        if self._servers:  # in a thread: it waits for watches that nothing here can end
            threading.Thread(target=self.plugin.stop, daemon=True).start()
        self._servers = []

    def stop(self, *, seconds: float) -> bool:
        self.kill()
        if not self.leaves_its_socket:
            self.socket.unlink()
        return self.ends

    def _registration(self) -> Handlers:
        info = PluginInfo(
            type=DRA_PLUGIN,
            name=NAME,
            endpoint=str(self.folder / "p" / "dra.sock"),
            supported_versions=("v1.DRAPlugin", HEALTH.name),
        )
        return dict(
            [
                answers(GET_INFO, lambda asked: self._spoiled(GET_INFO.path, asked, lambda _: info)),
                answers(NOTIFY, lambda asked: self._spoiled(NOTIFY.path, asked, self._notified)),
            ]
        )

    @staticmethod
    def _notified(told: RegistrationStatus) -> RegistrationStatusResponse:
        """As drivers on Kubernetes' library do."""
        if not told.plugin_registered:
            raise CallRefused(f"failed registration process: {told.error}")
        return RegistrationStatusResponse()

    def _services(self) -> Handlers:
        node = self.plugin._node
        return dict(
            [
                answers(V1.prepare, lambda asked: self._spoiled(V1.prepare.path, asked, node.prepare)),
                answers(V1.unprepare, lambda asked: self._spoiled(V1.unprepare.path, asked, node.unprepare)),
                streams(HEALTH.watch, self._watch),
            ]
        )

    def _watch(self, context: grpc.ServicerContext) -> Iterator[HealthReport]:
        context.add_callback(self.plugin._health.changed)
        return self.spoil_stream(self.plugin._health.reports(context.is_active))

    def _spoiled(self, path: str, asked: Any, good: Callable[[Any], Any]) -> Any:
        spoil = self.spoils.get(path)
        return spoil(asked, good) if spoil else good(asked)

    # What the tests spoil.

    def on(self, path: str, spoil: Spoil) -> None:
        self.spoils[path] = spoil

    def changes_info(self, **fields: Any) -> None:
        self.on(GET_INFO.path, lambda asked, good: replace(good(asked), **fields))

    def changes_devices(self, change: Callable[[Any], Any]) -> None:
        """change: of each device of an answer to preparing."""

        def spoil(asked: Any, good: Callable[[Any], Any]) -> Any:
            answer = good(asked)
            claims = {uid: replace(one, devices=tuple(map(change, one.devices))) for uid, one in answer.claims.items()}
            return replace(answer, claims=claims)

        self.on(V1.prepare.path, spoil)

    def after_preparing(self, then: Callable[[], None]) -> None:
        def spoil(asked: Any, good: Callable[[Any], Any]) -> Any:
            answer = good(asked)
            then()
            return answer

        self.on(V1.prepare.path, spoil)

    def publishes_besides(self, **spec: Any) -> None:
        """One more slice in its name."""
        whole = {"driver": NAME, "devices": [{"name": "more"}], **spec}
        document = {"metadata": {"name": "more"}, "spec": whole}
        body = json.dumps(document).encode()
        path = "/apis/resource.k8s.io/v1/resourceslices"
        try:
            self.api.answer(ApiRequest("POST", path, body=body, content_type="application/json"))
        except ApiError:
            return  # it is known to the API now
