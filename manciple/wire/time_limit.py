"""Ends work of a thread that takes too long: whatever loops over what somebody else wrote asks `check_time`.

    with time_limit(limit):
        check_time()          # raises TimeLimitExceeded once the limit has passed

Blocks nest: each limit is asked, and may raise an error of its own.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Limit(Protocol):
    """Whatever ends work: a Deadline, or what one request may cost."""

    @property
    def has_passed(self) -> bool: ...


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
