"""What the log does not tell of: requests that were refused, that failed, or that did something without a write.

    trail.tell(happened)          # from any thread or event loop: never waits, never fails

A thread of its own writes down what it was told, once a second: nobody's answer waits for it. The first request of its
kind in a minute is an entry within a second or two; those like it are counted and become a second entry when the minute
ends. A sender gets a limited number of different entries a minute (`budgets`). Where the database is away the thread
tries again, and what comes meanwhile is kept up to `ROOM` entries; what does not fit is counted, and told in the
process's log.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import DataError, Error, IntegrityError, connection

from manciple.audit import models, recording
from manciple.audit.budgets import Key, MinuteLedger
from manciple.audit.happenings import REFUSED, Happened, name_of
from manciple.per_process import PerProcess
from manciple.store import records
from manciple.store.records import clean, is_system

log = logging.getLogger(__name__)

#: Entries that wait to be written, at most, and of them in one transaction.
ROOM, BATCH = 10_000, 500
#: Seconds for which entries are gathered, and without one after which the thread and its connection go.
GATHERING, IDLE = 1.0, 60.0
#: Seconds until the next attempt after the database refused: the first, doubled each time up to the last.
BACKOFF = (1.0, 30.0)
#: Later than whatever is due.
EVER = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class _Waiting:
    """What will be one entry, from `due` on."""

    first: Happened
    at: datetime
    due: datetime
    wrote: bool
    count: int = 1


class TrailRecorder:
    """Of one process: the thread begins with the first entry."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._news = threading.Condition(self._guard)
        self._waiting: dict[Key, _Waiting] = {}
        self._ledger = MinuteLedger()
        self._thread: threading.Thread | None = None
        self._stopping = False
        #: entries for which there was no room
        self.lost = 0

    def tell(self, happened: Happened) -> None:
        with self._news:
            now = datetime.now(UTC)
            minute = now.replace(second=0, microsecond=0)
            key, told, first = self._ledger.place(happened, minute)
            due = now if first else minute + timedelta(minutes=1)
            if not self._add(key, _Waiting(told, now, due, happened.wrote)):
                return
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
                self._thread.start()
            self._news.notify()

    def flush(self, *, due: datetime = EVER) -> int:
        """Write down what waits and is due by then; returns how many entries that were.

        Raises: django.db.Error, and keeps them.
        """
        written = 0
        while batch := self._take(due):
            try:
                written += _write(list(batch.values()))
            except Error:
                with self._guard:
                    for key, waiting in batch.items():
                        self._add(key, waiting)
                raise
        return written

    def stop(self, *, write: bool = True) -> None:
        """End the thread, once what waits is written."""
        with self._news:
            self._stopping = True
            thread = self._thread
            self._news.notify()
        if thread is not None:
            thread.join()
        if write:
            self._try_to_flush(EVER)

    def _add(self, key: Key, waiting: _Waiting) -> bool:
        """Whether there was room. The guard is held."""
        if known := self._waiting.get(key):
            known.count += waiting.count
        elif len(self._waiting) < ROOM:
            self._waiting[key] = waiting
        else:
            self.lost += waiting.count
            return False
        return True

    def _take(self, due: datetime) -> dict[Key, _Waiting]:
        with self._guard:
            keys = [key for key, waiting in self._waiting.items() if waiting.due <= due]
            return {key: self._waiting.pop(key) for key in keys[:BATCH]}

    def _run(self) -> None:
        pause = GATHERING
        try:
            while self._wait(pause):
                done = self._try_to_flush(datetime.now(UTC))
                pause = GATHERING if done else min(max(pause * 2, BACKOFF[0]), BACKOFF[1])
        finally:
            connection.close()

    def _wait(self, seconds: float) -> bool:
        """Until something has waited for `seconds`; False when the thread is to end."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._stopping, timeout=IDLE)
            if self._stopping or not self._waiting:
                self._thread = None
                return False
            self._news.wait_for(lambda: self._stopping, timeout=seconds)
            return not self._stopping

    def _try_to_flush(self, due: datetime) -> bool:
        try:
            connection.close_if_unusable_or_obsolete()
            self.flush(due=due)
        except Error as error:
            connection.close()
            log.warning("%d entries of the audit trail wait for the database: %s", len(self._waiting), error)
            return False
        if self.lost:
            log.error("%d entries of the audit trail were lost: more waited than there is room for", self.lost)
            self.lost = 0
        return True


def _write(entries: list[_Waiting]) -> int:
    """Returns how many were written: one that the database does not take must not keep the others from it.

    Raises: django.db.Error while the database is away.
    """
    try:
        recording.add([_row(waiting) for waiting in entries])
    except (DataError, IntegrityError):
        if len(entries) > 1:
            return sum(_write([waiting]) for waiting in entries)
        log.exception("an entry of the audit trail was lost: %s", entries[0])
        return 0
    return len(entries)


def _row(waiting: _Waiting) -> tuple[Any, ...]:
    """In the order of recording.COLUMNS."""
    happened = waiting.first
    origin = happened.origin
    impersonator = name_of(origin.impersonator)
    texts = (
        clean(origin.audit_id, 64), clean(name_of(origin.identity)), clean(impersonator),
        clean(origin.verb, models.VERB_LENGTH),
        clean(happened.resource, models.RESOURCE_LENGTH), clean(origin.subresource, models.NAME_LENGTH),
        clean(happened.namespace, models.NAMESPACE_LENGTH), clean(happened.name, models.NAME_LENGTH),
        clean(happened.uid, 36), happened.code, clean(happened.reason, models.REASON_LENGTH), clean(happened.message),
    )  # fmt: skip
    # That a Lease is not there yet, or was changed meanwhile, is their work too; what they may not do is news.
    expected = happened.code < REFUSED or happened.code in (MISSING, CONFLICT)
    routine = expected and is_system(impersonator or name_of(origin.identity))
    return (
        waiting.at,
        None,
        *texts,
        origin.dry_run,
        routine,
        waiting.count,
        records.dumped(origin.note()),
        waiting.wrote,
    )


MISSING, CONFLICT = 404, 409


_recorder = PerProcess(TrailRecorder, stop=lambda recorder: recorder.stop(write=False))


def tell(happened: Happened) -> None:
    """Have it written down, soon; see the module's docstring."""
    happened.origin.closed = True
    _recorder.value.tell(happened)


def write(happened: Happened) -> None:
    """Have it written down before this returns: for processes that end at once. Raises: django.db.Error."""
    now = datetime.now(UTC)
    _write([_Waiting(happened, now, now, happened.wrote)])


def flush() -> int:
    """Write down at once what waits; returns how many entries that were."""
    return _recorder.value.flush()


def close() -> None:
    """Write down what waits, and end the thread: the process ends."""
    _recorder.value.stop()
    _recorder.reset()
