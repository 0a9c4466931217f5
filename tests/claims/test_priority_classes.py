"""PriorityClass: rules, defaults, columns."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.priority_classes import PRIORITY_CLASS, SYSTEM_CLASSES, PriorityClass
from tests import builders
from tests.builders import stored


def make_priority(name: str = "high", value: int = 1000, **fields: Any) -> PriorityClass:
    prepared: PriorityClass = PRIORITY_CLASS.prepare_create(builders.make_priority(name, value, **fields))
    return prepared


RESERVED = (
    "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: "
)


@pytest.mark.parametrize(
    ("priority", "expected"),
    {
        "minimal": (make_priority(), []),
        "negative": (make_priority(value=-5), []),
        "the greatest": (make_priority(value=1_000_000_000), []),
        "too great": (
            make_priority(value=1_000_000_001),
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        ),
        "name of the system": (
            make_priority("system-mine"),
            [f"{RESERVED}system-mine is not a known system priority class"],
        ),
        "the system's, with another value": (
            make_priority("system-node-critical", 5),
            [f"{RESERVED}value of system-node-critical PriorityClass must be 2000001000"],
        ),
        "the system's, as default": (
            make_priority("system-node-critical", 2_000_001_000, global_default=True),
            [f"{RESERVED}globalDefault of system-node-critical PriorityClass must be false"],
        ),
        "unknown policy": (
            make_priority(preemption_policy="Always"),
            ['preemptionPolicy: Unsupported value: "Always": supported values: "Never", "PreemptLowerPriority"'],
        ),
    }.values(),
)
def test_wrong_fields_of_a_priority_class(priority: PriorityClass, expected: list[str]) -> None:
    assert [str(error) for error in PRIORITY_CLASS.validate_create(priority)] == expected


def test_those_of_the_system_are_valid() -> None:
    for one in SYSTEM_CLASSES:
        assert PRIORITY_CLASS.validate_create(PRIORITY_CLASS.prepare_create(one)) == []


def test_value_and_policy_stay_while_default_and_description_may_change() -> None:
    old = stored(make_priority())
    changed = replace(old, global_default=True, description="for all")
    assert PRIORITY_CLASS.validate_update(changed, old) == []
    changed = replace(old, value=7, preemption_policy="Never")
    assert [str(error) for error in PRIORITY_CLASS.validate_update(changed, old)] == [
        "value: Forbidden: may not be changed in an update.",
        'preemptionPolicy: Invalid value: "Never": field is immutable',
    ]


def test_pods_of_lower_priority_are_preempted_unless_a_class_says_otherwise() -> None:
    assert make_priority().preemption_policy == "PreemptLowerPriority"
    assert make_priority(preemption_policy="Never").preemption_policy == "Never"


def test_kubectl_shows_value_default_and_policy() -> None:
    one = stored(make_priority(global_default=True))
    shown = {column.name: column.cell(one, 0) for column in PRIORITY_CLASS.columns}
    assert list(shown) == ["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"]
    assert (shown["Value"], shown["Global-Default"], shown["PreemptionPolicy"]) == (1000, True, "PreemptLowerPriority")
