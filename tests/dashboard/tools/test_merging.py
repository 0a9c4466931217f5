"""Merging what two people have made of one document: nobody's change is lost without a word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.tools.objects import MISSING, Merge

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from("xyz"))
ENTRIES = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abc"), "value": SCALARS}),
    max_size=3,
    unique_by=lambda one: one["name"],
)
DOCUMENTS = st.recursive(
    st.one_of(SCALARS, ENTRIES, st.lists(SCALARS, max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
).filter(lambda one: isinstance(one, dict))


@given(DOCUMENTS, DOCUMENTS)
def test_who_changed_alone_is_taken_whole(base: Any, changed: Any) -> None:
    assert Merge(base, changed, base).document == changed
    assert Merge(base, base, changed).document == changed
    both = Merge(base, changed, changed)
    assert (both.document, both.conflicts) == (changed, [])


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_the_two_agree_where_there_is_no_conflict_and_conflicts_are_settled_by_choice(
    base: Any, mine: Any, theirs: Any
) -> None:
    found, other = Merge(base, mine, theirs), Merge(base, theirs, mine)
    assert {one.path for one in found.conflicts} == {one.path for one in other.conflicts}
    chosen = Merge(base, mine, theirs, take_mine={one.path for one in found.conflicts})
    assert not found.conflicts or chosen.document != found.document
    if not found.conflicts:
        assert _sorted(found.document) == _sorted(other.document)


def _sorted(value: Any) -> Any:
    """Entries with names in the order of these: which side's order it is does not matter."""
    if isinstance(value, dict):
        return {name: _sorted(one) for name, one in sorted(value.items())}
    if isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value):
        return sorted(map(_sorted, value), key=lambda one: str(one["name"]))
    return value


CASES: dict[str, tuple[Any, Any, Any, Any, list[str]]] = {
    "two fields": ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}, []),
    "one field": ({"a": 1}, {"a": 2}, {"a": 3}, {"a": 3}, ["a"]),
    "a field below": ({"s": {"a": 1, "b": 1}}, {"s": {"a": 2, "b": 1}}, {"s": {"a": 3}}, {"s": {"a": 3}}, ["s.a"]),
    "deleted and changed": ({"a": 1}, {}, {"a": 2}, {"a": 2}, ["a"]),
    "two entries of a list": (
        {"l": [{"name": "x", "v": 1}, {"name": "y", "v": 1}]},
        {"l": [{"name": "x", "v": 2}, {"name": "y", "v": 1}]},
        {"l": [{"name": "x", "v": 1}, {"name": "y", "v": 2}, {"name": "z"}]},
        {"l": [{"name": "x", "v": 2}, {"name": "y", "v": 2}, {"name": "z"}]},
        [],
    ),
    "one entry of a list": (
        {"l": [{"name": "x", "v": 1}]},
        {"l": [{"name": "x", "v": 2}]},
        {"l": [{"name": "x", "v": 3}]},
        {"l": [{"name": "x", "v": 3}]},
        ["l[x].v"],
    ),
    "lists without names": ({"l": [1]}, {"l": [1, 2]}, {"l": [1, 3]}, {"l": [1, 3]}, ["l"]),
}


@pytest.mark.parametrize("phrase", CASES)
def test_what_becomes_of(phrase: str) -> None:
    base, mine, theirs, expected, conflicts = CASES[phrase]
    found = Merge(base, mine, theirs)
    assert found.document == expected
    assert [one.path for one in found.conflicts] == conflicts


def test_a_conflict_about_a_field_that_is_not_there_says_so() -> None:
    (conflict,) = Merge({"a": 1}, {}, {"a": 2}).conflicts
    assert (conflict.base, conflict.mine, conflict.theirs) == (1, MISSING, 2)
    assert Merge({"a": 1}, {}, {"a": 2}, take_mine={"a"}).document == {}
