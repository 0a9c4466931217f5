"""A value of which each process has one: made when it is first asked for, and anew in a forked child.

What it holds (threads, connections, locks) does not survive a fork, so a child never sees its parent's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """`PerProcess(make)()` is this process's value."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def __call__(self) -> T:
        if made := self._made:  # asked all the time, and made once
            return made[0]
        with self._guard:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]

    def forget(self) -> None:
        """The next one who asks gets a new one."""
        self._guard = threading.Lock()
        self._made: list[T] = []
