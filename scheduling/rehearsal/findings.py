"""Caches the results of long rehearsals, also partial ones, as long as the cluster does not change.

A page waits for `BUDGET` seconds at most, and the next one continues from there. Results are dropped after an event
that could change a decision; in a busy cluster an older result is served for a while.
"""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Self, TypeVar

from django.db import connections

from claims.devices.cache import read_devices
from scheduling.allocator import Deadline
from scheduling.metrics import imagined
from scheduling.rehearsal.explanations import Apart, apart_within, cluster, is_known
from scheduling.state.cluster import ClusterState

#: Seconds that a page waits for what is found anew.
BUDGET = 0.25
#: Seconds for which an older answer does where things happen all the time, in multiples of what it took.
REST, REST_AT_LEAST = 10, 3.0
#: Seconds for which it is trusted that nothing happened of which no announcement told.
ANNOUNCED = 1.0
#: Devices of a cluster whose state is read for this while a page waits; that of more is read in the background.
SMALL = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """complete: everything was rehearsed; otherwise there may be more when somebody asks again. outdated: something has
    happened since. It may have been the last thing to happen, so whoever shows these findings asks again.
    """

    complete: bool = True
    outdated: bool = False


_FoundT = TypeVar("_FoundT", bound=Findings)


@dataclass(slots=True, kw_only=True)
class FindingsProgress(ABC, Generic[_FoundT]):
    """What is found out about one state of the cluster. found: of the state before, until there is something new."""

    #: the state itself: where another one is followed by now, nothing of it counts
    of: weakref.ref[ClusterState]
    revision: int
    began: float
    found: _FoundT
    found_all: bool = False
    cost: float = field(default=0.0)

    @abstractmethod
    def go_on(self, copy: Apart, deadline: Deadline) -> None:
        """Find out more, on a copy of the state."""

    @property
    def is_young(self) -> bool:
        return time.monotonic() - self.began < max(REST * self.cost, REST_AT_LEAST)

    @classmethod
    def about(cls, state: ClusterState, found: _FoundT) -> Self:
        return cls(of=weakref.ref(state), revision=state.revision, began=time.monotonic(), found=found)


class RehearsedFindings(Generic[_FoundT]):
    """What is known in this process. One thread at a time finds out more; the others get what is known."""

    #: how it is found out
    progress: ClassVar[type[FindingsProgress]]  # type: ignore[type-arg]  # of this class's own type

    def __init__(self, unknown: _FoundT) -> None:
        """unknown: for as long as nobody knows better."""
        self._working = threading.Lock()
        self._unknown = unknown
        self._progress: FindingsProgress[_FoundT] | None = None

    def read(self, budget: float = BUDGET) -> _FoundT:
        """What is known now; for as long as `budget` seconds more is found out, where that is not all."""
        is_current = False
        if not is_known() and len(read_devices().candidates) > SMALL:
            self._in_background()
        elif self._working.acquire(blocking=False):
            try:
                is_current = self._go_on(budget)
            finally:
                self._working.release()
        known = self._progress
        found = self._unknown if known is None else known.found
        return found if is_current else replace(found, outdated=True)

    def _in_background(self) -> None:
        """The state is read first, which takes long where the cluster is large."""
        if self._working.acquire(blocking=False):
            threading.Thread(target=self._finish, name=type(self).__name__.lower(), daemon=True).start()

    def _finish(self) -> None:
        try:
            with cluster():
                pass
        finally:
            self._working.release()
            connections.close_all()

    def _go_on(self, budget: float) -> bool:
        """Whether the results are complete and current now."""
        began, deadline = time.monotonic(), Deadline.after(budget)
        with cluster(within=ANNOUNCED) as state:
            known = self._progress
            if known is None or known.of() is not state:
                known, is_current = self.progress.about(state, self._unknown), True
            elif not (is_current := _is_current(known, state)) and not known.is_young:
                known, is_current = self.progress.about(state, known.found), True
            if known.found_all:
                return is_current
        with apart_within(budget) as copy, imagined():
            if copy is None:
                return False  # the next call goes on from here
            known.go_on(copy, deadline)
        known.cost += time.monotonic() - began
        self._progress = known
        return is_current and self._progress.found_all


def _is_current(known: FindingsProgress[_FoundT], state: ClusterState) -> bool:
    return state.news_after(known.revision) == []
