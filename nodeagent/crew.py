"""Threads that work on a queue, and others beside them while some of them wait.

A driver may take 45 seconds to say that it cannot; a container may take its time to stop. Whoever works on that waits,
and the pods that have nothing to do with it shall not: a worker that has been at one piece for long does not count,
another takes its place, and leaves again when there are enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic

from nodeagent.workqueue import Key, WorkQueue

#: Seconds at one piece of work after which a worker does not count.
PATIENCE: Final = 0.5


class Crew(Generic[Key]):
    """Works on `queue` until it is closed. Thread-safe.

    size: how many workers there are that are not waiting, or as many as are waiting where that is more: a hundred
    pieces that wait are not to be met four by four. most: how many there are at all. work: does one piece, raises
    nothing. patience, clock: seconds.
    """

    def __init__(
        self,
        queue: WorkQueue[Key],
        work: Callable[[Key], None],
        *,
        size: int,
        most: int,
        name: str,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._work = work
        self._size = size
        self._most = most
        self._name = name
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        self._workers: dict[threading.Thread, float | None] = {}  # -> since when it is at its piece
        self._at_work = threading.Event()  # somebody is
        self._over = threading.Event()

    def run(self) -> None:
        """Keep the crew at strength until `stop`. While nobody is at work, it costs nothing."""
        while not self._over.is_set():
            self.reinforce()
            self._over.wait(self._patience / 2)
            with self._lock:
                if not self._over.is_set() and all(since is None for since in self._workers.values()):
                    self._at_work.clear()
            self._at_work.wait()

    def stop(self) -> None:
        """The workers end when the queue is closed, each after what it is at."""
        with self._lock:
            self._over.set()
            self._at_work.set()

    def join(self, deadline: float) -> None:
        """Wait for those that are still at work, until `deadline` on the monotonic clock."""
        with self._lock:
            workers = list(self._workers)
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))

    def strength(self) -> int:
        """How many workers there are, waiting or not."""
        with self._lock:
            return len(self._workers)

    def reinforce(self) -> None:
        """Add workers for those that wait."""
        with self._lock:
            missing = min(-self._surplus(), self._most - len(self._workers))
            fresh = [threading.Thread(target=self._loop, name=self._name, daemon=True) for _ in range(missing)]
            self._workers.update(dict.fromkeys(fresh))
            for worker in fresh:
                worker.start()

    def _loop(self) -> None:
        me = threading.current_thread()
        while (key := self._queue.get()) is not None:
            with self._lock:
                self._workers[me] = self._clock()
                self._at_work.set()
            try:
                self._work(key)
            finally:
                self._queue.done(key)
            with self._lock:
                self._workers[me] = None
                if self._surplus() > 0:
                    break
        with self._lock:
            self._workers.pop(me, None)

    def _surplus(self) -> int:
        """How many workers there are too many; below 0, too few."""
        now = self._clock()
        waiting = sum(1 for since in self._workers.values() if since is not None and now - since >= self._patience)
        return len(self._workers) - waiting - max(self._size, waiting)
