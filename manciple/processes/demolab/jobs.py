"""Who runs what where: jobs of the laboratory's teams, packed onto its machines as long coming and going leaves them.

A job is one pod with one claim. Jobs of one node use neighbouring devices, large ones an interface besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random

from manciple.processes.demolab.hardware import (
    A100,
    A100_MIG,
    GPUS_PER_NODE,
    H100,
    H200,
    L40S,
    MI300X,
    NIC,
    Machine,
    Model,
)

#: namespace -> what its people run
TEAMS: dict[str, tuple[str, ...]] = {
    "nlp-lab": ("llama-ft-70b", "llama-eval", "t5-distill", "retrieval-index", "tokenizer-sweep"),
    "vision": ("clip-train", "clip-eval", "segment-anything-ft", "video-caption"),
    "protein-fold": ("af3-screen", "esm-embed", "docking-batch"),
    "teaching": ("course-dl-notebook", "thesis-muller", "thesis-okafor"),
    "robotics": ("sim2real-ppo", "gaussian-map", "grasp-policy"),
    "climate-ml": ("downscale-era5", "graphcast-ft"),
    "speech": ("whisper-ft", "diarize-eval"),
    "infra-ci": ("nccl-tests", "image-build"),
}
_WEIGHTS = {
    "nlp-lab": 22, "vision": 20, "protein-fold": 9, "teaching": 9, "robotics": 9, "climate-ml": 7, "speech": 5,
    "infra-ci": 3,
}  # fmt: skip
_SMALL_TEAMS = {"teaching", "infra-ci"}

#: model -> (DeviceClass, share of its devices that is held)
CLASS_AND_USE: dict[Model, tuple[str, float]] = {
    H100: ("gpu-hopper", 0.86),
    H200: ("gpu-h200", 0.9),
    A100: ("gpu-a100", 0.66),
    L40S: ("gpu-l40s", 0.5),
    MI300X: ("gpu-mi300x", 0.8),
}
#: How many devices a job asks for, and how often.
_SIZES, _SIZE_WEIGHTS = (8, 4, 2, 1), (3, 5, 3, 3)
#: Machines whose use is part of the story: None stands for a free device, a number for a job of that size.
_FIXED: dict[str, tuple[int | None, ...]] = {
    "gpu-a04": (8,), "gpu-a05": (4, 4), "gpu-a06": (1, 1, 1, 1, 4), "gpu-a07": (8,), "gpu-a08": (2, 2, 4),
    "gpu-a12": (4, None, None, None, None),
    "gpu-a17": (8,), "gpu-a18": (4, 4), "gpu-a19": (None, None, 2, 4), "gpu-a20": (2, None, None, 4),
    "gpu-b02": (None,) * 8, "gpu-b04": (None,) * 8, "gpu-b07": (4, None, 2, 1), "gpu-c02": (None,) * 8,
    "gpu-c03": (None,) * 8,
    "gpu-d01": (8,), "gpu-d02": (4, 4), "gpu-d03": (2, *(None,) * 6), "gpu-d04": (8,), "gpu-d05": (4, 2, 1, None),
}  # fmt: skip
#: How cards are cut: (profile, memory slice where it begins).
_CUTS: tuple[tuple[tuple[str, int], ...], ...] = (
    (("4g.40gb", 0), ("2g.20gb", 4), ("1g.10gb", 6)),
    (("3g.40gb", 0), ("3g.40gb", 4)),
    (("2g.20gb", 0), ("2g.20gb", 2), ("2g.20gb", 4), ("1g.10gb", 6)),
    tuple(("1g.10gb", at) for at in range(7)),
)
_MANY = 4  # devices from which a job uses the network
_SHARES_PER_NIC = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One pod with its claim. `age`: since it was created. `nic`: the interface that it shares, "" for none."""

    namespace: str
    name: str
    machine: Machine
    device_class: str
    devices: tuple[str, ...]
    age: timedelta
    nic: str = ""
    profile: str = ""  # of the partitions that it asks for
    preparing: bool = False

    @property
    def cpu(self) -> str:
        return "2" if self.profile else str(8 * len(self.devices))

    @property
    def template(self) -> str:
        size = self.profile.replace(".", "-") if self.profile else str(len(self.devices))
        return f"{self.device_class.removeprefix('gpu-')}-{size}{'-rdma' if self.nic else ''}"


