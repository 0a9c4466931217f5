"""One driver object, served to the kubelet: its sockets, its slices, its health."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from nodeagent.cdi import CdiFolder
from nodeagent.client import Client
from nodeagent.disk import Disk
from nodeagent.drivers.metadata import MetadataFiles, TellingDriver
from nodeagent.drivers.protocol import Driver
from nodeagent.plugins.messages import (
    DRA_PLUGIN,
    DRA_SERVICES,
    GET_INFO,
    HEALTH_SERVICES,
    NOTIFY,
    HealthReport,
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from nodeagent.resources import CLAIMS
from nodeagent.serving.endpoints import CDI_DIR, PLUGINS_DIR, REGISTRAR_DIR, Endpoints, endpoints
from nodeagent.serving.health import REPEAT_SECONDS, HealthFeed
from nodeagent.serving.node import NodeService
from nodeagent.serving.serializer import Serializer
from nodeagent.serving.slices import SETTLE_SECONDS, SliceKeeper
from nodeagent.serving.sockets import Handlers, SocketServer, answers, streams

log = logging.getLogger(__name__)

#: Seconds that stopping waits for calls under way; the kubelet asks again for what is cut off.
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """Where and how a driver is served.

    plugin_dir: the driver's own; PLUGINS_DIR/<driver> where None. rolling_update: the uid of the pod that the driver
    runs in, where two instances may run at once. serialize: one call of the driver at a time.
    health_seconds: between health reports when nothing happens. settle_seconds: until slices that somebody else changed
    are looked at.
    """

    node_name: str
    registrar_dir: Path = REGISTRAR_DIR
    plugin_dir: Path | None = None
    cdi_dir: Path = CDI_DIR
    rolling_update: str = ""
    serialize: bool = True
    health_seconds: float = REPEAT_SECONDS
    settle_seconds: float = SETTLE_SECONDS


class Plugin:
    """Serves `driver` from `start` to `stop`."""

    def __init__(self, driver: Driver, config: PluginConfig, client: Client, *, disk: Disk | None = None) -> None:
        """Raises: ValueError for directories whose paths are too long."""
        disk = disk or Disk()
        self._driver = driver
        self._config = config
        self._plugin_dir = config.plugin_dir or PLUGINS_DIR / driver.name
        self.endpoints: Endpoints = endpoints(
            driver.name, registrar_dir=config.registrar_dir, plugin_dir=self._plugin_dir, uid=config.rolling_update
        )
        self.registered = threading.Event()
        files = MetadataFiles(driver.name, plugin_dir=self._plugin_dir, cdi_dir=config.cdi_dir, disk=disk)
        self._node = NodeService(
            TellingDriver(driver, files),
            folder=CdiFolder(config.cdi_dir, disk),
            fetch=lambda namespace, name: client.get(CLAIMS, name, namespace=namespace),
            serializer=Serializer(
                enabled=config.serialize,
                lock_file=self._plugin_dir / "serialize.lock" if config.rolling_update else None,
            ),
        )
        self._health = HealthFeed(driver, repeat=config.health_seconds)
        self._slices = SliceKeeper(client, driver, node=config.node_name, settle=config.settle_seconds)
        self._servers: list[SocketServer] = []

    def start(self) -> None:
        """Raises: OSError when a socket cannot be made; nothing runs then."""
        self._plugin_dir.mkdir(parents=True, exist_ok=True)
        if not self._config.registrar_dir.is_dir():
            raise FileNotFoundError(
                f"{self._config.registrar_dir} does not exist: is there a kubelet here, or is its directory elsewhere?"
            )
        self._node.sweep()
        try:
            # The services first: who finds the registration may call at once.
            self._servers.append(SocketServer(self.endpoints.service, self._services()))
            self._servers.append(SocketServer(self.endpoints.registration, self._registration()))
        except OSError:
            self.stop()
            raise
        self._driver.subscribe(self._slices.look)
        self._driver.subscribe(self._health.changed)
        self._slices.start()
        log.info("driver %s: serving at %s", self._driver.name, self.endpoints.service)

    def stop(self) -> None:
        """Take the sockets away, the registration first: the kubelet then knows that the driver has gone."""
        self._health.close()
        for server in reversed(self._servers):
            server.stop(seconds=STOP_SECONDS)
        self._servers.clear()
        self._slices.stop(seconds=STOP_SECONDS)

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set. Raises: OSError."""
        self.start()
        try:
            stop.wait()
        finally:
            self.stop()
            log.info("driver %s: stopped", self._driver.name)

    def _services(self) -> Handlers:
        prepare = (answers(service.prepare, self._node.prepare) for service in DRA_SERVICES)
        unprepare = (answers(service.unprepare, self._node.unprepare) for service in DRA_SERVICES)
        health = (streams(service.watch, self._watch) for service in HEALTH_SERVICES)
        return dict([*prepare, *unprepare, *health])

    def _registration(self) -> Handlers:
        return dict([answers(GET_INFO, self._info), answers(NOTIFY, self._notified)])

    def _watch(self, context: grpc.ServicerContext) -> Iterator[HealthReport]:
        context.add_callback(self._health.changed)
        return self._health.reports(context.is_active)

    def _info(self, _question: InfoRequest) -> PluginInfo:
        return PluginInfo(
            type=DRA_PLUGIN,
            name=self._driver.name,
            endpoint=str(self.endpoints.service),
            supported_versions=tuple(service.name for service in (*DRA_SERVICES, *HEALTH_SERVICES)),
        )

    def _notified(self, status: RegistrationStatus) -> RegistrationStatusResponse:
        if status.plugin_registered:
            log.info("driver %s: registered with the kubelet", self._driver.name)
            self.registered.set()
        else:
            log.error("driver %s: the kubelet refuses it: %s", self._driver.name, status.error)
            self.registered.clear()
        return RegistrationStatusResponse()
