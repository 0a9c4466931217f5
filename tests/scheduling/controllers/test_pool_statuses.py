"""Requests for the status of pools: counted at one moment, answered once, cleared away (KEP-5677)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from claims.controllers import pool_statuses
from claims.kinds.resource_claims import CapacityRequirements
from inventory.kinds import gates
from inventory.kinds.devices import Counter, CounterSet, Device, DeviceCounterConsumption
from inventory.kinds.pool_statuses import (
    RESOURCE_POOL_STATUS_REQUEST,
    PartitionSummary,
    PoolStatus,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus,
    ShareableCapacitySummary,
    ShareableSummary,
)
from tests.builders import (
    DRIVER,
    make_claim,
    make_class,
    make_device,
    make_device_taint,
    make_devices,
    make_meta,
    make_node,
    make_pod,
    make_request,
    make_slice,
    make_taint_rule,
)
from tests.scheduling.cluster import Cluster

PROFILE = f"{DRIVER}/profile"


@pytest.fixture(autouse=True)
def _the_feature_is_on() -> Iterator[None]:
    with gates.using(DRAResourcePoolStatus=True):
        yield


def ask(cluster: Cluster, name: str = "gpus", driver: str = DRIVER, **spec: Any) -> ResourcePoolStatusRequest:
    return cluster.create(
        ResourcePoolStatusRequest(
            api_version=RESOURCE_POOL_STATUS_REQUEST.api_version,
            kind=RESOURCE_POOL_STATUS_REQUEST.kind,
            metadata=make_meta(name),
            spec=ResourcePoolStatusRequestSpec(driver=driver, **spec),
        )
    )


def answer(cluster: Cluster, name: str = "gpus") -> ResourcePoolStatusRequestStatus:
    status = cluster.get(ResourcePoolStatusRequest, name).status
    assert status is not None
    return status


def only_pool(cluster: Cluster, **spec: Any) -> PoolStatus:
    ask(cluster, **spec)
    cluster.later(pool_statuses.PATIENCE.total_seconds())
    assert pool_statuses.reconcile(cluster.now) == 1
    (pool,) = answer(cluster).pools
    return pool


def test_devices_are_counted_by_what_keeps_them(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=4)
    cluster.create(make_claim("mine"))
    cluster.create(make_pod("mine", claims={"gpu": "mine"}))
    cluster.settle()
    held = cluster.devices(cluster.claim("mine"))[0].rpartition("/")[2]
    for device in (held, "gpu-3"):  # the one that is held counts as that
        cluster.create(make_taint_rule(device, driver=DRIVER, pool="node-1", device=device))
    ask(cluster)
    ask(cluster, "others", driver="nobody.example.com")
    assert pool_statuses.reconcile(cluster.now) == 2
    told = answer(cluster)
    assert (told.pool_count, [pool.pool_name for pool in told.pools]) == (2, ["node-1", "node-2"])
    used = told.pools[0]
    assert (used.node_name, used.generation, used.resource_slice_count, used.validation_error) == ("node-1", 1, 1, None)
    counts = (used.total_devices, used.allocated_devices, used.available_devices, used.unavailable_devices)
    assert counts == (4, 1, 2, 1)
    (condition,) = told.conditions
    assert (condition.type, condition.reason) == ("Complete", "CalculationComplete")
    assert condition.message == "Calculated status for 2 pools"
    nothing = answer(cluster, "others")
    assert (nothing.pool_count, nothing.pools) == (0, ())


def test_one_pool_or_so_many_may_be_asked_for(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", "node-3")
    ask(cluster, "some", limit=2)
    ask(cluster, "one", pool_name="node-2")
    pool_statuses.reconcile(cluster.now)
    told = answer(cluster, "some")
    assert (told.pool_count, [pool.pool_name for pool in told.pools]) == (3, ["node-1", "node-2"])
    assert [pool.pool_name for pool in answer(cluster, "one").pools] == ["node-2"]


def test_an_answer_stays_as_it_is_and_a_new_question_is_answered_anew(cluster: Cluster) -> None:
    cluster.with_gpus()
    ask(cluster)
    assert pool_statuses.reconcile(cluster.now) == 1
    told = answer(cluster)
    cluster.create(make_slice(node="node-2"))
    assert pool_statuses.reconcile(cluster.now) == 0
    assert answer(cluster) == told
    ask(cluster, "again")
    assert pool_statuses.reconcile(cluster.now) == 1
    assert answer(cluster, "again").pool_count == 2


def test_a_driver_may_take_a_moment_to_publish_the_rest(cluster: Cluster) -> None:
    cluster.create(make_slice("first", slices=2))
    ask(cluster)
    assert pool_statuses.reconcile(cluster.now) == 0
    cluster.create(make_slice("second", slices=2, devices=[make_device("gpu-9")]))
    assert pool_statuses.reconcile(cluster.now) == 1
    assert answer(cluster).pools[0].total_devices == 3


def test_a_pool_that_stays_incomplete_is_told_so(cluster: Cluster) -> None:
    cluster.create(make_slice("first", slices=2))
    pool = only_pool(cluster)
    assert pool.validation_error == (
        f"PoolIncomplete: pool {DRIVER}/node-1 is incomplete: observed 1/2 slices at generation 1"
    )
    assert (pool.total_devices, pool.available_devices, pool.resource_slice_count) == (None, None, None)
    assert answer(cluster).conditions[0].message == "Calculated status for 1 pools (1 incomplete)"


def partition(name: str, profile: str, memory: str) -> Device:
    consumption = DeviceCounterConsumption(counter_set="card", counters={"memory": Counter(value=memory)})
    return make_device(name, attributes={"profile": profile} if profile else {}, consumes_counters=(consumption,))


CARD = (CounterSet(name="card", counters={"memory": Counter(value="80Gi")}),)
PARTITIONS = (
    partition("full", "Full", "80Gi"),
    partition("half-0", "Half", "40Gi"),
    partition("half-1", "Half", "40Gi"),
)


def publish_partitions(cluster: Cluster, *devices: Device, by: str | None = PROFILE) -> None:
    cluster.create(make_class())
    cluster.create(make_node())
    cluster.create(make_slice("counters", slices=2, devices=(), shared_counters=CARD))
    cluster.create(make_slice("devices", slices=2, devices=devices, partition_type_attribute=by))


def test_partitions_are_counted_by_type_and_by_what_their_counters_leave(cluster: Cluster) -> None:
    publish_partitions(cluster, *PARTITIONS)
    half = make_request(expressions=[f"device.attributes['{DRIVER}'].profile == 'Half'"])
    cluster.create(make_claim("half", requests=[half]))
    cluster.create(make_pod("half", claims={"gpu": "half"}))
    cluster.settle()
    assert only_pool(cluster).partition_summary == (
        PartitionSummary(attribute=PROFILE, type="Full", total=1, allocatable=0),
        PartitionSummary(attribute=PROFILE, type="Half", total=2, allocatable=1),
    )


def test_a_request_may_name_the_attribute_where_no_slice_does(cluster: Cluster) -> None:
    publish_partitions(cluster, *PARTITIONS, by=None)
    assert only_pool(cluster).partition_summary == ()
    cluster.delete(cluster.get(ResourcePoolStatusRequest, "gpus"))
    told = only_pool(cluster, default_partition_type_attribute=PROFILE)
    assert [(one.type, one.total, one.allocatable) for one in told.partition_summary] == [
        ("Full", 1, 1),
        ("Half", 2, 2),
    ]


@pytest.mark.parametrize(
    ("odd", "error"),
    [
        (partition("odd", "", "40Gi"), 'PartitionTypeMissing: device "odd" in pool'),
        (partition("odd", "Half", "10Gi"), 'PartitionCostMismatch: devices of partition type "Half" in pool'),
    ],
)
def test_partitions_that_cannot_be_summed_up_are_an_error_and_the_counts_stand(
    cluster: Cluster, odd: Device, error: str
) -> None:
    publish_partitions(cluster, *PARTITIONS, odd, by=None)
    pool = only_pool(cluster, default_partition_type_attribute=PROFILE)
    assert pool.validation_error is not None
    assert pool.validation_error.startswith(error)
    assert (pool.total_devices, pool.partition_summary) == (4, ())


def test_a_pool_without_counters_has_no_partitions(cluster: Cluster) -> None:
    cluster.with_gpus()
    error = only_pool(cluster, default_partition_type_attribute=PROFILE).validation_error
    assert error == (
        f"PartitionTypeMissing: pool {DRIVER}/node-1 declares partitionTypeAttribute but publishes no sharedCounters"
    )


def test_shared_devices_are_summed_up_by_capacity(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node())
    shared = make_devices(2, allow_multiple_allocations=True, capacity={"memory": "40Gi"})
    cluster.create(make_slice(devices=[*shared, make_device("whole", capacity={"memory": "80Gi"})]))
    for name in ("a", "b"):
        part = make_request(capacity=CapacityRequirements(requests={"memory": "10Gi"}))
        cluster.create(make_claim(name, requests=[part]))
        cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    pool = only_pool(cluster)
    assert pool.shareable_summary is not None
    used = 1 if pool.allocated_devices == 1 else 2
    assert pool.shareable_summary == ShareableSummary(
        fully_available_devices=2 - used,
        partially_available_devices=used,
        capacity=(ShareableCapacitySummary(name="memory", total="80Gi", consumed="20Gi", available="60Gi"),),
    )


def test_more_partition_types_than_an_answer_takes_are_an_error(cluster: Cluster) -> None:
    publish_partitions(cluster, *(partition(f"p-{number}", f"type-{number}", "1Gi") for number in range(33)))
    error = only_pool(cluster).validation_error
    assert error is not None
    assert error.endswith("has 33 partition types, exceeding the maximum of 32")


def test_answers_go_after_an_hour_and_unanswered_questions_after_a_day(cluster: Cluster) -> None:
    cluster.with_gpus()
    ask(cluster)
    pool_statuses.reconcile(cluster.now)
    ask(cluster, "new")
    cluster.later(3600)
    assert pool_statuses.reconcile(cluster.now) == 1  # the new one is answered, the old one stays to the second
    cluster.later(1)
    assert pool_statuses.reconcile(cluster.now) == 1
    assert cluster.find(ResourcePoolStatusRequest, "gpus") is None
    with gates.using(DRAResourcePoolStatus=False):
        ask(cluster, "late")
        cluster.later(24 * 3600 + 1)
        assert pool_statuses.reconcile(cluster.now) == 0
    assert pool_statuses.reconcile(cluster.now) == 2
    assert cluster.all(ResourcePoolStatusRequest) == []


def test_taints_keep_nothing_back_while_their_feature_is_off(cluster: Cluster) -> None:
    with gates.using(DRADeviceTaints=True):
        cluster.create(make_slice(devices=[make_device(taints=[make_device_taint()])]))
    with gates.using(DRADeviceTaints=False, DRADeviceTaintRules=False):
        assert only_pool(cluster).available_devices == 1
