"""The GPUs of the machine and their MIG devices, as NVML tells of them and as they are published.

Source: NVML API Reference Guide; the names of brands, architectures and MIG profiles are those of NVIDIA's own DRA
driver (kubernetes-sigs/dra-driver-nvidia-gpu) and its library (NVIDIA/go-nvlib, pkg/nvlib/device).
"""

from __future__ import annotations

import math
import re
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from inventory.kinds.devices import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
)
from nodeagent.drivers.attributes import BUS_ID, in_bytes, number, standard_attributes, text, version
from nodeagent.drivers.nvml.binding import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    Nvml,
    NvmlError,
)

#: By the numbers of nvmlBrandType_t.
BRANDS: Mapping[int, str] = dict(enumerate((
    "Unknown", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan", "NvidiaVApps", "NvidiaVPC", "NvidiaVCS",
    "NvidiaVWS", "NvidiaCloudGaming", "QuadroRTX", "NvidiaRTX", "Nvidia", "GeForceRTX", "TitanRTX",
)))  # fmt: skip
#: By the numbers of nvmlDeviceArchitecture_t.
ARCHITECTURES: Mapping[int, str] = {
    **{2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace"},
    **{9: "Hopper", 10: "Blackwell", 13: "Rubin"},
}

MIB, GIB = 1 << 20, 1 << 30

#: Arguments of nvmlDeviceGetTotalEccErrors: errors that were not corrected, since the driver was loaded.
_UNCORRECTED, _VOLATILE = 1, 0

#: Capacity of a MIG device -> field of nvmlDeviceAttributes_t.
_ENGINES: Mapping[str, str] = {
    "multiprocessors": "multiprocessorCount",
    "copyEngines": "sharedCopyEngineCount",
    "decoders": "sharedDecoderCount",
    "encoders": "sharedEncoderCount",
    "jpegEngines": "sharedJpegCount",
    "ofaEngines": "sharedOfaCount",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """One MIG device: a compute instance of a GPU instance. memory in bytes; start: its first memory slice."""

    handle: str
    uuid: str
    profile: str  # "1g.5gb", "1c.3g.20gb"
    profile_id: int  # of the GPU instance, as `nvidia-smi mig -lgip` numbers them
    start: int
    gpu_instance: int
    compute_instance: int
    memory: int
    engines: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One physical GPU. memory in bytes; None where it uses the machine's."""

    index: int  # of NVML's list
    handle: str
    minor: int  # of /dev/nvidia<minor>
    uuid: str
    product_name: str
    brand: str
    architecture: str
    compute_capability: str
    memory: int | None
    bus_id: str
    mig_enabled: bool
    migs: tuple[Mig, ...]
    #: errors of its memory that could not be corrected, since the driver was loaded
    uncorrected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSystem:
    """unreadable: index of a GPU that does not answer -> why."""

    driver_version: str
    cuda_version: str
    gpus: tuple[Gpu, ...]
    unreadable: Mapping[int, str]


def read_system(nvml: Nvml) -> GpuSystem:
    """Everything that is published. Raises: NvmlError where NVML answers nothing at all."""
    cuda = nvml.number("nvmlSystemGetCudaDriverVersion")  # 12020 for 12.2
    gpus, unreadable = [], {}
    for index in range(nvml.number("nvmlDeviceGetCount")):
        try:
            gpus.append(_gpu(nvml, index))
        except NvmlError as error:  # one lost GPU must not hide the others
            unreadable[index] = str(error)
    return GpuSystem(
        driver_version=nvml.text("nvmlSystemGetDriverVersion"),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        gpus=tuple(gpus),
        unreadable=unreadable,
    )


def _gpu(nvml: Nvml, index: int) -> Gpu:
    handle = nvml.text("nvmlDeviceGetHandleByIndex", index)
    memory = _memory(nvml, handle)
    major, minor = nvml.numbers("nvmlDeviceGetCudaComputeCapability", handle)
    mig_enabled = _mig_enabled(nvml, handle)
    return Gpu(
        index=index,
        handle=handle,
        minor=nvml.number("nvmlDeviceGetMinorNumber", handle),
        uuid=nvml.text("nvmlDeviceGetUUID", handle),
        product_name=nvml.text("nvmlDeviceGetName", handle),
        brand=BRANDS.get(nvml.number("nvmlDeviceGetBrand", handle), "Unknown"),
        architecture=ARCHITECTURES.get(nvml.number("nvmlDeviceGetArchitecture", handle), "Unknown"),
        compute_capability=f"{major}.{minor}",
        memory=memory,
        bus_id=_bus_id(nvml.fields("nvmlDeviceGetPciInfo", handle)["busId"]),
        mig_enabled=mig_enabled,
        migs=tuple(_migs(nvml, handle, memory or 0)) if mig_enabled else (),
        uncorrected=_uncorrected(nvml, handle),
    )


def _memory(nvml: Nvml, handle: str) -> int | None:
    try:
        return int(nvml.fields("nvmlDeviceGetMemoryInfo", handle)["total"])
    except NvmlError as error:
        if error.code != NOT_SUPPORTED:
            raise
        return None


def _bus_id(nvml_id: str) -> str:
    """NVML writes the domain with eight digits, /sys with four: "00000000:07:00.0" is "0000:07:00.0"."""
    domain, _, rest = nvml_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _uncorrected(nvml: Nvml, handle: str) -> int:
    try:
        return nvml.number("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE)
    except NvmlError as error:
        if error.code != NOT_SUPPORTED:
            raise
        return 0


# MIG -----------------------------------------------------------------------------------------------------------------


def _mig_enabled(nvml: Nvml, handle: str) -> bool:
    """Now; a mode that is only pending counts after the next reset."""
    try:
        current, _pending = nvml.numbers("nvmlDeviceGetMigMode", handle)
    except NvmlError as error:
        if error.code not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            raise
        return False
    return current == 1


def _migs(nvml: Nvml, gpu: str, gpu_memory: int) -> Iterator[Mig]:
    for index in range(nvml.number("nvmlDeviceGetMaxMigDeviceCount", gpu)):
        try:
            handle = nvml.text("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
        except NvmlError as error:
            if error.code in (NOT_FOUND, INVALID_ARGUMENT):
                continue
            raise
        yield _mig(nvml, gpu, handle, gpu_memory)


def _mig(nvml: Nvml, gpu: str, handle: str, gpu_memory: int) -> Mig:
    instance = nvml.number("nvmlDeviceGetGpuInstanceId", handle)
    placed = nvml.fields("nvmlGpuInstanceGetInfo", nvml.text("nvmlDeviceGetGpuInstanceById", gpu, instance))
    has = nvml.fields("nvmlDeviceGetAttributes", handle)
    return Mig(
        handle=handle,
        uuid=nvml.text("nvmlDeviceGetUUID", handle),
        profile=_profile(nvml.text("nvmlDeviceGetName", handle), has, gpu_memory),
        profile_id=placed["profileId"],
        start=placed["placement"]["start"],
        gpu_instance=instance,
        compute_instance=nvml.number("nvmlDeviceGetComputeInstanceId", handle),
        memory=has["memorySizeMB"] * MIB,
        engines={capacity: has[field] for capacity, field in _ENGINES.items()},
    )


def _profile(name: str, has: Mapping[str, int], gpu_memory: int) -> str:
    """ "1g.5gb": what the device's name ends in; drivers that give it the GPU's name leave it to be reckoned."""
    _, mig, profile = name.rpartition(" MIG ")
    if mig:
        return profile
    compute, slices = has["computeInstanceSliceCount"], has["gpuInstanceSliceCount"]
    prefix = "" if compute == slices else f"{compute}c."
    return f"{prefix}{slices}g.{_memory_in_gb(has['memorySizeMB'] * MIB, gpu_memory)}gb"


def _memory_in_gb(memory: int, gpu_memory: int) -> int:
    """Profiles are named after the eighths of the GPU's memory that they have, not after what is left of it for use."""
    if not gpu_memory:  # it uses the machine's, of which it has no eighths
        return round(memory / GIB)
    eighths = math.ceil(memory * 8 / gpu_memory)
    return round(eighths * math.ceil(gpu_memory / GIB) / 8)


# How GPUs and MIG devices are published: names, attributes and capacities as NVIDIA's own DRA driver has them. A GPU
# whose MIG mode is on runs no CUDA program as a whole, so only its MIG devices are published. Where the settings ask
# for the whole one too (whoever has it may cut it up anew), both draw from a counter: the whole is given only while no
# part is, and no part while the whole is. Source: kubernetes-sigs/dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin
# (deviceinfo.go, mig.go, partitions.go).

_PARTITIONS = "partitions"


@dataclass(frozen=True, slots=True)
class PublishedGpu:
    """One device that is published, and what it is. mig: None for a whole GPU."""

    device: Device
    gpu: Gpu
    mig: Mig | None = None


def published_gpus(system: GpuSystem, *, sys: Path, mig_parents: bool) -> list[PublishedGpu]:
    """sys: where /sys is. mig_parents: whether a GPU is published beside its MIG devices."""
    return [one for gpu in system.gpus for one in _of_gpu(gpu, system, sys, mig_parents)]


def counter_sets(published: list[PublishedGpu]) -> tuple[CounterSet, ...]:
    """The counters that the published devices draw from."""
    wholes = (one.device for one in published if one.mig is None)  # a whole GPU takes all that there is
    uses = (use for device in wholes for use in device.consumes_counters)
    return tuple(CounterSet(name=use.counter_set, counters=use.counters) for use in uses)


def _of_gpu(gpu: Gpu, system: GpuSystem, sys: Path, mig_parents: bool) -> Iterator[PublishedGpu]:
    common = _common(gpu, system, sys)
    if not gpu.mig_enabled:
        yield PublishedGpu(_whole(gpu, common), gpu)
        return
    shared = mig_parents and bool(gpu.migs)
    if mig_parents:
        yield PublishedGpu(_drawing(_whole(gpu, common), gpu, len(gpu.migs) if shared else 0), gpu)
    for mig in gpu.migs:
        yield PublishedGpu(_drawing(_part(gpu, mig, common), gpu, 1 if shared else 0), gpu, mig)


def _common(gpu: Gpu, system: GpuSystem, sys: Path) -> dict[str, DeviceAttribute]:
    return {
        "productName": text(gpu.product_name),
        "brand": text(gpu.brand),
        "architecture": text(gpu.architecture),
        "cudaComputeCapability": version(gpu.compute_capability),
        "driverVersion": version(system.driver_version),
        "cudaDriverVersion": version(system.cuda_version),
        BUS_ID: text(gpu.bus_id),
        **standard_attributes(sys, gpu.bus_id),
    }


def _whole(gpu: Gpu, common: Mapping[str, DeviceAttribute]) -> Device:
    return Device(
        name=f"gpu-{gpu.minor}",
        attributes={"type": text("gpu"), "uuid": text(gpu.uuid), **common},
        capacity={} if gpu.memory is None else {"memory": in_bytes(gpu.memory)},
    )


def _part(gpu: Gpu, mig: Mig, common: Mapping[str, DeviceAttribute]) -> Device:
    own = {
        "type": text("mig"),
        "uuid": text(mig.uuid),
        "parentUUID": text(gpu.uuid),
        "profile": text(mig.profile),
        "gpuInstanceID": number(mig.gpu_instance),
        "computeInstanceID": number(mig.compute_instance),
    }
    return Device(
        name=_part_name(gpu, mig),
        attributes={**own, **common},
        capacity={
            "memory": in_bytes(mig.memory),
            **{name: DeviceCapacity(value=str(amount)) for name, amount in mig.engines.items()},
        },
    )


def _part_name(gpu: Gpu, mig: Mig) -> str:
    """ "gpu-0-mig-1g5gb-19-3": parent, profile, number of the profile, first memory slice.

    Compute instances that share a GPU instance share all that; they are told apart by their number.
    """
    profile = re.sub(r"[^a-z0-9]+", "-", mig.profile.lower().replace(".", "")).strip("-")
    name = f"gpu-{gpu.minor}-mig-{profile}-{mig.profile_id}-{mig.start}"
    siblings = Tally(other.gpu_instance for other in gpu.migs)[mig.gpu_instance]
    return f"{name}-{mig.compute_instance}" if siblings > 1 else name


def _drawing(device: Device, gpu: Gpu, units: int) -> Device:
    if not units:
        return device
    use = DeviceCounterConsumption(
        counter_set=f"gpu-{gpu.minor}-counter-set", counters={_PARTITIONS: Counter(value=str(units))}
    )
    return msgspec.structs.replace(device, consumes_counters=(use,))
