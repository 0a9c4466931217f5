"""Who had which device, from when to when, is kept when the claim has given it back or is gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from msgspec import structs

from claims import projectors
from claims.kinds.registration import RESOURCE_CLAIM
from claims.kinds.resource_claims import ResourceClaim
from claims.models import PastAllocation
from manciple.store import objects
from manciple.wire.base import OwnerReference
from tests.builders import make_allocation, make_claim, make_consumer, make_result
from tests.claims.test_projectors import write

pytestmark = pytest.mark.django_db

NOON = "2026-11-20T12:00:00Z"


def holding(*devices: str, pods: tuple[str, ...] = ("web",), **fields: Any) -> ResourceClaim:
    allocation = make_allocation(*(make_result(device, **fields) for device in devices))
    allocation = structs.replace(allocation, allocation_timestamp=NOON)
    return make_claim("training", allocation=allocation, reserved_for=[make_consumer(pod) for pod in pods])


def past() -> list[tuple[str, str, list[str]]]:
    return [(row.device, row.claim, row.pods) for row in PastAllocation.objects.order_by("device")]


def test_what_is_held_is_no_history_yet() -> None:
    write(holding("gpu-0"))
    assert past() == []


def test_devices_given_back_are_kept_with_their_holders() -> None:
    write(holding("gpu-0", "gpu-1"))
    write(make_claim("training"))
    assert past() == [("gpu-0", "training", ["web"]), ("gpu-1", "training", ["web"])]
    row = PastAllocation.objects.first()
    assert row is not None
    assert (row.namespace, row.device_class) == ("default", "gpu.example.com")
    assert row.began_at == datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert abs(row.ended_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_claim_that_is_deleted_leaves_its_history() -> None:
    write(holding("gpu-0"))
    with objects.writing() as writer:
        writer.delete(RESOURCE_CLAIM, "default", "training")
    assert past() == [("gpu-0", "training", ["web"])]


def test_a_claim_that_only_changes_its_holders_keeps_its_devices() -> None:
    write(holding("gpu-0"))
    write(holding("gpu-0", pods=("web", "db")))
    assert past() == []


def test_a_claim_that_nobody_used_any_more_names_the_pod_it_was_made_for() -> None:
    owner = OwnerReference(api_version="v1", kind="Pod", name="job-1", uid="u-1", controller=True)
    claim = holding("gpu-0", pods=())
    write(structs.replace(claim, metadata=structs.replace(claim.metadata, owner_references=(owner,))))
    write(make_claim("training"))
    assert past() == [("gpu-0", "training", ["job-1"])]


def test_a_share_is_kept_with_what_it_consumed() -> None:
    write(holding("nic-0", share_id="a", consumed_capacity={"bandwidth": "10G"}))
    write(make_claim("training"))
    row = PastAllocation.objects.get()
    assert (row.share_id, row.consumed_capacity) == ("a", {"bandwidth": "10G"})


def test_rebuilding_the_index_leaves_the_history_alone() -> None:
    write(holding("gpu-0"))
    write(make_claim("training"))
    call_command("reindex")
    assert past() == [("gpu-0", "training", ["web"])]


def test_what_ended_too_long_ago_is_forgotten() -> None:
    write(holding("gpu-0"))
    write(make_claim("training"))
    now = datetime.now(UTC)
    assert projectors.prune_history(now + projectors.KEPT_FOR - timedelta(hours=1)) == 0
    assert projectors.prune_history(now + projectors.KEPT_FOR + timedelta(hours=1)) == 1
    assert past() == []


def test_only_so_many_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("gpu-0", "gpu-1", "gpu-2"):
        write(holding(device))
        write(make_claim("training"))
    monkeypatch.setattr(projectors, "KEPT_ROWS", 2)
    assert projectors.prune_history(datetime.now(UTC)) == 1
    assert list(PastAllocation.objects.order_by("id").values_list("device", flat=True)) == ["gpu-1", "gpu-2"]
