"""Takes back what finished and vanished pods held: reservations, allocations, finalizers, generated claims.

The states of a claim and what `decide` makes of each (upstream: pkg/controller/resourceclaim/controller.go, syncClaim):

    some reservations are over, others not  -> reservedFor shrinks
    the last reservation is over            -> deallocated, finalizer removed; allocated Immediately: reservedFor empty
    deleted, unreserved, finalizer present  -> deallocated, finalizer removed: the object may go
    made for a pod that needs it no more    -> deleted besides
    allocated, never reserved, for long     -> deallocated (only where `idle` says so)
    the last two, and a bound pod names it  -> stays: its node may have the devices prepared, though somebody removed
                                               the reservation
    allocated by a driver's controller      -> deallocationRequested after the last reservation, never for being idle
                                               or deleted: its driver does the rest (KEP-3063)
    anything else                           -> stays

A claim is looked at when a pod that uses it ended or went, when it is being deleted, and in the sweep over all claims
that hold or are held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from django.db.models import Exists, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Coalesce, Concat
from msgspec import structs

from claims import models
from claims.controllers.generated_claims import IDENTITY
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import (
    DELETE_PROTECTION,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    is_allocated_by_controller,
)
from claims.pod_claims import STRUCTURED_FINALIZER, claim_names, controller_of, is_done, stays_allocated
from manciple.controllers.coordination import CursorFollower
from manciple.controllers.declaration import DELETING, FINISHED, Controller, Queue, batches
from manciple.store import event_log, objects, sql
from manciple.store.objects import Writer, decoded
from manciple.store.records import EventRecord
from manciple.wire.resources import CLAIMS, DELETED, FINISHED_PHASES, PODS, Key, kind
from manciple.wire.validation import ORPHAN_FINALIZER

FINALIZER = DELETE_PROTECTION

#: name, in the claim's namespace -> the pod
FindPod = Callable[[str], Pod | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What to do: store `claim` where it differs from the current one, then delete it where `delete`."""

    claim: ResourceClaim
    delete: bool = False


def decide(claim: ResourceClaim, find_pod: FindPod, *, idle: bool = False, prepared: bool = False) -> Release | None:
    """What becomes of `claim` now; None when it stays as it is.

    idle: the claim is allocated and has been unreserved for longer than any consumer needs between the two.
    prepared: a node may have it prepared for a pod, although it is not reserved for that pod.
    """
    valid = tuple(entry for entry in claim.status.reserved_for if _holds(entry, find_pod))
    following = claim
    if len(valid) < len(claim.status.reserved_for):
        following = _reserved_for(claim, valid) if valid or stays_allocated(claim) else deallocated(claim)
    elif not (valid or prepared) and FINALIZER in claim.metadata.finalizers and (_deleting(claim) or idle):
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


def not_reserved(claim: ResourceClaim, uid: str) -> ResourceClaim:
    """`claim` without its reservation for one consumer."""
    return _reserved_for(claim, tuple(entry for entry in claim.status.reserved_for if entry.uid != uid))


def _reserved_for(claim: ResourceClaim, valid: tuple[ResourceClaimConsumerReference, ...]) -> ResourceClaim:
    return structs.replace(claim, status=structs.replace(claim.status, reserved_for=valid))


def deallocated(claim: ResourceClaim) -> ResourceClaim:
    """`claim` without allocation, reservations, device reports and delete protection. Where a driver's controller has
    allocated it, that is asked to deallocate it.
    """
    if is_allocated_by_controller(claim):
        asked = structs.replace(claim.status, reserved_for=(), deallocation_requested=True)
        return structs.replace(claim, status=asked)
    kept = tuple(name for name in claim.metadata.finalizers if name not in (FINALIZER, STRUCTURED_FINALIZER))
    metadata = structs.replace(claim.metadata, finalizers=kept)
    return structs.replace(claim, metadata=metadata, status=ResourceClaimStatus())


