"""Simulated GPUs that can be cut into partitions, as NVIDIA's MIG does, or used whole (KEP-4815).

Of each GPU everything is published that could be made of it: the GPU itself and each profile in each of its placements.
What excludes what is told by counters: a GPU has a counter set with its memory, its compute slices, its copy engines,
and one counter of 1 for each of its eight memory slices; every device says what of that it would take. So two
partitions fit beside each other when their memory slices are different ones and there is compute enough, and the
whole GPU fits only where nothing else has been given. Partitions of one profile are published in the order that
spoils least: the small ones from the far end, so that the large ones still find their place.

Source: KEP-4815 "Partitionable devices"; profiles and placements are those of an 80 GB GPU in NVIDIA's MIG user guide.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claims.kinds.resource_claims import DeviceRequestAllocationResult
from inventory.kinds.devices import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
)
from nodeagent.drivers.protocol import Pool
from nodeagent.drivers.simulated import Faults, FaultSettings, SimulatedDevices, arguments, environment_of

DEFAULT_NAME = "mig.example.com"
DEFAULT_COUNT = 2

#: uuid5 namespace of the simulated partitions: the same node and device give the same uuid for ever.
_NAMESPACE = uuid.UUID("0d6a2a3c-4f5e-5a4b-8c1d-2b7f9e6a1c33")

#: What one GPU has.
MEMORY_SLICES, COMPUTE_SLICES, COPY_ENGINES, GIB_PER_SLICE = 8, 7, 8, 10


@dataclass(frozen=True, slots=True)
class Profile:
    """A size of partition. placements: the memory slices where one may begin, in the order in which to try them."""

    name: str
    memory_slices: int
    compute_slices: int
    copy_engines: int
    placements: tuple[int, ...]


PROFILES = (
    Profile("1g.10gb", 1, 1, 1, (6, 5, 4, 3, 2, 1, 0)),
    Profile("1g.20gb", 2, 1, 1, (6, 4, 2, 0)),
    Profile("2g.20gb", 2, 2, 2, (4, 2, 0)),
    Profile("3g.40gb", 4, 3, 3, (4, 0)),
    Profile("4g.40gb", 4, 4, 4, (0,)),
    Profile("7g.80gb", 8, 7, 8, (0,)),
)
_BY_NAME = {profile.name: profile for profile in PROFILES}


def counter_set(gpu: int) -> CounterSet:
    """Everything of one GPU that its devices draw from."""
    whole = Profile("", MEMORY_SLICES, COMPUTE_SLICES, COPY_ENGINES, (0,))
    return CounterSet(name=f"gpu-{gpu}", counters=_counters(whole, 0))


def devices_of(node_name: str, gpu: int, profiles: Sequence[Profile] = PROFILES) -> Iterator[Device]:
    """The whole GPU, then each partition that it could be cut into."""
    yield _device(node_name, gpu, f"gpu-{gpu}", None, 0)
    for profile in profiles:
        for start in profile.placements:
            yield _device(node_name, gpu, f"gpu-{gpu}-mig-{profile.name.replace('.', '')}-{start}", profile, start)


def _device(node_name: str, gpu: int, name: str, profile: Profile | None, start: int) -> Device:
    """profile: None for the whole GPU."""
    of_gpu = f"GPU-{uuid.uuid5(_NAMESPACE, f'{node_name}/gpu-{gpu}')}"
    attributes = {
        "type": DeviceAttribute(string_value="gpu" if profile is None else "mig"),
        "index": DeviceAttribute(int_value=gpu),
        "model": DeviceAttribute(string_value="LATEST-PARTITIONABLE-GPU-MODEL"),
        "driverVersion": DeviceAttribute(version_value="1.0.0"),
        "resource.kubernetes.io/pcieRoot": DeviceAttribute(string_value=f"pci0000:{gpu * 0x10:02x}"),
    }
    if profile is None:
        attributes["uuid"] = DeviceAttribute(string_value=of_gpu)
    else:
        attributes |= {
            "uuid": DeviceAttribute(string_value=f"MIG-{uuid.uuid5(_NAMESPACE, f'{node_name}/{name}')}"),
            "parentUUID": DeviceAttribute(string_value=of_gpu),
            "profile": DeviceAttribute(string_value=profile.name),
            "placement": DeviceAttribute(int_value=start),
        }
    size = profile or Profile("", MEMORY_SLICES, COMPUTE_SLICES, COPY_ENGINES, (0,))
    return Device(
        name=name,
        attributes=attributes,
        capacity={
            "memory": DeviceCapacity(value=_memory(size)),
            "computeSlices": DeviceCapacity(value=str(size.compute_slices)),
            "copyEngines": DeviceCapacity(value=str(size.copy_engines)),
        },
        consumes_counters=(DeviceCounterConsumption(counter_set=f"gpu-{gpu}", counters=_counters(size, start)),),
    )


def _memory(size: Profile) -> str:
    return f"{size.memory_slices * GIB_PER_SLICE}Gi"


def _counters(size: Profile, start: int) -> dict[str, Counter]:
    return {
        "memory": Counter(value=_memory(size)),
        "compute-slices": Counter(value=str(size.compute_slices)),
        "copy-engines": Counter(value=str(size.copy_engines)),
        **{f"memory-slice-{i}": Counter(value="1") for i in range(start, start + size.memory_slices)},
    }


class PartitionableDriver(SimulatedDevices):
    """A `Driver` with `gpus` GPUs, whole and in the partitions of `profiles`, in one pool named after the node."""

    def __init__(
        self,
        node_name: str,
        *,
        name: str = DEFAULT_NAME,
        gpus: int = DEFAULT_COUNT,
        profiles: Sequence[str] = tuple(_BY_NAME),
        faults: Faults | None = None,
        control: Path | None = None,
    ) -> None:
        """Raises: ValueError for a profile that there is not."""
        if unknown := sorted(set(profiles) - set(_BY_NAME)):
            raise ValueError(f"there is no profile {unknown[0]}; there are {', '.join(_BY_NAME)}")
        wanted = [profile for profile in PROFILES if profile.name in profiles]
        pool = Pool(
            name=node_name,
            devices=tuple(device for gpu in range(gpus) for device in devices_of(node_name, gpu, wanted)),
            shared_counters=tuple(counter_set(gpu) for gpu in range(gpus)),
        )
        super().__init__(pool, name=name, faults=faults, control=control)

    def environment(
        self, device: Device, result: DeviceRequestAllocationResult, parameters: Sequence[Any]
    ) -> dict[str, str]:
        """As of any simulated GPU; of a partition also which it is, and of which GPU."""
        prefix = f"GPU_DEVICE_{device.name.removeprefix('gpu-').replace('-', '_').upper()}"
        shown = {"PROFILE": "profile", "PARENT_UUID": "parentUUID"}
        partition = {
            f"{prefix}_{suffix}": text
            for suffix, attribute in shown.items()
            if attribute in device.attributes and (text := device.attributes[attribute].string_value)
        }
        memory = {f"{prefix}_MEMORY": device.capacity["memory"].value}
        return environment_of(device, result, parameters) | partition | memory


class PartitionSettings(FaultSettings, forbid_unknown_fields=True):
    """What the drivers file may say of this driver. profiles: those to publish, of `PROFILES`."""

    name: str = DEFAULT_NAME
    gpus: int = DEFAULT_COUNT
    profiles: tuple[str, ...] = tuple(_BY_NAME)


def create(node_name: str, settings: Mapping[str, Any]) -> PartitionableDriver:
    """Raises: ValueError for settings it does not understand."""
    return PartitionableDriver(node_name, **arguments(settings, PartitionSettings))
