"""Keys to look at, each by one worker at a time, some later than now.

A key that is added again while a worker looks at it is looked at once more afterwards, so no change is missed and no
two workers touch the same pod. Failures wait twice as long each time. Modelled on client-go's workqueue.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """A delaying, deduplicating queue. `clock` is monotonic seconds."""

    def __init__(
        self, *, first_delay: float = 0.2, longest_delay: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._clock = clock
        self._condition = threading.Condition()
        self._ready: deque[Key] = deque()
        self._wanted: set[Key] = set()  # to be looked at: in _ready, or as soon as the worker on it is done
        self._busy: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._later: list[tuple[float, int, Key]] = []  # heap of (due, tie-break, key)
        self._due: dict[Key, float] = {}  # the earliest due time of each delayed key
        self._ticket = itertools.count()
        self._closed = False
        self._retries = 0

    def add(self, key: Key) -> None:
        with self._condition:
            self._add(key)
            self._condition.notify()

    def add_after(self, key: Key, seconds: float) -> None:
        """Look at `key` in `seconds`, or earlier if it is due earlier already."""
        with self._condition:
            due = self._clock() + seconds
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._later, (due, next(self._ticket), key))
                self._condition.notify()

    def retry(self, key: Key) -> float:
        """Look at a key again that just failed; returns in how many seconds."""
        with self._condition:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._retries += 1
        seconds = min(self._first_delay * 2.0 ** (failures - 1), self._longest_delay)
        self.add_after(key, seconds)
        return seconds

    def counts(self) -> tuple[int, int]:
        """(keys that wait for a worker, retries since the start)"""
        with self._condition:
            return len(self._ready), self._retries

    def forget(self, key: Key) -> None:
        """`key` went well: its next failure waits the shortest time again."""
        with self._condition:
            self._failures.pop(key, None)

    def get(self) -> Key | None:
        """The next key, blocking until there is one; None once the queue is closed. Call `done` afterwards."""
        with self._condition:
            while not self._closed:
                timeout = self._promote()
                if self._ready:
                    key = self._ready.popleft()
                    self._wanted.discard(key)
                    self._busy.add(key)
                    return key
                self._condition.wait(timeout)
            return None

    def done(self, key: Key) -> None:
        with self._condition:
            self._busy.discard(key)
            if key in self._wanted:
                self._ready.append(key)
                self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _add(self, key: Key) -> None:
        if key not in self._wanted:
            self._wanted.add(key)
            if key not in self._busy:
                self._ready.append(key)

    def _promote(self) -> float | None:
        """Make due keys ready; returns the seconds until the next one is due, None if none is waiting."""
        while self._later:
            due, _, key = self._later[0]
            remaining = due - self._clock()
            if remaining > 0:
                return remaining
            heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self._add(key)
        return None
