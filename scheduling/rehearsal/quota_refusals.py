"""Whether a quota would refuse the generated claims of a pod. Nothing is written.

They are created together, as the claim controller would create them, in a transaction that is rolled back: so the
answer is the writer's own.
"""

from __future__ import annotations

from typing import cast

from claims.causes.causes import QuotaUsedUp
from claims.controllers.generated_claims import IDENTITY
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaimTemplate
from claims.pod_claims import claim_for
from claims.quotas import Excess, QuotaExceeded
from manciple.store import objects
from manciple.wire.errors import ApiError
from manciple.wire.resources import CLAIMS, TEMPLATES, kind
from scheduling.rehearsal.workload import Workload, replica


def refused(workload: Workload) -> QuotaUsedUp | None:
    """Why one replica would wait for its first claim that is refused; None where all of them would be made."""
    _, claims = replica(workload, 1)
    entries, made = tuple(workload.own), 0
    try:
        with objects.writing(identity=IDENTITY, dry_run=True) as writer:
            for claim in claims:
                writer.create(kind(CLAIMS), kind(CLAIMS).prepare_create(claim))
                made += 1
    except QuotaExceeded as error:
        _, quota, key, requested, used, hard = error.excess
        return QuotaUsedUp(quota=quota, key=key, requested=requested, used=used, hard=hard, entry=entries[made])
    except ApiError:
        return None  # what else is wrong with them is told where they are made
    return None


def refused_by_quota(pod: Pod, entry: str) -> Excess | None:
    """The quota that would refuse the claim for this entry of spec.resourceClaims now; nothing is written."""
    (wanted,) = (one for one in pod.spec.resource_claims if one.name == entry)
    try:
        with objects.writing(identity=IDENTITY, dry_run=True) as writer:
            name = wanted.resource_claim_template_name or ""
            template = cast("ResourceClaimTemplate | None", writer.get(kind(TEMPLATES), pod.metadata.namespace, name))
            if template is not None:
                writer.create(kind(CLAIMS), kind(CLAIMS).prepare_create(claim_for(pod, wanted, template)))
    except QuotaExceeded as error:
        return error.excess
    except ApiError:
        return None
    return None
