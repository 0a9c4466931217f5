"""Housekeeping: once a minute a process drops what nobody has used for long, and returns free memory to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from manciple import memory
from manciple.memory import WORTH_IT, Housekeeping

_FLOOD = """
import re
from pathlib import Path
from manciple import memory

def resident():
    return int(re.search(r"Rss:\\s+(\\d+)", Path("/proc/self/smaps_rollup").read_text())[1])

housekeeping = memory.Housekeeping()
housekeeping.tidy()
before = resident()
flood = ["a document of a pod" * 100 + str(number) for number in range(50_000)]
kept = flood[::50]
most = resident()
del flood
housekeeping.tidy()
print(before, most, resident())
"""


@pytest.mark.skipif(memory.free_bytes() is None, reason="the C library does not tell what is free")
def test_what_a_flood_took_is_the_systems_again_though_some_of_it_stays() -> None:
    ran = subprocess.run([sys.executable, "-c", _FLOOD], check=True, capture_output=True, text=True)
    before, most, after = map(int, ran.stdout.split())
    assert most - before > 80_000  # KiB
    assert after - before < (most - before) / 3


def test_memory_is_returned_once_enough_of_it_has_become_free(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is free stays free in the allocator's books, though the system has the pages.
    rounds = [(5, False), (WORTH_IT, True), (WORTH_IT + 5, False), (2 * WORTH_IT - 1, False)]
    rounds += [(10, False), (WORTH_IT, False), (WORTH_IT + 10, True)]
    sizes, returned = iter([free for free, _ in rounds]), list[int]()
    monkeypatch.setattr(memory, "_steps", [])
    monkeypatch.setattr(memory, "free_bytes", lambda: next(sizes))
    monkeypatch.setattr(memory, "give_back", lambda: returned.append(1))
    housekeeping, seen = Housekeeping(), []
    for _ in rounds:
        before = len(returned)
        housekeeping.tidy()
        seen.append(len(returned) > before)
    assert seen == [expected for _, expected in rounds]


def test_it_is_returned_each_time_where_nobody_tells_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = list[bool]()
    monkeypatch.setattr(memory, "_steps", [])
    monkeypatch.setattr(memory, "free_bytes", lambda: None)
    monkeypatch.setattr(memory, "give_back", lambda: returned.append(True))
    housekeeping = Housekeeping()
    housekeeping.tidy()
    housekeeping.tidy()
    assert returned == [True, True]


def test_a_step_that_fails_keeps_no_other_from_its_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken = list[str]()

    def fail() -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(memory, "_steps", [fail, lambda: taken.append("the other")])
    Housekeeping().tidy()
    assert taken == ["the other"]
    assert "no luck" in caplog.text
