"""What rehearsals find out about the cluster's state, as far as they have come: kept for as long as nothing happens.

A page waits for `BUDGET` seconds at most, and the next one goes on from there. What is found is kept until something
happens that a decision could lean on; where things happen all the time an older answer does for a while.
"""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from django.db import connections

from claims.devices.cache import read_devices
from scheduling.allocator import Deadline
from scheduling.capture import ClusterState
from scheduling.explanations.current import Apart, apart_within, cluster, is_known
from scheduling.scheduler_metrics import imagined

#: Seconds that a page waits for what is found anew.
BUDGET = 0.25
#: Seconds for which an older answer does where things happen all the time, in multiples of what it took.
REST, REST_AT_LEAST = 10, 3.0
#: Seconds for which it is trusted that nothing happened of which no announcement told.
ANNOUNCED = 1.0
#: Devices of a cluster whose state is read for this while a page waits; that of more is read in the background.
SMALL = 2_000

_FoundT = TypeVar("_FoundT")


@dataclass(slots=True, kw_only=True)
class FindingsProgress(ABC, Generic[_FoundT]):
    """What is found out about one state of the cluster. found: of the state before, until there is something new."""

    #: the state itself: where another one is followed by now, nothing of it counts
    of: weakref.ref[ClusterState]
    revision: int
    began: float
    found: _FoundT
    found_all: bool = False
    #: something has happened since; it does for a while all the same
    outdated: bool = False
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
    """What is known in this process. One thread at a time finds out more; the others get what is known.

    What is found is a dataclass that says whether it is `complete`: not where an older answer does for a while.
    """

    #: how it is found out
    progress: ClassVar[type[FindingsProgress]]  # type: ignore[type-arg]  # of this class's own type

    def __init__(self, unknown: _FoundT) -> None:
        """unknown: for as long as nobody knows better."""
        self._working = threading.Lock()
        self._unknown = unknown
        self._progress: FindingsProgress[_FoundT] | None = None

    def read(self, budget: float = BUDGET) -> _FoundT:
        """What is known now; for as long as `budget` seconds more is found out, where that is not all."""
        if not is_known() and len(read_devices().candidates) > SMALL:
            self._in_background()
        elif self._working.acquire(blocking=False):
            try:
                self._go_on(budget)
            finally:
                self._working.release()
        known = self._progress
        if known is None:
            return self._unknown
        # Who shows an older answer has to ask again: what happened meanwhile may have been the last that happens.
        return cast("_FoundT", replace(cast("Any", known.found), complete=False)) if known.outdated else known.found

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

    def _go_on(self, budget: float) -> None:
        began, deadline = time.monotonic(), Deadline.after(budget)
        with cluster(within=ANNOUNCED) as state:
            known = self._progress
            of_state = known is not None and known.of() is state
            outdated = known is not None and not (of_state and _is_current(known, state))
            if known is None or not of_state or (outdated and not known.is_young):
                known = self.progress.about(state, known.found if known is not None and of_state else self._unknown)
            elif known.found_all:
                known.outdated = outdated
                return
        with apart_within(budget) as copy, imagined():
            if copy is None:
                return  # whoever asks next goes on from here
            known.go_on(copy, deadline)
        known.cost += time.monotonic() - began
        self._progress = known


def _is_current(known: FindingsProgress[_FoundT], state: ClusterState) -> bool:
    return state.news_after(known.revision) == []
