"""The claims' index rows, and the promise that no device is given twice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from msgspec import structs

from claims.admission import ADMIN_ACCESS_LABEL
from claims.kinds.pods import PodExtendedResourceClaimStatus, PodResourceClaimStatus, PodStatus
from claims.kinds.registration import POD, RESOURCE_CLAIM
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.models import AllocatedDevice, Claim, Pod, PodClaim, Reservation
from claims.projectors import DeviceTaken
from inventory.kinds.registration import RESOURCE_SLICE
from manciple.store import event_log, objects
from manciple.wire import codec
from manciple.wire.registry import registry
from tests.builders import (
    DRIVER,
    make_allocation,
    make_claim,
    make_consumer,
    make_namespace,
    make_pod,
    make_result,
    make_slice,
)
from tests.indexes import all_rows, assert_rebuilt_the_same

pytestmark = pytest.mark.django_db


def write(*claims: ResourceClaim) -> None:
    """Create or replace claims, all in one transaction."""
    with objects.writing() as writer:
        for claim in claims:
            known = writer.get(RESOURCE_CLAIM, claim.metadata.namespace, claim.metadata.name)
            (writer.create if known is None else writer.update)(RESOURCE_CLAIM, claim)


def allow_admin_access() -> None:
    namespace = make_namespace("default", labels={ADMIN_ACCESS_LABEL: "true"})
    with objects.writing() as writer:
        writer.create(registry.by_resource("namespaces"), namespace)


def holding(name: str, *devices: str, **fields: Any) -> ResourceClaim:
    """A claim to which these devices of node-1 are allocated."""
    return make_claim(name, allocation=make_allocation(*(make_result(device, **fields) for device in devices)))


def claims_of_pods() -> list[tuple[str, str]]:
    """(pod, claim), sorted; "" for a claim that is to be made. The ids of pods that are gone show as such."""
    names = dict(Pod.objects.values_list("uid", "name"))
    return sorted((names.get(row.pod_id, row.pod_id), row.claim) for row in PodClaim.objects.all())


def held() -> dict[str, str]:
    """device -> claim that holds it exclusively."""
    rows = AllocatedDevice.objects.filter(exclusive=True).select_related("claim")
    return {row.device: row.claim.name for row in rows}


# Rows ----------------------------------------------------------------------------------------------------------------


def test_a_new_claim_is_known_and_holds_nothing() -> None:
    write(make_claim("training"))
    row = Claim.objects.get()
    assert (row.namespace, row.name, row.allocated, row.deleting, row.allocated_at) == (
        "default",
        "training",
        False,
        False,
        None,
    )
    assert abs((datetime.now(UTC) - row.created_at).total_seconds()) < 3600
    assert not AllocatedDevice.objects.exists()


def test_an_allocation_shows_as_devices_of_the_claim() -> None:
    allocation = structs.replace(
        make_allocation(make_result("gpu-0"), make_result("gpu-1", request="gpu/large")),
        allocation_timestamp="2026-11-20T12:00:00Z",
    )
    write(make_claim("training", allocation=allocation, reserved_for=[make_consumer("web"), make_consumer("db")]))
    claim = Claim.objects.get()
    assert (claim.allocated, claim.allocated_at) == (True, datetime(2026, 11, 20, 12, tzinfo=UTC))
    found = [(row.request, row.driver, row.pool, row.device) for row in claim.devices.order_by("device")]
    assert found == [("gpu", DRIVER, "node-1", "gpu-0"), ("gpu/large", DRIVER, "node-1", "gpu-1")]
    reserved = [(row.resource, row.name) for row in claim.reservations.order_by("name")]
    assert reserved == [("pods", "db"), ("pods", "web")]


SHARES: dict[str, tuple[dict[str, Any], bool]] = {
    "an exclusive device": ({}, True),
    "admin access": ({"admin_access": True}, False),
    "a share": ({"share_id": "a-share", "consumed_capacity": {"memory": "10Gi"}}, False),
}


@pytest.mark.parametrize("case", SHARES)
def test_exclusiveness_of(case: str) -> None:
    fields, exclusive = SHARES[case]
    allow_admin_access()
    write(holding("training", "gpu-0", **fields))
    row = AllocatedDevice.objects.get()
    assert row.exclusive is exclusive
    assert row.admin_access is bool(fields.get("admin_access"))
    assert (row.share_id, row.consumed_capacity) == (fields.get("share_id", ""), fields.get("consumed_capacity", {}))


def test_deallocating_gives_the_devices_back() -> None:
    write(make_claim("training", allocation=make_allocation(), reserved_for=[make_consumer("web")]))
    write(make_claim("training"))
    assert held() == {}
    assert not Reservation.objects.exists()
    assert not Claim.objects.get().allocated


def test_a_claim_goes_with_all_its_rows() -> None:
    write(make_claim("training", allocation=make_allocation(), reserved_for=[make_consumer("web")]))
    with objects.writing() as writer:
        writer.delete(RESOURCE_CLAIM, "default", "training")
    assert not any(model.objects.exists() for model in (Claim, Reservation, AllocatedDevice))


def test_a_deleting_claim_keeps_its_devices() -> None:
    write(
        make_claim("training", allocation=make_allocation(), finalizers=("resource.kubernetes.io/delete-protection",))
    )
    with objects.writing() as writer:
        writer.delete(RESOURCE_CLAIM, "default", "training")
    assert Claim.objects.get().deleting
    assert held() == {"gpu-0": "training"}


def test_what_drivers_report_touches_no_row() -> None:
    write(holding("training", "gpu-0"))
    with CaptureQueriesContext(connection) as queries:
        write(
            structs.replace(holding("training", "gpu-0"), metadata=make_claim("training", labels={"a": "b"}).metadata)
        )
    assert not [query for query in queries if "claims_" in query["sql"]]


def test_writing_many_claims_costs_the_same_as_writing_few() -> None:
    def queries_for(first: int, count: int) -> int:
        claims = [holding(f"c{number}", f"gpu-{number}") for number in range(first, first + count)]
        with CaptureQueriesContext(connection) as queries, objects.writing() as writer:
            writer.load(RESOURCE_CLAIM, [("default", claim.metadata.name) for claim in claims])
            for claim in claims:
                writer.create(RESOURCE_CLAIM, claim)
        return len(queries)

    queries_for(0, 1)  # makes the counter's row
    assert queries_for(1, 2) == queries_for(3, 15)


# No device twice -----------------------------------------------------------------------------------------------------


def test_a_device_of_another_claim_is_refused_by_name() -> None:
    write(holding("first", "gpu-0", "gpu-1"))
    before = event_log.latest_revision()
    message = (
        rf'resourceclaims.resource.k8s.io "second": device {DRIVER}/node-1/gpu-1 is allocated to claim default/first'
    )
    with pytest.raises(DeviceTaken, match=message) as refused:
        write(make_claim("bystander"), holding("second", "gpu-2", "gpu-1"))
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert held() == {"gpu-0": "first", "gpu-1": "first"}
    assert event_log.latest_revision() == before
    assert objects.get(RESOURCE_CLAIM, "default", "bystander") is None


def test_two_claims_of_one_transaction_cannot_share_a_device() -> None:
    with pytest.raises(DeviceTaken, match="default/first"):
        write(holding("first", "gpu-0"), holding("second", "gpu-0"))
    assert held() == {}


def of_controller(claim: ResourceClaim, controller: str) -> ResourceClaim:
    assert claim.status.allocation is not None
    allocation = structs.replace(claim.status.allocation, controller_name=controller)
    return structs.replace(claim, status=structs.replace(claim.status, allocation=allocation))


def test_a_drivers_controller_may_give_a_device_to_several_of_its_claims() -> None:
    """KEP-3063: what it does with its devices is up to the driver."""
    write(of_controller(holding("first", "gpu-0"), "net.example.com"))
    write(of_controller(holding("second", "gpu-0"), "net.example.com"))
    third = (of_controller(holding(name, "gpu-0"), "net.example.com") for name in ("third", "fourth"))
    write(*third)
    assert AllocatedDevice.objects.filter(device="gpu-0").count() == 4
    write(*(make_claim(name) for name in ("first", "second", "third")))
    with pytest.raises(DeviceTaken, match="default/fourth"):
        write(holding("late", "gpu-0"))
    assert_rebuilt_the_same()


@pytest.mark.parametrize(("first", "second"), [("a.example.com", "b.example.com"), ("a.example.com", ""), ("", "a")])
@pytest.mark.parametrize("together", [True, False])
def test_claims_of_different_controllers_or_of_the_scheduler_cannot_share_a_device(
    first: str, second: str, together: bool
) -> None:
    holder, late = of_controller(holding("first", "gpu-0"), first), of_controller(holding("second", "gpu-0"), second)
    if not together:
        write(holder)
    with pytest.raises(DeviceTaken, match="default/first"):
        write(*((holder, late) if together else (late,)))


def test_one_claim_cannot_get_a_device_twice() -> None:
    with pytest.raises(DeviceTaken):
        write(holding("greedy", "gpu-0", "gpu-0"))


def test_a_device_may_change_hands_within_a_transaction() -> None:
    write(holding("first", "gpu-0"))
    write(holding("second", "gpu-0"), make_claim("first"))
    assert held() == {"gpu-0": "second"}


def test_an_allocation_may_be_written_again_and_grow() -> None:
    write(holding("first", "gpu-0"))
    write(holding("first", "gpu-0", "gpu-1"))
    assert held() == {"gpu-0": "first", "gpu-1": "first"}


def test_onlookers_and_shares_are_refused_to_nobody() -> None:
    allow_admin_access()
    write(holding("owner", "gpu-0"), holding("monitor", "gpu-0", admin_access=True))
    write(holding("one", "gpu-1", share_id="1"), holding("other", "gpu-1", share_id="2"))
    assert AllocatedDevice.objects.count() == 4


def test_equal_names_in_other_pools_and_drivers_are_other_devices() -> None:
    write(holding("a", "gpu-0"), holding("b", "gpu-0", pool="node-2"), holding("c", "gpu-0", driver="nic.example.com"))
    assert AllocatedDevice.objects.filter(exclusive=True).count() == 3


def test_the_database_itself_refuses_a_second_owner() -> None:
    """Whatever code may be wrong: the row cannot be written."""
    write(holding("first", "gpu-0"), make_claim("second"))
    row = AllocatedDevice.objects.get()
    row.pk, row.claim = None, Claim.objects.get(name="second")
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)


# Pods ----------------------------------------------------------------------------------------------------------------


def test_a_claim_made_for_a_pod_that_an_older_version_indexed_has_its_row() -> None:
    """It wrote none for a template. Without the claim's row the claim of a running pod would be released."""
    pod = make_pod("web", templates={"nic": "one-nic"})
    with objects.writing() as writer:
        writer.create(POD, pod)
    PodClaim.objects.all().delete()
    made = (PodResourceClaimStatus(name="nic", resource_claim_name="web-nic-x7k2p"),)
    with objects.writing() as writer:
        writer.update(POD, structs.replace(pod, status=PodStatus(phase="Pending", resource_claim_statuses=made)))
    assert claims_of_pods() == [("web", "web-nic-x7k2p")]


