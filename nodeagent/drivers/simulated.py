"""Simulated devices, and GPUs of this kind: they exist in memory only, prepared into CDI environment variables.

A driver of this family says which devices there are (`Pool`) and what a container with one of them finds in its
environment; publishing, preparing, health, and everything that can be made to go wrong, is in `SimulatedDevices`.

What goes wrong is said in the driver's settings (`faults`), in code (`set_faults`), or, while an agent runs, in a
control file that the settings name (`control`): whenever the file changes, what it says takes the place of what was
said before; a file that is gone means no faults at all.

    prepare:                    # or unprepare
      fail: 2                   # the next two calls fail for all their claims; or "always"
      reason: out of memory     # what the pod's owner is told
      hangSeconds: 5            # every call takes that long, or until something else is said
      unanswered: [my-claim]    # claims, by name or uid, that the driver says nothing of; "*" for all
    devices:
      gpu-0: {health: Unhealthy, message: the fan stands still}
      gpu-1: {gone: true}
      gpu-2: {taints: [{key: example.com/hot, effect: NoExecute}]}
      gpu-3: {idle: true}       # the driver says that nothing uses it; false: something does; left out: it says nothing
      gpu-4: {meters: {utilization: 35, temperature: 61}}       # its meters read that; left out: it has none

The GPUs do what an example driver does for a real one: a container sees them as `GPU_DEVICE_<n>=gpu-<n>` with the
device's uuid and the sharing that an opaque `GpuConfig` of class or claim asks for. All parameters that apply are
passed on as JSON too (`GPU_DEVICE_<n>_CONFIG`, a list, the one with the last word last), so that any opaque
configuration can be seen arriving. Source: kubernetes-sigs/dra-example-driver, internal/profiles/gpu.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml
from msgspec.structs import replace

from claims.kinds.resource_claims import DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim
from inventory.kinds.device_readings import Meters
from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity, DeviceTaint
from manciple.wire.base import Value
from nodeagent import cdi
from nodeagent.drivers.preparing import DeviceGone, parameters_for, prepare_claim
from nodeagent.drivers.protocol import ClaimIdentity, DeviceHealth, Failed, Health, Pool, Prepared

log = logging.getLogger(__name__)

Operation = Literal["prepare", "unprepare"]

#: Seconds between looks at a control file.
LOOK_SECONDS = 0.25

_Stamp = tuple[int, int, int]  # inode, mtime in ns, size


class OperationFaults(Value, forbid_unknown_fields=True):
    """What goes wrong with one operation. fail: how many calls still fail. hang_seconds: how long each takes."""

    fail: int | Literal["always"] = 0
    reason: str = "simulated failure"
    hang_seconds: float = 0.0
    unanswered: tuple[str, ...] = ()

    def leaves_out(self, uid: str, name: str) -> bool:
        return not {uid, name, "*"}.isdisjoint(self.unanswered)


class DeviceFaults(Value, forbid_unknown_fields=True):
    """What is wrong with one device. gone: it is not published any more, and cannot be prepared. idle: what is told of
    its use; None: nothing. meters: what they read; None: it has none."""

    health: Health = "Healthy"
    message: str = ""
    gone: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    idle: bool | None = None
    meters: Meters | None = None


class Faults(Value, forbid_unknown_fields=True):
    """Everything that goes wrong. devices: by name."""

    prepare: OperationFaults = OperationFaults()
    unprepare: OperationFaults = OperationFaults()
    devices: dict[str, DeviceFaults] = {}

    def of(self, operation: Operation) -> OperationFaults:
        return self.prepare if operation == "prepare" else self.unprepare


class FaultSettings(Value, forbid_unknown_fields=True):
    """What every simulated driver's settings may say of faults. control: a path; see the module's docstring."""

    faults: Faults = Faults()
    control: str = ""


def arguments(settings: Mapping[str, Any], type_: type[FaultSettings]) -> dict[str, Any]:
    """What a driver is made with, from its settings. Raises: ValueError for settings it does not understand."""
    asked = msgspec.structs.asdict(msgspec.convert(dict(settings), type_))
    return asked | {"control": Path(asked["control"]) if asked["control"] else None}


def read_faults(path: Path) -> Faults:
    """Raises: ValueError saying what to correct; OSError."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()) or {}, Faults)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error


