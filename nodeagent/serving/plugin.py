"""One driver object, served to the kubelet: its sockets, its slices, its health."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import grpc

from inventory.kinds.devices import ResourceSlice
from manciple.wire.base import OwnerReference
from nodeagent.api.client import CLAIMS, NODES, SLICES, Client, WatchEvent, WatchFollower
from nodeagent.cdi import CdiFolder
from nodeagent.claims.use_reports import UseTellingDriver
from nodeagent.drivers.preparing import MetadataDriver, MetadataFiles
from nodeagent.drivers.protocol import ClaimDriver, DeviceHealth, Driver, UnhealthyEffect
from nodeagent.early import read_handles
from nodeagent.failures import AgentError
from nodeagent.node.slices import Publisher
from nodeagent.plugins.protocol import (
    DRA_PLUGIN,
    GET_INFO,
    HEALTH_SERVICES,
    NOTIFY,
    DeviceIdentifier,
    DeviceReport,
    HealthReport,
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from nodeagent.plugins.services import DRA_SERVICES, NODE_V1ALPHA2, NODE_V1ALPHA3, PLUGIN_SERVICES
from nodeagent.serving.node import NodeService, Serializer
from nodeagent.serving.sockets import (
    CDI_DIR,
    PLUGINS_DIR,
    REGISTRAR_DIR,
    Endpoints,
    Handlers,
    SocketServer,
    answers,
    endpoints,
    streams,
)
from nodeagent.serving.uses import USE_SECONDS, UseKeeper
from nodeagent.storage import Disk
from nodeagent.work import WorkQueue

# Tells the kubelet how the devices are: all of them at once, whenever one is different, and now and then anyway.

#: The kubelet takes what it has not heard for 30 s for unknown.
REPEAT_SECONDS: Final = 10.0

_STATES: Final = {"Unknown": 0, "Healthy": 1, "Unhealthy": 2}


class HealthFeed:
    """The reports of one driver to any number of watchers. repeat: seconds between reports when nothing happens."""

    def __init__(
        self, driver: ClaimDriver, *, repeat: float = REPEAT_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._driver = driver
        self._repeat = repeat
        self._clock = clock
        self._condition = threading.Condition()
        self._changes = 0
        self._closed = False

    def changed(self) -> None:
        """Health is different, or a watcher has left: whoever waits looks again."""
        with self._condition:
            self._changes += 1
            self._condition.notify_all()

    def close(self) -> None:
        """End all watches."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def reports(self, wanted: Callable[[], bool]) -> Iterator[HealthReport]:
        """Until closed, or not `wanted` any more; `changed` makes it ask. Raises: what the driver's `health` raises."""
        seen = -1
        while wanted():
            with self._condition:
                self._condition.wait_for(lambda: self._closed or self._changes != seen, self._repeat)  # noqa: B023
                if self._closed:
                    return
                seen = self._changes
            if wanted():
                yield self._report()

    def _report(self) -> HealthReport:
        now = int(self._clock())
        return HealthReport(devices=tuple(_device(one, now) for one in self._driver.health()))


def _device(one: DeviceHealth, now: int) -> DeviceReport:
    return DeviceReport(
        device=DeviceIdentifier(pool_name=one.pool, device_name=one.device),
        health=_STATES[one.health],
        last_updated_time=now,
        message=one.message,
    )


# Keeps the ResourceSlices of one driver as its pools are, whoever changes or deletes them.

log = logging.getLogger(__name__)

#: Seconds between looks at the slices though nothing was reported.
RESYNC_SECONDS = 60.0

#: Seconds until a change in the API is looked at. Where an old and a new instance of a driver disagree during an
#: update, this is how often each of them writes.
SETTLE_SECONDS = 5.0

#: The only piece of work there is.
_Key = Literal["slices"]
_KEY: _Key = "slices"


class SliceKeeper:
    """Publishes `driver` for the node until stopped. An API server that is away is asked again, ever more seldom.

    settle: seconds until a change in the API is looked at; what the driver announces is published at once. effect: of
    the taint on unhealthy devices.
    """

    def __init__(
        self,
        client: Client,
        driver: Driver,
        *,
        node: str,
        settle: float = SETTLE_SECONDS,
        effect: UnhealthyEffect = "NoSchedule",
    ) -> None:
        self._client = client
        self._driver = driver
        self._node = node
        self._settle = settle
        self._queue: WorkQueue[_Key] = WorkQueue(longest_delay=30.0)
        self._publisher = Publisher(client, node=node, owner=self._owner, effect=effect)
        self._follower = WatchFollower(
            client,
            SLICES,
            field_selector=f"spec.driver={driver.name},spec.nodeName={node}",
            replace=self._listed,
            change=self._changed,
        )
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._queue.add(_KEY)
        targets = {"slices": self._work, "slices-watch": self._follower.run}
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in targets.items()]
        for thread in self._threads:
            thread.start()

    def reconcile(self) -> None:
        """The pools may be different now."""
        self._queue.add(_KEY)

    def stop(self, *, seconds: float) -> None:
        """The slices stay: the kubelet removes them when the driver does not come back."""
        self._queue.close()
        self._follower.stop()
        for thread in self._threads:
            thread.join(seconds)

    def _listed(self, _slices: Sequence[ResourceSlice]) -> None:
        self._queue.add_after(_KEY, self._settle)

    def _changed(self, _change: WatchEvent[ResourceSlice]) -> None:
        self._queue.add_after(_KEY, self._settle)

    def _owner(self) -> OwnerReference:
        """Asked each time that something is written: a node that was made anew has another uid. Raises: ApiFailure."""
        node = self._client.get(NODES, self._node)
        return OwnerReference(api_version="v1", kind="Node", name=self._node, uid=node.metadata.uid, controller=True)

    def _work(self) -> None:
        while (key := self._queue.get()) is not None:
            try:
                self._publish(key)
            finally:
                self._queue.done(key)

    def _publish(self, key: _Key) -> None:
        try:
            self._publisher.publish(self._driver)
        except AgentError as error:
            seconds = self._queue.retry(key)
            log.warning("slices of driver %s: %s; trying again in %.1f s", self._driver.name, error, seconds)
        except Exception:  # a fault of the driver must not stop it for good
            seconds = self._queue.retry(key)
            log.exception("slices of driver %s; trying again in %.1f s", self._driver.name, seconds)
        else:
            self._queue.forget(key)
            self._queue.add_after(key, RESYNC_SECONDS)


