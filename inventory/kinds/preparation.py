"""How DeviceClass, ResourceSlice and Node are stored: defaults, and what an update may take from the client.

Pure but for the clock that `SlicePreparation` is given. Source: pkg/apis/resource/v1/defaults.go and the strategies
below pkg/registry of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from inventory.kinds.classes import DeviceClass
from inventory.kinds.nodes import Node
from inventory.kinds.slices import Device, ResourceSlice
from inventory.kinds.taints import DeviceTaint


def unchanged(new: DeviceClass) -> DeviceClass:
    return new


def take_new(new: DeviceClass, _old: DeviceClass) -> DeviceClass:
    return new


@dataclass(frozen=True, slots=True)
class SlicePreparation:
    """Taints without a time get that of the write; one that stood there before keeps its time.

    now: the current time as RFC 3339 text with whole seconds.
    """

    now: Callable[[], str]

    def create(self, new: ResourceSlice) -> ResourceSlice:
        return self.update(new, None)

    def update(self, new: ResourceSlice, old: ResourceSlice | None) -> ResourceSlice:
        if all(taint.time_added for device in new.spec.devices for taint in device.taints):
            return new
        known = {device.name: device for device in old.spec.devices} if old is not None else {}
        devices = tuple(self._dated(device, known.get(device.name)) for device in new.spec.devices)
        return replace(new, spec=replace(new.spec, devices=devices))

    def _dated(self, device: Device, old: Device | None) -> Device:
        times = {_identity(taint): taint.time_added for taint in old.taints} if old is not None else {}

        def dated(taint: DeviceTaint) -> DeviceTaint:
            return replace(taint, time_added=taint.time_added or times.get(_identity(taint)) or self.now())

        return replace(device, taints=tuple(map(dated, device.taints))) if device.taints else device


def _identity(taint: DeviceTaint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect


def create_node(new: Node) -> Node:
    """What a node can allocate is what it has, unless it says otherwise."""
    status = new.status
    if status.capacity and not status.allocatable:
        return replace(new, status=replace(status, allocatable=status.capacity))
    return new


def update_node(new: Node, old: Node) -> Node:
    return replace(new, status=old.status)


def update_node_status(new: Node, old: Node) -> Node:
    """The status, and the labels, annotations and taints that a node reports with it, are the node's to write."""
    return create_node(replace(old, metadata=new.metadata, status=new.status))
