"""Writes the claims of extended resources (`scheduling.claims.extended_resources`), as a part of the scheduler's
commit.

    asked(decisions)           ahead of the transaction: what policies and webhooks say of claims that they would make
    make(writer, claim)        in it: write the claim, with what it is given
    give_back(writer, claim)   in it: free its devices and delete it
    with_claim, without_claim  the pod with its claim in its status, and without

The scheduler is a client like any other: a quota, a policy or a webhook that refuses the claim refuses the pod a place.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import islice
from typing import cast

from msgspec import structs

from claims import event_recorder
from claims.causes.causes import ClaimNotMade, QuotaUsedUp
from claims.causes.messages import SCHEDULER_NAME
from claims.controllers.reservations import deallocated
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.quotas import QuotaExceeded
from manciple.admission import door
from manciple.store import objects
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.telemetry import metrics
from manciple.wire.errors import ApiError, Conflict
from manciple.wire.identity import SCHEDULER
from manciple.wire.resources import CLAIMS, NODES, PODS, kind
from scheduling.claims.extended_placing import MOST_TOLD, ServedTwice, served_twice, still_served_twice
from scheduling.claims.extended_resources import Extended, is_in_memory, to_create
from scheduling.queue.hints import held_by_quota
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import (
    SCHEDULER_ERROR,
    AnyVerdict,
    GroupVerdict,
    Placement,
    Retry,
    Verdict,
    Wait,
    singles,
)
from scheduling.state.cluster import ClusterState

#: Seconds for which others are asked about the claims of one batch: a webhook that is down holds up no others' pods.
PATIENCE = 5.0

CREATES = metrics.counter(
    "scheduler_resourceclaim_creates_total",
    "Claims created for extended resources, and failures to create them.",
    "status",
)


class NotMade(ApiError):
    """The claim was refused; the message says why. (As that of any write, it undoes the placement of a gang.)"""

    code, reason = 403, "Forbidden"


def asked(verdicts: Sequence[AnyVerdict], state: ClusterState) -> list[AnyVerdict]:
    """`verdicts`, with refusals in place of the placements whose claim a policy or a webhook refuses. A pod for whose
    claim there was no time left is tried again in the next batch.
    """
    if not door.concerned(_creation()):
        return list(verdicts)
    until, late, checked = time.monotonic() + PATIENCE, False, list[AnyVerdict]()
    for verdict in verdicts:
        if late and any(map(_makes_claim, singles([verdict]))):
            checked += (Retry(pod=one.pod, untried=True) for one in singles([verdict]))
        elif isinstance(verdict, GroupVerdict):
            checked.append(_ask_together(verdict, state.placed_of(verdict.group)))
        else:
            checked.append(_ask(verdict))
        late = time.monotonic() > until
    return checked


def _makes_claim(verdict: Verdict) -> bool:
    return isinstance(verdict, Placement) and verdict.special is not None and is_in_memory(verdict.special.claim)


def _creation() -> Write:
    return Write(operation="CREATE", kind=kind(CLAIMS), identity=SCHEDULER, verb="create")


def _ask(verdict: Verdict) -> Verdict:
    if not isinstance(verdict, Placement) or verdict.special is None or not _makes_claim(verdict):
        return verdict
    try:
        door.check(structs.replace(_creation(), new=kind(CLAIMS).prepare_create(to_create(verdict.special.claim))))
    except ApiError as error:
        CREATES["failure"].inc()
        return refusal_by(verdict.pod, error)
    return verdict


def _ask_together(group: GroupVerdict, placed: set[str]) -> GroupVerdict:
    """placed: the uids of the pods of the group that have a place already."""
    refused = {
        checked.uid: checked
        for verdict in group.verdicts
        if (checked := _ask(verdict)) is not verdict and isinstance(checked, Wait)
    }
    return group.with_refused(refused, placed) if refused else group


def refusal_by(pod: Pod, error: ApiError) -> Wait:
    """For `pod`, whose claim cannot be created. It waits for a quota; otherwise it is retried later."""
    if isinstance(error, QuotaExceeded):
        # Others have used it up since the placement, or it limits the claim itself.
        excess = error.excess
        used_up = QuotaUsedUp(
            quota=excess.quota, key=excess.key, requested=excess.requested, used=excess.used, hard=excess.hard
        )
        return Wait(pod=pod, hold=held_by_quota(excess.namespace, used_up))
    cause = ClaimNotMade(f"{pod.metadata.namespace}/{pod.metadata.name}", error.message)
    return Wait(pod=pod, hold=Hold(reasons=Reason.ERROR, cause=cause), condition=SCHEDULER_ERROR, again=True)


def check(state: ClusterState, placement: Placement, extended: Extended | None) -> None:
    """extended: what the pod asks for by now.

    Raises: Conflict where that would be served in another way than was planned.
    """
    wanted = None if extended is None else extended.claim_on(state.nodes.allocatable(placement.node))
    planned = placement.special
    if wanted is None and planned is None:
        return
    if wanted is None or planned is None or wanted.claim.spec != planned.claim.spec:
        why = f"node {placement.node} serves its extended resources in another way"
        raise Conflict.of(PODS, placement.pod.metadata.name, why)
    known = None if extended is None else extended.known
    outdated = None if known is None or wanted.claim is known else known.metadata.uid
    planned_for = None if placement.outdated is None else placement.outdated.metadata.uid
    if wanted.claim.metadata.uid != planned.claim.metadata.uid or outdated != planned_for:
        raise Conflict.of(PODS, placement.pod.metadata.name, "its claim for extended resources has changed")


def make(writer: Writer, claim: ResourceClaim, given: ResourceClaim) -> ResourceClaim:
    """Write a claim that existed in memory, and is valid. given: the same with allocation, reservation and finalizer.

    Raises: NotMade; QuotaExceeded.
    """
    claims = kind(CLAIMS)
    fresh = claims.prepare_create(to_create(claim))
    try:
        metadata = structs.replace(fresh.metadata, finalizers=given.metadata.finalizers)
        made = writer.create(claims, structs.replace(fresh, metadata=metadata, status=given.status))
    except ApiError as error:
        CREATES["failure"].inc()
        if isinstance(error, QuotaExceeded):
            raise  # whoever waits for a quota is woken when it has room
        raise NotMade(error.message) from error
    CREATES["success"].inc()
    return cast("ResourceClaim", made)


class ServedTwiceEvents:
    """Tells of each node that advertises a resource and has devices for it too, once for as long as it does."""

    def __init__(self) -> None:
        self._told: set[ServedTwice] = set()
        self._found: list[ServedTwice] = []

    def look(self, state: ClusterState) -> None:
        self._told = {one for one in self._told if still_served_twice(state, one)}
        self._found = list(islice(served_twice(state, self._told), MOST_TOLD))

    def tell(self, now: datetime) -> None:
        """An event on each of the nodes that `look` has found."""
        if not self._found:
            return
        with objects.writing(identity=SCHEDULER) as writer:
            for one in self._found:
                self._record(writer, *one, now=now)
        self._told.update(self._found)

    def _record(self, writer: Writer, node: str, resource: str, device_class: str, *, now: datetime) -> None:
        known = writer.get(kind(NODES), "", node)
        if known is None:
            return
        message = (
            f"node {node} advertises {resource} itself and has devices of DeviceClass {device_class}, which "
            f"serves that name: pods that request {resource} get what the node advertises, not these devices. Remove "
            "the device plugin, or the name from the class."
        )
        note = EventNote(
            regarding=known,
            type="Warning",
            reason="ExtendedResourceServedTwice",
            message=message,
            component=SCHEDULER_NAME,
        )
        event_recorder.record(writer, note, now=now)


def give_back(writer: Writer, known: ResourceClaim) -> None:
    """Free what the claim holds and delete it; one that is gone, or another by now, is nothing new."""
    claim = writer.get(kind(CLAIMS), *known.key)
    if not isinstance(claim, ResourceClaim) or claim.metadata.uid != known.metadata.uid:
        return
    freed = deallocated(claim)
    if freed != claim:
        writer.update(kind(CLAIMS), freed)
    if claim.metadata.deletion_timestamp is None:
        writer.delete(kind(CLAIMS), *claim.key, uid=claim.metadata.uid)


def with_claim(pod: Pod, placement: Placement, claims: Collection[ResourceClaim]) -> Pod:
    """claims: those of the placement as they were written."""
    if placement.special is None:
        return without_claim(pod) if placement.outdated is not None else pod
    *_, made = claims
    status = structs.replace(pod.status, extended_resource_claim_status=placement.special.status_of(made))
    return structs.replace(pod, status=status)


def without_claim(pod: Pod) -> Pod:
    return structs.replace(pod, status=structs.replace(pod.status, extended_resource_claim_status=None))
