"""What holds for every claim of a driver at every step, as the log tells its steps.

A claim has one owner: what is allocated is given up before it is allocated anew, and not while somebody uses it. While
it is to be given up nobody new may use it, and one that is not shareable has one user at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from claims.kinds.resource_claims import ResourceClaim, ResourceClaimStatus, is_allocated_by_controller
from manciple.store import event_log, objects
from manciple.wire.resources import CLAIMS, kind


def broken_promises() -> list[str]:
    known: dict[str, ResourceClaimStatus] = {}
    found: list[str] = []
    for event in event_log.read_after(0, resources=[CLAIMS], limit=10_000):
        claim = objects.decode(kind(CLAIMS), event.text)
        assert isinstance(claim, ResourceClaim)
        before = known.get(event.uid, ResourceClaimStatus())
        if is_allocated_by_controller(claim) or before.allocation is not None:
            found += [f"{claim.metadata.name} at {event.revision}: {one}" for one in _broken(event.type, before, claim)]
        known[event.uid] = claim.status
    return found


def _broken(type_: str, before: ResourceClaimStatus, claim: ResourceClaim) -> Iterator[str]:
    after = claim.status
    if before.allocation is not None and after.allocation is not None and before.allocation != after.allocation:
        yield "allocated anew without being given up"
    if before.allocation is not None and before.reserved_for and (after.allocation is None or type_ == "DELETED"):
        yield "given up while it is used"
    if after.reserved_for and after.allocation is None:
        yield "used and not allocated"
    if after.deallocation_requested and set(after.reserved_for) - set(before.reserved_for):
        yield "somebody new uses what is to be given up"
    of_class = bool(claim.spec.resource_class_name)
    if of_class and after.allocation is not None and not after.allocation.shareable and len(after.reserved_for) > 1:
        yield "used by two though it is not shareable"
