"""Locks by name: exact ones for what may take long, striped ones in constant space for what is short."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class NamedLocks:
    """Holding a name excludes every other holder of it, and nobody else, however long it is held."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._entries: dict[str, _Entry] = {}  # of the names that somebody holds or waits for

    @contextmanager
    def hold(self, names: Iterable[str]) -> Iterator[None]:
        """Hold all `names` at once. Always in one order, so two holders never wait for each other; not reentrant."""
        with ExitStack() as held:
            for name in sorted(set(names)):
                held.enter_context(self._hold_one(name))
            yield

    @contextmanager
    def _hold_one(self, name: str) -> Iterator[None]:
        with self._guard:
            entry = self._entries.setdefault(name, _Entry())
            entry.users += 1
        try:
            with entry.lock:
                yield
        finally:
            with self._guard:
                entry.users -= 1
                if not entry.users:
                    del self._entries[name]


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
