"""When held devices were used and idle is kept as their drivers tell it, and nothing of what they do not tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from msgspec import structs

from claims import uses
from claims.kinds.registration import RESOURCE_CLAIM
from claims.kinds.resource_claims import IDLE_CONDITION, AllocatedDeviceStatus, ResourceClaim
from claims.models import UseSpell
from manciple.store import objects
from manciple.wire.base import Condition, timestamp
from tests.builders import DRIVER, make_allocation, make_claim, make_result
from tests.claims.test_projectors import allow_admin_access, write

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def told(
    status: str,
    minute: int = 0,
    *,
    device: str = "gpu-0",
    type_: str = IDLE_CONDITION,
    node: str | None = "node-1",
    **fields: Any,
) -> Any:
    """A claim that has gpu-0 and gpu-1 since noon, and what the driver says of `device` since so many minutes later."""
    allocation = make_allocation(make_result("gpu-0", **fields), make_result("gpu-1", **fields), node=node)
    claim = make_claim("training", allocation=structs.replace(allocation, allocation_timestamp=timestamp(NOON)))
    at = timestamp(NOON + timedelta(minutes=minute))
    condition = Condition(type=type_, status=status, reason="Told", last_transition_time=at)
    report = AllocatedDeviceStatus(driver=DRIVER, pool="node-1", device=device, conditions=(condition,))
    return structs.replace(claim, status=structs.replace(claim.status, devices=(report,)))


def spells() -> list[tuple[str, bool, int, int | None]]:
    """(device, idle, minutes after noon from and to), in the order of time"""

    def minutes(at: datetime | None) -> int | None:
        return None if at is None else round((at - NOON) / timedelta(minutes=1))

    rows = UseSpell.objects.order_by("began_at")
    return [(row.device, row.idle, minutes(row.began_at) or 0, minutes(row.ended_at)) for row in rows]


def test_each_answer_of_a_driver_lasts_until_the_next() -> None:
    write(told("False", 2))
    write(told("True", 10))
    write(told("True", 11))
    write(told("False", 30))
    assert spells() == [("gpu-0", False, 2, 10), ("gpu-0", True, 10, 30), ("gpu-0", False, 30, None)]
    row = UseSpell.objects.first()
    assert row is not None
    assert (row.namespace, row.device_class) == ("default", "gpu.example.com")


@pytest.mark.parametrize("node", ["node-1", "node-2", None])
def test_it_is_of_the_node_of_the_allocation(node: str | None) -> None:
    """Nodes may use one name for their pools."""
    write(told("True", 5, node=node))
    assert UseSpell.objects.get().node == (node or "")


@pytest.mark.parametrize("how", ["given back", "deleted", "not told any more"])
def test_it_ends_with_the_claim_and_with_what_is_told(how: str) -> None:
    write(told("True", 5))
    if how == "deleted":
        with objects.writing() as writer:
            writer.delete(RESOURCE_CLAIM, "default", "training")
    else:
        write(make_claim("training") if how == "given back" else told("Unknown", 9))
    row = UseSpell.objects.get()
    assert row.ended_at is not None
    assert abs(row.ended_at - datetime.now(UTC)) < timedelta(minutes=1)


def untold() -> Iterator[tuple[str, ResourceClaim]]:
    yield "another condition", told("True", type_="Ready")
    yield "not known", told("Unknown")
    yield "a device that the claim has not", told("True", device="gpu-7")
    yield "admin access", told("True", admin_access=True)


@pytest.mark.parametrize(("what", "claim"), list(untold()), ids=[what for what, _ in untold()])
def test_nothing_else_is_recorded(what: str, claim: ResourceClaim) -> None:
    if what == "admin access":
        allow_admin_access()
    write(claim)
    assert spells() == []


def test_a_clock_that_goes_wrong_moves_nothing_out_of_the_time_in_which_the_claim_had_the_device() -> None:
    write(told("False", -60))
    write(told("True", 10**6))
    now = datetime.now(UTC)
    first, second = UseSpell.objects.order_by("began_at")
    assert first.began_at == NOON
    assert first.ended_at == second.began_at
    assert abs(second.began_at - now) < timedelta(minutes=1)


def test_a_driver_that_changes_its_mind_all_the_time_fills_no_table() -> None:
    for number in range(10):
        write(told(str(bool(number % 2)), 5))
    assert len(spells()) == 1


def test_rebuilding_the_index_records_nothing_anew() -> None:
    write(told("False", 2))
    write(told("True", 10))
    before = list(UseSpell.objects.values_list().order_by("id"))
    call_command("reindex")
    assert list(UseSpell.objects.values_list().order_by("id")) == before


def test_what_ended_too_long_ago_is_forgotten() -> None:
    write(told("False", 2))
    write(told("True", 10))
    assert uses.prune_uses(NOON + timedelta(days=90), kept_for=timedelta(days=90)) == 0
    assert uses.prune_uses(NOON + timedelta(days=91), kept_for=timedelta(days=90)) == 1
    assert spells() == [("gpu-0", True, 10, None)]
