"""The health of GPUs, watched: critical XID events, memory errors that ECC could not correct.

An XID is a number that the kernel driver logs with an error. Some come from a faulty program and say nothing about the
GPU; those leave it healthy. Source: NVIDIA's XID catalogue; NVIDIA/k8s-device-plugin, internal/rm/health.go, and
kubernetes-sigs/dra-driver-nvidia-gpu, device_health.go, for which are a program's.

`UseWatch` samples every second whether anything uses the GPUs; one that did nothing for minutes is idle. NVML's
utilization is the share of its last sample period, a sixth of a second to a second, in which a kernel ran. It has none
for a GPU in MIG mode. Now and then it reads memory, temperature and power. Source: NVML API Reference Guide,
nvmlDeviceGetUtilizationRates, nvmlDeviceGetMemoryInfo, nvmlDeviceGetTemperature, nvmlDeviceGetPowerUsage.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import msgspec

from inventory.kinds.device_readings import Meters
from nodeagent.drivers.nvml.binding import TIMEOUT, WAIT, Nvml, NvmlError
from nodeagent.drivers.nvml.gpus import Gpu, GpuSystem, read_system

AnswerT = TypeVar("AnswerT")

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
class DeviceTrouble:
    """What is wrong with a device. kind and value make the taint: "<driver>/xid" = "79"."""

    kind: Literal["xid", "ecc", "gpu-lost"]
    value: str
    message: str


@dataclass(frozen=True, slots=True)
class NvmlEvent:
    """A trouble that NVML reported. gpu_instance, compute_instance: WHOLE where it concerns the whole GPU."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    trouble: DeviceTrouble


def xid_trouble(xid: int) -> DeviceTrouble:
    meaning = _MEANINGS.get(xid, "see NVIDIA's XID catalogue")
    return DeviceTrouble("xid", str(xid), f"XID {xid}: {meaning}; drain the node and reset the GPU")


def ecc_trouble(errors: int) -> DeviceTrouble:
    """errors: since the driver was loaded."""
    many = f"{errors} memory errors" if errors > 1 else "a memory error"
    return DeviceTrouble("ecc", "", f"{many} that ECC could not correct; drain the node and reset the GPU")


def memory_troubles(system: GpuSystem) -> dict[str, DeviceTrouble]:
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

    def wait(self, milliseconds: int) -> NvmlEvent | None:
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
        return NvmlEvent(uuid, data["gpuInstanceId"], data["computeInstanceId"], trouble)

    def _trouble(self, type_: int, xid: int) -> DeviceTrouble | None:
        if type_ == DOUBLE_BIT:
            return ecc_trouble(1)
        return xid_trouble(xid) if type_ == XID and xid not in self._ignored else None

    def free(self) -> None:
        """Raises: NvmlError."""
        self._nvml.do("nvmlEventSetFree", self._set)


# Keeps NVML open, looks at the GPUs now and then, and listens to NVML's events, in one thread. NVML may not be there
# yet when the agent starts (a driver container loads it later), and may go away (the driver is updated): what fails is
# told once in the log, and tried again at the next scan.

log = logging.getLogger(__name__)

#: How long one wait for an event may keep the thread from noticing that it is to end.
WAIT_MILLISECONDS = 500
#: Seconds before looking again at GPUs whose events cannot be had.
_PAUSE_SECONDS = 1.0


