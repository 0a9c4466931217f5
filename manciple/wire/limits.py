"""Bounds on what input from clients may cost: the time of a thread, and the memory of caches. PURE.

**Time.** Loops over input call `check_time`:

    with time_limit(Deadline.after(0.25)):
        check_time()          # raises TimeLimitExceeded once the deadline has passed

Blocks nest: each limit is checked, and may raise an error of its own. Evaluating expressions always has a deadline. The
cost limit decides which of them an object may contain, as in Kubernetes, but it bounds no time: here a unit of cost
takes between a nanosecond and 20 microseconds, so an expression within the limit can run for a second and more. A
deadline is noticed before an expression is compiled or evaluated, and within an evaluation every
`cel.steps.UNITS_PER_LOOK` units of cost. `TimeLimitExceeded` is no `EvaluationError`: no operand absorbs it, and it
must not be cached as a verdict, because the expression was not answered.

**Memory.** `functools.lru_cache` bounds the number of entries, not their size. A client that sends a different text of
several megabytes with each request would fill the process's memory. `short_text_cache` keeps short texts only.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

# Time -----------------------------------------------------------------------------------------------------------------


#: Seconds from any fixed moment; never goes back.
Clock = Callable[[], float]


class Limit(Protocol):
    """A reason to end work: a Deadline, or the cost of one request."""

    @property
    def next_look(self) -> float:
        """By the monotonic clock: `check_time` does not ask `has_passed` before. A plain attribute."""
        ...

    @property
    def has_passed(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by a clock."""

    at: float
    clock: Clock
    next_look: ClassVar[float] = -math.inf  # its own clock decides

    @classmethod
    def after(cls, seconds: float, *, clock: Clock = time.monotonic) -> Deadline:
        return cls(clock() + seconds, clock)

    @classmethod
    def after_work(cls, seconds: float) -> Deadline:
        """After this much processor time of the calling thread, which must be the one that checks (`work_time`)."""
        return cls.after(seconds, clock=work_time)

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
    #: seconds of processor time for everybody, and since when there is more of it
    aside: float = 0.0
    since: float | None = None


_active = _Active()


def work_time() -> float:
    """The processor time of this thread, in seconds, without what it did `for_everybody`."""
    return (time.thread_time() if _active.since is None else _active.since) - _active.aside


@contextmanager
def for_everybody() -> Iterator[None]:
    """For work that whoever comes next would have to do: it uses up no limit of who happens to come first."""
    if _active.since is not None:
        yield
        return
    _active.since = began = time.thread_time()
    try:
        yield
    finally:
        _active.since = None
        _active.aside += time.thread_time() - began


class time_limit:  # noqa: N801 - a context manager, and a class because each placement pays for it
    """In this block, `check_time` raises TimeLimitExceeded once the limit has passed. None: no new limit."""

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
    if deadlines := _active.deadlines:
        now = time.monotonic()
        for deadline in deadlines:
            if now >= deadline.next_look and deadline.has_passed:
                raise TimeLimitExceeded(deadline)


def time_is_up() -> bool:
    """Whether `check_time` would raise: what was computed here may be incomplete."""
    try:
        check_time()
    except TimeLimitExceeded:
        return True
    return False


def give_way() -> None:
    """For loops over what is stored that have to be finished: never ends them. The limits look at the clock, so that
    work which takes long pauses for others, and is counted as costly (see `manciple.api.flow_control`).
    """
    for deadline in _active.deadlines:
        _ = deadline.has_passed


# Memory ---------------------------------------------------------------------------------------------------------------


#: Longest text, in characters, that is worth an entry. Names, keys, amounts and ordinary paths are shorter.
LONGEST = 1024

#: The first argument: a text or bytes.
Text = TypeVar("Text", str, bytes)
T = TypeVar("T")


class _Cache(dict[Text, T]):
    """A full cache starts over: counting uses would cost each hit more than the misses after a new start."""

    __slots__ = ("_compute", "_longest", "_maxsize")

    def __init__(self, compute: Callable[[Text], T], maxsize: int, longest: int) -> None:
        self._compute: Callable[[Text], T] = compute
        self._maxsize, self._longest = maxsize, longest

    def __missing__(self, text: Text) -> T:
        result = self._compute(text)
        if len(text) <= self._longest:
            if len(self) >= self._maxsize:
                self.clear()
            self[text] = result
        return result


def short_text_cache(maxsize: int, *, longest: int = LONGEST) -> Callable[[Callable[[Text], T]], Callable[[Text], T]]:
    """A cache for a function of one text. The results for longer texts are computed each time and not kept.

    A hit is one look-up in a dict, without a call of Python code. The result has to be about as large as the text, or
    smaller.
    """

    def decorate(function: Callable[[Text], T]) -> Callable[[Text], T]:
        return _Cache(function, maxsize, longest).__getitem__

    return decorate
