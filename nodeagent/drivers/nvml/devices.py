"""How GPUs and MIG devices are published: names, attributes and capacities as NVIDIA's own DRA driver has them.

A GPU whose MIG mode is on runs no CUDA program as a whole, so only its MIG devices are published. Where the settings
ask for the whole one too (whoever has it may cut it up anew), both draw from a counter: the whole is given only while
no part is, and no part while the whole is. Source: kubernetes-sigs/dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin
(deviceinfo.go, mig.go, partitions.go).
"""

from __future__ import annotations

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
from nodeagent.drivers import pci
from nodeagent.drivers.attributes import in_bytes, number, text, version
from nodeagent.drivers.nvml.gpus import Gpu, Mig, System

_PARTITIONS = "partitions"


@dataclass(frozen=True, slots=True)
class Offer:
    """One device that is published, and what it is. mig: None for a whole GPU."""

    device: Device
    gpu: Gpu
    mig: Mig | None = None


def offers(system: System, *, sys: Path, mig_parents: bool) -> list[Offer]:
    """sys: where /sys is. mig_parents: whether a GPU is published beside its MIG devices."""
    return [offer for gpu in system.gpus for offer in _of_gpu(gpu, system, sys, mig_parents)]


def counter_sets(offered: list[Offer]) -> tuple[CounterSet, ...]:
    """The counters that the offered devices draw from."""
    wholes = (offer.device for offer in offered if offer.mig is None)  # a whole GPU takes all that there is
    uses = (use for device in wholes for use in device.consumes_counters)
    return tuple(CounterSet(name=use.counter_set, counters=use.counters) for use in uses)


def _of_gpu(gpu: Gpu, system: System, sys: Path, mig_parents: bool) -> Iterator[Offer]:
    common = _common(gpu, system, sys)
    if not gpu.mig_enabled:
        yield Offer(_whole(gpu, common), gpu)
        return
    shared = mig_parents and bool(gpu.migs)
    if mig_parents:
        yield Offer(_drawing(_whole(gpu, common), gpu, len(gpu.migs) if shared else 0), gpu)
    for mig in gpu.migs:
        yield Offer(_drawing(_part(gpu, mig, common), gpu, 1 if shared else 0), gpu, mig)


def _common(gpu: Gpu, system: System, sys: Path) -> dict[str, DeviceAttribute]:
    return {
        "productName": text(gpu.product_name),
        "brand": text(gpu.brand),
        "architecture": text(gpu.architecture),
        "cudaComputeCapability": version(gpu.compute_capability),
        "driverVersion": version(system.driver_version),
        "cudaDriverVersion": version(system.cuda_version),
        pci.BUS_ID: text(gpu.bus_id),
        **pci.standard_attributes(sys, gpu.bus_id),
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
        capacity={"memory": in_bytes(mig.memory), **_counts(mig.engines)},
    )


def _part_name(gpu: Gpu, mig: Mig) -> str:
    """ "gpu-0-mig-1g5gb-19-3": parent, profile, number of the profile, first memory slice.

    Compute instances that share a GPU instance share all that; they are told apart by their number.
    """
    profile = re.sub(r"[^a-z0-9]+", "-", mig.profile.lower().replace(".", "")).strip("-")
    name = f"gpu-{gpu.minor}-mig-{profile}-{mig.profile_id}-{mig.start}"
    siblings = Tally(other.gpu_instance for other in gpu.migs)[mig.gpu_instance]
    return f"{name}-{mig.compute_instance}" if siblings > 1 else name


def _counts(amounts: Mapping[str, int]) -> dict[str, DeviceCapacity]:
    return {name: DeviceCapacity(value=str(amount)) for name, amount in amounts.items()}


def _drawing(device: Device, gpu: Gpu, units: int) -> Device:
    if not units:
        return device
    use = DeviceCounterConsumption(
        counter_set=f"gpu-{gpu.minor}-counter-set", counters={_PARTITIONS: Counter(value=str(units))}
    )
    return msgspec.structs.replace(device, consumes_counters=(use,))