class Monitor:
    """seen: called after each scan, with what there is or why NVML does not answer. happened: called with each trouble.

    seconds: between looks. ignored: XIDs that leave a GPU healthy. use: asks between events whether GPUs are in use.
    """

    def __init__(
        self,
        nvml: Nvml,
        *,
        seconds: float,
        ignored: Collection[int],
        use: UseWatch,
        seen: Callable[[GpuSystem | NvmlError], None],
        happened: Callable[[NvmlEvent], None],
    ) -> None:
        self._nvml = nvml
        self._seconds = seconds
        self._ignored = ignored
        self._use = use
        self._seen = seen
        self._happened = happened
        self._open = False
        self._events: EventSet | None = None
        self._listening_to: tuple[str, ...] = ()
        self._complaint = ""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def unmonitored(self) -> dict[str, str]:
        """GPU uuid -> why nothing is reported about it."""
        return {} if self._events is None else self._events.unmonitored

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and let go of NVML; returns when both are done."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._let_go()

    def rescan(self) -> GpuSystem | NvmlError:
        """See what there is now, and tell `seen`."""
        try:
            answer: GpuSystem | NvmlError = self._read()
        except NvmlError as error:
            self._let_go()
            answer = error
        self._complain(answer)
        self._seen(answer)
        return answer

    def listen(self, system: GpuSystem, milliseconds: int) -> None:
        """Wait for the next event of the GPUs of `system`, and tell `happened`. Raises: NvmlError."""
        uuids = tuple(gpu.uuid for gpu in system.gpus)
        if uuids != self._listening_to:
            self._free_events()
            self._events, self._listening_to = EventSet(self._nvml, system.gpus, ignored=self._ignored), uuids
            self._seen(system)  # whose health is known may have changed
        if self._events is None or not self._events.monitors:
            self._closed.wait(milliseconds / 1000)
        elif (event := self._events.wait(milliseconds)) is not None:
            log.error("GPU %s: %s", event.uuid, event.trouble.message)
            self._happened(event)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._attend(self.rescan())
            except NvmlError as error:  # the next scan tells which GPU it is
                log.warning("NVML's events: %s; looking at the GPUs", error)
                self._free_events()
                self._closed.wait(_PAUSE_SECONDS)
            except Exception:  # whatever a strange driver makes fail, the next scan may work
                log.exception("the GPUs could not be looked at; trying again in %.0f s", self._seconds)
                self._closed.wait(self._seconds)

    def _attend(self, system: GpuSystem | NvmlError) -> None:
        """Until the next scan is due. Raises: NvmlError."""
        due = time.monotonic() + self._seconds
        if isinstance(system, NvmlError) or not system.gpus:
            self._closed.wait(self._seconds)
            return
        while not self._closed.is_set() and time.monotonic() < due:
            self._use.sample(system.gpus)
            self.listen(system, WAIT_MILLISECONDS)

    def _read(self) -> GpuSystem:
        if not self._open:
            self._nvml.do("nvmlInit")
            self._open = True
        return read_system(self._nvml)

    def _complain(self, answer: GpuSystem | NvmlError) -> None:
        """Once for each thing that is wrong, and not again while it stays so."""
        if isinstance(answer, NvmlError):
            complaint = f"NVML does not answer, no GPU is published: {answer}"
        else:
            lost = (f"GPU {index} is not published: {reason}" for index, reason in answer.unreadable.items())
            complaint = "; ".join(lost) or ("" if answer.gpus else "NVML knows no GPU on this machine")
        if complaint and complaint != self._complaint:
            log.error("%s; looking again every %.0f s", complaint, self._seconds)
        self._complaint = complaint

    def _free_events(self) -> None:
        events, self._events, self._listening_to = self._events, None, ()
        if events is not None:
            try:
                events.free()
            except NvmlError as error:
                log.debug("the events of NVML were not released: %s", error)

    def _let_go(self) -> None:
        self._free_events()
        if self._open:
            self._open = False
            try:
                self._nvml.do("nvmlShutdown")
            except NvmlError as error:
                log.debug("NVML was not shut down: %s", error)


# Use and meters -------------------------------------------------------------------------------------------------------


UTILIZATION = "nvmlDeviceGetUtilizationRates"
#: Seconds from one question to the next: as long as NVML's sample period at most.
SAMPLE_SECONDS = 1.0
#: Seconds late with a question from which on nobody knows what happened meanwhile: NVML did not answer for a while.
GAP_SECONDS = 30.0
#: Seconds from one look at memory, temperature and power to the next.
METER_SECONDS = 10.0
#: Samples of which a reading of the utilization is the mean.
AVERAGED = 60
#: Argument of nvmlDeviceGetTemperature: the sensor of the chip.
_CHIP = 0


