"""Ours against the reference implementation, case by case; the differences are listed by name and reason."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from scheduling.allocator.__main__ import main, run_scenario
from tests.scheduling.allocator.conformance import DIFFERENCES, Case, compared, named_cases, random_cases

#: cases that agree, of how many
AGREEING = {"named": (222, 223), "random": (59, 64)}


def _disagreeing(cases: tuple[Case, ...]) -> list[str]:
    return [case.name for case in cases if not _agrees(case)]


def _agrees(case: Case) -> bool:
    ours = [compared(answer) for answer in run_scenario(case.scenario)["answers"]]
    return ours == [compared(answer) for answer in case.answers]


@pytest.mark.parametrize(("table", "read"), [("named", named_cases), ("random", random_cases)])
def test_all_cases_but_the_listed_ones_get_the_answer_of_the_reference(
    table: str, read: Callable[[], tuple[Case, ...]]
) -> None:
    cases = read()
    disagreeing = _disagreeing(cases)
    assert sorted(disagreeing) == sorted(name for name in DIFFERENCES if name in {case.name for case in cases})
    assert (len(cases) - len(disagreeing), len(cases)) == AGREEING[table]


def test_the_command_answers_one_line_for_each_scenario(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = random_cases()[:2]
    lines = b"\n".join(json.dumps({**case.scenario, "name": case.name}).encode() for case in cases)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(sys.stdin.buffer) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["name"] for one in printed] == [case.name for case in cases]
    assert [[answer["allocated"] for answer in one["answers"]] for one in printed] == [
        [bool(answer.get("allocated")) for answer in case.answers] for case in cases
    ]


def test_a_line_that_is_no_scenario_is_answered_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([b"not json\n", b'{"name": "empty"}\n']) == 1
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["name"] == "line 1"
    assert "error" in first
    assert second == {"name": "empty", "answers": []}
