"""The search is sound and complete, and finds the first solution: judged by code that shares nothing with it."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from scheduling.allocator.__main__ import run_scenario
from tests.examples import some
from tests.scheduling.allocator.brute import first_solution
from tests.scheduling.allocator.checker import Json, violations
from tests.scheduling.allocator.scenarios import scenarios

THOROUGH = settings(
    max_examples=some(100),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def _devices(results: list[Json]) -> list[list[tuple[Any, ...]]]:
    return [
        [(one["request"], one["driver"], one["pool"], one["device"]) for one in result["devices"].get("results", ())]
        for result in results
    ]


@THOROUGH
@given(scenarios())
def test_every_allocation_keeps_every_rule(scenario: Json) -> None:
    for node, answer in zip(scenario["nodes"], run_scenario(scenario)["answers"], strict=True):
        if answer["allocated"]:
            assert violations(scenario, node, answer["results"]) == []


@THOROUGH
@given(scenarios())
def test_the_first_valid_allocation_is_found_wherever_one_exists(scenario: Json) -> None:
    for node, answer in zip(scenario["nodes"], run_scenario(scenario)["answers"], strict=True):
        if "error" in answer and not answer.get("failedOnNode"):
            assert "All" in str(scenario["claims"]), answer["error"]
            continue
        expected = first_solution(scenario, node)
        assert answer["allocated"] == (expected is not None)
        if expected is not None:
            assert _devices(answer["results"]) == _devices(expected)


@settings(THOROUGH, max_examples=some(50))
@given(scenarios())
def test_the_same_scenario_always_gives_the_same_answer(scenario: Json) -> None:
    assert run_scenario(scenario) == run_scenario(scenario)
