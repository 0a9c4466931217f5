"""`python -m scheduling.cel` answers JSON lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
GPU = {
    "driver": "gpu.example.com",
    "attributes": {"model": {"string": "A100"}},
    "capacity": {"memory": {"value": "80Gi"}},
}

QUESTIONS: list[tuple[Any, dict[str, Any]]] = [
    (
        {"expression": 'device.driver == "gpu.example.com"', "device": GPU, "features": {}},
        {"outcome": "true", "estimatedMaxCost": 4, "actualCost": 4},
    ),
    (
        {"expression": 'device.capacity["gpu.example.com"].memory.isLessThan(quantity("1Gi"))', "device": GPU},
        {"outcome": "false", "estimatedMaxCost": 6, "actualCost": 6},
    ),
    (
        {"expression": "1 / 0 == 1"},
        {"outcome": "runtimeError", "runtimeError": "division by zero", "estimatedMaxCost": 2, "actualCost": 2},
    ),
    (
        {"expression": "1", "device": GPU},
        {"outcome": "compileError", "compileError": "must evaluate to bool or the unknown type, not int"},
    ),
    (
        {
            "expression": "device.allowMultipleAllocations",
            "environment": "new",
            "features": {"consumableCapacity": True},
        },
        {"outcome": "ok", "estimatedMaxCost": 2},
    ),
    (
        {"expression": "type(1) == int", "features": {"listTypeAttributes": None}},
        {"outcome": "true", "estimatedMaxCost": 1844674407370955266, "actualCost": 1, "exceedsCostLimit": True},
    ),
]


def answers(text: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "scheduling.cel"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_line_gets_its_answer_in_order() -> None:
    text = "".join(json.dumps(question) + "\n" for question, _ in QUESTIONS)
    assert answers(text) == [answer for _, answer in QUESTIONS]


def test_a_line_that_is_no_question_gets_an_answer_too() -> None:
    invalid = answers(
        'no json\n\n{"device": {}}\n{"expression": "true", "device": {"attributes": {"x": {"int": "1"}}}}\n'
    )
    assert [answer["outcome"] for answer in invalid] == ["invalid"] * 3
    assert all(answer["error"] for answer in invalid)
