"""Records when drivers report held devices as used or idle, in the transaction that writes the report.

A driver reports it with the condition `manciple.dev/Idle` of the device in the claim's `status.devices`
(docs/how-to/drivers.md): False while something uses the device. Each period of one answer is a `UseSpell`, from the
condition's lastTransitionTime to that of the next one. It ends when the claim gives the device back, or the report is
removed. Devices with admin access are not recorded, since they are not held.

Existing rows are compared with the reports, so `reindex` and repeated writes change nothing. Periods shorter than
`LEAST` are deleted when they end, so a report that flaps fills no table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from claims.kinds.resource_claims import IDLE_CONDITION, AllocatedDeviceStatus, ResourceClaim, class_of, node_of
from claims.models import UseSpell
from manciple.store import sql
from manciple.store.records import Change
from manciple.wire.base import condition_of

LEAST = timedelta(minutes=1)

_COLUMNS = (
    "driver", "pool", "device", "share_id", "device_class", "node", "claim_uid", "namespace", "idle", "began_at"
)  # fmt: skip

AllocatedKey = tuple[str, str, str, str]  # (driver, pool, device, share id or "")


class ReportedUse(NamedTuple):
    """A driver's report about one device. since: None if the condition has no lastTransitionTime."""

    idle: bool
    since: datetime | None
    device_class: str
    #: the allocation's node
    node: str


def record_uses(changes: Sequence[Change]) -> None:
    """Record changed reports; without reports this costs nothing."""
    now = datetime.now(UTC)
    wanted: dict[str, tuple[ResourceClaim, Mapping[AllocatedKey, ReportedUse]]] = {}
    for change in changes:
        claim: Any = change.object
        before = reported_uses(change.previous) if isinstance(change.previous, ResourceClaim) else {}
        after = {} if change.type == "DELETED" else reported_uses(claim)
        if before != after:
            wanted[claim.metadata.uid] = (claim, after)
    if not wanted:
        return
    open_spells = {(row.claim_uid, row.key): row for row in UseSpell.objects.standing(wanted)}
    for uid, (claim, reported) in wanted.items():
        rows = {key: row for (owner, key), row in open_spells.items() if owner == uid}
        begun = {
            key: _began(claim, one, rows.get(key), now=now)
            for key, one in reported.items()
            if (row := rows.get(key)) is None or row.idle != one.idle
        }
        for key, row in rows.items():
            if key in begun or key not in reported:
                _end(row, begun.get(key, now))
        meta = claim.metadata
        given = [
            (*key, reported[key].device_class, reported[key].node, meta.uid, meta.namespace, reported[key].idle, at)
            for key, at in begun.items()
        ]
        sql.insert(UseSpell, _COLUMNS, given)


def reported_uses(claim: ResourceClaim) -> Mapping[AllocatedKey, ReportedUse]:
    """The reports about the devices that are allocated to the claim."""
    if not claim.status.devices or claim.status.allocation is None:
        return {}
    devices = {_key(one): one for one in claim.status.devices}
    found = {}
    for result in claim.status.allocation.devices.results:
        key = (result.driver, result.pool, result.device, result.share_id or "")
        condition = condition_of(devices[key].conditions, IDLE_CONDITION) if key in devices else None
        if condition is not None and condition.status in ("True", "False") and not result.admin_access:
            since = condition.last_transition_time
            found[key] = ReportedUse(
                condition.status == "True",
                datetime.fromisoformat(since) if since else None,
                class_of(claim.spec.devices.requests, result.request),
                node_of(claim.status.allocation),
            )
    return found


def prune_uses(now: datetime, *, kept_for: timedelta) -> int:
    """Delete spells that ended too long ago. Returns how many."""
    return UseSpell.objects.filter(ended_at__lt=now - kept_for).delete()[0]


def _key(one: AllocatedDeviceStatus) -> AllocatedKey:
    return one.driver, one.pool, one.device, one.share_id or ""


def _end(row: UseSpell, at: datetime) -> None:
    if at - row.began_at < LEAST:
        row.delete()
    else:
        UseSpell.objects.filter(pk=row.pk).update(ended_at=at)


def _began(claim: ResourceClaim, reported: ReportedUse, before: UseSpell | None, *, now: datetime) -> datetime:
    """Clamp the driver's timestamp between the allocation, or the end of the previous spell, and now."""
    allocation = claim.status.allocation
    given = (allocation.allocation_timestamp if allocation is not None else None) or claim.metadata.creation_timestamp
    earliest = [datetime.fromisoformat(given)] if given else []
    earliest += [before.began_at] if before is not None else []
    return min(max([reported.since or now, *earliest]), now)
