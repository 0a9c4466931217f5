"""ResourceSlice: what a driver may publish, every wrong field by its path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from inventory.kinds.devices import Counter, CounterSet, DeviceCounterConsumption, DeviceTaint, ResourceSlice
from inventory.kinds.nodes import NodeSelector
from inventory.kinds.registration import RESOURCE_SLICE, declare_slice
from manciple.wire.errors import FieldError
from tests.builders import (
    Version,
    make_device,
    make_device_taint,
    make_devices,
    make_node_selector,
    make_slice,
    stored,
)

EXACTLY_ONE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def texts(errors: Iterable[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def wrong(resource_slice: ResourceSlice) -> list[str]:
    return texts(RESOURCE_SLICE.validate_create(resource_slice))


def make_named_slice(**fields: Any) -> ResourceSlice:
    """Its name does not follow its pool and driver, which may be wrong."""
    return make_slice("slice", **fields)


def test_a_slice_with_everything_in_order_is_valid() -> None:
    device = make_device(
        attributes={"model": "x", "example.com/numa": 1, "fast": True, "driverVersion": Version("1.2.3-rc.1+build")},
        capacity={"memory": "80Gi"},
        taints=[make_device_taint()],
    )
    assert wrong(make_slice(devices=[device])) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    {
        "no driver": ({"driver": ""}, ["spec.driver: Required value"]),
        "long driver": (
            {"driver": "a" * 60 + ".com"},
            ["spec.driver: Too long: may not be more than 63 bytes"],
        ),
        "no slice count": (
            {"slices": 0},
            ["spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"],
        ),
        "negative generation": (
            {"generation": -1},
            ["spec.pool.generation: Invalid value: -1: must be greater than or equal to zero"],
        ),
        "long pool": (
            {"pool": "a/" * 127 + "a"},
            ["spec.pool.name: Too long: may not be more than 253 bytes"],
        ),
        "no placement": ({"node": None}, [f"spec: Required value: {EXACTLY_ONE}"]),
        "two placements": (
            {"all_nodes": True},
            [f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {EXACTLY_ONE}, but multiple fields are set'],
        ),
        "all nodes, denied": (
            {"node": "n", "all_nodes": False},
            ["spec.allNodes: Invalid value: false: must be either unset or set to true"],
        ),
        "empty node name": (
            {"node": "", "pool": "p"},
            [
                'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string',
                f"spec: Required value: {EXACTLY_ONE}",
            ],
        ),
        "devices of the same name": (
            {"devices": [make_device("a"), make_device("a")]},
            ['spec.devices[1]: Duplicate value: "a"'],
        ),
        "129 devices": (
            {"devices": make_devices(129)},
            ["spec.devices: Too many: 129: must have at most 128 items"],
        ),
        "65 tainted devices": (
            {"devices": make_devices(65, taints=[make_device_taint()])},
            ["spec.devices: Too many: 65: must have at most 64 items"],
        ),
        "counters beside devices": (
            {"shared_counters": (CounterSet(name="c", counters={"memory": Counter(value="1")}),)},
            ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
        ),
        "skipping only the first half": (
            {"skip_node_operations": ("NodePrepareResources",)},
            [
                'spec.skipNodeOperations: Invalid value: ["NodePrepareResources"]: '
                "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
            ],
        ),
        "skipping the unknown": (
            {"skip_node_operations": ("Nap",)},
            [
                'spec.skipNodeOperations[0]: Unsupported value: "Nap": supported values: '
                '"*", "NodePrepareResources", "NodeUnprepareResources"'
            ],
        ),
    }.values(),
)
def test_wrong_fields_of_a_slice(fields: dict[str, Any], expected: list[str]) -> None:
    assert wrong(make_named_slice(**fields)) == expected


def test_limits_are_inclusive() -> None:
    assert wrong(make_slice(devices=make_devices(128))) == []
    assert wrong(make_slice(devices=make_devices(64, taints=[make_device_taint()]))) == []


def test_a_pool_name_may_have_slashes() -> None:
    assert wrong(make_named_slice(pool="region/rack-1")) == []
    (found,) = wrong(make_named_slice(pool="region//rack"))
    assert found.startswith('spec.pool.name: Invalid value: "": a lowercase RFC 1123 subdomain')


def test_a_node_selector_has_exactly_one_term() -> None:
    term = make_node_selector({"zone": "a"}).node_selector_terms[0]
    assert wrong(make_slice(node=None, node_selector=make_node_selector({"zone": "a"}))) == []
    (found,) = wrong(make_slice(node=None, node_selector=NodeSelector(node_selector_terms=(term, term))))
    assert found.startswith("spec.nodeSelector.nodeSelectorTerms: Invalid value: [")
    assert found.endswith(": must have exactly one node selector term")


def test_counter_sets_have_names_and_counters() -> None:
    sets = (CounterSet(name="A"), CounterSet(name="b", counters={"-": Counter(value="x")}))
    found = wrong(make_slice(devices=[], shared_counters=sets))
    assert [text[:50] for text in found] == [
        'spec.sharedCounters[0].name: Invalid value: "A": a',
        "spec.sharedCounters[0].counters: Required value",
        'spec.sharedCounters[1].counters: Invalid value: "-',
        "spec.sharedCounters[1].counters[-].value: Invalid ",
    ]


def test_partitions_carry_the_attribute_that_counts_them_as_text() -> None:
    consumes = (DeviceCounterConsumption(counter_set="c", counters={"m": Counter(value="1")}),)
    name = "gpu.example.com/profile"
    devices = [
        make_device("a", attributes={"profile": "1g"}, consumes_counters=consumes),
        make_device("b", attributes={name: 1}, consumes_counters=consumes),
        make_device("c", consumes_counters=consumes),
        make_device("d"),
    ]
    path = "spec.devices[{}].attributes[gpu.example.com/profile]: {}"
    found = wrong(make_slice(devices=devices, partition_type_attribute=name))
    expected = [path.format(1, 'Invalid value: {"int":1}: must be'), path.format(2, "Required value: device consumes")]
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


# Updates -------------------------------------------------------------------------------------------------------------

OLD = stored(make_slice())


@pytest.mark.parametrize(
    ("changed", "expected"),
    {
        "devices": (make_slice(devices=[make_device("new")]), []),
        "generation": (make_slice(generation=2), []),
        "driver": (
            make_slice(name="node-1-gpu.example.com", driver="other.example.com"),
            ['spec.driver: Invalid value: "other.example.com": field is immutable'],
        ),
        "pool": (
            make_slice(name="node-1-gpu.example.com", pool="p"),
            ['spec.pool.name: Invalid value: "p": field is immutable'],
        ),
        "node": (
            make_slice(name="node-1-gpu.example.com", node="n", pool="node-1"),
            ['spec.nodeName: Invalid value: "n": field is immutable'],
        ),
    }.values(),
)
def test_what_an_update_of_a_slice_may_change(changed: ResourceSlice, expected: list[str]) -> None:
    assert texts(RESOURCE_SLICE.validate_update(changed, OLD)) == expected


def test_what_was_accepted_once_is_not_judged_again() -> None:
    taints = (DeviceTaint(key="a", effect="FromTheFuture"),)
    old = stored(make_slice(devices=[make_device(taints=taints)]))
    assert texts(RESOURCE_SLICE.validate_update(old, old)) == []
    other = make_slice(devices=[make_device("renamed", taints=taints)])
    assert len(RESOURCE_SLICE.validate_update(other, old)) == 1


def test_new_taints_are_dated_and_old_ones_keep_their_date() -> None:
    kind = declare_slice(lambda: "2026-02-02T00:00:00Z")
    undated = DeviceTaint(key="a", effect="NoExecute")
    made = kind.prepare_create(make_slice(devices=[make_device(taints=[undated])]))
    assert made.spec.devices[0].taints[0].time_added == "2026-02-02T00:00:00Z"
    later = declare_slice(lambda: "2026-03-03T00:00:00Z")
    extra = DeviceTaint(key="b", effect="NoExecute")
    again = later.prepare_update(make_slice(devices=[make_device(taints=[undated, extra])]), made)
    assert [taint.time_added for taint in again.spec.devices[0].taints] == [
        "2026-02-02T00:00:00Z",
        "2026-03-03T00:00:00Z",
    ]


def test_slices_are_found_by_node_and_driver_and_shown_with_them() -> None:
    shared = make_slice(node=None, all_nodes=True, pool="p")
    assert RESOURCE_SLICE.selectable(OLD) == {"spec.nodeName": "node-1", "spec.driver": "gpu.example.com"}
    assert RESOURCE_SLICE.selectable(shared)["spec.nodeName"] == ""
    cells = {column.name: column.cell(replace(shared), 0.0) for column in RESOURCE_SLICE.columns}
    assert (cells["Node"], cells["Driver"], cells["Pool"]) == ("<unset>", "gpu.example.com", "p")
