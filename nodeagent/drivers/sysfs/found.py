"""One device of the machine as it was found: whether it is published, and how it is published."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from inventory.kinds.devices import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
)
from manciple.wire.base import Value
from manciple.wire.validation import DNS_LABEL_MAX
from nodeagent.drivers.attributes import check_name, plain, text

#: In the order in which they are published. "virtual-net": interfaces with no hardware behind them.
Kind = Literal["pci", "net", "virtual-net", "block", "loop", "kvm", "tun", "fuse"]

#: Any number of containers can have these at once: each open file is an instance of its own.
SHAREABLE: frozenset[Kind] = frozenset({"kvm", "tun", "fuse"})

_PREFIX: Mapping[Kind, str] = {"pci": "pci-", "net": "net-", "virtual-net": "net-", "block": "block-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDevice:
    """`name` is the kernel's: "0000:00:01.0", "eth0", "sda", "loop4", "kvm".

    value: what a container finds in its environment. nodes: device nodes, by their path below /dev.
    function: the address of the PCI function that it is, or hangs on. in_use: for what the machine needs it; empty
    when it does not.
    """

    kind: Kind
    name: str
    value: str
    attributes: Mapping[str, DeviceAttribute]
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    function: str = ""
    in_use: str = ""
    read_only: bool = False

    @property
    def device_name(self) -> str:
        """A DNS label, always the same for the same name."""
        return device_name(self.kind, self.name)

    @property
    def facts(self) -> dict[str, str]:
        """What the rules of the settings are compared with: kind, name, and the attributes without their domain."""
        attributes = {key.rpartition("/")[2]: plain(value) for key, value in self.attributes.items()}
        return {**attributes, "kind": self.kind, "name": self.name}

    def device(self) -> Device:
        return Device(
            name=self.device_name,
            attributes={"kind": text(self.kind), **self.attributes},
            capacity=dict(self.capacity),
            allow_multiple_allocations=True if self.kind in SHAREABLE else None,
        )


def device_name(kind: Kind, name: str) -> str:
    """ "pci-0000-00-01-0", "net-eth0", "loop4"; a name that had to be changed otherwise ends in a hash of it."""
    wanted = _PREFIX.get(kind, "") + (re.sub("[:.]", "-", name) if kind == "pci" else name)
    if re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", wanted) and len(wanted) <= DNS_LABEL_MAX:
        return wanted
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    base = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")[: DNS_LABEL_MAX - 9]
    return f"{base.rstrip('-')}-{digest}"


# A PCI function and what hangs on it, disks and interfaces, are the same hardware: nobody may get both. Where both are
# published, the function's shared counter holds one unit for each of them. Each takes one, the function takes all: it
# is given only while none of them is, and none of them while it is. Source: KEP-4815.

_UNITS = "units"


def publish(found_devices: Sequence[FoundDevice]) -> tuple[tuple[Device, ...], tuple[CounterSet, ...]]:
    """The devices as they are published, and the counters that they draw from."""
    parts = Tally(found.function for found in found_devices if found.function and found.kind != "pci")
    shared = [found for found in found_devices if found.kind == "pci" and parts[found.function]]
    sets = {found.function: _counter_set(found, parts[found.function]) for found in shared}
    devices = tuple(_consuming(found, sets.get(found.function)) for found in found_devices)
    return devices, tuple(sets.values())


def _counter_set(function: FoundDevice, units: int) -> CounterSet:
    return CounterSet(name=function.device_name, counters={_UNITS: Counter(value=str(units))})


def _consuming(found: FoundDevice, counters: CounterSet | None) -> Device:
    if counters is None:
        return found.device()
    takes = counters.counters if found.kind == "pci" else {_UNITS: Counter(value="1")}
    use = DeviceCounterConsumption(counter_set=counters.name, counters=takes)
    return msgspec.structs.replace(found.device(), consumes_counters=(use,))


# What the drivers file may say of the sysfs driver. A rule is a set of patterns as of a shell (`loop[4-7]`, `mlx*`); a
# device matches when each of them fits. A device is published when its kind is asked for, some rule of `include`
# matches (or there is none), no rule of `exclude` does, and the machine does not use it itself (or some rule of
# `offerInUse` matches).

DEFAULT_NAME = "sysfs.manciple.dev"

DEFAULT_KINDS: tuple[Kind, ...] = ("pci", "net", "block", "loop", "kvm", "tun", "fuse")


class Rule(Value, forbid_unknown_fields=True):
    """Patterns by kind, name and attribute. All are texts: ids are quoted in YAML."""

    kind: str | None = None
    name: str | None = None
    vendor: str | None = None
    device: str | None = None
    class_: str | None = msgspec.field(default=None, name="class")
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    vendor_name: str | None = None
    device_name: str | None = None
    class_name: str | None = None
    driver: str | None = None
    numa_node: str | None = None
    pci_bus_id: str | None = msgspec.field(default=None, name="pciBusID")
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


class SysfsSettings(Value, forbid_unknown_fields=True):
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

    def chooses(self, found: FoundDevice) -> bool:
        """Whether its owner wants the device published, in use or not."""
        facts = found.facts
        return (
            found.kind in self.kinds
            and (not self.include or any(rule.matches(facts) for rule in self.include))
            and not any(rule.matches(facts) for rule in self.exclude)
        )

    def may_be_given(self, found: FoundDevice) -> bool:
        """Whether the machine does not need the device itself, or its owner says that it may be given anyway."""
        return not found.in_use or any(rule.matches(found.facts) for rule in self.offer_in_use)


def read_settings(settings: Mapping[str, Any]) -> SysfsSettings:
    """Raises: ValueError with the path of the field that is wrong."""
    asked = msgspec.convert(dict(settings), SysfsSettings)
    check_name(asked.name)
    for list_name in ("include", "exclude", "offer_in_use"):
        for index, rule in enumerate(getattr(asked, list_name)):
            if rule == Rule():
                place = {"offer_in_use": "offerInUse"}.get(list_name, list_name)
                raise ValueError(f"A rule without a pattern would match every device - at `$.{place}[{index}]`")
    return asked
