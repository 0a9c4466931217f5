"""When to stop searching: after so many device trials, or when time is up, whichever comes first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

#: Device trials on one node after which a search is given up: some seconds.
DEFAULT_LIMIT = 200_000
#: Seconds for the claims of one pod on all nodes together. Upstream: filterTimeout of the DynamicResources plugin (gate
#: DRASchedulerFilterTimeout), there for each node, of which it looks at many at once.
DEFAULT_TIMEOUT = 10.0
#: Trials between two looks at the clock.
TRIALS_PER_LOOK = 64

#: Seconds from any fixed moment; never goes back.
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by a clock."""

    at: float
    clock: Clock

    @classmethod
    def after(cls, seconds: float, *, clock: Clock = time.monotonic) -> Deadline:
        return cls(clock() + seconds, clock)

    @property
    def has_passed(self) -> bool:
        return self.clock() >= self.at
