"""Requests about workloads as Kubernetes 1.36 answered them: code, reason and fields are the same here."""

from __future__ import annotations

import pytest

from tests.manciple.api.requests import Api
from tests.manciple.api.test_reference_answers import assert_answered_alike, cases

CASES = {
    **cases("workload_cases.jsonl"),
    **cases("batch_cases.jsonl"),
    **cases("stateful_cases.jsonl"),
    **cases("autoscaler_cases.jsonl"),
}


@pytest.mark.parametrize("group", CASES)
def test_answers_are_those_of_the_reference(api: Api, group: str) -> None:
    assert_answered_alike(api, CASES[group], {})
