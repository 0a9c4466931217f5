"""What a device driver is to the agent: four calls and a notice.

A driver lives in this process (`Driver`: the agent publishes its devices), or behind a socket (`ClaimDriver`: it
publishes its devices itself). It may be called from several threads, for different claims at once and never twice at
once for the same claim. `prepare` and `unprepare` are idempotent: after a crash the agent asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from claims.kinds.resource_claims import NetworkDeviceData, ResourceClaim
from inventory.kinds.devices import CounterSet, Device, DeviceAttribute
from inventory.kinds.named_resources import ResourceHandle
from nodeagent import cdi
from nodeagent.storage import PreparedDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The devices of one pool, complete and in the order in which the scheduler tries them."""

    name: str
    devices: tuple[Device, ...]
    shared_counters: tuple[CounterSet, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimIdentity:
    """A claim by name and uid; the claim itself may be gone already when it is unprepared.

    handles: what its controller left for the driver, where one allocated it (`nodeagent.handles`).
    """

    uid: str
    namespace: str
    name: str
    handles: tuple[ResourceHandle, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMetadata:
    """What a container may read of its device in a file (KEP-5304): at least what the ResourceSlice says of it.

    attributes: by qualified name, at most 32. network: of a network device.
    """

    attributes: Mapping[str, DeviceAttribute] = field(default_factory=dict)
    network: NetworkDeviceData | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The devices are ready. `spec` is the CDI file that the agent writes; None where the driver wrote its own.

    metadata: by (pool, device); a device that is left out is told of by name only. None: no file is written.
    """

    devices: tuple[PreparedDevice, ...]
    spec: cdi.Spec | None
    metadata: Mapping[tuple[str, str], DeviceMetadata] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The driver could not do it now; the agent asks again later. `reason` is shown to the pod's owner."""

    reason: str


Health = Literal["Healthy", "Unhealthy", "Unknown"]


#: What becomes of a device whose driver calls it unhealthy, and has no taint of its own for it: it is only told of, new
#: claims keep off, or the pods that have it are evicted as well.
UnhealthyEffect = Literal["None", "NoSchedule", "NoExecute"]
UNHEALTHY_EFFECTS: Sequence[UnhealthyEffect] = ("None", "NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """The state of one device (KEP-4680); `message` tells an unhealthy one's trouble."""

    pool: str
    device: str
    health: Health
    message: str = ""


class ClaimDriver(Protocol):
    """Makes devices ready. `name` is the DNS name under which its devices are published and claimed."""

    @property
    def name(self) -> str: ...

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        """Make the devices allocated to `claims` ready. By claim uid; a claim left out counts as failed."""

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        """Undo `prepare`, also for a claim never prepared. By claim uid; None is success, left out is failure."""

    def health(self) -> Sequence[DeviceHealth]:
        """The devices whose health the driver knows."""


@runtime_checkable
class HandlingDriver(ClaimDriver, Protocol):
    """A driver that may be of the time of Kubernetes 1.31 and before."""

    @property
    def wants_handles(self) -> bool:
        """Whether it is told of devices in no other way than by handles."""


class Driver(ClaimDriver, Protocol):
    """A driver whose devices the agent publishes."""

    def pools(self) -> Sequence[Pool]:
        """Everything that this node publishes now."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed`, from any thread, whenever `pools()` or `health()` would answer differently."""
