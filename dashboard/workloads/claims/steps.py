"""What happened to a claim, in words: from its revisions, and the Events about it and its pods. PURE.

The log keeps an hour and Events go too; what a claim's own times tell stands in for what was pruned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from claims.causes.messages import brief
from claims.controllers.reservations import FINALIZER
from claims.event_recorder import cause_in
from claims.kinds.resource_claims import AllocatedDeviceStatus, AllocationResult, ResourceClaim
from manciple.durations import moment
from manciple.wire.machinery import Event

#: Names in one sentence.
NAMED = 4
#: Steps on a page; of more, the latest.
SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the timeline."""

    at: datetime
    text: str
    warns: bool = False
    times: int = 1
    last: datetime | None = None  # of several times
    about: str = ""  # whose event it is, where it is not the claim's
    is_said: bool = False  # an Event says so


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRevision:
    """The claim as one write left it. first: the write made it."""

    at: datetime
    claim: ResourceClaim
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Devices that the claim held and gave back together."""

    began: datetime
    ended: datetime
    devices: tuple[str, ...]


def steps(
    claim: ResourceClaim, revisions: Sequence[ClaimRevision], events: Iterable[Event], past: Iterable[Past]
) -> list[Step]:
    """Everything, the oldest first."""
    told = [*_of_revisions(claim, revisions), *_of_events(claim, events)]
    seen_from = min((revision.at for revision in revisions), default=None)
    told += [step for one in past for step in _of_past(one) if seen_from is None or step.at < seen_from]
    # Events tell whole seconds: within one, what was written comes before what was said of it.
    return sorted(told, key=lambda step: (int(step.at.timestamp()), step.is_said, step.at))[-SHOWN:]


def _of_revisions(claim: ResourceClaim, revisions: Sequence[ClaimRevision]) -> Iterator[Step]:
    created = moment(claim.metadata.creation_timestamp)
    begins = next((one for one in revisions if one.first), None)
    if created is not None:
        owner = next((one.name for one in claim.metadata.owner_references if one.kind == "Pod"), "")
        at = min(begins.at, created) if begins else created
        yield Step(at=at, text=f"Created for pod {owner}" if owner else "Created")
    before: ResourceClaim | None = None
    for revision in revisions:
        if before is None and not revision.first:
            yield from _before_the_log(revision.claim)
        at = _when(before, revision)
        for text, warns in changes(before, revision.claim) if before or revision.first else ():
            yield Step(at=at, text=text, warns=warns)
        before = revision.claim


def _when(before: ResourceClaim | None, revision: ClaimRevision) -> datetime:
    """When a write was made; what it says of itself counts where it is older, as in a claim that was brought along."""
    allocation = revision.claim.status.allocation
    had = before.status.allocation if before else None
    at = moment(allocation.allocation_timestamp) if allocation is not None and had is None else None
    if at is None and (before is None or before.metadata.deletion_timestamp is None):
        at = moment(revision.claim.metadata.deletion_timestamp)
    return min(at, revision.at) if at else revision.at


def _before_the_log(claim: ResourceClaim) -> Iterator[Step]:
    """What the oldest known revision tells of earlier times."""
    allocation = claim.status.allocation
    if allocation is not None and (at := moment(allocation.allocation_timestamp)):
        yield Step(at=at, text=f"Allocated {names_of(allocation)}")


def changes(before: ResourceClaim | None, after: ResourceClaim) -> Iterator[tuple[str, bool]]:
    """What one write did: (words, whether it warns)."""
    old, new = before.status if before else None, after.status
    had, has = old.allocation if old else None, new.allocation
    if has is not None and had is None:
        yield f"Allocated {names_of(has)}", False
    was = {user.uid: user.name for user in old.reserved_for} if old else {}
    now = {user.uid: user.name for user in new.reserved_for}
    others = {user.uid: user.full_resource for user in new.reserved_for if not user.is_pod}
    for uid, resource in others.items():
        if uid not in was:
            yield f"Reserved for {resource} {now[uid]}", False
    if added := [name for uid, name in now.items() if uid not in was and uid not in others]:
        yield f"Reserved for pod {_listed(added)}" if len(added) == 1 else f"Reserved for pods {_listed(added)}", False
    if before and before.metadata.deletion_timestamp is None and after.metadata.deletion_timestamp is not None:
        yield "Deletion requested", False
    if removed := [name for uid, name in was.items() if uid not in now]:
        yield f"Reservation of {_listed(removed)} removed", False
    if had is not None and has is None:
        yield f"Released {names_of(had)}", False
    if old is not None:
        yield from _reports(old.devices, new.devices)
    yield from _finalizers(before, after)


def _reports(old: Sequence[AllocatedDeviceStatus], new: Sequence[AllocatedDeviceStatus]) -> Iterator[tuple[str, bool]]:
    before = {(one.driver, one.pool, one.device, one.share_id): one for one in old}
    for report in new:
        known = before.get((report.driver, report.pool, report.device, report.share_id))
        if report == known:
            continue
        were = {one.type: one.status for one in known.conditions} if known else {}
        changed = [one for one in report.conditions if were.get(one.type) != one.status]
        for condition in changed:
            text = f"{report.driver} reports {condition.type} {condition.status} of {report.device}"
            yield f"{text}: {condition.message}" if condition.message else text, condition.status == "False"
        if not changed:
            yield f"{report.driver} reports on {report.device}", False


def _finalizers(before: ResourceClaim | None, after: ResourceClaim) -> Iterator[tuple[str, bool]]:
    if before is None:
        return
    old, new = set(before.metadata.finalizers), set(after.metadata.finalizers)
    # Delete protection comes and goes with the allocation, which is told already.
    for name in sorted((old ^ new) - {FINALIZER}):
        yield f"Finalizer {name} {'removed' if name in old else 'added'}", False


def _of_events(claim: ResourceClaim, events: Iterable[Event]) -> Iterator[Step]:
    for event in events:
        last = moment(event.last_timestamp) or moment(event.event_time) or moment(event.metadata.creation_timestamp)
        first = moment(event.first_timestamp) or last
        if first is None:
            continue
        about = event.involved_object
        own = about.uid == claim.metadata.uid
        yield Step(
            at=first,
            text=words_of(event),
            warns=event.type == "Warning",
            times=max(event.count, 1),
            last=last if event.count > 1 else None,
            about="" if own else f"{about.kind.lower()} {about.name}",
            is_said=True,
        )


def words_of(event: Event) -> str:
    """What an Event says; of a pod that waits, only what it waits for."""
    cause = cause_in(event.metadata.annotations)
    return f"Waits: {brief(cause)}" if cause else event.message or event.reason


def _of_past(past: Past) -> Iterator[Step]:
    yield Step(at=past.began, text=f"Allocated {_listed(past.devices)}")
    yield Step(at=past.ended, text=f"Released {_listed(past.devices)}")


def names_of(allocation: AllocationResult) -> str:
    """`gpu-0, gpu-1 of node-1`."""
    results = allocation.devices.results
    pools = list(dict.fromkeys(one.pool for one in results))
    if not results:
        return "nothing"
    of = f" of {pools[0]}" if len(pools) == 1 else f" of {len(pools)} pools"
    return _listed([one.device for one in results]) + of


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
