"""Room for the frames of Python's functions, so that no loop makes and unmakes it.

CPython (from 3.11) keeps the frames of a thread in chunks of 16 KB. It asks the system for a chunk when a call needs
one, and gives it back when that call ends. In a loop whose calls cross the end of a chunk each of them costs two system
calls and a fault of a page: a tenth of the time of our pages. A frame that says it needs more than a chunk gets a chunk
of its own, of a power of two: what it calls has the rest. Memory that nobody has used yet costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: Of 8 bytes: a little more than half of a chunk of 1 MB.
_SLOTS = 70_000


def with_room(call: Callable[P, R], *args: P.args, **keywords: P.kwargs) -> R:
    """What the call returns; in it, the frames of this thread have room."""
    return call(*args, **keywords)


def make_room_in_threads() -> None:
    """Gives the frames of each thread room that starts from now on."""
    run = threading.Thread.run
    run.__code__ = run.__code__.replace(co_stacksize=_SLOTS)


with_room.__code__ = with_room.__code__.replace(co_stacksize=_SLOTS)