class Injector:
    """The faults of one driver, as they are now. Thread-safe.

    changed: called when something else is said in the control file.
    """

    def __init__(self, faults: Faults, control: Path | None, changed: Callable[[], None]) -> None:
        self._faults = faults
        self._control = control
        self._changed = changed
        self._stamp: _Stamp | None = None
        self._news = threading.Condition(threading.RLock())
        if control is not None:
            self._take_over(control)
            threading.Thread(target=_watch, args=(weakref.ref(self),), name=str(control), daemon=True).start()

    @property
    def faults(self) -> Faults:
        with self._news:
            return self._faults

    def set(self, faults: Faults) -> None:
        """From now on this goes wrong; calls that hang go on if they need not any more."""
        with self._news:
            self._faults = faults
            self._news.notify_all()

    def fail(self, operation: Operation, *, times: int, reason: str) -> None:
        wrong = replace(self.faults.of(operation), fail=times, reason=reason)
        self.set(_with(self.faults, operation, wrong))

    def meet(self, operation: Operation) -> str:
        """One call of `operation`: hangs as long as it must; returns why the call fails, or an empty text."""
        started = time.monotonic()
        with self._news:
            while (left := started + self._faults.of(operation).hang_seconds - time.monotonic()) > 0:
                self._news.wait(left)
            wrong = self._faults.of(operation)
            if wrong.fail == "always":
                return wrong.reason
            if wrong.fail <= 0:
                return ""
            self._faults = _with(self._faults, operation, replace(wrong, fail=wrong.fail - 1))
            return wrong.reason

    def rescan(self) -> None:
        """Take over what the control file says, if it says something else."""
        if self._control is not None and self._take_over(self._control):
            self._changed()

    def _take_over(self, control: Path) -> bool:
        """Whether there was something else to take over."""
        with self._news:
            stamp = _stamp_of(control)
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            try:
                self.set(read_faults(control) if stamp is not None else Faults())
            except (ValueError, OSError) as error:
                log.error("%s; what it said before stays", error)  # noqa: TRY400 - a person's mistake, not a bug
                return False
            return True


def _with(faults: Faults, operation: Operation, wrong: OperationFaults) -> Faults:
    return replace(faults, prepare=wrong) if operation == "prepare" else replace(faults, unprepare=wrong)


def _stamp_of(path: Path) -> _Stamp | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _watch(injector: weakref.ref[Injector]) -> None:
    """Look at the control file for as long as anybody has the injector."""
    while (found := injector()) is not None:
        found.rescan()
        del found
        time.sleep(LOOK_SECONDS)


