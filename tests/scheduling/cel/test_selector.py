"""What surrounds the language: wrapping a device, keeping compiled selectors, telling what they look at."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

import pytest

from inventory.kinds.devices import Device, DeviceAttribute
from scheduling.cel import (
    CelFeatures,
    CompileError,
    DeviceReference,
    DeviceView,
    EvaluationError,
    compile_new_selector,
    compile_selector,
    projection,
)
from tests.builders.inventory import Version, make_device
from tests.scheduling.cel.devices import DRIVER, gpu


def matches(expression: str, device: Device, driver: str = DRIVER) -> bool:
    return compile_selector(expression).matches(DeviceView.of(driver, device))


def test_a_name_without_a_domain_has_the_drivers() -> None:
    device = make_device(attributes={"model": "A", "other.example.com/model": "B"}, capacity={"memory": "1Gi"})
    assert matches(f'device.attributes["{DRIVER}"].model == "A"', device)
    assert matches('device.attributes["other.example.com"].model == "B"', device)
    assert matches('device.attributes["x"].model == "A"', device, driver="x")
    assert matches(f'"memory" in device.capacity["{DRIVER}"]', device)


def test_attributes_have_their_types() -> None:
    device = make_device(attributes={"i": 1, "b": True, "s": "x", "v": Version("1.2.3"), "list": (1, 2)})
    for expression in ("gpu.i + 1 == 2", "gpu.b", "gpu.s + 'y' == 'xy'", "gpu.v.minor() == 2", "gpu.list[1] == 2"):
        assert matches(f'cel.bind(gpu, device.attributes["{DRIVER}"], {expression})', device)


@pytest.mark.parametrize(
    ("attribute", "fault"),
    [
        (DeviceAttribute(), "attribute x: unsupported attribute value"),
        (
            DeviceAttribute(version_value="1.2"),
            "attribute x: parse semantic version: No Major.Minor.Patch elements found",
        ),
    ],
)
def test_a_value_that_cannot_be_read_fails_every_expression(attribute: DeviceAttribute, fault: str) -> None:
    with pytest.raises(EvaluationError, match=rf"^{re.escape(fault)}$"):
        matches("true", Device(name="gpu-0", attributes={"x": attribute}))


def test_a_shared_device_says_so() -> None:
    assert matches("device.allowMultipleAllocations", make_device(allow_multiple_allocations=True))
    assert not matches("device.allowMultipleAllocations", make_device())


def test_a_selector_is_compiled_once() -> None:
    assert compile_selector("device.driver == 'once'") is compile_selector("device.driver == 'once'")


def test_a_refusal_is_kept_but_each_caller_gets_an_error_of_its_own() -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(CompileError) as refused:
            compile_selector("nosuch")
        errors.append(refused.value)
    assert errors[0] is not errors[1]
    assert errors[0].message == errors[1].message


def test_new_expressions_may_use_only_what_the_features_allow() -> None:
    shared, listed = "device.allowMultipleAllocations", f'device.attributes["{DRIVER}"].x.includes(1)'
    compile_new_selector(shared, CelFeatures(consumable_capacity=True))
    compile_new_selector(listed, CelFeatures(list_type_attributes=True))
    for expression in (shared, listed):
        compile_selector(expression)
        with pytest.raises(CompileError):
            compile_new_selector(expression, CelFeatures())


def test_what_could_become_too_dear_is_told_and_counted_and_stopped() -> None:
    dear = compile_selector("lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))")
    assert dear.exceeds_cost_limit
    with pytest.raises(EvaluationError, match="cost limit exceeded"):
        dear.matches(gpu())
    assert not compile_selector("true").exceeds_cost_limit


def reference(field: str, domain: str = "", identifier: str = "") -> DeviceReference:
    return DeviceReference(field, domain, identifier)


LOOKS_AT: dict[str, AbstractSet[DeviceReference] | None] = {
    "true": frozenset(),
    "device.driver == 'x'": {reference("driver")},
    "device.allowMultipleAllocations": {reference("allowMultipleAllocations")},
    'device.attributes["d"].a == 1': {reference("attributes", "d", "a")},
    'has(device.attributes["d"].a)': {reference("attributes", "d", "a")},
    'device.attributes["d"].?a.orValue(1) == 1': {reference("attributes", "d", "a")},
    'device.capacity["d"]["a"].isInteger() && device.attributes["d"][?"b"].hasValue()': {
        reference("capacity", "d", "a"),
        reference("attributes", "d", "b"),
    },
    'cel.bind(x, device.attributes["d"], x.a == 1)': {reference("attributes", "d")},
    'device.attributes["d"].all(k, k != "x")': {reference("attributes", "d")},
    '"d" in device.attributes': {reference("attributes")},
    "device.attributes[device.driver].a == 1": {reference("attributes"), reference("driver")},
    "device == device": None,
    "[1].all(device, device == 1)": None,
}


@pytest.mark.parametrize("expression", LOOKS_AT)
def test_it_tells_what_it_looks_at(expression: str) -> None:
    assert compile_selector(expression).references == LOOKS_AT[expression]


def test_devices_that_are_alike_in_what_is_looked_at_have_equal_projections() -> None:
    references = compile_selector('device.attributes["d"].a == 1').references
    assert references is not None
    first = DeviceView(driver="d", attributes={"a": 1, "b": 2})
    alike = DeviceView(driver="d", attributes={"a": 1, "b": 3})
    others = [
        DeviceView(driver="d", attributes={"a": 2}),
        DeviceView(driver="d", attributes={"a": True}),
        DeviceView(driver="d", attributes={"b": 1}),
        DeviceView(driver="d", attributes={"a": [1]}),
        DeviceView(driver="d", attributes={"a": 1}, fault="unreadable"),
    ]
    assert projection(first, references) == projection(alike, references)
    assert all(projection(first, references) != projection(other, references) for other in others)


def test_projections_tell_an_empty_domain_from_a_missing_one() -> None:
    references = compile_selector('"x" in device.attributes').references
    assert references is not None
    with_domain = DeviceView(driver="d", attributes={"x/a": 1})
    assert projection(with_domain, references) != projection(DeviceView(driver="d"), references)
