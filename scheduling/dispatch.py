"""Turns "revision N exists" into looks: which tasks could have work because of what was committed.

A thread of each Celery worker process (`manciple.celery` starts it) hears the announcements, asks the log which
resources changed how, and sends each concerned task one message; then it rests a moment, so that a burst of commits
becomes few looks. Of several processes the first to claim a stretch of the log sends for it. The committing thread only
hands over a number; a broker that cannot be reached, or a dispatcher that dies, costs a log line at most, and the
periodic looks (`scheduling.beat`) make up for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from django.db import DatabaseError, InterfaceError, connection
from kombu.exceptions import KombuError

from manciple.store import announce, tail
from manciple.store.tail import Sketch
from scheduling import hints
from scheduling.beat import INTERVALS, task_name
from scheduling.looked_after import Tasks, looked_after
from scheduling.models import Cursor
from scheduling.resources import CLAIMS, NAMESPACES, NODES, PODS, TEMPLATES

log = logging.getLogger(__name__)

#: Seconds between two looks at the log: at most one message per task in each.
RESTING_TIME = 0.01
#: Name of the row that says how far looks were sent, where several processes dispatch.
CURSOR = "dispatch"
#: Seconds after which an unread message is dropped; the periodic looks come more often.
EXPIRES = 10
#: Seconds of waiting after the database or the broker failed.
RETRY_AFTER = 1.0

ADDED, MODIFIED, DELETED = hints.ADDED, hints.MODIFIED, hints.DELETED
#: What a modification amounts to, where that can be told: the object is being deleted, the pod has ended or has a node.
DELETING, FINISHED, BOUND = "DELETING", "FINISHED", "BOUND"

#: task -> (resource, what happened to it) that may give it work
LOOKS: dict[str, frozenset[tuple[str, str]]] = {
    "schedule": frozenset({*hints.RULES, (PODS, ADDED), (PODS, DELETING), (PODS, FINISHED), (CLAIMS, DELETING)}),
    # A pod that another scheduler has bound may lack reservations; the periodic look finds it.
    "sync_claims": frozenset({(PODS, ADDED), (PODS, MODIFIED), (TEMPLATES, ADDED), (CLAIMS, DELETED)}),
    "release_claims": frozenset({(PODS, FINISHED), (PODS, DELETED), (CLAIMS, DELETING)}),
    "sweep_namespaces": frozenset({(NAMESPACES, MODIFIED), (NAMESPACES, DELETING)}),
    "sweep_nodes": frozenset({(NODES, MODIFIED), (NODES, DELETING)}),
    "sweep_pods": frozenset({(NODES, DELETED)}),
}
#: A deletion of anything may orphan, or finish the emptying of a namespace.
ON_ANY_DELETION = ("collect_garbage", "sweep_namespaces")

#: The resources that any task cares for.
CONCERNING = frozenset(resource for interests in LOOKS.values() for resource, _ in interests)
#: Changes that are told apart; when there are more, every task is sent a look.
MOST_CHANGES = 2000

Send = Callable[[str], None]


def change_of(sketch: Sketch) -> tuple[str, str]:
    """(resource, what happened to it)."""
    change: str = sketch.type
    if change == MODIFIED:
        if sketch.deleting:
            change = DELETING
        if sketch.fields.get("status.phase") in hints.FINISHED_PHASES:
            change = FINISHED
        elif change == MODIFIED and sketch.fields.get("spec.nodeName"):
            change = BOUND
    return sketch.resource, change


def looks_for(changes: Collection[tuple[str, str]]) -> list[str]:
    """The tasks that these (resource, what happened to it) concern, by short name."""
    concerned = [task for task, interests in LOOKS.items() if interests.intersection(changes)]
    if "sync_claims" in concerned and "schedule" in concerned:
        concerned.remove("schedule")  # which the other does when the claims are there
    if any(type_ == DELETED for _, type_ in changes):
        concerned += [task for task in ON_ANY_DELETION if task not in concerned]
    return concerned


def claim_alone(_revision: int) -> bool:
    """Of the only dispatcher there is."""
    return True


def claim_among_processes(revision: int) -> bool:
    """Whether this process is the one to send for the log up to `revision`."""
    Cursor.objects.get_or_create(name=CURSOR)
    return bool(Cursor.objects.filter(name=CURSOR, revision__lt=revision).update(revision=revision))


class Dispatcher:
    """The thread. `send(task name)` puts one message on its way; `claim(revision)` says whether to send up to there."""

    def __init__(self, send: Send, claim: Callable[[int], bool] = claim_alone) -> None:
        self._send = send
        self._claim = claim
        self._news = threading.Condition()
        self._newest = 0
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Look at everything once (something may have been left undone), then at what changes."""
        self._stopping = False
        self._unsubscribe = announce.subscribe(self._hear)
        self._thread = threading.Thread(target=self._run, name="dispatch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._unsubscribe()
        with self._news:
            self._stopping = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(RETRY_AFTER * 2)

    def _hear(self, revision: int) -> None:
        with self._news:
            self._newest = max(self._newest, revision)
            self._news.notify_all()

    def _run(self) -> None:
        position: int | None = None
        while self._wait_beyond(position):
            try:
                position = self._look(position)
            except (DatabaseError, InterfaceError, KombuError, OSError):
                log.exception("could not send looks")
                connection.close()
                self._pause(RETRY_AFTER)
            self._pause(RESTING_TIME)
        connection.close()

    def _wait_beyond(self, position: int | None) -> bool:
        """Wait for a revision above `position`; False when it is time to stop."""
        with self._news:
            self._news.wait_for(lambda: self._stopping or position is None or self._newest > position)
        return not self._stopping

    def _pause(self, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._stopping, timeout=seconds)

    def _look(self, position: int | None) -> int:
        """Send the looks for what came after `position`; returns the new one."""
        latest = tail.latest_revision()
        if position is not None and not self._claim(latest):
            return latest
        for task in list(INTERVALS) if position is None else concerned_after(position):
            self._send(task_name(task))
        return latest


def concerned_after(position: int) -> list[str]:
    """The tasks to send a look to for what came after `position`, by short name."""
    sketches = tail.sketched_after(position, resources=CONCERNING, limit=MOST_CHANGES)
    if len(sketches) == MOST_CHANGES:
        return list(LOOKS)
    changes: dict[Tasks, set[tuple[str, str]]] = {}
    for sketch in sketches:
        changes.setdefault(looked_after.by(sketch.revision), set()).add(change_of(sketch))
    concerned = {task for looking, found in changes.items() for task in looks_for(found) if task not in looking}
    return [task for task in INTERVALS if task in concerned]
