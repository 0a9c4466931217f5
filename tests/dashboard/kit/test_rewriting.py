"""A document that gets other values: the text says them, and what stays the same stays as it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.kit.differences import dump, read_yaml, rewritten
from tests.examples import some

SCALARS = st.sampled_from(["", "a", "two words", "a: b", "# no comment", "on\nmore", "'", "null", 0, 7, True, None])
KEYS = st.sampled_from(["name", "kind", "spec", "image", "a.b/c", "on"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


@settings(max_examples=some(400))
@given(DOCUMENTS, DOCUMENTS)
def test_the_text_says_the_new_value_whatever_it_is(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert read_yaml(rewritten(f"{dump(before)}\n", after)) == after


TEXT = """# above
kind: Pod  # a kind
metadata:
  name: web  # a name
  # between
  labels: {a: b}
spec:
- first: 1  # one
  second: 2
# below
"""
#: change -> the lines that are gone
CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({}, set()),
    "a name": ({"metadata": {"name": "x", "labels": {"a": "b"}}}, {"  name: web  # a name"}),
    "one more": ({"metadata": {"name": "web", "labels": {"a": "b"}, "uid": "u"}}, set()),
    "one less": ({"metadata": {"labels": {"a": "b"}}}, {"  name: web  # a name"}),
    "in a list": ({"spec": [{"first": 1, "second": 3}]}, {"  second: 2"}),
    "a list": ({"spec": [1]}, {"- first: 1  # one", "  second: 2"}),
    "more at the top": ({"status": {"phase": ["a", {"b": "c"}]}}, set()),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_stays_the_same_stays_as_it_is_written(case: str) -> None:
    changes, gone = CHANGES[case]
    value = read_yaml(TEXT) | changes
    text = rewritten(TEXT, value)
    assert read_yaml(text) == value
    assert set(TEXT.splitlines()) - set(text.splitlines()) == gone
