"""Process-wide values: the only mechanism for what a process caches or runs once.

A module keeps such a value in a `PerProcess`, never in a plain global:

    _policies = PerProcess(dict[str, Policy])

    def policy_of(name: str) -> Policy | None:
        return _policies().get(name)

The value is made on first use. A forked child makes its own, because threads, connections and locks do not survive a
fork. `reset_all` drops every value at once, because the process has another database; tests do this after each test.

Two things are no such values: a registry that is filled while Django starts, and `functools.cache` on a pure function.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class PerProcess(Generic[T]):
    """`PerProcess(make)()` is this process's value. stop: ends the threads of a value that `reset` drops."""

    def __init__(self, make: Callable[[], T], *, stop: Callable[[T], object] | None = None) -> None:
        self._make, self._stop = make, stop
        self._guard = threading.Lock()
        self._value: tuple[T] | tuple[()] = ()
        _values[next(_numbers)] = self

    def __call__(self) -> T:
        if value := self._value:  # without the lock: this is called on hot paths
            return value[0]
        with self._guard:
            self._value = value = self._value or (self._make(),)
            return value[0]  # another thread may reset it

    def set(self, value: T) -> None:
        """Replace the value as a whole."""
        self._value = (value,)

    @property
    def is_made(self) -> bool:
        return bool(self._value)

    def reset(self) -> None:
        """Stop and drop the value; the next use makes a new one."""
        value = self._value
        self._drop()
        if value and self._stop is not None:
            self._stop(value[0])

    def _drop(self) -> None:
        self._guard, self._value = threading.Lock(), ()


#: In the order in which they were declared. Weak: followers that a test makes end with the test.
_values: WeakValueDictionary[int, PerProcess[Any]] = WeakValueDictionary()
_numbers = count()


def every() -> Iterator[PerProcess[Any]]:
    return iter([value for _, value in sorted(_values.items())])


def reset_all() -> None:
    """Drop every value of this process: from now on it has another database."""
    for value in every():
        value.reset()


def _drop_in_child() -> None:
    for value in every():
        value._drop()


os.register_at_fork(after_in_child=_drop_in_child)
