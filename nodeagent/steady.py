"""How long ago containers started and ended, whatever is done to the machine's clock meanwhile.

A runtime tells times of the wall clock. Somebody may set that clock, a day ahead or back, while a container waits for
its restart; the wait is a duration, and lasts as long as it should. So when a start or an end is seen for the first
time, the steady clock is noted beside it, and from then on only that one counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from nodeagent.runtimes.protocol import ContainerRun

#: Seconds by which the clocks may drift apart before it counts: slewing is no jump.
DRIFT = 1.0


@dataclass(slots=True)
class _Seen:
    """One attempt at a container. Steady seconds."""

    attempt: int
    started: float
    finished: float | None = None


class SteadyRuns:
    """Remembers what it has seen of each pod's containers. Thread-safe.

    clock: POSIX seconds, as the runtime's. monotonic: seconds that nobody can set.
    """

    def __init__(self, *, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, _Seen]] = {}

    def corrected(self, pod_uid: str, runs: Mapping[str, ContainerRun]) -> dict[str, ContainerRun]:
        """`runs` with the times that they would have if the clock had always stood as it stands now."""
        now, steady = self._clock(), self._monotonic()
        with self._lock:
            seen = self._pods.setdefault(pod_uid, {})
            return {name: _corrected(run, _note(seen, run, now, steady), now, steady) for name, run in runs.items()}

    def forget(self, pod_uid: str) -> None:
        with self._lock:
            self._pods.pop(pod_uid, None)


def _note(seen: dict[str, _Seen], run: ContainerRun, now: float, steady: float) -> _Seen:
    known = seen.get(run.name)
    if known is None or known.attempt != run.attempt:
        known = seen[run.name] = _Seen(run.attempt, steady - max(0.0, now - run.started_at))
    if run.finished_at is not None and known.finished is None:
        known.finished = max(known.started, steady - max(0.0, now - run.finished_at))
    return known


def _corrected(run: ContainerRun, seen: _Seen, now: float, steady: float) -> ContainerRun:
    started = _time(run.started_at, now - (steady - seen.started))
    if run.finished_at is None or seen.finished is None:
        return replace(run, started_at=started)
    return replace(run, started_at=started, finished_at=_time(run.finished_at, now - (steady - seen.finished)))


def _time(told: float, reckoned: float) -> float:
    return told if abs(told - reckoned) <= DRIFT else reckoned
