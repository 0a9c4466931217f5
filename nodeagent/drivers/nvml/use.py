"""Whether anything uses the GPUs: NVML is asked every second or so, and a GPU that did nothing for minutes is idle.

NVML's utilization is the share of its last sample period, a sixth of a second to a second, in which a kernel ran. It
has none for a GPU in MIG mode. Source: NVML API Reference Guide, nvmlDeviceGetUtilizationRates.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from nodeagent.drivers.nvml.binding import Nvml, NvmlError
from nodeagent.drivers.nvml.gpus import Gpu

log = logging.getLogger(__name__)

UTILIZATION = "nvmlDeviceGetUtilizationRates"
#: Seconds from one question to the next: as long as NVML's sample period at most.
SAMPLE_SECONDS = 1.0
#: Seconds late with a question from which on nobody knows what happened meanwhile: NVML did not answer for a while.
GAP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Watched:
    """since: when something used the GPU last, or was first looked for. used: whether it was ever seen in use."""

    since: float
    used: bool


class UseWatch:
    """Asked by one thread, read by others. idle_after: seconds without use. clock: monotonic seconds."""

    def __init__(self, nvml: Nvml, *, idle_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._idle_after = idle_after
        self._clock = clock
        self._due = clock()
        self._seen: dict[str, _Watched] = {}  # by uuid; never changed, but replaced

    def sample(self, gpus: Iterable[Gpu]) -> None:
        """Look whether they are in use, unless that was done a moment ago."""
        now = self._clock()
        if now < self._due:
            return
        if now - self._due > GAP_SECONDS:
            self._seen = {}
        self._due = now + SAMPLE_SECONDS
        self._seen = {gpu.uuid: one for gpu in gpus if (one := self._look_at(gpu, now)) is not None}

    def _look_at(self, gpu: Gpu, now: float) -> _Watched | None:
        """None where it is not known."""
        if gpu.mig_enabled:
            return None
        try:
            busy = self._nvml.fields(UTILIZATION, gpu.handle)["gpu"] > 0
        except (NvmlError, LookupError) as error:  # a recording that was made by an older version has no answer
            log.debug("GPU %s: whether it is in use is not known: %s", gpu.uuid, error)
            return None
        return _Watched(now, used=True) if busy else self._seen.get(gpu.uuid, _Watched(now, used=False))

    def idle(self) -> Mapping[str, bool]:
        """By uuid: whether nothing uses the GPU. One that was not looked at for long enough to say so is left out."""
        quiet_since = self._clock() - self._idle_after
        known = {uuid: (one.since <= quiet_since, one.used) for uuid, one in self._seen.items()}
        return {uuid: idle for uuid, (idle, used) in known.items() if idle or used}
