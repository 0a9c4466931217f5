"""How long expressions may be evaluated: one deadline for everything that a thread evaluates within a block.

    with time_limit(Deadline.after(0.25)):
        selector.matches(device)          # raises TimeLimitExceeded once the deadline has passed

The cost limit decides which expressions an object may contain, as in Kubernetes, but it bounds no time: here a unit of
cost takes between a nanosecond and 20 microseconds, so an expression within the limit can run for a second and more.
Whoever evaluates what somebody else wrote therefore sets a deadline. Blocks nest: the earliest deadline counts. It is
noticed before an expression is compiled or evaluated, and within an evaluation every `UNITS_PER_LOOK` units of cost.

`TimeLimitExceeded` is no `EvaluationError`: no operand absorbs it, and nothing may keep it as a verdict, because the
expression was not answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from manciple.cel.errors import CelError

#: Seconds from any fixed moment; never goes back.
Clock = Callable[[], float]
#: Units of cost between two looks at the clock: about a millisecond.
UNITS_PER_LOOK = 1_000


class Limit(Protocol):
    """Whatever ends evaluations: a Deadline, or what one request may cost."""

    @property
    def has_passed(self) -> bool: ...


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


class TimeLimitExceeded(CelError):  # named after the event, as CostLimitExceeded
    """The deadline passed before there was an answer. deadline: which one, where several were set."""

    def __init__(self, deadline: Limit | None = None) -> None:
        super().__init__("evaluation stopped: it took longer than the time allowed")
        self.deadline = deadline


class _Active(threading.local):
    deadlines: tuple[Limit, ...] = ()


_active = _Active()


class time_limit:  # noqa: N801 - a context manager, and a class because each placement pays for it
    """Evaluations of this thread within the block raise TimeLimitExceeded once the deadline has passed. None: no limit
    but those that are set already.
    """

    __slots__ = ("_deadline", "_outer")

    def __init__(self, deadline: Limit | None) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        self._outer = outer = _active.deadlines
        if self._deadline is not None:
            _active.deadlines = (*outer, self._deadline)

    def __exit__(self, *_: object) -> None:
        _active.deadlines = self._outer


def check_time() -> None:
    """Raises: TimeLimitExceeded."""
    for deadline in _active.deadlines:
        if deadline.has_passed:
            raise TimeLimitExceeded(deadline)
