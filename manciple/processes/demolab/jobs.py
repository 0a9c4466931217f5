"""Who runs what where, as documents: jobs of the laboratory's teams, packed onto its machines as long coming and going
leaves them, and what waits or is out of order.

A job is one pod with one claim. Jobs of one node use neighbouring devices, large ones an interface besides.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from claims.controllers.reservations import FINALIZER
from claims.kinds.resource_claims import IDLE_CONDITION, POD_CLAIM_ANNOTATION
from claims.kinds.resource_usage import CLAIMS, COUNT, DEVICES
from manciple.processes.demolab.hardware import (
    A100,
    A100_MIG,
    GPUS_PER_NODE,
    H100,
    H200,
    L40S,
    MI300X,
    NIC,
    NVIDIA,
    Document,
    Machine,
    Model,
)
from manciple.wire.base import timestamp

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


# A job as documents ---------------------------------------------------------------------------------------------------

#: The entry of spec.resourceClaims, and the requests of a claim.
ENTRY, GPU_REQUEST, NIC_REQUEST = "gpus", "gpu", "nic"
_SHARES = uuid.UUID("f3b6e3b4-6f0e-5f3d-8a4c-0a7de3f1a9d2")


def request(device_class: str, *, name: str = GPU_REQUEST, count: int = 1, cel: Iterable[str] = ()) -> Document:
    selectors = [{"cel": {"expression": expression}} for expression in cel]
    exactly: Document = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return {"name": name, "exactly": exactly | ({"selectors": selectors} if selectors else {})}


def claim_spec(job: Job) -> Document:
    """What the job asks for."""
    cel = [f'device.attributes["{NVIDIA}"].profile == "{job.profile}"'] if job.profile else []
    requests = [request(job.device_class, count=len(job.devices), cel=cel)]
    if job.nic:
        nic = request("rdma-nic", name=NIC_REQUEST)
        nic["exactly"]["capacity"] = {"requests": {"bandwidth": JOB_BANDWIDTH}}
        requests.append(nic)
    return {"devices": {"requests": requests}}


def namespace(name: str) -> Document:
    labels = {"resource.kubernetes.io/admin-access": "true"} if name == "infra-ci" else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def template(space: str, name: str, spec: Document) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": space},
        "spec": {"spec": spec},
    }


def pod(space: str, name: str, *, entry: Document, selector: Document | None = None, cpu: str = "8") -> Document:
    """A pod of one container that uses one claim. entry: of spec.resourceClaims, without its name."""
    container = {
        "name": "main",
        "image": f"registry.example.org/{space}/{name.rpartition('-')[0] or name}:2026.11",
        "resources": {"requests": {"cpu": cpu, "memory": "32Gi"}, "claims": [{"name": ENTRY}]},
    }
    spec = {"containers": [container], "resourceClaims": [{"name": ENTRY, **entry}], "restartPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space, "labels": {"app": name.rpartition("-")[0] or name}},
        "spec": spec | ({"nodeSelector": selector} if selector else {}),
    }


def claim(space: str, name: str, spec: Document, *, made_for: tuple[str, str] | None = None) -> Document:
    """made_for: (name, uid) of the pod that a template's claim is made for; `name` then begins its name."""
    metadata: Document = {"namespace": space, "generateName" if made_for else "name": name}
    if made_for:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": made_for[0], "uid": made_for[1], "controller": True}
        metadata |= {
            "annotations": {POD_CLAIM_ANNOTATION: ENTRY},
            "ownerReferences": [owner | {"blockOwnerDeletion": True}],
        }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


# What was given ------------------------------------------------------------------------------------------------------


def allocation(node: str, results: Sequence[Document], *, at: datetime) -> Document:
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": list(results)},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
        "allocationTimestamp": timestamp(at),
    }


def results(job: Job, claim_uid: str) -> list[Document]:
    driver, pool = job.machine.model.driver, job.machine.name
    given: list[Document] = [
        {"request": GPU_REQUEST, "driver": driver, "pool": pool, "device": device} for device in job.devices
    ]
    if job.nic:
        share = str(uuid.uuid5(_SHARES, f"{claim_uid}/{job.nic}"))
        nic = {"request": NIC_REQUEST, "driver": NIC, "pool": pool, "device": job.nic, "shareID": share}
        given.append(nic | {"consumedCapacity": {"bandwidth": JOB_BANDWIDTH}})
    return given


#: Of how many jobs on a model whose driver tells it one stands idle.
STANDING = 9


