"""Scratch space: each device is a slot of this node's disk; a claim on one gets an empty directory of its own there."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from inventory.kinds.devices import Device, DeviceAttribute, DeviceCapacity
from nodeagent import cdi
from nodeagent.cdi import Mount
from nodeagent.drivers.authoring import Given, NodeDriver
from nodeagent.drivers.protocol import ClaimIdentity, DeviceHealth


class ScratchConfig(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a class or a claim may say in its opaque configuration."""

    mount_path: str = "/scratch"
    read_only: bool = False


class ScratchDriver(NodeDriver):
    name = "scratch.example.com"
    metadata = True

    def __init__(self, node_name: str, root: str = "/var/lib/scratch", slots: int = 4, size: str = "10Gi") -> None:
        super().__init__(node_name)
        self.root, self.slots, self.size = Path(root), slots, size

    def devices(self) -> Sequence[Device]:
        medium = {"medium": DeviceAttribute(string_value="disk")}
        capacity = {"size": DeviceCapacity(value=self.size)}
        return [Device(name=f"slot-{n}", attributes=medium, capacity=capacity) for n in range(self.slots)]

    def edits(self, given: Given) -> cdi.ContainerEdits:
        config = given.config(ScratchConfig)
        place = self.root / given.device.name / given.claim.uid  # found again by the uid, whoever asks to undo it
        place.mkdir(parents=True, exist_ok=True)
        options = ("rbind", "ro" if config.read_only else "rw")
        mount = Mount(host_path=str(place), container_path=config.mount_path, options=options)
        return cdi.ContainerEdits(env=(f"SCRATCH_DIR={config.mount_path}",), mounts=(mount,))

    def release(self, claim: ClaimIdentity) -> None:
        for place in self.root.glob(f"*/{claim.uid}"):
            shutil.rmtree(place)

    def health(self) -> Sequence[DeviceHealth]:
        trouble = "" if self.root.is_dir() else f"{self.root} is not there"
        health: Literal["Healthy", "Unhealthy"] = "Unhealthy" if trouble else "Healthy"
        names = [device.name for device in self.devices()]
        return [DeviceHealth(pool=self.node_name, device=name, health=health, message=trouble) for name in names]
