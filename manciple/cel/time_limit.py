"""How long expressions may be evaluated: one deadline for everything that a thread evaluates within a block.

    with time_limit(Deadline.after(0.25)):
        selector.matches(device)          # raises TimeLimitExceeded once the deadline has passed

The cost limit decides which expressions an object may contain, as in Kubernetes, but it bounds no time: here a unit of
cost takes between a nanosecond and 20 microseconds, so an expression within the limit can run for a second and more.
Whoever evaluates what somebody else wrote therefore sets a deadline. Blocks nest: the earliest deadline counts. It is
noticed before an expression is compiled or evaluated, and within an evaluation every `UNITS_PER_LOOK` units of cost.

Limits as such are `manciple.wire.time_limit`'s, so that the reading of bodies asks them as well. `TimeLimitExceeded` is
no `EvaluationError`: no operand absorbs it, and nothing may keep it as a verdict, because the expression was not
answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from manciple.wire.time_limit import Limit, TimeLimitExceeded, check_time, time_limit

__all__ = ["UNITS_PER_LOOK", "Clock", "Deadline", "Limit", "TimeLimitExceeded", "check_time", "time_limit"]

#: Seconds from any fixed moment; never goes back.
Clock = Callable[[], float]
#: Units of cost between two looks at the clock: about a millisecond.
UNITS_PER_LOOK = 1_000


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by a clock."""

    at: float
    clock: Clock

    @classmethod
    def after(cls, seconds: float, *, clock: Clock = time.monotonic) -> Deadline:
        return cls(clock() + seconds, clock)

    @classmethod
    def after_work(cls, seconds: float) -> Deadline:
        """After so much processor time of this thread, which alone may ask: time spent by others does not count."""
        return cls.after(seconds, clock=time.thread_time)

    @property
    def has_passed(self) -> bool:
        return self.clock() >= self.at
