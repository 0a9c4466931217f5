"""The real scheduler gives out what the sysfs and nvml drivers publish: shareable nodes to many, hardware once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from manciple.wire.base import OwnerReference
from nodeagent.drivers.protocol import Driver
from nodeagent.drivers.sysfs import SysfsDriver
from nodeagent.node.slices import slices_of
from tests.builders import make_claim, make_class, make_node, make_pod, make_request
from tests.nodeagent.drivers.nvml.machines import driver_of, recorded
from tests.nodeagent.drivers.sysfs.trees import Tree
from tests.scheduling.cluster import Cluster

NODE = "node-1"
CLASS = "real"


@pytest.fixture
def cluster(db: None) -> Iterator[Cluster]:
    """One node; afterwards every invariant holds: above all, no device and no counter is given out twice."""
    made = Cluster()
    made.create(make_node(NODE))
    yield made
    assert made.violations() == {}


def publish(cluster: Cluster, driver: Driver) -> None:
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid=cluster.node(NODE).metadata.uid)
    cluster.create(make_class(CLASS, expressions=[f'device.driver == "{driver.name}"']))
    for pool in driver.pools():
        for one in slices_of(pool, driver=driver.name, owner=owner, generation=1):
            cluster.create(structs.replace(one, api_version="resource.k8s.io/v1", kind="ResourceSlice"))


def given(cluster: Cluster, pod: str, expression: str) -> list[str]:
    """What a pod with a claim on one device of the class gets; nothing when it has to wait."""
    request = make_request(device_class=CLASS, expressions=[expression])
    cluster.create(make_claim(pod, requests=[request]))
    cluster.create(make_pod(pod, claims={"device": pod}))
    cluster.retry()
    return [name.rpartition("/")[2] for name in cluster.devices(cluster.claim(pod))]


def of_kind(kind: str) -> str:
    return f'device.attributes["sysfs.manciple.dev"].kind == "{kind}"'


def of_type(type_: str) -> str:
    return f'device.attributes["gpu.nvidia.com"].type == "{type_}"'


def test_kvm_is_given_to_every_pod_that_asks_and_a_disk_to_one(cluster: Cluster, tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.node("kvm")
    tree.disk("loop0")
    publish(cluster, SysfsDriver(NODE, roots=tree.roots))
    assert [given(cluster, f"vm-{index}", of_kind("kvm")) for index in range(3)] == [["kvm"]] * 3
    assert [given(cluster, f"disk-{index}", of_kind("loop")) for index in range(2)] == [["loop0"], []]


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (["net", "net", "pci"], [["net-ens1f0"], ["net-ens1f1"], []]),
        (["pci", "net"], [["pci-0000-17-00-0"], []]),
    ],
)
def test_a_function_and_its_interfaces_are_never_given_to_two(
    cluster: Cluster, tmp_path: Path, asked: list[str], wanted: list[list[str]]
) -> None:
    tree = Tree(tmp_path)
    card = tree.pci("0000:17:00.0")
    for port in (0, 1):
        tree.interface(f"ens1f{port}", on=card)
    publish(cluster, SysfsDriver(NODE, roots=tree.roots))
    assert [given(cluster, f"pod-{index}", of_kind(kind)) for index, kind in enumerate(asked)] == wanted


def test_a_gpu_in_mig_mode_and_its_partitions_are_never_given_to_two(cluster: Cluster) -> None:
    publish(cluster, driver_of(recorded("a100-mig"), publishMigParents=True))
    assert [given(cluster, f"whole-{index}", of_type("gpu")) for index in range(2)] == [["gpu-0"], ["gpu-1"]]
    assert given(cluster, "partition-0", of_type("mig")) == []
    assert given(cluster, "whole-2", of_type("gpu")) == ["gpu-2"]


def test_partitions_are_given_one_by_one_and_keep_the_whole_from_being_given(cluster: Cluster) -> None:
    publish(cluster, driver_of(recorded("a100-mig"), publishMigParents=True))
    profile = 'device.attributes["gpu.nvidia.com"].profile == "2g.10gb"'
    assert given(cluster, "partition-0", f"{of_type('mig')} && {profile}") == ["gpu-0-mig-2g10gb-14-0"]
    assert given(cluster, "partition-1", f"{of_type('mig')} && {profile}") == []
    assert [given(cluster, f"whole-{index}", of_type("gpu")) for index in range(2)] == [["gpu-1"], ["gpu-2"]]
