"""The columns of `kubectl get resourceclaims`. Source: pkg/printers/internalversion/printers.go."""

from __future__ import annotations

from claims.kinds.resource_claims import ResourceClaim
from manciple.wire.registry import Column
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN


def claim_state(claim: ResourceClaim, _now: float = 0) -> str:
    """`pending`, `allocated,reserved`, `deleted,allocated,reserved`, ..."""
    deleted, allocated = claim.metadata.deletion_timestamp is not None, claim.status.allocation is not None
    states = {
        "deleted": deleted,
        "pending": not allocated and not deleted,
        "allocated": allocated,
        "reserved": allocated and bool(claim.status.reserved_for),
    }
    return ",".join(state for state, holds in states.items() if holds)


CLAIM_COLUMNS = (
    NAME_COLUMN,
    Column(
        name="State",
        description="A summary of the current state (allocated, pending, reserved, etc.)",
        cell=claim_state,
    ),
    AGE_COLUMN,
)
