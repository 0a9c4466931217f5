"""What Celery runs. A message only says "look": it names a task and carries nothing, and losing one loses nothing.

Every task is idempotent and may run in any number of workers at once.
"""

from __future__ import annotations

import functools
import os
import threading
import uuid
from collections.abc import Callable

from celery import shared_task
from celery.signals import worker_process_shutdown

from scheduling import heartbeats, usage
from scheduling.controllers import claims, garbage, namespaces, node_lifecycle, podgc, pruning, reservations
from scheduling.controllers.followers import utc_now
from scheduling.cycle import SchedulingWorker
from scheduling.looked_after import looked_after


def task(look: Callable[[], None]) -> Callable[[], None]:
    """Register `look` with Celery under its own name (Celery's decorator has no types). A look is a sign of life."""

    @functools.wraps(look)
    def living() -> None:
        with heartbeats.heart().look():
            look()

    registered: Callable[[], None] = shared_task(living)
    return registered


def _process_ends(**_signal: object) -> None:
    """A forked worker process that ends on purpose is not missed."""
    heartbeats.stop()


worker_process_shutdown.connect(_process_ends)


class _Process:
    """The scheduling worker of this process; a forked child makes its own."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._worker: SchedulingWorker | None = None

    def worker(self) -> SchedulingWorker:
        with self._guard:
            if self._worker is None:
                name = f"{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
                self._worker = SchedulingWorker(name[-64:], utc_now)
            return self._worker

    def forget(self) -> None:
        self._guard = threading.Lock()
        self._worker = None


_process = _Process()
os.register_at_fork(after_in_child=_process.forget)


def forget_process() -> None:
    """Give up what this process knows of the cluster; used where its database is another one from now on."""
    _process.forget()
    looked_after.forget()


@task
def schedule() -> None:
    """Place the pods that are ready."""
    _place()


@task
def sync_claims() -> None:
    """Make the claims that new pods ask for by template, and place these pods."""
    claims.FOLLOWER.follow()
    _place()


def _place() -> None:
    report = _process.worker().run()
    heartbeats.heart().did(attempts=report.taken, placed=report.placed)


@task
def release_claims() -> None:
    """Take back what finished and deleted pods held."""
    reservations.FOLLOWER.follow()


@task
def collect_garbage() -> None:
    """Delete what lost its owners."""
    garbage.sweep(utc_now())


@task
def sweep_namespaces() -> None:
    """Empty terminating namespaces."""
    namespaces.sweep(utc_now())


@task
def sweep_nodes() -> None:
    """Notice nodes that fell silent or came back; evict from tainted ones."""
    node_lifecycle.sweep(utc_now())


@task
def sweep_queue() -> None:
    """Flush long waits, and make the queue match the pods there are."""
    _process.worker().sweep()


@task
def sweep_pods() -> None:
    """Remove pods whose node is gone."""
    podgc.sweep(utc_now())


@task
def sweep_claims() -> None:
    """Look at all claims and all pods that use some, whatever the followers have seen."""
    claims.sweep(utc_now())
    reservations.sweep(utc_now())


@task
def prune() -> None:
    """Drop old Events, and what nobody can read any more from the event log."""
    pruning.sweep(utc_now())


@task
def sample_usage() -> None:
    """Note how many devices are in which state, once a minute; forget processes that were silent for long."""
    usage.sample(utc_now())
    heartbeats.forget_stale(utc_now())
