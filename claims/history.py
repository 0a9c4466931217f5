"""Keeps who had which device, from when to when, after the claim has given it back or is gone.

The rows are written with the change that frees the devices, in its transaction; what is held now stands in
`AllocatedDevice`. So the history costs nothing while pods are being placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from claims.kinds.resource_claims import ResourceClaim
from claims.models import PastAllocation
from inventory.projectors import as_json
from manciple.store import bulk
from manciple.store.records import Change

#: How long it is kept.
KEPT_FOR = timedelta(days=90)

_COLUMNS = (
    "driver", "pool", "device", "device_class", "claim_uid", "namespace", "claim", "pods", "admin_access", "share_id",
    "consumed_capacity", "began_at", "ended_at",
)  # fmt: skip


def keep(changes: Sequence[Change], rows_of: Callable[[Any], Sequence[Any]]) -> None:
    """Note the devices that `changes` to claims free. rows_of: a claim -> the rows of its allocated devices."""
    rows = [row for change in changes for row in _freed(change, rows_of)]
    if rows:
        bulk.insert(PastAllocation, _COLUMNS, rows)


def prune(now: datetime) -> int:
    """Forget what ended too long ago. Returns how many rows went."""
    return PastAllocation.objects.filter(ended_at__lt=now - KEPT_FOR).delete()[0]


def _freed(change: Change, rows_of: Callable[[Any], Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    before = change.previous
    if not isinstance(before, ResourceClaim) or before.status.allocation is None:
        return
    kept = set() if change.type == "DELETED" else set(rows_of(change.object))
    freed = [row for row in rows_of(before) if row not in kept]
    if not freed:
        return
    ended = datetime.now(UTC)
    began = before.status.allocation.allocation_timestamp or before.metadata.creation_timestamp
    began_at = min(datetime.fromisoformat(began), ended) if began else ended
    pods = as_json(_pods(before))
    meta = before.metadata
    for row in freed:
        yield (
            row.driver, row.pool, row.device, row.device_class, meta.uid, meta.namespace, meta.name, pods,
            row.admin_access, row.share_id, row.consumed_capacity, began_at, ended,
        )  # fmt: skip


def _pods(claim: ResourceClaim) -> list[str]:
    """The pods that the claim was reserved for; where nobody is any more, the pod that it was made for."""
    reserved = [consumer.name for consumer in claim.status.reserved_for if consumer.is_pod]
    return reserved or [owner.name for owner in claim.metadata.owner_references if owner.kind == "Pod"]
