"""The driver of NVIDIA GPUs, and what the drivers file may say of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from inventory.kinds.device_readings import Meters
from inventory.kinds.devices import Device, DeviceTaint
from manciple.wire.base import Value
from nodeagent import cdi
from nodeagent.drivers.attributes import check_name
from nodeagent.drivers.nvml.binding import Nvml, NvmlBinding, NvmlError
from nodeagent.drivers.nvml.edits import NvmlRoots, device_edits, driver_mounts, shared_edits
from nodeagent.drivers.nvml.gpus import Gpu, GpuSystem, PublishedGpu, counter_sets, published_gpus
from nodeagent.drivers.nvml.health import (
    APPLICATION_XIDS,
    WHOLE,
    DeviceTrouble,
    Monitor,
    NvmlEvent,
    UseWatch,
    memory_troubles,
)
from nodeagent.drivers.preparing import DeviceGone, prepare_claim
from nodeagent.drivers.protocol import ClaimIdentity, DeviceHealth, Failed, Health, Pool, Prepared

DEFAULT_NAME = "gpu.nvidia.com"


class NvmlSettings(Value, forbid_unknown_fields=True):
    """name: the driver's. required: refuse to start if NVML does not answer, instead of waiting until it does.

    driver_root: under which NVIDIA's driver is installed; a driver container mounts it at /run/nvidia/driver.
    library_dir: where the driver's libraries go in a container. set_library_path: whether LD_LIBRARY_PATH names it.
    ignored_xids: that leave a GPU healthy, besides those of programs. fatal_xids: programs' that do not.
    publish_mig_parents: a GPU in MIG mode is published as a whole too. rescan_seconds: between scans.
    idle_seconds: without use, until a GPU is told idle. recording: a file to answer in NVML's place.
    """

    name: str = DEFAULT_NAME
    required: bool = False
    driver_root: str = "/"
    library_dir: str = "/usr/local/nvidia/lib64"
    set_library_path: bool = True
    ignored_xids: tuple[int, ...] = ()
    fatal_xids: tuple[int, ...] = ()
    publish_mig_parents: bool = False
    rescan_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=86400)] = 30.0
    idle_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=86400)] = 300.0
    recording: str = ""

    @property
    def xids_of_programs(self) -> frozenset[int]:
        return (APPLICATION_XIDS | set(self.ignored_xids)) - set(self.fatal_xids)

    @property
    def library_path(self) -> str:
        """For LD_LIBRARY_PATH; empty to leave it alone. With the directory that NVIDIA's images name first."""
        return f"{self.library_dir}:/usr/local/nvidia/lib" if self.set_library_path else ""


def read_settings(settings: Mapping[str, Any]) -> NvmlSettings:
    """Raises: ValueError with the path of the field that is wrong."""
    asked = msgspec.convert(dict(settings), NvmlSettings)
    check_name(asked.name)
    for field, path in (("driverRoot", asked.driver_root), ("libraryDir", asked.library_dir)):
        if not path.startswith("/"):
            raise ValueError(f"`{path}` is not an absolute path - at `$.{field}`")
    return asked


