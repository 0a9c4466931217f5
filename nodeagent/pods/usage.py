"""What the node's containers use of cpu and memory, for the API server, which asks for it when somebody wants to know.

The kernel counts the processor time of a container since its start; what it uses now is the difference of two counts. A
runtime of real containers is asked every 20 seconds or so, which costs a few reads of files; one whose counts rise
evenly (`Runtime.counts_evenly`) only when somebody wants to know.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from claims.kinds.pods import Pod
from inventory.kinds.usage_metrics import PodUsage, Usage, UsageReport
from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.protocol import ContainerUsage, Runtime

#: The least number of seconds between two samples.
INTERVAL = 15.0
#: The shortest time over which CPU use is reported, for containers that have just started.
LEAST_WINDOW = 1.0
#: Of the machine itself, among the pods' uids.
_MACHINE = ("", "")


@dataclass(frozen=True, slots=True)
class _Samples:
    before: ContainerUsage
    last: ContainerUsage

    def usage(self) -> Usage | None:
        """None for a window that is too short, or a clock that was set back."""
        window = self.last.at - self.before.at
        if window < LEAST_WINDOW:
            return None
        nanos = max(0, self.last.cpu_nanos - self.before.cpu_nanos)
        return Usage(
            at=self.last.at, window=window, cpu_nanos=round(nanos / window), memory_bytes=self.last.memory_bytes
        )


class UsageSampler:
    """pods: those of the node. clock: POSIX seconds; monotonic: for the pace. Thread-safe."""

    def __init__(
        self,
        runtime: Runtime,
        pods: Callable[[], Sequence[Pod]],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runtime = runtime
        self._pods = pods
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._samples: dict[tuple[str, str], _Samples] = {}  # by the pod's uid and the container
        self._due = monotonic()

    def sync(self) -> None:
        """Take a sample if one is due."""
        with self._lock:
            now = self._monotonic()
            if now >= self._due:
                self._due = now + INTERVAL
                self._samples = self._next()

    def report(self) -> UsageReport:
        self.sync()
        with self._lock:
            usages = {key: usage for key, samples in self._samples.items() if (usage := samples.usage()) is not None}
        of_pods: dict[str, dict[str, Usage]] = {}
        for (uid, name), usage in usages.items():
            of_pods.setdefault(uid, {})[name] = usage
        pods = tuple(
            PodUsage(
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=pod.metadata.uid,
                containers=of_pods[pod.metadata.uid],
            )
            for pod in self._pods()
            if pod.metadata.uid in of_pods
        )
        return UsageReport(node=usages.get(_MACHINE), pods=pods)

    def _next(self) -> dict[tuple[str, str], _Samples]:
        machine = self._runtime.machine_usage()
        counts = {} if machine is None else {_MACHINE: machine}
        for uid in self._runtime.pod_uids():
            try:
                counts |= {(uid, name): count for name, count in self._runtime.usage(uid).items()}
            except ContainerFailed:
                continue  # podman does not answer: these figures are left out
        return {key: _Samples(self._before(key, count), count) for key, count in counts.items()}

    def _before(self, key: tuple[str, str], count: ContainerUsage) -> ContainerUsage:
        """The sample before this one; for a container that has none since its start, that."""
        samples = self._samples.get(key)
        if samples is not None and samples.last.started_at == count.started_at and samples.last.at < count.at:
            return samples.last
        return ContainerUsage(at=count.started_at, started_at=count.started_at, cpu_nanos=0, memory_bytes=0)
