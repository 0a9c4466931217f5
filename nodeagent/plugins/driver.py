"""A driver behind sockets, as the agent sees it: one name, one or more instances that serve it, and their health.

During a rolling update two instances are there at once. The one that registered last and is connected is asked; one
that is not connected only where none is: its endpoint may be back sooner than we know of it.
Source: kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from msgspec.structs import replace

from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.named_resources import ResourceHandle
from nodeagent.cdi import DEVICE_NAME, KIND
from nodeagent.drivers.preparing import handles_for
from nodeagent.drivers.protocol import ClaimIdentity, DeviceHealth, Failed, Prepared, PreparedDevice
from nodeagent.plugins.protocol import (
    Answer,
    Call,
    CallFailed,
    Channel,
    Claim,
    Device,
    PreparedClaim,
    Question,
    UnpreparedClaim,
)
from nodeagent.plugins.registration import RegisteredPlugin, RegistrationRefused
from nodeagent.plugins.services import PLUGIN_SERVICES, Ask, DraService
from nodeagent.plugins.streams import Following, HealthCache, HealthWatch, Models, ResourceWatch

log = logging.getLogger(__name__)


# What a driver's answers mean to the agent; an answer that is no good becomes a failure that says why. Pure.

LEFT_OUT = Failed("its answer does not cover this claim")


def prepared(answer: PreparedClaim | None) -> Prepared | Failed:
    """Of one claim; None where the answer does not name it. The driver wrote its CDI files itself."""
    if answer is None:
        return LEFT_OUT
    if answer.error:
        return Failed(answer.error)
    if problems := [problem for index, device in enumerate(answer.devices) for problem in _problems(index, device)]:
        return Failed(f"its answer cannot be used: {'; '.join(problems)}")
    return Prepared(devices=tuple(_device(device) for device in answer.devices), spec=None)


def unprepared(answer: UnpreparedClaim | None) -> Failed | None:
    """Of one claim; None for success."""
    if answer is None:
        return LEFT_OUT
    return Failed(answer.error) if answer.error else None


def _device(device: Device) -> PreparedDevice:
    return PreparedDevice(
        requests=device.request_names,
        pool=device.pool_name,
        device=device.device_name,
        cdi_device_ids=device.cdi_device_ids,
    )


def _problems(index: int, device: Device) -> Iterator[str]:
    """A device without a name or a pool is fine: the protocol asks for both, but kubelet takes what has neither, and
    drivers of Kubernetes answer so. What they stand for, the health of the device, is then unknown."""
    name = f"device {device.device_name}" if device.device_name else f"device number {index + 1}"
    for one in device.cdi_device_ids:
        kind, equals, device_name = one.partition("=")
        if not equals or not KIND.fullmatch(kind) or not DEVICE_NAME.fullmatch(device_name):
            yield f"{name}: {one!r} is no CDI device id (vendor.example.com/class=name)"


_Ask = Callable[[DraService, tuple[Claim, ...], Ask], Mapping[str, Answer]]
#: (driver, path of the call, gRPC's status, seconds) -> None
Called = Callable[[str, str, str, float], None]


def ignore_calls(_driver: str, _path: str, _code: str, _seconds: float) -> None:
    """For those who count nothing."""


#: How calls are counted for which no instance is there.
PREPARE, UNPREPARE = PLUGIN_SERVICES[0].prepare.path, PLUGIN_SERVICES[0].unprepare.path


class Instance:
    """One process that serves the driver. connected: kept by `PluginDriver`, under its lock."""

    def __init__(
        self,
        plugin: RegisteredPlugin,
        *,
        cache: HealthCache,
        changed: Callable[[], None],
        connected: Callable[[Instance, bool], None],
        has: Callable[[Models], None],
    ) -> None:
        self.endpoint = plugin.endpoint
        self._offered = {True: plugin.handling or plugin.service, False: plugin.service}
        self._found = dict(self._offered)
        self.connected = False
        self._following: list[Following] = [HealthWatch(plugin.endpoint, plugin.health, cache, changed)]
        if plugin.handling is not None:
            self._following.append(ResourceWatch(plugin.endpoint, has))
        self.channel = Channel(plugin.endpoint, partial(connected, self))

    def service(self, *, handles: bool) -> DraService:
        """The one for claims with `handles`, or without."""
        return self._found[handles]

    def try_older(self, service: DraService) -> DraService | None:
        """The driver does not know `service`; returns what to ask in its place, now and from now on.

        Where nothing is left, it is asked for the newest again next time: it may have been about to start.
        """
        for handles, found in self._found.items():
            if found is service:
                self._found[handles] = service.older or self._offered[handles]
        return service.older

    def start(self) -> None:
        for one in self._following:
            one.start(self.channel)

    def back(self) -> None:
        """The connection is there again."""
        for one in self._following:
            one.try_now()

    def stop(self) -> None:
        """Calls in progress fail within a second."""
        for one in self._following:
            one.stop()
        self.channel.close()


class PluginDriver:
    """A `ClaimDriver`. Thread-safe.

    call_seconds: how long a call may take. changed: called, from any thread, when the driver can or cannot be reached
    any more, or its health or what is published for it is different. called: told of every call that was answered, or
    not: the driver's name, the call's path, gRPC's status, seconds. clock: monotonic seconds.
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
        #: what the agent publishes for it; None where it publishes itself, or has not said anything yet
        self.published: Models | None = None

    @property
    def name(self) -> str:
        return self._name

    # Who serves it.

    @property
    def registered(self) -> bool:
        return bool(self._instances)

    def add(self, plugin: RegisteredPlugin) -> Instance:
        """Raises: Refused when another instance has the endpoint."""
        with self._lock:
            if any(instance.endpoint == plugin.endpoint for instance in self._instances):
                raise RegistrationRefused(f"endpoint {plugin.endpoint} is already registered for driver {self._name}")
            instance = Instance(
                plugin, cache=self._cache, changed=self._changed, connected=self._note, has=self._publish
            )
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

    def expect(self) -> None:
        """It is away until an instance is connected."""
        with self._lock:
            self._note_presence()

    def seconds_away(self) -> float | None:
        """For how long no instance has been connected; None while one is, and once `settle` was called."""
        with self._lock:
            return None if self._away_since is None else self._clock() - self._away_since

    def settle(self) -> None:
        """What is to be done about a driver that is away, has been done."""
        with self._lock:
            self._away_since = None

    def _publish(self, models: Models) -> None:
        self.published = models
        self._changed()

    def _note(self, instance: Instance, connected: bool) -> None:
        with self._lock:
            if instance.connected == connected:
                return
            instance.connected = connected
            self._note_presence()
        log.info("driver %s: %s %s", self._name, "connected to" if connected else "lost", instance.endpoint)
        if connected:
            instance.back()
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
        asked = [_questions(_identity(claim), handles_for(claim, self._name)) for claim in claims]
        answers: dict[str, Prepared | Failed] = {}
        for uid, given in self._ask(asked, lambda service, part, ask: service.prepare_claims(part, ask), PREPARE):
            answer = given if isinstance(given, Failed) else prepared(given)
            answers[uid] = _both(answers[uid], answer) if uid in answers else answer
        return answers

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        asked = [_questions(claim, claim.handles) for claim in claims]
        answers: dict[str, Failed | None] = {}
        for uid, given in self._ask(asked, lambda service, part, ask: service.unprepare_claims(part, ask), UNPREPARE):
            answer = given if isinstance(given, Failed) else unprepared(given)
            answers[uid] = answers.get(uid) or answer
        return answers

    def health(self) -> Sequence[DeviceHealth]:
        return self._cache.current()

    def health_ran_out(self) -> bool:
        """Whether a report of its health has run out since this was last asked."""
        return self._cache.ran_out()

    @property
    def wants_handles(self) -> bool:
        instance = self._current()
        return instance is not None and instance.service(handles=False).has_handles

    def _ask(
        self, asked: Sequence[_Questions], what: _Ask[Answer], path: str
    ) -> Iterator[tuple[str, Answer | Failed | None]]:
        """The answer to every question, by the claim's uid. path: of the call, to count it where none is made."""
        for part in _parts(asked):
            given: Mapping[str, Answer | Failed]
            try:
                given = self._ask_part(part, what, path)
            except CallFailed as failure:
                given = dict.fromkeys((claim.uid for claim in part.claims), Failed(str(failure)))
            yield from ((claim.uid, given.get(claim.uid)) for claim in part.claims)

    def _ask_part(self, part: _Questions, what: _Ask[Answer], path: str) -> Mapping[str, Answer]:
        """In the newest version that the driver knows. Raises: CallFailed."""
        instance = self._current()
        if instance is None:
            gone = CallFailed("it is no longer registered")
            self._called(self._name, path, gone.code, 0.0)
            raise gone
        ask = _Asking(self._name, instance.channel, seconds=self._call_seconds, called=self._called)
        service = instance.service(handles=part.handled)
        while True:
            try:
                return what(service, part.claims, ask)
            except CallFailed as failure:
                older = instance.try_older(service) if failure.unimplemented else None
                if older is None:
                    raise
                service = older


