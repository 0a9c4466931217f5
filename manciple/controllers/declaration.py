"""What a controller is: one `Controller`, declared in the controller's own module below what it does.

    CONTROLLER = Controller(
        name="sweep_pods",
        does="removes pods whose node is gone",
        reconcile=sweep,
        every=20,
        wakes_on=frozenset({(NODES, DELETED)}),
    )

Nothing else names it: `controllers` finds the declarations, of which Celery's tasks and routes and the dispatcher's
tables of wake-ups and intervals are made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

from django.apps import apps
from django.conf import settings

from inventory.kinds import gates
from manciple.per_process import PerProcess
from manciple.store import sql

#: Beside the types of events (`manciple.wire.resources`), what a modification amounts to: the object is being deleted,
#: the pod has ended or has a node.
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
    #: added to `wakes_on` when the process starts, for changes that depend on feature gates
    also_wakes_on: Callable[[], frozenset[Change]] = frozenset
    #: whether it runs in a mirror of another cluster too: only what writes no object of the API may
    in_mirror: bool = False
    queue: Queue = Queue.SWEEPS
    #: one at a time in the whole cluster; who comes second returns at once
    singleton: bool = True
    #: a query for one value, whether there may be anything for it to do: where there is not, changes do not wake it
    has_work: sql.Query | None = None
    #: that query tells all: without work it is not woken in its interval either
    rests_without_work: bool = False
    #: those of `wakes_on` that are work for certain: they wake it without that query. Where it rests without work, all
    #: that can end that, or none
    is_work: frozenset[Change] = frozenset()
    #: a moment of the monotonic clock -> until when only changes give it work, as POSIX seconds, by a run here
    #: that began since then and left nothing; 0.0 where there was none, or something has happened. Until that time its
    #: interval is longer
    rests_until: Callable[[float], float] = lambda _since: 0.0
    #: seconds for which changes may wait to wake it: what they leave to do is mostly done by others meanwhile
    patience: float = 0.0
    #: objects changed in one run; as many mean that there may be more, and it asks for itself again. 0: it does it all
    most_per_turn: int = 0
    #: whether the last run stopped early, so that other controllers get the thread; it then asks for itself again
    has_more: Callable[[], bool] = lambda: False
    #: the feature gate that it is a part of; there is no such controller while that is off
    gate: str = ""
    #: the name of its work queue in metrics: its own, unless kube-controller-manager's is another
    queue_name: str = ""
    #: of the lock that a singleton holds while it runs: its own name, unless others hold it, too
    lock: str = ""
    #: the lock of others that it takes during its run; afterwards it asks for those that were refused it meanwhile
    also_locks: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "queue_name", self.queue_name or self.name)
        object.__setattr__(self, "lock", self.lock or self.name)

    @property
    def pending_for(self) -> float:
        """Seconds for which a message may wait for a thread; after that it is out of date, and another may be sent."""
        return 3.0 if self.queue is Queue.SCHEDULING else 15.0


#: Seconds of rest between two batches, at most.
LONGEST_REST = 0.25

T = TypeVar("T")


def batches(values: Iterable[T], size: int, *, rest: float = 1.0) -> Iterator[list[T]]:
    """`values`, so many at a time; before the next come, it rests for as long as the last ones took, times `rest`."""
    began = None
    for batch in sql.chunks(values, size):
        if began is not None:
            time.sleep(min((time.monotonic() - began) * rest, LONGEST_REST))
        began = time.monotonic()
        yield batch


def enabled() -> tuple[Controller, ...]:
    """All whose features are on, those that pods wait for first. Django's apps must be ready.

    In a mirror only those that leave its objects as they are.
    """
    declared = (
        one
        for one in discover(declaring())
        if (one.in_mirror or not settings.MIRROR) and (not one.gate or gates.enabled(one.gate))
    )
    return tuple(replace(one, wakes_on=one.wakes_on | one.also_wakes_on()) for one in declared)


controllers = PerProcess(enabled)


def declaring() -> list[str]:
    """The modules, and packages of modules, that declare controllers: each app names its own, as `controllers`."""
    return [name for app in apps.get_app_configs() for name in getattr(app, "controllers", ())]


def discover(names: Iterable[str]) -> tuple[Controller, ...]:
    """Those of the modules, and of the modules of the packages. Raises: ValueError where two have one name."""
    found: dict[str, Controller] = {}
    for name in names:
        top = import_module(name)
        inner = (import_module(f"{name}.{module.name}") for module in iter_modules(getattr(top, "__path__", ())))
        for module in (top, *inner):
            for value in vars(module).values():
                if isinstance(value, Controller) and found.setdefault(value.name, value) is not value:
                    raise ValueError(f"two controllers are named {value.name}")
    return tuple(sorted(found.values(), key=lambda one: (one.queue is not Queue.SCHEDULING, one.name)))


# What Celery is told -------------------------------------------------------------------------------------------------


_TASKS = "scheduling.tasks."  # as the first releases named them: workers of two versions share a broker


def task_name(controller: str) -> str:
    """The name under which Celery knows a controller."""
    return f"{_TASKS}{controller}"


def controller_name(task: str) -> str:
    """Whose task it is, in whatever version; "" where it is no controller's."""
    return task.removeprefix(_TASKS) if task.startswith(_TASKS) else ""


def task_routes(controllers: Iterable[Controller]) -> dict[str, dict[str, str]]:
    """Celery's task_routes."""
    return {task_name(one.name): {"queue": one.queue.value} for one in controllers}
