"""The interface of device drivers: four calls and a notification.

A driver lives in this process (`Driver`: the agent publishes its devices), or behind a socket (`ClaimDriver`: it
publishes its devices itself). Several threads may call it at once, but never for the same claim. `prepare` and
`unprepare` are idempotent: after a crash the agent calls them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from claims.kinds.resource_claims import NetworkDeviceData, ResourceClaim
from inventory.kinds.device_readings import Meters
from inventory.kinds.devices import CounterSet, Device, DeviceAttribute
from inventory.kinds.named_resources import ResourceHandle
from manciple.wire.base import Value
from nodeagent import cdi


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The devices of one pool, complete and in the order in which the scheduler tries them."""

    name: str
    devices: tuple[Device, ...]
    shared_counters: tuple[CounterSet, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimIdentity:
    """A claim by name and uid; the claim itself may be deleted already when it is unprepared.

    handles: the data of the controller for the driver, if a controller allocated the claim (`claims/handles.py`).
    """

    uid: str
    namespace: str
    name: str
    handles: tuple[ResourceHandle, ...] = ()


class PreparedDevice(Value):
    """One device of a claim as its driver prepared it. No `requests` means: all requests of the claim."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMetadata:
    """The metadata of a device that its containers read in a file (KEP-5304); includes what the ResourceSlice has.

    attributes: by qualified name, at most 32. network: of a network device.
    """

    attributes: Mapping[str, DeviceAttribute] = field(default_factory=dict)
    network: NetworkDeviceData | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The devices are ready. spec: the CDI file for the agent to write; None if the driver wrote its own.

    metadata: by (pool, device); a device without an entry is listed by name only. None: no file is written.
    """

    devices: tuple[PreparedDevice, ...]
    spec: cdi.Spec | None
    metadata: Mapping[tuple[str, str], DeviceMetadata] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The driver failed; the agent retries later. `reason` is shown to the pod's owner."""

    reason: str


Health = Literal["Healthy", "Unhealthy", "Unknown"]


#: What happens with an unhealthy device without a taint of its driver. None: it is only reported. NoSchedule: new
#: claims avoid it. NoExecute: its pods are evicted as well.
UnhealthyEffect = Literal["None", "NoSchedule", "NoExecute"]
UNHEALTHY_EFFECTS: Sequence[UnhealthyEffect] = ("None", "NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """The health of one device (KEP-4680). message: why it is unhealthy."""

    pool: str
    device: str
    health: Health
    message: str = ""


class ClaimDriver(Protocol):
    """Makes devices ready. `name` is the DNS name under which its devices are published and claimed."""

    @property
    def name(self) -> str: ...

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        """Make the devices of `claims` ready. Returns answers by claim uid; a missing answer is a failure."""

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        """Undo `prepare`, also for a claim that was never prepared. Returns answers by claim uid; None is success, a
        missing answer is a failure.
        """

    def health(self) -> Sequence[DeviceHealth]:
        """The devices whose health the driver knows."""


@runtime_checkable
class HandlingDriver(ClaimDriver, Protocol):
    """A driver that may implement the API of Kubernetes 1.31 or earlier."""

    @property
    def wants_handles(self) -> bool:
        """Whether it learns its devices from resource handles only."""


class Driver(ClaimDriver, Protocol):
    """A driver whose devices the agent publishes."""

    def pools(self) -> Sequence[Pool]:
        """Everything that this node publishes now."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed`, from any thread, whenever the results of `pools()` or `health()` change."""


@runtime_checkable
class MeteredDriver(Protocol):
    """A driver that can read the meters of its devices."""

    @property
    def name(self) -> str: ...

    def meters(self) -> Mapping[tuple[str, str], Meters]:
        """By (pool, device): what the meters read now. A device without any is left out. It answers at once."""
