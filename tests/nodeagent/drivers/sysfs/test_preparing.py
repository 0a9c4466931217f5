"""What a container gets of the machine's devices, and what becomes of devices that go, come, or come into use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.cdi import validate_spec
from nodeagent.drivers.preparing import DeviceGone
from nodeagent.drivers.protocol import ClaimIdentity, Failed, Prepared
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.drivers.sysfs import SysfsDriver, read_settings
from nodeagent.node.catalog import close_drivers
from tests.nodeagent.drivers.sysfs.trees import Tree
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, claim, pod

DRIVER = "sysfs.manciple.dev"
#: Seconds; a driver that notices something does so within one.
PATIENCE = 60.0


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "machine")


def driver_of(tree: Tree, **settings: Any) -> SysfsDriver:
    return SysfsDriver(NODE, read_settings(settings), roots=tree.roots)


def claimed(*devices: str, name: str = "c", **fields: Any) -> ResourceClaim:
    return msgspec.convert(claim(name, *devices, driver=DRIVER, **fields), ResourceClaim)


def spec_of(driver: SysfsDriver, *devices: str) -> dict[str, Any]:
    """The CDI document of a claim on `devices`; it is valid."""
    (answer,) = driver.prepare([claimed(*devices)]).values()
    assert isinstance(answer, Prepared), answer
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer.spec))
    assert validate_spec(document) == []
    return document


def edits_of(driver: SysfsDriver, device: str) -> dict[str, Any]:
    (only,) = spec_of(driver, device)["devices"]
    edits: dict[str, Any] = only["containerEdits"]
    return edits


def failure_of(driver: SysfsDriver, *devices: str) -> str:
    (answer,) = driver.prepare([claimed(*devices)]).values()
    assert isinstance(answer, Failed), answer
    return answer.reason


def node_at(tree: Tree, name: str, permissions: str = "rw") -> dict[str, str]:
    return {"path": f"/dev/{name}", "hostPath": str(tree.roots.dev / name), "permissions": permissions}


def test_a_disk_comes_as_its_device_node_and_its_path_in_the_environment(tree: Tree) -> None:
    tree.disk("loop4")
    assert edits_of(driver_of(tree), "loop4") == {
        "env": ["SYSFS_DEVICE_LOOP4=/dev/loop4"],
        "deviceNodes": [node_at(tree, "loop4")],
    }


def test_a_disk_that_is_read_only_may_only_be_read(tree: Tree) -> None:
    tree.disk("sda", read_only=True)
    assert edits_of(driver_of(tree), "block-sda")["deviceNodes"] == [node_at(tree, "sda", "r")]


@pytest.mark.parametrize(("device", "node"), [("kvm", "kvm"), ("tun", "net/tun"), ("fuse", "fuse")])
def test_kvm_tun_and_fuse_come_as_their_device_node(tree: Tree, device: str, node: str) -> None:
    tree.node(node)
    assert edits_of(driver_of(tree), device) == {
        "env": [f"SYSFS_DEVICE_{device.upper()}=/dev/{node}"],
        "deviceNodes": [node_at(tree, node)],
    }


def test_a_function_comes_as_its_address_and_with_vfio_as_the_node_of_its_group(tree: Tree) -> None:
    tree.pci("0000:17:00.0", driver="ice", iommu_group=41)
    tree.pci("0000:18:00.0", driver="vfio-pci", iommu_group=42)
    driver = driver_of(tree)
    assert edits_of(driver, "pci-0000-17-00-0") == {"env": ["SYSFS_DEVICE_PCI_0000_17_00_0=0000:17:00.0"]}
    assert edits_of(driver, "pci-0000-18-00-0") == {
        "env": ["SYSFS_DEVICE_PCI_0000_18_00_0=0000:18:00.0"],
        "deviceNodes": [node_at(tree, "vfio/vfio"), node_at(tree, "vfio/42")],
    }


def test_an_interface_is_named_in_the_environment_and_moves_only_where_the_owner_says_so(tree: Tree) -> None:
    tree.interface("ens1", on=tree.pci("0000:17:00.0"))
    named = spec_of(driver_of(tree), "net-ens1")
    assert named["devices"][0]["containerEdits"] == {"env": ["SYSFS_DEVICE_NET_ENS1=ens1"]}
    assert named["cdiVersion"] == "0.3.0"
    moved = spec_of(driver_of(tree, moveInterfaces=True), "net-ens1")
    assert moved["devices"][0]["containerEdits"]["netDevices"] == [{"hostInterfaceName": "ens1", "name": "ens1"}]
    assert moved["cdiVersion"] == "1.1.0"


def test_an_interface_that_moved_into_a_container_is_still_there_until_it_is_given_back(tree: Tree) -> None:
    tree.interface("ens1", on=tree.pci("0000:17:00.0"))
    driver = driver_of(tree, kinds=["net"], moveInterfaces=True)
    spec_of(driver, "net-ens1")
    (tree.roots.sys / "class/net/ens1").unlink()
    driver.rescan()
    assert [device.name for device in driver.pools()[0].devices] == ["net-ens1"]
    assert [health.health for health in driver.health()] == ["Healthy"]
    driver.unprepare([ClaimIdentity("claim-c", "default", "c")])
    driver.rescan()
    assert driver.pools()[0].devices == ()
    assert [health.health for health in driver.health()] == ["Unhealthy"]


def test_a_device_that_is_gone_is_refused_and_reported_unhealthy_until_it_is_back(tree: Tree) -> None:
    tree.disk("sda")
    tree.disk("sdb")
    driver = driver_of(tree)
    tree.remove_disk("sda")
    assert failure_of(driver, "block-sda") == str(DeviceGone(NODE, "block-sda"))
    assert [device.name for device in driver.pools()[0].devices] == ["block-sdb"]
    health = {one.device: (one.health, one.message) for one in driver.health()}
    assert {device: state for device, (state, _) in health.items()} == {
        "block-sda": "Unhealthy",
        "block-sdb": "Healthy",
    }
    assert health["block-sda"][1]
    tree.disk("sda2")
    (tree.roots.sys / "block/sda").symlink_to("../devices/virtual/block/sda")
    tree.node("sda")
    driver.rescan()
    assert {one.health for one in driver.health()} == {"Healthy"}


def test_a_disk_that_somebody_mounted_since_it_was_allocated_is_refused(tree: Tree) -> None:
    tree.disk("sda")
    driver = driver_of(tree)
    tree.mount("/dev/sda", "/srv")
    reason = failure_of(driver, "block-sda")
    assert reason == "device block-sda is now used by the machine itself: it is mounted at /srv"
    assert driver.pools()[0].devices == ()


def test_a_disk_that_its_pod_has_mounted_stays_published_and_prepared(tree: Tree) -> None:
    tree.disk("sda")
    driver = driver_of(tree)
    before = spec_of(driver, "block-sda")
    tree.mount("/dev/sda", "/in/the/pod")
    driver.rescan()
    assert [device.name for device in driver.pools()[0].devices] == ["block-sda"]
    assert spec_of(driver, "block-sda") == before


def test_a_missing_vfio_node_is_told_with_what_to_do(tree: Tree) -> None:
    tree.pci("0000:18:00.0", driver="vfio-pci", iommu_group=42)
    (tree.roots.dev / "vfio/vfio").unlink()
    assert "vfio/vfio does not exist; load the module" in failure_of(driver_of(tree), "pci-0000-18-00-0")


def test_one_claim_may_have_several_devices_and_the_same_shareable_one_twice(tree: Tree) -> None:
    tree.disk("loop0")
    tree.node("kvm")
    names = [device["name"] for device in spec_of(driver_of(tree), "kvm", "loop0", "kvm")["devices"]]
    assert names == ["claim-c-kvm", "claim-c-loop0", "claim-c-kvm-1"]


def test_an_agent_gives_a_pod_its_disk(tree: Tree, tmp_path: Path) -> None:
    tree.disk("loop4")
    machine = Machine(tmp_path / "node", drivers=[driver_of(tree)])
    machine.api.put("resourceclaims", claim("scratch", "loop4", driver=DRIVER, pods=("uid-p",)))
    machine.api.put("pods", pod("p", claims={"disk": "scratch"}))
    machine.start()
    machine.settle()
    assert machine.environment("p")["SYSFS_DEVICE_LOOP4"] == "/dev/loop4"
    (document,) = machine.cdi_files().values()
    assert document["devices"][0]["containerEdits"]["deviceNodes"] == [node_at(tree, "loop4")]


# Watching.


@pytest.fixture
def watched(tree: Tree) -> Iterator[tuple[SysfsDriver, threading.Event]]:
    """A driver that looks every tenth of a second, and an event that it sets when something has changed."""
    tree.disk("sda")
    driver, changed = driver_of(tree, rescanSeconds=0.1), threading.Event()
    driver.subscribe(changed.set)
    yield driver, changed
    driver.close()


def test_what_is_plugged_in_is_published_and_told(tree: Tree, watched: tuple[SysfsDriver, threading.Event]) -> None:
    driver, changed = watched
    tree.disk("sdb")
    assert changed.wait(PATIENCE)
    assert "block-sdb" in [device.name for device in driver.pools()[0].devices]


def test_nothing_is_told_while_nothing_changes(tree: Tree) -> None:
    tree.disk("sda")
    driver, told = driver_of(tree), []
    driver.subscribe(lambda: told.append(1))
    driver.close()
    assert driver.rescan() is False
    assert told == []


def test_the_watching_thread_ends_when_the_driver_is_closed(tree: Tree) -> None:
    driver = driver_of(tree)
    driver.subscribe(lambda: None)
    assert [thread.name for thread in threading.enumerate()].count("sysfs") == 1
    driver.close()
    assert [thread.name for thread in threading.enumerate()].count("sysfs") == 0


def test_an_agent_that_ends_closes_those_of_its_drivers_that_watch(tree: Tree) -> None:
    watching = driver_of(tree)
    watching.subscribe(lambda: None)
    close_drivers([SimulatedDriver(NODE), watching])
    assert "sysfs" not in [thread.name for thread in threading.enumerate()]
