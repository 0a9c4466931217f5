"""One flush of a directory serves all who wait for one.

A flush makes durable whatever was changed before it began, by whomever. So whoever comes while one is under way waits
for the next, together with all others who came meanwhile, and one of them does it: under load a node flushes as often
as its disk can, not as often as it has claims.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class _Flush:
    done: bool = False
    error: OSError | None = None


@dataclass(slots=True)
class _Place:
    under_way: _Flush | None = None
    #: not begun; those who wait share it
    next: _Flush | None = None


class SharedFlushes:
    """Thread-safe. Places are remembered: an agent has few."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._places: dict[str, _Place] = {}

    def flush(self, name: str, act: Callable[[], None]) -> None:
        """Return after an `act` for `name`, one's own or another caller's, that began after this call.

        Raises: OSError, for everyone whom the `act` that failed was to serve.
        """
        with self._changed:
            place = self._places.setdefault(name, _Place())
            mine = place.next = place.next or _Flush()
            while place.under_way and not mine.done:
                self._changed.wait()
            leads = not mine.done
            if leads:
                place.under_way, place.next = mine, None
        if leads:
            self._do(place, mine, act)
        if mine.error is not None:
            raise mine.error

    def _do(self, place: _Place, flush: _Flush, act: Callable[[], None]) -> None:
        flush.error = OSError("the flush was cut short")
        try:
            act()
            flush.error = None
        except OSError as error:
            flush.error = error
        finally:
            with self._changed:
                flush.done, place.under_way = True, None
                self._changed.notify_all()
