"""State that a process has once.

`PerProcess` is a value that is made when it is first needed, and again in a forked child: what it holds (threads,
connections, locks) does not survive a fork, so a child never sees its parent's.

`forget_database` drops everything that a process keeps of its database. A module that keeps something registers the
function that drops it:

    _known: dict[str, Policy] = {}

    @on_new_database
    def forget() -> None:
        _known.clear()
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
Forget = TypeVar("Forget", bound=Callable[[], None])

#: in the order of registration
_forgets: list[Callable[[], None]] = []


def on_new_database(forget: Forget) -> Forget:
    """Register the function that drops what a module keeps of the database; usable as a decorator."""
    _forgets.append(forget)
    return forget


def forget_database() -> None:
    """Drop everything that this process keeps of its database, because it has another one from now on."""
    for forget in _forgets:
        forget()


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
