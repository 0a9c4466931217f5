"""The machines of the laboratory, as documents: Nodes, ResourceSlices with their devices, DeviceClasses.

Names tell what stands there: gpu-a H100 and H200, gpu-b A100 (the last two nodes in partitions), gpu-c L40S, gpu-d
MI300X.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django.db import close_old_connections
from msgspec import structs

from inventory.reachability import LEASE_NAMESPACE
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import Lease
from manciple.wire.registry import registry
from nodeagent.drivers.partitionable import PROFILES, counter_set, devices_of

Document = dict[str, Any]

NVIDIA, AMD, NIC = "gpu.nvidia.com", "gpu.amd.com", "dra.net"
GPUS_PER_NODE = 8
#: What each interface can give out, in bits a second, and the least share of it.
BANDWIDTH, SHARE = "400G", "100G"
#: The sizes that the partitioned cards offer.
PARTITIONS = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb")
#: Devices of one slice that draws on shared counters (the API allows 64).
PARTITIONS_PER_SLICE = 56
_UUIDS = uuid.UUID("5b0c6a0e-32a7-5d39-9a5e-0d6f2d4f7c11")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A kind of GPU."""

    product: str
    architecture: str
    memory: str
    multiprocessors: int
    driver: str = NVIDIA
    partitioned: bool = False


H100 = Model(product="NVIDIA H100 80GB", architecture="Hopper", memory="80Gi", multiprocessors=132)
H200 = Model(product="NVIDIA H200 141GB", architecture="Hopper", memory="141Gi", multiprocessors=132)
A100 = Model(product="NVIDIA A100 80GB", architecture="Ampere", memory="80Gi", multiprocessors=108)
A100_MIG = Model(
    product="NVIDIA A100 80GB", architecture="Ampere", memory="80Gi", multiprocessors=108, partitioned=True
)
L40S = Model(product="NVIDIA L40S 48GB", architecture="Ada Lovelace", memory="48Gi", multiprocessors=142)
MI300X = Model(
    product="AMD Instinct MI300X 192GB", architecture="CDNA 3", memory="192Gi", multiprocessors=304, driver=AMD
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One node. taints: (GPU index, taint key, value), there for `tainted_for`; `short`: drivers whose pool is one
    slice short."""

    name: str
    model: Model
    rack: str
    nics: int
    cordoned: bool = False
    taints: tuple[tuple[int, str, str], ...] = ()
    tainted_for: timedelta = timedelta(hours=5, minutes=12)
    short: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(f"gpu-{index}" for index in range(GPUS_PER_NODE))


#: prefix, first and last number, model, interfaces
_GROUPS = (
    ("gpu-a", 1, 14, H100, 2),
    ("gpu-a", 15, 20, H200, 2),
    ("gpu-b", 1, 8, A100, 2),
    ("gpu-b", 9, 10, A100_MIG, 2),
    ("gpu-c", 1, 5, L40S, 1),
    ("gpu-d", 1, 5, MI300X, 2),
)
_MAINTENANCE = ("lab.example.org/maintenance", "driver-upgrade")
_ALL = range(GPUS_PER_NODE)
#: What is out of order on some machines.
_SPECIAL: dict[str, dict[str, Any]] = {
    "gpu-a09": {"taints": ((5, f"{NVIDIA}/unhealthy", "xid-79"),), "tainted_for": timedelta(minutes=47)},
    "gpu-a12": {"cordoned": True, "taints": tuple((index, *_MAINTENANCE) for index in _ALL)},
    "gpu-b04": {"short": (NVIDIA,)},
    "gpu-b06": {
        "taints": ((7, f"{NVIDIA}/unhealthy", "ecc-uncorrectable"),),
        "tainted_for": timedelta(days=2, hours=3),
    },
    "gpu-c03": {"short": (NIC,), "taints": tuple((index, *_MAINTENANCE) for index in _ALL)},
}
#: The large laboratory: this many nodes of eight H100 and nothing else.
LARGE_NODES = 625


def lab_machines() -> list[Machine]:
    """The 40 nodes."""
    return [
        Machine(name=name, model=model, rack=f"r{(number - 1) // 4 + 1}", nics=nics, **_SPECIAL.get(name, {}))
        for prefix, first, last, model, nics in _GROUPS
        for number in range(first, last + 1)
        for name in [f"{prefix}{number:02}"]
    ]


def large_machines() -> list[Machine]:
    """5,000 GPUs."""
    return [
        Machine(name=f"gpu-a{number:03}", model=H100, rack=f"r{(number - 1) // 4 + 1}", nics=0)
        for number in range(1, LARGE_NODES + 1)
    ]


def node(machine: Machine, *, heard: str, since: str) -> Document:
    """heard: when its agent last reported; since: when it became ready; RFC 3339."""
    amounts = {"cpu": "192", "memory": "2Ti", "pods": "110"}
    conditions = {
        "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    }
    labels = {
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": "lab-east",
        "lab.example.org/rack": machine.rack,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, "labels": labels},
        "spec": {"unschedulable": True} if machine.cordoned else {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {"type": type_, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": heard,
                 "lastTransitionTime": since}
                for type_, (status, reason, message) in conditions.items()
            ],
            "addresses": [{"type": "Hostname", "address": machine.name}],
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.8.0-60-generic",
                "osImage": "Ubuntu 24.04.2 LTS", "containerRuntimeVersion": "containerd://2.1.1",
                "kubeletVersion": "v1.36.0-manciple", "kubeProxyVersion": "", "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }  # fmt: skip


def lease(name: str, *, renewed: str) -> Document:
    """renewed: RFC 3339 with microseconds."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
    }


