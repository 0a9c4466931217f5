"""Beat's scheduler: messages at fixed intervals.

Our schedule is made once, of the controllers' declarations, and knows nothing but intervals (a calendar is nobody's
concern here). Celery's own scheduler also serves schedules that change while it runs: for each message it compares the
whole schedule with what it was, twice, and reckons with dates and time zones. That took most of what beat cost.
"""

from __future__ import annotations

import heapq
import time
from typing import Any

from celery.beat import ScheduleEntry, Scheduler

#: Seconds within which messages are sent together: a process that sleeps need not be woken for each.
TOGETHER = 0.02


class IntervalScheduler(Scheduler):  # type: ignore[misc]  # Celery is untyped
    """Sends each message once an interval, the first after one. Nothing is remembered from one start to the next.

    What came too late, because the process was stopped or the broker away, is sent once and not made up for.
    """

    clock = staticmethod(time.monotonic)

    def setup_schedule(self) -> None:
        super().setup_schedule()
        began = self.clock()
        #: (when it is due, its name), the next one first
        self._due = [(began + _interval(entry), name) for name, entry in self.schedule.items()]
        heapq.heapify(self._due)

    def tick(self, **_: Any) -> float:
        """Send whatever is due; returns the seconds until this should be asked again."""
        now = self.clock()
        while self._due and self._due[0][0] <= now + TOGETHER:
            due, name = self._due[0]
            entry = self.schedule[name]
            interval = _interval(entry)
            # From when it was due rather than from now, so that those of equal intervals stay together.
            heapq.heapreplace(self._due, (due + interval if due + interval > now else now + interval, name))
            self.apply_entry(entry, producer=self.producer)
        longest: float = self.max_interval
        left = self._due[0][0] - self.clock() if self._due else longest
        return max(0.0, min(left, longest))


def _interval(entry: ScheduleEntry) -> float:
    """In seconds. Raises: AttributeError where an entry has a calendar in place of an interval."""
    seconds: float = entry.schedule.run_every.total_seconds()
    return seconds
