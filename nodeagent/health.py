"""The health of the devices that a container was given, as its status reports it. Pure.

Source: KEP-4680; a device is named by its first CDI device id, or by driver, pool and name where it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from claims.kinds.containers import Container
from claims.kinds.pod_statuses import ResourceHealth, ResourceStatus
from nodeagent.checkpoint import ClaimRecord, PreparedDevice
from nodeagent.drivers.protocol import ClaimDriver, DeviceHealth
from nodeagent.podclaims import serves

#: (driver, pool, device) -> what its driver says
KnownHealth = Mapping[tuple[str, str, str], DeviceHealth]


def known_health(drivers: Iterable[ClaimDriver]) -> KnownHealth:
    """What the drivers say now."""
    return {(driver.name, one.pool, one.device): one for driver in drivers for one in driver.health()}


def resource_statuses(
    container: Container, records: Mapping[str, ClaimRecord], known: KnownHealth
) -> tuple[ResourceStatus, ...]:
    """One status for each use of a claim by the container. records: the pod's claims by entry."""
    statuses = []
    for use in container.resources.claims:
        record = records.get(use.name)
        healths = tuple(_healths(record, use.request, known)) if record is not None else ()
        if healths:
            name = f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}"
            statuses.append(ResourceStatus(name=name, resources=healths))
    return tuple(statuses)


def _healths(record: ClaimRecord, request: str, known: KnownHealth) -> Iterator[ResourceHealth]:
    for driver in record.drivers:
        for device in driver.devices:
            health = known.get((driver.driver, device.pool, device.device))
            if health is not None and serves(device, request):
                yield ResourceHealth(
                    resource_id=_name(driver.driver, device), health=health.health, message=health.message or None
                )


def _name(driver: str, device: PreparedDevice) -> str:
    return device.cdi_device_ids[0] if device.cdi_device_ids else f"{driver}/{device.pool}/{device.device}"
