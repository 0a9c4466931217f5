"""Partitions and shared interfaces: the real scheduler allocates what the drivers publish, and takes it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from claims.kinds.resource_claims import CapacityRequirements
from manciple.wire.base import OwnerReference
from nodeagent.drivers.nic import NicDriver
from nodeagent.drivers.partitionable import PartitionableDriver
from nodeagent.drivers.protocol import Driver
from nodeagent.node.slices import slices_of
from tests.builders import make_claim, make_class, make_node, make_pod, make_request
from tests.scheduling.cluster import Cluster

NODE = "node-1"
MIG, WHOLE, NIC = "mig.example.com", "whole.mig.example.com", "nic.example.com"


@pytest.fixture
def cluster(db: None) -> Iterator[Cluster]:
    """One node; afterwards every invariant holds: above all, no counter and no capacity is given out twice."""
    made = Cluster()
    made.create(make_node(NODE))
    yield made
    assert made.violations() == {}


def publish(cluster: Cluster, driver: Driver) -> None:
    """The driver's slices, and the classes: of its devices, or of partitions (that is how users name them) and GPUs."""
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid=cluster.node(NODE).metadata.uid)
    of_driver = f'device.driver == "{driver.name}"'
    if isinstance(driver, PartitionableDriver):
        for name, type_ in ((MIG, "mig"), (WHOLE, "gpu")):
            of_type = f'{of_driver} && device.attributes["{MIG}"].type == "{type_}"'
            cluster.create(make_class(name, expressions=[of_type]))
    else:
        cluster.create(make_class(driver.name, expressions=[of_driver]))
    for pool in driver.pools():
        for one in slices_of(pool, driver=driver.name, owner=owner, generation=1):
            cluster.create(structs.replace(one, api_version="resource.k8s.io/v1", kind="ResourceSlice"))


def run(cluster: Cluster, name: str, profile: str = "", bandwidth: str = "") -> list[str]:
    """A pod with a claim of its own; what it was given."""
    if profile:
        expression = f'device.attributes["{MIG}"].profile == "{profile}"'
        request = make_request(device_class=MIG, expressions=[expression])
    else:
        capacity = CapacityRequirements(requests={"bandwidth": bandwidth}) if bandwidth else None
        request = make_request(device_class=NIC, capacity=capacity)
    cluster.create(make_claim(name, requests=[request]))
    cluster.create(make_pod(name, claims={"device": name}))
    cluster.retry()
    return cluster.devices(cluster.claim(name))


def test_must_consume_and_free_up_counters(cluster: Cluster) -> None:
    publish(cluster, PartitionableDriver(NODE, gpus=1))

    assert run(cluster, "first", "3g.40gb") == ["node-1/gpu-0-mig-3g40gb-4"]
    assert run(cluster, "sibling", "3g.40gb") == ["node-1/gpu-0-mig-3g40gb-0"]
    assert run(cluster, "third", "1g.10gb") == [], "the memory slices are used up"
    assert "counter" in cluster.why_pending("third")

    cluster.finish("first")
    cluster.retry()
    assert cluster.devices(cluster.claim("third")) == ["node-1/gpu-0-mig-1g10gb-6"]


def test_the_whole_gpu_is_given_only_while_no_partition_is(cluster: Cluster) -> None:
    publish(cluster, PartitionableDriver(NODE, gpus=1))
    run(cluster, "small", "1g.10gb")
    cluster.create(make_claim("whole", requests=[make_request(device_class=WHOLE)]))
    cluster.create(make_pod("whole", claims={"device": "whole"}))
    cluster.retry()
    assert cluster.devices(cluster.claim("whole")) == []

    cluster.finish("small")
    cluster.retry()

    assert cluster.devices(cluster.claim("whole")) == ["node-1/gpu-0"]
    assert run(cluster, "late", "1g.10gb") == []


def test_seven_of_the_smallest_partitions_fill_a_gpu(cluster: Cluster) -> None:
    publish(cluster, PartitionableDriver(NODE, gpus=1))

    given = [run(cluster, f"pod-{index}", "1g.10gb") for index in range(8)]

    assert [len(one) for one in given] == [1] * 7 + [0]


def test_must_allow_multiple_allocations_and_consume_capacity(cluster: Cluster) -> None:
    publish(cluster, NicDriver(NODE, nics=1, bandwidth="100G"))

    assert run(cluster, "first", bandwidth="60G") == ["node-1/nic-0"]
    assert run(cluster, "sibling", bandwidth="30G") == ["node-1/nic-0"]
    assert run(cluster, "third", bandwidth="20G") == [], "10G are left"
    assert run(cluster, "default") == ["node-1/nic-0"], "a claim that asks for nothing gets the default of 10G"

    results = [
        cluster.claim(name).status.allocation.devices.results[0]  # type: ignore[union-attr]
        for name in ("first", "sibling", "default")
    ]
    assert [one.consumed_capacity for one in results] == [{"bandwidth": g} for g in ("60G", "30G", "10G")]
    assert len({one.share_id for one in results}) == 3

    cluster.finish("first")
    cluster.retry()
    assert cluster.devices(cluster.claim("third")) == ["node-1/nic-0"]


def test_a_share_rounds_up_to_the_next_step(cluster: Cluster) -> None:
    publish(cluster, NicDriver(NODE, nics=1, bandwidth="100G"))

    run(cluster, "odd", bandwidth="1500M")

    allocation = cluster.claim("odd").status.allocation
    assert allocation is not None
    assert allocation.devices.results[0].consumed_capacity == {"bandwidth": "2G"}
