"""Locks by name, in constant space."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager


class StripedLocks:
    """Holding a name excludes every other holder of it. Two names may share a lock, which only costs waiting."""

    def __init__(self, stripes: int = 64) -> None:
        self._locks = [threading.Lock() for _ in range(stripes)]

    @contextmanager
    def hold(self, names: Iterable[str]) -> Iterator[None]:
        """Hold all `names` at once. Always in one order, so two holders never wait for each other; not reentrant."""
        with ExitStack() as held:
            for index in sorted({hash(name) % len(self._locks) for name in names}):
                held.enter_context(self._locks[index])
            yield