HEALTH_NAMES: Final = tuple(service.name for service in HEALTH_SERVICES)

#: Seconds that stopping waits for calls under way; the kubelet asks again for what is cut off.
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """Where and how a driver is served.

    plugin_dir: the driver's own; PLUGINS_DIR/<driver> where None. rolling_update: the uid of the pod that the driver
    runs in, where two instances may run at once. serialize: one call of the driver at a time.
    health_seconds: between health reports when nothing happens. settle_seconds: until slices that somebody else changed
    are looked at. unhealthy_effect: of the taint on devices that the driver calls unhealthy. use_seconds: between looks
    whether devices are in use.
    """

    node_name: str
    registrar_dir: Path = REGISTRAR_DIR
    plugin_dir: Path | None = None
    cdi_dir: Path = CDI_DIR
    rolling_update: str = ""
    serialize: bool = True
    unhealthy_effect: UnhealthyEffect = "NoSchedule"
    health_seconds: float = REPEAT_SECONDS
    settle_seconds: float = SETTLE_SECONDS
    use_seconds: float = USE_SECONDS


class ServedPlugin:
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
        self._uses = self._use_keeper(MetadataDriver(driver, files), client, disk)
        self._node = NodeService(
            self._uses or MetadataDriver(driver, files),
            folder=CdiFolder(config.cdi_dir, disk),
            fetch=lambda namespace, name: client.get(CLAIMS, name, namespace=namespace),
            read_handles=partial(read_handles, client),
            serializer=Serializer(
                enabled=config.serialize,
                lock_file=self._plugin_dir / "serialize.lock" if config.rolling_update else None,
            ),
        )
        self._health = HealthFeed(driver, repeat=config.health_seconds)
        self._slices = SliceKeeper(
            client,
            driver,
            node=config.node_name,
            settle=config.settle_seconds,
            effect=config.unhealthy_effect,
        )
        self._servers: list[SocketServer] = []

    def _use_keeper(self, driver: ClaimDriver, client: Client, disk: Disk) -> UseKeeper | None:
        """None for a driver that does not know the use of its devices."""
        if not isinstance(self._driver, UseTellingDriver):
            return None
        seconds = self._config.use_seconds
        return UseKeeper(driver, self._driver, client, folder=self._plugin_dir, disk=disk, seconds=seconds)

    def start(self) -> None:
        """Raises: OSError when a socket cannot be made; nothing runs then."""
        self._plugin_dir.mkdir(parents=True, exist_ok=True)
        if not self._config.registrar_dir.is_dir():
            raise FileNotFoundError(
                f"{self._config.registrar_dir} does not exist: is there a kubelet here, or is its directory elsewhere?"
            )
        self._node.sweep()
        if self._uses is not None:
            self._uses.start()  # it reads what was prepared before anything else is
        try:
            # The services first: who finds the registration may call at once.
            self._servers.append(SocketServer(self.endpoints.service, self._services()))
            self._servers.append(SocketServer(self.endpoints.registration, self._registration()))
        except OSError:
            self.stop()
            raise
        self._driver.subscribe(self._slices.reconcile)
        self._driver.subscribe(self._health.changed)
        if self._uses is not None:
            self._driver.subscribe(self._uses.changed)
        self._slices.start()
        log.info("driver %s: serving at %s", self._driver.name, self.endpoints.service)

    def stop(self) -> None:
        """Take the sockets away, the registration first: the kubelet then knows that the driver has gone."""
        self._health.close()
        for server in reversed(self._servers):
            server.stop(seconds=STOP_SECONDS)
        self._servers.clear()
        self._slices.stop(seconds=STOP_SECONDS)
        if self._uses is not None:
            self._uses.stop(seconds=STOP_SECONDS)

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set. Raises: OSError."""
        self.start()
        try:
            stop.wait()
        finally:
            self.stop()
            log.info("driver %s: stopped", self._driver.name)

    def _services(self) -> Handlers:
        node = self._node
        prepare = (answers(service.prepare, node.prepare) for service in PLUGIN_SERVICES)
        unprepare = (answers(service.unprepare, node.unprepare) for service in PLUGIN_SERVICES)
        before = (
            answers(NODE_V1ALPHA3.prepare, node.prepare_handled),
            answers(NODE_V1ALPHA3.unprepare, node.unprepare),
            answers(NODE_V1ALPHA2.prepare, node.prepare_one),
            answers(NODE_V1ALPHA2.unprepare, node.unprepare_one),
        )
        health = (streams(service.watch, self._watch) for service in HEALTH_SERVICES)
        return dict([*prepare, *unprepare, *before, *health])

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
            supported_versions=(*(name for service in DRA_SERVICES for name in service.names), *HEALTH_NAMES),
        )

    def _notified(self, status: RegistrationStatus) -> RegistrationStatusResponse:
        if status.plugin_registered:
            log.info("driver %s: registered with the kubelet", self._driver.name)
            self.registered.set()
        else:
            log.error("driver %s: the kubelet refuses it: %s", self._driver.name, status.error)
            self.registered.clear()
        return RegistrationStatusResponse()