def test_the_rows_of_a_pod_have_its_node_and_its_claims() -> None:
    pod = make_pod("web", claims={"gpu": "shared"}, templates={"nic": "one-nic"})
    with objects.writing() as writer:
        created = writer.create(POD, pod)
    row = Pod.objects.get()
    assert (row.uid, row.namespace, row.name) == (created.metadata.uid, "default", "web")
    assert (row.node_name, row.phase, row.deleting, row.claim_names) == ("", "", False, ["shared"])
    assert claims_of_pods() == [("web", ""), ("web", "shared")]
    with objects.writing() as writer:
        writer.update(POD, structs.replace(pod, status=PodStatus(phase="Pending")))
    assert Pod.objects.get().phase == "Pending"
    assert claims_of_pods() == [("web", ""), ("web", "shared")]
    status = PodStatus(
        phase="Running",
        resource_claim_statuses=(PodResourceClaimStatus(name="nic", resource_claim_name="web-nic-x7k2p"),),
        extended_resource_claim_status=PodExtendedResourceClaimStatus(resource_claim_name="web-extended"),
    )
    bound = structs.replace(
        pod, spec=structs.replace(pod.spec, node_name="node-1", termination_grace_period_seconds=30)
    )
    with objects.writing() as writer:
        writer.update(POD, structs.replace(bound, status=status))
        writer.delete(POD, "default", "web")
    row = Pod.objects.get()
    assert (row.node_name, row.phase, row.deleting) == ("node-1", "Running", True)
    assert row.claim_names == ["shared", "web-nic-x7k2p", "web-extended"]
    assert claims_of_pods() == [("web", ""), ("web", "shared"), ("web", "web-extended"), ("web", "web-nic-x7k2p")]
    of_template = PodClaim.objects.filter(template="one-nic").order_by("claim")
    assert [row.claim for row in of_template] == ["", "web-nic-x7k2p"]
    with objects.writing() as writer:
        writer.delete(POD, "default", "web", grace_seconds=0)
    assert not Pod.objects.exists()
    assert claims_of_pods() == []