@dataclass(frozen=True, slots=True)
class _Watched:
    """since: when something used the GPU last, or was first looked for. used: whether it was ever seen in use.

    recent: its utilization in the last samples, percent.
    """

    since: float
    used: bool
    recent: tuple[int, ...]


class UseWatch:
    """Asked by one thread, read by others. idle_after: seconds without use. clock: monotonic seconds."""

    def __init__(self, nvml: Nvml, *, idle_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._idle_after = idle_after
        self._clock = clock
        self._due = self._meters_due = clock()
        self._seen: dict[str, _Watched] = {}  # by uuid; never changed, but replaced
        self._meters: dict[str, Meters] = {}  # by uuid of a GPU or a MIG device; replaced too

    def sample(self, gpus: Sequence[Gpu]) -> None:
        """Look whether they are in use, and now and then at their meters, unless that was done a moment ago."""
        now = self._clock()
        if now < self._due:
            return
        if now - self._due > GAP_SECONDS:
            self._seen = {}
        self._due = now + SAMPLE_SECONDS
        self._seen = {gpu.uuid: one for gpu in gpus if (one := self._look_at(gpu, now)) is not None}
        if now >= self._meters_due:
            self._meters_due = now + METER_SECONDS
            wholes = {gpu.uuid: self._read_meters(gpu.handle, whole=True) for gpu in gpus}
            parts = {mig.uuid: self._read_meters(mig.handle, whole=False) for gpu in gpus for mig in gpu.migs}
            self._meters = wholes | parts

    def _look_at(self, gpu: Gpu, now: float) -> _Watched | None:
        """None where it is not known."""
        if gpu.mig_enabled:
            return None
        try:
            rate = int(self._nvml.fields(UTILIZATION, gpu.handle)["gpu"])
        except (NvmlError, LookupError) as error:  # a recording that was made by an older version has no answer
            log.debug("GPU %s: whether it is in use is not known: %s", gpu.uuid, error)
            return None
        before = self._seen.get(gpu.uuid, _Watched(now, used=False, recent=()))
        recent = (*before.recent, rate)[-AVERAGED:]
        return _Watched(now, used=True, recent=recent) if rate else replace(before, recent=recent)

    def _read_meters(self, handle: str, *, whole: bool) -> Meters:
        """whole: of a GPU. A MIG device has no temperature or power of its own."""
        memory = self._answer(lambda: self._nvml.fields("nvmlDeviceGetMemoryInfo", handle)) or {}
        milliwatts = self._answer(lambda: self._nvml.number("nvmlDeviceGetPowerUsage", handle)) if whole else None
        return Meters(
            memory_used=memory.get("used"),
            memory_total=memory.get("total"),
            temperature=self._answer(lambda: self._nvml.number("nvmlDeviceGetTemperature", handle, _CHIP))
            if whole
            else None,
            power=None if milliwatts is None else round(milliwatts / 1000),
        )

    def _answer(self, ask: Callable[[], AnswerT]) -> AnswerT | None:
        """None where NVML does not have it."""
        try:
            return ask()
        except (NvmlError, LookupError) as error:
            log.debug("a meter is not known: %s", error)
            return None

    def idle(self) -> Mapping[str, bool]:
        """By uuid: whether nothing uses the GPU. One that was not looked at for long enough to say so is left out."""
        quiet_since = self._clock() - self._idle_after
        known = {uuid: (one.since <= quiet_since, one.used) for uuid, one in self._seen.items()}
        return {uuid: idle for uuid, (idle, used) in known.items() if idle or used}

    def meters(self) -> Mapping[str, Meters]:
        """By uuid of a GPU or a MIG device. What has not been read for a while is left out."""
        if self._clock() - self._due > GAP_SECONDS:
            return {}
        seen = self._seen
        rates = {uuid: round(sum(one.recent) / len(one.recent)) for uuid, one in seen.items()}
        return {
            uuid: msgspec.structs.replace(meters, utilization=rates.get(uuid))
            for uuid, meters in self._meters.items()
            if meters != Meters() or uuid in rates
        }
