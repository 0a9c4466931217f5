"""Health: what is well in one line, what is not with what to do about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dashboard.capacity.overview import (
    DriverSign,
    HealthLine,
    HealthSigns,
    NodeSign,
    ProcessSign,
    QueueSign,
    ShortPool,
    lines,
    needing_attention,
    size,
)
from tests.dashboard import texts

NOW = datetime(2026, 11, 21, 10, 20, 30, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


WELL = HealthSigns(
    now=NOW,
    nodes=[NodeSign(name="a", ready=True, heard=ago(4)), NodeSign(name="b", ready=True, heard=ago(2))],
    drivers=[DriverSign(name="gpu.example.com", pools=2)],
    processes=[ProcessSign(name="host-1", seen=ago(2), tasks=60, attempts=9, placed=8)],
    queue=QueueSign(length=3, oldest=ago(3700)),
    sampled=ago(30),
    revision=81233,
    floor=70000,
    database="PostgreSQL",
    database_size=34 * 1024 * 1024,
    ping=0.0004,
)


def line(name: str, signs: HealthSigns) -> HealthLine:
    (found,) = (one for one in lines(signs) if one.name == name)
    return found


def test_when_all_is_well_nothing_needs_attention() -> None:
    assert needing_attention(lines(WELL)) == 0
    told = {one.name: (one.value, one.note) for one in lines(WELL)}
    assert told == {
        "Node agents": ("2 of 2", texts.NODES_REPORT("5 s")),
        "Driver gpu.example.com": ("2 of 2", texts.POOLS_COMPLETE),
        "Incidents": ("0 open", texts.DEVICES_IN_SERVICE),
        "Scheduler": ("8/min", texts.QUEUE_FIGURES("9 attempts", 3, "1 h 1 min")),
        "Workers": ("1 of 1", "host-1 seen 2 s ago"),
        "Periodic tasks": ("on time", "last sample 10:20:00"),
        "Event log": ("revision 81,233", texts.LOG_REACHES_BACK("70,000")),
        "Database": ("0.4 ms", "PostgreSQL, 34 MiB"),
    }


def test_a_redis_that_is_away_is_said_with_what_to_do() -> None:
    found = line("Redis", replace(WELL, redis_away=True))
    assert (found.severity, found.value) == ("warn", "away")
    (trouble,) = found.troubles
    assert "late" in trouble.what
    assert trouble.step.startswith("Start Redis")


def test_nodes_that_fell_silent_are_named_with_what_to_do_and_told_from_those_that_report_trouble() -> None:
    silent = [NodeSign(name=f"n{number}", ready=False, heard=ago(130), unreachable=True) for number in range(5)]
    found = line("Node agents", replace(WELL, nodes=[*WELL.nodes, *silent]))
    assert (found.severity, found.value) == ("warn", "2 of 7")
    assert found.troubles[0].what == texts.NODE_UNREACHABLE("n0", "2 min")
    assert found.troubles[0].step.startswith("Start its agent")
    assert found.troubles[3].what == texts.MORE_NODES_NOT_READY(2)
    found = line("Node agents", replace(WELL, nodes=[NodeSign(name="a", ready=False, heard=ago(3))]))
    assert found.severity == "err", "no node is left"
    assert found.troubles[0].what == texts.NODE_REPORTS_NOT_READY("a")


def test_broken_devices_lead_to_themselves_and_rates_are_for_those_who_see_everything() -> None:
    (trouble,) = line("Driver d", replace(WELL, drivers=[DriverSign(name="d", pools=1, unhealthy=1)])).troubles
    assert (trouble.what, trouble.url) == (texts.DRIVER_SAYS_UNHEALTHY("1 device"), "/devices?state=bad")
    found = line("Scheduler", replace(WELL, whole=False))
    _rates, queue = line("Scheduler", WELL).note.split(", ", 1)
    assert (found.value, found.note) == ("", queue)


@pytest.mark.parametrize(
    ("seen", "words", "step"),
    [
        (
            1,
            "Pool `gpu-b04` is a slice short; its 8 devices are not allocatable. Its slices last changed at 10:11:00.",
            texts.NEXT_SEE_DRIVERS_POOL("gpu-b04"),
        ),
        (4, "Pool `gpu-b04` has 2 slices too many; its 8 devices are not allocatable.", "gpu-b04"),
    ],
)
def test_a_pool_that_is_not_whole_says_since_when(seen: int, words: str, step: str) -> None:
    changed = NOW.replace(minute=11, second=0) if seen == 1 else None
    pool = ShortPool(driver="d", name="gpu-b04", node="gpu-b04", expected=2, seen=seen, devices=8, changed=changed)
    found = line("Driver d", replace(WELL, drivers=[DriverSign(name="d", pools=2, short=(pool,))]))
    assert (found.severity, found.value) == ("warn", "1 of 2")
    assert found.troubles[0].what == words
    assert found.troubles[0].url == "/nodes/gpu-b04"
    assert step in found.troubles[0].step


def test_without_a_worker_nothing_is_placed() -> None:
    nobody = replace(WELL, processes=[ProcessSign(name="host-1", seen=ago(90))])
    scheduler, workers = line("Scheduler", nobody), line("Workers", nobody)
    assert (scheduler.severity, workers.severity) == ("err", "err")
    assert scheduler.troubles[0].what == texts.QUEUE_STANDS(" since 10:19:00")
    assert workers.troubles[0].what == texts.PROCESS_LAST_SEEN("host-1", "1 min")
    never = line("Scheduler", replace(WELL, processes=[]))
    assert never.troubles[0].what == texts.QUEUE_STANDS("")


def test_tasks_that_fail_and_a_clock_that_stands_still_are_told() -> None:
    failing = replace(WELL, processes=[ProcessSign(name="host-1", seen=ago(1), failed=2)], sampled=ago(600))
    assert line("Workers", failing).troubles[0].what == texts.TASKS_FAILED("2 tasks")
    assert line("Periodic tasks", failing).troubles[0].what == texts.PERIODIC_TASKS_LATE("10:10:30")
    assert needing_attention(lines(failing)) == 2


@pytest.mark.parametrize(("count", "text"), [(12, "12 B"), (4_509_000, "4.3 MiB"), (5 * 1024**5, "5120 TiB")])
def test_sizes_read_as_people_say_them(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("nearly", "full", "severity", "what"),
    [
        (False, False, "ok", []),
        (
            True,
            False,
            "warn",
            ["The database is 95% full; once full, it accepts only deletions."],
        ),
        (True, True, "err", ["The database is full and accepts only deletions."]),
    ],
)
def test_a_database_that_runs_full_needs_attention(nearly: bool, full: bool, severity: str, what: list[str]) -> None:
    signs = replace(
        WELL, database_size=950 << 20, database_limit=1000 << 20, database_nearly_full=nearly, database_full=full
    )
    found = line("Database", signs)
    assert (found.severity, [one.what for one in found.troubles]) == (severity, what)
    assert found.note == ("PostgreSQL, 950 MiB of 1000 MiB" if what else "PostgreSQL, 950 MiB")
    assert all("MANCIPLE_DATABASE_BYTES" in one.step for one in found.troubles)
