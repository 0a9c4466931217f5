"""Process-wide values: the only mechanism for what a process caches or runs once.

A module keeps such a value in a `PerProcess`, never in a plain global:

    _policies = PerProcess(dict[str, Policy])

    def policy_of(name: str) -> Policy | None:
        return _policies.value.get(name)

The value is made on first use. A forked child makes its own, because threads, connections and locks do not survive a
fork. `reset_all` drops every value at once, because the process has another database; tests do this after each test.

Two things are no such values: a registry that is filled while Django starts, and `functools.cache` on a pure function.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class PerProcess(Generic[T]):
    """`PerProcess(make).value` is this process's value; assign to it to replace it.

    stop: ends the threads of a value that `reset` drops.
    """

    #: a plain attribute once it is made: hot paths read it without a call
    value: T

    def __init__(self, make: Callable[[], T], *, stop: Callable[[T], object] | None = None) -> None:
        self._make, self._stop = make, stop
        self._guard = threading.Lock()
        _values[next(_numbers)] = self

    if not TYPE_CHECKING:  # with it, the type checker would know every name

        def __getattr__(self, name: str) -> T:
            """The value, where it is not made yet. No `cached_property`: one lock would serve all values."""
            if name != "value":
                raise AttributeError(name)
            with self._guard:
                if self.is_made:
                    return self.value
                value = self.value = self._make()
                return value

    @property
    def is_made(self) -> bool:
        return "value" in self.__dict__

    def reset(self) -> None:
        """Stop and drop the value; the next use makes a new one."""
        dropped = self._drop()
        if dropped and self._stop is not None:
            self._stop(*dropped)

    def _drop(self) -> tuple[T, ...]:
        """The value, if there was one."""
        self._guard = threading.Lock()
        return (self.__dict__.pop("value"),) if self.is_made else ()


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
