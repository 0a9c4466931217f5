"""A simulated GPU driver: devices that exist in memory only, prepared into CDI environment variables.

It does what an example driver does for a real one: a container sees its devices as `GPU_DEVICE_<n>=gpu-<n>` with the
device's uuid and the sharing that an opaque `GpuConfig` of class or claim asks for. All parameters that apply are
passed on as JSON too (`GPU_DEVICE_<n>_CONFIG`, a list, the one with the last word last), so that any opaque
configuration can be seen arriving. Tests make it fail, lose devices or report them unhealthy.

Source: the environment variables are those of kubernetes-sigs/dra-example-driver, internal/profiles/gpu.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from claims.kinds.allocations import DeviceAllocationResult, DeviceRequestAllocationResult
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.slices import Device, DeviceAttribute, DeviceCapacity
from manciple.wire.base import Value
from nodeagent import cdi
from nodeagent.cdi.folder import kind_of
from nodeagent.checkpoint import PreparedDevice
from nodeagent.drivers.opaque import parameters_for
from nodeagent.drivers.protocol import ClaimIdentity, DeviceHealth, Failed, Pool, Prepared

DEFAULT_NAME = "gpu.example.com"
DEFAULT_COUNT = 8

#: uuid5 namespace of the simulated GPUs: the same node and index give the same uuid for ever.
_NAMESPACE = uuid.UUID("8b7d9c0e-3b1f-5d55-9f0e-6d1c2f3a4b5c")

Operation = Literal["prepare", "unprepare"]


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
            "index": DeviceAttribute(int_value=index),
            "uuid": DeviceAttribute(string_value=f"gpu-{uuid.uuid5(_NAMESPACE, f'{node_name}/{index}')}"),
            "model": DeviceAttribute(string_value="LATEST-GPU-MODEL"),
            "driverVersion": DeviceAttribute(version_value="1.0.0"),
            "numaNode": DeviceAttribute(int_value=side),
            "resource.kubernetes.io/pcieRoot": DeviceAttribute(string_value=f"pci0000:{side * 0x80:02x}"),
        },
        capacity={"memory": DeviceCapacity(value="80Gi")},
    )


class SimulatedDriver:
    """A `Driver` with `gpus` GPUs in one pool named after the node."""

    def __init__(self, node_name: str, *, name: str = DEFAULT_NAME, gpus: int = DEFAULT_COUNT) -> None:
        self._name = name
        self._pool = node_name
        self._devices = tuple(gpu_device(node_name, index, count=gpus) for index in range(gpus))
        self._lock = threading.Lock()
        self._failures: dict[Operation, tuple[int, str]] = {}
        self._health: dict[str, DeviceHealth] = {}
        self._subscribers: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        return self._name

    def pools(self) -> Sequence[Pool]:
        return (Pool(name=self._pool, devices=self._devices),)

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        reason = self._next_failure("prepare")
        return {c.metadata.uid: Failed(reason) if reason else self._prepare_claim(c) for c in claims}

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        reason = self._next_failure("unprepare")
        return {claim.uid: Failed(reason) if reason else None for claim in claims}

    def health(self) -> Sequence[DeviceHealth]:
        known = {device.name: self._healthy(device.name) for device in self._devices}
        return tuple((known | self._health).values())

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.append(changed)

    # What a machine's owner does to real devices.

    def set_devices(self, devices: Sequence[Device]) -> None:
        """Exchange the devices: some pulled out, plugged in, tainted."""
        self._devices = tuple(devices)
        self._announce()

    def report_health(self, device: str, health: Literal["Healthy", "Unhealthy", "Unknown"], message: str = "") -> None:
        self._health[device] = DeviceHealth(pool=self._pool, device=device, health=health, message=message)
        self._announce()

    def fail(self, operation: Operation, *, times: int, reason: str = "simulated failure") -> None:
        """Let the next `times` calls of `operation` fail for all their claims."""
        with self._lock:
            self._failures[operation] = (times, reason)

    def _healthy(self, device: str) -> DeviceHealth:
        return DeviceHealth(pool=self._pool, device=device, health="Healthy")

    def _announce(self) -> None:
        for changed in self._subscribers:
            changed()

    def _next_failure(self, operation: Operation) -> str:
        with self._lock:
            times, reason = self._failures.get(operation, (0, ""))
            if times <= 0:
                return ""
            self._failures[operation] = (times - 1, reason)
            return reason

    def _prepare_claim(self, claim: ResourceClaim) -> Prepared | Failed:
        allocation = claim.status.allocation
        if allocation is None:
            return Failed(f"ResourceClaim {claim.metadata.name} is not allocated")
        results = [result for result in allocation.devices.results if result.driver == self._name]
        try:
            cdi_devices = self._cdi_devices(claim.metadata.uid, results, allocation.devices)
        except ValueError as error:
            return Failed(str(error))
        kind = kind_of(self._name)
        prepared = tuple(
            PreparedDevice(
                requests=(result.request,),
                pool=result.pool,
                device=result.device,
                cdi_device_ids=(cdi.qualified_name(kind, device.name),),
            )
            for result, device in zip(results, cdi_devices, strict=True)
        )
        return Prepared(prepared, cdi.Spec.of(kind, tuple(cdi_devices)))

    def _cdi_devices(
        self, claim_uid: str, results: Sequence[DeviceRequestAllocationResult], allocation: DeviceAllocationResult
    ) -> list[cdi.Device]:
        """One CDI device per result. Raises: ValueError for an unknown device or a config it cannot read."""
        names = cdi_device_names(claim_uid, [result.device for result in results])
        devices = []
        for name, result in zip(names, results, strict=True):
            parameters = parameters_for(allocation, driver=self._name, request=result.request)
            environment = environment_of(self._device(result), result, parameters)
            edits = cdi.ContainerEdits(env=tuple(f"{key}={value}" for key, value in environment.items()))
            devices.append(cdi.Device(name=name, container_edits=edits))
        return devices

    def _device(self, result: DeviceRequestAllocationResult) -> Device:
        found = next((d for d in self._devices if d.name == result.device and result.pool == self._pool), None)
        if found is None:
            raise ValueError(f"device {result.pool}/{result.device} does not exist on this node any more")
        return found


def cdi_device_names(claim_uid: str, devices: Sequence[str]) -> list[str]:
    """`<claim uid>-<device>` for each; a device that serves several requests is counted from its second time on."""
    return [
        f"{claim_uid}-{device}" + (f"-{seen}" if (seen := devices[:index].count(device)) else "")
        for index, device in enumerate(devices)
    ]


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


class Settings(Value, forbid_unknown_fields=True):
    """What the drivers file may say of this driver."""

    name: str = DEFAULT_NAME
    gpus: int = DEFAULT_COUNT


def create(node_name: str, settings: Mapping[str, Any]) -> SimulatedDriver:
    """Raises: ValueError for settings it does not understand."""
    asked = msgspec.convert(dict(settings), Settings)
    return SimulatedDriver(node_name, name=asked.name, gpus=asked.gpus)