class Planner:
    """Makes the jobs of all machines; every choice comes from `random`."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._numbers: dict[tuple[str, str], int] = {}
        self._names, self._weights = list(_WEIGHTS), list(_WEIGHTS.values())

    def jobs(self, machines: Sequence[Machine]) -> list[Job]:
        found = [job for machine in machines for job in self._on(machine)]
        preparing = {"gpu-a20": 1, "gpu-b07": 1, "gpu-d05": 1}  # on each, the youngest of its small jobs
        for name, count in preparing.items():
            here = sorted((job for job in found if job.machine.name == name), key=lambda job: len(job.devices))
            for job in here[:count]:
                young = replace(job, age=timedelta(seconds=self._random.randint(12, 38)), preparing=True)
                found[found.index(job)] = young
        return found

    def _on(self, machine: Machine) -> Iterator[Job]:
        if machine.model is A100_MIG:
            yield from self._partitions(machine)
            return
        shares = [0] * machine.nics
        for devices in self._packed(machine):
            nic = self._nic(shares) if len(devices) >= _MANY else ""
            namespace = self._namespace(large=len(devices) >= _MANY)
            yield Job(
                namespace=namespace,
                name=self._name(namespace),
                machine=machine,
                device_class=self._class(machine, devices),
                devices=devices,
                age=self._age(len(devices)),
                nic=nic,
            )

    def _packed(self, machine: Machine) -> Iterator[tuple[str, ...]]:
        """The devices of each job, in order; what lies between is free."""
        sizes = _FIXED.get(machine.name) or self._sizes(CLASS_AND_USE[machine.model][1])
        tainted = {index for index, _, _ in machine.taints if machine.name not in _FIXED}
        at = 0
        for size in sizes:
            wanted = range(at, at + (size or 1))
            at += size or 1
            if size and not tainted & set(wanted):
                yield tuple(machine.gpus[index] for index in wanted)

    def _sizes(self, use: float) -> Iterator[int | None]:
        left = GPUS_PER_NODE
        while left:
            size: int | None = None
            if self._random.random() < use:
                fitting = [pair for pair in zip(_SIZES, _SIZE_WEIGHTS, strict=True) if pair[0] <= left]
                size = self._random.choices([one for one, _ in fitting], [weight for _, weight in fitting])[0]
            yield size
            left -= size or 1

    def _partitions(self, machine: Machine) -> Iterator[Job]:
        for index in range(GPUS_PER_NODE):
            for profile, start in self._random.choice(_CUTS):
                if self._random.random() < 0.35:  # noqa: PLR2004 - about a third is free
                    continue
                namespace = self._random.choice(("teaching", "teaching", "robotics", "vision", "speech"))
                yield Job(
                    namespace=namespace,
                    name=self._name(namespace),
                    machine=machine,
                    device_class="gpu-a100-mig",
                    devices=(f"gpu-{index}-mig-{profile.replace('.', '')}-{start}",),
                    age=self._age(1),
                    profile=profile,
                )

    def _class(self, machine: Machine, devices: Sequence[str]) -> str:
        """Some who got an H200 only asked for a Hopper."""
        name = CLASS_AND_USE[machine.model][0]
        return "gpu-hopper" if name == "gpu-h200" and len(devices) < _MANY else name

    def _namespace(self, *, large: bool) -> str:
        """Courses and checks of the infrastructure get by with little."""
        namespace = ""
        while not namespace or (large and namespace in _SMALL_TEAMS):
            namespace = self._random.choices(self._names, self._weights)[0]
        return namespace

    def _name(self, namespace: str) -> str:
        base = self._random.choice(TEAMS[namespace])
        number = self._numbers[namespace, base] = self._numbers.get((namespace, base), 0) + 1
        return f"{base}-{number}"

    def _age(self, devices: int) -> timedelta:
        """Large jobs run for days, small ones for hours."""
        hours = self._random.expovariate(1 / (30 if devices >= _MANY else 7))
        return timedelta(seconds=int(max(240, min(hours, 120) * 3600)))

    def _nic(self, shares: list[int]) -> str:
        """The interface with most room; "" where there is none. The last quarter stays free on most."""
        free = [index for index, used in enumerate(shares) if used < _SHARES_PER_NIC]
        if not free or self._random.random() < 0.15:  # noqa: PLR2004 - some large jobs need no network
            return ""
        index = min(free, key=lambda one: shares[one])
        shares[index] += 2
        return f"nic-{index}"


#: What a job with an interface gets of it: two shares.
JOB_BANDWIDTH = "200G"
NIC_DRIVER = NIC
