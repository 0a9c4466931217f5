"""Publishes the devices that a machine has: PCI functions, network interfaces, disks, loop devices, kvm, tun, fuse.

`scan` finds them and tells which of them the machine needs itself; `found` is how one is published, which of them the
owner wants published, and what keeps two claims off the same hardware; `driver` notices what comes and goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeagent.drivers.sysfs.driver import SysfsDriver
from nodeagent.drivers.sysfs.found import Rule, SysfsSettings, read_settings
from nodeagent.drivers.sysfs.scan import SysfsRoots

__all__ = ["Rule", "SysfsDriver", "SysfsRoots", "SysfsSettings", "create", "read_settings"]


def create(node_name: str, settings: Mapping[str, Any]) -> SysfsDriver:
    """Raises: ValueError for settings that it does not understand."""
    return SysfsDriver(node_name, read_settings(settings))
