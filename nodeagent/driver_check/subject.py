"""The driver under test: how the check reaches it, what it published, and the claims that the check gives it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from claims.kinds.registration import RESOURCE_CLAIM
from inventory.kinds.devices import Device as PublishedDevice
from inventory.kinds.devices import ResourceSlice
from nodeagent.driver_check.api import CheckApi, Document
from nodeagent.plugins.protocol import (
    GET_INFO,
    HEALTH_SERVICES,
    Answer,
    Call,
    CallFailed,
    Channel,
    Claim,
    ClaimsRequest,
    HealthService,
    InfoRequest,
    PluginInfo,
    PreparedClaim,
    Question,
    UnpreparedClaim,
)
from nodeagent.plugins.registration import INFO_SECONDS
from nodeagent.plugins.services import PLUGIN_SERVICES, PluginService

NAMESPACE: Final = "driver-check"
REQUEST: Final = "device"
#: Seconds between looks at something that nobody tells of.
LOOK_AGAIN: Final = 0.05


class CheckFailed(Exception):
    """The driver does not do what is checked; the text says what it did."""


class NotChecked(Exception):
    """It cannot be checked with this driver or this command line; the text says why."""


class DriverProcess(Protocol):
    """A driver that the check itself starts, and may end."""

    def start(self) -> None: ...
    def kill(self) -> None:
        """At once, as kill -9."""

    def stop(self, *, seconds: float) -> bool:
        """Ask it to end; False where it has not after so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """socket: of the registration. cdi_dirs: where runtimes look for CDI files. parameters: of the driver's opaque
    configuration; None for no configuration. call_seconds: that a call may take, as for a kubelet. wait_seconds: that
    the driver may take to be there, to publish, to report, and to end. slow: also what takes a driver half a minute.
    """

    socket: Path
    cdi_dirs: Sequence[Path]
    parameters: Any = None
    call_seconds: float = 45.0
    wait_seconds: float = 60.0
    slow: bool = False


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """One device that was published for the node, with its pool."""

    pool: str
    device: PublishedDevice

    @property
    def name(self) -> str:
        return self.device.name