# Rebuilding ----------------------------------------------------------------------------------------------------------


def test_reindexing_gives_the_same_rows() -> None:
    write(make_claim("waiting"), holding("first", "gpu-0"), holding("shared", "gpu-1", share_id="1"))
    with objects.writing() as writer:
        writer.create(RESOURCE_SLICE, make_slice())
        pod = writer.create(POD, make_pod("web", claims={"gpu": "first"}))
        reserved = make_claim("first", allocation=make_allocation(), reserved_for=[make_consumer("web")])
        owner = structs.replace(reserved.metadata, owner_references=(), labels={"pod": pod.metadata.uid})
        writer.update(RESOURCE_CLAIM, structs.replace(reserved, metadata=owner))
    assert_rebuilt_the_same()


def test_reindexing_repairs_what_was_damaged() -> None:
    write(holding("first", "gpu-0"))
    intact = all_rows()
    AllocatedDevice.objects.all().delete()
    Claim.objects.update(allocated=False)
    call_command("reindex", skip_checks=True, verbosity=0)
    assert all_rows() == intact


def test_an_allocation_of_nothing_is_an_allocation() -> None:
    write(make_claim("empty", allocation=AllocationResult()))
    assert Claim.objects.get().allocated


# Claims of another cluster --------------------------------------------------------------------------------------------


