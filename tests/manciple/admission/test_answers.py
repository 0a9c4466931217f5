"""Requests under policies, answered as Kubernetes 1.36 answered them: codes, reasons, messages, causes and warnings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from manciple.access.authentication import tokens
from manciple.admission import policies
from manciple.admission.expressions import CONDITION_BUDGET, EXPRESSION_LIMIT, VALIDATION_BUDGET
from tests import conformance
from tests.manciple.api.requests import Answer, Api

#: What the reference says of every request in an older version.
_DEPRECATION = re.compile(r" is deprecated in v1\.\d+\+, unavailable in v1\.\d+\+")

#: case -> what runs out sooner than it does in the reference, for it would take seconds
SMALLER_BUDGETS = {
    "expressions that cost too much together": {"VALIDATION_BUDGET": 1_000_000},
    "match conditions that cost too much together": {"CONDITION_BUDGET": 1_000_000},
}


def cases() -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in conformance.read("admission_answers.jsonl").splitlines()]
    return {case["name"]: case for case in found}


@pytest.fixture
def admin(api: Api) -> Api:
    """Who asked the reference."""
    return Api(tokens.issue("admin", ["system:masters"]))


@pytest.mark.sample(30)
@pytest.mark.parametrize("case", cases().values(), ids=cases().keys())
def test_a_request_is_answered_as_the_reference_answers_it(
    admin: Api, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, budget in SMALLER_BUDGETS.get(case["name"], {}).items():
        monkeypatch.setattr(policies, name, budget)
    for step in case["setup"]:
        answer = send(admin, step)
        assert answer.code == 201, answer.text
    for step, expected in zip(case["steps"], case["answers"], strict=True):
        assert told(send(admin, step)) == as_told(expected), step


def test_budgets_are_those_of_the_reference() -> None:
    assert EXPRESSION_LIMIT == 1_000_000
    assert (CONDITION_BUDGET, VALIDATION_BUDGET) == (2_500_000, 10_000_000)


def send(api: Api, step: dict[str, Any]) -> Answer:
    content = b"" if step.get("body") is None else json.dumps(step["body"]).encode()
    return api.send(step["method"], step["path"], body=content, content_type=step.get("type", "application/json"))


def as_told(expected: dict[str, Any]) -> Any:
    found = {key: expected[key] for key in ("code", "reason", "message", "details") if key in expected}
    return found | {"warnings": [text for text in expected.get("warnings", ()) if not _DEPRECATION.search(text)]}


def told(answer: Answer) -> Any:
    found: dict[str, Any] = {"code": answer.code}
    if answer.code >= 400:
        found |= {key: answer.json.get(key) for key in ("reason", "message", "details")}
    return found | {"warnings": list(warnings(answer.header("Warning")))}


def warnings(header: str) -> Iterator[str]:
    return (match.group() for match in re.finditer(r'299 - "(?:\\.|[^"\\])*"', header))
