"""The reference's answers on expressions and devices. The counts of agreeing rows are printed (shown by pytest -rP)."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

from scheduling.cel import CelFeatures, CompileError, compile_new_selector, compile_selector
from tests.conformance import read
from tests.examples import sample
from tests.scheduling.cel.devices import verdict, view

Row = dict[str, Any]

#: The parser's own words for a syntax error differ; that it is one, and its first place, do not.
OWN_WORDS = {"basic-005-gpu", "basic-005-nic"}
#: The reference goes through maps in random order, and stops where an element decides.
RANDOM_ORDER = {"attributes-033-gpu", "attributes-040-gpu"}


@cache
def cases() -> list[Row]:
    rows: list[Row] = json.loads(read("cel_cases.json"))
    return rows


@cache
def upstream_cases() -> list[Row]:
    rows: list[Row] = json.loads(read("cel_upstream_cases.json"))
    return rows


def stored_answer(row: Row) -> Row:
    """What the allocator sees, in the shape of the vectors."""
    try:
        selector = compile_selector(row["expression"])
    except CompileError as error:
        return {"outcome": "compileError", "compileError": error.message}
    outcome = selector.evaluate(view(row["device"]))
    answer: Row = {
        "outcome": "runtimeError" if outcome.error else str(outcome.matches).lower(),
        "outputType": selector.output_type,
        "estimatedMaxCost": selector.estimated_max_cost,
        "actualCost": outcome.cost,
    }
    if outcome.error:
        answer["runtimeError"] = outcome.error.message
    if selector.exceeds_cost_limit:
        answer["exceedsCostLimit"] = True
    return answer


def new_answer(row: Row) -> Row:
    """What validation of a new object says."""
    features = CelFeatures(
        consumable_capacity=bool(row["features"].get("consumableCapacity")),
        list_type_attributes=bool(row["features"].get("listTypeAttributes")),
    )
    try:
        selector = compile_new_selector(row["expression"], features)
    except CompileError as error:
        return {"outcome": "compileError", "compileError": error.message}
    answer: Row = {
        "outcome": "ok",
        "outputType": selector.output_type,
        "estimatedMaxCost": selector.estimated_max_cost,
    }
    if selector.exceeds_cost_limit:
        answer["exceedsCostLimit"] = True
    return answer


def differing(kind: str, fields: tuple[str, ...], answers: dict[str, Row]) -> dict[str, set[str]]:
    """The names of the rows that differ, by field; prints how many agree."""
    differ = {
        field: {row["name"] for row in cases() if row[kind].get(field) != answers[row["name"]].get(field)}
        for field in fields
    }
    for field, names in differ.items():
        print(f"{kind}.{field}: {len(cases()) - len(names)} of {len(cases())} rows agree")
    return differ


def test_every_stored_row_gives_the_same_outcome_error_and_cost_but_the_listed_ones() -> None:
    fields = (
        "outcome",
        "outputType",
        "compileError",
        "runtimeError",
        "estimatedMaxCost",
        "actualCost",
        "exceedsCostLimit",
    )
    assert differing("stored", fields, {row["name"]: stored_answer(row) for row in cases()}) == {
        "outcome": set(),
        "outputType": set(),
        "compileError": OWN_WORDS,
        "runtimeError": set(),
        "estimatedMaxCost": set(),
        "actualCost": RANDOM_ORDER,
        "exceedsCostLimit": set(),
    }


def test_every_new_row_gives_the_same_judgement_but_for_words() -> None:
    fields = ("outcome", "outputType", "compileError", "estimatedMaxCost", "exceedsCostLimit")
    assert differing("new", fields, {row["name"]: new_answer(row) for row in cases()}) == {
        "outcome": set(),
        "outputType": set(),
        "compileError": OWN_WORDS,
        "estimatedMaxCost": set(),
        "exceedsCostLimit": set(),
    }


def test_the_rows_with_other_words_are_syntax_errors_at_the_same_place() -> None:
    for row in cases():
        if row["name"] in OWN_WORDS:
            start = "compilation failed: ERROR: <input>:1:1: Syntax error: extraneous input '?'"
            assert row["stored"]["compileError"].startswith(start)
            assert stored_answer(row)["compileError"].startswith(start)


def test_costs_that_depend_on_the_order_of_a_map_lie_within_those_of_all_orders() -> None:
    # Two domains are looked at, or one; the attribute is found first, or last of 13.
    bounds = {"attributes-033-gpu": (13, 17), "attributes-040-gpu": (15, 75)}
    for row in cases():
        if row["name"] in bounds:
            least, most = bounds[row["name"]]
            assert least <= stored_answer(row)["actualCost"] <= most


def upstream_answer(row: Row) -> Row:
    if row["envType"] == "StoredExpressions":
        return stored_answer(row)
    answer = new_answer(row)
    return answer if answer["outcome"] == "compileError" else {**stored_answer(row), **answer, "outcome": "true"}


def test_every_upstream_row_gives_the_same_match_error_and_estimate() -> None:
    differ: Counter[str] = Counter()
    for row in upstream_cases():
        answer = upstream_answer(row)
        if "expectCompileErrorSubstring" in row:
            agrees = row["expectCompileErrorSubstring"] in answer.get("compileError", "")
        elif "expectMatchErrorSubstring" in row:
            agrees = row["expectMatchErrorSubstring"] in answer.get("runtimeError", "")
        else:
            agrees = answer["outcome"] == str(row["expectMatch"]).lower()
        agrees = agrees and answer.get("estimatedMaxCost", 0) == row["expectCost"]
        differ[row["name"]] += not agrees
    print(f"upstream: {len(differ) - differ.total()} of {len(upstream_cases())} rows agree")
    assert +differ == Counter()


def test_both_evaluators_agree_on_every_row() -> None:
    compiling = [row for row in cases() if row["stored"]["outcome"] != "compileError"]
    for row in sample(compiling, 150):
        verdict(row["expression"], view(row["device"]))


def test_the_declared_environment_is_the_references() -> None:
    environment = json.loads(read("cel_environment.json"))["stored"]
    from scheduling.cel.environment import stored_environment

    declared = {
        (
            overload.function,
            overload.id,
            tuple(map(_written, overload.args)),
            _written(overload.result),
            overload.is_member,
        )
        for overloads in stored_environment().functions.values()
        for overload in overloads
    }
    expected = {
        (function["name"], overload["id"], tuple(overload["args"] or ()), overload["result"], overload["member"])
        for function in environment["functions"]
        for overload in function["overloads"]
    }
    assert declared == expected
    assert {
        name: str(type_) for name, type_ in stored_environment().structs["kubernetes.DRADevice"].items()
    } == environment["deviceFields"]


def _written(type_: Any) -> str:
    """A type as the vectors write it: parameters in angle brackets."""
    if type_.kind.name == "PARAM":
        return f"<{type_.name}>"
    return f"{type_.name}({', '.join(map(_written, type_.params))})" if type_.params else str(type_.name)
