"""What the guard does between writes: it reads the copy, settles promises, opens and closes incidents.

In a thread of its own, with a connection of its own: no write waits for more of it than for the reading of the copy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from django.db import connections

from manciple.mirror import standing
from manciple.mirror.guard import findings
from manciple.mirror.guard.judging import Guard
from manciple.telemetry import metrics

log = logging.getLogger(__name__)

#: Seconds between two looks at the copy, which keep the next write from waiting for it; of these, until all is kept.
LOOK, KEPT_EVERY = 1.0, 5

PROMISES: Final = metrics.one_gauge(
    "manciple_guard_promises", "Allocations that the guard has admitted, and that the copy does not show yet."
)


def run(guard: Guard, stopping: threading.Event, *, after_look: Callable[[], None]) -> None:
    """Until `stopping` is set. after_look: called whenever the copy was read."""
    looks = 0
    while not stopping.is_set():
        try:
            standing.forget()  # what is known of the copy may be as old as the last look
            guard.look()
            guard.warm()
            if looks % KEPT_EVERY == 0:
                PROMISES.set(guard.settle())
                findings.keep(datetime.now(UTC))
            after_look()
        except Exception:  # the database is away, say: it goes on once that is back
            log.warning("the guard could not look after its promises", exc_info=True)
            connections.close_all()
        looks += 1
        stopping.wait(LOOK)
    connections.close_all()
