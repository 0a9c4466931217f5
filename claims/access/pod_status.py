"""Fields of a pod's status that the right to write `pods/status` does not cover, because other parts trust them.

    status.extendedResourceClaimStatus             the claim named there counts against no quota by itself, and the
                                                   node's agent prepares it
    status.nodeAllocatableResourceClaimStatuses    what the pod's claims take of its node
    status.conditions, type manciple.dev/Overdue   such a pod counts against no quota

Schedulers write the first two, with the request's verb on `resourceclaims/binding`. The third is written by the quota
controller, in this process. (The reference lets everybody write them who may write `pods/status`, except nodes.)
"""

from __future__ import annotations

from claims.access.claim_status import binding_refusal
from claims.kinds.quota_usage import OVERDUE, is_marked_overdue
from manciple.api import first_stage
from manciple.store.hooks import Write
from manciple.wire.errors import Forbidden


def register() -> None:
    first_stage.register_check(check, resources={"pods"})


def check(write: Write) -> None:
    """Raises: Forbidden."""
    if write.operation != "UPDATE" or write.subresource != "status":
        return
    new, old = write.new.status, write.old.status
    changed = ""
    if new.extended_resource_claim_status != old.extended_resource_claim_status:
        changed = "status.extendedResourceClaimStatus"
    elif new.node_allocatable_resource_claim_statuses != old.node_allocatable_resource_claim_statuses:
        changed = "status.nodeAllocatableResourceClaimStatuses"
    if changed and (why := binding_refusal(write)):
        raise Forbidden.of("pods", write.new.metadata.name, f"changing {changed} {why}")
    if is_marked_overdue(write.new) and not is_marked_overdue(write.old):
        why = f"only the quota controller may set the condition {OVERDUE}"
        raise Forbidden.of("pods", write.new.metadata.name, why)
