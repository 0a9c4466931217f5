"""The sysfs driver on machines that are not at hand: NUMA, SR-IOV, vfio-pci, several PCIe roots, disks in use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from inventory.kinds.devices import Device
from nodeagent.drivers.attributes import plain
from nodeagent.drivers.sysfs import SysfsDriver, read_settings
from nodeagent.drivers.sysfs.found import device_name
from tests.nodeagent.drivers.sysfs.trees import Tree
from tests.nodeagent.objects import NODE

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
BUS_ID = "resource.kubernetes.io/pciBusID"
NUMA_NODE = "resource.kubernetes.io/numaNode"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def offered(tree: Tree, **settings: Any) -> dict[str, Device]:
    driver = SysfsDriver(NODE, read_settings(settings), roots=tree.roots)
    return {device.name: device for device in driver.pools()[0].devices}


def facts(device: Device) -> dict[str, str]:
    return {name: plain(value) for name, value in device.attributes.items()}


# Where a device sits.


@pytest.mark.parametrize(
    ("way", "root"),
    [
        ("pci0000:00", "pci0000:00"),
        ("pci0000:80/0000:80:01.0/0000:81:00.0", "pci0000:80"),
        ("pci0001:00/0001:00:00.0", "pci0001:00"),
        # a controller that makes a bus of its own: the root is still the first on the way
        ("pci0000:64/0000:64:00.5/pci1234:00", "pci0000:64"),
    ],
)
def test_the_pcie_root_is_the_first_directory_on_the_way_however_many_bridges_follow(
    tree: Tree, way: str, root: str
) -> None:
    tree.pci("0000:82:00.0", way=way)
    device = offered(tree)["pci-0000-82-00-0"]
    assert facts(device)[PCIE_ROOT] == root
    assert facts(device)[BUS_ID] == "0000:82:00.0"


def test_a_function_below_something_else_than_a_pci_host_bridge_has_no_pcie_root(tree: Tree) -> None:
    tree.pci("0001:00:00.0", way="platform/soc/3f00.pcie")
    device = facts(offered(tree)["pci-0001-00-00-0"])
    assert PCIE_ROOT not in device
    assert device[BUS_ID] == "0001:00:00.0"


def test_a_function_in_a_domain_of_five_digits_has_none_of_the_standard_attributes(tree: Tree) -> None:
    tree.pci("10000:01:00.0", way="pci0000:64/0000:64:00.5/pci10000:00", vendor="144d")
    device = facts(offered(tree)["pci-10000-01-00-0"])
    assert not {PCIE_ROOT, BUS_ID, NUMA_NODE} & set(device)
    assert device["vendor"] == "144d"


def test_the_numa_node_is_told_where_there_is_one_and_left_out_without_affinity(tree: Tree) -> None:
    tree.pci("0000:17:00.0", numa_node=0)
    tree.pci("0000:b1:00.0", way="pci0000:b0", numa_node=1)
    tree.pci("0000:00:1f.0")
    devices = {name: facts(device) for name, device in offered(tree).items()}
    assert [devices[f"pci-0000-{bus}-00-0"][NUMA_NODE] for bus in ("17", "b1")] == ["0", "1"]
    assert [devices[f"pci-0000-{bus}-00-0"]["numaNode"] for bus in ("17", "b1")] == ["0", "1"]
    assert not {"numaNode", NUMA_NODE} & set(devices["pci-0000-00-1f-0"])


def test_an_interface_and_a_disk_tell_the_place_and_the_identity_of_the_function_that_they_hang_on(tree: Tree) -> None:
    nic = tree.pci("0000:17:00.0", way="pci0000:16/0000:16:02.0", numa_node=1, driver="ice")
    tree.interface("ens1", on=nic, mac="b4:96:91:00:00:01", mtu=9000)
    ssd = tree.pci("0000:65:00.0", way="pci0000:64", vendor="144d", device="a80a", class_="010802", driver="nvme")
    tree.disk("nvme0n1", on=ssd, sectors=7_501_476_528, model="SAMSUNG MZQL23T8", serial="S64HNE0R")
    devices = offered(tree)
    assert facts(devices["net-ens1"]) == {
        "kind": "net",
        "vendor": "8086",
        "device": "1572",
        "class": "020000",
        "subsystemVendor": "8086",
        "subsystemDevice": "0001",
        "driver": "ice",
        "numaNode": "1",
        NUMA_NODE: "1",
        BUS_ID: "0000:17:00.0",
        PCIE_ROOT: "pci0000:16",
        "interface": "ens1",
        "mac": "b4:96:91:00:00:01",
        "mtu": "9000",
        "speed": "25000",
        "operstate": "up",
    }
    disk = facts(devices["block-nvme0n1"])
    assert (disk["model"], disk["serial"], disk["path"]) == ("SAMSUNG MZQL23T8", "S64HNE0R", "/dev/nvme0n1")
    assert (disk[BUS_ID], disk[PCIE_ROOT], disk["vendor"]) == ("0000:65:00.0", "pci0000:64", "144d")
    assert devices["block-nvme0n1"].capacity["size"].value == "3750738264Ki"


def test_an_interface_without_a_link_has_no_speed(tree: Tree) -> None:
    tree.interface("ens1", on=tree.pci("0000:17:00.0"), speed="-1", operstate="down")
    assert "speed" not in facts(offered(tree)["net-ens1"])


def test_names_of_vendor_device_and_class_come_from_pci_ids_where_it_exists(tree: Tree) -> None:
    tree.pci("0000:17:00.0", vendor="8086", device="1572", class_="020000")
    tree.pci("0000:18:00.0", vendor="8086", device="ffff", class_="02ff00")
    tree.roots.pci_ids.write_text(
        "# a comment\n\n1af4  Red Hat, Inc.\n8086  Intel Corporation\n\t1571  Another\n"
        "\t1572  Ethernet Controller X710 for 10GbE SFP+\n\t\t8086 0001  Ethernet Converged Network Adapter X710-4\n"
        "C 02  Network controller\n\t00  Ethernet controller\n\t01  Token ring network controller\n"
    )
    devices = offered(tree)
    known = facts(devices["pci-0000-17-00-0"])
    assert known["vendorName"] == "Intel Corporation"
    assert known["deviceName"] == "Ethernet Controller X710 for 10GbE SFP+"
    assert known["className"] == "Ethernet controller"
    unknown = facts(devices["pci-0000-18-00-0"])
    assert "deviceName" not in unknown
    assert unknown["className"] == "Network controller"


# SR-IOV and vfio.


def test_virtual_functions_name_their_physical_function_which_is_not_offered_while_it_has_some(tree: Tree) -> None:
    tree.pci("0000:17:00.0", virtual_functions=("0000:17:02.0", "0000:17:02.1"), total_virtual_functions=64)
    for function in ("0000:17:02.0", "0000:17:02.1"):
        tree.pci(function, device="154c", physical_function="0000:17:00.0")
    assert sorted(offered(tree)) == ["pci-0000-17-02-0", "pci-0000-17-02-1"]
    assert facts(offered(tree)["pci-0000-17-02-1"])["physicalFunction"] == "0000:17:00.0"
    asked = offered(tree, offerInUse=[{"pciBusID": "0000:17:00.0"}])
    assert facts(asked["pci-0000-17-00-0"])["virtualFunctions"] == "64"


def test_bridges_are_not_offered(tree: Tree) -> None:
    tree.pci("0000:00:01.0", class_="060400")
    assert offered(tree) == {}


# What the machine needs itself.


def test_disks_that_are_mounted_swapped_to_or_held_by_another_device_are_not_offered(tree: Tree) -> None:
    for name, partitions, holders in (
        ("nvme0n1", ("nvme0n1p1", "nvme0n1p2"), ()),
        ("sdb", (), ()),
        ("sdc", ("sdc1",), ()),
        ("sdd", (), ("dm-0",)),
        ("sde", ("sde1",), ()),
        ("sdf", ("sdf1",), ()),
    ):
        tree.disk(name, partitions=partitions, holders=holders)
    tree.mount("/dev/nvme0n1p2", "/")
    tree.mount("/dev/sdb", r"/srv/with\040space")
    tree.swap("/dev/sdc1")
    # a file system with a number of its own, as btrfs has
    tree.mount("/dev/sde1", "/data", number="0:45")
    assert sorted(offered(tree)) == ["block-sdf"]


def test_what_the_first_process_has_mounted_counts_though_the_agent_does_not_see_it(tree: Tree) -> None:
    tree.disk("sda")
    tree.disk("sdb")
    tree.mount("/dev/sda", "/")
    (tree.roots.proc / "1").mkdir()
    (tree.roots.proc / "self/mountinfo").rename(tree.roots.proc / "1/mountinfo")
    assert sorted(offered(tree)) == ["block-sdb"]


@pytest.mark.parametrize("version", ["default_route", "default_route_v6"])
def test_the_interface_of_the_default_route_is_not_offered(tree: Tree, version: str) -> None:
    for index in (0, 1):
        tree.interface(f"eth{index}", on=tree.pci(f"0000:0{index}:00.0"))
    getattr(tree, version)("eth0")
    assert "net-eth0" not in offered(tree)
    assert "net-eth1" in offered(tree)


def test_parts_of_a_bond_and_what_a_vlan_is_built_on_are_not_offered(tree: Tree) -> None:
    kinds = ["net", "virtual-net"]
    tree.interface("bond0")
    for index, master in ((0, "bond0"), (1, ""), (2, "")):
        tree.interface(f"eth{index}", on=tree.pci(f"0000:0{index}:00.0"), master=master)
    (tree.roots.sys / "class/net/eth1/upper_eth1.100").mkdir()
    assert sorted(offered(tree, kinds=kinds)) == ["net-bond0", "net-eth2"]


def test_virtual_interfaces_are_offered_only_to_those_who_ask_and_the_loopback_not_even_then(tree: Tree) -> None:
    tree.interface("lo", loopback=True)
    tree.interface("ifb0")
    assert offered(tree) == {}
    assert sorted(offered(tree, kinds=["virtual-net"])) == ["net-ifb0"]


def test_a_function_is_not_offered_while_the_machine_needs_what_hangs_on_it(tree: Tree) -> None:
    tree.interface("eth0", on=tree.pci("0000:01:00.0"))
    tree.default_route("eth0")
    tree.disk("nvme0n1", on=tree.pci("0000:02:00.0", class_="010802"), partitions=("nvme0n1p1",))
    tree.mount("/dev/nvme0n1p1", "/boot")
    assert offered(tree) == {}


def test_a_device_in_use_is_offered_to_an_owner_who_asks_for_exactly_that(tree: Tree) -> None:
    tree.disk("sda")
    tree.disk("sdb")
    tree.mount("/dev/sda", "/")
    tree.mount("/dev/sdb", "/data")
    assert sorted(offered(tree, offerInUse=[{"path": "/dev/sdb"}])) == ["block-sdb"]


def test_a_disk_without_a_device_node_or_hidden_by_the_kernel_is_no_device(tree: Tree) -> None:
    tree.disk("sda")
    (tree.roots.dev / "sda").unlink()
    (tree.disk("nvme0c0n1") / "hidden").write_text("1\n")
    assert offered(tree) == {}


# The same hardware twice.


def test_a_function_and_what_hangs_on_it_share_a_counter_so_that_nobody_gets_both(tree: Tree) -> None:
    card = tree.pci("0000:17:00.0")
    for port in (0, 1):
        tree.interface(f"ens1f{port}", on=card)
    tree.pci("0000:18:00.0")
    driver = SysfsDriver(NODE, roots=tree.roots)
    (pool,) = driver.pools()
    (counters,) = pool.shared_counters
    assert {name: counter.value for name, counter in counters.counters.items()} == {"units": "2"}
    taken = {
        device.name: [(use.counter_set, use.counters["units"].value) for use in device.consumes_counters]
        for device in pool.devices
    }
    assert taken == {
        "pci-0000-17-00-0": [(counters.name, "2")],
        "net-ens1f0": [(counters.name, "1")],
        "net-ens1f1": [(counters.name, "1")],
        "pci-0000-18-00-0": [],
    }


def test_there_is_no_counter_where_only_one_of_the_two_is_offered(tree: Tree) -> None:
    tree.interface("ens1", on=tree.pci("0000:17:00.0"))
    for kinds in (["pci"], ["net"]):
        driver = SysfsDriver(NODE, read_settings({"kinds": kinds}), roots=tree.roots)
        (pool,) = driver.pools()
        assert pool.shared_counters == ()
        assert [device.consumes_counters for device in pool.devices] == [()]


# Names and order.


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("eth0", "net-eth0"),
        ("eth0.100", r"net-eth0-100-[0-9a-f]{8}"),
        ("eth0_100", r"net-eth0-100-[0-9a-f]{8}"),
        ("ETH0", r"net-eth0-[0-9a-f]{8}"),
        ("wlan-", r"net-wlan-[0-9a-f]{8}"),
        ("x" * 70, r"net-x{50}-[0-9a-f]{8}"),
    ],
)
def test_a_device_name_is_a_dns_label_and_never_that_of_another_device(name: str, wanted: str) -> None:
    assert re.fullmatch(wanted, device_name("net", name))
    assert len(device_name("net", name)) <= 63
    assert device_name("net", "eth0.100") != device_name("net", "eth0_100")


def test_devices_are_published_in_the_order_in_which_a_person_counts(tree: Tree) -> None:
    for name in ("loop10", "loop9", "loop0"):
        tree.disk(name)
    for node in ("fuse", "kvm", "net/tun"):
        tree.node(node)
    assert list(offered(tree)) == ["loop0", "loop9", "loop10", "kvm", "tun", "fuse"]


def test_kvm_tun_and_fuse_can_be_given_to_many_claims_at_once(tree: Tree) -> None:
    tree.disk("loop0")
    for node in ("fuse", "kvm", "net/tun"):
        tree.node(node)
    shareable = {name for name, device in offered(tree).items() if device.allow_multiple_allocations}
    assert shareable == {"kvm", "tun", "fuse"}
