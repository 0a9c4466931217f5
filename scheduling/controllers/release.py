"""Who still holds a claim, and what becomes of it when fewer do, as a value. PURE.

The states of a claim and what `decide` makes of each (upstream: pkg/controller/resourceclaim/controller.go, syncClaim):

    some reservations are over, others not  -> reservedFor shrinks
    the last reservation is over            -> deallocated, finalizer removed
    deleted, unreserved, finalizer present  -> deallocated, finalizer removed: the object may go
    made for a pod that needs it no more    -> deleted besides
    allocated, never reserved, for long     -> deallocated (only where `idle` says so)
    anything else                           -> stays
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimConsumerReference, ResourceClaimStatus
from manciple.wire.validation import ORPHAN_FINALIZER
from scheduling.hints import FINISHED_PHASES
from scheduling.pod_claims import controller_of

#: resourceapi.Finalizer: the claim may not go while its devices are given out.
FINALIZER = "resource.kubernetes.io/delete-protection"

#: name, in the claim's namespace -> the pod
FindPod = Callable[[str], Pod | None]


def is_done(pod: Pod) -> bool:
    """Whether it is certain that no container of `pod` runs or ever will."""
    if pod.status.phase in FINISHED_PHASES:
        return True
    return pod.metadata.deletion_timestamp is not None and not pod.spec.node_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What to do: store `claim` where it differs from the current one, then delete it where `delete`."""

    claim: ResourceClaim
    delete: bool = False


def decide(claim: ResourceClaim, find_pod: FindPod, *, idle: bool = False) -> Release | None:
    """What becomes of `claim` now; None when it stays as it is.

    idle: the claim is allocated and has been unreserved for longer than any consumer needs between the two.
    """
    valid = tuple(entry for entry in claim.status.reserved_for if _holds(entry, find_pod))
    following = claim
    if len(valid) < len(claim.status.reserved_for):
        following = _reserved_for(claim, valid) if valid else deallocated(claim)
    elif not valid and FINALIZER in claim.metadata.finalizers and (_deleting(claim) or idle):
        following = deallocated(claim)
    delete = not valid and not _deleting(claim) and _owner_is_done(claim, find_pod)
    if following is claim and not delete:
        return None
    return Release(claim=following, delete=delete)


def _holds(entry: ResourceClaimConsumerReference, find_pod: FindPod) -> bool:
    """Consumers that are no pods are their own controllers' business, so they hold on."""
    if entry.api_group or entry.resource != "pods":
        return True
    pod = find_pod(entry.name)
    return pod is not None and pod.metadata.uid == entry.uid and not is_done(pod)


def _owner_is_done(claim: ResourceClaim, find_pod: FindPod) -> bool:
    owner = controller_of(claim.metadata)
    if owner is None:
        return False
    pod = find_pod(owner[0])
    if pod is None or pod.metadata.uid != owner[1]:
        return True
    # A pod that is to leave orphans leaves its claims as well; the garbage collector takes its name off them.
    return is_done(pod) and ORPHAN_FINALIZER not in pod.metadata.finalizers


def _deleting(claim: ResourceClaim) -> bool:
    return claim.metadata.deletion_timestamp is not None


def _reserved_for(claim: ResourceClaim, valid: tuple[ResourceClaimConsumerReference, ...]) -> ResourceClaim:
    return structs.replace(claim, status=structs.replace(claim.status, reserved_for=valid))


def deallocated(claim: ResourceClaim) -> ResourceClaim:
    """`claim` without allocation, reservations, device reports and delete protection."""
    kept = tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
    metadata = structs.replace(claim.metadata, finalizers=kept)
    return structs.replace(claim, metadata=metadata, status=ResourceClaimStatus())
