"""What a process does about its memory: Python's garbage collector, and once a minute its housekeeping.

**Cycles.** Starts, requests and tasks wait for the collector, so it runs seldom. Nearly all that they drop is freed by
its count of references. With Python's own thresholds the collector took a tenth of their time, in pauses of up to 90
ms.

**Housekeeping.** Parts of a process drop what nobody has used for long (`each_minute`). Then the allocator gives the
system what is free: by itself it keeps every page below the last one in use, which after a flood of objects is most of
what they took.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from manciple.per_process import PerProcess

log = logging.getLogger(__name__)

#: New objects after which the young ones are looked at (Python: 700), and how many times until those that were kept
#: are looked at again (Python: 10). Freeing the cycles among 20,000 takes 30 ms, in which no request is answered.
YOUNG, OLDER = 5_000, 40
#: Seconds between two rounds of housekeeping.
EVERY = 60.0
#: Bytes that have become free since the system was given some last, from which on it is given more.
WORTH_IT = 16 << 20

Step = TypeVar("Step", bound=Callable[[], None])
_steps: list[Callable[[], None]] = []


def start() -> None:
    """Called before a program loads its modules: looking through them again and again took a sixth of its start."""
    if gc.get_threshold()[0] < YOUNG:
        gc.set_threshold(YOUNG, OLDER)


def settle() -> None:
    """Once all is loaded: that stays, and is never looked at again; what comes is looked at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER)
    housekeeping.value  # noqa: B018 - starts it


# Housekeeping ---------------------------------------------------------------------------------------------------------


def each_minute(step: Step) -> Step:
    """Let it drop what is not needed any more; usable as a decorator."""
    _steps.append(step)
    return step


class Housekeeping:
    """Of one process, in a thread of its own until it is stopped."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        #: bytes that were free at the least since the system was given some
        self._least = 0
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def tidy(self) -> None:
        """One round."""
        for step in _steps:
            try:
                step()
            except Exception:
                log.exception("housekeeping: %s failed", getattr(step, "__qualname__", step))
        free = free_bytes()
        if free is None or free - self._least >= WORTH_IT:
            give_back()
            self._least = free or 0
        else:
            self._least = min(self._least, free)

    def _run(self) -> None:
        while not self._stopping.wait(EVERY):
            self.tidy()


def _started() -> Housekeeping:
    started = Housekeeping()
    started.start()
    return started


housekeeping = PerProcess(_started, stop=Housekeeping.stop)


# The allocator of the C library, of which only glibc's can be asked ---------------------------------------------------


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


_library = ctypes.CDLL(None)


def free_bytes() -> int | None:
    """What the allocator keeps for later, in all of its arenas, whether the system has the pages or not; None where it
    does not tell.
    """
    if (ask := getattr(_library, "mallinfo2", None)) is None:
        return None
    ask.restype = _Mallinfo
    return int(ask().fordblks)


def give_back() -> None:
    """Give the system the pages that are free."""
    if (trim := getattr(_library, "malloc_trim", None)) is not None:
        trim(0)
