"""ResourcePoolStatusRequest: what may be asked and answered, and how kubectl shows it (KEP-5677)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec import structs

from inventory.kinds import gates
from inventory.kinds.pool_statuses import (
    RESOURCE_POOL_STATUS_REQUEST,
    PoolStatus,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus,
)
from manciple.wire.base import Condition
from manciple.wire.registry import Registry
from tests.builders import CREATED, DRIVER, make_meta

KIND = RESOURCE_POOL_STATUS_REQUEST
STATUS = KIND.subresources["status"]
#: The largest text that the field of an error takes, and one byte more.
TOO_LONG = "x" * 257


def make_pool(**fields: Any) -> PoolStatus:
    counts = {"total_devices": 4, "allocated_devices": 1, "available_devices": 2, "unavailable_devices": 1}
    return PoolStatus(**{"driver": DRIVER, "pool_name": "node-1", "generation": 1, **counts, **fields})


def make_answer(*pools: PoolStatus, type_: str = "Complete", **fields: Any) -> ResourcePoolStatusRequestStatus:
    condition = Condition(type=type_, status="True", reason="CalculationComplete", last_transition_time=CREATED)
    given = {"pool_count": len(pools), "pools": pools, "conditions": (condition,), **fields}
    return ResourcePoolStatusRequestStatus(**given)


def asked(
    driver: str = DRIVER, *, status: ResourcePoolStatusRequestStatus | None = None, **spec: Any
) -> ResourcePoolStatusRequest:
    return ResourcePoolStatusRequest(
        api_version=KIND.api_version,
        kind=KIND.kind,
        metadata=make_meta("gpus"),
        spec=ResourcePoolStatusRequestSpec(driver=driver, **spec),
        status=status,
    )


def test_what_is_new_has_a_limit_and_no_answer() -> None:
    made = KIND.prepare_create(asked(status=make_answer()))
    assert (made.spec.limit, made.status) == (100, None)


@pytest.mark.parametrize(
    ("request_", "wrong"),
    [
        (asked(""), ["spec.driver: Required value"]),
        (asked("not a driver"), ["spec.driver: Invalid value"]),
        (asked(pool_name=""), ["spec.poolName: Invalid value"]),
        (asked(pool_name="not a pool"), ["spec.poolName: Invalid value"]),
        (asked(limit=0), ["spec.limit: Invalid value: 0: must be greater than or equal to 1"]),
        (asked(limit=1001), ["spec.limit: Invalid value: 1001: must be less than or equal to 1000"]),
        (asked(default_partition_type_attribute="profile"), ["spec.defaultPartitionTypeAttribute: Invalid value"]),
        (asked("GPU.example.com", pool_name="rack/7", limit=1000), []),
    ],
)
def test_what_may_be_asked(request_: ResourcePoolStatusRequest, wrong: list[str]) -> None:
    found = KIND.validate_create(request_)
    assert len(found) == len(wrong)
    assert all(str(one).startswith(start) for one, start in zip(found, wrong, strict=True))


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (make_answer(pool_count=None), "status.poolCount"),
        (make_answer(pool_count=-1), "status.poolCount"),
        (make_answer(make_pool(driver="")), "status.pools[0].driver"),
        (make_answer(make_pool(pool_name="not a pool")), "status.pools[0].poolName"),
        (make_answer(make_pool(generation=-1)), "status.pools[0].generation"),
        (make_answer(make_pool(resource_slice_count=0)), "status.pools[0].resourceSliceCount"),
        (make_answer(make_pool(total_devices=-1)), "status.pools[0].totalDevices"),
        (make_answer(make_pool(node_name="not a node")), "status.pools[0].nodeName"),
        (make_answer(make_pool(validation_error=TOO_LONG)), "status.pools[0].validationError"),
        (make_answer(*[make_pool()] * 1001), "status.pools"),
        (make_answer(conditions=(Condition(type="Complete", status="Perhaps"),)), "status.conditions[0].status"),
    ],
)
def test_what_may_not_be_answered(answer: ResourcePoolStatusRequestStatus, field: str) -> None:
    assert field in [one.field for one in STATUS.validate_update(asked(status=answer), asked())]
    assert STATUS.validate_update(asked(status=make_answer(make_pool())), asked()) == []


def test_a_question_and_an_answer_stay_as_they_are() -> None:
    before = asked(limit=100)
    (wrong,) = KIND.validate_update(KIND.prepare_update(asked("other.example.com"), before), before)
    assert (wrong.field, wrong.detail) == ("spec", "field is immutable")
    assert KIND.validate_update(KIND.prepare_update(asked(), before), before) == []  # the limit is the default
    answered = structs.replace(before, status=make_answer(make_pool()))
    assert KIND.prepare_update(asked(), answered).status == answered.status
    changed = structs.replace(before, status=make_answer())
    (wrong,) = STATUS.validate_update(STATUS.prepare_update(changed, answered), answered)
    assert (wrong.field, wrong.detail) == ("status", "field is immutable")


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        (None, ["-", "-", "-", "-", "-", 0, "Pending", "<none>"]),
        (make_answer(make_pool(), make_pool()), ["8", "4", "2", "2", "0", 2, "Complete", "60s"]),
        (make_answer(make_pool(), pool_count=7), ["4", "2", "1", "1", "0", 7, "Complete (1/7 pools)", "60s"]),
        (
            make_answer(PoolStatus(driver=DRIVER, validation_error="PoolIncomplete: ...")),
            ["0", "0", "0", "0", "1", 1, "Complete", "60s"],
        ),
        (make_answer(type_="Failed"), ["-", "-", "-", "-", "-", 0, "Failed", "<none>"]),
    ],
)
def test_its_columns_sum_up_all_pools(status: ResourcePoolStatusRequestStatus | None, cells: list[Any]) -> None:
    now = datetime.fromisoformat(CREATED).timestamp() + 60
    names = ["Name", "Driver", "Total", "Available", "Allocated", "Unavailable", "Errors", "Pools", "Status"]
    columns = [column for column in KIND.columns if not column.priority]
    assert [column.name for column in columns] == [*names, "Completed"]
    assert [column.cell(asked(status=status), now) for column in columns] == ["gpus", DRIVER, *cells]


def test_it_is_found_while_its_gate_is_on() -> None:
    registry = Registry()
    registry.register(KIND)
    assert registry.groups() == {}
    with gates.using(DRAResourcePoolStatus=True):
        assert registry.groups() == {"resource.k8s.io": ("v1alpha3",)}
        assert [one.kind for one in registry.in_version("resource.k8s.io", "v1alpha3")] == [KIND]
        assert registry.served("resource.k8s.io", "v1alpha3", KIND.plural) is not None
    assert registry.served("resource.k8s.io", "v1alpha3", KIND.plural) is None
    assert registry.by_resource(KIND.resource) is KIND  # what is stored stays
