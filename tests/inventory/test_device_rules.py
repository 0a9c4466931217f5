"""Devices of a ResourceSlice: names, properties, taints, placement, shared capacity; every wrong field by its path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from inventory.kinds.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
    ResourceSlice,
)
from inventory.kinds.registration import RESOURCE_SLICE
from manciple.wire.errors import FieldError
from tests.builders import (
    Version,
    make_device,
    make_device_taint,
    make_node_selector,
    make_slice,
)


def texts(errors: Iterable[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def wrong(resource_slice: ResourceSlice) -> list[str]:
    return texts(RESOURCE_SLICE.validate_create(resource_slice))


def wrong_device(device: Device, **spec: Any) -> list[str]:
    """What is wrong with a slice of this one device, without the path to the device."""
    prefix = "spec.devices[0]"
    found = wrong(make_slice(devices=[device], **spec))
    assert all(text.startswith(prefix) for text in found)
    return [text.removeprefix(prefix).removeprefix(".") for text in found]


@pytest.mark.parametrize(
    ("device", "expected"),
    {
        "upper case name": (
            make_device("A"),
            ['name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case'],
        ),
        "33 attributes and capacities": (
            make_device(attributes={f"a{i}": i for i in range(32)}, capacity={"c": "1"}),
            [": Invalid value: 33: the total number of attributes and capacities must not exceed 32"],
        ),
        "49 values in lists": (
            make_device(attributes={"a": tuple(range(49))}),
            [": Invalid value: 49: the total number of attribute values must not exceed 48"],
        ),
        "attribute without value": (
            Device(name="a", attributes={"x": DeviceAttribute()}),
            ['attributes[x]: Invalid value: "": exactly one value must be specified'],
        ),
        "attribute with two values": (
            Device(name="a", attributes={"x": DeviceAttribute(int_value=1, bool_value=True)}),
            ['attributes[x]: Invalid value: {"int":1,"bool":true}: exactly one value must be specified'],
        ),
        "65 bytes of text": (
            make_device(attributes={"x": "ä" * 33}),
            ["attributes[x].string: Too long: may not be more than 64 bytes"],
        ),
        "no semantic version": (
            make_device(attributes={"x": Version("1.2")}),
            ['attributes[x].version: Invalid value: "1.2": must be a string compatible with semver.org spec 2.0.0'],
        ),
        "attribute that is no identifier": (
            make_device(attributes={"a-b": 1}),
            ['attributes: Invalid value: "a-b": a valid C identifier must start with alphabetic character'],
        ),
        "attribute without a domain before its slash": (
            make_device(attributes={"/b": 1}),
            ['attributes: Invalid value: "": the domain must not be empty'],
        ),
        "attribute with two slashes": (
            make_device(attributes={"a/b/c": 1}),
            ['attributes: Invalid value: "a/b/c": must not contain more than one slash'],
        ),
        "long identifier": (
            make_device(attributes={"x" * 33: 1}),
            ["attributes: Too long: may not be more than 32 bytes"],
        ),
        "amount that is none": (
            make_device(capacity={"memory": "lots"}),
            ['capacity[memory].value: Invalid value: "lots": quantities must match the regular expression'],
        ),
        "policy without sharing": (
            make_device(capacity={"m": DeviceCapacity(value="1", request_policy=CapacityRequestPolicy(default="1"))}),
            ["capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true"],
        ),
        "17 taints": (
            make_device(taints=[make_device_taint(f"t{i}") for i in range(17)]),
            ["taints: Too many: 17: must have at most 16 items"],
        ),
        "taint without effect": (
            make_device(taints=[DeviceTaint(key="a")]),
            ["taints[0].effect: Required value"],
        ),
        "taint of unknown effect": (
            make_device(taints=[DeviceTaint(key="a", effect="Explode")]),
            ['taints[0].effect: Unsupported value: "Explode": supported values: "NoExecute", "NoSchedule", "None"'],
        ),
        "taint with bad key and value": (
            make_device(taints=[DeviceTaint(key="-", value="-", effect="None")]),
            [
                'taints[0].key: Invalid value: "-": name part must consist of',
                'taints[0].value: Invalid value: "-": a valid label must be an empty string',
            ],
        ),
        "three counter sets": (
            make_device(
                consumes_counters=tuple(
                    DeviceCounterConsumption(counter_set=f"c{i}", counters={"m": Counter(value="1")}) for i in range(3)
                )
            ),
            ["consumesCounters: Too many: 3: must have at most 2 items"],
        ),
        "consumption of nothing": (
            make_device(consumes_counters=(DeviceCounterConsumption(),)),
            ["consumesCounters[0].counterSet: Required value", "consumesCounters[0].counters: Required value"],
        ),
        "placement of its own": (
            make_device(node_name="n"),
            [": Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if"],
        ),
        "only failure conditions": (
            make_device(binding_failure_conditions=("a",)),
            ["bindingConditions: Invalid value: []: bindingConditions are required to use bindingFailureConditions"],
        ),
        "a condition that is both": (
            make_device(binding_conditions=("a",), binding_failure_conditions=("a",)),
            [
                'bindingFailureConditions[0]: Invalid value: "a": '
                "bindingFailureConditions must not overlap with bindingConditions"
            ],
        ),
        "five conditions": (
            make_device(binding_conditions=tuple("abcde"), binding_failure_conditions=("f",)),
            ["bindingConditions: Too many: 5: must have at most 4 items"],
        ),
        "costs of an unknown node resource": (
            make_device(
                node_allocatable_resources={
                    "gpu": NodeAllocatableResource(overhead=NodeAllocatableOverhead(per_pod="1"))
                }
            ),
            ['nodeAllocatableResources[gpu]: Invalid value: "gpu": must be a node allocatable resource name'],
        ),
        "costs by an unknown capacity": (
            make_device(
                node_allocatable_resources={
                    "cpu": NodeAllocatableResource(mapping=NodeAllocatableMapping(capacity_key="m"))
                }
            ),
            [
                'nodeAllocatableResources[cpu].mapping.capacityKey: Not found: "m"',
                "nodeAllocatableResources[cpu].mapping.capacityMultiplier: Required value: "
                "capacityMultiplier is required when capacityKey is set",
            ],
        ),
        "costs of an unknown node resource, as 1.36 says them": (
            make_device(node_allocatable_resource_mappings={"gpu": NodeAllocatableResourceMapping()}),
            ['nodeAllocatableResourceMappings[gpu]: Invalid value: "gpu": must be a node allocatable resource name'],
        ),
        "costs by an unknown capacity and none at all, as 1.36 says them": (
            make_device(
                node_allocatable_resource_mappings={
                    "cpu": NodeAllocatableResourceMapping(capacity_key="m", allocation_multiplier="0")
                }
            ),
            [
                'nodeAllocatableResourceMappings[cpu].capacityKey: Not found: "m"',
                "nodeAllocatableResourceMappings[cpu].allocationMultiplier: Invalid value: ",
            ],
        ),
        "costs of nothing": (
            make_device(node_allocatable_resources={"cpu": NodeAllocatableResource()}),
            ["nodeAllocatableResources[cpu]: Required value: at least one of mapping or overhead must be set"],
        ),
    }.values(),
)
def test_wrong_fields_of_a_device(device: Device, expected: list[str]) -> None:
    found = wrong_device(device)
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("device", "expected"),
    {
        "by name": (make_device(node_name="n"), []),
        "by labels": (make_device(node_selector=make_node_selector({"a": "b"})), []),
        "everywhere": (make_device(all_nodes=True), []),
        "nowhere": (make_device(), [": Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes`"]),
        "twice": (
            make_device(node_name="n", all_nodes=True),
            [': Invalid value: "{`nodeName`, `allNodes`}": exactly one of'],
        ),
        "by no name": (
            make_device(node_name="", all_nodes=True),
            ['nodeName: Invalid value: "": must not be empty'],
        ),
    }.values(),
)
def test_devices_may_say_where_they_are_when_the_slice_allows_it(device: Device, expected: list[str]) -> None:
    found = wrong_device(device, node=None, per_device_node_selection=True)
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


def policy(**fields: Any) -> Device:
    return make_device(
        allow_multiple_allocations=True,
        capacity={"m": DeviceCapacity(value="10Gi", request_policy=CapacityRequestPolicy(**fields))},
    )


def bounds(**fields: Any) -> CapacityRequestPolicyRange:
    return CapacityRequestPolicyRange(**fields)


@pytest.mark.parametrize(
    ("device", "expected"),
    {
        "nothing said": (policy(), []),
        "values": (policy(default="1Gi", valid_values=("1Gi", "2Gi")), []),
        "range": (policy(default="1Gi", valid_range=bounds(min="1Gi", max="5Gi", step="2Gi")), []),
        "both": (
            policy(default="1Gi", valid_values=("1Gi",), valid_range=bounds(min="1Gi")),
            ["requestPolicy: Forbidden: exactly one policy can be specified"],
        ),
        "values without default": (
            policy(valid_values=("1Gi",)),
            ["requestPolicy.default: Required value: required when validValues is defined"],
        ),
        "range without default": (
            policy(valid_range=bounds(min="1Gi")),
            ["requestPolicy.default: Required value: required when validRange is defined"],
        ),
        "default among no values": (
            policy(default="3Gi", valid_values=("1Gi",)),
            ['requestPolicy.validValues: Invalid value: "3Gi": default value is not valid'],
        ),
        "values not sorted": (
            policy(default="1Gi", valid_values=("2Gi", "1Gi")),
            ['requestPolicy.validValues[1]: Invalid value: "1Gi": values must be sorted in ascending order'],
        ),
        "value twice": (
            policy(default="1Gi", valid_values=("1Gi", "1024Mi")),
            ['requestPolicy.validValues[1]: Duplicate value: "1024Mi"'],
        ),
        "value above the capacity": (
            policy(default="1Gi", valid_values=("1Gi", "11Gi")),
            ['requestPolicy.validValues[1]: Invalid value: "11Gi": option is larger than capacity value: 10Gi'],
        ),
        "eleven values": (
            policy(default="1", valid_values=tuple(str(i) for i in range(1, 12))),
            ["requestPolicy.validValues: Too many: 11: must have at most 10 items"],
        ),
        "range without minimum": (
            policy(default="1Gi", valid_range=bounds(max="2Gi")),
            ["requestPolicy.validRange.min: Required value"],
        ),
        "default below": (
            policy(default="1Gi", valid_range=bounds(min="2Gi")),
            ['requestPolicy.validRange.min: Invalid value: "1Gi": default is less than min: 2Gi'],
        ),
        "maximum below minimum": (
            policy(default="2Gi", valid_range=bounds(min="2Gi", max="1Gi")),
            [
                'requestPolicy.validRange.max: Invalid value: "2Gi": min is larger than max: 1Gi',
                'requestPolicy.validRange.max: Invalid value: "2Gi": default is more than max: 1Gi',
            ],
        ),
        "no step": (
            policy(default="1Gi", valid_range=bounds(min="1Gi", step="0")),
            ['requestPolicy.validRange.step: Invalid value: "0": must be greater than zero'],
        ),
        "default between steps": (
            policy(default="2Gi", valid_range=bounds(min="1Gi", step="2Gi")),
            ['requestPolicy.validRange.step: Invalid value: "2Gi": value is not a multiple of a given step (2Gi)'],
        ),
    }.values(),
)
def test_request_policies_of_shared_capacity(device: Device, expected: list[str]) -> None:
    found = [text.removeprefix("capacity[m].") for text in wrong_device(device)]
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected
