"""Requests about workloads as Kubernetes 1.36 answered them: code, reason and fields are the same here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.manciple.api.requests import Api
from tests.manciple.api.test_reference_answers import assert_answered_alike, cases

CASES = cases("workload_cases.jsonl") | cases("batch_cases.jsonl") | cases("stateful_cases.jsonl")
#: why ours is right -> names of cases
EXPLAINED: dict[str, Sequence[str]] = {
    "the reference takes its own rewriting of the data, in every patch, for a change of it": (
        "controllerrevision/delete-dry",
        "controllerrevision/patch-merge",
        "controllerrevision/patch-strategic",
        "controllerrevision/patch-badlabel",
        "controllerrevision/update/revision",
        "controllerrevision/update/revision-neg",
    ),
}


@pytest.mark.parametrize("group", CASES)
def test_answers_are_those_of_the_reference(api: Api, group: str) -> None:
    assert_answered_alike(api, CASES[group], EXPLAINED)
