"""What remains of an extension after its gate was turned off: pods that wait learn why, running pods keep their claims.

The modules of the extensions (`scheduling.state.extensions`) are not imported then, so all of this works without them:

    hold                  why a pod waits whose claims nobody allocates any more
    warn                  a warning in the scheduler's log: how many claims are kept
    `keep_draft_claims`   a controller: an event for each pod that keeps claims of cdi.k8s.io, which it releases when
                          the pod ends
    draft_claims_of       the claims of cdi.k8s.io that a pod may have on its node
    INVARIANTS            what `manage.py check_invariants` checks of the objects that are kept
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from claims import event_recorder
from claims.causes.causes import NobodyAllocates
from claims.controllers.generated_claims import COMPONENT, IDENTITY
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod, claim_of, listed_resources
from claims.kinds.resource_claims import ResourceClaim, is_allocated_by_controller, names_controller
from claims.pod_claims import is_done
from inventory.kinds import gates
from manciple.controllers.declaration import Controller
from manciple.store import objects, sql
from manciple.store.objects import Writer, decode, to_read
from manciple.store.records import Stored
from manciple.wire.base import OwnerReference
from manciple.wire.deferred import deferred_function
from manciple.wire.resources import CONTEXTS, DRAFT_CLAIMS, EVENTS, PODS, Key, kind
from scheduling.cluster_facts import ClusterFacts
from scheduling.queue.reasons import Hold, Reason

log = logging.getLogger(__name__)

#: A claim of cdi.k8s.io; its type belongs to the extension, and is imported where such a claim is decoded.
DraftClaim = Any
_with_status: Callable[..., DraftClaim] = deferred_function("claims.drafts.cdi.values:with_status")

#: Objects in one transaction.
BATCH = 100
KEPT = (
    "The feature gate DRAClaimsDraft is off. The pod keeps the claims that it uses; "
    "no new ones are allocated, and its own are released when it ends"
)


def _decoded(stored: Stored) -> Any:
    return decode(kind(stored.resource), stored.text)


# Waiting pods ---------------------------------------------------------------------------------------------------------


def hold(pod: Pod, claims: Sequence[ResourceClaim]) -> Hold | None:
    """Why no node is searched for the pod; None where nothing of it depends on a gate that is off."""
    if not gates.enabled(gates.CONTROL_PLANE_CONTROLLER):
        if gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT):  # it has its own words for classes that it does not serve
            claims = [claim for claim in claims if claim.spec.controller_name]
        for claim in claims:
            if claim.status.allocation is None and names_controller(claim):
                text = f"resourceclaim {claim.metadata.name} is allocated by its driver's controller, and feature gate"
                cause = NobodyAllocates(f"{text} DRAControlPlaneController is off")
                return Hold(reasons=Reason.NEGOTIATION, cause=cause)
    if not gates.enabled(gates.CLAIMS_DRAFT) and isinstance(pod.spec.resources, tuple):
        text = f"the feature gate {gates.CLAIMS_DRAFT} is off: nobody allocates what spec.resources lists"
        return Hold(reasons=Reason.ERROR, cause=NobodyAllocates(text))
    return None


# Running pods ---------------------------------------------------------------------------------------------------------


def warn(claims: Collection[ResourceClaim]) -> None:
    """Log how many claims of features that are off are kept; of cdi.k8s.io, each pod has an event."""
    if not gates.enabled(gates.CONTROL_PLANE_CONTROLLER) and (count := sum(map(is_allocated_by_controller, claims))):
        log.warning(
            "DRAControlPlaneController is off; claims that drivers' controllers have allocated: %d. Their pods "
            "keep running, and no more are allocated; deallocations wait until the feature is on again",
            count,
        )
    if not gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT) and (count := sum(map(is_structured, claims))):
        log.warning(
            "%s is off; claims that were allocated with structured parameters: %d. They keep their devices until "
            "their pods end, and no more are allocated; NodeResourceSlices are ignored",
            gates.STRUCTURED_PARAMETERS_DRAFT,
            count,
        )


def is_structured(claim: ResourceClaim) -> bool:
    """Whether the claim was allocated with structured parameters of the KEP-4381 draft."""
    allocation = claim.status.allocation
    return allocation is not None and any(handle.structured_data is not None for handle in allocation.resource_handles)


def draft_claims_of(pod: Pod) -> list[str]:
    """The names of the claims of cdi.k8s.io that the pod lists, whether the gate is on or off."""
    return [claim_of(pod, entry) for entry in listed_resources(pod)]


def reconcile(now: datetime) -> int:
    """Returns how many objects were changed; none while the gate is on."""
    if gates.enabled(gates.CLAIMS_DRAFT):
        return 0
    claims = (_decoded(stored) for stored in objects.list(kind(DRAFT_CLAIMS)).items)
    used = [claim for claim in claims if claim.status.used_by]
    users = {(claim.metadata.namespace, user.name) for claim in used for user in claim.status.used_by if is_pod(user)}
    released = with_each(DRAFT_CLAIMS, [claim.key for claim in used], release)
    return released + with_each(PODS, sorted(users), partial(_note_kept, now=now))


def _note_kept(writer: Writer, pod: Pod, *, now: datetime) -> int:
    """One event for each pod."""
    note = EventNote(regarding=pod, type="Warning", reason="FeatureGateOff", message=KEPT, component=COMPONENT)
    if writer.get(kind(EVENTS), *event_recorder.key_of(note)) is not None:
        return 0
    event_recorder.record(writer, note, now=now)
    return 1


CONTROLLER = Controller(
    name="keep_draft_claims",
    does="warns pods that keep claims of cdi.k8s.io while the feature gate is off, and releases them at the end",
    in_mirror=False,
    reconcile=reconcile,
    every=60,
)


# Invariants, whether the gate is on or off ----------------------------------------------------------------------------


def _contexts_have_pods(facts: ClusterFacts) -> Iterator[str]:
    """Every PodSchedulingContext belongs to a pod that exists."""
    pods = {pod.key: pod for pod in facts.pods}
    for stored in facts.stored(CONTEXTS):
        context = _decoded(stored)
        pod = pods.get(context.key)
        if pod is None or pod.metadata.uid not in {owner.uid for owner in context.metadata.owner_references}:
            yield f"PodSchedulingContext {'/'.join(context.key)} has no pod"


def _draft_claims_are_used_as_allocated(facts: ClusterFacts) -> Iterator[str]:
    """Claims in use are allocated, by no more users than may share them, and have one owner."""
    for stored in facts.stored(DRAFT_CLAIMS):
        claim = _decoded(stored)
        status, name = claim.status, f"{claim.metadata.namespace}/{claim.metadata.name}"
        if status.used_by and status.phase != "Allocated":
            yield f"claim {name} of cdi.k8s.io is used and not allocated"
        if 0 <= status.user_limit < len(status.used_by):
            yield f"claim {name} of cdi.k8s.io has {len(status.used_by)} users of {status.user_limit}"
        if sum(bool(owner.controller) for owner in claim.metadata.owner_references) > 1:
            yield f"claim {name} of cdi.k8s.io has two owners"


#: Gate -> the name of a check -> what is checked besides of the objects that the extension writes.
INVARIANTS: Mapping[str, Mapping[str, Callable[[ClusterFacts], Iterator[str]]]] = {
    gates.CONTROL_PLANE_CONTROLLER: {"9 negotiations with drivers end": _contexts_have_pods},
    gates.CLAIMS_DRAFT: {
        "2 allocated claims are protected, reserved claims allocated": _draft_claims_are_used_as_allocated
    },
}


# The end of a pod, whether the gate is on or off ----------------------------------------------------------------------


def release(writer: Writer, claim: DraftClaim) -> int:
    """Remove the pods that have ended from the claim's users."""
    users = tuple(user for user in claim.status.used_by if _uses(writer, claim, user))
    if users == claim.status.used_by:
        return 0
    writer.update(kind(DRAFT_CLAIMS), _with_status(claim, used_by=users), subresource="status")
    return 1


def _uses(writer: Writer, claim: DraftClaim, user: OwnerReference) -> bool:
    if not is_pod(user):
        return True
    pod = writer.get(kind(PODS), claim.metadata.namespace, user.name)
    return isinstance(pod, Pod) and pod.metadata.uid == user.uid and not is_done(pod)


def is_pod(user: OwnerReference) -> bool:
    """Users of other kinds are left to their own controllers."""
    return (user.api_version, user.kind) == ("v1", "Pod")


def with_each(resource: str, keys: Iterable[Key], step: Callable[[Writer, Any], int]) -> int:
    """Call `step` with the current version of each of these objects, many in one transaction. Returns the sum."""
    changed = 0
    for batch in sql.chunks(keys, BATCH):
        with objects.writing(identity=IDENTITY, reads=to_read((kind(resource), batch))) as writer:
            current = (writer.get(kind(resource), *key) for key in batch)
            changed += sum(step(writer, obj) for obj in current if obj is not None)
    return changed
