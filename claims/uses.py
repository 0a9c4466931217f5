"""When held devices were used and when they were idle, as far as drivers tell: recorded with the write that says so.

A driver that knows it says so by the condition `manciple.dev/Idle` of the device in the claim's `status.devices`
(docs/drivers.md): True while nothing uses the device, False while something does. Each stretch of one answer is a
`UseSpell`, from the condition's lastTransitionTime to that of the next; what the claim gives back, or the driver says
no more of, ends with that write. Of a device with admin access nothing is recorded: it is not held.

What stands is compared with what there should be, so a write that is seen twice and `reindex` change nothing. A stretch
of less than `LEAST` is forgotten when it ends: a driver that changes its mind all the time fills no table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from claims.kinds.resource_claims import IDLE_CONDITION, AllocatedDeviceStatus, ResourceClaim, class_of, node_of
from claims.models import UseSpell
from manciple.store import sql
from manciple.store.records import Change

LEAST = timedelta(minutes=1)

_COLUMNS = (
    "driver", "pool", "device", "share_id", "device_class", "node", "claim_uid", "namespace", "idle", "began_at"
)  # fmt: skip

AllocatedKey = tuple[str, str, str, str]  # (driver, pool, device, share id or "")


class ToldUse(NamedTuple):
    """What a driver says of one device. since: None where the condition has no lastTransitionTime."""

    idle: bool
    since: datetime | None
    device_class: str
    #: of the allocation
    node: str


def record_uses(changes: Sequence[Change]) -> None:
    """Costs nothing where no driver tells anything."""
    now = datetime.now(UTC)
    wanted: dict[str, tuple[ResourceClaim, Mapping[AllocatedKey, ToldUse]]] = {}
    for change in changes:
        claim: Any = change.object
        before = told_uses(change.previous) if isinstance(change.previous, ResourceClaim) else {}
        after = {} if change.type == "DELETED" else told_uses(claim)
        if before != after:
            wanted[claim.metadata.uid] = (claim, after)
    if not wanted:
        return
    standing = {(row.claim_uid, row.key): row for row in UseSpell.objects.standing(wanted)}
    for uid, (claim, told) in wanted.items():
        rows = {key: row for (owner, key), row in standing.items() if owner == uid}
        begun = {
            key: _began(claim, one, rows.get(key), now=now) for key, one in told.items() if _is_new(rows.get(key), one)
        }
        for key, row in rows.items():
            if key in begun or key not in told:
                _end(row, begun.get(key, now))
        meta = claim.metadata
        given = [
            (*key, told[key].device_class, told[key].node, meta.uid, meta.namespace, told[key].idle, at)
            for key, at in begun.items()
        ]
        sql.insert(UseSpell, _COLUMNS, given)


def told_uses(claim: ResourceClaim) -> Mapping[AllocatedKey, ToldUse]:
    """What drivers say of the devices that are allocated to the claim."""
    if not claim.status.devices or claim.status.allocation is None:
        return {}
    said = {_key(one): one for one in claim.status.devices}
    found = {}
    for result in claim.status.allocation.devices.results:
        key = (result.driver, result.pool, result.device, result.share_id or "")
        condition = (
            next((one for one in said[key].conditions if one.type == IDLE_CONDITION), None) if key in said else None
        )
        if condition is not None and condition.status in ("True", "False") and not result.admin_access:
            since = condition.last_transition_time
            found[key] = ToldUse(
                condition.status == "True",
                datetime.fromisoformat(since) if since else None,
                class_of(claim.spec.devices.requests, result.request),
                node_of(claim.status.allocation),
            )
    return found


def prune_uses(now: datetime, *, kept_for: timedelta) -> int:
    """Forget what ended too long ago. Returns how many rows went."""
    return UseSpell.objects.filter(ended_at__lt=now - kept_for).delete()[0]


def _key(one: AllocatedDeviceStatus) -> AllocatedKey:
    return one.driver, one.pool, one.device, one.share_id or ""


def _is_new(standing: UseSpell | None, told: ToldUse) -> bool:
    return standing is None or standing.idle != told.idle


def _end(row: UseSpell, at: datetime) -> None:
    if at - row.began_at < LEAST:
        row.delete()
    else:
        UseSpell.objects.filter(pk=row.pk).update(ended_at=at)


def _began(claim: ResourceClaim, told: ToldUse, before: UseSpell | None, *, now: datetime) -> datetime:
    """Not before what it follows, nor before the claim had the device, and not later than it was said, whatever the
    clock of the driver's machine."""
    allocation = claim.status.allocation
    given = (allocation.allocation_timestamp if allocation is not None else None) or claim.metadata.creation_timestamp
    earliest = [datetime.fromisoformat(given)] if given else []
    earliest += [before.began_at] if before is not None else []
    return min(max([told.since or now, *earliest]), now)
