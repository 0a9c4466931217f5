"""What drivers say of their devices' health: in the status of who has them, and in what is published. Pure.

A pod that has an unhealthy device keeps it and is told; no new one gets it, because it is published with a taint.
Source: KEP-4680; a device is named by its first CDI device id, or by driver, pool and name where it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from claims.kinds.containers import Container
from claims.kinds.pods import ResourceHealth, ResourceStatus
from inventory.kinds.devices import Device, DeviceTaint
from nodeagent.checkpoint import ClaimRecord, PreparedDevice
from nodeagent.drivers.protocol import ClaimDriver, DeviceHealth, Pool
from nodeagent.podclaims import serves

#: (driver, pool, device) -> what its driver says
KnownHealth = Mapping[tuple[str, str, str], DeviceHealth]


#: Keeps new claims off a device whose driver calls it unhealthy, and has no taint of its own for it.
UNHEALTHY = DeviceTaint(key="manciple.dev/unhealthy", effect="NoSchedule")
_KEEPING_AWAY = {"NoSchedule", "NoExecute"}


def fenced_off(pools: Iterable[Pool], healths: Iterable[DeviceHealth]) -> Sequence[Pool]:
    """The pools of a driver with a taint on each unhealthy device, unless the driver has tainted it itself."""
    unhealthy = {(one.pool, one.device) for one in healths if one.health == "Unhealthy"}
    if not unhealthy:
        return tuple(pools)
    return tuple(
        replace(pool, devices=tuple(_fenced(one, (pool.name, one.name) in unhealthy) for one in pool.devices))
        for pool in pools
    )


def _fenced(device: Device, unhealthy: bool) -> Device:
    if not unhealthy or any(taint.effect in _KEEPING_AWAY for taint in device.taints):
        return device
    return structs.replace(device, taints=(*device.taints, UNHEALTHY))


def known_health(drivers: Iterable[ClaimDriver]) -> KnownHealth:
    """What the drivers say now."""
    return {(driver.name, one.pool, one.device): one for driver in drivers for one in driver.health()}


def resource_statuses(
    container: Container, records: Mapping[str, ClaimRecord], known: KnownHealth
) -> tuple[ResourceStatus, ...]:
    """One status for each use of a claim by the container. records: the pod's claims by entry.

    As kubelet has it, the health of a device of which its driver says nothing is unknown, and of devices that a driver
    gives by one CDI device the first is told: the list has one entry for each name.
    """
    statuses = []
    for use in container.resources.claims:
        record = records.get(use.name)
        healths: dict[str, ResourceHealth] = {}
        for health in _healths(record, use.request, known) if record is not None else ():
            healths.setdefault(health.resource_id, health)
        if healths:
            name = f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}"
            statuses.append(ResourceStatus(name=name, resources=tuple(healths.values())))
    return tuple(statuses)


def _healths(record: ClaimRecord, request: str, known: KnownHealth) -> Iterator[ResourceHealth]:
    for driver in record.drivers:
        for device in driver.devices:
            if not serves(device, request):
                continue
            name = _name(driver.driver, device)
            if said := known.get((driver.driver, device.pool, device.device)):
                yield ResourceHealth(resource_id=name, health=said.health, message=said.message or None)
            else:
                yield ResourceHealth(resource_id=name, health="Unknown")


def _name(driver: str, device: PreparedDevice) -> str:
    return device.cdi_device_ids[0] if device.cdi_device_ids else f"{driver}/{device.pool}/{device.device}"