#: Claims in one transaction.
BATCH = objects.PORTION
#: Claims changed in one sweep.
MOST = 2000
#: An allocation that nobody reserved is given up after this long; schedulers write both at once.
IDLE_AFTER = timedelta(seconds=60)


def handle(records: Sequence[EventRecord]) -> int:
    """Look at the claims that `records` point to."""
    keys = dict.fromkeys(
        (one.namespace, one.name)
        for one in records
        if one.resource == CLAIMS and one.deleting and one.type != "DELETED"
    )
    over = (
        one
        for one in records
        if one.resource == PODS
        and (one.deleting or one.type == "DELETED" or one.fields.get("status.phase") in FINISHED_PHASES)
    )
    for one in event_log.with_documents(over):
        pod = decoded(one, Pod)
        if one.type == "DELETED" or is_done(pod):
            keys |= dict.fromkeys((one.namespace, name) for name in claim_names(pod))
    return release(keys)


def sweep(now: datetime, *, most: float = MOST) -> int:
    """Look at every claim with something to take back. Returns how many were changed, at most about `most`."""
    changed = 0
    for chunk in batches(_candidates(now), BATCH):
        claims = [decoded(stored, ResourceClaim) for stored in objects.get_many(kind(CLAIMS), chunk)]
        stored_pods = objects.get_many(kind(PODS), {key for claim in claims for key in _pods_of(claim)})
        pods = {pod.key: pod for pod in (decoded(stored, Pod) for stored in stored_pods)}
        idle = {claim.key for claim in claims if is_idle(claim, now)}
        # A first judgement on what was read without a lock; the transaction makes the real one.
        suspects = [claim.key for claim in claims if _judge(claim, pods, idle=claim.key in idle)]
        changed += release(suspects, idle=idle)
        if changed >= most:
            break
    return changed


def _candidates(now: datetime) -> list[Key]:
    """The claims that the indexes show to be held by nobody, or by a pod that is over. Four queries."""
    claims, reservations = models.Claim.objects, models.Reservation.objects.filter(resource="pods")
    # As one text, so that no plan goes by the namespace: without statistics yet, PostgreSQL took every pod of it for
    # every reservation, which are minutes of a core where ten thousand pods run.
    living = _living_pods().annotate(called=_called("namespace"))
    living = living.filter(uid=OuterRef("uid"), called=OuterRef("called"))
    reserved = reservations.annotate(called=_called("claim__namespace"))
    over = reserved.filter(~Exists(living)).values_list("claim__namespace", "claim__name")
    unreserved = claims.filter(~Exists(models.Reservation.objects.filter(claim=OuterRef("uid"))))
    leaving = unreserved.filter(deleting=True)
    idle = unreserved.filter(allocated=True).annotate(since=Coalesce("allocated_at", "created_at"))
    idle = idle.filter(since__lt=now - IDLE_AFTER)
    found = [*over, *_keys(leaving), *_keys(idle), *_made_for_ended_pods()]
    return list(dict.fromkeys(found))


def _called(namespace: str) -> Concat:
    return Concat(namespace, Value("/"), "name", output_field=TextField())


def _keys(claims: QuerySet[models.Claim]) -> Iterable[Key]:
    return claims.values_list("namespace", "name")


def _living_pods() -> QuerySet[models.Pod]:
    """As the index tells it: those that `is_done` is not true of."""
    return models.Pod.objects.exclude(phase__in=FINISHED_PHASES).exclude(deleting=True, node_name="")


def _made_for_ended_pods() -> Iterable[Key]:
    """The claims that were made for pods that have ended but are still there; after others, the collector cleans up."""
    ended = models.Pod.objects.filter(Q(phase__in=FINISHED_PHASES) | Q(deleting=True, node_name=""))
    return objects.controlled_by(ended.exclude(claim_names=[]).values("uid"), kind(CLAIMS))


def _judge(claim: ResourceClaim, pods: dict[Key, Pod], *, idle: bool) -> Release | None:
    return decide(claim, lambda name: pods.get((claim.metadata.namespace, name)), idle=idle)


