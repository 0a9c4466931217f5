"""The agent of one node: its constructor wires all parts; `run` starts them in order and syncs whatever changed.

    1. delete the node's slices whose drivers have not registered, before the node takes pods; read what the previous
       agent of this node left on the disk: checkpoint, CDI files, containers
    2. register the node
    3. publish the slices of its drivers
    4. watch the node itself, its pods and slices, and queue every change by name
    5. workers take names from the queue and sync each pod and each driver's slices; a Node that was deleted through the
       API is left alone
    6. renew the lease, report the node's status, and resync everything periodically, until stopped

Every step compares desired with actual state, so neither order nor repetition matters, nor what the agent missed while
it was down. Several agents may run in one process, each with its own directories.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from claims.kinds.persistent_volumes import NODE_LABEL
from inventory.kinds import gates
from manciple.telemetry.logs import about
from nodeagent.api.client import CLAIMS, LONGEST_DELAY, VOLUMES, Client, WatchFollower
from nodeagent.api.events import EventRecorder
from nodeagent.cdi import CdiFolder
from nodeagent.claims.checkpoint import Checkpoint, Quarantined
from nodeagent.claims.prepare import DriverRegistry, Preparer, known_health
from nodeagent.claims.use_reports import UseReports, UseTellingDriver
from nodeagent.config import AgentConfig
from nodeagent.drivers.preparing import with_metadata
from nodeagent.drivers.protocol import Driver, MeteredDriver
from nodeagent.early import fetch_draft_claim, read_handles
from nodeagent.failures import AgentError, ApiFailure, StorageFailed
from nodeagent.http.metrics import AgentMetrics, AgentState
from nodeagent.http.routes import make_server
from nodeagent.node.catalog import create_runtime
from nodeagent.node.credentials import Renewal
from nodeagent.node.meters import MeterReports, read_meters
from nodeagent.node.registration import Registration
from nodeagent.node.slices import HealthRules, Publisher, unhealthy
from nodeagent.pods.claimed_volumes import ClaimedVolumes
from nodeagent.pods.usage import UsageSampler
from nodeagent.pods.volumes import PodSources, PodTokens, PodVolumes
from nodeagent.pods.worker import PodWorker
from nodeagent.runtimes.protocol import Runtime
from nodeagent.storage import Disk, Storage, make_private
from nodeagent.work import AgentQueue, Crew, Key, PodCache, SliceCount, Watching

log = logging.getLogger(__name__)

#: The message, in the log and an event, about a Node that was deleted through the API.
NODE_GONE = (
    "The Node was deleted while its agent runs. As a kubelet does, the agent leaves it at that: devices are not "
    "published, no sign of life is given, and the node's pods are removed after 40 s. To have the node back, restart "
    "the agent, or create the Node with the labels and taints that it should have"
)

NOT_SERVED = (
    "The API server does not serve resource.k8s.io/v1: no devices are published, and pods with claims do not start. If "
    "dynamic resource allocation is meant to be off, start the agent with "
    "--feature-gates=DynamicResourceAllocation=false"
)

#: Seconds that stopping waits for work in progress; the next start resumes unfinished work.
STOP_SECONDS = 5.0
#: Seconds in which drivers with existing sockets must register before their slices are deleted.
REGISTRATION_SECONDS = 2.0


class Agent:
    """One node's agent. `run` blocks until `stop` is set; `ready` is set once pods may be bound to the node.

    drivers: in this process, with devices that the agent publishes; others may join `registry` later. runtime: None for
    the simulated one. transport: replaces the network, in tests. clock: POSIX seconds. monotonic: for durations.
    """

    def __init__(
        self,
        config: AgentConfig,
        drivers: Sequence[Driver],
        *,
        runtime: Runtime | None = None,
        disk: Disk | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        # What several parts share. A part gets the parts that it needs, or functions for what it needs of later ones.
        self.config = config
        self.ready = threading.Event()
        disk = disk or Disk()
        make_private(config.state_dir)
        self._drivers = {driver.name: driver for driver in drivers}
        self._queue = AgentQueue()
        self._pods = PodCache()
        self._slice_count = SliceCount()
        self._threads: list[threading.Thread] = []
        self._trouble = ""  # with the storage, as last reported
        self._unreported: list[Quarantined] = []
        self.metrics = AgentMetrics(host=urlsplit(config.server).netloc)
        self.runtime = runtime or create_runtime("simulated", config, disk=disk, clock=clock)

        # api/
        self._client = Client(
            config.server,
            token=config.token,
            certificate=config.certificate,
            ca_file=config.ca_file,
            transport=transport,
            requested=self.metrics.requested,
        )
        self._events = EventRecorder(self._client, node=config.node_name, clock=clock)

        # node/
        self._storage = Storage(disk, [config.state_dir / "claims", config.cdi_dir])
        self._registration = Registration(self._client, config, runtime=self.runtime.version, clock=clock)
        owner = self._registration.owner
        self._publisher = Publisher(self._client, node=config.node_name, owner=owner, effect=config.unhealthy_effect)
        self._health_rules: HealthRules | None = None  # unless drivers behind sockets leave such taints to the agent
        if config.taint_unhealthy_plugins:
            self._health_rules = HealthRules(self._client, owner=owner, taint=unhealthy(config.unhealthy_effect))
        self._meters = MeterReports(self._client, node=config.node_name, seconds=config.meter_seconds, clock=monotonic)
        self._renewal: Renewal | None = None  # unless the agent has a client certificate that it may renew
        if config.certificate is not None and config.certificate.in_one:
            self._renewal = Renewal(
                config.certificate.certificate.parent,
                node=config.node_name,
                renewed=self._client.renew,
                disk=disk,
                clock=clock,
            )

        # claims/
        self.registry = DriverRegistry(
            with_metadata(drivers, plugin_dir=config.state_dir / "plugins", cdi_dir=config.cdi_dir, disk=disk)
        )
        self.preparer = Preparer(
            node=lambda: self._registration.node,
            drivers=self.registry,
            checkpoint=Checkpoint(config.state_dir / "claims", disk),
            folder=CdiFolder(config.cdi_dir, disk),
            fetch=lambda namespace, name: self._client.get(CLAIMS, name, namespace=namespace),
            fetch_draft=partial(fetch_draft_claim, self._client),
            read_handles=partial(read_handles, self._client),
            running=self._users_of,
            metrics=self.metrics,
            boot=config.boot,
        )
        self._use_reports = UseReports(self._client, clock=clock)

        # pods/
        sources = PodSources(self._client, monotonic=monotonic)
        self._claimed = ClaimedVolumes(
            self._client,
            config.state_dir / "volumes" if self.runtime.has_files else None,
            node=config.node_name,
            warn=self._events.warn_about,
            look=lambda: self._queue.add(Key("volumes")),
            is_running=lambda uid: any(run.running for run in self.runtime.runs(uid).values()),
            monotonic=monotonic,
        )
        self._worker = PodWorker(
            pods=self._pods,
            client=self._client,
            preparer=self.preparer,
            runtime=self.runtime,
            events=self._events,
            health=lambda: known_health(self.registry.health_sources()),
            sources=sources,
            volumes=PodVolumes(sources, PodTokens(self._client, clock=clock), self.runtime, self._claimed),
            host_ip=config.node_ip,
            capacity={"cpu": config.cpu, "memory": config.memory, "pods": str(config.pods)},
            clock=clock,
            monotonic=monotonic,
            started=self.metrics.container_started,
        )

        self._usage = UsageSampler(self.runtime, self._pods.all, clock=clock, monotonic=monotonic)

        # plugins/
        self.plugins: PluginHost | None = None  # unless there are drivers behind sockets
        if config.plugin_dir is not None:
            # Imported here: grpc is large, and agents without such drivers do not need it.
            from nodeagent.plugins.host import KnownDrivers, PluginHost  # noqa: PLC0415

            self.plugins = PluginHost(
                config.plugin_dir,
                registry=self.registry,
                known=KnownDrivers(config.state_dir / "drivers.json", disk),
                call_seconds=config.plugin_call_seconds,
                grace_seconds=config.plugin_grace_seconds,
                away=lambda name: self._queue.add(Key("away", name)),
                called=self.metrics.grpc_called,
            )

        # The queue's two sides: watches fill it, workers empty it.
        self._watching = Watching(
            client=self._client,
            node=config.node_name,
            queue=self._queue,
            seen=self._registration.seen,
            pods=self._pods,
            slice_count=self._slice_count,
            drivers=self._drivers,
            everything=self.everything,
            ready=self.ready,
        )
        self.followers = self._watching.followers()
        if self.runtime.has_files:
            of_volumes = WatchFollower(
                self._client,
                VOLUMES,
                label_selector=f"{NODE_LABEL}={config.node_name}",
                replace=self._claimed.listed,
                change=self._claimed.changed,
            )
            self.followers = (*self.followers, of_volumes)
        self._crew = Crew(
            self._queue, self._sync, size=config.workers, most=config.workers + config.pods, name=config.node_name
        )

        # http/
        self.metrics.observe(
            AgentState(
                claims=self.preparer.records,
                quarantined=lambda: len(self.preparer.quarantined),
                pods=self._pods.all,
                queue=self._queue.counts,
                slices=self._slice_count.by_driver,
                meters=lambda: read_meters(self._drivers.values()),
            )
        )
        self._server = make_server(
            config,
            client=self._client,
            registration=self._registration,
            threads=lambda: self._threads,
            pods=self._pods.all_if_listed,
            runtime=self.runtime,
            usage=self._usage.report,
            metrics=self.metrics,
            disk=disk,
            clock=clock,
        )

    def run(self, stop: threading.Event) -> None:
        """Run the node until `stop` is set. Containers keep running; the next `run` adopts them.

        Raises: ListenFailed, before anything else happens.
        """
        if self._server is not None:
            self._registration.serves(self._server.start())
        log.info("node %s: starting with drivers %s", self.config.node_name, ", ".join(self._drivers) or "none")
        if self.plugins is not None:
            self.plugins.make_folders()
        threads: list[threading.Thread] = []
        steps = (self.remove_unregistered, self._recover_in_touch, self.register, self.publish_all)
        try:
            if all(self._retry(step, stop) for step in steps):
                threads = self._start_threads()
                self._beat(stop)
        finally:
            if self._server is not None:
                self._server.stop()
            self._stop_threads(threads)
            self._client.close()
            log.info("node %s: stopped", self.config.node_name)

    # The steps, without threads.

    def remove_unregistered(self) -> None:
        """Delete the slices of drivers that have not registered: a pod with their devices could not start.

        A kubelet deletes all slices of its node. The agent keeps those of a driver that registers at once: its library
        takes up to a minute to notice a deletion and publish again. Raises: ApiFailure.
        """
        if not gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION):
            return
        registered = frozenset(self._drivers)
        if self.plugins is not None:
            registered |= self.plugins.register_present(REGISTRATION_SECONDS)
        try:
            unregistered = self._publisher.publishing_drivers() - registered
        except ApiFailure as failure:
            if not failure.not_found:
                raise
            log.warning("node %s: %s", self.config.node_name, NOT_SERVED)
            return
        if self.plugins is not None:
            self.plugins.expect(unregistered)
        for name in unregistered:
            log.info("node %s: driver %s is not registered: deleting its slices", self.config.node_name, name)
            self._publisher.remove(name)

    def recover(self) -> None:
        """Step 1. Raises: StorageFailed."""
        self._unreported += self.preparer.recover()

    def _recover_in_touch(self) -> None:
        """Raises: AgentError, after renewing the lease: the node's pods must not be evicted while the disk fails."""
        try:
            self.recover()
        except AgentError:
            with suppress(ApiFailure):
                self.register()
            raise

    def register(self) -> None:
        """Step 2. Raises: ApiFailure."""
        self.report()
        self._registration.renew()
        while self._unreported:
            case = self._unreported.pop()
            self._events.warn_node(
                "CheckpointQuarantined",
                f"The record of the claim with uid {case.claim_uid} could not be read: {case.reason}. It is kept in "
                f"{case.moved_to}, and the claim is recovered with an unknown state. Find out why, then delete it",
            )

    def report(self) -> None:
        """Report the node's status, including its storage. Raises: ApiFailure."""
        trouble, before = self._storage.trouble(), self._trouble
        was_gone = self._registration.is_gone
        self._registration.report(disk=trouble)
        name = self.config.node_name
        if self._registration.is_gone and not was_gone:
            log.error("node %s: %s", name, NODE_GONE)
            self._events.warn_node("NodeGone", NODE_GONE)
        elif was_gone and not self._registration.is_gone:
            log.info("node %s: the Node exists again", name)
            self._watching.look_at_everything()
        if self._registration.is_gone:
            return
        self._trouble = trouble
        if trouble and trouble != before:
            log.error("node %s: %s", name, trouble)
            self._events.warn_node("StorageFailed", f"No claim can be prepared or unprepared: {trouble}")
        elif before and not trouble:
            log.info("node %s: its directories are writable again", name)
            self._watching.look_at_everything()

    def publish_all(self) -> None:
        """Step 3; `remove_unregistered` has reported an API without slices. Raises: ApiFailure."""
        for driver in self._drivers.values() if gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION) else ():
            try:
                self._publisher.publish(driver)
            except ApiFailure as failure:
                if not failure.not_found:
                    raise

    def work(self, key: Key) -> float | None:
        """Step 5, for one key. Returns the seconds until the next sync, None for no planned one. Raises: AgentError."""
        match key.kind:
            case "node":
                self.register()
            case "pod":
                return self._worker.sync(key.name)
            case "slices":
                self._publish(key.name)
            case "health" if self._health_rules is not None and not self._registration.is_gone:
                others = (driver for driver in self.registry.health_sources() if driver.name not in self._drivers)
                self._health_rules.sync({driver.name: driver.health() for driver in others})
            case "uses" if not self._registration.is_gone:
                self._use_reports.sync(self.preparer.records(), self._drivers.values())
            case "meters" if not self._registration.is_gone:
                return self._meters.sync(self._drivers.values())
            case "published" if self.plugins is not None and not self._registration.is_gone:
                self.plugins.publish(self._client, self._registration.owner())
            case "unused":
                self.preparer.unprepare_unused()
            case "volumes":
                self._claimed.sweep()
            case "away":
                return self._remove_slices(key.name)
            case "credential" if self._renewal is not None:
                return self._renewal.step(self._client)
        return None

    def _publish(self, driver: str) -> None:
        if self._registration.is_gone:  # a Node owns its slices: they would be deleted again at once
            name = self.config.node_name
            log.warning("node %s: the devices of driver %s are not published: the Node is gone", name, driver)
        else:
            self._publisher.publish(self._drivers[driver])

    def _remove_slices(self, driver: str) -> float | None:
        """Remove a departed driver's slices after the grace period. Returns the seconds left of it."""
        left = self.plugins.seconds_left(driver) if self.plugins is not None else None
        if self.plugins is None or left != 0:
            return left
        self._publisher.remove(driver)
        in_use = any(driver in {part.driver for part in record.drivers} for record in self.preparer.records())
        self.plugins.slices_removed(driver, in_use=in_use)
        return None

    def everything(self) -> list[Key]:
        """Every key that may need a sync: from the API, the runtime and the checkpoint."""
        pods = self._pods.uids() | self.runtime.pod_uids() | self.preparer.pod_uids()
        away = self.plugins.away() if self.plugins is not None else ()
        published = [
            *([Key("health")] if self._health_rules is not None else []),
            *([Key("uses")] if any(isinstance(driver, UseTellingDriver) for driver in self._drivers.values()) else []),
            *([Key("meters")] if any(isinstance(driver, MeteredDriver) for driver in self._drivers.values()) else []),
            *([Key("published")] if self.plugins is not None else []),
            *(Key("slices", name) for name in self._drivers),
            *(Key("away", name) for name in away),
        ]
        return [
            Key("unused"),
            *([Key("volumes")] if self.runtime.has_files else []),
            *([Key("credential")] if self._renewal is not None else []),
            *(published if gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION) else ()),
            *(Key("pod", uid) for uid in pods),
        ]

    def _users_of(self, claim_uid: str) -> tuple[str, ...]:
        """The pods whose running containers use a claim, by the runtime."""
        users = (
            pod_uid
            for pod_uid in sorted(self.runtime.pod_uids())
            if any(run.running and claim_uid in run.claims for run in self.runtime.runs(pod_uid).values())
        )
        return tuple(users)

    # Threads.

    def _start_threads(self) -> list[threading.Thread]:
        for driver in self._drivers.values():
            driver.subscribe(self._watching.look_at_everything)
        self.runtime.subscribe(lambda uid: self._queue.add(Key("pod", uid)))
        self.registry.subscribe(self._watching.look_at_everything)
        self.preparer.subscribe(lambda uid: self._queue.add(Key("pod", uid)))
        if self.plugins is not None:
            self.plugins.start()
        targets = [*(follower.run for follower in self.followers), self._crew.run]
        threads = [threading.Thread(target=target, name=self.config.node_name, daemon=True) for target in targets]
        for thread in threads:
            thread.start()
        self._threads = threads
        return threads

    def _stop_threads(self, threads: Sequence[threading.Thread]) -> None:
        self._queue.close()
        self._crew.stop()
        if self.plugins is not None:
            self.plugins.stop()
        for follower in self.followers:
            follower.stop()
        deadline = time.monotonic() + STOP_SECONDS
        self._crew.join(deadline)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _sync(self, key: Key) -> None:
        """Work on one key of the queue; failures are retried with backoff."""
        with about(self._pods.get(key.name) if key.kind == "pod" else None):
            try:
                delay = self.work(key)
            except AgentError as error:
                seconds = self._queue.retry(key)
                if isinstance(error, StorageFailed):
                    self._queue.add(Key("node"))
                log.warning("node %s: %s %s: %s; trying again in %.1f s", self.config.node_name, *key, error, seconds)
            except Exception:  # a bug met by one key must not stop the others
                seconds = self._queue.retry(key)
                log.exception("node %s: %s %s; trying again in %.1f s", self.config.node_name, *key, seconds)
            else:
                self._queue.forget(key)
                if delay is not None:
                    self._queue.add_after(key, delay)

    def _beat(self, stop: threading.Event) -> None:
        """Step 6."""
        reported = looked = time.monotonic()
        while not stop.wait(self.config.lease_seconds):
            now = time.monotonic()
            try:
                self._registration.renew()
                if now - reported >= self.config.status_seconds or self._storage.trouble() != self._trouble:
                    self.report()
                    reported = now
            except AgentError as error:
                log.warning("node %s: heartbeat: %s; trying again", self.config.node_name, error)
            if not self.runtime.counts_evenly:
                self._usage.sync()
            if now - looked >= self.config.resync_seconds:
                looked = now
                self._watching.look_at_everything()

    def _retry(self, step: Callable[[], None], stop: threading.Event) -> bool:
        """Retry `step` until it succeeds; False if stopped first."""
        delay = 0.2
        while not stop.is_set():
            try:
                step()
            except AgentError as error:
                log.warning("node %s: %s; trying again in %.1f s", self.config.node_name, error, delay)
                stop.wait(delay)
                delay = min(delay * 2, LONGEST_DELAY)
            else:
                return True
        return False


if TYPE_CHECKING:
    from nodeagent.plugins.host import PluginHost
