"""Turns "revision N exists" into looks: which tasks could have work because of what was committed.

A thread of each Celery worker process (`manciple.celery` starts it) hears the announcements, waits a moment so that a
burst of commits becomes one look, asks the log which resources changed how, and sends each concerned task one message.
The committing thread only hands over a number; a broker that cannot be reached costs a log line, and the periodic looks
(`scheduling.beat`) make up for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from django.db import DatabaseError, InterfaceError, connection
from kombu.exceptions import KombuError

from manciple.store import announce, tail
from scheduling import hints
from scheduling.beat import INTERVALS, task_name
from scheduling.resources import CLAIMS, NAMESPACES, NODES, PODS, TEMPLATES

log = logging.getLogger(__name__)

#: Seconds in which looks are gathered: at most one message per task in each.
GATHERING_TIME = 0.01
#: Seconds after which an unread message is dropped; the periodic looks come more often.
EXPIRES = 10
#: Seconds of waiting after the database or the broker failed.
RETRY_AFTER = 1.0

ADDED, MODIFIED, DELETED = hints.ADDED, hints.MODIFIED, hints.DELETED

#: task -> (resource, event type) that may give it work
LOOKS: dict[str, frozenset[tuple[str, str]]] = {
    "schedule": frozenset({*hints.RULES, (PODS, ADDED)}),
    "sync_claims": frozenset({(PODS, ADDED), (PODS, MODIFIED), (TEMPLATES, ADDED), (CLAIMS, DELETED)}),
    "release_claims": frozenset({(PODS, MODIFIED), (PODS, DELETED), (CLAIMS, MODIFIED)}),
    "sweep_namespaces": frozenset({(NAMESPACES, MODIFIED)}),
    "sweep_nodes": frozenset({(NODES, MODIFIED)}),
    "sweep_pods": frozenset({(NODES, DELETED)}),
}
#: A deletion of anything may orphan, or finish the emptying of a namespace.
ON_ANY_DELETION = ("collect_garbage", "sweep_namespaces")

Send = Callable[[str], None]


def looks_for(changes: Collection[tuple[str, str]]) -> list[str]:
    """The tasks that (resource, event type) pairs concern, by short name."""
    concerned = [task for task, interests in LOOKS.items() if interests.intersection(changes)]
    if any(type_ == DELETED for _, type_ in changes):
        concerned += [task for task in ON_ANY_DELETION if task not in concerned]
    return concerned


class Dispatcher:
    """The thread. `send(task name)` puts one message on its way."""

    def __init__(self, send: Send) -> None:
        self._send = send
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
        connection.close()

    def _wait_beyond(self, position: int | None) -> bool:
        """Wait for a revision above `position`, and a moment longer; False when it is time to stop."""
        with self._news:
            self._news.wait_for(lambda: self._stopping or position is None or self._newest > position)
        self._pause(GATHERING_TIME)
        return not self._stopping

    def _pause(self, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._stopping, timeout=seconds)

    def _look(self, position: int | None) -> int:
        """Send the looks for what came after `position`; returns the new one."""
        latest = tail.latest_revision()
        tasks = list(INTERVALS) if position is None else looks_for(tail.changed_after(position))
        for task in tasks:
            self._send(task_name(task))
        return latest