class SimulatedDevices(ABC):
    """A `Driver` with one pool. faults: what goes wrong from the start; control: where a person says what does."""

    def __init__(self, pool: Pool, *, name: str, faults: Faults | None = None, control: Path | None = None) -> None:
        self.name = name
        self._pool = pool
        self._health: dict[str, DeviceHealth] = {}
        self._subscribers: list[Callable[[], None]] = []
        self._injector = Injector(faults or Faults(), control, self._announce)

    @abstractmethod
    def environment(
        self, device: Device, result: DeviceRequestAllocationResult, parameters: Sequence[Any]
    ) -> dict[str, str]:
        """What a container with `device` finds in its environment. parameters: opaque ones, the last word last.

        Raises: ValueError for parameters that it cannot read.
        """

    def pools(self) -> Sequence[Pool]:
        pool = self._pool
        return (Pool(name=pool.name, devices=self._devices(), shared_counters=pool.shared_counters),)

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        reason = self._injector.meet("prepare")
        wrong = self._injector.faults.prepare
        return {
            claim.metadata.uid: Failed(reason) if reason else self._prepare_claim(claim)
            for claim in claims
            if not wrong.leaves_out(claim.metadata.uid, claim.metadata.name)
        }

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        reason = self._injector.meet("unprepare")
        wrong = self._injector.faults.unprepare
        answering = (claim for claim in claims if not wrong.leaves_out(claim.uid, claim.name))
        return {claim.uid: Failed(reason) if reason else None for claim in answering}

    def health(self) -> Sequence[DeviceHealth]:
        known = {
            device.name: DeviceHealth(pool=self._pool.name, device=device.name, health="Healthy")
            for device in self._devices()
        }
        wrong = {
            name: DeviceHealth(pool=self._pool.name, device=name, health=fault.health, message=fault.message)
            for name, fault in self._injector.faults.devices.items()
            if name in known and fault.health != "Healthy"
        }
        return tuple((known | self._health | wrong).values())

    def idle(self) -> Mapping[tuple[str, str], bool]:
        faults = self._injector.faults.devices
        return {(self._pool.name, name): one.idle for name, one in faults.items() if one.idle is not None}

    def meters(self) -> Mapping[tuple[str, str], Meters]:
        faults = self._injector.faults.devices
        return {(self._pool.name, name): one.meters for name, one in faults.items() if one.meters is not None}

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.append(changed)

    # What a machine's owner does to real devices.

    def set_devices(self, devices: Sequence[Device]) -> None:
        """Exchange the devices: some pulled out, plugged in, tainted."""
        pool = self._pool
        self._pool = Pool(name=pool.name, devices=tuple(devices), shared_counters=pool.shared_counters)
        self._announce()

    def report_health(self, device: str, health: Health, message: str = "") -> None:
        self._health[device] = DeviceHealth(pool=self._pool.name, device=device, health=health, message=message)
        self._announce()

    def fail(self, operation: Operation, *, times: int, reason: str = "simulated failure") -> None:
        """Let the next `times` calls of `operation` fail for all their claims."""
        self._injector.fail(operation, times=times, reason=reason)

    def set_faults(self, faults: Faults) -> None:
        """From now on exactly this goes wrong."""
        self._injector.set(faults)
        self._announce()

    def _devices(self) -> tuple[Device, ...]:
        """Those of the pool that are there now, with the taints that they have now."""
        wrong = self._injector.faults.devices
        if not wrong:
            return self._pool.devices
        return tuple(
            replace(device, taints=(*device.taints, *wrong[device.name].taints)) if device.name in wrong else device
            for device in self._pool.devices
            if device.name not in wrong or not wrong[device.name].gone
        )

    def _announce(self) -> None:
        for changed in self._subscribers:
            changed()

    def _prepare_claim(self, claim: ResourceClaim) -> Prepared | Failed:
        given = claim.status.allocation.devices if claim.status.allocation is not None else DeviceAllocationResult()

        def edits_of(result: DeviceRequestAllocationResult) -> cdi.ContainerEdits:
            parameters = parameters_for(given, driver=self.name, request=result.request)
            environment = self.environment(self._device(result), result, parameters)
            return cdi.ContainerEdits(env=tuple(f"{key}={value}" for key, value in environment.items()))

        return prepare_claim(claim, driver=self.name, edits_of=edits_of)

    def _device(self, result: DeviceRequestAllocationResult) -> Device:
        """Raises: ValueError for one that is not there (any more)."""
        found = next((d for d in self._devices() if (d.name, self._pool.name) == (result.device, result.pool)), None)
        if found is None:
            raise DeviceGone(result.pool, result.device)
        return found


DEFAULT_NAME = "gpu.example.com"
DEFAULT_COUNT = 8

#: uuid5 namespace of the simulated GPUs: the same node and index give the same uuid for ever.
_NAMESPACE = uuid.UUID("8b7d9c0e-3b1f-5d55-9f0e-6d1c2f3a4b5c")


class TimeSlicing(Value):
    """`interval`: Default, Short, Medium or Long."""

    interval: str = "Default"


class SpacePartitioning(Value):
    """`partition_count`: into how many parts the GPU is cut."""

    partition_count: int = 1


class Sharing(Value):
    """How containers share a GPU."""

    strategy: Literal["TimeSlicing", "SpacePartitioning"]
    time_slicing_config: TimeSlicing = TimeSlicing()
    space_partitioning_config: SpacePartitioning = SpacePartitioning()

    def environment(self) -> dict[str, str]:
        """The variables of this sharing, by the suffix they get after `GPU_DEVICE_<n>_`."""
        if self.strategy == "TimeSlicing":
            return {"SHARING_STRATEGY": self.strategy, "TIMESLICE_INTERVAL": self.time_slicing_config.interval}
        count = self.space_partitioning_config.partition_count
        return {"SHARING_STRATEGY": self.strategy, "PARTITION_COUNT": str(count)}