# Devices -------------------------------------------------------------------------------------------------------------


def slices(machine: Machine, *, since: str) -> Iterator[Document]:
    """Everything that the machine's drivers publish. since: when its taints were added."""
    driver = machine.model.driver
    if machine.model.partitioned:
        yield from _pool(machine, driver, _partitioned(machine), counters=True)
    else:
        yield from _pool(machine, driver, [[_gpu(machine, index, since=since) for index in _ALL]])
    if machine.nics:
        yield from _pool(machine, NIC, [[_nic(machine, index) for index in range(machine.nics)]])


def _pool(
    machine: Machine, driver: str, parts: Sequence[Sequence[Document]], *, counters: bool = False
) -> Iterator[Document]:
    """One slice for each of `parts`; one more announced than made where the machine is short of one."""
    bodies: list[Document] = [{"devices": list(part)} for part in parts]
    if counters:
        sets = [codec.to_builtins(counter_set(index)) for index in _ALL]
        bodies.append({"sharedCounters": sets})
    expected = len(bodies) + (driver in machine.short)
    pool = {"name": machine.name, "generation": 1, "resourceSliceCount": expected}
    for index, body in enumerate(bodies):
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{machine.name}-{driver}-{_short(machine.name, driver, str(index))}"},
            "spec": {"driver": driver, "pool": pool, "nodeName": machine.name, **body},
        }


def _short(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:5]


def _uuid(*parts: str) -> str:
    return str(uuid.uuid5(_UUIDS, "/".join(parts)))