def is_idle(claim: ResourceClaim, now: datetime) -> bool:
    """Whether `claim` holds devices that nobody reserved, and not only since a moment ago."""
    allocation = claim.status.allocation
    if allocation is None or claim.status.reserved_for or stays_allocated(claim):
        return False
    since = allocation.allocation_timestamp or claim.metadata.creation_timestamp
    return since is None or datetime.fromisoformat(since) < now - IDLE_AFTER


def release(keys: Iterable[Key], *, idle: Iterable[Key] = ()) -> int:
    """Take back what is over of these claims. Returns how many claims were changed or deleted."""
    wanted, idle = list(dict.fromkeys(keys)), frozenset(idle)
    return sum(_release_batch(wanted[start : start + BATCH], idle) for start in range(0, len(wanted), BATCH))


def _release_batch(keys: Sequence[Key], idle: frozenset[Key]) -> int:
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(CLAIMS), keys)
        claims = [claim for key in keys if (claim := cast("ResourceClaim | None", writer.get(kind(CLAIMS), *key)))]
        writer.load(kind(PODS), {key for claim in claims for key in _pods_of(claim)})
        prepared = named_by_bound_pods(
            [claim.key for claim in claims if claim.status.allocation is not None and not claim.status.reserved_for]
        )
        return sum(
            _release_one(writer, claim, idle=claim.key in idle, prepared=claim.key in prepared) for claim in claims
        )


def named_by_bound_pods(keys: Sequence[Key]) -> frozenset[Key]:
    """The claims among `keys` that are named by bound pods that have not ended. One query, none without claims."""
    bound = sql.for_each_given(
        "c.namespace, c.claim",
        f"{models.PodClaim._meta.db_table} c CROSS JOIN {models.Pod._meta.db_table} p",
        "c.namespace = given.namespace AND c.claim = given.claim AND p.uid = c.pod_id AND p.node_name <> '' "
        f"AND p.phase NOT IN ({', '.join(repr(phase) for phase in sorted(FINISHED_PHASES))})",
    )
    found: set[Key] = set()
    for given, parameters in sql.given_tables(("namespace", "claim"), keys):
        found.update(sql.fetch(f"{given} {bound}", parameters))
    return frozenset(found)


def _pods_of(claim: ResourceClaim) -> Iterable[Key]:
    namespace = claim.metadata.namespace
    yield from ((namespace, entry.name) for entry in claim.status.reserved_for if entry.is_pod)
    if owner := controller_of(claim.metadata):
        yield namespace, owner[0]


def _release_one(writer: Writer, claim: ResourceClaim, *, idle: bool, prepared: bool) -> bool:
    namespace = claim.metadata.namespace
    step = decide(
        claim,
        lambda name: cast("Pod | None", writer.get(kind(PODS), namespace, name)),
        idle=idle,
        prepared=prepared,
    )
    if step is None:
        return False
    if step.claim is not claim:
        writer.update(kind(CLAIMS), step.claim)
    if step.delete:
        writer.delete(kind(CLAIMS), namespace, claim.metadata.name, uid=claim.metadata.uid)
    return True


FOLLOWER = CursorFollower(
    name="reservations", resources=frozenset({PODS, CLAIMS}), handle=handle, sweep=partial(sweep, most=math.inf)
)


def reconcile(_now: datetime) -> int:
    return FOLLOWER.follow()


CONTROLLER = Controller(
    name="release_claims",
    does="releases the claims of finished and deleted pods",
    in_mirror=False,
    reconcile=reconcile,
    every=5,
    wakes_on=frozenset({(PODS, FINISHED), (PODS, DELETED), (CLAIMS, DELETING)}),
    queue=Queue.SCHEDULING,
)

RESYNC = Controller(
    name="resync_reservations",
    does="releases claims that no pod uses, whatever the log said; deallocates claims that stay unreserved",
    in_mirror=False,
    reconcile=sweep,
    every=60,
    most_per_turn=MOST,
)
