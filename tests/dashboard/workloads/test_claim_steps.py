"""What happened to a claim, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import structs

from claims.causes.causes import CannotAllocate, DevicesInUse, NoNodeFits, encode
from claims.causes.messages import brief
from claims.event_recorder import CAUSE
from claims.kinds.resource_claims import AllocatedDeviceStatus, ResourceClaim
from dashboard.workloads.claims.sheet import ClaimRevision, Past, changes, steps
from manciple.wire.base import Condition, ObjectMeta, ObjectReference
from manciple.wire.machinery import Event
from tests.builders import DRIVER, make_allocation, make_claim, make_consumer, make_result, stored
from tests.dashboard import texts

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
GIVEN = make_allocation(make_result("gpu-0"), make_result("gpu-1"))


def claim(**fields: object) -> ResourceClaim:
    return stored(make_claim("training", **fields), uid="u-claim", creation_timestamp="2026-11-20T11:59:59Z")  # type: ignore[arg-type]


def at(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


def deleted(one: ResourceClaim) -> ResourceClaim:
    return structs.replace(one, metadata=structs.replace(one.metadata, deletion_timestamp="2026-11-20T12:00:09Z"))


def test_a_life_is_told_from_its_revisions() -> None:
    held = claim(allocation=GIVEN, reserved_for=[make_consumer("web")])
    life = [
        ClaimRevision(at=at(0), claim=claim(), first=True),
        ClaimRevision(at=at(1), claim=held),
        ClaimRevision(at=at(9), claim=deleted(held)),
        ClaimRevision(at=at(12), claim=deleted(claim())),
    ]
    told = [(step.at, step.text) for step in steps(life[-1].claim, life, [], [])]
    assert told == [
        (at(-1), "Created"),
        (at(1), "Allocated gpu-0, gpu-1 of node-1"),
        (at(1), texts.STEP_RESERVED("web")),
        (at(9), "Deletion requested"),
        (at(12), texts.STEP_RESERVATION_REMOVED("web")),
        (at(12), "Released gpu-0, gpu-1 of node-1"),
    ]


def test_what_was_pruned_is_told_by_the_claim_itself() -> None:
    allocation = structs.replace(GIVEN, allocation_timestamp="2026-11-20T12:00:03Z")
    now = claim(allocation=allocation)
    told = [(step.at, step.text) for step in steps(now, [ClaimRevision(at=at(5000), claim=now)], [], [])]
    assert told == [(at(-1), "Created"), (at(3), "Allocated gpu-0, gpu-1 of node-1")]


def test_an_earlier_life_is_told_from_the_history() -> None:
    past = Past(began=at(1), ended=at(60), devices=("gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"))
    told = [step.text for step in steps(claim(), [ClaimRevision(at=at(5000), claim=claim())], [], [past])]
    five = "gpu-0, gpu-1, gpu-2, gpu-3 and 1 more"
    assert told == ["Created", f"Allocated {five}", f"Released {five}"]


def test_what_a_driver_reports_is_a_step() -> None:
    def reported(status: str, message: str = "") -> ResourceClaim:
        condition = Condition(type="Ready", status=status, message=message)
        report = AllocatedDeviceStatus(driver=DRIVER, pool="node-1", device="gpu-0", conditions=(condition,))
        return structs.replace(claim(), status=structs.replace(claim().status, devices=(report,)))

    assert list(changes(claim(), reported("True"))) == [(texts.STEP_REPORTED(DRIVER, "True", "gpu-0"), False)]
    assert list(changes(reported("True"), reported("False", "link down"))) == [
        (texts.STEP_REPORTED(DRIVER, "False", "gpu-0: link down"), True)
    ]
    assert list(changes(reported("True"), reported("True"))) == []


def test_events_say_whose_they_are_and_how_often() -> None:
    event = Event(
        metadata=ObjectMeta(name="e"),
        involved_object=ObjectReference(kind="Pod", name="web", uid="u-pod"),
        reason="FailedUnprepareDynamicResources",
        message="device lost",
        type="Warning",
        count=219,
        first_timestamp="2026-11-20T12:00:04Z",
        last_timestamp="2026-11-20T12:40:00Z",
    )
    step = steps(claim(), [ClaimRevision(at=at(0), claim=claim(), first=True)], [event], [])[-1]
    assert (step.text, step.about, step.times, step.last, step.warns) == ("device lost", "pod web", 219, at(2400), True)


def test_a_pod_that_waits_says_only_for_what() -> None:
    short = DevicesInUse(claim="default/training", request="gpu", wanted=1, before=2, left=0, most=0)
    cause = NoNodeFits(nodes=3, refused=((CannotAllocate(), 3),), because=short)
    meta = ObjectMeta(annotations={CAUSE: encode(cause)})
    event = Event(metadata=meta, reason="FailedScheduling", first_timestamp="2026-11-20T12:00:04Z")
    assert steps(claim(), [], [event], [])[-1].text.endswith(brief(cause))


def test_other_finalizers_than_delete_protection_are_told() -> None:
    held = structs.replace(claim(), metadata=structs.replace(claim().metadata, finalizers=("example.org/report",)))
    assert list(changes(claim(), held)) == [("Finalizer example.org/report added", False)]
    assert list(changes(held, claim())) == [("Finalizer example.org/report removed", False)]
