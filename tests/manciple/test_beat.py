"""Beat sends each message at its interval, and is asleep in between."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab
from redis import Redis

from manciple import beat
from manciple import celery as our_celery
from manciple.beat import IntervalScheduler, Leadership
from manciple.celery import Beating
from manciple.celery import app as our_app
from tests.e2e.processes import wait_for
from tests.services import Server

#: Name of what is sent, and at what time.
Sent = list[tuple[str, float]]


class Beat(IntervalScheduler):
    """With a clock that goes where it is told, and messages that are noted in place of being sent."""

    def __init__(self, now: Callable[[], float], send: Callable[[str], None], intervals: dict[str, object]) -> None:
        self._now, self._send = now, send
        made = Celery("beaten", broker="memory://", set_as_current=False)
        made.conf.beat_schedule = {name: {"task": name, "schedule": every} for name, every in intervals.items()}
        super().__init__(made, max_interval=300)

    def clock(self) -> float:
        return self._now()

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **_: Any) -> None:
        self._send(entry.task)


class Play:
    """A beat and its time, in seconds."""

    def __init__(self, **intervals: float) -> None:
        self.now = 1000.0
        self.sent: Sent = []
        self.ticks = 0
        self.failing = ""
        entries: dict[str, object] = {name: timedelta(seconds=every) for name, every in intervals.items()}
        self.beat = Beat(lambda: self.now, self._note, entries)

    def _note(self, name: str) -> None:
        if name == self.failing:
            raise ConnectionError("no broker")
        self.sent.append((name, self.now - 1000.0))

    def go_on(self, until: float) -> None:
        """As Celery's service does it: ask, sleep as long as was said, ask again."""
        while True:
            rest = self.beat.tick()
            self.ticks += 1
            if self.now - 1000.0 + rest > until:
                return
            self.now += rest

    def times(self, name: str) -> list[float]:
        return [when for one, when in self.sent if one == name]


def test_each_is_sent_at_its_interval_the_first_time_after_one() -> None:
    play = Play(schedule=1, sweep=2.5)
    play.go_on(10.5)
    assert play.times("schedule") == pytest.approx(range(1, 11))
    assert play.times("sweep") == pytest.approx([2.5, 5, 7.5, 10])


def test_what_is_due_together_needs_one_awakening() -> None:
    play = Play(**{f"sweep-{number}": 5 for number in range(20)})
    play.go_on(50.5)
    assert len(play.sent) == 200
    assert play.ticks <= 22


def test_those_of_one_interval_stay_together_though_the_process_awakes_a_little_late() -> None:
    play = Play(**{f"sweep-{number}": 5 for number in range(20)})
    for _ in range(10):
        play.now += play.beat.tick() + 0.004
    assert len(play.sent) == 180
    assert len({when for _, when in play.sent}) == 9


def test_what_came_too_late_is_sent_once_and_then_at_its_interval_again() -> None:
    play = Play(schedule=1)
    play.go_on(2.5)
    play.now += 60.0
    late = play.now - 1000.0
    play.go_on(late + 3.5)
    assert play.times("schedule") == pytest.approx([1, 2, late, late + 1, late + 2, late + 3])


def test_one_that_cannot_be_sent_keeps_no_other_from_it_and_is_tried_at_its_next_interval() -> None:
    play = Play(first=1, second=1)
    play.failing = "first"
    play.go_on(2.5)
    play.failing = ""
    play.go_on(4.5)
    assert play.times("second") == pytest.approx([1, 2, 3, 4])
    assert play.times("first") == pytest.approx([3, 4])


def test_a_signal_ends_beat_between_two_ticks() -> None:
    """In the middle of one, a library that it calls might take the end for a failure of its own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stops: list[int] = []
    beat.end_between_ticks(SimpleNamespace(stop=lambda: stops.append(1)))
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_for("the handler", lambda: stops)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert our_app.conf.beat_max_loop_interval == 1


def test_a_schedule_without_entries_is_asked_as_seldom_as_celery_allows() -> None:
    assert Play().beat.tick() == 300


def test_a_calendar_is_refused_at_the_start() -> None:
    with pytest.raises(AttributeError, match="run_every"):
        Beat(lambda: 0.0, lambda _name: None, {"nightly": crontab(hour="4")})


def test_every_beat_of_ours_uses_it() -> None:
    assert our_app.Beat().scheduler_cls == f"{IntervalScheduler.__module__}:{IntervalScheduler.__name__}"


# Several beats --------------------------------------------------------------------------------------------------------


class Time:
    """Monotonic seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_of_several_beats_leads_and_another_follows_when_it_ends_or_falls_silent(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beat, "EXPIRES", 0.15)
    passes = Time()
    with Redis.from_url(redis_server.url) as client:
        client.delete(beat.LEADER)
        first, second, third = (Leadership(client, clock=passes) for _ in range(3))
        assert (first.held(), second.held()) == (True, False)
        passes.now += 1
        assert (second.held(), first.held()) == (False, True)
        first.give_up()
        passes.now += 1
        assert (second.held(), first.held()) == (True, False)
        # The second is killed: its note runs out.
        wait_for("the note to run out", lambda: not client.exists(beat.LEADER))
        assert third.held()


def test_nobody_leads_without_redis() -> None:
    with Redis.from_url("redis://127.0.0.1:1/0") as client:
        assert not Leadership(client).held()


def test_the_only_beat_leads() -> None:
    assert beat.leadership("in-process://localhost/").held()
    assert not beat.leadership("redis://127.0.0.1:1/0").held()


def test_who_does_not_lead_sends_nothing_and_begins_with_a_whole_interval() -> None:
    play = Play(schedule=1)
    leading = [False]
    play.beat.leadership.held = lambda: leading[0]  # type: ignore[method-assign]
    play.beat.leadership.renewal = 0.5
    play.go_on(10)
    assert play.sent == []
    leading[0] = True
    play.go_on(13.2)
    assert play.times("schedule") == pytest.approx([11, 12, 13], abs=0.5)


def test_a_worker_s_beat_ends_with_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(our_celery, "_begin", lambda _role: None)
    step = Beating(SimpleNamespace(), with_beat=True)
    step.start(None)
    wait_for("the beat", lambda: our_celery._BEATS._value.get() == 1)
    step.stop(None)
    assert our_celery._BEATS._value.get() == 0
    assert not step._beat.is_alive()


def test_a_worker_beats_only_where_it_is_told_to() -> None:
    assert not Beating(SimpleNamespace()).enabled
