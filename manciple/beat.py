"""Beat's scheduler: Celery's, for intervals only, and with one leader among several beats.

Celery's own compares the whole schedule and computes with time zones for each message, and wakes 10 ms early to spin
until a message is due: the embedded system at rest takes 21 to 30 ms of CPU a second with it, and 11 with this one
(docs/evidence/benchmarks.md). It also has no leader: two beats would send everything twice.

Of the beats that share a Redis one holds a lock there, which expires unless it is renewed; the others send nothing.
Without Redis nobody leads, because there is nowhere to send to. Two leaders at once, after a failover of Redis, cost
messages that are coalesced anyway (`manciple.controllers.coordination`).
"""

from __future__ import annotations

import heapq
import logging
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery import signals
from celery.beat import ScheduleEntry, Scheduler

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

#: The lock of the leader, and the seconds until it expires; it is renewed three times as often.
LEADER, EXPIRES = "manciple.beat.leader", 15.0
#: Seconds that Redis may take to answer.
TIMEOUT = 2.0
#: Messages that are due within so many seconds are sent together: a process that sleeps wakes once for them.
TOGETHER = 0.02


class Leadership:
    """Whether this beat is the one that sends. client: None for the only beat there is. clock: monotonic seconds."""

    def __init__(self, client: redis.Redis | None, *, clock: Any = time.monotonic) -> None:
        self._lock: Any = client and client.lock(LEADER, timeout=EXPIRES, thread_local=False)
        self._clock = clock
        self._leads = client is None
        self._asked = float("-inf")
        #: seconds after which it is to be asked again
        self.renewal = float("inf") if client is None else EXPIRES / 3

    def held(self) -> bool:
        if self._lock is not None and self._clock() - self._asked >= self.renewal:
            self._asked = self._clock()
            before, self._leads = self._leads, self._renew()
            if self._leads != before:
                log.info("this beat %s", "leads now" if self._leads else "does not lead any more")
        return self._leads

    def _renew(self) -> bool:
        import redis  # noqa: PLC0415 - a process without Redis need not hold its library

        try:
            with suppress(redis.exceptions.LockError):  # never held, or expired
                return bool(self._lock.reacquire())
            return bool(self._lock.acquire(blocking=False))
        except redis.RedisError as error:
            log.warning("this beat does not lead: Redis does not answer: %s", error)
            return False

    def give_up(self) -> None:
        """Let another beat lead at once."""
        if self._lock is not None and self._leads:
            import redis  # noqa: PLC0415 - as above

            self._leads = False
            with suppress(redis.RedisError):  # it expires
                self._lock.release()


def leadership(url: str) -> Leadership:
    """url: of the broker."""
    if not url.startswith(("redis://", "rediss://", "unix://")):
        return Leadership(None)
    import redis  # noqa: PLC0415 - as above

    return Leadership(redis.Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT))


class IntervalScheduler(Scheduler):  # type: ignore[misc]  # Celery is untyped
    """Sends each message once an interval, the first after one. A message that is late is sent once."""

    clock = staticmethod(time.monotonic)

    def setup_schedule(self) -> None:
        super().setup_schedule()
        self.leadership = leadership(str(self.app.conf.broker_url or ""))
        self._begin()

    def _begin(self) -> None:
        """Every message is due after a whole interval."""
        began = self.clock()
        #: (when it is due, its name), the next one first
        self._due = [(began + _interval(entry), name) for name, entry in self.schedule.items()]
        heapq.heapify(self._due)

    def tick(self, **_: Any) -> float:
        """Send what is due. Returns the seconds until the next call."""
        longest: float = min(self.max_interval, self.leadership.renewal)
        if not self.leadership.held():
            self._begin()
            return longest
        now = self.clock()
        while self._due and self._due[0][0] <= now + TOGETHER:
            due, name = self._due[0]
            entry = self.schedule[name]
            # From when it was due rather than from now, so that messages of equal intervals stay together.
            next_due = due + _interval(entry)
            heapq.heapreplace(self._due, (next_due if next_due > now else now + _interval(entry), name))
            self.apply_entry(entry, producer=self.producer)
        left = self._due[0][0] - self.clock() if self._due else longest
        return max(0.0, min(left, longest))

    def close(self) -> None:
        self.leadership.give_up()
        super().close()


def _interval(entry: ScheduleEntry) -> float:
    """In seconds. Raises: AttributeError for a calendar."""
    seconds: float = entry.schedule.run_every.total_seconds()
    return seconds


@signals.beat_init.connect  # type: ignore[untyped-decorator]  # Celery is untyped
def end_between_ticks(sender: Any, **_: Any) -> None:
    """Celery's own handler raises SystemExit wherever the signal arrives; a library that is called just then may
    swallow it, and beat goes on until it is killed.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_signal: sender.stop())
