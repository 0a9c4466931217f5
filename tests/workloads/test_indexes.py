"""Sets of completion indexes are written, read and checked as Kubernetes does."""

from __future__ import annotations

import pytest

from workloads.kinds.indexes import IndexSet, check_disjoint, check_indexes

#: indexes -> how they are written
TEXTS = {
    (): "",
    (3,): "3",
    (3, 4): "3,4",
    (3, 4, 5): "3-5",
    (9, 0, 2, 1, 7): "0-2,7,9",
}


@pytest.mark.parametrize(("indexes", "text"), TEXTS.items())
def test_a_set_is_written_and_read(indexes: tuple[int, ...], text: str) -> None:
    found = IndexSet.of(indexes)
    assert (str(found), len(found)) == (text, len(indexes))
    assert IndexSet.read(text, 100) == found
    assert [index for index in range(12) if index in found] == sorted(indexes)
    assert list(found.missing(12)) == [index for index in range(12) if index not in indexes]


def test_what_is_beyond_the_completions_or_unreadable_is_not_read() -> None:
    assert str(IndexSet.read("0-2,x,5-9,12", 7)) == "0-2,5,6"
    assert not IndexSet.read("7", 7)


def test_a_million_in_a_row_are_one_interval() -> None:
    found = IndexSet.read("0-999999", 10**6).union(IndexSet.of([10**6 + 1]))
    assert found.intervals == ((0, 999999), (1000001, 1000001))
    assert IndexSet.read("0-9", 20).shared_with(IndexSet.read("3,5-12,15", 20)) == 6


#: (text, completions) -> (how many, what is wrong)
CHECKED = {
    ("", 4): (0, ""),
    ("0,2-3", 4): (3, ""),
    ("0-9", 4): (0, 'too large index: "9"'),
    ("a-b", 4): (0, 'cannot convert string to integer for index: "a"'),
    ("1-", 4): (0, 'cannot convert string to integer for index: ""'),
    ("3-1", 4): (0, "non-increasing order, previous: 3, current: 1"),
    ("2,1", 4): (0, "non-increasing order, previous: 2, current: 1"),
    ("0-1-2", 4): (0, "at most two parts"),
}


@pytest.mark.parametrize(("asked", "answer"), CHECKED.items())
def test_what_clients_write_is_checked(asked: tuple[str, int], answer: tuple[int, str]) -> None:
    total, wrong = check_indexes(*asked)
    assert (total, answer[1] in wrong, bool(wrong)) == (answer[0], True, bool(answer[1]))


def test_failed_and_completed_indexes_share_none() -> None:
    assert not check_disjoint("0-3,7", "4,6,8-9", 20)
    assert check_disjoint("0-3,7", "4,6-8", 20).endswith("index: 7")
