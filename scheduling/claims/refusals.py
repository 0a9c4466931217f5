"""Claims that cannot be made with a pod's verdict, and the refusal that takes the verdict's place.

The scheduler is a client like any other: a quota, a policy or a webhook may refuse a claim that it makes, from a
template or for extended resources. The commit then undoes what it has written for the pod, and writes the refusal.
"""

from __future__ import annotations

from claims.causes.causes import ClaimNotCreated, ClaimNotMade, QuotaUsedUp
from claims.kinds.pods import Pod
from claims.quotas import QuotaExceeded
from manciple.wire.errors import ApiError
from scheduling.queue.hints import held_by_quota
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import SCHEDULER_ERROR, Wait

#: How often a pod's verdict may be refused in one commit: its placement, then the refusal in its place, where the pod's
#: claims cannot be made for that either. What follows writes nothing; refused all the same, the pod is retried.
MOST_REFUSALS = 2


class NotMade(ApiError):
    """The claim for extended resources was refused; the message says why. For a pod of a gang, the whole gang's
    placement is undone.
    """

    code, reason = 403, "Forbidden"


class ClaimsNotMade(ApiError):
    """A claim from a template could not be made: the pod is left to the controller, which says why."""

    code, reason = 403, "Forbidden"

    def __init__(self, message: str, entry: str) -> None:
        super().__init__(message)
        self.entry = entry


def is_refused(error: ApiError) -> bool:
    """Whether a refusal takes the verdict's place; after any other error the pod is retried."""
    return isinstance(error, NotMade | ClaimsNotMade | QuotaExceeded)


def refusal_by(pod: Pod, error: ApiError) -> Wait:
    """The verdict on a pod whose claim cannot be created: it waits for a quota; otherwise it is retried later.

    For a claim from a template it waits for the controller that makes these, silently: the controller says why.
    """
    pod_name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if isinstance(error, ClaimsNotMade):
        unmade = ClaimNotCreated(pod_name, error.entry)
        return Wait(pod=pod, hold=Hold(reasons=Reason.CLAIM_MISSING, cause=unmade), silent=True)
    if isinstance(error, QuotaExceeded):
        # Other pods have used up the quota since the placement, or it limits the claim itself.
        excess = error.excess
        used_up = QuotaUsedUp(
            quota=excess.quota, key=excess.key, requested=excess.requested, used=excess.used, hard=excess.hard
        )
        return Wait(pod=pod, hold=held_by_quota(excess.namespace, used_up))
    cause = ClaimNotMade(pod_name, error.message)
    return Wait(pod=pod, hold=Hold(reasons=Reason.ERROR, cause=cause), condition=SCHEDULER_ERROR, again=True)
