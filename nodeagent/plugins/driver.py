"""A driver behind sockets, as the agent sees it: one name, one or more instances that serve it.

During a rolling update two instances are there at once. The one that registered last and is connected is asked; one
that is not connected only where none is: its endpoint may be back sooner than we know of it.
Source: kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.drivers.protocol import ClaimIdentity, DeviceHealth, Failed, Prepared
from nodeagent.plugins import answers
from nodeagent.plugins.channels import CallFailed, Channel
from nodeagent.plugins.health import HealthCache, HealthWatch
from nodeagent.plugins.messages import Answer, Call, Claim, ClaimsRequest, DraService
from nodeagent.plugins.registration import Plugin, Refused

log = logging.getLogger(__name__)

#: (driver, path of the call, gRPC's status, seconds) -> None
Called = Callable[[str, str, str, float], None]


def ignore_calls(_driver: str, _path: str, _code: str, _seconds: float) -> None:
    """For those who count nothing."""


class Instance:
    """One process that serves the driver. connected: kept by `PluginDriver`, under its lock."""

    def __init__(
        self,
        plugin: Plugin,
        *,
        cache: HealthCache,
        changed: Callable[[], None],
        connected: Callable[[Instance, bool], None],
    ) -> None:
        self.endpoint = plugin.endpoint
        self.service = plugin.service
        self.connected = False
        self.health = HealthWatch(plugin.endpoint, plugin.health, cache, changed)
        self.channel = Channel(plugin.endpoint, partial(connected, self))

    def start(self) -> None:
        self.health.start(self.channel)

    def stop(self) -> None:
        """Calls in progress fail within a second."""
        self.health.stop()
        self.channel.close()


class PluginDriver:
    """A `ClaimDriver`. Thread-safe.

    call_seconds: how long a call may take. changed: called, from any thread, when the driver can or cannot be reached
    any more, or its health is different. called: told of every call that was answered, or not: the driver's name, the
    call's path, gRPC's status, seconds. clock: monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        call_seconds: float,
        changed: Callable[[], None],
        called: Called = ignore_calls,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._called = called
        self._call_seconds = call_seconds
        self._changed = changed
        self._clock = clock
        self._lock = threading.Lock()
        self._instances: tuple[Instance, ...] = ()  # in the order in which they registered
        self._away_since: float | None = None
        self._cache = HealthCache(clock)

    @property
    def name(self) -> str:
        return self._name

    # Who serves it.

    @property
    def registered(self) -> bool:
        return bool(self._instances)

    def add(self, plugin: Plugin) -> Instance:
        """Raises: Refused when another instance has the endpoint."""
        with self._lock:
            if any(instance.endpoint == plugin.endpoint for instance in self._instances):
                raise Refused(f"endpoint {plugin.endpoint} is registered already for driver {self._name}")
            instance = Instance(plugin, cache=self._cache, changed=self._changed, connected=self._note)
            self._instances = (*self._instances, instance)
            self._note_presence()
        instance.start()
        return instance

    def remove(self, instance: Instance) -> None:
        """It has gone; calls in progress on it fail."""
        with self._lock:
            self._instances = tuple(other for other in self._instances if other is not instance)
            self._note_presence()
        instance.stop()

    def seconds_away(self) -> float | None:
        """For how long no instance has been connected; None while one is, and once `settle` was called."""
        with self._lock:
            return None if self._away_since is None else self._clock() - self._away_since

    def settle(self) -> None:
        """What is to be done about a driver that is away, has been done."""
        with self._lock:
            self._away_since = None

    def _note(self, instance: Instance, connected: bool) -> None:
        with self._lock:
            if instance.connected == connected:
                return
            instance.connected = connected
            self._note_presence()
        log.info("driver %s: %s %s", self._name, "connected to" if connected else "lost", instance.endpoint)
        if connected:
            instance.health.try_now()
        self._changed()

    def _note_presence(self) -> None:
        if any(instance.connected for instance in self._instances):
            self._away_since = None
        elif self._away_since is None:
            self._away_since = self._clock()

    def _current(self) -> Instance | None:
        with self._lock:
            latest_first = self._instances[::-1]
            return next((one for one in latest_first if one.connected), latest_first[0] if latest_first else None)

    # What it does.

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        asked = tuple(Claim(namespace=m.namespace, uid=m.uid, name=m.name) for m in (c.metadata for c in claims))
        try:
            given = self._ask(lambda service: service.prepare, asked).claims
        except CallFailed as failure:
            return {claim.uid: Failed(str(failure)) for claim in asked}
        return {claim.uid: answers.prepared(given.get(claim.uid)) for claim in asked}

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        asked = tuple(Claim(namespace=c.namespace, uid=c.uid, name=c.name) for c in claims)
        try:
            given = self._ask(lambda service: service.unprepare, asked).claims
        except CallFailed as failure:
            return {claim.uid: Failed(str(failure)) for claim in asked}
        return {claim.uid: answers.unprepared(given.get(claim.uid)) for claim in asked}

    def health(self) -> Sequence[DeviceHealth]:
        return self._cache.current()

    def health_ran_out(self) -> bool:
        """Whether a report of its health has run out since this was last asked."""
        return self._cache.ran_out()

    def _ask(self, which: Callable[[DraService], Call[ClaimsRequest, Answer]], claims: tuple[Claim, ...]) -> Answer:
        """Raises: CallFailed."""
        instance = self._current()
        if instance is None:
            raise CallFailed("it is not registered any more")
        call, started, code = which(instance.service), time.perf_counter(), "OK"
        try:
            return instance.channel.call(call, ClaimsRequest(claims=claims), seconds=self._call_seconds)
        except CallFailed as failure:
            code = failure.code
            raise
        finally:
            self._called(self._name, call.path, code, time.perf_counter() - started)