@dataclass
class DriverUnderTest:
    """process: None where somebody else started the driver."""

    api: CheckApi
    options: CheckOptions
    process: DriverProcess | None = None
    clock: Callable[[], float] = time.monotonic
    #: (call, seconds) of every call of the driver's services
    took: list[tuple[str, float]] = field(default_factory=list)
    _info: PluginInfo | None = None
    _channels: list[Channel] = field(default_factory=list)
    _endpoint: Channel | None = None

    # Reaching it.

    @property
    def info(self) -> PluginInfo:
        """Who it is, as it said last."""
        return self._info if self._info is not None else self.ask_who()

    def ask_who(self) -> PluginInfo:
        """Raises: CheckFailed where nobody says so within `wait_seconds`."""
        deadline, failure = self.clock() + self.options.wait_seconds, "nothing listens there"
        while True:
            if self.options.socket.exists():
                with self.connected(self.options.socket) as channel:
                    try:
                        self._info = channel.call(GET_INFO, InfoRequest(), seconds=INFO_SECONDS)
                    except CallFailed as error:
                        failure = str(error)
                    else:
                        return self._info
            if self.clock() >= deadline:
                raise CheckFailed(f"{self.options.socket}: {failure}")
            time.sleep(LOOK_AGAIN)

    @contextmanager
    def connected(self, path: Path) -> Iterator[Channel]:
        channel = Channel(str(path))
        try:
            yield channel
        finally:
            channel.close()

    @property
    def endpoint(self) -> Path:
        return Path(self.info.endpoint or self.options.socket)

    @property
    def service(self) -> PluginService:
        """Raises: NotChecked where it lists none that is checked here."""
        listed = [
            service for service in PLUGIN_SERVICES if not set(service.names).isdisjoint(self.info.supported_versions)
        ]
        if not listed:
            raise NotChecked("it lists neither v1.DRAPlugin nor v1beta1.DRAPlugin")
        return listed[0]

    def call(self, call: Call[Question, Answer], question: Question, *, seconds: float | None = None) -> Answer:
        """One call of its services. Raises: CallFailed."""
        began = self.clock()
        try:
            return self.channel().call(call, question, seconds=seconds or self.options.call_seconds)
        finally:
            if seconds is None:
                self.took.append((call.name, self.clock() - began))

    def channel(self) -> Channel:
        if self._endpoint is None or self._endpoint.endpoint != str(self.endpoint):
            self.disconnect()
            self._endpoint = Channel(str(self.endpoint))
        return self._endpoint

    def disconnect(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def health_services(self) -> Sequence[HealthService]:
        return [service for service in HEALTH_SERVICES if service.name in self.info.supported_versions]

    # What it published.

    def slices(self) -> list[ResourceSlice]:
        return [one for one in self.api.slices() if one.spec.driver == self.info.name]

    def devices(self) -> list[ChosenDevice]:
        """Those that can be given whole and at once come first. Waits for them. Raises: NotChecked."""
        self.until(self._published)
        found = [ChosenDevice(one.spec.pool.name, device) for one in self.slices() for device in one.spec.devices]
        if not found:
            raise NotChecked("it has published no device")
        return sorted(found, key=lambda one: bool(one.device.allow_multiple_allocations))

    def _published(self) -> bool:
        return any(one.spec.devices for one in self.slices())

    def until(self, condition: Callable[[], bool], *, seconds: float | None = None) -> bool:
        """Look after every change in the API, until it holds or so many seconds (`wait_seconds`) have passed."""
        with self.api.changed:
            return self.api.changed.wait_for(condition, self.options.wait_seconds if seconds is None else seconds)

    # Claims.

    @contextmanager
    def claim(self, device: ChosenDevice | None = None) -> Iterator[Claim]:
        """A claim that was given a device; afterwards the driver is asked to give it back, and it is gone."""
        document = self.claim_document(device or self.devices()[0])
        self.api.put(RESOURCE_CLAIM, document)
        meta = document["metadata"]
        claim = Claim(namespace=NAMESPACE, name=meta["name"], uid=meta["uid"])
        try:
            yield claim
        finally:
            with suppress(CallFailed):
                self.call(self.service.unprepare, ClaimsRequest(claims=(claim,)))
            with suppress(KeyError):
                self.api.remove(RESOURCE_CLAIM, claim.name, NAMESPACE)

    def claim_document(self, device: ChosenDevice, *, allocated: bool = True) -> Document:
        name, uid, node = f"check-{uuid.uuid4().hex[:8]}", str(uuid.uuid4()), self.api.node
        result = {"request": REQUEST, "driver": self.info.name, "pool": device.pool, "device": device.name}
        allocation: Document = {"devices": {"results": [{**result, **_share(device.device)}], "config": self._config()}}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        users = [{"resource": "pods", "name": f"pod-{name}", "uid": str(uuid.uuid4())}]
        status = {"allocation": allocation, "reservedFor": users} if allocated else {}
        asked = {"deviceClassName": NAMESPACE, "allocationMode": "ExactCount", "count": 1}
        return {
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid},
            "spec": {"devices": {"requests": [{"name": REQUEST, "exactly": asked}]}},
            "status": status,
        }

    def _config(self) -> list[Document]:
        if self.options.parameters is None:
            return []
        opaque = {"driver": self.info.name, "parameters": self.options.parameters}
        return [{"source": "FromClaim", "requests": [], "opaque": opaque}]

    def prepare(self, *claims: Claim) -> Mapping[str, PreparedClaim]:
        """By uid. Raises: CallFailed."""
        return self.call(self.service.prepare, ClaimsRequest(claims=claims)).claims

    def unprepare(self, *claims: Claim) -> Mapping[str, UnpreparedClaim]:
        """By uid. Raises: CallFailed."""
        return self.call(self.service.unprepare, ClaimsRequest(claims=claims)).claims

    def prepared(self, claim: Claim) -> PreparedClaim:
        """Raises: CheckFailed where it is not."""
        try:
            answer = self.prepare(claim).get(claim.uid)
        except CallFailed as error:
            raise CheckFailed(f"preparing a claim failed: {error}") from error
        if answer is None:
            raise CheckFailed("its answer leaves out the claim that it was asked to prepare")
        if answer.error:
            raise CheckFailed(f"preparing a claim failed: {answer.error}")
        return answer

    def unprepared(self, claim: Claim) -> None:
        """Raises: CheckFailed where it is not."""
        try:
            answer = self.unprepare(claim).get(claim.uid)
        except CallFailed as error:
            raise CheckFailed(f"it was asked to give the claim back, and the call failed: {error}") from error
        if answer is None:
            raise CheckFailed("its answer leaves out the claim that it was asked to give back")
        if answer.error:
            raise CheckFailed(f"it was asked to give the claim back, and answered: {answer.error}")


def _share(device: PublishedDevice) -> Document:
    """Of a device that several claims may have at once: which of them, and how much each gets."""
    if not device.allow_multiple_allocations:
        return {}
    consumed = {}
    for name, capacity in device.capacity.items():
        policy = capacity.request_policy
        consumed[name] = str((policy.default if policy else None) or capacity.value)
    return {"shareID": str(uuid.uuid4()), "consumedCapacity": consumed}
