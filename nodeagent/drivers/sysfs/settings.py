"""What the drivers file may say of the sysfs driver.

A rule is a set of patterns as of a shell (`loop[4-7]`, `mlx*`); a device matches when each of them fits. A device is
offered when its kind is asked for, some rule of `include` matches (or there is none), no rule of `exclude` does, and
the machine does not use it itself (or some rule of `offerInUse` matches).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import field

from manciple.wire.base import Value
from manciple.wire.names import DRIVER_NAME_MAX, check_driver_name
from nodeagent.drivers.sysfs.found import Found, Kind

DEFAULT_NAME = "sysfs.manciple.dev"

DEFAULT_KINDS: tuple[Kind, ...] = ("pci", "net", "block", "loop", "kvm", "tun", "fuse")


class Rule(Value, forbid_unknown_fields=True):
    """Patterns by kind, name and attribute. All are texts: ids are quoted in YAML."""

    kind: str | None = None
    name: str | None = None
    vendor: str | None = None
    device: str | None = None
    class_: str | None = field(default=None, name="class")
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    vendor_name: str | None = None
    device_name: str | None = None
    class_name: str | None = None
    driver: str | None = None
    numa_node: str | None = None
    pci_bus_id: str | None = field(default=None, name="pciBusID")
    pcie_root: str | None = None
    iommu_group: str | None = None
    physical_function: str | None = None
    virtual_functions: str | None = None
    interface: str | None = None
    mac: str | None = None
    mtu: str | None = None
    speed: str | None = None
    operstate: str | None = None
    path: str | None = None
    model: str | None = None
    serial: str | None = None
    read_only: str | None = None
    removable: str | None = None
    rotational: str | None = None
    attached: str | None = None

    def matches(self, facts: Mapping[str, str]) -> bool:
        patterns: dict[str, str] = msgspec.to_builtins(self)
        return all(name in facts and fnmatch.fnmatchcase(facts[name], want) for name, want in patterns.items())


class Settings(Value, forbid_unknown_fields=True):
    """name: the driver's. rescan_seconds: between looks at the machine where no event tells of a change.

    move_interfaces: a network interface moves into the container that gets it, which takes a runtime that knows CDI
    1.1.0; otherwise the container learns its name only.
    """

    name: str = DEFAULT_NAME
    kinds: tuple[Kind, ...] = DEFAULT_KINDS
    include: tuple[Rule, ...] = ()
    exclude: tuple[Rule, ...] = ()
    offer_in_use: tuple[Rule, ...] = ()
    rescan_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=86400)] = 10.0
    move_interfaces: bool = False

    def chooses(self, found: Found) -> bool:
        """Whether its owner wants the device offered, in use or not."""
        facts = found.facts
        return (
            found.kind in self.kinds
            and (not self.include or any(rule.matches(facts) for rule in self.include))
            and not any(rule.matches(facts) for rule in self.exclude)
        )

    def may_be_given(self, found: Found) -> bool:
        """Whether the machine does not need the device itself, or its owner says that it may be given anyway."""
        return not found.in_use or any(rule.matches(found.facts) for rule in self.offer_in_use)


def read_settings(settings: Mapping[str, Any]) -> Settings:
    """Raises: ValueError with the path of the field that is wrong."""
    asked = msgspec.convert(dict(settings), Settings)
    if len(asked.name) > DRIVER_NAME_MAX or check_driver_name(asked.name):
        raise ValueError(
            f"`{asked.name}` is not a name for a driver: a DNS subdomain of at most 63 bytes - at `$.name`"
        )
    for list_name in ("include", "exclude", "offer_in_use"):
        for index, rule in enumerate(getattr(asked, list_name)):
            if rule == Rule():
                place = {"offer_in_use": "offerInUse"}.get(list_name, list_name)
                raise ValueError(f"A rule without a pattern would match every device - at `$.{place}[{index}]`")
    return asked
