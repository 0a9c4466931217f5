"""Says of the devices of prepared claims whether anything uses them, as far as their drivers know it.

    a driver says that a device is idle, or no longer     -> the condition `manciple.dev/Idle` of the device in the
                                                             claim's status.devices, with the moment of the change

Only changes are written, so a claim costs a write when its device falls idle and one when it is used again. Kubernetes
gives nodes no right to write there; a node without it logs that once for each claim and goes on
(docs/how-to/drivers.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from claims.kinds.resource_claims import IDLE_CONDITION, AllocatedDeviceStatus, ResourceClaim
from manciple.wire.base import Condition
from nodeagent.api.client import CLAIMS, Client, seconds_text
from nodeagent.claims.checkpoint import ClaimRecord
from nodeagent.failures import ApiFailure

log = logging.getLogger(__name__)

#: (driver, pool, device) -> whether nothing uses it
ToldIdle = Mapping[tuple[str, str, str], bool]


@runtime_checkable
class UseTellingDriver(Protocol):
    """A driver that knows whether its devices are in use."""

    @property
    def name(self) -> str: ...

    def idle(self) -> Mapping[tuple[str, str], bool]:
        """By (pool, device): whether nothing uses it, for minutes by now. A device that is left out is not told of."""


class UseReports:
    """clock: POSIX seconds."""

    def __init__(self, client: Client, *, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        #: uid of a claim -> what was said of its devices last, or tried in vain
        self._said: dict[str, ToldIdle] = {}

    def sync(self, records: Iterable[ClaimRecord], drivers: Iterable[object]) -> None:
        """records: of the claims on this node. Raises: ApiFailure; call again later."""
        told = {
            (driver.name, *place): idle
            for driver in drivers
            if isinstance(driver, UseTellingDriver)
            for place, idle in driver.idle().items()
        }
        prepared = {record.uid: record for record in records if record.state == "Prepared"}
        self._said = {uid: said for uid, said in self._said.items() if uid in prepared}
        for uid, record in prepared.items():
            places = [(one.driver, device.pool, device.device) for one in record.drivers for device in one.devices]
            wanted = {place: told[place] for place in places if place in told}
            if wanted != self._said.get(uid, {}):
                self._say(record, wanted)
                self._said[uid] = wanted

    def _say(self, record: ClaimRecord, told: ToldIdle) -> None:
        try:
            claim = self._client.get(CLAIMS, record.name, namespace=record.namespace)
            if claim.metadata.uid == record.uid and (said := with_uses(claim, told, at=seconds_text(self._clock()))):
                self._client.update(CLAIMS, said, subresource="status")
        except ApiFailure as failure:
            if failure.forbidden or failure.reason == "Invalid":
                log.warning(
                    "%s: the use of its devices is not told: %s (docs/how-to/drivers.md, Use)", record.label, failure
                )
            elif not failure.not_found:
                raise


def with_uses(claim: ResourceClaim, told: ToldIdle, *, at: str) -> ResourceClaim | None:
    """The claim with what is told of its devices; None where it says so already."""
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    reports = {(one.driver, one.pool, one.device, one.share_id): one for one in claim.status.devices}
    before = dict(reports)
    for result in results:
        key = (result.driver, result.pool, result.device, result.share_id)
        idle = told.get(key[:3])
        if idle is not None:
            known = reports.get(key) or AllocatedDeviceStatus(
                driver=result.driver, pool=result.pool, device=result.device, share_id=result.share_id
            )
            reports[key] = _with_use(known, idle=idle, at=at)
    if reports == before:
        return None
    return replace(claim, status=replace(claim.status, devices=tuple(reports.values())))


def _with_use(report: AllocatedDeviceStatus, *, idle: bool, at: str) -> AllocatedDeviceStatus:
    status = str(idle)
    if any((one.type, one.status) == (IDLE_CONDITION, status) for one in report.conditions):
        return report
    reason, message = ("NotInUse", "Nothing uses the device.") if idle else ("InUse", "The device is in use.")
    condition = Condition(type=IDLE_CONDITION, status=status, last_transition_time=at, reason=reason, message=message)
    others = tuple(one for one in report.conditions if one.type != IDLE_CONDITION)
    return replace(report, conditions=(*others, condition))
