"""What a controller is: one `Controller`, declared in the controller's own module below what it does.

    CONTROLLER = Controller(
        name="sweep_pods",
        does="removes pods whose node is gone",
        reconcile=sweep,
        every=20,
        wakes_on=frozenset({(NODES, DELETED)}),
    )

Nothing else names it: `registry` finds the declarations, and Celery's tasks, queues and routes, beat's schedule and the
dispatcher's table of wake-ups are made of what it found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from scheduling import hints

ADDED, MODIFIED, DELETED = hints.ADDED, hints.MODIFIED, hints.DELETED
#: What a modification amounts to, where that can be told: the object is being deleted, the pod has ended or has a node.
DELETING, FINISHED, BOUND = "DELETING", "FINISHED", "BOUND"
#: In place of a resource: whichever. Only deletions are told of every resource.
ANY = "*"

#: (resource, what happened to it)
Change = tuple[str, str]


class Queue(StrEnum):
    """Each has its own list in the broker and its own threads in every worker: neither can fill the other's."""

    SCHEDULING = "scheduling"  #: pods wait for it: claims, placement, release
    SWEEPS = "sweeps"  #: everything that may take its time


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Compares what is with what should be, and writes the difference.

    `reconcile(now)` works from the current state and is idempotent; it returns how many objects it changed. A message
    that asks for it carries nothing, and losing one costs at most `every` seconds.
    """

    name: str
    #: what it does, in the third person: `manage.py controllers` prints it
    does: str
    reconcile: Callable[[datetime], int]
    #: seconds between two runs that nobody asked for
    every: float
    #: what may give it work before that
    wakes_on: frozenset[Change] = frozenset()
    queue: Queue = Queue.SWEEPS
    #: one at a time in the whole cluster; who comes second returns at once
    singleton: bool = True
    #: names of controllers whose work it does as well: what wakes both is sent to this one alone
    covers: frozenset[str] = frozenset()
    #: objects changed in one run; as many mean that there may be more, and it asks for itself again. 0: it does it all
    most_per_turn: int = 0

    @property
    def pending_for(self) -> float:
        """Seconds for which a message may wait for a thread; after that it is out of date, and another may be sent."""
        return 3.0 if self.queue is Queue.SCHEDULING else 15.0