def reports(job: Job, *, at: datetime) -> list[Document]:
    """What the driver says of the use of the devices, where it is one that does."""
    if job.machine.model is not H100:
        return []
    idle = sum(map(ord, job.name)) % STANDING == 0
    condition = {
        "type": IDLE_CONDITION,
        "status": str(idle),
        "reason": "NotInUse" if idle else "InUse",
        "message": "Nothing uses the device." if idle else "The device is in use.",
        "lastTransitionTime": timestamp(at),
    }
    return [{name: one[name] for name in ("driver", "pool", "device")} | {"conditions": [condition]}
            for one in results(job, "") if one["request"] == GPU_REQUEST]  # fmt: skip


def reservation(name: str, uid: str) -> Document:
    return {"resource": "pods", "name": name, "uid": uid}


def protected(document: Document, status: Document) -> Document:
    """A claim with what was given, and the finalizer that protects it."""
    metadata = document["metadata"]
    finalizers = list(dict.fromkeys((*metadata.get("finalizers", ()), FINALIZER)))
    return document | {"metadata": metadata | {"finalizers": finalizers}, "status": status}


# What the node says --------------------------------------------------------------------------------------------------


def quota(namespace: str, name: str, hard: Mapping[str, str]) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": dict(hard)},
    }


#: (namespace, name)
DEPLOYMENTS = (("vision", "sweep-viewer"), ("teaching", "course-notebooks"))


def deployment(namespace: str, name: str) -> Document:
    labels = {"app": name}
    container = {"name": "main", "image": f"registry.lab.example.org/{namespace}/{name}:1.4"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def autoscaler(namespace: str, name: str) -> Document:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 6},
    }


#: (namespace, name)
STOPPED_JOB, CRON_JOB = ("vision", "clip-sweep"), ("vision", "nightly-eval")