class GpuConfig(Value):
    """The opaque parameters that the driver understands; without any, GPUs are time-sliced by default."""

    api_version: str = ""
    kind: str = ""
    sharing: Sharing = Sharing(strategy="TimeSlicing")


# Described here, in one thread: msgspec must not do it in two threads at once.
msgspec.json.Decoder(GpuConfig)


def gpu_device(node_name: str, index: int, *, count: int) -> Device:
    """GPU `index` of a node: the first half of `count` hangs on one PCIe root and NUMA node, the rest on another."""
    side = 0 if index < (count + 1) // 2 else 1
    return Device(
        name=f"gpu-{index}",
        attributes={
            "type": DeviceAttribute(string_value="gpu"),  # by which KEP-5004's class chooses
            "index": DeviceAttribute(int_value=index),
            "uuid": DeviceAttribute(string_value=f"gpu-{uuid.uuid5(_NAMESPACE, f'{node_name}/{index}')}"),
            "model": DeviceAttribute(string_value="LATEST-GPU-MODEL"),
            "driverVersion": DeviceAttribute(version_value="1.0.0"),
            "numaNode": DeviceAttribute(int_value=side),
            "resource.kubernetes.io/pcieRoot": DeviceAttribute(string_value=f"pci0000:{side * 0x80:02x}"),
        },
        capacity={"memory": DeviceCapacity(value="80Gi")},
    )


class SimulatedDriver(SimulatedDevices):
    """A `Driver` with `gpus` GPUs in one pool named after the node."""

    def __init__(
        self,
        node_name: str,
        *,
        name: str = DEFAULT_NAME,
        gpus: int = DEFAULT_COUNT,
        faults: Faults | None = None,
        control: Path | None = None,
    ) -> None:
        devices = tuple(gpu_device(node_name, index, count=gpus) for index in range(gpus))
        super().__init__(Pool(name=node_name, devices=devices), name=name, faults=faults, control=control)

    def environment(
        self, device: Device, result: DeviceRequestAllocationResult, parameters: Sequence[Any]
    ) -> dict[str, str]:
        return environment_of(device, result, parameters)


def environment_of(device: Device, result: DeviceRequestAllocationResult, parameters: Sequence[Any]) -> dict[str, str]:
    """What a container with this device finds in its environment. Raises: ValueError for a GpuConfig it cannot read."""
    prefix = f"GPU_DEVICE_{device.name.removeprefix('gpu-').replace('-', '_').upper()}"
    environment = {prefix: device.name}
    if (identity := device.attributes.get("uuid")) and identity.string_value:
        environment[f"{prefix}_UUID"] = identity.string_value
    for suffix, value in effective_config(parameters).sharing.environment().items():
        environment[f"{prefix}_{suffix}"] = value
    if parameters:
        environment[f"{prefix}_CONFIG"] = msgspec.json.encode(parameters, order="sorted").decode()
    if result.admin_access:
        environment["DRA_ADMIN_ACCESS"] = "true"
    return environment


def effective_config(parameters: Sequence[Any]) -> GpuConfig:
    """The GpuConfig with the last word; the default where there is none. Raises: ValueError for one it cannot read."""
    ours = [one for one in parameters if isinstance(one, dict) and one.get("kind") == "GpuConfig"]
    if not ours:
        return GpuConfig()
    try:
        return msgspec.convert(ours[-1], GpuConfig)
    except msgspec.ValidationError as error:
        raise ValueError(f"the opaque GpuConfig is not valid: {error}") from error


class SimulatedSettings(FaultSettings, forbid_unknown_fields=True):
    """What the drivers file may say of this driver."""

    name: str = DEFAULT_NAME
    gpus: int = DEFAULT_COUNT


def create(node_name: str, settings: Mapping[str, Any]) -> SimulatedDriver:
    """Raises: ValueError for settings it does not understand."""
    return SimulatedDriver(node_name, **arguments(settings, SimulatedSettings))
