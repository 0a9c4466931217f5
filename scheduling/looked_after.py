"""Which revisions need no wake-up, because the controller of this process that writes them looks at them itself.

A controller notes its writes before they are committed; the dispatcher of the same process (`scheduling.dispatch`)
asks. What is not known here costs a run that finds nothing; what is known and left undone, by a process that dies,
waits for the periodic run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from manciple.store.objects import Writer

#: Transactions remembered; a dispatcher asks within milliseconds.
REMEMBERED = 256

#: the names of controllers
Tasks = frozenset[str]
NOBODY: Tasks = frozenset()


class LookedAfter:
    """Stretches of the log, newest last, each with the controllers that need not be woken for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._stretches: deque[tuple[int, int, Tasks]] = deque(maxlen=REMEMBERED)

    def by(self, revision: int) -> Tasks:
        """The controllers that look at `revision` without being told."""
        with self._guard:
            return next((tasks for first, last, tasks in self._stretches if first <= revision <= last), NOBODY)

    @contextmanager
    def noted(self, writer: Writer, tasks: Tasks) -> Iterator[None]:
        """What `writer` writes within is looked after by `tasks`, unless it ends with an exception."""
        before = writer.revision
        yield
        if writer.revision > before:
            with self._guard:
                self._stretches.append((before + 1, writer.revision, tasks))

    def forget(self) -> None:
        with self._guard:
            self._stretches.clear()


#: of this process
looked_after = LookedAfter()
