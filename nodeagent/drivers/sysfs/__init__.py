"""Publishes the devices that a machine has: PCI functions, network interfaces, disks, loop devices, kvm, tun, fuse.

`scan` finds them, `usage` tells which of them the machine needs itself, `settings` which of them its owner offers,
`overlaps` keeps two claims off the same hardware, `watch` notices what comes and goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeagent.drivers.sysfs.driver import SysfsDriver
from nodeagent.drivers.sysfs.settings import Rule, Settings, read_settings
from nodeagent.drivers.sysfs.tree import Roots

__all__ = ["Roots", "Rule", "Settings", "SysfsDriver", "create", "read_settings"]


def create(node_name: str, settings: Mapping[str, Any]) -> SysfsDriver:
    """Raises: ValueError for settings that it does not understand."""
    return SysfsDriver(node_name, read_settings(settings))