def _gpu(machine: Machine, index: int, *, since: str) -> Document:
    model = machine.model
    attributes: Document = {
        "index": {"int": index},
        "productName": {"string": model.product},
        "architecture": {"string": model.architecture},
        "uuid": {"string": f"GPU-{_uuid(machine.name, str(index))}"},
        "driverVersion": {"version": "6.12.12" if model.driver == AMD else "575.57.8"},
        "rack": {"string": machine.rack},
        "numaNode": {"int": index // 4},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{0x1B + 0x30 * (index // 2):02x}"},
    }
    if model.driver == NVIDIA:
        attributes |= {"type": {"string": "gpu"}, "cudaDriverVersion": {"version": "12.9.0"}}
        attributes["migEnabled"] = {"bool": model.partitioned}
    taints = [
        {"key": key, "value": value, "effect": "NoSchedule", "timeAdded": since}
        for at, key, value in machine.taints
        if at == index
    ]
    capacity = {"memory": {"value": model.memory}, "multiprocessors": {"value": str(model.multiprocessors)}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": capacity} | (
        {"taints": taints} if taints else {}
    )


def _partitioned(machine: Machine) -> list[list[Document]]:
    """Every card whole and in each partition that it could be cut into, in slices' worth."""
    wanted = [profile for profile in PROFILES if profile.name in PARTITIONS]
    devices = []
    for index in _ALL:
        for device in devices_of(machine.name, index, wanted):
            made = codec.to_builtins(device)
            attributes = made["attributes"]
            del attributes["model"]
            whole = _gpu(machine, index, since="")["attributes"]
            made["attributes"] = whole | attributes | {"driverVersion": whole["driverVersion"]}
            devices.append(made)
    return [devices[at : at + PARTITIONS_PER_SLICE] for at in range(0, len(devices), PARTITIONS_PER_SLICE)]


def _nic(machine: Machine, index: int) -> Document:
    digest = hashlib.sha256(f"{machine.name}/nic-{index}".encode()).digest()
    policy = {"default": SHARE, "validRange": {"min": SHARE, "max": BANDWIDTH, "step": SHARE}}
    return {
        "name": f"nic-{index}",
        "attributes": {
            "index": {"int": index},
            "productName": {"string": "ConnectX-7 400G"},
            "ifName": {"string": f"rdma{index}"},
            "rdma": {"bool": True},
            "mac": {"string": ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))},
            "numaNode": {"int": index},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{0x1B + 0x60 * index:02x}"},
        },
        "capacity": {"bandwidth": {"value": BANDWIDTH, "requestPolicy": policy}},
        "allowMultipleAllocations": True,
    }


# Classes -------------------------------------------------------------------------------------------------------------

_PRODUCT = 'device.attributes["gpu.nvidia.com"].productName'
#: DeviceClass -> its selectors
CLASSES: dict[str, tuple[str, ...]] = {
    "gpu-hopper": (
        'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].architecture == "Hopper"',
    ),
    "gpu-h200": (
        'device.driver == "gpu.nvidia.com"',
        'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("141Gi")) >= 0',
    ),
    "gpu-a100": (
        'device.driver == "gpu.nvidia.com"',
        f'{_PRODUCT} == "NVIDIA A100 80GB" && !device.attributes["gpu.nvidia.com"].migEnabled',
    ),
    "gpu-a100-mig": ('device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig"',),
    "gpu-l40s": (f'device.driver == "gpu.nvidia.com" && {_PRODUCT} == "NVIDIA L40S 48GB"',),
    "gpu-mi300x": (
        'device.driver == "gpu.amd.com" && device.attributes["gpu.amd.com"].productName.contains("MI300X")',
    ),
    "rdma-nic": ('device.driver == "dra.net" && device.attributes["dra.net"].rdma',),
}


def device_classes() -> Iterator[Document]:
    for name, selectors in CLASSES.items():
        spec = {"selectors": [{"cel": {"expression": expression}} for expression in selectors]}
        yield {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


# Signs of life -------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)
#: Seconds between two renewals of a Lease; a node counts as silent after 40.
INTERVAL = 10.0


class LeaseRenewal:
    """Nodes without an agent look alive: a thread renews every Lease until `stop()`, as the agents would."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="demo-heartbeat", daemon=True)

    def start(self) -> None:
        renew()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(INTERVAL)

    def _beat(self) -> None:
        while not self._stopping.wait(INTERVAL):
            try:
                renew()
            except ApiError as error:
                log.warning("the nodes' leases were not renewed: %s", error.message)
            finally:
                close_old_connections()


def renew() -> None:
    """Renew all Leases of nodes, in one transaction."""
    kind = registry.by_resource("leases.coordination.k8s.io")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    with objects.writing(identity=SYSTEM) as writer:
        for lease in cast("tuple[Lease, ...]", writer.list(kind, namespace=LEASE_NAMESPACE)):
            writer.update(kind, structs.replace(lease, spec=structs.replace(lease.spec, renew_time=now)))


def taint_rule() -> Document:
    """A dry run that somebody left: what would a firmware update of one node evict?"""
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "firmware-gpu-a17"},
        "spec": {
            "deviceSelector": {"driver": NVIDIA, "pool": "gpu-a17"},
            "taint": {"key": "lab.example.org/firmware", "value": "570.133", "effect": "None"},
        },
    }
