"""The health of GPUs from what NVML reports: critical XID events, memory errors that ECC could not correct.

An XID is a number that the kernel driver logs with an error. Some come from a faulty program and say nothing about the
GPU; those leave it healthy. Source: NVIDIA's XID catalogue; NVIDIA/k8s-device-plugin, internal/rm/health.go, and
kubernetes-sigs/dra-driver-nvidia-gpu, device_health.go, for which are a program's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nodeagent.drivers.nvml.binding import TIMEOUT, Nvml, NvmlError
from nodeagent.drivers.nvml.gpus import Gpu, System
from nodeagent.drivers.nvml.recording import WAIT

#: Of nvmlEventData_t.eventType.
DOUBLE_BIT, XID = 0x2, 0x8
_WANTED = DOUBLE_BIT | XID
#: The instance in an event that concerns a GPU as a whole.
WHOLE = 0xFFFFFFFF

#: Errors of programs: graphics engine exception, memory page fault, stopped processing, preemptive cleanup, video
#: processor exception, context switch timeout.
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})

_MEANINGS: Mapping[int, str] = {
    48: "a double-bit ECC error",
    61: "a fault of the internal microcontroller",
    62: "a halt of the internal microcontroller",
    63: "a row or page of its memory was retired",
    64: "a row or page of its memory could not be retired",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    92: "a high rate of single-bit ECC errors",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "the GPU's system processor does not answer",
    120: "an error of the GPU's system processor",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a device. kind and value make the taint: "<driver>/xid" = "79"."""

    kind: Literal["xid", "ecc", "gpu-lost"]
    value: str
    message: str


@dataclass(frozen=True, slots=True)
class Event:
    """A trouble that NVML reported. gpu_instance, compute_instance: WHOLE where it concerns the whole GPU."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    trouble: Trouble


def xid_trouble(xid: int) -> Trouble:
    meaning = _MEANINGS.get(xid, "see NVIDIA's XID catalogue")
    return Trouble("xid", str(xid), f"XID {xid}: {meaning}; drain the node and reset the GPU")


def ecc_trouble(errors: int) -> Trouble:
    """errors: since the driver was loaded."""
    many = f"{errors} memory errors" if errors > 1 else "a memory error"
    return Trouble("ecc", "", f"{many} that ECC could not correct; drain the node and reset the GPU")


def memory_troubles(system: System) -> dict[str, Trouble]:
    """GPU uuid -> its trouble with memory."""
    return {gpu.uuid: ecc_trouble(gpu.uncorrected) for gpu in system.gpus if gpu.uncorrected}


class EventSet:
    """NVML's reports about `gpus`. Used by one thread at a time.

    ignored: XIDs that say nothing about a GPU. unmonitored: GPU uuid -> why nothing is reported about it.
    """

    def __init__(self, nvml: Nvml, gpus: Sequence[Gpu], *, ignored: Collection[int]) -> None:
        self._nvml = nvml
        self._ignored = ignored
        self._uuids = {gpu.handle: gpu.uuid for gpu in gpus}
        self._set = nvml.text("nvmlEventSetCreate")
        self.unmonitored: dict[str, str] = {}
        for gpu in gpus:
            try:
                self._register(gpu)
            except NvmlError as error:
                self.unmonitored[gpu.uuid] = str(error)

    def _register(self, gpu: Gpu) -> None:
        supported = self._nvml.number("nvmlDeviceGetSupportedEventTypes", gpu.handle)
        self._nvml.do("nvmlDeviceRegisterEvents", gpu.handle, supported & _WANTED, self._set)

    @property
    def monitors(self) -> bool:
        """Whether there is any GPU that something is reported about."""
        return len(self.unmonitored) < len(self._uuids)

    def wait(self, milliseconds: int) -> Event | None:
        """The next report; None where none came in time, or none that tells of trouble. Raises: NvmlError."""
        try:
            data = self._nvml.fields(WAIT, self._set, milliseconds)
        except NvmlError as error:
            if error.code == TIMEOUT:
                return None
            raise
        trouble = self._trouble(data["eventType"], data["eventData"])
        uuid = self._uuids.get(data["device"])
        if trouble is None or uuid is None:
            return None
        return Event(uuid, data["gpuInstanceId"], data["computeInstanceId"], trouble)

    def _trouble(self, type_: int, xid: int) -> Trouble | None:
        if type_ == DOUBLE_BIT:
            return ecc_trouble(1)
        return xid_trouble(xid) if type_ == XID and xid not in self._ignored else None

    def free(self) -> None:
        """Raises: NvmlError."""
        self._nvml.do("nvmlEventSetFree", self._set)
