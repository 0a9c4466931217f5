"""Bounds on what input from clients may cost: the time of a thread, and the memory of caches. PURE.

**Time.** Work of a thread that loops over what somebody else wrote calls `check_time`:

    with time_limit(Deadline.after(0.25)):
        check_time()          # raises TimeLimitExceeded once the deadline has passed

Blocks nest: each limit is checked, and may raise an error of its own. Evaluating expressions always has a deadline. The
cost limit decides which of them an object may contain, as in Kubernetes, but it bounds no time: here a unit of cost
takes between a nanosecond and 20 microseconds, so an expression within the limit can run for a second and more. A
deadline is noticed before an expression is compiled or evaluated, and within an evaluation every
`cel.steps.UNITS_PER_LOOK` units of cost. `TimeLimitExceeded` is no `EvaluationError`: no operand absorbs it, and it
must not be cached as a verdict, because the expression was not answered.

**Memory.** `functools.lru_cache` bounds the number of entries, not their size. Where an argument comes from a request,
a client that sends a different text of several megabytes each time would fill the process's memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, update_wrapper
from typing import Any, ParamSpec, Protocol, TypeVar

# Time -----------------------------------------------------------------------------------------------------------------


#: Seconds from any fixed moment; never goes back.
Clock = Callable[[], float]


class Limit(Protocol):
    """Whatever ends work: a Deadline, or what one request may cost."""

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


class TimeLimitExceeded(Exception):  # named after the event, as CostLimitExceeded
    """The deadline passed before there was an answer. deadline: which one, where several were set."""

    def __init__(self, deadline: Limit | None = None) -> None:
        self.message = "evaluation stopped: it took longer than the time allowed"
        super().__init__(self.message)
        self.deadline = deadline


class _Active(threading.local):
    deadlines: tuple[Limit, ...] = ()


_active = _Active()


class time_limit:  # noqa: N801 - a context manager, and a class because each placement pays for it
    """Work of this thread within the block that asks `check_time` raises TimeLimitExceeded once the limit has passed.
    None: no limit but those that are set already.
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


def give_way() -> None:
    """For loops over what is stored that have to be finished: never ends them. The limits look at the clock, so that
    work which takes long pauses for others, and is counted as costly (see `manciple.api.flow_control`).
    """
    for deadline in _active.deadlines:
        _ = deadline.has_passed


# Memory ---------------------------------------------------------------------------------------------------------------


#: Longest text, in characters, that is worth an entry. Names, keys, amounts and ordinary paths are shorter.
LONGEST = 1024

P = ParamSpec("P")
T = TypeVar("T")


def short_text_cache(maxsize: int, *, longest: int = LONGEST) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`lru_cache` by a function's first argument, a text; longer texts are computed each time and not kept.

    The result has to be about as large as the text, or smaller.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        cached: Any = lru_cache(maxsize)(function)
        uncached: Any = function

        def call(text: str, *rest: Any) -> T:
            result: T = (cached if len(text) <= longest else uncached)(text, *rest)
            return result

        return update_wrapper(call, function)  # type: ignore[return-value]  # the first parameter is a text

    return decorate
