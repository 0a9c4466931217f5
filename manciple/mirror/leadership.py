"""Of several mirrors on one database one copies the cluster: the one that holds a lock of the database's session.

    leadership = Leadership(make_replicator)
    threading.Thread(target=leadership.run)     # copies while it leads, and tries to lead otherwise
    leadership.stop()

The replicator writes in the session that holds the lock, and cannot get another one meanwhile (`coordination.alone`).
So a process that is killed, or cut off from the database, has nothing on its way once another one leads; what it still
hears of the cluster it cannot write. Whoever comes to lead starts as after a restart, with a listing that is compared
with what is stored: nothing is copied twice.

What the cluster answers to a write of a process that does not lead, the one that leads reads by its watch; `keep` waits
for that. So one process writes the copy, whoever acts, and the next page of any of them shows what was done.

With SQLite there is one process, which leads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from django.db import InterfaceError, OperationalError, connection
from prometheus_client.core import Metric

from manciple.controllers import coordination
from manciple.mirror.replicator import KEPT_WITHIN, Replicator
from manciple.mirror.stored_copy import Change, is_kept
from manciple.per_process import PerProcess
from manciple.telemetry import metrics

log = logging.getLogger(__name__)

#: The lock of the process that copies.
LOCK: Final = "mirror"
#: Seconds between two attempts to lead.
TRIED_EVERY: Final = 1.0
#: Seconds without a sign of life after which the thread counts as stuck. One that waits for the database gives some.
STUCK_AFTER: Final = 300.0

#: Seconds between two looks at whether another process has copied something.
KEPT_LOOK: Final = 0.02

#: Whether this process copies; None where it is no mirror.
_leads = PerProcess[bool | None](lambda: None)


class Leadership:
    """Of one process. make: a new replicator for each time that it comes to lead."""

    def __init__(self, make: Callable[[], Replicator]) -> None:
        self._make = make
        self._stopping, self._term = threading.Event(), threading.Event()
        self._replicator: Replicator | None = None
        self._copies = False
        self._seen_at = time.monotonic()
        #: until when nothing is waited for that another process has to copy: the last wait was in vain
        self._late_until = 0.0

    def run(self) -> None:
        """Until `stop`."""
        try:
            while not self._stopping.is_set():
                self._try_to_lead()
                self._stopping.wait(TRIED_EVERY)
        finally:
            _leads.reset()
            connection.close()

    def stop(self) -> None:
        """From any thread."""
        self._stopping.set()
        self._term.set()

    @property
    def has_listed(self) -> bool:
        """Whether this process has listed every kind that may be read."""
        return self._replicator is not None and self._replicator.listed.is_set()

    def keep(self, change: Change) -> bool:
        """What the cluster has just answered; whether it is in the copy now, or something newer. Only the process that
        copies may store it; another one waits until that one has read of it. Not within a transaction.
        """
        replicator = self._replicator
        if replicator is not None and not self._term.is_set():
            return replicator.keep(change)
        deadline = time.monotonic() + (KEPT_WITHIN if time.monotonic() >= self._late_until else 0.0)
        while not is_kept(change):
            if time.monotonic() >= deadline or self._stopping.wait(KEPT_LOOK):
                self._late_until = time.monotonic() + KEPT_WITHIN
                return False
        return True

    @property
    def is_current(self) -> bool:
        """Whether this process copies the cluster, and has listed it."""
        return self._copies and self.has_listed

    @property
    def is_stuck(self) -> bool:
        return time.monotonic() - self._seen_at > STUCK_AFTER

    def _try_to_lead(self) -> None:
        _leads.value, self._seen_at = False, time.monotonic()
        try:
            with coordination.alone(LOCK) as ours:
                if ours:
                    coordination.hand_on_if_unreachable()
                    self._copy()
        except (OperationalError, InterfaceError) as error:
            log.warning("whether this process copies the cluster is not known: %s", error)
            connection.close()
        except Exception:
            log.exception("copying the cluster failed; it is begun again")
            connection.close()

    def _copy(self) -> None:
        self._replicator, self._term = self._make(), threading.Event()
        if self._stopping.is_set():
            return
        log.info("this process copies the cluster")
        _leads.value = self._copies = True
        try:
            self._replicator.run(self._term, may_write=self._still_leads)
        finally:
            self._term.set()
            _leads.value = self._copies = False
        if not self._stopping.is_set():
            log.warning("the session of the database that held the lock is gone: another process copies the cluster")

    def _still_leads(self) -> bool:
        self._seen_at = time.monotonic()
        return coordination.keeps(LOCK)


def is_led() -> bool:
    """Whether any process copies the cluster."""
    return coordination.is_held(LOCK)


def _told() -> Iterator[Metric]:
    if (leads := _leads.value) is not None:
        yield metrics.gauges(
            "manciple_mirror_leads", "1 while this process copies the cluster.", (), [((), float(leads))]
        )


metrics.OnDemand(_told)
