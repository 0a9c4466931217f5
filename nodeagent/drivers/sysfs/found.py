"""One device of the machine as it was found, and how it is published."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity
from manciple.wire.names import DNS_LABEL_MAX
from nodeagent.drivers.attributes import plain, text

#: In the order in which they are published. "virtual-net": interfaces with no hardware behind them.
Kind = Literal["pci", "net", "virtual-net", "block", "loop", "kvm", "tun", "fuse"]

#: Any number of containers can have these at once: each open file is an instance of its own.
SHAREABLE: frozenset[Kind] = frozenset({"kvm", "tun", "fuse"})

_PREFIX: Mapping[Kind, str] = {"pci": "pci-", "net": "net-", "virtual-net": "net-", "block": "block-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
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
