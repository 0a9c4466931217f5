"""Reading the event log on behalf of a controller, from where its last reader stopped.

A follower's cursor is a row; whoever advances it holds a short lease on it, so that workers share the work rather than
repeat it. The lease is no lock: when it expires under a slow or dead worker, two may look at the same events, which is
harmless because looking is idempotent. One that could not be given back, because the database went away, is free for
every thread of its process. The controllers are singletons: whose message comes while one is at work leaves word, and
it is asked again (`scheduling.tasks`); a message that is lost costs no more than the time until the periodic run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import InterfaceError, OperationalError
from django.db.models import Q

from manciple.store import tail
from manciple.store.records import EventRecord
from manciple.wire.errors import Expired
from scheduling.models import Cursor

#: Events looked at under one lease.
BATCH = 500
LEASE = timedelta(seconds=15)
#: Of `Cursor.worker`.
NAME_LENGTH = 64

Clock = Callable[[], datetime]

#: (follower, worker) of leases of this process that nobody uses and that stand in the database still
_abandoned: set[tuple[str, str]] = set()


def utc_now() -> datetime:
    return datetime.now(UTC)


def worker_name() -> str:
    """Who we are: unique among the threads that are alive, on one machine."""
    return f"{os.uname().nodename}-{os.getpid()}-{threading.get_ident()}"[-NAME_LENGTH:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A controller's reader of the log."""

    name: str
    resources: frozenset[str]
    #: looks at what these events point to; returns how many objects it changed
    look: Callable[[Sequence[EventRecord]], int]
    #: looks at everything: at the first start, and when the log was pruned past the cursor
    sweep: Callable[[datetime], int]

    def follow(self, clock: Clock = utc_now) -> int:
        """Look at all that has happened since the last time, up to now. Returns how many objects were changed.

        What happens meanwhile, its own writes included, is left for the next time: where much happens, a batch then
        has much in it.
        """
        changed, reached, latest = 0, self._position(), tail.latest_revision()
        while reached < latest and self._acquire(reached, clock()):
            try:
                reached, count = self._step(reached, clock())
                changed += count
            finally:
                self._release(reached)
        return changed

    def _position(self) -> int:
        cursor, _ = Cursor.objects.get_or_create(name=self.name)
        return cursor.revision

    def _acquire(self, position: int, now: datetime) -> bool:
        """Lease the cursor, which stands at `position`. False while somebody else has it, or where it has moved."""
        abandoned = {one for one in _abandoned.copy() if one[0] == self.name}
        usable = {worker_name(), *(worker for _, worker in abandoned)}
        free = Q(leased_until=None) | Q(leased_until__lt=now) | Q(worker__in=usable)
        found = Cursor.objects.filter(free, name=self.name, revision=position)
        ours = bool(found.update(worker=worker_name(), leased_until=now + LEASE))
        if ours:
            _abandoned.difference_update(abandoned)
        return ours

    def _step(self, position: int, now: datetime) -> tuple[int, int]:
        """(how far the log is looked at now, how many objects changed)."""
        try:
            latest, records = tail.read_on(position, resources=self.resources, limit=BATCH)
        except Expired:
            position = 0
        if position == 0:
            latest = tail.latest_revision()
            return latest, self.sweep(now)
        changed = self.look(records) if records else 0
        return records[-1].revision if len(records) == BATCH else latest, changed

    def _release(self, reached: int) -> None:
        try:
            held = Cursor.objects.filter(name=self.name, worker=worker_name(), revision__lte=reached)
            held.update(revision=reached, worker="", leased_until=None)
        except (OperationalError, InterfaceError):
            _abandoned.add((self.name, worker_name()))
            raise
