"""The inventory's index rows: pools and their devices as slices come and go, classes, nodes."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inventory.kinds.devices import ResourceSlice
from inventory.kinds.registration import DEVICE_CLASS, NODE, RESOURCE_SLICE
from inventory.models import Device, DeviceClass, Node, Pool, PublishedSlice
from manciple.store import objects, sql
from manciple.store.models import Event, StoredObject
from tests.builders import DRIVER, make_class, make_device, make_device_taint, make_devices, make_node, make_slice
from tests.examples import some
from tests.indexes import assert_rebuilt_the_same, rows_of

pytestmark = pytest.mark.django_db

POOL = "node-1"


def publish(*slices: ResourceSlice) -> None:
    """Create or replace slices, all in one transaction."""
    with objects.writing() as writer:
        for one in slices:
            if writer.get(RESOURCE_SLICE, "", one.metadata.name) is None:
                writer.create(RESOURCE_SLICE, one)
            else:
                writer.update(RESOURCE_SLICE, one)


def withdraw(*names: str) -> None:
    with objects.writing() as writer:
        for name in names:
            writer.delete(RESOURCE_SLICE, "", name)


def part(name: str, *devices: str, **fields: Any) -> ResourceSlice:
    """A slice of POOL with devices of these names."""
    return make_slice(name, devices=[make_device(device) for device in devices], **fields)


def devices() -> list[str]:
    return [device.name for device in Device.objects.order_by("driver", "pool", "slice_name", "position")]


def pool() -> Pool:
    return Pool.objects.get(driver=DRIVER, name=POOL)


# Pools ---------------------------------------------------------------------------------------------------------------


def test_one_slice_that_announces_itself_is_a_complete_pool() -> None:
    publish(part("s", "gpu-0", "gpu-1"))
    assert (pool().complete, pool().slices_expected, pool().slices_seen) == (True, 1, 1)
    assert (pool().generation, pool().node_name, pool().device_count) == (1, "node-1", 2)
    assert devices() == ["gpu-0", "gpu-1"]


def test_a_pool_is_complete_with_its_last_slice() -> None:
    publish(part("a", "gpu-0", slices=2))
    assert not pool().complete
    publish(part("b", "gpu-1", slices=2))
    assert pool().complete
    withdraw("a")
    assert not pool().complete
    assert devices() == ["gpu-1"]


def test_too_many_slices_are_incomplete_too() -> None:
    publish(part("a", "gpu-0"), part("b", "gpu-1"))
    assert not pool().complete


def test_the_first_slice_by_name_says_how_many_there_are() -> None:
    publish(part("b", "gpu-1", slices=7), part("a", "gpu-0", slices=2))
    assert (pool().slices_expected, pool().complete) == (2, True)


def test_only_the_highest_generation_counts() -> None:
    publish(part("a", "gpu-0", slices=2), part("b", "gpu-1", slices=2))
    publish(part("a", "new-0", slices=2, generation=2))
    assert (pool().generation, pool().slices_seen, pool().complete) == (2, 1, False)
    assert devices() == ["new-0"]
    publish(part("b", "new-1", slices=2, generation=2))
    assert pool().complete
    assert devices() == ["new-0", "new-1"]


def test_an_older_generation_counts_again_when_the_newer_goes() -> None:
    publish(part("a", "gpu-0"), part("b", "new-0", generation=2))
    assert devices() == ["new-0"]
    withdraw("b")
    assert (pool().generation, devices()) == (1, ["gpu-0"])


def test_a_pool_goes_with_its_last_slice() -> None:
    publish(part("a", "gpu-0"))
    withdraw("a")
    assert not Pool.objects.exists()
    assert devices() == []


def test_pools_of_one_name_and_two_drivers_are_two_pools() -> None:
    publish(part("a", "gpu-0"), part("b", "nic-0", driver="nic.example.com"))
    assert Pool.objects.filter(complete=True).count() == 2


POOL_NODES: dict[str, tuple[list[ResourceSlice], list[tuple[str, bool]]]] = {
    "one node": ([part("a", slices=2), part("b", slices=2)], [("node-1", True)]),
    "every node": ([part("a", node=None, pool=POOL, all_nodes=True)], [("", True)]),
    "two nodes each": (
        [part("a"), part("b", node="node-2", pool=POOL, slices=2)],
        [("node-1", True), ("node-2", False)],
    ),
    "two nodes together": (
        [part("a", slices=2), part("b", node="node-2", pool=POOL, slices=2)],
        [("node-1", True), ("node-2", True)],
    ),
}


@pytest.mark.parametrize("case", POOL_NODES)
def test_the_nodes_of_a_pool_on(case: str) -> None:
    slices, nodes = POOL_NODES[case]
    publish(*slices)
    assert list(Pool.objects.order_by("node_name").values_list("node_name", "complete")) == nodes
    withdraw("a")
    assert list(Pool.objects.values_list("complete", flat=True)) == ([False] if len(slices) > 1 else [])


# Devices -------------------------------------------------------------------------------------------------------------


def test_a_device_row_tells_what_was_published() -> None:
    gpu = make_device(
        attributes={"model": "A100", "index": 0, "nvlink": True},
        capacity={"memory": "80Gi"},
        taints=[make_device_taint()],
        allow_multiple_allocations=True,
    )
    publish(make_slice("s", devices=[gpu]))
    row = Device.objects.get()
    assert (row.driver, row.pool, row.name, row.slice_name, row.node_name) == (DRIVER, POOL, "gpu-0", "s", "node-1")
    assert row.attributes == {"model": {"string": "A100"}, "index": {"int": 0}, "nvlink": {"bool": True}}
    assert row.capacity == {"memory": {"value": "80Gi"}}
    assert [(taint["key"], taint["effect"]) for taint in row.taints] == [("example.com/broken", "NoSchedule")]
    assert row.shared


def test_text_that_a_database_cannot_hold_is_shown_with_a_stand_in() -> None:
    publish(make_slice(devices=[make_device(attributes={"model": "A\x00100", "path": "C:\\u0000"})]))
    assert Device.objects.get().attributes == {"model": {"string": "A\ufffd100"}, "path": {"string": "C:\\u0000"}}


def test_attributes_and_capacity_can_be_queried() -> None:
    publish(make_slice(devices=[make_device("a", attributes={"model": "A100"}), make_device("b")]))
    assert Device.objects.filter(attributes__model__string="A100").get().name == "a"


def test_a_device_may_name_its_own_node() -> None:
    gpu = make_device(node_name="node-7")
    publish(make_slice("s", node=None, pool=POOL, per_device_node_selection=True, devices=[gpu]))
    assert Device.objects.get().node_name == "node-7"


def test_devices_come_in_the_order_of_slices_and_lists() -> None:
    publish(part("b", "a", "c", slices=2), part("a", "z", "b", slices=2))
    assert devices() == ["z", "b", "a", "c"]


def test_a_changed_slice_replaces_its_devices_alone() -> None:
    publish(part("a", "gpu-0", "gpu-1", slices=2), part("b", "gpu-2", slices=2))
    untouched = Device.objects.get(name="gpu-2").pk
    publish(part("a", "gpu-1", "gpu-3", slices=2))
    assert devices() == ["gpu-1", "gpu-3", "gpu-2"]
    assert Device.objects.get(name="gpu-2").pk == untouched


def test_a_slice_whose_devices_stay_leaves_their_rows_alone() -> None:
    publish(part("a", "gpu-0"))
    before = Device.objects.get().pk
    publish(part("a", "gpu-0", meta={"labels": {"rack": "r1"}}))
    publish(part("a", "gpu-0", generation=2))
    assert Device.objects.get().pk == before
    assert pool().generation == 2


def test_two_slices_may_publish_one_device_name() -> None:
    """For different nodes that is right, on one node it makes the pool invalid; the index shows both."""
    publish(part("a", "gpu-0", slices=2), part("b", "gpu-0", slices=2))
    assert devices() == ["gpu-0", "gpu-0"]
    withdraw("a")
    assert devices() == ["gpu-0"]


def test_publishing_costs_the_same_for_one_slice_and_for_many() -> None:
    def queries_for(first: int, count: int) -> int:
        slices = [make_slice(node=f"n{number}", devices=make_devices(8)) for number in range(first, first + count)]
        with CaptureQueriesContext(connection) as queries, objects.writing() as writer:
            writer.load(RESOURCE_SLICE, [("", one.metadata.name) for one in slices])
            for one in slices:
                writer.create(RESOURCE_SLICE, one)
        return len(queries)

    queries_for(0, 1)  # makes the counter's row
    assert queries_for(1, 2) == queries_for(3, 15)


NAMES = st.sampled_from("abcd")
GENERATIONS = st.integers(1, 3)
DEVICE_NAMES = st.lists(st.sampled_from(["gpu-0", "gpu-1", "gpu-2"]), unique=True, max_size=2)
PUBLISHED = st.builds(
    lambda name, generation, slices, found, pool_name: part(
        name, *found, generation=generation, slices=slices, pool=pool_name
    ),
    NAMES,
    GENERATIONS,
    st.integers(1, 3),
    DEVICE_NAMES,
    st.sampled_from([POOL, "other"]),
)
#: transactions that publish some slices and withdraw others
TRANSACTIONS = st.lists(st.tuples(st.lists(PUBLISHED, max_size=3), st.sets(NAMES, max_size=2)), max_size=8)


@settings(
    max_examples=some(20), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(transactions=TRANSACTIONS)
def test_whatever_was_published_the_rows_are_those_of_a_rebuild(
    transactions: list[tuple[list[ResourceSlice], set[str]]],
) -> None:
    for model in (PublishedSlice, Pool, Device, StoredObject, Event):
        sql.clear(model)
    for published, withdrawn in transactions:
        with objects.writing() as writer:
            for name in sorted(withdrawn):
                if writer.get(RESOURCE_SLICE, "", name) is not None:
                    writer.delete(RESOURCE_SLICE, "", name)
            for one in published:
                known = writer.get(RESOURCE_SLICE, "", one.metadata.name)
                (writer.create if known is None else writer.update)(RESOURCE_SLICE, one)
        assert_rebuilt_the_same()
        assert sum(row.device_count for row in Pool.objects.all()) == Device.objects.count()


# Classes and nodes ---------------------------------------------------------------------------------------------------


def test_a_class_row_tells_selectors_and_configuration() -> None:
    wanted = make_class(
        "gpus", expressions=["device.driver == 'x'"], parameters={"a": 1}, extended_resource_name="e.com/g"
    )
    with objects.writing() as writer:
        created = writer.create(DEVICE_CLASS, wanted)
    row = DeviceClass.objects.get()
    assert (row.uid, row.name, row.extended_resource_name) == (created.metadata.uid, "gpus", "e.com/g")
    assert row.selectors == [{"cel": {"expression": "device.driver == 'x'"}}]
    assert row.config == [{"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}]
    with objects.writing() as writer:
        writer.update(DEVICE_CLASS, make_class("gpus", expressions=[]))
    row = DeviceClass.objects.get()
    assert (row.selectors, row.config, row.extended_resource_name) == ([], [], "")
    with objects.writing() as writer:
        writer.delete(DEVICE_CLASS, "", "gpus")
    assert not DeviceClass.objects.exists()


def test_a_node_row_tells_readiness_labels_taints_and_amounts() -> None:
    with objects.writing() as writer:
        writer.create(NODE, make_node("node-1", labels={"rack": "r1"}))
        writer.create(NODE, make_node("node-2", ready=False, unschedulable=True))
    first, second = Node.objects.order_by("name")
    assert (first.ready, first.unschedulable, first.labels["rack"]) == (True, False, "r1")
    assert (first.capacity["cpu"], first.allocatable["pods"], first.taints) == ("8", "110", [])
    assert (second.ready, second.unschedulable) == (False, True)


def test_a_heartbeat_does_not_touch_the_nodes_row() -> None:
    with objects.writing() as writer:
        writer.create(NODE, make_node())
    with CaptureQueriesContext(connection) as queries, objects.writing() as writer:
        writer.update(NODE, make_node(annotations={"beat": "2"}))
    assert not [query for query in queries if "inventory_node" in query["sql"]]
    assert rows_of(Node)