class _Asking:
    """An `Ask`. seconds: that all calls of one question may take together, as kubelet has it."""

    def __init__(self, name: str, channel: Channel, *, seconds: float, called: Called) -> None:
        self._name = name
        self._channel = channel
        self._seconds = seconds
        self._until: float | None = None
        self._called = called

    def __call__(self, call: Call[Question, Answer], question: Question, /) -> Answer:
        started, code = time.perf_counter(), "OK"
        try:
            return self._channel.call(call, question, seconds=self._seconds_left())
        except CallFailed as failure:
            code = failure.code
            raise
        finally:
            self._called(self._name, call.path, code, time.perf_counter() - started)

    def _seconds_left(self) -> float:
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
            return self._seconds
        return max(self._until - now, 0.001)


# What a driver is asked. A claim may have several handles for one driver, and an answer names claims by their uids: so
# no call has two questions about one claim (kubelet 1.30 asks them together, and takes the answer for incomplete).


class _Questions(NamedTuple):
    """Of one claim, or those that go together. handled: for a service whose claims have handles."""

    claims: tuple[Claim, ...]
    handled: bool


def _identity(claim: ResourceClaim) -> ClaimIdentity:
    meta = claim.metadata
    return ClaimIdentity(meta.uid, meta.namespace, meta.name)


def _questions(claim: ClaimIdentity, handles: Sequence[ResourceHandle]) -> _Questions:
    """One for each handle."""
    named = Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name)
    return _Questions(tuple(_with(named, one) for one in handles) or (named,), handled=bool(handles))


def _with(claim: Claim, handle: ResourceHandle) -> Claim:
    structured = (handle.structured_data,) if handle.structured_data is not None else ()
    return replace(claim, resource_handle=handle.data, structured_resource_handle=structured)


def _parts(asked: Sequence[_Questions]) -> Iterator[_Questions]:
    for handled in (False, True):
        for part in zip_longest(*(one.claims for one in asked if one.handled == handled)):
            yield _Questions(tuple(claim for claim in part if claim is not None), handled)


def _both(one: Prepared | Failed, other: Prepared | Failed) -> Prepared | Failed:
    """Of two handles of one claim."""
    if isinstance(one, Failed):
        return one
    return other if isinstance(other, Failed) else Prepared(devices=one.devices + other.devices, spec=None)
