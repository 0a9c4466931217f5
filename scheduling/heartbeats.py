"""Signs of life of the processes that run tasks, for the dashboard's health.

A process notes in memory what its tasks did and writes one row at most every few seconds, after a task and outside of
any transaction of its own: placing pods costs it one addition. Nothing is decided by these rows; a process whose row
cannot be written goes on.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import DatabaseError, InterfaceError, transaction

from manciple.store.per_process import PerProcess
from scheduling.coordination import utc_now
from scheduling.models import Heartbeat

log = logging.getLogger(__name__)

#: Seconds between two writes of one process.
EVERY = 5.0
#: What "lately" means, in seconds.
LATELY = 60.0
#: A process that was not seen for this long may be dead: tasks come every second.
SILENT_AFTER = timedelta(seconds=30)
#: One that was not seen for this long is forgotten.
FORGOTTEN_AFTER = timedelta(minutes=10)

#: Counted: tasks (that ran), failed (tasks that raised), attempts (pods tried), placed (pods that found a node).
TASKS, FAILED, ATTEMPTS, PLACED = "tasks", "failed", "attempts", "placed"

Monotonic = Callable[[], float]
Now = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What was done until a write."""

    until: float
    done: Counter[str]


class Heart:
    """Of one process. `beat` may be called from any thread."""

    def __init__(self, name: str, *, kind: str = "worker", clock: Monotonic = time.monotonic, now: Now = utc_now):
        self.name, self.kind = name, kind
        self._clock, self._now = clock, now
        self._guard = threading.Lock()
        self._started = now()
        self._written: float | None = None
        self._current: Counter[str] = Counter()
        self._past: deque[_Stretch] = deque()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around one task."""
        try:
            yield
        except BaseException:
            self.did(**{TASKS: 1, FAILED: 1})
            self.beat()
            raise
        self.did(**{TASKS: 1})
        self.beat()

    def did(self, **counts: int) -> None:
        with self._guard:
            for name, count in counts.items():
                self._current[name] += count

    def beat(self) -> bool:
        """Write the sign of life, if it is time. Returns whether it was."""
        with self._guard:
            at = self._clock()
            if self._written is not None and at - self._written < EVERY:
                return False
            first, self._written = self._written is None, at
            lately = self._lately(at)
        try:
            self._write(lately, first=first)
        except (DatabaseError, InterfaceError):
            log.warning("the sign of life of %s could not be written", self.name, exc_info=True)
        return True

    def stop(self) -> None:
        """This process ends on purpose: nobody need miss it."""
        try:
            Heartbeat.objects.filter(name=self.name).delete()
        except (DatabaseError, InterfaceError):
            log.warning("the sign of life of %s could not be removed", self.name, exc_info=True)

    def _lately(self, at: float) -> dict[str, int]:
        """What was done in the last minute, as a row tells it."""
        self._past.append(_Stretch(at, self._current))
        self._current = Counter()
        while self._past[0].until <= at - LATELY:
            self._past.popleft()
        total: Counter[str] = Counter()
        for stretch in self._past:
            total.update(stretch.done)
        return {name: total[name] for name in (TASKS, FAILED, ATTEMPTS, PLACED)}

    def _write(self, lately: dict[str, int], *, first: bool) -> None:
        values = {"kind": self.kind, "started_at": self._started, "seen_at": self._now(), "lately": lately}
        with transaction.atomic():
            if Heartbeat.objects.filter(name=self.name).update(**values):
                return
            Heartbeat.objects.bulk_create([Heartbeat(name=self.name, **values)], ignore_conflicts=True)
        if first:
            forget_dead_neighbours(self.name)


def name_of_process() -> str:
    """HOST-PID."""
    return f"{os.uname().nodename}-{os.getpid()}"[-128:]


def forget_dead_neighbours(own: str) -> int:
    """Forget the processes of this machine that are gone: the caller has just been started in their place."""
    host = f"{os.uname().nodename}-"
    rows = Heartbeat.objects.filter(name__startswith=host).exclude(name=own).values_list("name", flat=True)
    dead = [name for name in rows if name.removeprefix(host).isdigit() and not _lives(int(name.removeprefix(host)))]
    return Heartbeat.objects.filter(name__in=dead).delete()[0]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def forget_stale(now: datetime) -> int:
    """Forget who was silent for long."""
    return Heartbeat.objects.filter(seen_at__lt=now - FORGOTTEN_AFTER).delete()[0]


heart = PerProcess(lambda: Heart(name_of_process()))


def stop() -> None:
    """See `Heart.stop`; of this process."""
    heart().stop()
    heart.forget()
