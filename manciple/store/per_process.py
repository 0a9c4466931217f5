"""The earlier name of `manciple.per_process`, for modules that are not converted yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from manciple.per_process import PerProcess as _PerProcess
from manciple.per_process import reset_all

__all__ = ["PerProcess", "forget_database", "on_new_database"]

Forget = TypeVar("Forget", bound=Callable[[], None])
_kept = list[_PerProcess[Callable[[], None]]]()


class PerProcess(_PerProcess):  # type: ignore[type-arg]
    def forget(self) -> None:
        self.reset()


def on_new_database(forget: Forget) -> Forget:
    value = _PerProcess[Callable[[], None]](lambda: forget, stop=lambda call: call())
    value()
    _kept.append(value)
    value._drop = lambda: None  # type: ignore[method-assign]
    return forget


forget_database = reset_all