def stopped_job() -> Document:
    """Indexed, with a time limit; it makes no pods until it is resumed."""
    spec = {"suspend": True, "completions": 50, "parallelism": 8, "completionMode": "Indexed"}
    spec |= {"manualSelector": True, "selector": {"matchLabels": {"app": STOPPED_JOB[1]}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": STOPPED_JOB[0], "name": STOPPED_JOB[1]},
        "spec": spec | {"activeDeadlineSeconds": 43_200, "template": _job_template(*STOPPED_JOB)},
    }


def cron_job() -> Document:
    job = {"spec": {"template": _job_template(*CRON_JOB)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"namespace": CRON_JOB[0], "name": CRON_JOB[1]},
        "spec": {"schedule": "30 2 * * 1-5", "timeZone": "Europe/Berlin", "jobTemplate": job},
    }


def _job_template(namespace: str, name: str) -> Document:
    container = {"name": "main", "image": f"registry.lab.example.org/{namespace}/{name}:1.4"}
    return {"metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def bound(document: Document, node: str, *, claim: str, at: datetime) -> Document:
    """A pod that the scheduler has given a node; its node has not begun to run it."""
    made = document["spec"]["resourceClaims"][0].get("resourceClaimTemplateName")
    statuses = [{"name": ENTRY, "resourceClaimName": claim}] if made else []
    return document | {
        "spec": document["spec"] | {"nodeName": node},
        "status": {
            "phase": "Pending",
            "conditions": [_condition("PodScheduled", at)],
            "resourceClaimStatuses": statuses,
            "qosClass": "Burstable",
        },
    }


def running(document: Document, *, at: datetime, starts: timedelta = timedelta(seconds=9)) -> Document:
    """A bound pod whose container runs. at: when it was bound."""
    began = at + starts
    status: dict[str, Any] = document["status"]
    first, second, third = hashlib.sha256(document["metadata"]["name"].encode()).digest()[:3]
    address = f"10.{first}.{second}.{third % 254 + 1}"
    container = document["spec"]["containers"][0]
    state = {
        "name": container["name"],
        "state": {"running": {"startedAt": timestamp(began)}},
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": container["image"],
        "imageID": "",
    }
    ready = [_condition(type_, began) for type_ in ("Initialized", "ContainersReady", "Ready")]
    return document | {
        "status": status
        | {
            "phase": "Running",
            "conditions": [*status["conditions"], *ready],
            "startTime": timestamp(at),
            "podIP": address,
            "podIPs": [{"ip": address}],
            "containerStatuses": [state],
        }
    }


def _condition(type_: str, at: datetime) -> Document:
    return {"type": type_, "status": "True", "lastTransitionTime": timestamp(at)}


# What is out of order ------------------------------------------------------------------------------------------------
#
# Pods that wait, each for a real reason, and claims that are stuck. Nothing is
# said here about why: the scheduler finds that out, and the pages tell it.
@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedJob:
    """A pod that cannot be placed. template: of its claim. age: minutes since it was created."""

    namespace: str
    name: str
    template: str
    request: Document
    age: float
    node_selector: Document = field(default_factory=dict)

    @property
    def since(self) -> timedelta:
        return timedelta(minutes=self.age)


def waiting() -> Iterator[UnplacedJob]:
    """Fourteen pods."""
    rack = f'device.attributes["{NVIDIA}"].rack'
    # Every matching device is held.
    r5 = request("gpu-h200", count=2, cel=[f'{rack} == "r5" && device.attributes["{NVIDIA}"].numaNode == 1'])
    for number, age in ((3, 192), (4, 47.5), (5, 46)):
        yield UnplacedJob(
            namespace="nlp-lab", name=f"llama-eval-next-{number}", template="h200-r5", request=r5, age=age
        )
    r2 = request("gpu-hopper", count=4, cel=[f'{rack} == "r2"'])
    for space, name, age in (
        ("vision", "clip-train-rack-2", 88),
        ("climate-ml", "graphcast-ft-rack-2", 31),
        ("robotics", "grasp-policy-rack-2", 12),
    ):
        yield UnplacedJob(namespace=space, name=name, template="hopper-4-rack-2", request=r2, age=age)
    # No node has that many free.
    eight = request("gpu-mi300x", count=8)
    for space, name, age in (
        ("climate-ml", "downscale-era5-full-1", 154),
        ("climate-ml", "downscale-era5-full-2", 153),
        ("protein-fold", "esm-embed-all", 63),
        ("speech", "whisper-ft-large", 9),
    ):
        yield UnplacedJob(namespace=space, name=name, template="mi300x-8", request=eight, age=age)
    # The pool of gpu-b04 is a slice short.
    pinned = {"kubernetes.io/hostname": "gpu-b04"}
    for number, age in ((1, 41), (2, 40)):
        yield UnplacedJob(
            namespace="protein-fold", name=f"docking-repeat-{number}", template="a100-2",
            request=request("gpu-a100", count=2), age=age, node_selector=pinned,
        )  # fmt: skip
    # No device is like that; no class is called that.
    huge = f'device.capacity["{NVIDIA}"].memory.compareTo(quantity("200Gi")) >= 0'
    yield UnplacedJob(
        namespace="vision", name="video-caption-long", template="huge-memory",
        request=request("gpu-hopper", cel=[huge]), age=22,
    )  # fmt: skip
    yield UnplacedJob(namespace="vision", name="clip-eval-9", template="h100-1", request=request("gpu-h100"), age=5)


#: namespace, quota -> what it limits, and by how much its limits are above what is used
QUOTAS: dict[tuple[str, str], tuple[tuple[str, ...], int]] = {
    ("nlp-lab", "gpus"): ((f"gpu-hopper{DEVICES}", f"gpu-h200{DEVICES}", "pods"), 10),
    ("teaching", "course"): ((f"gpu-l40s{DEVICES}", f"{COUNT}{CLAIMS}"), 0),
}
#: A pod that a quota keeps without its claim, and the template that it names.
REFUSED_POD = ("teaching", "course-dl-latecomer")
REFUSED_TEMPLATE = "l40s-1-late"
REFUSED_SINCE = timedelta(minutes=3)


#: A pod on this machine was told to end, and its node never said that it did.
ENDLESS_MACHINE = "gpu-a12"
ENDLESS_SINCE = timedelta(minutes=47)
#: A claim that was deleted, and that somebody's finalizer keeps.
KEPT_CLAIM = ("protein-fold", "af3-screen-results")
KEPT_BY = "export.example.org/usage-report"
KEPT_SINCE = timedelta(hours=3, minutes=20)
#: A claim that is reserved for a job that is gone: its controller never took the reservation back.
LEAKED_CLAIM = ("robotics", "sim2real-batch")
LEAKED_JOB = "sim2real-batch-2211"
LEAKED_SINCE = timedelta(days=2, hours=5)
#: The devices of the leaked claim (nothing of the plan runs there), and of the one that a course shares.
LEAKED_AT = ("gpu-b08", 2)
SHARED_AT = ("gpu-c04", 1)
#: A claim that several pods share.
SHARED_CLAIM = ("teaching", "course-gpu")
SHARED_BY = ("course-dl-shared-anna", "course-dl-shared-ben", "course-dl-shared-chloe")
#: A claim that nobody has used yet.
SPARE_CLAIM = ("speech", "whisper-ft-spare")
#: Looks on without holding anything: a monitor with admin access.
MONITOR = ("infra-ci", "dcgm-monitor", "gpu-a01")
#: Pods that ended: (namespace, name, phase, minutes ago).
ENDED = (
    ("nlp-lab", "tokenizer-sweep-done", "Succeeded", 26),
    ("vision", "clip-eval-8", "Succeeded", 58),
    ("speech", "diarize-eval-old", "Failed", 74),
)
