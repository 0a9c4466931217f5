"""What becomes of a claim when those who held it are done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from claims.controllers.reservations import FINALIZER, Release, decide
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimConsumerReference
from manciple.wire.base import OwnerReference
from tests.builders import CREATED, make_allocation, make_claim, make_consumer, make_pod, stored


def pod(name: str, *, phase: str = "Running", node: str = "node-1", deleting: bool = False) -> Pod:
    meta = {"deletion_timestamp": CREATED} if deleting else {}
    made = stored(make_pod(name, node=node, meta=meta))
    return structs.replace(made, status=structs.replace(made.status, phase=phase))


def held_by(*pods: Pod, owner: Pod | None = None, deleting: bool = False) -> ResourceClaim:
    """An allocated claim, reserved for `pods`; generated for `owner` where one is given."""
    references: tuple[OwnerReference, ...] = ()
    if owner is not None:
        meta = owner.metadata
        references = (OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True),)
    return stored(
        make_claim(
            allocation=make_allocation(),
            reserved_for=[make_consumer(one) for one in pods],
            finalizers=(FINALIZER,),
            owner_references=references,
            deletion_timestamp=CREATED if deleting else None,
        )
    )


def unallocated(claim: ResourceClaim) -> ResourceClaim:
    status = structs.replace(claim.status, allocation=None)
    return structs.replace(claim, metadata=structs.replace(claim.metadata, finalizers=()), status=status)


def finding(*pods: Pod) -> Callable[[str], Pod | None]:
    return {one.metadata.name: one for one in pods}.get


def told(step: Release | None) -> str:
    """`stays`, or what is left of the claim, in words."""
    if step is None:
        return "stays"
    words = [f"reserved for {', '.join(one.name for one in step.claim.status.reserved_for)}"]
    words = words if step.claim.status.reserved_for else []
    words += ["allocated"] if step.claim.status.allocation else ["free"]
    words += ["protected"] if FINALIZER in step.claim.metadata.finalizers else []
    return "; ".join([*words, *(["deleted"] if step.delete else [])])


A, B = pod("a"), pod("b")
DONE, UNBOUND = pod("a", phase="Succeeded"), pod("a", node="", phase="Pending", deleting=True)
ORPHANING = structs.replace(DONE, metadata=structs.replace(DONE.metadata, finalizers=("orphan",)))
OTHER_CONSUMER = ResourceClaimConsumerReference(api_group="example.com", resource="jobs", name="j", uid="u")

CASES: dict[str, tuple[ResourceClaim, tuple[Pod, ...], str]] = {
    "held by a running pod": (held_by(A), (A,), "stays"),
    "its pod is being deleted, but bound: the node has not let go": (held_by(A), (pod("a", deleting=True),), "stays"),
    "its pod is gone": (held_by(A), (), "free"),
    "its pod was replaced by another of its name": (
        held_by(A),
        (structs.replace(A, metadata=structs.replace(A.metadata, uid="new")),),
        "free",
    ),
    "its pod has succeeded": (held_by(A), (DONE,), "free"),
    "its pod has failed": (held_by(A), (pod("a", phase="Failed"),), "free"),
    "its pod was deleted before it was bound": (held_by(A), (UNBOUND,), "free"),
    "one of two pods is gone": (held_by(A, B), (B,), "reserved for b; allocated; protected"),
    "both are gone": (held_by(A, B), (), "free"),
    "deleted while in use": (held_by(A, deleting=True), (A,), "stays"),
    "deleted while unused": (held_by(deleting=True), (), "free"),
    "deleted, and its last pod goes": (held_by(A, deleting=True), (), "free"),
    "never reserved": (held_by(), (), "stays"),
    "generated, its pod runs": (held_by(A, owner=A), (A,), "stays"),
    "generated, its pod has succeeded": (held_by(A, owner=A), (DONE,), "free; deleted"),
    "generated, its pod is gone": (held_by(A, owner=A), (), "free; deleted"),
    "generated, its pod has ended and is to leave orphans": (held_by(A, owner=A), (ORPHANING,), "free"),
    "generated, its pod is gone, another one uses it": (
        held_by(A, B, owner=A),
        (B,),
        "reserved for b; allocated; protected",
    ),
    "generated, not allocated, its pod has failed": (
        unallocated(held_by(owner=A)),
        (pod("a", phase="Failed"),),
        "free; deleted",
    ),
    "generated, not allocated, its pod waits": (unallocated(held_by(owner=A)), (pod("a", node=""),), "stays"),
    "generated, deleted already, its pod is gone": (held_by(A, owner=A, deleting=True), (), "free"),
    "held by something that is no pod": (
        structs.replace(held_by(), status=structs.replace(held_by().status, reserved_for=(OTHER_CONSUMER,))),
        (),
        "stays",
    ),
}


@pytest.mark.parametrize("phrase", CASES)
def test_claim(phrase: str) -> None:
    claim, pods, expected = CASES[phrase]
    assert told(decide(claim, finding(*pods))) == expected


def test_an_allocation_that_nobody_reserves_for_long_is_given_up() -> None:
    assert told(decide(held_by(), finding(), idle=True)) == "free"


def test_deciding_again_on_what_was_decided_changes_nothing() -> None:
    for claim, pods, _ in CASES.values():
        step = decide(claim, finding(*pods))
        if step is not None and not step.delete:
            assert decide(step.claim, finding(*pods)) is None
