"""Whoever asks about the cluster's state stands in line: one at a time, in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Line:
    """A lock that is handed on in order, so that whoever holds it for long may let others go first (`give_way`)."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: who has the state, and after that who waits for it
        self._standing: deque[object] = deque()

    def __enter__(self) -> None:
        me = object()
        with self._changed:
            self._standing.append(me)
            try:
                self._changed.wait_for(lambda: self._standing[0] is me)
            except BaseException:
                self._standing.remove(me)
                self._changed.notify_all()
                raise

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        with self._changed:
            self._standing.popleft()
            self._changed.notify_all()

    @property
    def somebody_waits(self) -> bool:
        return len(self._standing) > 1

    def give_way(self) -> None:
        """By who has the state: those who wait now go first. Nothing happens where nobody waits."""
        if self.somebody_waits:
            self.__exit__(None, None, None)
            self.__enter__()
