"""Beat's scheduler: messages at fixed intervals, from one process at a time.

Our schedule is made once, of the controllers' declarations, and knows nothing but intervals (a calendar is nobody's
concern here). Celery's own scheduler also serves schedules that change while it runs: for each message it compares the
whole schedule with what it was, twice, and reckons with dates and time zones. That took most of what beat cost.

Any number of beats may run. Where they share a Redis, one of them holds a note there, which ends by itself when it is
not renewed; the others wait for that, and send nothing. Redis away means that nobody leads: there is nobody to send to.
Two that lead at once, after a failover of Redis, would cost messages that are coalesced anyway.
"""

from __future__ import annotations

import heapq
import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from celery import signals
from celery.beat import ScheduleEntry, Scheduler

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

#: The note, and the milliseconds for which it stands; it is renewed in a third of that.
LEADER = "manciple.beat.leader"
STANDS_MS = 15_000
#: Seconds that Redis may take to answer.
TIMEOUT = 2.0
#: KEYS: the note; ARGV: who asks, for how long. In one step, so that nobody's note is renewed or taken by another.
_LEAD = """
local leader = redis.call('GET', KEYS[1])
if leader and leader ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""


class Leadership(Protocol):
    """Whether this process is the one that sends. longest: seconds after which it is to be asked again."""

    longest: float

    def held(self) -> bool: ...
    def give_up(self) -> None:
        """The next may begin at once."""


class Alone:
    """Of the only beat: the one in the process that runs everything."""

    longest = float("inf")

    def held(self) -> bool:
        return True

    def give_up(self) -> None:
        """Nobody waits for it."""


class SharedLeadership:
    """Among all beats that use one Redis. clock: monotonic seconds."""

    def __init__(self, client: redis.Redis, name: str = "", *, clock: Any = time.monotonic) -> None:
        self._client = client
        self._name = name or f"{os.uname().nodename}-{os.getpid()}"
        self._clock = clock
        self._lead = client.register_script(_LEAD)
        self._leads = False
        self._asked = float("-inf")
        self.longest = STANDS_MS / 3000

    def held(self) -> bool:
        """Asks Redis again after a third of the time for which the note stands."""
        if self._clock() - self._asked < self.longest:
            return self._leads
        self._asked = self._clock()
        before, self._leads = self._leads, self._ask()
        if self._leads != before:
            log.info("beat %s %s", self._name, "leads now" if self._leads else "does not lead any more")
        return self._leads

    def _ask(self) -> bool:
        import redis  # noqa: PLC0415 - a process without Redis need not hold its library

        try:
            return bool(self._lead(keys=[LEADER], args=[self._name, STANDS_MS]))
        except redis.RedisError as error:
            log.warning("beat %s does not lead: Redis does not answer: %s", self._name, error)
            return False

    def give_up(self) -> None:
        import redis  # noqa: PLC0415 - as above

        if self._leads:
            self._leads = False
            try:
                self._client.delete(LEADER)
            except redis.RedisError as error:
                log.warning("beat %s could not hand on: %s", self._name, error)


def leadership(url: str) -> Leadership:
    """url: of the broker."""
    if not url.startswith(("redis://", "rediss://", "unix://")):
        return Alone()
    import redis  # noqa: PLC0415 - as above

    return SharedLeadership(redis.Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT))


#: Seconds within which messages are sent together: a process that sleeps need not be woken for each.
TOGETHER = 0.02


class IntervalScheduler(Scheduler):  # type: ignore[misc]  # Celery is untyped
    """Sends each message once an interval, the first after one. Nothing is remembered from one start to the next.

    What came too late, because the process was stopped or the broker away, is sent once and not made up for.

    Told to end, it ends between two messages or while it sleeps. Celery's own handler raises SystemExit wherever the
    signal finds it: in the middle of a call to Redis it was lost, and beat went on until it was killed.
    """

    clock = staticmethod(time.monotonic)
    _told_to_end = False
    _sleeps = False

    def tell_to_end(self, *_signal: object) -> None:
        """The handler of SIGTERM and SIGINT."""
        self._told_to_end = True
        if self._sleeps:
            raise SystemExit

    def _end_if_told(self) -> None:
        if self._told_to_end:
            raise SystemExit

    def setup_schedule(self) -> None:
        super().setup_schedule()
        self.leadership = leadership(str(self.app.conf.broker_url or ""))
        self._begin()

    def _begin(self) -> None:
        began = self.clock()
        #: (when it is due, its name), the next one first
        self._due = [(began + _interval(entry), name) for name, entry in self.schedule.items()]
        heapq.heapify(self._due)

    def close(self) -> None:
        self.leadership.give_up()
        super().close()

    def tick(self, **_: Any) -> float:
        """Send whatever is due; returns the seconds until this should be asked again. Raises: SystemExit if told to."""
        self._sleeps = False
        wait = self._sent() if self.leadership.held() else self._waits_for_leadership()
        self._sleeps = True
        self._end_if_told()
        return wait

    def _waits_for_leadership(self) -> float:
        self._begin()
        return min(float(self.max_interval), self.leadership.longest)

    def _sent(self) -> float:
        now = self.clock()
        while self._due and self._due[0][0] <= now + TOGETHER:
            self._end_if_told()
            due, name = self._due[0]
            entry = self.schedule[name]
            interval = _interval(entry)
            # From when it was due rather than from now, so that those of equal intervals stay together.
            heapq.heapreplace(self._due, (due + interval if due + interval > now else now + interval, name))
            self.apply_entry(entry, producer=self.producer)
        longest: float = min(self.max_interval, self.leadership.longest)
        left = self._due[0][0] - self.clock() if self._due else longest
        return max(0.0, min(left, longest))


@signals.beat_init.connect  # type: ignore[untyped-decorator]  # Celery is untyped
def _end_between_messages(sender: Any, **_: Any) -> None:
    scheduler = sender.scheduler
    if isinstance(scheduler, IntervalScheduler) and threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, scheduler.tell_to_end)


def _interval(entry: ScheduleEntry) -> float:
    """In seconds. Raises: AttributeError where an entry has a calendar in place of an interval."""
    seconds: float = entry.schedule.run_every.total_seconds()
    return seconds