class NvmlDriver:
    """A `Driver` with one pool, named after the node.

    binding: the way to NVML. roots: where the machine's directories are.
    """

    def __init__(
        self,
        node_name: str,
        binding: NvmlBinding,
        settings: NvmlSettings | None = None,
        *,
        roots: NvmlRoots | None = None,
    ) -> None:
        self._pool = node_name
        self._settings = settings or NvmlSettings()
        self._roots = roots or NvmlRoots()
        self._lock = threading.Lock()
        self._system: GpuSystem | NvmlError = NvmlError("nvmlInit", 0, "was not called yet")
        self._by_name: dict[str, PublishedGpu] = {}  # by device name, in the order of publication
        self._known: dict[str, Gpu] = {}  # every device that was ever published by this process
        self._reported: dict[str, DeviceTrouble] = {}  # uuid of a GPU or a MIG device -> what an event said
        self._told: object = None  # what the subscribers were told of last
        self._subscribers: list[Callable[[], None]] = []
        nvml = Nvml(binding)
        self._use = UseWatch(nvml, idle_after=self._settings.idle_seconds)
        self._monitor = Monitor(
            nvml,
            seconds=self._settings.rescan_seconds,
            ignored=self._settings.xids_of_programs,
            use=self._use,
            seen=self._seen,
            happened=self._happened,
        )
        self._watched = False
        self.rescan()

    @property
    def name(self) -> str:
        return self._settings.name

    @property
    def unavailable(self) -> str:
        """Why NVML does not answer; empty when it does."""
        return str(self._system) if isinstance(self._system, NvmlError) else ""

    def rescan(self) -> None:
        """See what there is now."""
        self._monitor.rescan()

    def pools(self) -> Sequence[Pool]:
        with self._lock:
            published = list(self._by_name.values())
        devices = tuple(self._tainted(one) for one in published)
        return (Pool(name=self._pool, devices=devices, shared_counters=counter_sets(published)),)

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        try:
            shared = self._shared_edits()
        except ValueError as error:
            return {claim.metadata.uid: Failed(str(error)) for claim in claims}
        return {
            claim.metadata.uid: prepare_claim(claim, driver=self.name, edits_of=self._edits, shared=shared)
            for claim in claims
        }

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        """There is nothing to undo: what a claim has is in its CDI file."""
        return {claim.uid: None for claim in claims}

    def health(self) -> Sequence[DeviceHealth]:
        with self._lock:
            known, published = dict(self._known), dict(self._by_name)
        return tuple(self._health(name, gpu, published.get(name)) for name, gpu in known.items())

    def idle(self) -> Mapping[tuple[str, str], bool]:
        """By (pool, device): whether nothing uses the GPU, as far as NVML knows it; of partitions it does not."""
        told = self._use.idle()
        with self._lock:
            published = dict(self._by_name)
        whole = {name: one.gpu.uuid for name, one in published.items() if one.mig is None}
        return {(self._pool, name): told[uuid] for name, uuid in whole.items() if uuid in told}

    def meters(self) -> Mapping[tuple[str, str], Meters]:
        """By (pool, device); of a partition only the memory. Nothing before the GPUs are watched."""
        read = self._use.meters()
        with self._lock:
            published = dict(self._by_name)
        uuids = {name: one.mig.uuid if one.mig else one.gpu.uuid for name, one in published.items()}
        return {(self._pool, name): read[uuid] for name, uuid in uuids.items() if uuid in read}

    def subscribe(self, changed: Callable[[], None]) -> None:
        """From the first call on, the GPUs are watched."""
        self._subscribers.append(changed)
        if not self._watched:
            self._watched = True
            self._monitor.start()

    def close(self) -> None:
        """Stop watching and let go of NVML; returns when the thread has ended."""
        self._monitor.close()

    # What the monitor tells.

    def _seen(self, system: GpuSystem | NvmlError) -> None:
        gpus = []
        if not isinstance(system, NvmlError):
            gpus = published_gpus(system, sys=self._roots.sys, mig_parents=self._settings.publish_mig_parents)
        with self._lock:
            self._system = system
            self._by_name = {one.device.name: one for one in gpus}
            self._known |= {name: one.gpu for name, one in self._by_name.items()}
        self._announce()

    def _happened(self, event: NvmlEvent) -> None:
        with self._lock:
            for uuid in _concerned(event, self._by_name.values()):
                self._reported[uuid] = event.trouble
        self._announce()

    def _announce(self) -> None:
        """Tell the subscribers, if there is something to tell."""
        state = (self.pools(), self.health())
        told, self._told = self._told, state
        if state != told:
            for changed in self._subscribers:
                changed()

    # Health.

    def _trouble(self, one: PublishedGpu) -> DeviceTrouble | None:
        uuids = [one.mig.uuid, one.gpu.uuid] if one.mig else [one.gpu.uuid]
        system = self._system
        known = self._reported | ({} if isinstance(system, NvmlError) else memory_troubles(system))
        return next((known[uuid] for uuid in uuids if uuid in known), None)

    def _tainted(self, one: PublishedGpu) -> Device:
        """Nobody new is to get a device that is in trouble; who has it sees its health."""
        trouble = self._trouble(one)
        if trouble is None:
            return one.device
        taint = DeviceTaint(key=f"{self.name}/{trouble.kind}", value=trouble.value, effect="NoSchedule")
        return msgspec.structs.replace(one.device, taints=(taint,))

    def _health(self, device: str, gpu: Gpu, one: PublishedGpu | None) -> DeviceHealth:
        if self.unavailable:
            return self._report(device, "Unknown", f"NVML does not answer: {self.unavailable}")
        if one is None:
            return self._report(device, "Unhealthy", self._why_gone(gpu))
        if (trouble := self._trouble(one)) is not None:
            return self._report(device, "Unhealthy", trouble.message)
        if (reason := self._monitor.unmonitored.get(gpu.uuid)) is not None:
            return self._report(device, "Unknown", f"the GPU reports no events: {reason}")
        return self._report(device, "Healthy")

    def _why_gone(self, gpu: Gpu) -> str:
        system = self._system
        reason = "" if isinstance(system, NvmlError) else system.unreadable.get(gpu.index, "")
        return f"the GPU does not answer: {reason}" if reason else "it is gone from the machine"

    def _report(self, device: str, health: Health, message: str = "") -> DeviceHealth:
        return DeviceHealth(pool=self._pool, device=device, health=health, message=message)

    # Preparing.

    def _shared_edits(self) -> cdi.ContainerEdits:
        """Raises: ValueError saying what is missing on the node."""
        system = self._system
        if isinstance(system, NvmlError):
            raise ValueError(f"NVML does not answer on this node: {system}") from system  # noqa: TRY004 - no type error
        mounts = driver_mounts(self._roots.driver, system.driver_version, self._settings.library_dir)
        return shared_edits(self._roots, mounts, self._settings.library_path)

    def _edits(self, result: DeviceRequestAllocationResult) -> cdi.ContainerEdits:
        with self._lock:
            one = self._by_name.get(result.device) if result.pool == self._pool else None
        if one is None:
            raise DeviceGone(result.pool, result.device)
        return device_edits(self._roots, one.gpu, one.mig)


def _concerned(event: NvmlEvent, published: Iterable[PublishedGpu]) -> Iterator[str]:
    """The uuids that an event marks: of the GPU as a whole, or of the MIG devices in the instance that it names."""
    if event.gpu_instance == WHOLE:
        yield event.uuid
        return
    for one in published:
        mig = one.mig
        if mig is None or (one.gpu.uuid, mig.gpu_instance) != (event.uuid, event.gpu_instance):
            continue
        if event.compute_instance in (WHOLE, mig.compute_instance):
            yield mig.uuid
