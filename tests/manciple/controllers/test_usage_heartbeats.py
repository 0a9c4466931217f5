"""Signs of life: written seldom, telling of the last minute, missed when they stop, and cheap for the tasks."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import pytest
from django.db import DatabaseError

from manciple.controllers import coordination, tasks
from manciple.controllers.coordination import EVERY, FORGOTTEN_AFTER, Heart
from manciple.controllers.models import Heartbeat
from tests.builders import make_pod
from tests.scheduling.cluster import Cluster


class Clock:
    """Of a heart: seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heart(db: None, clock: Clock) -> Heart:
    return Heart("host-1", clock=clock)


def _lately(name: str = "host-1") -> dict[str, int]:
    found: dict[str, int] = Heartbeat.objects.get(name=name).lately
    return found


def test_a_heart_beats_at_once_and_then_every_few_seconds(heart: Heart, clock: Clock) -> None:
    assert heart.beat()
    clock.seconds += EVERY - 0.1
    assert not heart.beat()
    clock.seconds += 0.2
    assert heart.beat()
    assert Heartbeat.objects.count() == 1


def test_it_tells_what_was_done_in_the_last_minute(heart: Heart, clock: Clock) -> None:
    for _ in range(3):
        with heart.running():
            heart.did(attempts=4, placed=1)
        clock.seconds += 20
    heart.beat()
    assert _lately() == {"tasks": 2, "failed": 0, "attempts": 8, "placed": 2}
    clock.seconds += 300
    heart.beat()
    assert _lately() == {"tasks": 0, "failed": 0, "attempts": 0, "placed": 0}


def test_a_task_that_fails_is_counted_and_fails_still(heart: Heart) -> None:
    with pytest.raises(ZeroDivisionError), heart.running():
        _ = 1 / 0
    assert _lately() == {"tasks": 1, "failed": 1, "attempts": 0, "placed": 0}


def test_a_row_that_cannot_be_written_stops_nobody(heart: Heart, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise DatabaseError("the disk is full")

    monkeypatch.setattr(heart, "_write", broken)
    with heart.running():
        pass
    assert not Heartbeat.objects.exists()


def test_between_two_beats_a_task_costs_no_query_and_no_time(
    heart: Heart, django_assert_num_queries: pytest.FixtureRequest
) -> None:
    heart.beat()
    began = time.thread_time()
    with django_assert_num_queries(0):  # type: ignore[operator]  # the fixture is a function
        for _ in range(1000):
            with heart.running():
                heart.did(attempts=1, placed=1)
    assert (time.thread_time() - began) / 1000 < 0.0005


def test_the_silent_are_forgotten_after_a_while(cluster: Cluster) -> None:
    for name, seconds in (("old", 1), ("quiet", -10)):
        seen = cluster.now - FORGOTTEN_AFTER - timedelta(seconds=seconds)
        Heartbeat.objects.create(name=name, kind="worker", started_at=seen, seen_at=seen, lately={})
    assert coordination.forget_stale(cluster.now) == 1
    assert Heartbeat.objects.get().name == "quiet"


def test_a_process_that_starts_takes_the_place_of_dead_ones_on_its_machine(cluster: Cluster) -> None:
    host, own = os.uname().nodename, coordination.name_of_process()
    dead = next(pid for pid in range(4_194_000, 1, -1) if not coordination._lives(pid))
    for name in (own, f"{host}-{dead}", f"{host}-1", f"other-{dead}"):
        Heartbeat.objects.create(name=name, kind="worker", started_at=cluster.now, seen_at=cluster.now, lately={})
    assert coordination.forget_dead_neighbours(own) == 1
    assert not Heartbeat.objects.filter(name=f"{host}-{dead}").exists()


def test_tasks_are_signs_of_life_that_say_how_many_pods_were_placed(cluster: Cluster) -> None:
    coordination.stop_heart()
    cluster.with_gpus("node-1")
    cluster.create(make_pod("web"))
    tasks.run("schedule")
    coordination.heart.value._written = None  # as if it were time
    tasks.run("schedule")
    found = _lately(coordination.name_of_process())
    assert (found["placed"], found["attempts"], found["failed"]) == (1, 1, 0)
    coordination.stop_heart()
    assert not Heartbeat.objects.exists()
