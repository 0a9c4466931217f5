"""The checker against what is known, and against a search of every order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.linearizability import Operation, Outcome, State, Verb, contradiction, step


def create(began: float, ended: float, value: str, revision: int) -> Operation:
    return Operation(client="a", verb="create", outcome="ok", began=began, ended=ended, value=value, revision=revision)


def read(began: float, ended: float, value: str, revision: int) -> Operation:
    return Operation(client="b", verb="read", outcome="ok", began=began, ended=ended, value=value, revision=revision)


def replace(began: float, ended: float, value: str, revision: int, expected: int) -> Operation:
    return Operation(
        client="c", verb="replace", outcome="ok", began=began, ended=ended,
        value=value, revision=revision, expected=expected,
    )  # fmt: skip


def absent(began: float, ended: float) -> Operation:
    return Operation(client="d", verb="read", outcome="absent", began=began, ended=ended)


def unknown(began: float, value: str, expected: int) -> Operation:
    return Operation(client="e", verb="replace", outcome="unknown", began=began, value=value, expected=expected)


@pytest.mark.parametrize(
    ("history", "possible"),
    [
        ([], True),
        ([create(0, 1, "x", 5), read(2, 3, "x", 5)], True),
        # A read that began after the write was confirmed sees it.
        ([create(0, 1, "x", 5), absent(2, 3)], False),
        ([create(0, 3, "x", 5), absent(1, 2)], True),
        # Two writers expected the same revision, and both were told that they had it.
        ([create(0, 1, "x", 5), replace(2, 5, "y", 6, 5), replace(3, 4, "z", 7, 5)], False),
        ([create(0, 1, "x", 5), replace(2, 3, "y", 6, 5), replace(3, 4, "z", 7, 6)], True),
        # What was seen once is not taken back.
        ([create(0, 1, "x", 5), replace(2, 9, "y", 6, 5), read(3, 4, "y", 6), read(5, 6, "x", 5)], False),
        # Nobody knows whether it was done: it may be seen, late too, or never.
        ([create(0, 1, "x", 5), unknown(2, "y", 5), read(3, 4, "x", 5), read(5, 6, "y", 8)], True),
        ([create(0, 1, "x", 5), unknown(2, "y", 5), read(3, 4, "x", 5)], True),
        ([create(0, 1, "x", 5), unknown(2, "y", 5), read(3, 4, "y", 8), read(5, 6, "x", 5)], False),
        # Revisions grow.
        ([create(0, 1, "x", 5), replace(2, 3, "y", 4, 5)], False),
    ],
)
def test_a_history_could_have_happened_or_not(history: Sequence[Operation], possible: bool) -> None:
    assert (not contradiction(history)) is possible


#: Answers that nobody gets.
NEVER = {("create", "absent"), ("read", "refused"), ("read", "unknown"), ("delete", "refused")}


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    verb = draw(st.sampled_from(get_args(Verb)))
    outcome = draw(st.sampled_from([one for one in get_args(Outcome) if (verb, one) not in NEVER]))
    began = draw(st.integers(0, 6))
    return Operation(
        client="any",
        verb=verb,
        outcome=outcome,
        began=began,
        ended=math.inf if outcome == "unknown" else began + draw(st.integers(0, 6)),
        value=draw(st.sampled_from("xy")),
        revision=draw(st.integers(1, 4)),
        expected=draw(st.integers(1, 4)),
    )


def any_order(history: Sequence[Operation]) -> bool:
    """Whether there is one, looking at all of them."""
    certain = [one for one in history if one.ended < math.inf]
    unsure = [one for one in history if one.ended == math.inf]
    chosen = [[one for bit, one in enumerate(unsure) if number >> bit & 1] for number in range(1 << len(unsure))]
    return any(_fits(order) for some in chosen for order in permutations(certain + some))


def _fits(order: Sequence[Operation]) -> bool:
    if any(later.ended < one.began for number, one in enumerate(order) for later in order[number + 1 :]):
        return False
    state = State()
    for one in order:
        following = step(state, one)
        if following is None:
            return False
        state = following
    return True


@given(st.lists(operations(), max_size=5))
def test_the_search_finds_what_a_search_of_every_order_finds(history: list[Operation]) -> None:
    assert (not contradiction(history)) is any_order(history)
