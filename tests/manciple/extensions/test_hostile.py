"""What is large or meant to do harm costs no more than it should."""

from __future__ import annotations

import time
from typing import Any

import pytest

from manciple.extensions.checking import Checker
from manciple.extensions.expressions import NEW, Before, Rules
from manciple.extensions.structure import fit, node_of

SECONDS = 5.0
ITEM = {
    "type": "object",
    "required": ["k"],
    "properties": {"k": {"type": "integer"}, "v": {"type": "integer", "maximum": 5}},
    "x-kubernetes-validations": [{"rule": "self.k >= 0"}],
}
SCHEMA = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": ITEM,
        },
        "word": {"type": "string", "pattern": "^(a+)+$"},
    },
}


def listed(count: int, **others: int) -> dict[str, Any]:
    return {"items": [{"k": number, **others} for number in range(count)]}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("new", "old"),
    [
        (listed(20_000, v=1), listed(20_000, v=2)),
        (listed(20_000, v=9), listed(20_000, v=8)),
        ({"word": "a" * 50_000 + "b"}, {}),
        ({f"unknown-{number}": number for number in range(100_000)}, {}),
    ],
    ids=["many elements changed", "many elements are wrong", "a pattern that backtracks", "many unknown fields"],
)
def test_an_object_is_judged_in_seconds(new: dict[str, Any], old: dict[str, Any]) -> None:
    node, began = node_of(SCHEMA), time.process_time()
    before = Before.of(fit(new, node), old)
    Checker(node).check(new, before)
    Rules(node).check(new, before)
    assert time.process_time() - began < SECONDS


def test_rules_end_with_their_budget() -> None:
    twice = "self.items.all(a, self.items.all(b, a.k + b.k >= 0))"
    node = node_of({**SCHEMA, "x-kubernetes-validations": [{"rule": twice}]})
    began = time.process_time()
    (error,) = Rules(node).check(listed(20_000), NEW)
    assert "cost" in error.detail
    assert time.process_time() - began < SECONDS
