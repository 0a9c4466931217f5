"""Answers ResourcePoolStatusRequests, once each, and clears them away (KEP-5677).

What is counted comes from the one model of the devices (`claims.devices`), at one revision for all pools of an answer.
A pool whose driver is still publishing its slices is waited for a few seconds; then the answer says what is wrong with
it. An answer is kept for an hour, a question that nobody answered for a day.

In each pool total = allocated + available + unavailable: a tainted device that a claim holds counts as allocated alone
(upstream counts it twice, against the description of the field).
Upstream: pkg/controller/resourcepoolstatusrequest of Kubernetes 1.36, and its views.go of 1.37.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec import structs

from claims.devices.cache import DeviceSnapshot, PoolState, read_devices
from claims.devices.published import CandidateDevice, Draw, charge, is_blocked, nanos
from inventory.kinds import gates
from inventory.kinds.pool_statuses import (
    COMPLETE,
    GATE,
    LIMIT_DEFAULT,
    VALIDATION_ERROR_MAX,
    PartitionSummary,
    PoolStatus,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
    ResourcePoolStatusRequestStatus,
    ShareableCapacitySummary,
    ShareableSummary,
    outcome_of,
)
from manciple.controllers import metrics
from manciple.controllers.declaration import Controller, batches
from manciple.store import objects
from manciple.store.objects import Writer
from manciple.wire.base import Condition, timestamp
from manciple.wire.identity import controller
from manciple.wire.quantity import Quantity
from manciple.wire.resources import ADDED, POOL_STATUS_REQUESTS, kind
from manciple.wire.validation import shortened

# Counting -------------------------------------------------------------------------------------------------------------


#: Entries of a summary; a pool that would have more says so instead.
SUMMARY_MAX = 32


class NoSummary(Exception):
    """What is wrong with a pool, as its `validationError` says it."""


def status_for(
    spec: ResourcePoolStatusRequestSpec, snapshot: DeviceSnapshot, now: datetime
) -> ResourcePoolStatusRequestStatus:
    matching = sorted(
        key
        for key, pool in snapshot.pools.items()
        if pool.pool.slices and key[0] == spec.driver and spec.pool_name in (None, key[1])
    )
    wanted = matching[: spec.limit or LIMIT_DEFAULT]
    pools = tuple(pool_status(snapshot.pools[key], spec.default_partition_type_attribute) for key in wanted)
    wrong = sum(pool.validation_error is not None for pool in pools)
    condition = Condition(
        type=COMPLETE,
        status="True",
        reason="CalculationComplete",
        message=f"Calculated status for {len(pools)} pools" + (f" ({wrong} incomplete)" if wrong else ""),
        last_transition_time=timestamp(now),
    )
    return ResourcePoolStatusRequestStatus(pool_count=len(matching), pools=pools, conditions=(condition,))


def pool_status(state: PoolState, partitions_by: str | None = None) -> PoolStatus:
    """partitions_by: the attribute that tells the partition of a device in a pool none of whose slices names one."""
    pool, (driver, name, _) = state.pool, state.pool.key
    found = PoolStatus(
        driver=driver, pool_name=name, generation=pool.generation, node_name=pool.node or None, validation_error=None
    )
    if not pool.complete:
        error = (
            f"PoolIncomplete: pool {driver}/{name} is incomplete: observed {len(pool.slices)}/{pool.expected} slices "
            f"at generation {pool.generation}"
        )
        return structs.replace(found, validation_error=shortened(error, VALIDATION_ERROR_MAX))
    return _with_summaries(structs.replace(found, **_counts(state)), state, partitions_by)


def _counts(state: PoolState) -> dict[str, int]:
    total = sum(1 for _ in state.candidates)
    allocated = len(state.holders)
    unavailable = sum(one.fence is not None and one.key not in state.holders for one in state.candidates)
    return {
        "resource_slice_count": len(state.pool.slices),
        "total_devices": total,
        "allocated_devices": allocated,
        "available_devices": max(0, total - allocated - unavailable),
        "unavailable_devices": unavailable,
    }


def _with_summaries(found: PoolStatus, state: PoolState, partitions_by: str | None) -> PoolStatus:
    """The counts stand whatever is wrong with a summary; of two errors the first is told."""
    error = ""
    try:
        found = structs.replace(found, partition_summary=partition_summary(state, partitions_by))
    except NoSummary as problem:
        error = str(problem)
    try:
        found = structs.replace(found, shareable_summary=shareable_summary(state))
    except NoSummary as problem:
        error = error or str(problem)
    if not error:
        return found
    shown = shortened(error, VALIDATION_ERROR_MAX)
    return structs.replace(found, partition_summary=(), validation_error=shown)


# Partitions -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Partitions:
    """Devices of one type. cost: what each draws. fresh: those that nobody holds."""

    cost: Draw
    total: int = 0
    fresh: list[CandidateDevice] = field(default_factory=list)


def partition_summary(state: PoolState, partitions_by: str | None) -> tuple[PartitionSummary, ...]:
    """By attribute and type: how many there are, and how many more fit in what the counters leave, each type by itself.

    Raises: NoSummary.
    """
    declared = {one.spec.partition_type_attribute for one in state.pool.slices} - {None}
    if not declared and partitions_by is None:
        return ()
    driver, name, _ = state.pool.key
    if not state.pool.counters:
        raise NoSummary(
            f"PartitionTypeMissing: pool {driver}/{name} declares partitionTypeAttribute but publishes no "
            "sharedCounters"
        )
    groups: dict[tuple[str, str], Partitions] = {}
    for one in state.pool.slices:
        attribute = one.spec.partition_type_attribute or (partitions_by if not declared else None)
        for candidate in one.candidates if attribute else ():
            if candidate.draws:
                _join(groups, attribute or "", candidate, state)
    if len(groups) > SUMMARY_MAX:
        raise NoSummary(
            f"PartitionSummaryOverCap: pool {driver}/{name} has {len(groups)} partition types, exceeding the maximum "
            f"of {SUMMARY_MAX}"
        )
    return tuple(
        PartitionSummary(
            attribute=attribute, type=type_, total=found.total, allocatable=_fitting(found.fresh, state.left)
        )
        for (attribute, type_), found in sorted(groups.items())
    )


def _join(
    groups: dict[tuple[str, str], Partitions], attribute: str, candidate: CandidateDevice, state: PoolState
) -> None:
    driver, name, _ = candidate.home
    attributes = candidate.device.attributes
    value = attributes.get(attribute) or attributes.get(attribute.removeprefix(f"{driver}/"))
    if value is None or value.string_value is None:
        raise NoSummary(
            f'PartitionTypeMissing: device "{candidate.name}" in pool {driver}/{name} does not carry partition type '
            f'attribute "{attribute}"'
        )
    group = groups.setdefault((attribute, value.string_value), Partitions(candidate.draws))
    if group.cost != candidate.draws:
        raise NoSummary(
            f'PartitionCostMismatch: devices of partition type "{value.string_value}" in pool {driver}/{name} consume '
            "different counters"
        )
    group.total += 1
    if candidate.key not in state.holders:
        group.fresh.append(candidate)


def _fitting(devices: Iterable[CandidateDevice], left: Draw) -> int:
    rest = {name: dict(amounts) for name, amounts in left.items()}
    count = 0
    for one in devices:
        if not is_blocked(one, rest):
            charge(one.draws, rest)
            count += 1
    return count


# Shared devices -------------------------------------------------------------------------------------------------------


def shareable_summary(state: PoolState) -> ShareableSummary | None:
    """None where nothing of the pool is shared. Raises: NoSummary."""
    shared = [one for one in state.candidates if one.device.allow_multiple_allocations]
    if not shared:
        return None
    total: dict[str, Quantity] = {}
    consumed: dict[str, int] = {}
    for one in shared:
        for name, capacity in one.device.capacity.items():
            value = Quantity(nanos(capacity.value), Quantity.parse(capacity.value).format)
            total[name] = total[name] + value if name in total else value
        for holder in state.holders.get(one.key, ()):
            for name, amount in holder.consumed.items():
                consumed[name] = consumed.get(name, 0) + amount
    if len(total) > SUMMARY_MAX:
        driver, name, _ = state.pool.key
        raise NoSummary(
            f"ShareableSummaryOverCap: pool {driver}/{name} has {len(total)} shareable capacity keys, exceeding the "
            f"maximum of {SUMMARY_MAX}"
        )
    used = sum(one.key in state.holders for one in shared)
    return ShareableSummary(
        fully_available_devices=len(shared) - used,
        partially_available_devices=used,
        capacity=tuple(_capacity(name, amount, consumed.get(name, 0)) for name, amount in sorted(total.items())),
    )


def _capacity(name: str, total: Quantity, consumed: int) -> ShareableCapacitySummary:
    return ShareableCapacitySummary(
        name=name,
        total=str(total),
        consumed=str(Quantity(consumed, total.format)),
        available=str(Quantity(max(0, total.nanos - consumed), total.format)),
    )


# Reconciling ----------------------------------------------------------------------------------------------------------


IDENTITY = controller("resourcepoolstatusrequest-controller")
#: How long a driver may take to publish the rest of a pool before that counts as an error.
PATIENCE = timedelta(seconds=5)
#: After which answered and unanswered requests are deleted.
ANSWERED_FOR, UNANSWERED_FOR = timedelta(hours=1), timedelta(hours=24)
#: Requests in one transaction: an answer may hold a thousand pools.
BATCH = 20


def reconcile(now: datetime) -> int:
    """Returns how many requests were answered or deleted."""
    if not gates.enabled(GATE):
        return 0
    _, requests = objects.listed(POOL_STATUS_REQUESTS, ResourcePoolStatusRequest)
    expired = [one for one in requests if is_expired(one, now)]
    open_ = [one for one in requests if one.status is None and not is_expired(one, now)]
    deleted = sum(_delete(batch) for batch in batches(expired, BATCH))
    return deleted + sum(_answer(batch, now) for batch in batches(open_, BATCH))


def is_expired(request: ResourcePoolStatusRequest, now: datetime) -> bool:
    created = request.metadata.creation_timestamp
    if request.status is None:
        return created is not None and now - datetime.fromisoformat(created) > UNANSWERED_FOR
    condition = outcome_of(request)
    since = condition.last_transition_time if condition is not None else created
    return since is not None and now - datetime.fromisoformat(since) > ANSWERED_FOR


def _answer(requests: Sequence[ResourcePoolStatusRequest], now: datetime) -> int:
    began, snapshot = time.monotonic(), read_devices()
    answers = {
        one.metadata.uid: status
        for one in requests
        if not _waits(status := status_for(one.spec, snapshot, now), one, now)
    }
    ready = [one for one in requests if one.metadata.uid in answers]
    with objects.writing(identity=IDENTITY) as writer:
        current = _current(writer, ready)
        for request in current:
            answered = structs.replace(request, status=answers[request.metadata.uid])
            writer.update(kind(POOL_STATUS_REQUESTS), answered, subresource="status")
    took, drivers = time.monotonic() - began, {pool[0] for pool in snapshot.pools}
    for request in current:
        # Names that no driver has would let whoever asks make as many time series as they like.
        driver = request.spec.driver
        metrics.pool_status_answered(driver if driver in drivers else "", took)
    return len(current)


def _waits(status: ResourcePoolStatusRequestStatus, request: ResourcePoolStatusRequest, now: datetime) -> bool:
    """Whether a driver may still be publishing."""
    created = request.metadata.creation_timestamp
    young = created is not None and now - datetime.fromisoformat(created) < PATIENCE
    return young and any((pool.validation_error or "").startswith("PoolIncomplete:") for pool in status.pools)


def _current(writer: Writer, requests: Sequence[ResourcePoolStatusRequest]) -> list[ResourcePoolStatusRequest]:
    """Those that are still there and not answered."""
    writer.load(kind(POOL_STATUS_REQUESTS), [one.key for one in requests])
    found = [(one, writer.get(kind(POOL_STATUS_REQUESTS), *one.key)) for one in requests]
    return [
        now
        for before, now in found
        if isinstance(now, ResourcePoolStatusRequest) and now.metadata.uid == before.metadata.uid and now.status is None
    ]


def _delete(requests: Sequence[ResourcePoolStatusRequest]) -> int:
    deleted = 0
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(POOL_STATUS_REQUESTS), [one.key for one in requests])
        for request in requests:
            known = writer.get(kind(POOL_STATUS_REQUESTS), *request.key)
            if known is not None and known.metadata.uid == request.metadata.uid:
                writer.delete(kind(POOL_STATUS_REQUESTS), *request.key, uid=request.metadata.uid)
                deleted += 1
    return deleted


CONTROLLER = Controller(
    name="answer_pool_requests",
    does="answers ResourcePoolStatusRequests, and deletes them after an hour",
    in_mirror=False,
    reconcile=reconcile,
    every=10,
    wakes_on=frozenset({(POOL_STATUS_REQUESTS, ADDED)}),
    queue_name="resourcepoolstatusrequest-controller",
)
