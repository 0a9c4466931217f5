"""A simulated GPU driver: devices that exist in memory only, prepared into CDI environment variables.

It does what an example driver does for a real one: a container sees its devices as `GPU_DEVICE_<n>=gpu-<n>` with the
device's uuid and the sharing that an opaque `GpuConfig` of class or claim asks for. All parameters that apply are
passed on as JSON too (`GPU_DEVICE_<n>_CONFIG`, a list, the one with the last word last), so that any opaque
configuration can be seen arriving. What it is told to do wrong is in `sim_faults`.

Source: the environment variables are those of kubernetes-sigs/dra-example-driver, internal/profiles/gpu.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from claims.kinds.resource_claims import DeviceRequestAllocationResult
from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity
from manciple.wire.base import Value
from nodeagent.drivers.protocol import Pool
from nodeagent.drivers.sim_base import SimulatedDevices
from nodeagent.drivers.sim_faults import Faults, FaultSettings

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


class Settings(FaultSettings, forbid_unknown_fields=True):
    """What the drivers file may say of this driver."""

    name: str = DEFAULT_NAME
    gpus: int = DEFAULT_COUNT


def create(node_name: str, settings: Mapping[str, Any]) -> SimulatedDriver:
    """Raises: ValueError for settings it does not understand."""
    asked = msgspec.convert(dict(settings), Settings)
    return SimulatedDriver(node_name, name=asked.name, gpus=asked.gpus, faults=asked.faults, control=asked.control_path)
