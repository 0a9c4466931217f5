"""How far the rehearsals are that a page waits for, and which of them nobody wants any more.

A page names its rehearsal, asks how far it is, and may stop it. Where another process of the server runs it nothing is
known of it here, and the page shows that it goes on without saying how far.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from manciple.per_process import PerProcess

#: Rehearsals that are remembered; of more, the oldest are forgotten.
REMEMBERED = 200

#: (who asked, the name that the page gave it)
Run = tuple[str, str]


class Stopped(Exception):
    """Whoever asked does not want the answer any more."""


@dataclass(slots=True)
class _State:
    placed: int = 0
    stopped: bool = False


class Progress:
    """Of all rehearsals in this process; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[Run, _State] = OrderedDict()

    def begin(self, run: Run) -> None:
        with self._lock:
            self._runs[run] = _State()
            while len(self._runs) > REMEMBERED:
                self._runs.popitem(last=False)

    def tell(self, run: Run, placed: int) -> None:
        """Raises: Stopped."""
        with self._lock:
            state = self._runs.get(run)
            if state is None:
                return
            state.placed = placed
            if state.stopped:
                raise Stopped

    def stop(self, run: Run) -> None:
        """It ends the next time it tells how far it is."""
        with self._lock:
            if run in self._runs:
                self._runs[run].stopped = True

    def placed(self, run: Run) -> int | None:
        """None where nothing is known of it."""
        with self._lock:
            state = self._runs.get(run)
            return state.placed if state else None

    def end(self, run: Run) -> None:
        with self._lock:
            self._runs.pop(run, None)


#: The rehearsals of this process.
progress = PerProcess(Progress)
