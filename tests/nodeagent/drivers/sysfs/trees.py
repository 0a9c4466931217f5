"""Builds what a kernel shows of a machine: /sys, /dev and /proc in a directory, with links where a kernel has them."""

from __future__ import annotations

import os
from pathlib import Path

from nodeagent.drivers.sysfs import SysfsRoots


class Tree:
    """A machine without devices; each method adds one, as the kernel would show it."""

    def __init__(self, folder: Path) -> None:
        self.roots = SysfsRoots(
            sys=folder / "sys", dev=folder / "dev", proc=folder / "proc", pci_ids=folder / "pci.ids"
        )
        for place in ("sys/devices", "sys/bus/pci/devices", "sys/class/net", "sys/class/block", "sys/block", "dev"):
            (folder / place).mkdir(parents=True)
        self._number = 0
        self._write(self.roots.proc / "self/mountinfo", "")
        self._write(self.roots.proc / "swaps", "Filename\tType\tSize\tUsed\tPriority\n")
        header = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        self._write(self.roots.proc / "net/route", header)

    # Devices.

    def pci(
        self,
        address: str,
        *,
        way: str = "pci0000:00",
        vendor: str = "8086",
        device: str = "1572",
        class_: str = "020000",
        driver: str = "",
        numa_node: int = -1,
        iommu_group: int | None = None,
        physical_function: str = "",
        virtual_functions: tuple[str, ...] = (),
        total_virtual_functions: int | None = None,
    ) -> Path:
        """way: the directories between /sys/devices and the function: its root, then the bridges above it."""
        folder = self.roots.sys / "devices" / way / address
        for name, value in (("vendor", vendor), ("device", device), ("class", class_)):
            self._write(folder / name, f"0x{value}\n")
        self._write(folder / "subsystem_vendor", f"0x{vendor}\n")
        self._write(folder / "subsystem_device", "0x0001\n")
        self._write(folder / "numa_node", f"{numa_node}\n")
        if driver:
            self._link(folder / "driver", self.roots.sys / "bus/pci/drivers" / driver)
        if iommu_group is not None:
            self._link(folder / "iommu_group", self.roots.sys / f"kernel/iommu_groups/{iommu_group}")
            self.node(f"vfio/{iommu_group}")
            self.node("vfio/vfio")
        if physical_function:
            self._link(folder / "physfn", folder.parent / physical_function)
        if total_virtual_functions is not None:
            self._write(folder / "sriov_totalvfs", f"{total_virtual_functions}\n")
        for index, function in enumerate(virtual_functions):
            self._link(folder / f"virtfn{index}", folder.parent / function)
        self._link(self.roots.sys / "bus/pci/devices" / address, folder)
        return folder

    def interface(
        self,
        name: str,
        *,
        on: Path | None = None,
        mac: str = "02:00:00:00:00:01",
        mtu: int = 1500,
        speed: str = "25000",
        operstate: str = "up",
        loopback: bool = False,
        master: str = "",
    ) -> None:
        """on: the directory of the PCI function; a virtual interface without."""
        folder = (on / "net" if on else self.roots.sys / "devices/virtual/net") / name
        values = {"address": mac, "mtu": str(mtu), "speed": speed, "operstate": operstate}
        for file, value in {**values, "type": "772" if loopback else "1"}.items():
            self._write(folder / file, f"{value}\n")
        if on:
            self._link(folder / "device", on)
        if master:
            self._link(folder / "master", self.roots.sys / "devices/virtual/net" / master)
            self._link(self.roots.sys / f"devices/virtual/net/{master}/lower_{name}", folder)
        self._link(self.roots.sys / "class/net" / name, folder)

    def disk(
        self,
        name: str,
        *,
        on: Path | None = None,
        sectors: int = 2048,
        partitions: tuple[str, ...] = (),
        model: str = "",
        serial: str = "",
        read_only: bool = False,
        holders: tuple[str, ...] = (),
        backing_file: str = "",
    ) -> Path:
        """on: the directory of the PCI function. Returns the disk's directory."""
        folder = (on / "nvme/nvme0" if on else self.roots.sys / "devices/virtual/block") / name
        for file, value in (("size", str(sectors)), ("ro", str(int(read_only))), ("removable", "0")):
            self._write(folder / file, f"{value}\n")
        self._write(folder / "queue/rotational", "0\n")
        if on:
            self._write(on / "nvme/nvme0/model", f"{model}   \n")
            self._write(on / "nvme/nvme0/serial", f"{serial}\n")
            self._link(on / "nvme/nvme0/driver", self.roots.sys / "bus/pci/drivers/nvme")
            self._link(folder / "device", on / "nvme/nvme0")
        if backing_file:
            self._write(folder / "loop/backing_file", f"{backing_file}\n")
        self._block(name, folder, holders)
        for index, partition in enumerate(partitions):
            self._write(folder / partition / "partition", f"{index + 1}\n")
            self._block(partition, folder / partition, ())
        self._link(self.roots.sys / "block" / name, folder)
        return folder

    def _block(self, name: str, folder: Path, holders: tuple[str, ...]) -> None:
        self._number += 1
        self._write(folder / "dev", f"259:{self._number}\n")
        (folder / "holders").mkdir()
        for holder in holders:
            self._link(folder / "holders" / holder, self.roots.sys / "devices/virtual/block" / holder)
        self._link(self.roots.sys / "class/block" / name, folder)
        self.node(name.replace("!", "/"))

    def node(self, name: str) -> None:
        """A device node; a plain file does, nobody opens it."""
        self._write(self.roots.dev / name, "")

    # What the machine does with them.

    def mount(self, source: str, at: str, *, number: str = "") -> None:
        """number: of the file system; one that no device has for those that span devices."""
        number = number or (self.roots.sys / "class/block" / source.removeprefix("/dev/") / "dev").read_text().strip()
        with (self.roots.proc / "self/mountinfo").open("a") as stream:
            stream.write(f"27 1 {number} / {at} rw,relatime shared:1 - ext4 {source} rw\n")

    def swap(self, source: str) -> None:
        with (self.roots.proc / "swaps").open("a") as stream:
            stream.write(f"{source} partition 8388604 0 -2\n")

    def default_route(self, interface: str) -> None:
        with (self.roots.proc / "net/route").open("a") as stream:
            stream.write(f"{interface}\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n")

    def default_route_v6(self, interface: str) -> None:
        any_, gateway = "0" * 32, "fd" + "0" * 29 + "1"
        self._write(
            self.roots.proc / "net/ipv6_route",
            f"{any_} 00 {any_} 00 {gateway} 00000400 00000002 00000000 00000003 {interface:>8}\n",
        )

    def remove_disk(self, name: str) -> None:
        """What a pulled out disk leaves: nothing."""
        for place in (self.roots.sys / "block", self.roots.sys / "class/block", self.roots.dev):
            (place / name).unlink()

    @staticmethod
    def _write(path: Path, content: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    @staticmethod
    def _link(path: Path, target: Path) -> None:
        """Relative, as the kernel's are."""
        target.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(target, path.parent))
