"""What an administrator writes to say which devices of the machine are offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.drivers.sysfs import SysfsDriver, read_settings
from nodeagent.node.catalog import DriverEntry, create_driver
from tests.nodeagent.drivers.sysfs.trees import Tree
from tests.nodeagent.objects import NODE


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Eight loop devices, two cards of Intel and one of Mellanox with an interface."""
    tree = Tree(tmp_path)
    for index in range(8):
        tree.disk(f"loop{index}", backing_file="/srv/disk" if index == 5 else "")
    for index in (1, 2):
        tree.pci(f"0000:0{index}:00.0", vendor="8086", driver="e1000e", iommu_group=index)
    tree.interface("mlx0", on=tree.pci("0000:03:00.0", vendor="15b3", driver="mlx5_core", numa_node=1))
    tree.node("kvm")
    return tree


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"include": [{"name": "loop[4-7]"}]}, ["loop4", "loop5", "loop6", "loop7"]),
        ({"include": [{"kind": "pci", "vendor": "8086"}]}, ["pci-0000-01-00-0", "pci-0000-02-00-0"]),
        ({"include": [{"attached": "true"}]}, ["loop5"]),
        ({"include": [{"driver": "mlx*"}]}, ["pci-0000-03-00-0", "net-mlx0"]),
        ({"include": [{"driver": "mlx*", "kind": "net"}, {"kind": "kvm"}]}, ["net-mlx0", "kvm"]),
        ({"kinds": ["net", "kvm"]}, ["net-mlx0", "kvm"]),
        ({"kinds": ["pci"], "exclude": [{"vendor": "8086"}]}, ["pci-0000-03-00-0"]),
        ({"include": [{"pcieRoot": "pci0000:00"}], "exclude": [{"kind": "net"}, {"numaNode": "1"}]}, [1, 2]),
        ({"include": [{"pciBusID": "0000:02:00.0"}]}, ["pci-0000-02-00-0"]),
        ({"include": [{"iommuGroup": "1"}]}, ["pci-0000-01-00-0"]),
        ({"include": [{"vendor": "1234"}]}, []),
    ],
)
def test_devices_are_chosen_by_kind_name_and_attribute(tree: Tree, settings: dict[str, Any], names: list[Any]) -> None:
    driver = SysfsDriver(NODE, read_settings(settings), roots=tree.roots)
    wanted = [name if isinstance(name, str) else f"pci-0000-0{name}-00-0" for name in names]
    assert [device.name for device in driver.pools()[0].devices] == wanted


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"nme": "x"}, "unknown field `nme`"),
        ({"include": [{"kind": "loop"}, {"vender": "8086"}]}, r"unknown field `vender` - at `\$.include\[1\]`"),
        ({"exclude": [{"vendor": 8086}]}, r"Expected `str.*`, got `int` - at `\$.exclude\[0\].vendor`"),
        ({"kinds": ["usb"]}, r"Invalid enum value 'usb' - at `\$.kinds\[0\]`"),
        ({"offerInUse": [{}]}, r"would match every device - at `\$.offerInUse\[0\]`"),
        ({"rescanSeconds": 0}, r"at `\$.rescanSeconds`"),
        ({"name": "Not A Name"}, r"`Not A Name` .*at `\$.name`"),
    ],
)
def test_settings_that_it_does_not_understand_are_refused_with_their_path(
    settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        create_driver(DriverEntry(driver="sysfs", settings=settings), node_name=NODE)
