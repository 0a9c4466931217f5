"""DeviceClass and Node: rules, preparation, columns."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from inventory.kinds.devices import DeviceClass, DeviceClassConfiguration, DeviceSelector
from inventory.kinds.nodes import Node, NodeAddress, NodeSpec, NodeStatus, Taint
from inventory.kinds.registration import DEVICE_CLASS, NODE
from tests.builders import make_class, make_meta, make_node, make_selectors, stored

MINIMUM = "device.driver == 'gpu.example.com'"


def wrong(device_class: DeviceClass) -> list[str]:
    return [str(error) for error in DEVICE_CLASS.validate_create(device_class)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    {
        "minimal": ({"expressions": ()}, []),
        "with parameters": ({"parameters": {"sharing": "exclusive"}}, []),
        "upper case name": ({"name": "A"}, ['metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain']),
        "10 KiB": ({"expressions": ["x" * 10 * 1024]}, []),
        "more than 10 KiB": (
            {"expressions": ["x" * (10 * 1024 + 1)]},
            ["spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"],
        ),
        "33 selectors": (
            {"expressions": ["true"] * 33},
            ["spec.selectors: Too many: 33: must have at most 32 items"],
        ),
        "parameters that are no object": (
            {"parameters": [1]},
            ['spec.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object'],
        ),
        "parameters of more than 10 KiB": (
            {"parameters": {"x": "y" * 10 * 1024}},
            ["spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"],
        ),
        "extended resource": ({"extended_resource_name": "example.com/gpu"}, []),
        "resource of kubernetes": (
            {"extended_resource_name": "cpu"},
            ['spec.extendedResourceName: Invalid value: "cpu": must be a valid extended resource name'],
        ),
    }.values(),
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_fields_of_a_class(fields: dict[str, Any], expected: list[str]) -> None:
    found = wrong(make_class(**fields))
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


def test_selectors_and_configurations_must_say_something() -> None:
    plain = make_class()
    spec = replace(plain.spec, selectors=(DeviceSelector(),), config=(DeviceClassConfiguration(),))
    assert wrong(replace(plain, spec=spec)) == [
        "spec.selectors[0].cel: Required value",
        "spec.config[0].opaque: Required value",
    ]


@pytest.mark.usefixtures("picky")
def test_expressions_are_compiled_when_they_are_new_and_only_then() -> None:
    broken = make_class(expressions=[MINIMUM, "broken"])
    message = 'spec.selectors[1].cel.expression: Invalid value: "broken": compilation failed: broken'
    assert wrong(broken) == [message]
    assert DEVICE_CLASS.validate_update(broken, broken) == []
    reordered = replace(broken, spec=replace(broken.spec, selectors=make_selectors(["broken", MINIMUM])))
    assert len(DEVICE_CLASS.validate_update(reordered, broken)) == 1


def wrong_node(node: Node) -> list[str]:
    return [str(error) for error in NODE.validate_create(node)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    {
        "plain": ({}, []),
        "tainted": ({"taints": [Taint(key="a", effect="NoSchedule"), Taint(key="a", effect="NoExecute")]}, []),
        "taint without effect": ({"taints": [Taint(key="a")]}, ["metadata.taints[0].effect: Required value"]),
        "unknown effect": (
            {"taints": [Taint(key="a", effect="x")]},
            [
                'metadata.taints[0].effect: Unsupported value: "x": supported values: '
                '"NoSchedule", "PreferNoSchedule", "NoExecute"'
            ],
        ),
        "taint twice": (
            {"taints": [Taint(key="a", value="1", effect="NoSchedule"), Taint(key="a", effect="NoSchedule")]},
            ['metadata.taints[1]: Duplicate value: {"key":"a","effect":"NoSchedule"}'],
        ),
        "negative amount": (
            {"capacity": {"cpu": "-1"}},
            [
                'status.capacity[cpu]: Invalid value: "-1": must be greater than or equal to 0',
                'status.allocatable[cpu]: Invalid value: "-1": must be greater than or equal to 0',
            ],
        ),
    }.values(),
)
def test_wrong_fields_of_a_node(fields: dict[str, Any], expected: list[str]) -> None:
    assert wrong_node(make_node(**fields)) == expected


def test_a_nodes_address_range_and_provider_are_set_once() -> None:
    old = stored(Node(metadata=make_meta("n"), spec=NodeSpec(provider_id="a", pod_cidrs=("10.0.0.0/24",))))
    fresh = replace(old, spec=NodeSpec())
    assert NODE.validate_update(old, fresh) == []
    assert [error.field for error in NODE.validate_update(fresh, old)] == ["spec.podCIDRs", "spec.providerID"]


def test_a_node_can_allocate_what_it_has_unless_it_says_otherwise() -> None:
    node = Node(metadata=make_meta("n"), status=NodeStatus(capacity={"cpu": "8"}))
    assert NODE.prepare_create(node).status.allocatable == {"cpu": "8"}


def test_an_update_keeps_the_status_and_a_status_update_the_spec() -> None:
    old = stored(make_node())
    new = replace(make_node(unschedulable=True, ready=False, labels={"x": "y"}), metadata=old.metadata)
    assert NODE.prepare_update(new, old).status == old.status
    assert NODE.prepare_update(new, old).spec.unschedulable
    status = NODE.subresources["status"].prepare_update(new, old)
    assert (status.spec, status.status) == (old.spec, new.status)


@pytest.mark.parametrize(
    ("node", "expected"),
    {
        "ready": (make_node(), "Ready"),
        "not ready": (make_node(ready=False), "NotReady"),
        "silent": (Node(metadata=make_meta("n")), "Unknown"),
        "cordoned": (make_node(unschedulable=True), "Ready,SchedulingDisabled"),
    }.values(),
)
def test_the_status_column_of_nodes(node: Node, expected: str) -> None:
    assert cells(node)["Status"] == expected


def cells(node: Node) -> dict[str, Any]:
    return {column.name: column.cell(node, 0.0) for column in NODE.columns}


def test_the_other_columns_of_nodes() -> None:
    node = make_node(labels={"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu"})
    node = replace(node, status=replace(node.status, addresses=(NodeAddress(type="InternalIP", address="10.0.0.1"),)))
    shown = cells(node)
    assert (shown["Roles"], shown["Internal-IP"], shown["External-IP"]) == ("gpu,worker", "10.0.0.1", "<none>")
    assert NODE.selectable(node) == {"spec.unschedulable": "false"}
