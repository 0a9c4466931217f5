"""Takes back what finished and vanished pods held: reservations, allocations, finalizers, generated claims.

What is to be done with one claim is `release.decide`'s; here are the reasons to look at one: a pod that ended or
went, a claim that is being deleted, and the sweep over all claims that hold or are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import cast

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from manciple.store import objects
from manciple.store.objects import Writer
from manciple.store.records import EventRecord
from scheduling.controllers.followers import Follower
from scheduling.controllers.release import Release, decide, is_done
from scheduling.pod_claims import claim_names, controller_of
from scheduling.resources import CLAIMS, PODS, Key, decoded, key_of, kind, listed

#: Claims in one transaction.
BATCH = 100
#: An allocation that nobody reserved is given up after this long; schedulers write both at once.
IDLE_AFTER = timedelta(seconds=60)


def look(records: Sequence[EventRecord]) -> int:
    """Look at the claims that `records` point to."""
    keys: dict[Key, None] = {}
    for record in records:
        keys.update(dict.fromkeys(_claims_behind(record)))
    return release(keys)


def _claims_behind(record: EventRecord) -> Iterable[Key]:
    if record.resource == PODS:
        pod = decoded(record, Pod)
        if record.type == "DELETED" or is_done(pod):
            yield from ((record.namespace, name) for name in claim_names(pod))
    elif record.type != "DELETED" and decoded(record, ResourceClaim).metadata.deletion_timestamp is not None:
        yield record.namespace, record.name


def sweep(now: datetime) -> int:
    """Look at every claim that is reserved, being deleted, generated or idle."""
    _, claims = listed(CLAIMS, ResourceClaim)
    _, pods = listed(PODS, Pod)
    known = {key_of(pod): pod for pod in pods}
    idle = {key_of(claim) for claim in claims if is_idle(claim, now)}
    # A first judgement on what was read without a lock; the transaction makes the real one.
    suspects = [key_of(claim) for claim in claims if _judge(claim, known, idle=key_of(claim) in idle)]
    return release(suspects, idle=idle)


def _judge(claim: ResourceClaim, pods: dict[Key, Pod], *, idle: bool) -> Release | None:
    return decide(claim, lambda name: pods.get((claim.metadata.namespace, name)), idle=idle)


def is_idle(claim: ResourceClaim, now: datetime) -> bool:
    """Whether `claim` holds devices that nobody reserved, and not only since a moment ago."""
    allocation = claim.status.allocation
    if allocation is None or claim.status.reserved_for:
        return False
    since = allocation.allocation_timestamp or claim.metadata.creation_timestamp
    return since is None or datetime.fromisoformat(since) < now - IDLE_AFTER


def release(keys: Iterable[Key], *, idle: Iterable[Key] = ()) -> int:
    """Take back what is over of these claims. Returns how many claims were changed or deleted."""
    wanted, idle = list(dict.fromkeys(keys)), frozenset(idle)
    return sum(_release_batch(wanted[start : start + BATCH], idle) for start in range(0, len(wanted), BATCH))


def _release_batch(keys: Sequence[Key], idle: frozenset[Key]) -> int:
    with objects.writing() as writer:
        writer.load(kind(CLAIMS), keys)
        claims = [claim for key in keys if (claim := cast("ResourceClaim | None", writer.get(kind(CLAIMS), *key)))]
        writer.load(kind(PODS), {key for claim in claims for key in _pods_of(claim)})
        return sum(_release_one(writer, claim, idle=key_of(claim) in idle) for claim in claims)


def _pods_of(claim: ResourceClaim) -> Iterable[Key]:
    namespace = claim.metadata.namespace
    yield from ((namespace, entry.name) for entry in claim.status.reserved_for if entry.is_pod)
    if owner := controller_of(claim.metadata):
        yield namespace, owner[0]


def _release_one(writer: Writer, claim: ResourceClaim, *, idle: bool) -> bool:
    namespace = claim.metadata.namespace
    step = decide(claim, lambda name: cast("Pod | None", writer.get(kind(PODS), namespace, name)), idle=idle)
    if step is None:
        return False
    if step.claim is not claim:
        writer.update(kind(CLAIMS), step.claim)
    if step.delete:
        writer.delete(kind(CLAIMS), namespace, claim.metadata.name, uid=claim.metadata.uid)
    return True


FOLLOWER = Follower(name="reservations", resources=frozenset({PODS, CLAIMS}), look=look, sweep=sweep)
