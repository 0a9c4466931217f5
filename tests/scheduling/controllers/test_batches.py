"""Between two batches of a sweep everybody else has a turn."""

from __future__ import annotations

import pytest

from manciple.controllers.declaration import LONGEST_REST, batches


def test_a_rest_is_as_long_as_the_batch_took_and_never_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, rests = [0.0], list[float]()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", rests.append)
    taking = iter([0.125, 60.0, 0.0])
    seen = []
    for batch in batches(range(5), 2):
        seen.append(batch)
        now[0] += next(taking)
    assert seen == [[0, 1], [2, 3], [4]]
    # None after the last: nobody waits for what is over.
    assert rests == [0.125, LONGEST_REST]


def test_one_batch_rests_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = list[float]()
    monkeypatch.setattr("time.sleep", rests.append)
    assert list(batches("ab", 2)) == [["a", "b"]]
    assert rests == []
