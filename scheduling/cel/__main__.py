"""`python -m scheduling.cel`: what a selector says of a device, for whoever writes one.

Reads JSON lines from standard input, writes one JSON line for each:

    {"expression": "device.driver == \\"gpu.example.com\\"", "device": {"driver": "gpu.example.com",
     "attributes": {"model": {"string": "A100"}}, "capacity": {"memory": {"value": "80Gi"}}}, "features": {}}

    {"outcome": "true", "estimatedMaxCost": 4, "actualCost": 4}

The device is one of a ResourceSlice plus its driver's name. outcome: true, false, compileError, runtimeError; the
errors stand in fields of these names. An expression is taken as part of a stored object, for which features do not
count; with "environment": "new" it is judged as one on its way into an object, with the features named
(consumableCapacity, listTypeAttributes), and the outcome is ok or compileError. A line that is no such question gets
the outcome invalid and an `error`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from inventory.kinds.devices import Device
from manciple.cel.errors import CompileError
from scheduling.cel.device import DeviceView
from scheduling.cel.environment import CelFeatures
from scheduling.cel.selector import Selector, compile_new_selector, compile_selector


class FeatureNames(msgspec.Struct, rename="camel", frozen=True):
    consumable_capacity: bool | None = None
    list_type_attributes: bool | None = None


class DriverName(msgspec.Struct, frozen=True):
    driver: str = ""


class EvaluationQuestion(msgspec.Struct, frozen=True):
    expression: str
    device: msgspec.Raw = msgspec.Raw(b"{}")
    features: FeatureNames = FeatureNames()
    environment: Literal["stored", "new"] = "stored"


class EvaluationAnswer(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    outcome: str
    compile_error: str = ""
    runtime_error: str = ""
    estimated_max_cost: int | None = None
    actual_cost: int | None = None
    exceeds_cost_limit: bool = False
    error: str = ""


def answer(line: bytes) -> EvaluationAnswer:
    """The answer to one line."""
    try:
        question = msgspec.json.decode(line, type=EvaluationQuestion)
        device = _view(question.device)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return EvaluationAnswer(outcome="invalid", error=str(error))
    try:
        selector = _selector(question)
    except CompileError as error:
        return EvaluationAnswer(outcome="compileError", compile_error=error.message)
    if question.environment == "new":
        return _judged(selector, "ok")
    return _evaluated(selector, device)


def _selector(question: EvaluationQuestion) -> Selector:
    if question.environment == "stored":
        return compile_selector(question.expression)
    features = CelFeatures(
        consumable_capacity=bool(question.features.consumable_capacity),
        list_type_attributes=bool(question.features.list_type_attributes),
    )
    return compile_new_selector(question.expression, features)


def _view(raw: msgspec.Raw) -> DeviceView:
    driver = msgspec.json.decode(raw, type=DriverName).driver
    return DeviceView.of(driver, msgspec.json.decode(raw, type=Device))


def _judged(selector: Selector, outcome: str, **more: Any) -> EvaluationAnswer:
    return EvaluationAnswer(
        outcome=outcome,
        estimated_max_cost=selector.estimated_max_cost,
        exceeds_cost_limit=selector.exceeds_cost_limit,
        **more,
    )


def _evaluated(selector: Selector, device: DeviceView) -> EvaluationAnswer:
    outcome = selector.evaluate(device)
    if outcome.error is not None:
        return _judged(selector, "runtimeError", runtime_error=outcome.error.message, actual_cost=outcome.cost)
    return _judged(selector, "true" if outcome.matches else "false", actual_cost=outcome.cost)


def answers(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        if line.strip():
            yield msgspec.json.encode(answer(line)) + b"\n"


def main() -> None:
    for text in answers(sys.stdin.buffer):
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
