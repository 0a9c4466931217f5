"""Simulated network interfaces that several claims share by bandwidth (KEP-5075, consumable capacity).

A claim asks for so much of the capacity `bandwidth` and gets a share of an interface; the interface is used up when
its bandwidth is. How much may be asked for is the device's policy: from the least share up in steps, or nothing said,
which is the default share. A container finds which interface it has, the share's id, and the bandwidth granted:

    NIC_DEVICE_0=nic-0  NIC_DEVICE_0_INTERFACE=eth0  NIC_DEVICE_0_SHARE_ID=<uuid>  NIC_DEVICE_0_BANDWIDTH=20G

A container with two shares of one interface finds the first three of one of them, and both in
`NIC_DEVICE_0_SHARE_<uuid>=<bandwidth>`, where the uuid is in capitals, with `_` for `-`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from claims.kinds.resource_claims import DeviceRequestAllocationResult
from inventory.kinds.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceAttribute,
    DeviceCapacity,
)
from manciple.wire.base import Value
from nodeagent.drivers.protocol import Pool
from nodeagent.drivers.simulated import Faults, FaultSettings, SimulatedDevices, arguments

DEFAULT_NAME = "nic.example.com"
DEFAULT_COUNT = 2
BANDWIDTH = "bandwidth"


class BandwidthShares(Value, forbid_unknown_fields=True):
    """What may be asked for, in bits a second (quantities). max: as far as the bandwidth goes where it is empty."""

    default: str = "10G"
    min: str = "1G"
    max: str = ""
    step: str = "1G"


def nic_device(node_name: str, index: int, *, bandwidth: str, shares: BandwidthShares) -> Device:
    """Interface `index` of a node: `bandwidth` bits a second, given out as `shares` says."""
    policy = CapacityRequestPolicy(
        default=shares.default,
        valid_range=CapacityRequestPolicyRange(min=shares.min, max=shares.max or None, step=shares.step),
    )
    return Device(
        name=f"nic-{index}",
        attributes={
            "index": DeviceAttribute(int_value=index),
            "interface": DeviceAttribute(string_value=f"eth{index}"),
            "macAddress": DeviceAttribute(string_value=_mac_address(node_name, index)),
            "model": DeviceAttribute(string_value="LATEST-NIC-MODEL"),
            "driverVersion": DeviceAttribute(version_value="1.0.0"),
            "resource.kubernetes.io/pcieRoot": DeviceAttribute(string_value=f"pci0000:{index * 0x80:02x}"),
        },
        capacity={BANDWIDTH: DeviceCapacity(value=bandwidth, request_policy=policy)},
        allow_multiple_allocations=True,
    )


def _mac_address(node_name: str, index: int) -> str:
    """A locally administered address, the same for ever."""
    digest = hashlib.sha256(f"{node_name}/nic-{index}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


class NicDriver(SimulatedDevices):
    """A `Driver` with `nics` interfaces in one pool named after the node."""

    def __init__(
        self,
        node_name: str,
        *,
        name: str = DEFAULT_NAME,
        nics: int = DEFAULT_COUNT,
        bandwidth: str = "100G",
        shares: BandwidthShares | None = None,
        faults: Faults | None = None,
        control: Path | None = None,
    ) -> None:
        """bandwidth: of each interface, in bits a second (a quantity)."""
        devices = tuple(
            nic_device(node_name, index, bandwidth=bandwidth, shares=shares or BandwidthShares())
            for index in range(nics)
        )
        super().__init__(Pool(name=node_name, devices=devices), name=name, faults=faults, control=control)

    def environment(
        self, device: Device, result: DeviceRequestAllocationResult, parameters: Sequence[Any]
    ) -> dict[str, str]:
        prefix = f"NIC_DEVICE_{device.name.removeprefix('nic-').replace('-', '_').upper()}"
        found = {prefix: device.name}
        if (interface := device.attributes.get("interface")) and interface.string_value:
            found[f"{prefix}_INTERFACE"] = interface.string_value
        granted = result.consumed_capacity.get(BANDWIDTH, device.capacity[BANDWIDTH].value)
        found[f"{prefix}_BANDWIDTH"] = granted
        if result.share_id is not None:
            found[f"{prefix}_SHARE_ID"] = result.share_id
            found[f"{prefix}_SHARE_{result.share_id.replace('-', '_').upper()}"] = granted
        if parameters:
            found[f"{prefix}_CONFIG"] = msgspec.json.encode(parameters, order="sorted").decode()
        if result.admin_access:
            found["DRA_ADMIN_ACCESS"] = "true"
        return found


class NicSettings(FaultSettings, forbid_unknown_fields=True):
    """What the drivers file may say of this driver. bandwidth: of each interface."""

    name: str = DEFAULT_NAME
    nics: int = DEFAULT_COUNT
    bandwidth: str = "100G"
    shares: BandwidthShares = BandwidthShares()


def create(node_name: str, settings: Mapping[str, Any]) -> NicDriver:
    """Raises: ValueError for settings it does not understand."""
    return NicDriver(node_name, **arguments(settings, NicSettings))
