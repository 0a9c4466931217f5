"""What is published of this machine is what this machine has, by an account of the shell's own."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inventory.kinds.devices import Device, ResourceSlice
from inventory.kinds.slice_rules import validate_slice
from manciple.wire.base import OwnerReference
from manciple.wire.quantity import Quantity
from nodeagent.drivers.attributes import plain
from nodeagent.drivers.sysfs import SysfsDriver, read_settings
from nodeagent.drivers.sysfs.found import DEFAULT_NAME
from nodeagent.node.slices import slices_of
from tests.nodeagent.objects import NODE

EVERYTHING = [{"kind": "*"}]
KINDS = ("pci", "net", "virtual-net", "block", "loop", "kvm", "tun", "fuse")


def shell(script: str) -> list[str]:
    """The lines that `script` prints."""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def published() -> dict[tuple[str, str], dict[str, str]]:
    """(kind, the kernel's name) -> attributes, of everything, in use or not."""
    driver = SysfsDriver(NODE, read_settings({"kinds": [*KINDS], "offerInUse": EVERYTHING}))
    found = {}
    for device in driver.pools()[0].devices:
        facts = {name: plain(value) for name, value in device.attributes.items()}
        facts |= {name: str(Quantity.parse(one.value).nanos // 10**9) for name, one in device.capacity.items()}
        name = facts.get("interface") or facts.get("path") or facts.get("resource.kubernetes.io/pciBusID") or ""
        found[facts["kind"], name] = facts
    return found


Published = dict[tuple[str, str], dict[str, str]]


def of_kinds(published: Published, *kinds: str) -> dict[str, dict[str, str]]:
    return {name: facts for (kind, name), facts in published.items() if kind in kinds}


def test_its_pci_functions_are_published_with_vendor_device_class_driver_and_root(published: Published) -> None:
    listed = shell(
        """for f in /sys/bus/pci/devices/*; do [ -e "$f" ] || continue
        printf '%s %s %s %s %s %s\\n' "$(basename $f)" "$(cut -c3- $f/vendor)" "$(cut -c3- $f/device)" \
            "$(cut -c3- $f/class)" "$(basename "$(readlink $f/driver)")" "$(realpath $f | cut -d/ -f4)"; done"""
    )
    wanted = {line.split(" ")[0]: line.split(" ")[1:] for line in listed}
    names = ("vendor", "device", "class", "driver", "resource.kubernetes.io/pcieRoot")
    found = {address: [facts.get(n, "") for n in names] for address, facts in of_kinds(published, "pci").items()}
    assert found == wanted


def test_its_interfaces_are_published_with_address_and_mtu(published: Published) -> None:
    listed = shell("cd /sys/class/net; for i in *; do [ -d $i ] && echo $i $(cat $i/address) $(cat $i/mtu); done; true")
    found = {
        f"{name} {facts.get('mac', '')} {facts['mtu']}"
        for name, facts in of_kinds(published, "net", "virtual-net").items()
    }
    assert found == set(listed)


def test_its_disks_and_loop_devices_are_published_with_their_size_in_bytes(published: Published) -> None:
    listed = shell("cd /sys/block; for d in *; do [ -b /dev/$d ] && echo /dev/$d $(($(cat $d/size) * 512)); done; true")
    found = {f"{path} {facts['size']}" for path, facts in of_kinds(published, "block", "loop").items()}
    assert found == set(listed)


def test_kvm_tun_and_fuse_are_published_where_they_are(published: Published) -> None:
    listed = shell("for d in /dev/kvm /dev/net/tun /dev/fuse; do [ -c $d ] && echo $d; done; true")
    assert set(of_kinds(published, "kvm", "tun", "fuse")) == set(listed)


@pytest.mark.parametrize("settings", [{}, {"kinds": [*KINDS], "offerInUse": EVERYTHING}])
def test_what_is_published_is_a_valid_slice(settings: dict[str, Any]) -> None:
    (pool,) = SysfsDriver(NODE, read_settings(settings)).pools()
    owner = OwnerReference(api_version="v1", kind="Node", name=NODE, uid="u")
    slices: tuple[ResourceSlice, ...] = slices_of(pool, driver=DEFAULT_NAME, owner=owner, generation=1)
    assert [error for one in slices for error in validate_slice(one)] == []


def test_what_it_runs_from_and_speaks_through_is_not_offered_unasked() -> None:
    offered = SysfsDriver(NODE).pools()[0].devices
    attributes = [{name: plain(value) for name, value in device.attributes.items()} for device in offered]
    mounted = set(shell("awk '$1 ~ \"^/dev/\" {print $1}' /proc/mounts"))
    assert not mounted & {facts.get("path") for facts in attributes}
    routes = set(shell("awk '$2 == \"00000000\" {print $1}' /proc/net/route"))
    assert not routes & {facts.get("interface") for facts in attributes}


@pytest.fixture
def attach(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Attaches a file of 1 MiB to a free loop device and returns the device's name; detaches it at the end."""
    if os.geteuid() != 0 and "CI" not in os.environ:
        pytest.skip("only root attaches loop devices")
    attached = []

    def attach() -> str:
        (tmp_path / "disk").write_bytes(bytes(1 << 20))
        done = subprocess.run(
            ["losetup", "--find", "--show", str(tmp_path / "disk")], capture_output=True, text=True, check=True
        )
        attached.append(done.stdout.strip())
        return attached[-1].removeprefix("/dev/")

    yield attach
    for device in attached:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_a_file_attached_to_a_loop_device_is_noticed(attach: Callable[[], str]) -> None:
    driver, changed = SysfsDriver(NODE, read_settings({"kinds": ["loop"], "rescanSeconds": 1})), threading.Event()
    driver.subscribe(changed.set)
    try:
        name = attach()

        def published() -> Device | None:
            return next((device for device in driver.pools()[0].devices if device.name == name), None)

        while (device := published()) is None or device.capacity["size"].value != "1Mi":
            assert changed.wait(20.0), f"{name} was attached and nothing was noticed"
            changed.clear()
        assert plain(device.attributes["attached"]) == "true"
    finally:
        driver.close()
