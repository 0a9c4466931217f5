"""Bounds on time and memory: which texts a cache keeps, and when a limit is asked."""

from __future__ import annotations

import time

import pytest

from manciple.wire.limits import TimeLimitExceeded, check_time, short_text_cache, time_limit


@pytest.fixture
def calls() -> list[str]:
    return []


def test_a_short_text_is_computed_once_and_a_long_one_each_time(calls: list[str]) -> None:
    @short_text_cache(10, longest=3)
    def upper(text: str) -> str:
        calls.append(text)
        return text.upper()

    assert [upper("abc"), upper("abc"), upper("abcd"), upper("abcd")] == ["ABC", "ABC", "ABCD", "ABCD"]
    assert calls == ["abc", "abcd", "abcd"]


def test_a_full_cache_starts_over(calls: list[str]) -> None:
    @short_text_cache(2)
    def upper(text: str) -> str:
        calls.append(text)
        return text.upper()

    for text in "abca":
        upper(text)
    assert calls == ["a", "b", "c", "a"]


def test_a_failure_is_not_kept(calls: list[str]) -> None:
    @short_text_cache(2)
    def number(text: str) -> int:
        calls.append(text)
        return int(text)

    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            number("x")
    assert calls == ["x", "x"]


class Passed:
    has_passed = True

    def __init__(self, next_look: float) -> None:
        self.next_look = next_look


def test_a_limit_is_not_asked_before_its_next_look() -> None:
    limit = Passed(time.monotonic() + 60)
    with time_limit(limit):
        check_time()
        limit.next_look = 0.0
        with pytest.raises(TimeLimitExceeded):
            check_time()