def copy(*claims: ResourceClaim) -> None:
    with objects.writing() as writer:
        for claim in claims:
            meta = structs.replace(
                claim.metadata, uid=f"{claim.metadata.name}-uid", creation_timestamp="2026-01-01T00:00:00Z"
            )
            copied = structs.replace(claim, metadata=meta)
            writer.replicate(RESOURCE_CLAIM, copied, codec.to_builtins(copied))


def test_a_device_that_another_cluster_gives_twice_is_held_twice_here() -> None:
    """Its API refuses no second allocation; the truth is taken as it is, whatever came first and whatever goes."""
    copy(holding("first", "gpu-0"), holding("second", "gpu-0", "gpu-1"))
    copy(holding("third", "gpu-1"))
    rows = AllocatedDevice.objects.values_list("claim__name", "device", "exclusive").order_by("claim__name", "device")
    assert list(rows) == [
        ("first", "gpu-0", False),
        ("second", "gpu-0", False),
        ("second", "gpu-1", False),
        ("third", "gpu-1", False),
    ]
    assert_rebuilt_the_same()
    with objects.writing() as writer:
        writer.delete(RESOURCE_CLAIM, "default", "first")
    assert_rebuilt_the_same()
    with pytest.raises(DeviceTaken):
        write(holding("ours", "gpu-1"))
